/* Weights brought into the lanes, products of small matrices there, and the effective map of keys and queries. */

/* `rows` rows of `width` entries, from entry `from` on, between an array with rows of `stride` and the lanes. */
static void bring(Input array, int64_t run, int lanes, int rows, int width, int stride, int from, vec *out)
{
    for (int lane = 0; lane < lanes; lane++)
        for (int r = 0; r < rows; r++)
            for (int k = 0; k < width; k++)
                LANE(out[r * width + k], lane) = of_run(array, run + lane)[r * stride + from + k];
}

static void hand_back(REAL *array, int64_t run, int lanes, int rows, int width, int stride, int from, const vec *in)
{
    for (int lane = 0; lane < lanes; lane++)
        for (int r = 0; r < rows; r++)
            for (int k = 0; k < width; k++)
                array[((run + lane) * rows + r) * stride + from + k] = LANE(in[r * width + k], lane);
}

/* sum_m left[m] right[m][c] for `columns` of them, written to out[c]. */
INLINE void row(int columns, int middle, const vec *left, int along, const vec *right, int width, vec *out)
{
    vec sum[4];
    memset(sum, 0, sizeof(sum));
    for (int m = 0; m < middle; m++)
        for (int c = 0; c < columns; c++)
            sum[c] += left[m * along] * right[m * width + c];
    for (int c = 0; c < columns; c++)
        out[c] = sum[c];
}

/* Of two matrices; `left` has its entries `down` and `along` from each other, the others lie row by row. */
INLINE void product(int rows, int middle, int width, const vec *left, int down, int along, const vec *right, vec *out)
{
    for (int r = 0; r < rows; r++) {
        int c = 0;
        for (; c + 4 <= width; c += 4)
            row(4, middle, left + r * down, along, right + c, width, out + r * width + c);
        const int rest = width - c;
        FOR_SMALL(N, rest, row(N, middle, left + r * down, along, right + c, width, out + r * width + c), )
    }
}

INLINE void transpose(int D, const vec *in, vec *out)
{
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++)
            out[j * D + i] = in[i * D + j];
}

/* C Y Lambda for the moments C, `second`, and Lambda, `input`; `moved` is workspace of the same size. */
INLINE void weigh(int D, const vec *second, const vec *input, const vec *map, vec *moved, vec *out)
{
    product(D, D, D, second, D, 1, map, moved);
    product(D, D, D, moved, D, 1, input, out);
}

/* A = sum_a v_a k_a q_a^T, with `valued` for all v_a k_a. */
INLINE void effective_map(int D, int heads, int rank, const vec *value, const vec *key, const vec *query, vec *valued,
                          vec *map)
{
    for (int a = 0; a < heads * rank; a++)
        for (int d = 0; d < D; d++)
            valued[a * D + d] = value[a / rank] * key[a * D + d];
    product(D, heads * rank, D, valued, 1, D, query, map);
}
