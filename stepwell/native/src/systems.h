/* Systems of linear equations in lanes, by elimination; each lane exchanges rows for itself. */

INLINE void exchange(vec *one, vec *other, int64_t lane, int count)
{
    for (int c = 0; c < count; c++) {
        const REAL held = LANE(one[c], lane);
        LANE(one[c], lane) = LANE(other[c], lane);
        LANE(other[c], lane) = held;
    }
}

/* A matrix in place by its factors; `order` tells which row took each place. */
static void factor(int size, vec *matrix, vec *order)
{
    for (int k = 0; k < size; k++) {
        vec best = size_of(matrix[k * size + k]);
        order[k] = (vec){0} + (REAL)k;
        for (int r = k + 1; r < size; r++) {
            const vec here = size_of(matrix[r * size + k]);
            const whole more = here > best;
            best = chosen(more, here, best);
            order[k] = chosen(more, (vec){0} + (REAL)r, order[k]);
        }
        for (int lane = 0; lane < LANES; lane++) {
            const int from = (int)LANE(order[k], lane);
            if (from != k) exchange(matrix + k * size, matrix + from * size, lane, size);
        }
        const vec *pivot = matrix + k * size, inverse = (REAL)1 / pivot[k];
        for (int r = k + 1; r < size; r++) {
            vec *row = matrix + r * size;
            const vec part = row[k] *= inverse;
            for (int c = k + 1; c < size; c++)
                row[c] -= part * pivot[c];
        }
    }
}

/* The solution in place of the right side. */
static void resolve(int size, const vec *factors, const vec *order, vec *side)
{
    for (int k = 0; k < size; k++)
        for (int lane = 0; lane < LANES; lane++)
            if (LANE(order[k], lane) != k) exchange(side + k, side + (int)LANE(order[k], lane), lane, 1);
    for (int k = 1; k < size; k++)
        side[k] -= dot(k, factors + k * size, side);
    for (int k = size - 1; k >= 0; k--)
        side[k] = (side[k] - dot(size - 1 - k, factors + k * size + k + 1, side + k + 1)) / factors[k * size + k];
}
