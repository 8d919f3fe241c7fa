/* Sums over reduced sequences from which their loss is put together, and their gradient: see _fused_reduced.py for the
   mathematics.

   The forward pass reads every token once, and keeps of each sequence the moments of its tokens under the softmax, up
   to the second. The backward pass needs only those. */

#include "_native.h"

enum { SUMS = 8, NUMBERS = 3, MANY = 64 };

typedef struct {
    int64_t runs, blocks, tokens, tasks, heads;
    Input omega, mu, numbers, normal, norm, share, cotangent;
    REAL *kept;
} Job;

/* What is kept of a block. A head has 1 (then its reciprocal), f_i and the covariances of z_i, z_j for i <= j; a pair of
   heads h <= k has g and the sums of p^h p^k z_i. */
INLINE int64_t head_size(int64_t tasks) { return 1 + tasks + tasks * (tasks + 1) / 2; }
INLINE int64_t kept_size(int64_t heads, int64_t tasks)
{
    return heads * head_size(tasks) + heads * (heads + 1) / 2 * (1 + tasks);
}
INLINE int64_t pair_at(int64_t heads, int64_t tasks, int64_t h, int64_t k)
{
    if (h > k) {
        int64_t other = h;
        h = k, k = other;
    }
    return heads * head_size(tasks) + (h * heads - h * (h - 1) / 2 + k - h) * (1 + tasks);
}

/* Two to the power of scores less the largest, for `heads` heads from directions[h][i]. */
INLINE void weigh(int heads, int tasks, const vec *normal, int tokens, const vec *direction, vec *restrict weight)
{
    for (int t = 0; t < tokens; t++)
        for (int h = 0; h < heads; h++) {
            vec sum = {0};
            for (int i = 0; i < tasks; i++)
                sum += direction[h * tasks + i] * normal[t * tasks + i];
            weight[h * tokens + t] = sum;
        }
    for (int h = 0; h < heads; h++) {
        vec *w = weight + h * tokens, most = largest(w, tokens);
        for (int t = 0; t < tokens; t++)
            w[t] = power_of_two(w[t] - most);
    }
}

/* Sums over tokens, for the first weight of several: of it times 1, z_i and z_i z_j, to `head`; and of its product with
   each of `count` from itself on, times 1 and z_i, to `pairs`. */
INLINE void sum_up(int count, int tasks, const vec *normal, int tokens, const vec *weight, vec *head, vec *pairs)
{
    const int small = count <= 4 && tasks <= 4, singles = head_size(tasks), doubles = count * (1 + tasks);
    vec inside[15], inside_pairs[20], *sum = small ? inside : head, *pair = small ? inside_pairs : pairs;
    for (int k = 0; k < singles; k++)
        sum[k] = (vec){0};
    for (int k = 0; k < doubles; k++)
        pair[k] = (vec){0};
    for (int t = 0; t < tokens; t++) {
        const vec *z = normal + t * tasks, first = weight[t];
        int second = 1 + tasks;
        sum[0] += first;
        for (int k = 0; k < count; k++)
            pair[k * (1 + tasks)] += first * weight[k * tokens + t];
        for (int i = 0; i < tasks; i++) {
            const vec product = first * z[i];
            sum[1 + i] += product;
            for (int j = i; j < tasks; j++)
                sum[second++] += product * z[j];
            for (int k = 0; k < count; k++)
                pair[k * (1 + tasks) + 1 + i] += product * weight[k * tokens + t];
        }
    }
    for (int k = 0; small && k < singles; k++)
        head[k] = sum[k];
    for (int k = 0; small && k < doubles; k++)
        pairs[k] = pair[k];
}

/* What is kept of a block, from its directions. */
static void moments(const Job *job, const vec *normal, const vec *direction, vec *weight, vec *kept)
{
    const int T = job->tokens, I = job->tasks, H = job->heads;
    FOR_SMALL(N, I, FOR_SMALL(M, H, weigh(M, N, normal, T, direction, weight), weigh(H, N, normal, T, direction, weight)),
              weigh(H, I, normal, T, direction, weight))
    for (int h = 0; h < H; h++) {
        const int count = H - h;
        vec *head = kept + h * head_size(I), *pairs = kept + pair_at(H, I, h, h), *w = weight + h * T;
        FOR_SMALL(N, I,
                  FOR_SMALL(M, count, sum_up(M, N, normal, T, w, head, pairs), sum_up(count, N, normal, T, w, head, pairs)),
                  sum_up(count, I, normal, T, w, head, pairs))
        head[0] = (REAL)1 / head[0];
        for (int k = 1; k < head_size(I); k++)
            head[k] *= head[0];
        int second = 1 + I;
        for (int i = 0; i < I; i++)
            for (int j = i; j < I; j++)
                head[second++] -= head[1 + i] * head[1 + j];
    }
    for (int h = 0; h < H; h++)
        for (int k = h; k < H; k++) {
            vec *pair = kept + pair_at(H, I, h, k), scale = kept[h * head_size(I)] * kept[k * head_size(I)];
            for (int i = 0; i < 1 + I; i++)
                pair[i] *= scale;
        }
}

