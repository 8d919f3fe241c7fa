/* Standard normals: number i of a key is the quantile of the uniform number that Threefry-2x32 makes of i. */

#include "self_test.h"

static uint32_t rotated(uint32_t x, int bits) { return x << bits | x >> (32 - bits); }

static void threefry(const uint32_t *key, uint32_t *x, uint32_t *y)
{
    static const int rotations[8] = {13, 15, 26, 6, 17, 29, 16, 24};
    const uint32_t schedule[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA};
    *x += schedule[0], *y += schedule[1];
    for (int round = 0; round < 20; round++) {
        *x += *y;
        *y = rotated(*y, rotations[round % 8]) ^ *x;
        if (round % 4 == 3) {
            *x += schedule[(round / 4 + 1) % 3];
            *y += schedule[(round / 4 + 2) % 3] + (uint32_t)(round / 4 + 1);
        }
    }
}

/* Of the distribution 2 Phi(z) - 1 = x at z, by how much z is off, in units of its last digit: by one step of Newton's
   method, on the smaller tail. */
static double roundings(double x, double z)
{
    const double density = sqrt(2 / M_PI) * exp(-z * z / 2), tail = 1 - fabs(x);
    const double off = tail < 0.5 ? erfc(fabs(z) / M_SQRT2) - tail : erf(fabs(z) / M_SQRT2) - fabs(x);
    return fabs(off) / density / (EPSILON * fabs(z));
}

static void test(Kernel kernel, int runs, int count)
{
    Array *in[] = {array(4, 2, runs, 2)}, *out[] = {array(sizeof(REAL), 2, runs, count)};
    uint32_t *keys = in[0]->buffer.data;
    for (int k = 0; k < 2 * runs; k++)
        keys[k] = (uint32_t)(int64_t)(uniform() * 4294967295.0);
    call(kernel, 1, in, 1, out);
    double worst = 0;
    for (int r = 0; r < runs; r++)
        for (int i = 0; i < count; i++) {
            uint32_t high = 0, low = (uint32_t)i;
            threefry(keys + 2 * r, &high, &low);
            const int digits = sizeof(REAL) == 8 ? 52 : 23;
            const uint64_t bits = sizeof(REAL) == 8 ? ((uint64_t)high << 32 | low) >> 12 : (high ^ low) >> 9;
            const double x = ldexp((double)bits, 1 - digits) - (1 - ldexp(1, -digits - 1));
            const double z = (double)reals(out[0])[r * count + i];
            failures += (x > 0) != (z > 0);
            /* 1 - x^2 is taken from the rounded square, which far out counts more than the last digit of z */
            const double found = roundings(x, z) / (1 + 1 / (1 - x * x));
            worst = found <= worst ? worst : found;
        }
    if (!(worst <= 8)) {
        printf("%d keys, %d of each: off by %.1f roundings\n", runs, count, worst);
        failures++;
    }
    release(1, in), release(1, out);
}

int main(int argc, char **argv)
{
    const Kernel kernel = load(argc, argv, "normals");
    const int counts[] = {1, 3, 4, 7, 8, 16, 31, 32, 33, 64, 129, 1000, 1024, 1025, 3001};
    for (int k = 0; k < COUNT(counts); k++)
        test(kernel, 1 + k % 3, counts[k]);
    test(kernel, 70, 1030); /* several threads */
    return done("normals", kernel);
}
