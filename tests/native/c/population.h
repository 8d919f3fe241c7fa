/* Separate attention at infinitely many sequences by its formulas, head by head: a value, keys and queries. */

typedef struct {
    int dim, heads, rank;
    const REAL *input, *drive, *second; /* Lambda, M Lambda and C */
} Population;

static inline int weights_of(Population of) { return of.heads * (1 + 2 * of.rank * of.dim); }

/* c - 2 <A, M Lambda> + <A, C A Lambda> with A = sum v k q^T, less c; and minus half its gradient. */
static inline double complex velocity(Population of, const double complex *weights, double complex *moved)
{
    const int D = of.dim, each = of.rank * D, head = 1 + 2 * each;
    double complex map[16][16], slope[16][16], loss = 0;
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) {
            map[i][j] = 0;
            for (int h = 0; h < of.heads; h++)
                for (int r = 0; r < of.rank; r++)
                    map[i][j] += weights[h * head] * weights[h * head + 1 + r * D + i] *
                                 weights[h * head + 1 + each + r * D + j];
        }
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) {
            slope[i][j] = -(double)of.drive[i * D + j];
            for (int k = 0; k < D; k++)
                for (int l = 0; l < D; l++)
                    slope[i][j] += (double)of.second[i * D + k] * map[k][l] * (double)of.input[l * D + j];
            loss += map[i][j] * (slope[i][j] - (double)of.drive[i * D + j]);
        }
    memset(moved, 0, weights_of(of) * sizeof(*moved));
    for (int h = 0; h < of.heads; h++)
        for (int r = 0; r < of.rank; r++) {
            const double complex *key = weights + h * head + 1 + r * D, *query = key + each, value = weights[h * head];
            double complex *own = moved + h * head;
            for (int i = 0; i < D; i++)
                for (int j = 0; j < D; j++) {
                    own[0] -= key[i] * slope[i][j] * query[j];
                    own[1 + r * D + i] -= value * slope[i][j] * query[j];
                    own[1 + each + r * D + j] -= value * slope[i][j] * key[i];
                }
        }
    return loss;
}

/* Moments of any task: symmetric and positive, but for the drive. */
static inline void fill_moments(int D, Array *input, Array *drive, Array *second)
{
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) {
            for (int k = 0; k < 2; k++) {
                Array *moment = k ? second : input;
                reals(moment)[i * D + j] = j < i ? reals(moment)[j * D + i]
                                                 : (REAL)((i == j ? 1.0 / (1 + i) + 0.2 : 0) + 0.2 / D * uniform());
            }
            reals(drive)[i * D + j] = (REAL)((i == j ? 0.5 : 0) + 0.2 * uniform());
        }
}
