/* Loss of softmax attention over stored sequences and its gradient in one pass: the mathematics is in
   stepwell/dynamics/fast/_fused_sampled.py.

   A block's tokens stay in cache from the scores to the gradient, while those of the next are fetched; each exponential
   is made once. */

#include "native.h"

/* Blocks that are summed before they are added up in double precision, and blocks that are worth a thread: some dozen
   microseconds. */
enum { MANY = 64, ENOUGH = 512 / VECTOR_BYTES };

/* Tiles of heads and tokens, and of heads and entries, whose sums fill the registers. */
enum { HEADS = REGISTERS > 16 ? 4 : 3, TOKENS = 4, ENTRIES = REGISTERS > 16 ? 6 : 5 };

/* sum_e coefficient[h][e] token[t][e] for `heads` heads and `part` tokens. */
INLINE void project(int heads, int part, const vec *token, int width, const vec *coefficient, vec sum[4][TOKENS])
{
    for (int h = 0; h < heads; h++)
        for (int t = 0; t < part; t++)
            sum[h][t] = (vec){0};
    for (int e = 0; e < width; e++)
        for (int h = 0; h < heads; h++)
            for (int t = 0; t < part; t++)
                sum[h][t] += coefficient[h * width + e] * token[t * width + e];
}

/* Scores of `part` tokens, to score[h][t], and of each head the largest so far. */
INLINE void score(int heads, int part, const vec *token, int tokens, int width, const vec *direction, vec *score,
                  vec *most)
{
    vec sum[4][TOKENS];
    project(heads, part, token, width, direction, sum);
    for (int h = 0; h < heads; h++)
        for (int t = 0; t < part; t++) {
            score[h * tokens + t] = sum[h][t];
            most[h] = larger(sum[h][t], most[h]);
        }
}

/* Weights p_t of `part` tokens, but for their scale, become the derivatives p_t (g z_t - g m) by their scores. */
INLINE void differentiate(int heads, int part, const vec *token, int tokens, int width, const vec *slope,
                          const vec *mean, const vec *scale, vec *weight)
{
    vec sum[4][TOKENS];
    project(heads, part, token, width, slope, sum);
    for (int h = 0; h < heads; h++)
        for (int t = 0; t < part; t++)
            weight[h * tokens + t] *= scale[h] * (sum[h][t] - mean[h]);
}

/* As many vectors from `ahead` on as half of TOKENS tokens have are brought into cache, line by line. */
INLINE const vec *fetch(const vec *ahead, int width)
{
    const vec *end = ahead + TOKENS / 2 * width;
    for (const char *line = (const char *)ahead; line < (const char *)end; line += 64)
        __builtin_prefetch(line, 0, 2);
    return end;
}

INLINE void score_all(int heads, const vec *token, int tokens, int width, const vec *direction, vec *scores, vec *most,
                      const vec *ahead)
{
    int t = 0;
    for (int h = 0; h < heads; h++)
        most[h] = (vec){0} - (REAL)__builtin_inf();
    for (; t + TOKENS <= tokens; t += TOKENS) {
        ahead = fetch(ahead, width);
        score(heads, TOKENS, token + t * width, tokens, width, direction, scores + t, most);
    }
    for (; t < tokens; t++)
        score(heads, 1, token + t * width, tokens, width, direction, scores + t, most);
}

INLINE void differentiate_all(int heads, const vec *token, int tokens, int width, const vec *slope, const vec *mean,
                              const vec *scale, vec *weight, const vec *ahead)
{
    int t = 0;
    for (; t + TOKENS <= tokens; t += TOKENS) {
        ahead = fetch(ahead, width);
        differentiate(heads, TOKENS, token + t * width, tokens, width, slope, mean, scale, weight + t);
    }
    for (; t < tokens; t++)
        differentiate(heads, 1, token + t * width, tokens, width, slope, mean, scale, weight + t);
}

