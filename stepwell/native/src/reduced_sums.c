/* Sums over reduced sequences from which their loss is put together, and the derivatives of these sums: the
   mathematics is in stepwell/dynamics/fast/_fused_reduced.py. Every exponential is made once. */

#include "reduced_moments.h"

/* Sums and numbers of a task; blocks that are summed before they are added up in double precision, and blocks that are
   worth a thread: some dozen microseconds. */
enum { SUMS = 8, NUMBERS = 3, MANY = 64, ENOUGH = 512 / VECTOR_BYTES };

typedef struct {
    int64_t runs, blocks, tokens, tasks, heads;
    Input omega, mu, numbers, norm, share, most, normal;
} Job;

/* Of a task on a block: l, u and c. */
typedef struct {
    vec loss, surplus, shift;
} Terms;

/* Sums of l, u, cu, u^2, cu^2, c^2 u^2, lu and lcu. */
INLINE void add(Terms of, vec *sums)
{
    const vec l = of.loss, u = of.surplus, cu = of.shift * u;
    const vec terms[SUMS] = {l, u, cu, u * u, cu * u, cu * cu, l * u, l * cu};
    for (int k = 0; k < SUMS; k++)
        sums[k] += terms[k];
}

/* And of their derivatives, from those of l and u. */
INLINE void add_derivative(Terms of, vec dl, vec du, vec *sums)
{
    const vec l = of.loss, u = of.surplus, c = of.shift;
    sums[0] += dl;
    sums[1] += du;
    sums[2] += c * du;
    sums[3] += (REAL)2 * u * du;
    sums[4] += (REAL)2 * c * u * du;
    sums[5] += (REAL)2 * c * c * u * du;
    sums[6] += u * dl + l * du;
    sums[7] += c * u * dl + c * l * du;
}

/* What a block adds to the sums of task i and, head after head, to their derivatives by omega_j^h for each task j, then
   by mu_i^h. */
INLINE void add_task(int heads, int tasks, int i, const REAL *omega, const REAL *mu, const REAL *number,
                     const vec *norms, vec share, const vec *restrict moments, vec *restrict sums)
{
    const REAL strength = number[0];
    const vec n = norms[i], spread = number[1] * share; /* where no sequence is, n and z are zero, and so all but g */
    vec answer = {0}, squares = {0}, surplus = {0};
    for (int h = 0; h < heads; h++) {
        const vec f = moments[h * head_size(tasks) + 1 + i];
        const REAL m = mu[h * tasks + i];
        answer += m * f;
        surplus += m * (f - omega[h * tasks + i] * n * ((REAL)1 - moments[pair_at(heads, tasks, h, h)]));
        for (int k = h; k < heads; k++)
            squares += (h == k ? m : 2 * m) * mu[k * tasks + i] * moments[pair_at(heads, tasks, h, k)];
    }
    const Terms of = {.loss = strength * answer * (answer - (REAL)2 * n) + spread * squares,
                      .surplus = surplus,
                      .shift = n - number[2]};
    add(of, sums);
    const vec by_answer = (REAL)2 * strength * (answer - n), by_squares = (REAL)2 * spread;
    for (int h = 0; h < heads; h++) {
        const vec *head = moments + h * head_size(tasks), *own = moments + pair_at(heads, tasks, h, h);
        const vec direction = omega[h * tasks + i] * n, left = (REAL)1 - own[0];
        const REAL m = mu[h * tasks + i];
        vec mixed = {0}; /* g, and below r, of this head with all heads */
        for (int k = 0; k < heads; k++)
            mixed += mu[k * tasks + i] * moments[pair_at(heads, tasks, h, k)];
        UNROLL(1) /* more would take longer to build, and no less to run */
        for (int j = 0; j < tasks; j++) {
            const vec f = head[1 + j], covariance = head[covariance_at(tasks, i, j)], scale = m * norms[j];
            vec mixed_normal = {0};
            for (int k = 0; k < heads; k++)
                mixed_normal += mu[k * tasks + i] * moments[pair_at(heads, tasks, h, k) + 1 + j];
            vec du = covariance + (REAL)2 * direction * (own[1 + j] - own[0] * f);
            if (i == j) du -= left;
            add_derivative(of, scale * (by_answer * covariance + by_squares * (mixed_normal - mixed * f)),
                           scale * du, sums += SUMS);
        }
        add_derivative(of, by_answer * head[1 + i] + by_squares * mixed, head[1 + i] - direction * left, sums += SUMS);
    }
}

