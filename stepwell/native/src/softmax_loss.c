/* Loss of softmax attention over stored sequences and its gradient in one pass: see _fused.py for the mathematics.

   A block's tokens stay in cache from the scores to the gradient, while those of the next are fetched; each exponential
   is made once. */

#include "native.h"

enum { MANY = 64 };

/* sum_e coefficient[h][e] token[t][e] for `heads` heads and `part` tokens, written to out[h][t]. */
INLINE void project(int heads, int part, const vec *token, int tokens, int width, const vec *coefficient, vec *out)
{
    vec sum[4][4] = {{{0}}};
    for (int e = 0; e < width; e++)
        for (int h = 0; h < heads; h++)
            for (int t = 0; t < part; t++)
                sum[h][t] += coefficient[h * width + e] * token[t * width + e];
    for (int h = 0; h < heads; h++)
        for (int t = 0; t < part; t++)
            out[h * tokens + t] = sum[h][t];
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

/* Meanwhile as many vectors from `ahead` on as half the tokens have are brought into cache. */
static void project_heads(int heads, const vec *token, int tokens, int width, const vec *coefficient, vec *out,
                          const vec *ahead)
{
    int t = 0;
    for (; t + 4 <= tokens; t += 4) {
        for (int k = 0; k < 2 * width; k++)
            __builtin_prefetch(ahead++, 0, 2);
        FOR_SMALL(N, heads, project(N, 4, token + t * width, tokens, width, coefficient, out + t), )
    }
    for (; t < tokens; t++)
        FOR_SMALL(N, heads, project(N, 1, token + t * width, tokens, width, coefficient, out + t), )
}

static void gather_heads(int heads, const vec *token, int tokens, int width, const vec *weight, vec *out)
{
    int e = 0;
    for (; e + 6 <= width; e += 6)
        FOR_SMALL(N, heads, gather(N, 6, token, tokens, width, weight, e, out), )
    const int rest = width - e;
    FOR_SMALL(K, rest, FOR_SMALL(N, heads, gather(N, K, token, tokens, width, weight, e, out), ),
              if (rest == 5) FOR_SMALL(N, heads, gather(N, 5, token, tokens, width, weight, e, out), ))
}

typedef struct {
    int64_t runs, blocks, tokens, width, dim, heads, outputs;
    Input bilinear, readout, token, query, target, weight;
} Job;

typedef struct {
    vec *direction, *weight, *pooled, *slope, *d_pooled, *d_direction, *total;
    vec *loss, *d_bilinear, *d_readout; /* gathered from several blocks, one after the other in memory */
} Room;

static void one_block(const Job *job, Room *room, int64_t run, int64_t block)
{
    const int T = job->tokens, E = job->width, D = job->dim, H = job->heads, O = job->outputs;
    const vec *token = vectors_of_run(job->token, run) + block * T * E, *next = token + T * E;
    const vec *query = vectors_of_run(job->query, run) + block * D;
    const vec *target = vectors_of_run(job->target, run) + block * O;
    const vec share = vectors_of_run(job->weight, run)[block];
    const REAL *bilinear = of_run(job->bilinear, run), *readout = of_run(job->readout, run);

    for (int k = 0; k < H * E; k++) {
        vec sum = {0};
        for (int d = 0; d < D; d++)
            sum += bilinear[k * D + d] * query[d];
        room->direction[k] = LOG2_E * sum; /* scores are exponents of two */
    }
    for (int h = 0; h < H; h += 4) {
        int group = H - h < 4 ? H - h : 4;
        project_heads(group, token, T, E, room->direction + h * E, room->weight + h * T, next);
        for (int g = h; g < h + group; g++) {
            vec *w = room->weight + g * T, most = largest(w, T), sum = {0};
            for (int t = 0; t < T; t++) {
                w[t] = fraction_of_two(w[t] - most);
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
        *room->loss += share * error * error;
        error = (REAL)2 * share * error;
        for (int h = 0; h < H; h++)
            for (int e = 0; e < E; e++) {
                room->d_readout[(h * O + o) * E + e] += error * room->pooled[h * E + e];
                room->d_pooled[h * E + e] += readout[(h * O + o) * E + e] * error;
            }
    }
    for (int h = 0; h < H; h += 4) {
        int group = H - h < 4 ? H - h : 4;
        project_heads(group, token, T, E, room->d_pooled + h * E, room->slope, next + T * E / 2);
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
    const Share *mine = given;
    const Job *job = mine->job;
    const int64_t T = job->tokens, E = job->width, D = job->dim, H = job->heads, O = job->outputs;
    const int64_t gathered = 1 + H * E * D + H * O * E;
    vec *memory = vectors(4 * H * E + H * T + 4 * T + H + gathered), *free_from = memory;
    if (memory == NULL) return (void *)1;
    Room room;
    room.direction = take(&free_from, H * E);
    room.pooled = take(&free_from, H * E);
    room.d_pooled = take(&free_from, H * E);
    room.d_direction = take(&free_from, H * E);
    room.weight = take(&free_from, H * T);
    room.slope = take(&free_from, 4 * T);
    room.total = take(&free_from, H);
    room.loss = take(&free_from, 1);
    room.d_bilinear = take(&free_from, H * E * D);
    room.d_readout = take(&free_from, H * O * E);
    for (int64_t at = mine->first; at < mine->last; at++) {
        const int64_t run = at / job->blocks, block = at % job->blocks;
        one_block(job, &room, run, block);
        if ((block + 1) % MANY == 0 || block + 1 == job->blocks || at + 1 == mine->last)
            settle(room.loss, gathered, mine->results + run * gathered);
    }
    free(memory);
    return NULL;
}

XLA_FFI_Error *softmax_loss(XLA_FFI_CallFrame *frame)
{
    if (asked_for_version(frame)) return NULL;
    XLA_FFI_Buffer **in = (XLA_FFI_Buffer **)frame->args.args, **out = (XLA_FFI_Buffer **)frame->rets.rets;
    const int64_t *w = own_dims(in[0], 3), *z = own_dims(in[2], 4);
    Job job = {.runs = runs_of(out[0], 0), .heads = w[0], .width = w[1], .dim = w[2], .blocks = z[0], .tokens = z[1]};
    job.outputs = own_dims(in[1], 3)[1];
    Input *to[] = {&job.bilinear, &job.readout, &job.token, &job.query, &job.target, &job.weight};
    const int own[] = {3, 3, 4, 3, 3, 2};
    int fit = z[3] == LANES && z[2] == job.width;
    for (int k = 0; k < 6; k++) {
        fit &= runs_of(in[k], own[k]) == 1 || runs_of(in[k], own[k]) == job.runs;
        *to[k] = input(in[k], own[k]);
    }
    if (!fit) return refuse(frame, "softmax_loss: the arrays do not fit together");

    const int64_t sizes[3] = {1, job.heads * job.width * job.dim, job.heads * job.outputs * job.width};
    const int64_t each = sizes[0] + sizes[1] + sizes[2];
    double *results = malloc(job.runs * each * sizeof(double));
    int good = results != NULL && fan_out(work, &job, job.runs * job.blocks, 8, job.runs * each, results);
    for (int64_t run = 0; good && run < job.runs; run++)
        for (int64_t k = 0, start = 0; k < 3; start += sizes[k++])
            memcpy((double *)out[k]->data + run * sizes[k], results + run * each + start, sizes[k] * sizeof(double));
    free(results);
    return good ? NULL : refuse(frame, "softmax_loss: out of memory");
}
