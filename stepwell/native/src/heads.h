/* Linear systems with the Jacobian of the flow of separate attention at infinitely many sequences: see
   stepwell/dynamics/fast/_stepping_population.py.

   All is in the basis of the singular vectors of S, where S is diagonal. Weights lie in a vector: the values of all
   heads, all keys, all queries. */

typedef struct {
    vec *input, *drive, *second; /* Lambda, M Lambda and C */
    vec *base;                   /* the weights */
    vec *strengths, shift;
    vec *same, *other;   /* of a head without its value, the inverse: a_i and b_i */
    vec *arrow, *rest;   /* what its value adds: the solution for the tip, and 1/rho */
    vec *system, *order; /* factors of the small system */
    vec *valued, *crossed, *map, *moved, *slope, *transposed, *keys, *queries;
} Heads;

/* Products, compiled once for all sizes. */
static ONCE void times(int rows, int middle, int width, const vec *left, int down, int along, const vec *right,
                       vec *out)
{
    product(rows, middle, width, left, down, along, right, out);
}

/* C A Lambda - M Lambda at some weights; A is left in `map`. */
static void excess(int D, int heads, int rank, const vec *at, Heads *space)
{
    const vec *key = at + heads, *query = key + heads * rank * D;
    effective_map(D, heads, rank, at, key, query, space->valued, space->map);
    weigh(D, space->second, space->input, space->map, space->moved, space->slope);
    for (int k = 0; k < D * D; k++)
        space->slope[k] -= space->drive[k];
}

/* (sum_r k_r^T Y q_r, v Y q_r, v Y^T k_r) at some weights, taken from `out`: the velocity is that from nothing, for Y
   the excess; and Theta^T Y, for any Y. */
static void gather(int D, int heads, int rank, const vec *at, const vec *map, Heads *space, vec *out)
{
    const int pairs = heads * rank;
    const vec *key = at + heads, *query = key + pairs * D;
    transpose(D, map, space->transposed);
    times(pairs, D, D, query, D, 1, space->transposed, space->valued);
    times(pairs, D, D, key, D, 1, map, space->crossed);
    for (int h = 0; h < heads; h++) {
        out[h] -= dot(rank * D, key + h * rank * D, space->valued + h * rank * D);
        for (int k = h * rank * D; k < (h + 1) * rank * D; k++) {
            out[heads + k] -= at[h] * space->valued[k];
            out[heads + pairs * D + k] -= at[h] * space->crossed[k];
        }
    }
}

/* Theta x at the base: sum_a (x_v k_a + v x_k,a) q_a^T + v k_a x_q,a^T, to `map`. */
static void spread(int D, int heads, int rank, const vec *x, Heads *space)
{
    const int pairs = heads * rank;
    const vec *at = space->base, *key = at + heads, *query = key + pairs * D;
    for (int a = 0; a < pairs; a++)
        for (int k = a * D; k < (a + 1) * D; k++) {
            space->valued[k] = x[a / rank] * key[k] + at[a / rank] * x[heads + k];
            space->crossed[k] = at[a / rank] * key[k];
        }
    times(D, pairs, D, space->valued, 1, D, query, space->map);
    times(D, pairs, D, space->crossed, 1, D, x + heads + pairs * D, space->moved);
    for (int k = 0; k < D * D; k++)
        space->map[k] += space->moved[k];
}

/* B^-1 x in place. */
static void alone(int D, int heads, int rank, const Heads *space, vec *x)
{
    const int count = heads * rank * D;
    for (int h = 0; h < heads; h++) {
        const vec *g = space->arrow + heads;
        for (int k = h * rank * D; k < (h + 1) * rank * D; k++)
            x[h] -= g[k] * x[heads + k] + g[count + k] * x[heads + count + k];
        x[h] *= space->rest[h];
        for (int k = h * rank * D, i = 0; k < (h + 1) * rank * D; k++, i = i + 1 < D ? i + 1 : 0) {
            const vec same = space->same[h * D + i], other = space->other[h * D + i];
            const vec on_key = x[heads + k], on_query = x[heads + count + k];
            x[heads + k] = same * on_key + other * on_query - g[k] * x[h];
            x[heads + count + k] = other * on_key + same * on_query - g[count + k] * x[h];
        }
    }
}

