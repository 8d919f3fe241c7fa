/* Loss of softmax attention over stored sequences and its gradient in one pass: see _fused.py for the mathematics.

   Compiled for each element type, with -DREAL=double and -DREAL=float. Sequences are laid out in
   blocks of LANES, innermost in memory, so that every operation is one on a vector of sequences; a block's tokens stay in
   cache from the scores to the gradient, and each exponential is made once. */

#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "xla/ffi/api/c_api.h"

#define LANES ((int)(64 / sizeof(REAL)))
#define MANY 64
#define INLINE static inline __attribute__((always_inline))

typedef REAL vec __attribute__((vector_size(64)));
typedef __typeof__((vec){0} > (vec){0}) mask;

INLINE vec larger(vec a, vec b)
{
    mask which = a > b;
    return (vec)(((mask)a & which) | ((mask)b & ~which));
}

/* e^x for x <= 0, to rounding: 2^n times a Taylor polynomial of the remainder. */
typedef int64_t whole64 __attribute__((vector_size(64)));
typedef int32_t whole32 __attribute__((vector_size(64)));
#define IS_DOUBLE (sizeof(REAL) == 8)

INLINE vec exponential(vec x)
{
    const REAL lowest = IS_DOUBLE ? (REAL)-700 : (REAL)-85;
    const REAL magic = IS_DOUBLE ? (REAL)6755399441055744.0 : (REAL)12582912.0;
    const REAL high = IS_DOUBLE ? (REAL)0.693147180369123816490 : (REAL)0.693359375;
    const REAL low = IS_DOUBLE ? (REAL)1.90821492927058770002e-10 : (REAL)-2.12194440e-4;
    vec floor = {0};
    floor += lowest;
    x = larger(x, floor);
    vec shifted = x * (REAL)1.4426950408889634 + magic;
    vec n = shifted - magic;
    vec r = x - n * high;
    r = r - n * low;
    const int degree = IS_DOUBLE ? 13 : 7;
    static const double inverse_factorials[14] = {
        1.0, 1.0, 0.5, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800,
        1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};
    vec p = {0};
    p += (REAL)inverse_factorials[degree];
#pragma GCC unroll 16
    for (int k = degree - 1; k >= 0; k--)
        p = p * r + (REAL)inverse_factorials[k];
    if (IS_DOUBLE) {
        whole64 bits = (whole64)shifted << 52;
        return (vec)((whole64)p + bits);
    }
    whole32 bits = (whole32)shifted << 23;
    return (vec)((whole32)p + bits);
}

/* sum_e coefficient[h][e] token[t][e] for `heads` heads, written to out[h][t]. */
INLINE void project(int heads, const vec *token, int tokens, int width, const vec *coefficient, vec *out)
{
    for (int t = 0; t < tokens; t++) {
        vec sum[4] = {{0}};
        const vec *z = token + (int64_t)t * width;
        for (int e = 0; e < width; e++)
            for (int h = 0; h < heads; h++)
                sum[h] += coefficient[h * width + e] * z[e];
        for (int h = 0; h < heads; h++)
            out[h * tokens + t] = sum[h];
    }
}

/* sum_t weight[h][t] token[t][e] for `heads` heads and `part` entries from e on, written to out[h][e]. */
INLINE void gather(int heads, int part, const vec *token, int tokens, int width, const vec *weight, int e, vec *out)
{
    vec sum[4][6] = {{{0}}};
    for (int t = 0; t < tokens; t++) {
        const vec *z = token + (int64_t)t * width + e;
        for (int h = 0; h < heads; h++) {
            vec w = weight[h * tokens + t];
            for (int k = 0; k < part; k++)
                sum[h][k] += w * z[k];
        }
    }
    for (int h = 0; h < heads; h++)
        for (int k = 0; k < part; k++)
            out[h * width + e + k] = sum[h][k];
}

