/* Descent of separate attention at infinitely many sequences, several runs side by side: the mathematics is in
   stepwell/dynamics/fast/_fused_population.py.

   A block has as many runs as a vector holds. Its weights stay in cache from the first step to the last. */

#include "native.h"
#include "pairs.h"

typedef struct {
    int64_t runs, heads, rank, dim, steps;
    Input value, key, query, input, drive, second, power, rate;
    REAL *loss, *new_value, *new_key, *new_query;
} Job;

typedef struct {
    vec *value, *key, *query, *input, *drive, *second, *power, *rate; /* of the runs of a block */
    vec *valued, *map, *moved, *slope, *transposed, *on_key, *on_query;
} Workspace;

/* A, S and its transpose. */
INLINE void find_slope(int D, int heads, int rank, Workspace *space)
{
    effective_map(D, heads, rank, space->value, space->key, space->query, space->valued, space->map);
    weigh(D, space->second, space->input, space->map, space->moved, space->slope);
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) {
            vec slope = (REAL)2 * (space->slope[i * D + j] - space->drive[i * D + j]);
            space->slope[i * D + j] = space->transposed[j * D + i] = slope;
        }
}

INLINE vec loss(int D, const Workspace *space)
{
    vec sum = *space->power;
    for (int k = 0; k < D * D; k++)
        sum += space->map[k] * ((REAL)0.5 * space->slope[k] - space->drive[k]);
    return sum;
}

INLINE void move(int D, int heads, int rank, Workspace *space)
{
    const int pairs = heads * rank;
    product(pairs, D, D, space->query, D, 1, space->transposed, space->on_key);
    product(pairs, D, D, space->key, D, 1, space->slope, space->on_query);
    for (int h = 0; h < heads; h++) {
        vec on_value = {0}, factor = *space->rate * space->value[h];
        for (int k = h * rank * D; k < (h + 1) * rank * D; k++) {
            on_value += space->key[k] * space->on_key[k];
            space->key[k] -= factor * space->on_key[k];
            space->query[k] -= factor * space->on_query[k];
        }
        space->value[h] -= *space->rate * on_value;
    }
}

INLINE void descend(int D, int heads, int rank, int64_t steps, Workspace *space, vec *first)
{
    find_slope(D, heads, rank, space);
    *first = loss(D, space);
    for (int64_t step = 0; step < steps; step++) {
        if (step > 0) find_slope(D, heads, rank, space);
        move(D, heads, rank, space);
    }
}

static void *work(void *given)
{
    const Slice *mine = given;
    const Job *job = mine->job;
    const int H = job->heads, R = job->rank, D = job->dim, P = H * R;
    vec *memory = vectors(H + 5 * P * D + 7 * D * D + 3), *free_from = memory, first;
    if (memory == NULL) return (void *)1;
    Workspace space;
    vec **pairs[] = {&space.key, &space.query, &space.valued, &space.on_key, &space.on_query};
    vec **maps[] = {&space.input, &space.drive, &space.second,    &space.map,
                    &space.moved, &space.slope, &space.transposed};
    for (int k = 0; k < 5; k++) *pairs[k] = take(&free_from, P * D);
    for (int k = 0; k < 7; k++) *maps[k] = take(&free_from, D * D);
    space.value = take(&free_from, H);
    space.power = take(&free_from, 1);
    space.rate = take(&free_from, 1);
    for (int64_t block = mine->first; block < mine->last; block++) {
        const int64_t run = block * LANES;
        const int lanes = job->runs - run < LANES ? job->runs - run : LANES;
        bring(job->value, run, lanes, H, 1, D + 1, D, space.value);
        bring(job->key, run, lanes, P, D, D + 1, 0, space.key);
        bring(job->query, run, lanes, P, D, D, 0, space.query);
        bring(job->input, run, lanes, D, D, D, 0, space.input);
        bring(job->drive, run, lanes, D, D, D, 0, space.drive);
        bring(job->second, run, lanes, D, D, D, 0, space.second);
        bring(job->power, run, lanes, 1, 1, 1, 0, space.power);
        bring(job->rate, run, lanes, 1, 1, 1, 0, space.rate);
        FOR_SMALL(N, D, descend(N, H, R, job->steps, &space, &first), descend(D, H, R, job->steps, &space, &first))
        hand_back(job->loss, run, lanes, 1, 1, 1, 0, &first);
        hand_back(job->new_value, run, lanes, H, 1, D + 1, D, space.value);
        hand_back(job->new_key, run, lanes, P, D, D + 1, 0, space.key);
        hand_back(job->new_query, run, lanes, P, D, D, 0, space.query);
    }
    free(memory);
    return NULL;
}

/* Block-steps that are worth a thread: some fifty microseconds. */
enum { ENOUGH = 400 };

XLA_FFI_Error *population_descent(XLA_FFI_CallFrame *frame)
{
    if (asked_for_version(frame)) return NULL;
    XLA_FFI_Buffer **in = (XLA_FFI_Buffer **)frame->args.args, **out = (XLA_FFI_Buffer **)frame->rets.rets;
    const int64_t *query = own_dims(in[2], 3);
    Job job = {.runs = runs_of(out[0], 0), .heads = query[0], .rank = query[1], .dim = query[2]};
    Input *to[] = {&job.value, &job.key, &job.query, &job.input, &job.drive, &job.second, &job.power, &job.rate};
    const int own[] = {3, 3, 3, 2, 2, 2, 0, 0};
    const int64_t D = job.dim, P = job.heads * job.rank;
    const int64_t expected[] = {job.heads * (D + 1), P * (D + 1), P * D, D * D, D * D, D * D, 1, 1};
    int fit = D > 0;
    for (int k = 0; k < 8; k++) {
        fit &= runs_of(in[k], own[k]) == 1 || runs_of(in[k], own[k]) == job.runs;
        fit &= own_size(in[k], own[k]) == expected[k];
        *to[k] = input(in[k], own[k]);
    }
    for (int k = 0; k < 3; k++)
        fit &= runs_of(in[k], 3) == job.runs;
    if (!fit || runs_of(in[8], 0) != 1) return refuse(frame, "population_descent: the arrays do not fit together");

    job.steps = *(const int64_t *)in[8]->data;
    job.loss = out[0]->data, job.new_value = out[1]->data, job.new_key = out[2]->data, job.new_query = out[3]->data;
    for (int k = 0; k < 3; k++) /* entries for labels stay as they are */
        memcpy(out[k + 1]->data, in[k]->data, runs_of(in[k], 0) * sizeof(REAL));
    const int64_t blocks = (job.runs + LANES - 1) / LANES;
    double none;
    int good = fan_out(work, &job, blocks, job.steps < ENOUGH ? ENOUGH / (job.steps + 1) : 1, 1, &none);
    return good ? NULL : refuse(frame, "population_descent: out of memory");
}
