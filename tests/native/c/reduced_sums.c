/* Sums over reduced sequences and their derivatives, for sizes that fill registers and vectors, and that do not. */

#include "self_test.h"

enum { SUMS = 8, NUMBERS = 3 };

typedef struct {
    int sequences, tokens, tasks, heads;
} Sizes;

/* Sums over sequences of l, u, cu, u^2, cu^2, c^2 u^2, lu and lcu, of task i. */
static void sums(Sizes of, int lanes, int i, const double complex *omega, const double complex *mu, const REAL *number,
                 const REAL *norm, const REAL *normal, double complex *out)
{
    const int T = of.tokens, J = of.tasks, H = of.heads;
    memset(out, 0, SUMS * sizeof(*out));
    for (int s = 0; s < of.sequences; s++) {
        const int block = s / lanes, lane = s % lanes;
        const double n = norm[(block * J + i) * lanes + lane];
        double complex p[8][64], answer = 0, squares = 0, u = 0;
        for (int h = 0; h < H; h++) {
            double most = -INFINITY;
            double complex total = 0, f = 0, g = 0;
            for (int t = 0; t < T; t++) {
                p[h][t] = 0;
                for (int j = 0; j < J; j++)
                    p[h][t] += omega[h * J + j] * (double)norm[(block * J + j) * lanes + lane] *
                               (double)normal[((block * T + t) * J + j) * lanes + lane];
                most = fmax(most, creal(p[h][t]));
            }
            for (int t = 0; t < T; t++)
                total += p[h][t] = cexp(p[h][t] - most);
            for (int t = 0; t < T; t++) {
                p[h][t] /= total;
                f += p[h][t] * (double)normal[((block * T + t) * J + i) * lanes + lane];
                g += p[h][t] * p[h][t];
            }
            answer += mu[h * J + i] * f;
            u += mu[h * J + i] * (f - omega[h * J + i] * n * (1 - g));
        }
        for (int h = 0; h < H; h++)
            for (int k = 0; k < H; k++)
                for (int t = 0; t < T; t++)
                    squares += mu[h * J + i] * mu[k * J + i] * p[h][t] * p[k][t];
        const double complex l = (double)number[NUMBERS * i] * answer * (answer - 2 * n) +
                                 (double)number[NUMBERS * i + 1] * squares;
        const double complex cu = (n - (double)number[NUMBERS * i + 2]) * u;
        const double complex terms[SUMS] = {l, u, cu, u * u, cu * u, cu * cu, l * u, l * cu};
        for (int k = 0; k < SUMS; k++)
            out[k] += terms[k];
    }
}

static void test(Kernel kernel, Sizes of, double scale)
{
    const int L = kernel.lanes, B = (of.sequences + L - 1) / L, T = of.tokens, J = of.tasks, H = of.heads;
    const int rows = 1 + H * (J + 1);
    Array *norm = random_array(array(sizeof(REAL), 3, B, J, L), 2), *share = array(sizeof(REAL), 2, B, L);
    Array *most = array(sizeof(REAL), 3, B, J, L), *normal = random_array(array(sizeof(REAL), 4, B, T, J, L), 2);
    for (int s = 0; s < B * L; s++)
        for (int j = 0; j < J; j++) {
            const int there = s < of.sequences, at = (s / L * J + j) * L + s % L; /* else all is zero */
            reals(share)[s] = there;
            reals(norm)[at] = there ? (REAL)fabs((double)reals(norm)[at]) : 0;
            for (int t = 0; t < T; t++) {
                REAL *z = reals(normal) + ((s / L * T + t) * J + j) * L + s % L;
                if (!there) *z = 0;
                reals(most)[at] = (REAL)fmax((double)reals(most)[at], fabs((double)*z));
            }
        }
    Array *in[] = {random_array(array(sizeof(REAL), 2, H, J), scale), random_array(array(sizeof(REAL), 2, H, J), 1),
                   random_array(array(sizeof(REAL), 2, J, NUMBERS), 1), norm, share, most, normal};
    Array *out[] = {array(8, 3, J, rows, SUMS)};
    call(kernel, 7, in, 1, out);

    const int weights = H * J;
    double complex *weight = calloc(2 * weights, sizeof(double complex)), along[SUMS];
    double *expected = calloc(rows * SUMS, sizeof(double));
    for (int k = 0; k < 2 * weights; k++)
        weight[k] = reals(in[k / weights])[k % weights];
    for (int i = 0; i < J; i++) {
        for (int row = 0; row < rows; row++) {
            const int h = (row - 1) / (J + 1), by = (row - 1) % (J + 1);
            double complex *moved = row == 0 ? NULL : weight + (by < J ? h * J + by : weights + h * J + i);
            if (moved) *moved += I * ALONG;
            sums(of, L, i, weight, weight + weights, reals(in[2]), reals(norm), reals(normal), along);
            if (moved) *moved = creal(*moved);
            for (int k = 0; k < SUMS; k++)
                expected[row * SUMS + k] = moved ? cimag(along[k]) / ALONG : creal(along[k]);
        }
        char what[100];
        snprintf(what, sizeof(what), "task %d of %d, %d heads, %d tokens, %d sequences", i, J, H, T, of.sequences);
        expect_close(what, SUMS, doubles(out[0]) + i * rows * SUMS, expected, 200);
        expect_close(what, (rows - 1) * SUMS, doubles(out[0]) + (i * rows + 1) * SUMS, expected + SUMS, 200);
    }
    in[0]->dims[0] = H + 1;
    expect_refusal(kernel, 7, in, 1, out);
    free(weight), free(expected);
    release(7, in), release(1, out);
}

int main(int argc, char **argv)
{
    const Kernel kernel = load(argc, argv, "reduced_sums");
    for (int heads = 1; heads <= 5; heads++)
        for (int tasks = 1; tasks <= 5; tasks++)
            test(kernel, (Sizes){3 + 2 * heads, 4 + tasks, tasks, heads}, 0.5);
    test(kernel, (Sizes){67, 7, 2, 3}, 0.5); /* several threads */
    test(kernel, (Sizes){13, 9, 2, 2}, sizeof(REAL) == 8 ? 120 : 12); /* some scores beyond what may overflow */
    return done("reduced_sums", kernel);
}