#define FOR_HEADS(heads, call)                                                                                           \
    switch (heads) {                                                                                                     \
    case 1: { enum { N = 1 }; call; break; }                                                                             \
    case 2: { enum { N = 2 }; call; break; }                                                                             \
    case 3: { enum { N = 3 }; call; break; }                                                                             \
    default: { enum { N = 4 }; call; break; }                                                                            \
    }

static void project_heads(int heads, const vec *token, int tokens, int width, const vec *coefficient, vec *out)
{
    FOR_HEADS(heads, project(N, token, tokens, width, coefficient, out))
}

static void gather_heads(int heads, const vec *token, int tokens, int width, const vec *weight, vec *out)
{
    int e = 0;
    for (; e + 6 <= width; e += 6)
        FOR_HEADS(heads, gather(N, 6, token, tokens, width, weight, e, out))
    switch (width - e) {
    case 1: FOR_HEADS(heads, gather(N, 1, token, tokens, width, weight, e, out)) break;
    case 2: FOR_HEADS(heads, gather(N, 2, token, tokens, width, weight, e, out)) break;
    case 3: FOR_HEADS(heads, gather(N, 3, token, tokens, width, weight, e, out)) break;
    case 4: FOR_HEADS(heads, gather(N, 4, token, tokens, width, weight, e, out)) break;
    case 5: FOR_HEADS(heads, gather(N, 5, token, tokens, width, weight, e, out)) break;
    }
}

typedef struct {
    int64_t runs, blocks, tokens, width, dim, heads, outputs;
    const REAL *bilinear, *readout, *token, *query, *target, *weight;
    int64_t token_runs; /* 1 if all runs see the same sequences */
    double *loss, *d_bilinear, *d_readout; /* one thread's part of the results */
    int64_t first, last;                   /* its share of runs * blocks */
} Job;

typedef struct {
    vec *direction, *weight, *pooled, *slope, *d_pooled, *d_direction, *total, *answer, *d_bilinear, *d_readout;
    vec loss;
} Room;

static vec *take(vec **free, int64_t count)
{
    vec *found = *free;
    *free += count;
    return found;
}

/* Add what a thread has gathered for a run to its results, in double precision, and clear it. */
static void settle(Job *job, Room *room, int64_t run)
{
    int64_t bilinear = job->heads * job->width * job->dim, readout = job->heads * job->outputs * job->width;
    for (int lane = 0; lane < LANES; lane++)
        job->loss[run] += (double)room->loss[lane];
    for (int64_t k = 0; k < bilinear; k++)
        for (int lane = 0; lane < LANES; lane++)
            job->d_bilinear[run * bilinear + k] += (double)room->d_bilinear[k][lane];
    for (int64_t k = 0; k < readout; k++)
        for (int lane = 0; lane < LANES; lane++)
            job->d_readout[run * readout + k] += (double)room->d_readout[k][lane];
    room->loss = (vec){0};
    memset(room->d_bilinear, 0, bilinear * sizeof(vec));
    memset(room->d_readout, 0, readout * sizeof(vec));
}

