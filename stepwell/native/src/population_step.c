/* A step of a Rosenbrock method along the flow of separate attention in population, several runs side by side: see
   _stepping_population.py for the mathematics. */

#include "native.h"
#include "pairs.h"
#include "singular.h"
#include "systems.h"
#include "heads.h"

enum { AFTER, ESTIMATE, BENDS }; /* what comes back, one vector of weights after the other */

typedef struct {
    int64_t runs, heads, rank, dim, stages, results;
    Input weights, input, drive, second, power, length;
    const REAL *gamma, *a, *c, *d;
    REAL *loss, *found;
} Job;

typedef struct {
    Heads given, own; /* in the basis given, the moments and weights only; and in that of the singular vectors */
    vec *power, *length, *loss, *left, *right, *left_columns, *right_columns;
    vec *stages, *place, *side, *asked, *values, *keys, *queries; /* the last three of all results */
} Room;

/* sum_j factors[j] stages[j] times `scale`, added. */
static void combine(int count, int number, const REAL *factors, const vec *stages, vec scale, vec *out)
{
    for (int j = 0; j < number; j++)
        for (int k = 0; k < count; k++)
            out[k] += scale * factors[j] * stages[j * count + k];
}

/* Weights in another basis: keys times a matrix, queries times another. */
static void turned_by(int D, int heads, int pairs, const vec *keys, const vec *queries, const vec *in, vec *out)
{
    memcpy(out, in, heads * sizeof(vec));
    times(pairs, D, D, in + heads, D, 1, keys, out + heads);
    times(pairs, D, D, in + heads + pairs * D, D, 1, queries, out + heads + pairs * D);
}

/* Into the basis in which S = sum_j s_j u_j w_j^T is diagonal. */
static void enter(int D, int heads, int rank, Room *room)
{
    Heads *given = &room->given, *own = &room->own;
    singular(D, own->slope, own->strengths, room->left, room->right);
    transpose(D, room->left, room->left_columns);
    transpose(D, room->right, room->right_columns);
    weigh(D, room->left, room->left_columns, given->second, own->moved, own->second);
    weigh(D, room->right, room->right_columns, given->input, own->moved, own->input);
    turned_by(D, heads, heads * rank, room->left_columns, room->right_columns, given->base, own->base);
}

/* A vector of weights to its place among the results. */
static void put(int heads, int size, const vec *in, int number, Room *room)
{
    memcpy(room->values + number * heads, in, heads * sizeof(vec));
    memcpy(room->keys + number * size, in + heads, size * sizeof(vec));
    memcpy(room->queries + number * size, in + heads + size, size * sizeof(vec));
}

/* Only systems are solved in the basis of singular vectors. The field is found in that given: near a saddle, turned
   weights are rounded by more than the weights that lead off it. */
static void step(int D, int heads, int rank, const Job *job, Room *room)
{
    Heads *given = &room->given, *own = &room->own;
    const int pairs = heads * rank, count = heads + 2 * pairs * D, last = job->stages - 1;
    const vec one = (vec){0} + (REAL)1;
    excess(D, heads, rank, given->base, given);
    *room->loss = *room->power;
    for (int k = 0; k < D * D; k++)
        *room->loss += own->map[k] * (own->slope[k] - given->drive[k]);
    enter(D, heads, rank, room);
    own->shift = (REAL)1 / (*job->gamma * *room->length);
    prepare(D, heads, rank, own);

    vec *stage = room->stages;
    for (int number = 0; number <= last; number++, stage += count) {
        memcpy(room->place, given->base, count * sizeof(vec));
        combine(count, number, job->a + number * job->stages, room->stages, one, room->place);
        excess(D, heads, rank, room->place, given);
        memset(room->side, 0, count * sizeof(vec));
        gather(D, heads, rank, room->place, own->slope, own, room->side);
        combine(count, number, job->c + number * job->stages, room->stages, (REAL)1 / *room->length, room->side);
        turned_by(D, heads, pairs, room->left_columns, room->right_columns, room->side, room->asked);
        solve(D, heads, rank, count, own, room->asked, room->side);
        turned_by(D, heads, pairs, room->left, room->right, room->side, stage);
    }
    stage -= count;
    put(heads, pairs * D, stage, ESTIMATE, room);
    combine(count, 1, (const REAL[]){1}, stage, one, room->place);
    put(heads, pairs * D, room->place, AFTER, room);
    for (int number = BENDS; number < job->results; number++) {
        memset(room->side, 0, count * sizeof(vec));
        combine(count, last + 1, job->d + (number - BENDS) * job->stages, room->stages, one, room->side);
        put(heads, pairs * D, room->side, number, room);
    }
}