typedef struct {
    vec norm, shift, error, loss, surplus; /* n, c, answer - n, and l and u, zero where no sequence is */
    REAL strength, spread;
} OfTask;

/* The loss of a task on a block and its control, from what is kept. */
static OfTask of_task(const Job *job, int64_t run, const vec *norms, vec share, const vec *kept, int i)
{
    const int I = job->tasks, H = job->heads;
    const REAL *omega = of_run(job->omega, run), *mu = of_run(job->mu, run);
    const REAL *number = of_run(job->numbers, run) + i * NUMBERS;
    vec answer = {0}, squares = {0}, surplus = {0};
    for (int h = 0; h < H; h++) {
        const vec f = kept[h * head_size(I) + 1 + i];
        const REAL m = mu[h * I + i];
        answer += m * f;
        surplus += m * (f - omega[h * I + i] * norms[i] * ((REAL)1 - kept[pair_at(H, I, h, h)]));
        for (int k = h; k < H; k++)
            squares += (h == k ? m : 2 * m) * mu[k * I + i] * kept[pair_at(H, I, h, k)];
    }
    OfTask found = {.norm = norms[i], .strength = number[0], .spread = number[1]};
    found.shift = norms[i] - number[2];
    found.error = answer - norms[i];
    found.loss = share * (number[0] * answer * (answer - (REAL)2 * norms[i]) + number[1] * squares);
    found.surplus = share * surplus;
    return found;
}

static void *forward(void *given)
{
    const Share *mine = given;
    const Job *job = mine->job;
    const int64_t T = job->tokens, I = job->tasks, H = job->heads, K = kept_size(H, I);
    vec *memory = vectors(H * I + H * T + I * SUMS), *free_from = memory;
    if (memory == NULL) return (void *)1;
    vec *direction = take(&free_from, H * I), *weight = take(&free_from, H * T), *sums = take(&free_from, I * SUMS);
    for (int64_t at = mine->first; at < mine->last; at++) {
        const int64_t run = at / job->blocks, block = at % job->blocks;
        const vec *norms = vectors_of_run(job->norm, run) + block * I;
        const REAL *omega = of_run(job->omega, run);
        vec *kept = (vec *)job->kept + at * K;
        for (int h = 0; h < H; h++)
            for (int i = 0; i < I; i++)
                direction[h * I + i] = LOG2_E * omega[h * I + i] * norms[i];
        moments(job, vectors_of_run(job->normal, run) + block * T * I, direction, weight, kept);
        for (int i = 0; i < I; i++) {
            const OfTask task = of_task(job, run, norms, vectors_of_run(job->share, run)[block], kept, i);
            const vec l = task.loss, u = task.surplus, c = task.shift;
            const vec terms[SUMS] = {l, u, c * u, u * u, c * u * u, c * c * u * u, l * u, l * c * u};
            for (int k = 0; k < SUMS; k++)
                sums[i * SUMS + k] += terms[k];
        }
        if ((block + 1) % MANY == 0 || block + 1 == job->blocks || at + 1 == mine->last)
            settle(sums, I * SUMS, mine->results + run * I * SUMS);
    }
    free(memory);
    return NULL;
}

static void *backward(void *given)
{
    const Share *mine = given;
    const Job *job = mine->job;
    const int64_t I = job->tasks, H = job->heads, K = kept_size(H, I);
    vec *memory = vectors(2 * H * I + H * H + H * I), *free_from = memory;
    if (memory == NULL) return (void *)1;
    vec *gathered = take(&free_from, 2 * H * I), *d_second = take(&free_from, H * H), *d_first = take(&free_from, H * I);
    vec *d_omega = gathered, *d_mu = gathered + H * I;
    for (int64_t at = mine->first; at < mine->last; at++) {
        const int64_t run = at / job->blocks, block = at % job->blocks;
        const vec *norms = vectors_of_run(job->norm, run) + block * I, *kept = (const vec *)job->kept + at * K;
        const vec share = vectors_of_run(job->share, run)[block];
        const REAL *omega = of_run(job->omega, run), *mu = of_run(job->mu, run);
        memset(d_second, 0, H * H * sizeof(vec));
        for (int i = 0; i < I; i++) {
            const REAL *of = of_run(job->cotangent, run) + i * SUMS;
            const OfTask task = of_task(job, run, norms, share, kept, i);
            const vec u = task.surplus, c = task.shift;
            const vec d_loss = share * (of[0] + u * (of[6] + of[7] * c));
            const vec d_surplus = share * (of[1] + of[2] * c + (REAL)2 * u * (of[3] + c * (of[4] + c * of[5])) +
                                           task.loss * (of[6] + of[7] * c));
            const vec d_answer = d_loss * ((REAL)2 * task.strength) * task.error, d_squares = d_loss * task.spread;
            for (int h = 0; h < H; h++) {
                const vec f = kept[h * head_size(I) + 1 + i], lost = (REAL)1 - kept[pair_at(H, I, h, h)];
                const REAL m = mu[h * I + i];
                const vec direction = omega[h * I + i] * norms[i];
                vec mixed = {0};
                for (int k = 0; k < H; k++) {
                    mixed += mu[k * I + i] * kept[pair_at(H, I, h, k)];
                    d_second[h * H + k] += m * mu[k * I + i] * d_squares;
                }
                d_second[h * H + h] += m * d_surplus * direction;
                d_first[h * I + i] = m * (d_answer + d_surplus);
                d_mu[h * I + i] += d_answer * f + (REAL)2 * d_squares * mixed + d_surplus * (f - direction * lost);
                d_omega[h * I + i] -= m * d_surplus * lost * norms[i];
            }
        }
        for (int h = 0; h < H; h++) {
            const vec *head = kept + h * head_size(I), *covariance = head + 1 + I;
            vec *out = d_omega + h * I, *df = d_first + h * I;
            for (int i = 0; i < I; i++)
                for (int j = i; j < I; j++) {
                    const vec both = *covariance++;
                    out[j] += norms[j] * df[i] * both;
                    if (i != j) out[i] += norms[i] * df[j] * both;
                }
            for (int k = 0; k < H; k++) {
                const vec *pair = kept + pair_at(H, I, h, k);
                for (int j = 0; j < I; j++)
                    out[j] += norms[j] * (REAL)2 * d_second[h * H + k] * (pair[1 + j] - pair[0] * head[1 + j]);
            }
        }
        if ((block + 1) % MANY == 0 || block + 1 == job->blocks || at + 1 == mine->last)
            settle(gathered, 2 * H * I, mine->results + run * 2 * H * I);
    }
    free(memory);
    return NULL;
}

