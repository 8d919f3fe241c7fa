/* Moments of the tokens of reduced sequences under the softmax of each head, from one pass over the tokens.

   A block has, for p^h the softmax over tokens l of sum_i w_i^h z_{l,i},
     of each head h:        the reciprocal of the sum of its weights, f_i = sum_l p_l^h z_{l,i}, and for i <= j
                            the covariances C_ij = sum_l p_l^h z_{l,i} z_{l,j} - f_i f_j;
     of each pair h <= k:   g = sum_l p_l^h p_l^k and r_i = sum_l p_l^h p_l^k z_{l,i}. */

#include "native.h"

/* The call with HEADS and TASKS, which are constants if they are small. */
#define FOR_FEW(heads, tasks, call)                                                                                    \
    FOR_SMALL(TASKS, tasks, FOR_SMALL(HEADS, heads, call, const int HEADS = heads; call),                              \
              const int HEADS = heads; const int TASKS = tasks; call)

INLINE int head_size(int tasks) { return 1 + tasks + tasks * (tasks + 1) / 2; }
INLINE int covariance_at(int tasks, int i, int j)
{
    const int first = i < j ? i : j, second = i < j ? j : i;
    return 1 + tasks + first * tasks - first * (first - 1) / 2 + second - first;
}
INLINE int pair_at(int heads, int tasks, int h, int k)
{
    const int first = h < k ? h : k, second = h < k ? k : h;
    return heads * head_size(tasks) + (first * heads - first * (first - 1) / 2 + second - first) * (1 + tasks);
}
INLINE int moments_size(int heads, int tasks) { return pair_at(heads, tasks, heads, heads); }

INLINE vec score(int tasks, const vec *direction, const vec *z)
{
    vec sum = {0};
    for (int i = 0; i < tasks; i++)
        sum += direction[i] * z[i];
    return sum;
}

/* Two to the power of the scores of `part` tokens, to weight[h][t]. */
INLINE void weigh_tokens(int heads, int tasks, int part, const vec *normal, int tokens, const vec *direction,
                         vec *restrict weight)
{
    for (int h = 0; h < heads; h++) {
        vec x[POWERS];
        for (int t = 0; t < part; t++)
            x[t] = score(tasks, direction + h * tasks, normal + t * tasks);
        powers_of_two(part, x);
        for (int t = 0; t < part; t++)
            weight[h * tokens + t] = x[t];
    }
}

/* The same for all tokens. Only if scores may be FAR from zero, as the largest components of the tokens tell, is the
   largest score found and taken off first. */
INLINE void weigh(int heads, int tasks, const vec *normal, const vec *most, int tokens, const vec *direction,
                  vec *restrict weight)
{
    int near = 1;
    for (int h = 0; h < heads; h++) {
        vec bound = {0};
        for (int i = 0; i < tasks; i++)
            bound += larger(direction[h * tasks + i], -direction[h * tasks + i]) * most[i];
        near &= all_within(bound, FAR);
    }
    int t = 0;
    for (; near && t + POWERS <= tokens; t += POWERS)
        weigh_tokens(heads, tasks, POWERS, normal + t * tasks, tokens, direction, weight + t);
    for (; near && t < tokens; t++)
        weigh_tokens(heads, tasks, 1, normal + t * tasks, tokens, direction, weight + t);
    for (int h = 0; !near && h < heads; h++) {
        vec *w = weight + h * tokens;
        for (int t = 0; t < tokens; t++)
            w[t] = score(tasks, direction + h * tasks, normal + t * tasks);
        const vec highest = largest(w, tokens);
        for (int t = 0; t < tokens; t++)
            w[t] = fraction_of_two(w[t] - highest);
    }
}

/* Sums over tokens of the first weight of several: if `single`, of it times 1, z_i and z_i z_j, to `head`; and of its
   product with each of `count` from itself on, times 1 and z_i, to `pairs`. */
INLINE void sum_over_tokens(int single, int count, int tasks, const vec *normal, int tokens, const vec *weight,
                            vec *head, vec *pairs)
{
    const int small = count <= 4 && tasks <= 4, singles = single ? head_size(tasks) : 0, doubles = count * (1 + tasks);
    vec inside[15], inside_pairs[20], *sum = small ? inside : head, *pair = small ? inside_pairs : pairs;
    for (int k = 0; k < singles; k++)
        sum[k] = (vec){0};
    for (int k = 0; k < doubles; k++)
        pair[k] = (vec){0};
    for (int t = 0; t < tokens; t++) {
        const vec *z = normal + t * tasks, first = weight[t];
        int second = 1 + tasks;
        if (single) sum[0] += first;
        for (int i = 0; single && i < tasks; i++) {
            const vec product = first * z[i];
            sum[1 + i] += product;
            for (int j = i; j < tasks; j++)
                sum[second++] += product * z[j];
        }
        for (int k = 0; k < count; k++) {
            const vec product = first * weight[k * tokens + t];
            pair[k * (1 + tasks)] += product;
            for (int i = 0; i < tasks; i++)
                pair[k * (1 + tasks) + 1 + i] += product * z[i];
        }
    }
    for (int k = 0; small && k < singles; k++)
        head[k] = sum[k];
    for (int k = 0; small && k < doubles; k++)
        pairs[k] = pair[k];
}

/* Both kinds in one pass if all their sums fit into the registers. */
INLINE void sum_up(int count, int tasks, const vec *normal, int tokens, const vec *weight, vec *head, vec *pairs)
{
    const int together = head_size(tasks) + count * (1 + tasks) <= REGISTERS - 4;
    sum_over_tokens(1, together ? count : 0, tasks, normal, tokens, weight, head, pairs);
    if (!together) sum_over_tokens(0, count, tasks, normal, tokens, weight, head, pairs);
}

/* From sums over weights to moments. */
INLINE void normalize(int heads, int tasks, vec *moments)
{
    for (int h = 0; h < heads; h++) {
        vec *head = moments + h * head_size(tasks);
        head[0] = (REAL)1 / head[0];
        for (int k = 1; k < head_size(tasks); k++)
            head[k] *= head[0];
        for (int i = 0; i < tasks; i++)
            for (int j = i; j < tasks; j++)
                head[covariance_at(tasks, i, j)] -= head[1 + i] * head[1 + j];
    }
    for (int h = 0; h < heads; h++)
        for (int k = h; k < heads; k++) {
            vec *pair = moments + pair_at(heads, tasks, h, k);
            const vec scale = moments[h * head_size(tasks)] * moments[k * head_size(tasks)];
            for (int i = 0; i < 1 + tasks; i++)
                pair[i] *= scale;
        }
}

/* The moments of a block of tokens, of which the largest components are `most`, from the directions log2(e) w. */
static void find_moments(int heads, int tasks, const vec *normal, const vec *most, int tokens, const vec *direction,
                         vec *weight, vec *moments)
{
    FOR_FEW(heads, tasks, weigh(HEADS, TASKS, normal, most, tokens, direction, weight))
    for (int h = 0; h < heads; h++) {
        vec *head = moments + h * head_size(tasks), *pairs = moments + pair_at(heads, tasks, h, h);
        FOR_FEW(heads - h, tasks, sum_up(HEADS, TASKS, normal, tokens, weight + h * tokens, head, pairs))
    }
    FOR_FEW(heads, tasks, normalize(HEADS, TASKS, moments))
}