static void one_block(const Job *job, Room *room, int64_t run, int64_t block)
{
    const int T = job->tokens, E = job->width, D = job->dim, H = job->heads, O = job->outputs;
    const int64_t at = (job->token_runs == 1 ? 0 : run * job->blocks) + block;
    const vec *token = (const vec *)job->token + at * T * E;
    const vec *query = (const vec *)job->query + at * D;
    const vec *target = (const vec *)job->target + at * O;
    const vec share = ((const vec *)job->weight)[at];
    const REAL *bilinear = job->bilinear + run * H * E * D, *readout = job->readout + run * H * O * E;

    for (int k = 0; k < H * E; k++) {
        vec sum = {0};
        for (int d = 0; d < D; d++)
            sum += bilinear[k * D + d] * query[d];
        room->direction[k] = sum;
    }
    for (int h = 0; h < H; h += 4) {
        int group = H - h < 4 ? H - h : 4;
        project_heads(group, token, T, E, room->direction + h * E, room->weight + h * T);
        for (int g = h; g < h + group; g++) {
            vec *w = room->weight + g * T, most = w[0], sum = {0};
            for (int t = 1; t < T; t++)
                most = larger(w[t], most);
            for (int t = 0; t < T; t++) {
                w[t] = exponential(w[t] - most);
                sum += w[t];
            }
            room->total[g] = (REAL)1 / sum;
        }
        gather_heads(group, token, T, E, room->weight + h * T, room->pooled + h * E);
    }
    for (int h = 0; h < H; h++)
        for (int e = 0; e < E; e++)
            room->pooled[h * E + e] *= room->total[h];
    for (int k = 0; k < H * E; k++)
        room->d_pooled[k] = (vec){0};
    for (int o = 0; o < O; o++) {
        vec error = -target[o];
        for (int h = 0; h < H; h++)
            for (int e = 0; e < E; e++)
                error += readout[(h * O + o) * E + e] * room->pooled[h * E + e];
        room->loss += share * error * error;
        error = (REAL)2 * share * error;
        for (int h = 0; h < H; h++)
            for (int e = 0; e < E; e++) {
                room->d_readout[(h * O + o) * E + e] += error * room->pooled[h * E + e];
                room->d_pooled[h * E + e] += readout[(h * O + o) * E + e] * error;
            }
    }
    for (int h = 0; h < H; h += 4) {
        int group = H - h < 4 ? H - h : 4;
        project_heads(group, token, T, E, room->d_pooled + h * E, room->slope);
        for (int g = 0; g < group; g++) {
            vec mean = {0};
            for (int e = 0; e < E; e++)
                mean += room->d_pooled[(h + g) * E + e] * room->pooled[(h + g) * E + e];
            vec *w = room->weight + (h + g) * T, *s = room->slope + g * T, scale = room->total[h + g];
            for (int t = 0; t < T; t++)
                w[t] *= scale * (s[t] - mean);
        }
        gather_heads(group, token, T, E, room->weight + h * T, room->d_direction + h * E);
    }
    for (int k = 0; k < H * E; k++)
        for (int d = 0; d < D; d++)
            room->d_bilinear[k * D + d] += room->d_direction[k] * query[d];
}

static void *work(void *given)
{
    Job *job = given;
    const int64_t T = job->tokens, E = job->width, D = job->dim, H = job->heads, O = job->outputs;
    int64_t count = 5 * H * E + H * T + 4 * T + H + H * E * D + H * O * E;
    vec *memory = NULL;
    if (posix_memalign((void **)&memory, 64, count * sizeof(vec)))
        return (void *)1;
    memset(memory, 0, count * sizeof(vec));
    vec *free_from = memory;
    Room room = {0};
    room.direction = take(&free_from, H * E);
    room.pooled = take(&free_from, H * E);
    room.d_pooled = take(&free_from, H * E);
    room.d_direction = take(&free_from, H * E);
    room.weight = take(&free_from, H * T);
    room.slope = take(&free_from, 4 * T);
    room.total = take(&free_from, H);
    room.d_bilinear = take(&free_from, H * E * D);
    room.d_readout = take(&free_from, H * O * E);
    int64_t done = 0;
    for (int64_t k = job->first; k < job->last; k++) {
        int64_t run = k / job->blocks;
        one_block(job, &room, run, k % job->blocks);
        if (++done == MANY || k + 1 == job->last || (k + 1) / job->blocks != run) {
            settle(job, &room, run);
            done = 0;
        }
    }
    free(memory);
    return NULL;
}

static int64_t cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

static XLA_FFI_Error *refuse(XLA_FFI_CallFrame *frame, const char *message)
{
    XLA_FFI_Error_Create_Args error = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, message,
                                       XLA_FFI_Error_Code_INVALID_ARGUMENT};
    return frame->api->XLA_FFI_Error_Create(&error);
}