/* Inputs: omega, mu (head, task); numbers (task, 3); norms (block, task, lane); shares (block, lane). Returns 0 if they
   do not fit together. */
static int read_common(XLA_FFI_Buffer **in, int64_t runs, Job *job)
{
    job->runs = runs, job->heads = own_dims(in[0], 2)[0], job->tasks = own_dims(in[0], 2)[1];
    job->blocks = own_dims(in[3], 3)[0];
    Input *to[] = {&job->omega, &job->mu, &job->numbers, &job->norm, &job->share};
    const int own[] = {2, 2, 2, 3, 2};
    for (int k = 0; k < 5; k++) {
        if (runs_of(in[k], own[k]) != 1 && runs_of(in[k], own[k]) != runs) return 0;
        *to[k] = input(in[k], own[k]);
    }
    return own_dims(in[1], 2)[0] == job->heads && own_dims(in[1], 2)[1] == job->tasks &&
           own_dims(in[2], 2)[0] == job->tasks && own_dims(in[2], 2)[1] == NUMBERS &&
           own_dims(in[3], 3)[1] == job->tasks && own_dims(in[3], 3)[2] == LANES &&
           own_dims(in[4], 2)[0] == job->blocks && own_dims(in[4], 2)[1] == LANES;
}

/* Then normals (block, token, task, lane); out: sums (task, 8), kept (block, any, lane). */
XLA_FFI_Error *reduced_sums(XLA_FFI_CallFrame *frame)
{
    if (asked_for_version(frame)) return NULL;
    XLA_FFI_Buffer **in = (XLA_FFI_Buffer **)frame->args.args, **out = (XLA_FFI_Buffer **)frame->rets.rets;
    const int64_t runs = runs_of(out[0], 2), *z = own_dims(in[5], 4);
    Job job;
    if (!read_common(in, runs, &job) || (runs_of(in[5], 4) != 1 && runs_of(in[5], 4) != runs) || z[0] != job.blocks ||
        z[1] < 1 || z[2] != job.tasks || z[3] != LANES || own_dims(out[1], 3)[1] != kept_size(job.heads, job.tasks))
        return refuse(frame, "reduced_sums: the arrays do not fit together");
    job.tokens = z[1], job.normal = input(in[5], 4), job.kept = out[1]->data;
    if (!fan_out(forward, &job, runs * job.blocks, 8, runs * job.tasks * SUMS, out[0]->data))
        return refuse(frame, "reduced_sums: out of memory");
    return NULL;
}

/* Then kept, and the gradient by the sums (task, 8); out: the gradients by omega and mu (2, head, task). */
XLA_FFI_Error *reduced_sums_gradient(XLA_FFI_CallFrame *frame)
{
    if (asked_for_version(frame)) return NULL;
    XLA_FFI_Buffer **in = (XLA_FFI_Buffer **)frame->args.args, **out = (XLA_FFI_Buffer **)frame->rets.rets;
    const int64_t runs = runs_of(out[0], 3);
    Job job;
    if (!read_common(in, runs, &job) || runs_of(in[5], 3) != runs || runs_of(in[6], 2) != runs ||
        own_dims(in[5], 3)[1] != kept_size(job.heads, job.tasks) || own_dims(in[6], 2)[1] != SUMS)
        return refuse(frame, "reduced_sums_gradient: the arrays do not fit together");
    job.kept = in[5]->data, job.cotangent = input(in[6], 2);
    if (!fan_out(backward, &job, runs * job.blocks, 256, runs * 2 * job.heads * job.tasks, out[0]->data))
        return refuse(frame, "reduced_sums_gradient: out of memory");
    return NULL;
}
