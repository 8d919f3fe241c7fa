/* Steps of descent at infinitely many sequences, of runs that fill vectors and that do not. */

#include "self_test.h"
#include "population.h"

static void test(Kernel kernel, int D, int H, int R, int runs, int64_t steps)
{
    Array *in[] = {random_array(array(8, 4, runs, H, 1, D + 1), 0.5), random_array(array(8, 4, runs, H, R, D + 1), 0.5),
                   random_array(array(8, 4, runs, H, R, D), 0.5), array(8, 2, D, D), array(8, 2, D, D),
                   array(8, 2, D, D), array(8, 0), array(8, 1, runs), array(8, 0)};
    Array *out[] = {array(8, 1, runs), array(8, 4, runs, H, 1, D + 1), array(8, 4, runs, H, R, D + 1),
                    array(8, 4, runs, H, R, D)};
    fill_moments(D, in[3], in[4], in[5]);
    *reals(in[6]) = 3;
    for (int r = 0; r < runs; r++)
        reals(in[7])[r] = 0.01 + 0.02 * r / runs;
    *(int64_t *)in[8]->buffer.data = steps;
    call(kernel, 9, in, 4, out);

    const Population of = {D, H, R, reals(in[3]), reals(in[4]), reals(in[5])};
    const int count = weights_of(of), each = R * D, head = 1 + 2 * each;
    double complex *weight = calloc(count, sizeof(double complex)), *moved = calloc(count, sizeof(double complex));
    double *found = calloc(count, sizeof(double)), *expected = calloc(count, sizeof(double));
    for (int r = 0; r < runs; r++) {
        for (int k = 0; k < count; k++) {
            const int h = r * H + k / head, at = k % head - 1, query = at - each, part = query < 0 ? at : query;
            const int64_t in_key = (int64_t)(h * R + part / D) * (D + 1) + part % D;
            const int64_t place = at < 0 ? (int64_t)h * (D + 1) + D : query < 0 ? in_key : (int64_t)h * each + query;
            const int which = at < 0 ? 0 : query < 0 ? 1 : 2;
            weight[k] = reals(in[which])[place];
            found[k] = reals(out[which + 1])[place];
        }
        double first = 0;
        for (int64_t step = 0; step == 0 || step < steps; step++) {
            const double loss = 3 + creal(velocity(of, weight, moved));
            if (step == 0) first = loss;
            for (int k = 0; steps > 0 && k < count; k++)
                weight[k] += 2 * (double)reals(in[7])[r] * moved[k];
        }
        for (int k = 0; k < count; k++)
            expected[k] = creal(weight[k]);
        char what[100];
        snprintf(what, sizeof(what), "D = %d, H = %d, R = %d, run %d of %d", D, H, R, r, runs);
        expect_close(what, 1, doubles(out[0]) + r, &first, 50);
        expect_close(what, count, found, expected, 50);
    }
    for (int k = 0; k < runs * H * R; k++) /* entries for labels stay as they are */
        failures += reals(out[2])[k * (D + 1) + D] != reals(in[1])[k * (D + 1) + D];
    in[7]->dims[0] = runs + 1;
    expect_refusal(kernel, 9, in, 4, out);
    free(weight), free(moved), free(found), free(expected);
    release(9, in), release(4, out);
}

int main(int argc, char **argv)
{
    const Kernel kernel = load(argc, argv, "population_descent");
    for (int D = 1; D <= 9; D++)
        test(kernel, D, 1 + D % 4, 1 + D % 3, 1 + D, 12);
    test(kernel, 16, 3, 2, 1, 5);
    test(kernel, 4, 4, 1, 1, 0);
    test(kernel, 4, 4, 1, 21, 500); /* several threads */
    return done("population_descent", kernel);
}
