/* Steps of a Rosenbrock method along the flow at infinitely many sequences, against such steps with the whole Jacobian. */

#include "self_test.h"
#include "population.h"

#ifndef NAME
#define NAME "population_step"
#endif

enum { STAGES = 4, DENSE = 3, RESULTS = 2 + DENSE };

/* The solution in place of the right side, by elimination with the largest pivots. */
static void solve(int size, const double *given, double *side)
{
    double *matrix = malloc(size * size * sizeof(double));
    memcpy(matrix, given, size * size * sizeof(double));
    for (int k = 0; k < size; k++) {
        int best = k;
        for (int r = k; r < size; r++)
            if (fabs(matrix[r * size + k]) > fabs(matrix[best * size + k])) best = r;
        for (int c = 0; c <= size; c++) {
            double *one = c < size ? &matrix[k * size + c] : &side[k];
            double *other = c < size ? &matrix[best * size + c] : &side[best], held = *one;
            *one = *other, *other = held;
        }
        for (int r = k + 1; r < size; r++) {
            const double part = matrix[r * size + k] / matrix[k * size + k];
            for (int c = k; c < size; c++)
                matrix[r * size + c] -= part * matrix[k * size + c];
            side[r] -= part * side[k];
        }
    }
    for (int k = size - 1; k >= 0; k--) {
        for (int c = k + 1; c < size; c++)
            side[k] -= matrix[k * size + c] * side[c];
        side[k] /= matrix[k * size + k];
    }
    free(matrix);
}

/* 1/(gamma h) less the Jacobian of the velocity. */
static void shifted_jacobian(Population of, const double complex *weight, double shift, double *out)
{
    const int count = weights_of(of);
    double complex *at = malloc(count * sizeof(*at)), *moved = malloc(count * sizeof(*moved));
    memcpy(at, weight, count * sizeof(*at));
    for (int c = 0; c < count; c++) {
        at[c] += I * ALONG;
        velocity(of, at, moved);
        at[c] = weight[c];
        for (int r = 0; r < count; r++)
            out[r * count + c] = (r == c ? shift : 0) - cimag(moved[r]) / ALONG;
    }
    free(at), free(moved);
}

static void plain_step(Population of, double complex *weight, double length, double gamma, const REAL *a, const REAL *c,
                       const REAL *d, double *out)
{
    const int count = weights_of(of);
    double *matrix = malloc(count * count * sizeof(double)), *stages = calloc(STAGES * count, sizeof(double));
    double complex *place = malloc(count * sizeof(*place)), *moved = malloc(count * sizeof(*moved));
    shifted_jacobian(of, weight, 1 / (gamma * length), matrix);
    for (int s = 0; s < STAGES; s++) {
        for (int k = 0; k < count; k++) {
            place[k] = weight[k];
            for (int j = 0; j < s; j++)
                place[k] += (double)a[s * STAGES + j] * stages[j * count + k];
        }
        velocity(of, place, moved);
        for (int k = 0; k < count; k++) {
            stages[s * count + k] = creal(moved[k]);
            for (int j = 0; j < s; j++)
                stages[s * count + k] += (double)c[s * STAGES + j] / length * stages[j * count + k];
        }
        solve(count, matrix, stages + s * count);
    }
    const double *last = stages + (STAGES - 1) * count;
    memset(out, 0, RESULTS * count * sizeof(double));
    for (int k = 0; k < count; k++) {
        out[k] = creal(place[k]) + last[k];
        out[count + k] = last[k];
        for (int n = 0; n < DENSE; n++)
            for (int j = 0; j < STAGES; j++)
                out[(2 + n) * count + k] += (double)d[n * STAGES + j] * stages[j * count + k];
    }
    free(matrix), free(stages), free(place), free(moved);
}

static void test(Kernel kernel, int D, int H, int R, int runs)
{
    const int head = 1 + 2 * R * D;
    Array *in[] = {random_array(array(8, 3, runs, H, head), 0.6), array(8, 2, D, D), array(8, 2, D, D),
                   array(8, 2, D, D), array(8, 0), array(8, 1, runs), array(8, 0),
                   random_array(array(8, 2, STAGES, STAGES), 1), random_array(array(8, 2, STAGES, STAGES), 1),
                   random_array(array(8, 2, DENSE, STAGES), 1)};
    Array *out[] = {array(8, 1, runs), array(8, 4, runs, RESULTS, H, head)};
    fill_moments(D, in[1], in[2], in[3]);
    *reals(in[4]) = 3, *reals(in[6]) = 0.2;
    for (int r = 0; r < runs; r++)
        reals(in[5])[r] = 0.001 + 0.4 * (r + 1) / runs;
    call(kernel, 10, in, 2, out);

    const Population of = {D, H, R, reals(in[1]), reals(in[2]), reals(in[3])};
    const int count = weights_of(of);
    double complex *weight = calloc(count, sizeof(double complex)), *moved = calloc(count, sizeof(double complex));
    double *expected = calloc(RESULTS * count, sizeof(double));
    for (int r = 0; r < runs; r++) {
        for (int k = 0; k < count; k++)
            weight[k] = reals(in[0])[r * count + k];
        const double loss = 3 + creal(velocity(of, weight, moved));
        plain_step(of, weight, reals(in[5])[r], *reals(in[6]), reals(in[7]), reals(in[8]), reals(in[9]), expected);
        char what[100];
        snprintf(what, sizeof(what), "D = %d, H = %d, R = %d, run %d of %d", D, H, R, r, runs);
        expect_close(what, 1, doubles(out[0]) + r, &loss, 50);
        expect_close(what, RESULTS * count, doubles(out[1]) + r * RESULTS * count, expected, 1000 * D);
    }
    in[5]->dims[0] = runs + 1;
    expect_refusal(kernel, 10, in, 2, out);
    free(weight), free(moved), free(expected);
    release(10, in), release(2, out);
}

int main(int argc, char **argv)
{
    const Kernel kernel = load(argc, argv, NAME);
    for (int D = 1; D <= 5; D++)
        test(kernel, D, 1 + D % 3, 1 + D % 2, 1 + 2 * D);
    test(kernel, 7, 2, 2, 1);
    test(kernel, 8, 2, 1, 1);
    test(kernel, 2, 2, 1, 300); /* several threads */
    return done(NAME, kernel);
}
