/* Linear systems with the Jacobian of the flow of separate attention in population: see _stepping_population.py.

   All is in the basis of the singular vectors of S, where S is diagonal. Weights lie in a vector: the values of all
   heads, all keys, all queries. */

typedef struct {
    vec *input, *drive, *second; /* Lambda, M Lambda and C */
    vec *base;                   /* the weights */
    vec *strengths, shift;
    vec *same, *other;   /* of a head without its value, the inverse: a_i and b_i */
    vec *arrow, *rest;   /* what its value adds: the solution for the tip, and 1/rho */
    vec *system, *order; /* factors of the small system */
    vec *valued, *crossed, *map, *moved, *slope, *turned, *keys, *queries;
} Heads;

/* Products, compiled once for all sizes. */
static ONCE void times(int rows, int middle, int width, const vec *left, int down, int along, const vec *right,
                       vec *out)
{
    product(rows, middle, width, left, down, along, right, out);
}

/* C A Lambda - M Lambda at some weights; A is left in `map`. */
static void excess(int D, int heads, int rank, const vec *at, Heads *room)
{
    const vec *key = at + heads, *query = key + heads * rank * D;
    effective_map(D, heads, rank, at, key, query, room->valued, room->map);
    weigh(D, room->second, room->input, room->map, room->moved, room->slope);
    for (int k = 0; k < D * D; k++)
        room->slope[k] -= room->drive[k];
}

/* (sum_r k_r^T Y q_r, v Y q_r, v Y^T k_r) at some weights, taken from `out`: the velocity is that from nothing, for Y
   the excess; and Theta^T Y, for any Y. */
static void gather(int D, int heads, int rank, const vec *at, const vec *map, Heads *room, vec *out)
{
    const int pairs = heads * rank;
    const vec *key = at + heads, *query = key + pairs * D;
    transpose(D, map, room->turned);
    times(pairs, D, D, query, D, 1, room->turned, room->valued);
    times(pairs, D, D, key, D, 1, map, room->crossed);
    for (int h = 0; h < heads; h++) {
        out[h] -= dot(rank * D, key + h * rank * D, room->valued + h * rank * D);
        for (int k = h * rank * D; k < (h + 1) * rank * D; k++) {
            out[heads + k] -= at[h] * room->valued[k];
            out[heads + pairs * D + k] -= at[h] * room->crossed[k];
        }
    }
}

/* Theta x at the base: sum_a (x_v k_a + v x_k,a) q_a^T + v k_a x_q,a^T, to `map`. */
static void spread(int D, int heads, int rank, const vec *x, Heads *room)
{
    const int pairs = heads * rank;
    const vec *at = room->base, *key = at + heads, *query = key + pairs * D;
    for (int a = 0; a < pairs; a++)
        for (int k = a * D; k < (a + 1) * D; k++) {
            room->valued[k] = x[a / rank] * key[k] + at[a / rank] * x[heads + k];
            room->crossed[k] = at[a / rank] * key[k];
        }
    times(D, pairs, D, room->valued, 1, D, query, room->map);
    times(D, pairs, D, room->crossed, 1, D, x + heads + pairs * D, room->moved);
    for (int k = 0; k < D * D; k++)
        room->map[k] += room->moved[k];
}

/* B^-1 x in place. */
static void alone(int D, int heads, int rank, const Heads *room, vec *x)
{
    const int count = heads * rank * D;
    for (int h = 0; h < heads; h++) {
        const vec *g = room->arrow + heads;
        for (int k = h * rank * D; k < (h + 1) * rank * D; k++)
            x[h] -= g[k] * x[heads + k] + g[count + k] * x[heads + count + k];
        x[h] *= room->rest[h];
        for (int k = h * rank * D, i = 0; k < (h + 1) * rank * D; k++, i = i + 1 < D ? i + 1 : 0) {
            const vec same = room->same[h * D + i], other = room->other[h * D + i];
            const vec on_key = x[heads + k], on_query = x[heads + count + k];
            x[heads + k] = same * on_key + other * on_query - g[k] * x[h];
            x[heads + count + k] = other * on_key + same * on_query - g[count + k] * x[h];
        }
    }
}

/* What `alone` needs of a head, and its part in Theta B^-1 Theta^T. */
static void prepare_head(int D, int heads, int rank, int h, Heads *room)
{
    const int first = heads + h * rank * D, second = first + heads * rank * D;
    const vec value = room->base[h], *key = room->base + first, *query = room->base + second;
    vec *same = room->same + h * D, *other = room->other + h * D, *g = room->arrow + first, *f = room->arrow + second;
    for (int i = 0; i < D; i++) {
        const vec plus = (REAL)0.5 / (room->shift + value * room->strengths[i]);
        const vec minus = (REAL)0.5 / (room->shift - value * room->strengths[i]);
        same[i] = plus + minus, other[i] = plus - minus;
    }
    vec rest = room->shift;
    for (int k = 0, i = 0; k < rank * D; k++, i = i + 1 < D ? i + 1 : 0) {
        const vec strength = room->strengths[i];
        g[k] = strength * (same[i] * query[k] + other[i] * key[k]);
        f[k] = strength * (same[i] * key[k] + other[i] * query[k]);
        rest -= strength * (query[k] * g[k] + key[k] * f[k]);
    }
    room->rest[h] = (REAL)1 / rest;

    vec *cross = room->turned, *direct = room->map, *back = room->moved; /* K^T Q, and u */
    times(D, rank, D, key, 1, D, query, cross);
    times(D, rank, D, g, 1, D, query, direct);
    times(D, rank, D, key, 1, D, f, back);
    times(D, rank, D, key, 1, D, key, room->keys);
    times(D, rank, D, query, 1, D, query, room->queries);
    for (int k = 0; k < D * D; k++)
        direct[k] = cross[k] - value * (direct[k] + back[k]);
    const vec square = value * value;
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) {
            vec *row = room->system + (i * D + j) * D * D;
            const vec weight = direct[i * D + j] * room->rest[h];
            for (int k = 0; k < D * D; k++)
                row[k] += weight * direct[k];
            for (int k = 0; k < D; k++) {
                row[i * D + k] += square * same[i] * room->queries[j * D + k];
                row[k * D + j] += square * same[j] * room->keys[i * D + k];
                row[k * D + i] += square * other[i] * cross[k * D + j];
                row[j * D + k] += square * other[j] * cross[i * D + k];
            }
        }
}

/* The factors of 1 + Theta B^-1 Theta^T W. */
static void prepare(int D, int heads, int rank, Heads *room)
{
    const int size = D * D;
    memset(room->system, 0, size * size * sizeof(vec));
    for (int h = 0; h < heads; h++)
        prepare_head(D, heads, rank, h, room);
    for (int k = 0; k < size; k++) {
        weigh(D, room->second, room->input, room->system + k * size, room->moved, room->system + k * size);
        room->system[k * size + k] += (REAL)1;
    }
    factor(size, room->system, room->order);
}

/* (shift - J)^-1 `side` = B^-1 (side - Theta^T W (1 + Theta B^-1 Theta^T W)^-1 Theta B^-1 side), to `out`. */
static void solve(int D, int heads, int rank, int count, Heads *room, const vec *side, vec *out)
{
    memcpy(out, side, count * sizeof(vec));
    alone(D, heads, rank, room, out);
    spread(D, heads, rank, out, room);
    resolve(D * D, room->system, room->order, room->map);
    weigh(D, room->second, room->input, room->map, room->moved, room->slope);
    memcpy(out, side, count * sizeof(vec));
    gather(D, heads, rank, room->base, room->slope, room, out);
    alone(D, heads, rank, room, out);
}