static int64_t leading(const XLA_FFI_Buffer *buffer, int64_t own)
{
    int64_t product = 1;
    for (int64_t k = 0; k < buffer->rank - own; k++)
        product *= buffer->dims[k];
    return product;
}

XLA_FFI_Error *softmax_loss(XLA_FFI_CallFrame *frame)
{
    if (frame->extension_start != NULL && frame->extension_start->type == XLA_FFI_Extension_Metadata) {
        XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
        metadata->api_version.major_version = XLA_FFI_API_MAJOR;
        metadata->api_version.minor_version = XLA_FFI_API_MINOR;
        return NULL;
    }
    XLA_FFI_Buffer **in = (XLA_FFI_Buffer **)frame->args.args, **out = (XLA_FFI_Buffer **)frame->rets.rets;
    const int64_t *w = in[0]->dims + in[0]->rank - 3, *z = in[2]->dims + in[2]->rank - 4;
    Job job = {.runs = leading(in[0], 3), .heads = w[0], .width = w[1], .dim = w[2], .blocks = z[0], .tokens = z[1]};
    job.outputs = in[1]->dims[in[1]->rank - 2];
    job.token_runs = leading(in[2], 4);
    if (leading(in[1], 3) != job.runs || leading(in[3], 3) != job.token_runs || leading(in[4], 3) != job.token_runs ||
        leading(in[5], 2) != job.token_runs || (job.token_runs != 1 && job.token_runs != job.runs) ||
        z[3] != LANES || z[2] != job.width)
        return refuse(frame, "softmax_loss: the arrays do not fit together");
    job.bilinear = in[0]->data, job.readout = in[1]->data, job.token = in[2]->data;
    job.query = in[3]->data, job.target = in[4]->data, job.weight = in[5]->data;

    /* Each thread has results of its own, added up in order: the same sum whenever there are as many threads. */
    enum { MOST = 64 };
    int64_t pieces = job.runs * job.blocks, threads = cores();
    int64_t sizes[3] = {job.runs, job.runs * job.heads * job.width * job.dim, job.runs * job.heads * job.outputs * job.width};
    int64_t each = sizes[0] + sizes[1] + sizes[2];
    if (threads > MOST) threads = MOST;
    if (threads > pieces / 8) threads = pieces / 8 > 0 ? pieces / 8 : 1;
    double *results = calloc(threads * each, sizeof(double));
    if (results == NULL) return refuse(frame, "softmax_loss: out of memory");
    Job parts[MOST];
    pthread_t started[MOST];
    int64_t running = 0;
    void *failed = NULL;
    for (int64_t k = 0; k < threads; k++) {
        parts[k] = job;
        parts[k].first = pieces * k / threads, parts[k].last = pieces * (k + 1) / threads;
        parts[k].loss = results + k * each;
        parts[k].d_bilinear = parts[k].loss + sizes[0], parts[k].d_readout = parts[k].d_bilinear + sizes[1];
    }
    while (running < threads - 1 && pthread_create(&started[running], NULL, work, &parts[running]) == 0)
        running++;
    for (int64_t k = running; k < threads; k++) /* the last one here, and any for which there was no thread */
        if (work(&parts[k]) != NULL) failed = results;
    for (int64_t k = 0; k < running; k++) {
        void *told = NULL;
        pthread_join(started[k], &told);
        if (told != NULL) failed = results;
    }
    int64_t start = 0;
    for (int r = 0; r < 3; start += sizes[r++]) {
        double *sum = out[r]->data;
        memcpy(sum, results + start, sizes[r] * sizeof(double));
        for (int64_t k = 1; k < threads; k++)
            for (int64_t n = 0; n < sizes[r]; n++)
                sum[n] += results[k * each + start + n];
    }
    free(results);
    return failed != NULL ? refuse(frame, "softmax_loss: out of memory") : NULL;
}
