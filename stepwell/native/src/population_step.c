/* A step of a Rosenbrock method along the flow of separate attention at infinitely many sequences, several runs side
   by side: the mathematics is in stepwell/dynamics/fast/_stepping_population.py. */

#include "native.h"
#include "pairs.h"
#include "singular.h"
#include "systems.h"
#include "heads.h"

enum { AFTER, ESTIMATE, DENSE }; /* what comes back, one vector of weights after the other */

typedef struct {
    int64_t runs, heads, rank, dim, stages, results;
    Input weights, input, drive, second, power, length;
    const REAL *gamma, *a, *c, *d;
    REAL *loss, *stepped;
} Job;

typedef struct {
    Heads given, own; /* in the basis given, the moments and weights only; and in that of the singular vectors */
    vec *power, *length, *loss, *left, *right, *left_columns, *right_columns;
    vec *stages, *place, *side, *rotated, *values, *keys, *queries; /* the last three of all results */
} Workspace;

/* sum_j factors[j] stages[j] times `scale`, added. */
static void combine(int count, int number, const REAL *factors, const vec *stages, vec scale, vec *out)
{
    for (int j = 0; j < number; j++)
        for (int k = 0; k < count; k++)
            out[k] += scale * factors[j] * stages[j * count + k];
}

/* Weights in another basis: keys times a matrix, queries times another. */
static void rotated_by(int D, int heads, int pairs, const vec *keys, const vec *queries, const vec *in, vec *out)
{
    memcpy(out, in, heads * sizeof(vec));
    times(pairs, D, D, in + heads, D, 1, keys, out + heads);
    times(pairs, D, D, in + heads + pairs * D, D, 1, queries, out + heads + pairs * D);
}

/* Into the basis in which S = sum_j s_j u_j w_j^T is diagonal. */
static void enter(int D, int heads, int rank, Workspace *space)
{
    Heads *given = &space->given, *own = &space->own;
    singular(D, own->slope, own->strengths, space->left, space->right);
    transpose(D, space->left, space->left_columns);
    transpose(D, space->right, space->right_columns);
    weigh(D, space->left, space->left_columns, given->second, own->moved, own->second);
    weigh(D, space->right, space->right_columns, given->input, own->moved, own->input);
    rotated_by(D, heads, heads * rank, space->left_columns, space->right_columns, given->base, own->base);
}

/* A vector of weights to its place among the results. */
static void put(int heads, int size, const vec *in, int number, Workspace *space)
{
    memcpy(space->values + number * heads, in, heads * sizeof(vec));
    memcpy(space->keys + number * size, in + heads, size * sizeof(vec));
    memcpy(space->queries + number * size, in + heads + size, size * sizeof(vec));
}

/* Only systems are solved in the basis of singular vectors. The field is found in that given: near a saddle, rotated
   weights are rounded by more than the weights that lead off it. */
static void step(int D, int heads, int rank, const Job *job, Workspace *space)
{
    Heads *given = &space->given, *own = &space->own;
    const int pairs = heads * rank, count = heads + 2 * pairs * D, last = job->stages - 1;
    const vec one = (vec){0} + (REAL)1;
    excess(D, heads, rank, given->base, given);
    *space->loss = *space->power;
    for (int k = 0; k < D * D; k++)
        *space->loss += own->map[k] * (own->slope[k] - given->drive[k]);
    enter(D, heads, rank, space);
    own->shift = (REAL)1 / (*job->gamma * *space->length);
    prepare(D, heads, rank, own);

    vec *stage = space->stages;
    for (int number = 0; number <= last; number++, stage += count) {
        memcpy(space->place, given->base, count * sizeof(vec));
        combine(count, number, job->a + number * job->stages, space->stages, one, space->place);
        excess(D, heads, rank, space->place, given);
        memset(space->side, 0, count * sizeof(vec));
        gather(D, heads, rank, space->place, own->slope, own, space->side);
        combine(count, number, job->c + number * job->stages, space->stages, (REAL)1 / *space->length, space->side);
        rotated_by(D, heads, pairs, space->left_columns, space->right_columns, space->side, space->rotated);
        solve(D, heads, rank, count, own, space->rotated, space->side);
        rotated_by(D, heads, pairs, space->left, space->right, space->side, stage);
    }
    stage -= count;
    put(heads, pairs * D, stage, ESTIMATE, space);
    combine(count, 1, (const REAL[]){1}, stage, one, space->place);
    put(heads, pairs * D, space->place, AFTER, space);
    for (int number = DENSE; number < job->results; number++) {
        memset(space->side, 0, count * sizeof(vec));
        combine(count, last + 1, job->d + (number - DENSE) * job->stages, space->stages, one, space->side);
        put(heads, pairs * D, space->side, number, space);
    }
}

