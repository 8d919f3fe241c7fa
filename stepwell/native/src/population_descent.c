/* Descent of separate attention in population, several runs side by side: see _fused_population.py for the mathematics.

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
    vec *valued, *map, *moved, *slope, *turned, *on_key, *on_query;
} Room;

/* A, S and its transpose. */
INLINE void find_slope(int D, int heads, int rank, Room *room)
{
    effective_map(D, heads, rank, room->value, room->key, room->query, room->valued, room->map);
    weigh(D, room->second, room->input, room->map, room->moved, room->slope);
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) {
            vec slope = (REAL)2 * (room->slope[i * D + j] - room->drive[i * D + j]);
            room->slope[i * D + j] = room->turned[j * D + i] = slope;
        }
}

INLINE vec loss(int D, const Room *room)
{
    vec sum = *room->power;
    for (int k = 0; k < D * D; k++)
        sum += room->map[k] * ((REAL)0.5 * room->slope[k] - room->drive[k]);
    return sum;
}

INLINE void move(int D, int heads, int rank, Room *room)
{
    const int pairs = heads * rank;
    product(pairs, D, D, room->query, D, 1, room->turned, room->on_key);
    product(pairs, D, D, room->key, D, 1, room->slope, room->on_query);
    for (int h = 0; h < heads; h++) {
        vec on_value = {0}, factor = *room->rate * room->value[h];
        for (int k = h * rank * D; k < (h + 1) * rank * D; k++) {
            on_value += room->key[k] * room->on_key[k];
            room->key[k] -= factor * room->on_key[k];
            room->query[k] -= factor * room->on_query[k];
        }
        room->value[h] -= *room->rate * on_value;
    }
}

INLINE void descend(int D, int heads, int rank, int64_t steps, Room *room, vec *first)
{
    find_slope(D, heads, rank, room);
    *first = loss(D, room);
    for (int64_t step = 0; step < steps; step++) {
        if (step > 0) find_slope(D, heads, rank, room);
        move(D, heads, rank, room);
    }
}

static void *work(void *given)
{
    const Share *mine = given;
    const Job *job = mine->job;
    const int H = job->heads, R = job->rank, D = job->dim, P = H * R;
    vec *memory = vectors(H + 5 * P * D + 7 * D * D + 3), *free_from = memory, first;
    if (memory == NULL) return (void *)1;
    Room room;
    vec **pairs[] = {&room.key, &room.query, &room.valued, &room.on_key, &room.on_query};
    vec **maps[] = {&room.input, &room.drive, &room.second, &room.map, &room.moved, &room.slope, &room.turned};
    for (int k = 0; k < 5; k++) *pairs[k] = take(&free_from, P * D);
    for (int k = 0; k < 7; k++) *maps[k] = take(&free_from, D * D);
    room.value = take(&free_from, H);
    room.power = take(&free_from, 1);
    room.rate = take(&free_from, 1);
    for (int64_t block = mine->first; block < mine->last; block++) {
        const int64_t run = block * LANES;
        const int lanes = job->runs - run < LANES ? job->runs - run : LANES;
        bring(job->value, run, lanes, H, 1, D + 1, D, room.value);
        bring(job->key, run, lanes, P, D, D + 1, 0, room.key);
        bring(job->query, run, lanes, P, D, D, 0, room.query);
        bring(job->input, run, lanes, D, D, D, 0, room.input);
        bring(job->drive, run, lanes, D, D, D, 0, room.drive);
        bring(job->second, run, lanes, D, D, D, 0, room.second);
        bring(job->power, run, lanes, 1, 1, 1, 0, room.power);
        bring(job->rate, run, lanes, 1, 1, 1, 0, room.rate);
        FOR_SMALL(N, D, descend(N, H, R, job->steps, &room, &first), descend(D, H, R, job->steps, &room, &first))
        hand_back(job->loss, run, lanes, 1, 1, 1, 0, &first);
        hand_back(job->new_value, run, lanes, H, 1, D + 1, D, room.value);
        hand_back(job->new_key, run, lanes, P, D, D + 1, 0, room.key);
        hand_back(job->new_query, run, lanes, P, D, D, 0, room.query);
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
    int fit = own_dims(in[0], 3)[2] == job.dim + 1 && own_dims(in[1], 3)[2] == job.dim + 1;
    for (int k = 0; k < 8; k++) {
        fit &= runs_of(in[k], own[k]) == 1 || runs_of(in[k], own[k]) == job.runs;
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
