/* The loss of softmax attention and its gradient, for sizes that fill tiles, vectors and blocks, and that do not. */

#include "self_test.h"

typedef struct {
    int runs, sequences, tokens, width, dim, heads, outputs;
} Sizes;

/* sum_s c_s |U m - y|^2 with m_h the mean of tokens z under the softmax of z W_h x, of one run. */
static double complex loss(Sizes of, int lanes, const double complex *bilinear, const double complex *readout,
                           const REAL *token, const REAL *query, const REAL *target, const REAL *share)
{
    const int T = of.tokens, E = of.width, D = of.dim, H = of.heads, O = of.outputs;
    double complex sum = 0;
    for (int s = 0; s < of.sequences; s++) {
        const int block = s / lanes, lane = s % lanes;
        double complex error[8], score[64];
        for (int o = 0; o < O; o++)
            error[o] = -(double)target[(block * O + o) * lanes + lane];
        for (int h = 0; h < H; h++) {
            double most = -INFINITY;
            double complex total = 0;
            for (int t = 0; t < T; t++) {
                score[t] = 0;
                for (int e = 0; e < E; e++)
                    for (int d = 0; d < D; d++)
                        score[t] += (double)token[((block * T + t) * E + e) * lanes + lane] *
                                    bilinear[(h * E + e) * D + d] * (double)query[(block * D + d) * lanes + lane];
                most = fmax(most, creal(score[t]));
            }
            for (int t = 0; t < T; t++)
                total += score[t] = cexp(score[t] - most);
            for (int o = 0; o < O; o++)
                for (int t = 0; t < T; t++)
                    for (int e = 0; e < E; e++)
                        error[o] += score[t] / total * readout[(h * O + o) * E + e] *
                                    (double)token[((block * T + t) * E + e) * lanes + lane];
        }
        for (int o = 0; o < O; o++)
            sum += (double)share[block * lanes + lane] * error[o] * error[o];
    }
    return sum;
}

static void test(Kernel kernel, Sizes of, double scale)
{
    const int L = kernel.lanes, B = (of.sequences + L - 1) / L, R = of.runs;
    const int T = of.tokens, E = of.width, D = of.dim, H = of.heads, O = of.outputs;
    Array *in[] = {random_array(array(sizeof(REAL), 4, R, H, E, D), scale),
                   random_array(array(sizeof(REAL), 4, R, H, O, E), 1),
                   random_array(array(sizeof(REAL), 4, B, T, E, L), 1), /* which all runs share */
                   random_array(array(sizeof(REAL), 3, B, D, L), 1),
                   random_array(array(sizeof(REAL), 3, B, O, L), 1),
                   random_array(array(sizeof(REAL), 3, R, B, L), 1)};
    Array *out[] = {array(8, 1, R), array(8, 4, R, H, E, D), array(8, 4, R, H, O, E)};
    for (int k = 0; k < R * B * L; k++) /* what fills the last block counts nothing */
        reals(in[5])[k] = k % (B * L) < of.sequences ? (REAL)fabs((double)reals(in[5])[k]) : 0;
    call(kernel, 6, in, 3, out);

    const int first = H * E * D, second = H * O * E, count = first + second;
    double *found = calloc(count, sizeof(double)), *expected = calloc(count, sizeof(double));
    double complex *weights = calloc(count, sizeof(double complex));
    for (int r = 0; r < R; r++) {
        for (int k = 0; k < count; k++)
            weights[k] = k < first ? reals(in[0])[r * first + k] : reals(in[1])[r * second + k - first];
        for (int k = 0; k < count; k++) {
            weights[k] += I * ALONG;
            expected[k] = cimag(loss(of, L, weights, weights + first, reals(in[2]), reals(in[3]), reals(in[4]),
                                     reals(in[5]) + r * B * L)) / ALONG;
            weights[k] = creal(weights[k]);
            found[k] = k < first ? doubles(out[1])[r * first + k] : doubles(out[2])[r * second + k - first];
        }
        const double value = creal(loss(of, L, weights, weights + first, reals(in[2]), reals(in[3]), reals(in[4]),
                                        reals(in[5]) + r * B * L));
        char what[100];
        snprintf(what, sizeof(what), "%d heads, %d wide, %d tokens, %d sequences", H, E, T, of.sequences);
        expect_close(what, 1, doubles(out[0]) + r, &value, 100);
        expect_close(what, count, found, expected, 100);
    }
    in[5]->dims[0] = R + 1;
    expect_refusal(kernel, 6, in, 3, out);
    free(found), free(expected), free(weights);
    release(6, in), release(3, out);
}

int main(int argc, char **argv)
{
    const Kernel kernel = load(argc, argv, "softmax_loss");
    const int heads[] = {1, 2, 3, 4, 5, 7, 8};
    for (int k = 0; k < COUNT(heads); k++)
        for (int width = 2; width <= 7; width++)
            test(kernel, (Sizes){1, 3 + 2 * k, 3 + width, width, width - 1, heads[k], 1}, 1);
    test(kernel, (Sizes){2, 37, 9, 6, 4, 3, 2}, 1); /* several runs, outputs and threads */
    test(kernel, (Sizes){1, 19, 12, 13, 12, 2, 3}, 0.3);
    test(kernel, (Sizes){1, 19, 12, 4, 3, 3, 1}, 40); /* scores far apart */
    return done("softmax_loss", kernel);
}