/* What `alone` needs of a head, and its part in Theta B^-1 Theta^T. */
static void prepare_head(int D, int heads, int rank, int h, Heads *space)
{
    const int first = heads + h * rank * D, second = first + heads * rank * D;
    const vec value = space->base[h], *key = space->base + first, *query = space->base + second;
    vec *same = space->same + h * D, *other = space->other + h * D;
    vec *g = space->arrow + first, *f = space->arrow + second;
    for (int i = 0; i < D; i++) {
        const vec plus = (REAL)0.5 / (space->shift + value * space->strengths[i]);
        const vec minus = (REAL)0.5 / (space->shift - value * space->strengths[i]);
        same[i] = plus + minus, other[i] = plus - minus;
    }
    vec rest = space->shift;
    for (int k = 0, i = 0; k < rank * D; k++, i = i + 1 < D ? i + 1 : 0) {
        const vec strength = space->strengths[i];
        g[k] = strength * (same[i] * query[k] + other[i] * key[k]);
        f[k] = strength * (same[i] * key[k] + other[i] * query[k]);
        rest -= strength * (query[k] * g[k] + key[k] * f[k]);
    }
    space->rest[h] = (REAL)1 / rest;

    vec *cross = space->transposed, *direct = space->map, *back = space->moved; /* K^T Q, and u */
    times(D, rank, D, key, 1, D, query, cross);
    times(D, rank, D, g, 1, D, query, direct);
    times(D, rank, D, key, 1, D, f, back);
    times(D, rank, D, key, 1, D, key, space->keys);
    times(D, rank, D, query, 1, D, query, space->queries);
    for (int k = 0; k < D * D; k++)
        direct[k] = cross[k] - value * (direct[k] + back[k]);
    const vec square = value * value;
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) {
            vec *row = space->system + (i * D + j) * D * D;
            const vec weight = direct[i * D + j] * space->rest[h];
            for (int k = 0; k < D * D; k++)
                row[k] += weight * direct[k];
            for (int k = 0; k < D; k++) {
                row[i * D + k] += square * same[i] * space->queries[j * D + k];
                row[k * D + j] += square * same[j] * space->keys[i * D + k];
                row[k * D + i] += square * other[i] * cross[k * D + j];
                row[j * D + k] += square * other[j] * cross[i * D + k];
            }
        }
}

/* The factors of 1 + Theta B^-1 Theta^T W. */
static void prepare(int D, int heads, int rank, Heads *space)
{
    const int size = D * D;
    memset(space->system, 0, size * size * sizeof(vec));
    for (int h = 0; h < heads; h++)
        prepare_head(D, heads, rank, h, space);
    for (int k = 0; k < size; k++) {
        weigh(D, space->second, space->input, space->system + k * size, space->moved, space->system + k * size);
        space->system[k * size + k] += (REAL)1;
    }
    factor(size, space->system, space->order);
}

/* (shift - J)^-1 `side` = B^-1 (side - Theta^T W (1 + Theta B^-1 Theta^T W)^-1 Theta B^-1 side), to `out`. */
static void solve(int D, int heads, int rank, int count, Heads *space, const vec *side, vec *out)
{
    memcpy(out, side, count * sizeof(vec));
    alone(D, heads, rank, space, out);
    spread(D, heads, rank, out, space);
    resolve(D * D, space->system, space->order, space->map);
    weigh(D, space->second, space->input, space->map, space->moved, space->slope);
    memcpy(out, side, count * sizeof(vec));
    gather(D, heads, rank, space->base, space->slope, space, out);
    alone(D, heads, rank, space, out);
}