/* Derivatives come after the sums of each task. */
INLINE int64_t all_sums(int64_t heads, int64_t tasks) { return tasks * (1 + heads * (tasks + 1)) * SUMS; }

typedef struct {
    vec *direction, *weight, *moments, *sums;
} Workspace;

static void one_block(const Job *job, const Workspace *space, int64_t run, int64_t block)
{
    const int T = job->tokens, I = job->tasks, H = job->heads;
    const vec *norms = vectors_of_run(job->norm, run) + block * I, *most = vectors_of_run(job->most, run) + block * I;
    const vec *normal = vectors_of_run(job->normal, run) + block * T * I;
    const vec share = vectors_of_run(job->share, run)[block];
    const REAL *omega = of_run(job->omega, run), *mu = of_run(job->mu, run), *number = of_run(job->numbers, run);
    for (int h = 0; h < H; h++)
        for (int i = 0; i < I; i++)
            space->direction[h * I + i] = LOG2_E * omega[h * I + i] * norms[i];
    find_moments(H, I, normal, most, T, space->direction, space->weight, space->moments);
    vec *sums = space->sums;
    for (int i = 0; i < I; i++, number += NUMBERS, sums += all_sums(H, I) / I)
        FOR_FEW(H, I, add_task(HEADS, TASKS, i, omega, mu, number, norms, share, space->moments, sums))
}

static void *work(void *given)
{
    const Slice *mine = given;
    const Job *job = mine->job;
    const int64_t T = job->tokens, I = job->tasks, H = job->heads, M = moments_size(H, I), S = all_sums(H, I);
    vec *memory = vectors(H * I + H * T + M + S), *free_from = memory;
    if (memory == NULL) return (void *)1;
    Workspace space;
    space.direction = take(&free_from, H * I);
    space.weight = take(&free_from, H * T);
    space.moments = take(&free_from, M);
    space.sums = take(&free_from, S);
    for (int64_t at = mine->first; at < mine->last; at++) {
        const int64_t run = at / job->blocks, block = at % job->blocks;
        one_block(job, &space, run, block);
        if ((block + 1) % MANY == 0 || block + 1 == job->blocks || at + 1 == mine->last)
            settle(space.sums, S, mine->results + run * S);
    }
    free(memory);
    return NULL;
}

/* Inputs: omega, mu (head, task); numbers (task, 3); norms (block, task, lane); shares (block, lane); the largest size
   of a normal over tokens (block, task, lane); normals (block, token, task, lane). Out: for each task the sums, then
   their derivatives, (task, 1 + head (task + 1), 8). */
XLA_FFI_Error *reduced_sums(XLA_FFI_CallFrame *frame)
{
    if (asked_for_version(frame)) return NULL;
    XLA_FFI_Buffer **in = (XLA_FFI_Buffer **)frame->args.args, **out = (XLA_FFI_Buffer **)frame->rets.rets;
    const int64_t *w = own_dims(in[0], 2), *z = own_dims(in[6], 4);
    Job job = {.runs = runs_of(out[0], 3), .heads = w[0], .tasks = w[1], .blocks = z[0], .tokens = z[1]};
    Input *to[] = {&job.omega, &job.mu, &job.numbers, &job.norm, &job.share, &job.most, &job.normal};
    const int64_t H = job.heads, I = job.tasks, B = job.blocks;
    const int own[] = {2, 2, 2, 3, 2, 3, 4};
    const int64_t N = B * LANES, sizes[] = {H * I, H * I, I * NUMBERS, N * I, N, N * I, N * I * job.tokens};
    int fit = job.tokens > 0 && z[3] == LANES && own_size(out[0], 3) == all_sums(H, I);
    for (int k = 0; k < 7; k++) {
        fit &= runs_of(in[k], own[k]) == 1 || runs_of(in[k], own[k]) == job.runs;
        fit &= own_size(in[k], own[k]) == sizes[k];
        *to[k] = input(in[k], own[k]);
    }
    if (!fit) return refuse(frame, "reduced_sums: the arrays do not fit together");
    if (!fan_out(work, &job, job.runs * B, ENOUGH, job.runs * all_sums(H, I), out[0]->data))
        return refuse(frame, "reduced_sums: out of memory");
    return NULL;
}