/* sum_t weight[h][t] token[t][e] for `heads` heads and `part` entries from e on, written to out[h][e]. */
INLINE void gather(int heads, int part, const vec *token, int tokens, int width, const vec *weight, int e, vec *out)
{
    vec sum[4][ENTRIES] = {{{0}}};
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

static void gather_all(int heads, const vec *token, int tokens, int width, const vec *weight, vec *out)
{
    int e = 0;
    for (; e + ENTRIES <= width; e += ENTRIES)
        FOR_SMALL(N, heads, gather(N, ENTRIES, token, tokens, width, weight, e, out), )
    const int rest = width - e;
    FOR_SMALL(K, rest, FOR_SMALL(N, heads, gather(N, K, token, tokens, width, weight, e, out), ),
              if (rest == 5) FOR_SMALL(N, heads, gather(N, 5, token, tokens, width, weight, e, out), ))
}

typedef struct {
    int64_t runs, blocks, tokens, width, dim, heads, outputs;
    Input bilinear, readout, token, query, target, weight;
} Job;

typedef struct {
    vec *direction, *weight, *pooled, *d_pooled, *d_direction;
    vec *scale;                         /* of each head, one over the sum of its weights */
    vec *loss, *d_bilinear, *d_readout; /* gathered from several blocks, one after the other in memory */
} Workspace;

/* direction[h][e] = sum_d bilinear[h][e][d] query[d], in scores that are exponents of two. */
INLINE void point(int count, int D, const REAL *bilinear, const vec *query, vec *direction)
{
    for (int k = 0; k < count; k++) {
        vec sum = {0};
        for (int d = 0; d < D; d++)
            sum += bilinear[k * D + d] * query[d];
        direction[k] = LOG2_E * sum;
    }
}

INLINE void add_outer(int count, int D, const vec *left, const vec *right, vec *sums)
{
    for (int k = 0; k < count; k++)
        for (int d = 0; d < D; d++)
            sums[k * D + d] += left[k] * right[d];
}

/* Scores of a head become weights, but for their scale, which is returned. */
INLINE vec exponentiate(int tokens, vec most, vec *weight)
{
    vec sum = {0};
    int t = 0;
    for (; t + POWERS <= tokens; t += POWERS) {
        vec x[POWERS];
        for (int k = 0; k < POWERS; k++)
            x[k] = weight[t + k] - most;
        fractions_of_two(POWERS, x);
        for (int k = 0; k < POWERS; k++)
            sum += weight[t + k] = x[k];
    }
    for (; t < tokens; t++)
        sum += weight[t] = fraction_of_two(weight[t] - most);
    return (REAL)1 / sum;
}

static void one_block(const Job *job, Workspace *space, int64_t run, int64_t block)
{
    const int T = job->tokens, E = job->width, D = job->dim, H = job->heads, O = job->outputs;
    const vec *token = vectors_of_run(job->token, run) + block * T * E, *next = token + T * E;
    const vec *query = vectors_of_run(job->query, run) + block * D;
    const vec *target = vectors_of_run(job->target, run) + block * O;
    const vec share = vectors_of_run(job->weight, run)[block];
    const REAL *bilinear = of_run(job->bilinear, run), *readout = of_run(job->readout, run);
    vec most[4], mean[4];

    FOR_SMALL(N, D, point(H * E, N, bilinear, query, space->direction),
              point(H * E, D, bilinear, query, space->direction))
    for (int h = 0; h < H; h += HEADS) {
        const int group = H - h < HEADS ? H - h : HEADS;
        vec *weight = space->weight + h * T;
        FOR_SMALL(N, group, score_all(N, token, T, E, space->direction + h * E, weight, most, next), )
        for (int g = 0; g < group; g++)
            space->scale[h + g] = exponentiate(T, most[g], weight + g * T);
        gather_all(group, token, T, E, weight, space->pooled + h * E);
    }
    for (int h = 0; h < H; h++)
        for (int e = 0; e < E; e++)
            space->pooled[h * E + e] *= space->scale[h];
    for (int k = 0; k < H * E; k++)
        space->d_pooled[k] = (vec){0};
    for (int o = 0; o < O; o++) {
        vec error = -target[o];
        for (int h = 0; h < H; h++) {
            vec part = {0};
            for (int e = 0; e < E; e++)
                part += readout[(h * O + o) * E + e] * space->pooled[h * E + e];
            error += part;
        }
        *space->loss += share * error * error;
        error = (REAL)2 * share * error;
        for (int h = 0; h < H; h++)
            for (int e = 0; e < E; e++) {
                space->d_readout[(h * O + o) * E + e] += error * space->pooled[h * E + e];
                space->d_pooled[h * E + e] += readout[(h * O + o) * E + e] * error;
            }
    }
    for (int h = 0; h < H; h += HEADS) {
        const int group = H - h < HEADS ? H - h : HEADS;
        vec *weight = space->weight + h * T;
        const vec *slope = space->d_pooled + h * E;
        for (int g = 0; g < group; g++) {
            mean[g] = (vec){0};
            for (int e = 0; e < E; e++)
                mean[g] += slope[g * E + e] * space->pooled[(h + g) * E + e];
        }
        const vec *ahead = next + T * E / 2, *scale = space->scale + h;
        FOR_SMALL(N, group, differentiate_all(N, token, T, E, slope, mean, scale, weight, ahead), )
        gather_all(group, token, T, E, weight, space->d_direction + h * E);
    }
    FOR_SMALL(N, D, add_outer(H * E, N, space->d_direction, query, space->d_bilinear),
              add_outer(H * E, D, space->d_direction, query, space->d_bilinear))
}

static void *work(void *given)
{
    const Slice *mine = given;
    const Job *job = mine->job;
    const int64_t T = job->tokens, E = job->width, D = job->dim, H = job->heads, O = job->outputs;
    const int64_t gathered = 1 + H * E * D + H * O * E;
    vec *memory = vectors(4 * H * E + H * T + H + gathered), *free_from = memory;
    if (memory == NULL) return (void *)1;
    Workspace space;
    space.direction = take(&free_from, H * E);
    space.pooled = take(&free_from, H * E);
    space.d_pooled = take(&free_from, H * E);
    space.d_direction = take(&free_from, H * E);
    space.weight = take(&free_from, H * T);
    space.scale = take(&free_from, H);
    space.loss = take(&free_from, 1);
    space.d_bilinear = take(&free_from, H * E * D);
    space.d_readout = take(&free_from, H * O * E);
    for (int64_t at = mine->first; at < mine->last; at++) {
        const int64_t run = at / job->blocks, block = at % job->blocks;
        one_block(job, &space, run, block);
        if ((block + 1) % MANY == 0 || block + 1 == job->blocks || at + 1 == mine->last)
            settle(space.loss, gathered, mine->results + run * gathered);
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
    const int64_t H = job.heads, E = job.width, D = job.dim, O = job.outputs, N = job.blocks * LANES;
    const int64_t expected[] = {H * E * D, H * O * E, N * job.tokens * E, N * D, N * O, N};
    int fit = z[3] == LANES && job.tokens > 0;
    for (int k = 0; k < 6; k++) {
        fit &= runs_of(in[k], own[k]) == 1 || runs_of(in[k], own[k]) == job.runs;
        fit &= own_size(in[k], own[k]) == expected[k];
        *to[k] = input(in[k], own[k]);
    }
    if (!fit) return refuse(frame, "softmax_loss: the arrays do not fit together");

    const int64_t sizes[3] = {1, job.heads * job.width * job.dim, job.heads * job.outputs * job.width};
    const int64_t each = sizes[0] + sizes[1] + sizes[2];
    double *results = malloc(job.runs * each * sizeof(double));
    int good = results != NULL && fan_out(work, &job, job.runs * job.blocks, ENOUGH, job.runs * each, results);
    for (int64_t run = 0; good && run < job.runs; run++)
        for (int64_t k = 0, start = 0; k < 3; start += sizes[k++])
            memcpy((double *)out[k]->data + run * sizes[k], results + run * each + start, sizes[k] * sizeof(double));
    free(results);
    return good ? NULL : refuse(frame, "softmax_loss: out of memory");
}
