/* Standard normals of a random key: those of jax.random.normal, to rounding.

   Number i of a key is made of the two words that Threefry-2x32 makes of i (Salmon, Moraes, Dror & Shaw 2011, "Parallel
   random numbers: as easy as 1, 2, 3"): its high and its low word, encrypted in 20 rounds. */

#include "native.h"
#include "normal_quantile.h"

typedef uint32_t words __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t half __attribute__((vector_size(VECTOR_BYTES / 2)));
typedef uint64_t longs __attribute__((vector_size(VECTOR_BYTES)));

/* Counters in a vector of words, vectors of numbers made of them, and numbers that are made at a time. Which number a
   counter makes does not depend on any of them. */
enum { COUNTERS = VECTOR_BYTES / 4, VECTORS = sizeof(REAL) / 4, GROUP = TOGETHER * LANES };
/* Numbers in a piece of work, and pieces that are worth a thread: a tenth of a millisecond. */
enum { BLOCK = 1024, ENOUGH = 32 };

typedef struct {
    int64_t blocks, count; /* of a key */
    const uint32_t *keys;
    REAL *results;
} Job;

INLINE words rotated(words x, int bits) { return x << bits | x >> (32 - bits); }

/* The two words of each counter from `first` on, a multiple of COUNTERS. */
INLINE void threefry(const uint32_t *key, uint64_t first, words *high, words *low)
{
    static const int rotations[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    const uint32_t schedule[3] = {key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA};
    words x = (words){0} + ((uint32_t)(first >> 32) + schedule[0]);
    words y;
    for (int k = 0; k < COUNTERS; k++)
        y[k] = k;
    y += (uint32_t)first + schedule[1];
    UNROLL(5)
    for (int four = 0; four < 5; four++) {
        UNROLL(4)
        for (int k = 0; k < 4; k++) {
            x += y;
            y = rotated(y, rotations[four % 2][k]) ^ x;
        }
        x += schedule[(four + 1) % 3];
        y += schedule[(four + 2) % 3] + (uint32_t)(four + 1);
    }
    *high = x;
    *low = y;
}

/* Uniform in (-1, 1), from the highest bits of the two words, or of their sum without carry: the odd multiples of an
   eighth of the distance of numbers in [2, 4). */
INLINE void uniform(words high, words low, vec *x)
{
    for (int k = 0; k < VECTORS; k++) {
        whole bits = (whole)((high ^ low) >> 9);
        if (IS_DOUBLE) {
            half above, below;
            memcpy(&above, (const char *)&high + k * sizeof(half), sizeof(half));
            memcpy(&below, (const char *)&low + k * sizeof(half), sizeof(half));
            bits = (whole)((__builtin_convertvector(above, longs) << 32 | __builtin_convertvector(below, longs)) >> 12);
        }
        x[k] = with_bits(2, bits) - (REAL)2 - ((REAL)1 - (REAL)1 / ((int64_t)2 << MANTISSA));
    }
}

static void one_block(const uint32_t *key, int64_t first, int64_t count, REAL *results)
{
    for (int64_t at = 0; at < count; at += GROUP) {
        vec x[TOGETHER];
        for (int k = 0; k < TOGETHER; k += VECTORS) {
            words high, low;
            threefry(key, first + at + k * LANES, &high, &low);
            uniform(high, low, x + k);
        }
        normal_quantiles(x);
        memcpy(results + at, x, count - at < GROUP ? (count - at) * sizeof(REAL) : sizeof(x));
    }
}

static void *work(void *given)
{
    const Slice *mine = given;
    const Job *job = mine->job;
    for (int64_t at = mine->first; at < mine->last; at++) {
        const int64_t run = at / job->blocks, first = at % job->blocks * BLOCK, left = job->count - first;
        one_block(job->keys + 2 * run, first, left < BLOCK ? left : BLOCK, job->results + run * job->count + first);
    }
    return NULL;
}

/* Inputs: keys (run, 2), of integers. Out: the normals of each. */
XLA_FFI_Error *normals(XLA_FFI_CallFrame *frame)
{
    if (asked_for_version(frame)) return NULL;
    const XLA_FFI_Buffer *keys = frame->args.args[0], *out = frame->rets.rets[0];
    const int64_t runs = runs_of(keys, 1), all = own_size(out, out->rank);
    if (own_size(keys, 1) != 2 || (runs > 0 && all % runs != 0))
        return refuse(frame, "normals: the arrays do not fit together");
    if (all == 0) return NULL;
    const int64_t count = all / runs, blocks = (count + BLOCK - 1) / BLOCK;
    const Job job = {.blocks = blocks, .count = count, .keys = keys->data, .results = out->data};
    double none;
    return fan_out(work, &job, runs * blocks, ENOUGH, 1, &none) ? NULL : refuse(frame, "normals: out of memory");
}