static void *work(void *given)
{
    const Slice *mine = given;
    const Job *job = mine->job;
    const int H = job->heads, R = job->rank, D = job->dim, P = H * R, each = R * D, block = 1 + 2 * each;
    const int count = H * block, results = job->results, T = D * D;
    Workspace space;
    Heads *own = &space.own;
    struct { vec **to; int64_t size; } wanted[] = {
        {&space.given.base, count}, {&space.given.input, T}, {&space.given.drive, T}, {&space.given.second, T},
        {&space.power, 1}, {&space.length, 1}, {&space.loss, 1}, {&space.left, T}, {&space.right, T},
        {&space.left_columns, T}, {&space.right_columns, T}, {&space.stages, job->stages * count},
        {&space.place, count}, {&space.side, count}, {&space.rotated, count}, {&space.values, results * H},
        {&space.keys, results * P * D}, {&space.queries, results * P * D}, {&own->input, T}, {&own->second, T},
        {&own->base, count}, {&own->strengths, D}, {&own->same, H * D}, {&own->other, H * D},
        {&own->arrow, count}, {&own->rest, H}, {&own->system, T * T}, {&own->order, T}, {&own->valued, P * D},
        {&own->crossed, P * D}, {&own->map, T}, {&own->moved, T}, {&own->slope, T}, {&own->transposed, T},
        {&own->keys, T}, {&own->queries, T}};
    const int arrays = sizeof(wanted) / sizeof(*wanted);
    int64_t total = 0;
    for (int k = 0; k < arrays; k++) total += wanted[k].size;
    vec *memory = vectors(total), *free_from = memory;
    if (memory == NULL) return (void *)1;
    for (int k = 0; k < arrays; k++) *wanted[k].to = take(&free_from, wanted[k].size);
    space.given.valued = own->valued, space.given.map = own->map;
    space.given.moved = own->moved, space.given.slope = own->slope;

    for (int64_t piece = mine->first; piece < mine->last; piece++) {
        const int64_t run = piece * LANES;
        const int lanes = job->runs - run < LANES ? job->runs - run : LANES;
        vec *base = space.given.base;
        bring(job->weights, run, lanes, H, 1, block, 0, base);
        bring(job->weights, run, lanes, H, each, block, 1, base + H);
        bring(job->weights, run, lanes, H, each, block, 1 + each, base + H + P * D);
        bring(job->input, run, lanes, D, D, D, 0, space.given.input);
        bring(job->drive, run, lanes, D, D, D, 0, space.given.drive);
        bring(job->second, run, lanes, D, D, D, 0, space.given.second);
        bring(job->power, run, lanes, 1, 1, 1, 0, space.power);
        bring(job->length, run, lanes, 1, 1, 1, 0, space.length);
        step(D, H, R, job, &space);
        hand_back(job->loss, run, lanes, 1, 1, 1, 0, space.loss);
        hand_back(job->stepped, run, lanes, results * H, 1, block, 0, space.values);
        hand_back(job->stepped, run, lanes, results * H, each, block, 1, space.keys);
        hand_back(job->stepped, run, lanes, results * H, each, block, 1 + each, space.queries);
    }
    free(memory);
    return NULL;
}

/* Operations on vectors that are worth a thread: some hundred microseconds. */
enum { ENOUGH = 20000 };

XLA_FFI_Error *population_step(XLA_FFI_CallFrame *frame)
{
    if (asked_for_version(frame)) return NULL;
    XLA_FFI_Buffer **in = (XLA_FFI_Buffer **)frame->args.args, **out = (XLA_FFI_Buffer **)frame->rets.rets;
    const int64_t D = own_dims(in[1], 2)[0], *shape = own_dims(in[0], 2), *tableau = own_dims(in[9], 2);
    if (D < 1 || shape[0] < 1 || shape[1] < 1 + 2 * D) return refuse(frame, "population_step: there is nothing to move");
    Job job = {.runs = runs_of(out[0], 0), .heads = shape[0], .rank = (shape[1] - 1) / (2 * D), .dim = D,
               .stages = tableau[1], .results = DENSE + tableau[0]};
    Input *to[] = {&job.weights, &job.input, &job.drive, &job.second, &job.power, &job.length};
    const int own[] = {2, 2, 2, 2, 0, 0};
    const int64_t expected[] = {shape[0] * shape[1], D * D, D * D, D * D, 1, 1};
    int fit = shape[1] == 1 + 2 * job.rank * D;
    for (int k = 0; k < 6; k++) {
        fit &= runs_of(in[k], own[k]) == 1 || runs_of(in[k], own[k]) == job.runs;
        fit &= own_size(in[k], own[k]) == expected[k];
        *to[k] = input(in[k], own[k]);
    }
    fit &= own_size(in[7], 2) == job.stages * job.stages && own_size(in[8], 2) == job.stages * job.stages;
    if (!fit) return refuse(frame, "population_step: the arrays do not fit together");
    job.gamma = in[6]->data, job.a = in[7]->data, job.c = in[8]->data, job.d = in[9]->data;
    job.loss = out[0]->data, job.stepped = out[1]->data;
    const int64_t pieces = (job.runs + LANES - 1) / LANES, size = D * D;
    const int64_t operations = 8 * job.stages * job.heads * job.rank * size + size * size * size / 3;
    double none;
    int good = fan_out(work, &job, pieces, 1 + ENOUGH / operations, 1, &none);
    return good ? NULL : refuse(frame, "population_step: out of memory");
}