static void *work(void *given)
{
    const Share *mine = given;
    const Job *job = mine->job;
    const int H = job->heads, R = job->rank, D = job->dim, P = H * R, each = R * D, block = 1 + 2 * each;
    const int count = H * block, results = job->results, T = D * D;
    Room room;
    Heads *own = &room.own;
    struct { vec **to; int64_t size; } wanted[] = {
        {&room.given.base, count}, {&room.given.input, T}, {&room.given.drive, T}, {&room.given.second, T},
        {&room.power, 1}, {&room.length, 1}, {&room.loss, 1}, {&room.left, T}, {&room.right, T},
        {&room.left_columns, T}, {&room.right_columns, T}, {&room.stages, job->stages * count}, {&room.place, count},
        {&room.side, count}, {&room.asked, count}, {&room.values, results * H}, {&room.keys, results * P * D},
        {&room.queries, results * P * D}, {&own->input, T}, {&own->second, T}, {&own->base, count},
        {&own->strengths, D}, {&own->same, H * D}, {&own->other, H * D}, {&own->arrow, count}, {&own->rest, H},
        {&own->system, T * T}, {&own->order, T}, {&own->valued, P * D}, {&own->crossed, P * D},
        {&own->map, T}, {&own->moved, T}, {&own->slope, T}, {&own->turned, T}, {&own->keys, T}, {&own->queries, T}};
    const int arrays = sizeof(wanted) / sizeof(*wanted);
    int64_t total = 0;
    for (int k = 0; k < arrays; k++) total += wanted[k].size;
    vec *memory = vectors(total), *free_from = memory;
    if (memory == NULL) return (void *)1;
    for (int k = 0; k < arrays; k++) *wanted[k].to = take(&free_from, wanted[k].size);
    room.given.valued = own->valued, room.given.map = own->map;
    room.given.moved = own->moved, room.given.slope = own->slope;

    for (int64_t piece = mine->first; piece < mine->last; piece++) {
        const int64_t run = piece * LANES;
        const int lanes = job->runs - run < LANES ? job->runs - run : LANES;
        vec *base = room.given.base;
        bring(job->weights, run, lanes, H, 1, block, 0, base);
        bring(job->weights, run, lanes, H, each, block, 1, base + H);
        bring(job->weights, run, lanes, H, each, block, 1 + each, base + H + P * D);
        bring(job->input, run, lanes, D, D, D, 0, room.given.input);
        bring(job->drive, run, lanes, D, D, D, 0, room.given.drive);
        bring(job->second, run, lanes, D, D, D, 0, room.given.second);
        bring(job->power, run, lanes, 1, 1, 1, 0, room.power);
        bring(job->length, run, lanes, 1, 1, 1, 0, room.length);
        step(D, H, R, job, &room);
        hand_back(job->loss, run, lanes, 1, 1, 1, 0, room.loss);
        hand_back(job->found, run, lanes, results * H, 1, block, 0, room.values);
        hand_back(job->found, run, lanes, results * H, each, block, 1, room.keys);
        hand_back(job->found, run, lanes, results * H, each, block, 1 + each, room.queries);
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
    Job job = {.runs = runs_of(out[0], 0), .heads = shape[0], .rank = (shape[1] - 1) / (2 * D), .dim = D,
               .stages = tableau[1], .results = BENDS + tableau[0]};
    Input *to[] = {&job.weights, &job.input, &job.drive, &job.second, &job.power, &job.length};
    const int own[] = {2, 2, 2, 2, 0, 0};
    int fit = shape[1] == 1 + 2 * job.rank * D;
    for (int k = 0; k < 6; k++) {
        fit &= runs_of(in[k], own[k]) == 1 || runs_of(in[k], own[k]) == job.runs;
        *to[k] = input(in[k], own[k]);
    }
    fit &= own_size(in[7], 2) == job.stages * job.stages && own_size(in[8], 2) == job.stages * job.stages;
    if (!fit) return refuse(frame, "population_step: the arrays do not fit together");
    job.gamma = in[6]->data, job.a = in[7]->data, job.c = in[8]->data, job.d = in[9]->data;
    job.loss = out[0]->data, job.found = out[1]->data;
    const int64_t pieces = (job.runs + LANES - 1) / LANES, size = D * D;
    const int64_t operations = 8 * job.stages * job.heads * job.rank * size + size * size * size / 3;
    double none;
    int good = fan_out(work, &job, pieces, 1 + ENOUGH / operations, 1, &none);
    return good ? NULL : refuse(frame, "population_step: out of memory");
}
