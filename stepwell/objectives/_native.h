/* What the native passes share: vectors of sequences, powers of two, arrays of one or of all runs, threads.

   Compiled for each element type, with -DREAL=double and -DREAL=float. Sequences are laid out in blocks of LANES,
   innermost in memory, so that every operation is one on a vector of sequences. */

#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "xla/ffi/api/c_api.h"

#define LANES ((int)(64 / sizeof(REAL)))
#define INLINE static inline __attribute__((always_inline))
#define IS_DOUBLE (sizeof(REAL) == 8)

typedef REAL vec __attribute__((vector_size(64)));
typedef __typeof__((vec){0} > (vec){0}) mask;
typedef int64_t whole64 __attribute__((vector_size(64)));
typedef int32_t whole32 __attribute__((vector_size(64)));

/* The call with NAME a constant of 1 to 4, so that its loops are unrolled and its sums stay in registers. */
#define FOR_SMALL(NAME, size, call, otherwise)                                                                           \
    switch (size) {                                                                                                      \
    case 1: { enum { NAME = 1 }; call; break; }                                                                          \
    case 2: { enum { NAME = 2 }; call; break; }                                                                          \
    case 3: { enum { NAME = 3 }; call; break; }                                                                          \
    case 4: { enum { NAME = 4 }; call; break; }                                                                          \
    default: { otherwise; }                                                                                              \
    }

/* Of a and b, and a if it is not a number. */
INLINE vec larger(vec a, vec b)
{
    mask which = b > a;
    return (vec)(((mask)b & which) | ((mask)a & ~which));
}

/* Of `count` vectors; in four chains, since each comparison waits for the last. */
INLINE vec largest(const vec *values, int count)
{
    vec most[4] = {values[0], values[0], values[0], values[0]};
    int k = 0;
    for (; k + 4 <= count; k += 4)
        for (int chain = 0; chain < 4; chain++)
            most[chain] = larger(values[k + chain], most[chain]);
    for (; k < count; k++)
        most[0] = larger(values[k], most[0]);
    return larger(larger(most[0], most[1]), larger(most[2], most[3]));
}

#define LOG2_E ((REAL)1.4426950408889634)

/* 2^x for x <= 0, to rounding: 2^n times a polynomial of the remainder, at most 1/2 in size. The coefficients are those of
   Chebyshev's expansion, which is off by 2e-17 in double and 3e-9 in single precision. */
INLINE vec power_of_two(vec x)
{
    enum { DEGREE = IS_DOUBLE ? 11 : 6 };
    static const double coefficients[2][12] = {
        {1.0, 0.6931472067028326, 0.24022650922288757, 0.05550327226670302,
         0.009618056678524637, 0.0013400428177615838, 0.0001546144469856913},
        {1.0, 0.6931471805599453, 0.24022650695910158, 0.055504108664821625,
         0.009618129107587256, 0.001333355814640647, 0.00015403530463724353, 1.5252733841556773e-05,
         1.3215432535912375e-06, 1.0178057087733941e-07, 7.074194297288521e-09, 4.4558179083360645e-10}};
    const double *coefficient = coefficients[IS_DOUBLE];
    const REAL lowest = IS_DOUBLE ? (REAL)-1000 : (REAL)-120;
    const REAL magic = IS_DOUBLE ? (REAL)6755399441055744.0 : (REAL)12582912.0; /* adding it rounds to a whole number */
    x = larger(x, (vec){0} + lowest);
    vec shifted = x + magic, r = x - (shifted - magic), p = (vec){0} + (REAL)coefficient[DEGREE];
#pragma GCC unroll 12
    for (int k = DEGREE - 1; k >= 0; k--)
        p = p * r + (REAL)coefficient[k];
    if (IS_DOUBLE) {
        whole64 bits = (whole64)shifted << 52;
        return (vec)((whole64)p + bits);
    }
    whole32 bits = (whole32)shifted << 23;
    return (vec)((whole32)p + bits);
}

/* Room for vectors, all zero; NULL if there is none. */
static vec *vectors(int64_t count)
{
    vec *memory = NULL;
    if (posix_memalign((void **)&memory, 64, count * sizeof(vec)))
        return NULL;
    return memset(memory, 0, count * sizeof(vec));
}

static vec *take(vec **free, int64_t count)
{
    vec *found = *free;
    *free += count;
    return found;
}

/* Add the lanes of what a thread has gathered to its results, in double precision, and clear it. */
static void settle(vec *gathered, int64_t count, double *results)
{
    for (int64_t k = 0; k < count; k++)
        for (int lane = 0; lane < LANES; lane++)
            results[k] += (double)gathered[k][lane];
    memset(gathered, 0, count * sizeof(vec));
}

/* Axes before an array's own are runs: as many as there are, or one that all of them share. */
static int64_t runs_of(const XLA_FFI_Buffer *buffer, int own)
{
    int64_t product = 1;
    for (int64_t k = 0; k < buffer->rank - own; k++)
        product *= buffer->dims[k];
    return product;
}

static const int64_t *own_dims(const XLA_FFI_Buffer *buffer, int own)
{
    return buffer->dims + buffer->rank - own;
}

typedef struct {
    const REAL *data;
    int64_t step; /* from one run to the next; 0 if they share it */
} Input;

static Input input(const XLA_FFI_Buffer *buffer, int own)
{
    Input found = {buffer->data, runs_of(buffer, own) == 1 ? 0 : 1};
    for (int k = 0; k < own; k++)
        found.step *= own_dims(buffer, own)[k];
    return found;
}

INLINE const REAL *of_run(Input array, int64_t run) { return array.data + run * array.step; }
INLINE const vec *vectors_of_run(Input array, int64_t run) { return (const vec *)of_run(array, run); }

static XLA_FFI_Error *refuse(XLA_FFI_CallFrame *frame, const char *message)
{
    XLA_FFI_Error_Create_Args error = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, message,
                                       XLA_FFI_Error_Code_INVALID_ARGUMENT};
    return frame->api->XLA_FFI_Error_Create(&error);
}

/* Whether XLA asks only for the version of its interface; then it is answered. */
static int asked_for_version(XLA_FFI_CallFrame *frame)
{
    if (frame->extension_start == NULL || frame->extension_start->type != XLA_FFI_Extension_Metadata)
        return 0;
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return 1;
}

/* A share of the blocks of all runs, for one thread, which has `size` results of its own. */
enum { MOST_THREADS = 64 };
typedef struct {
    const void *job;
    int64_t first, last;
    double *results;
} Share;

/* Share out `pieces` among the cores, no fewer than `least` each. Every thread has results of its own, and they are
   added up in order: the same sum whenever there are as many threads. `work` returns NULL if all went well. */
static int fan_out(void *(*work)(void *), const void *job, int64_t pieces, int64_t least, int64_t size, double *results)
{
    cpu_set_t set;
    int64_t threads = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1, running = 0;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads > pieces / least) threads = pieces / least > 0 ? pieces / least : 1;
    double *all = calloc(threads * size, sizeof(double));
    if (all == NULL) return 0;
    Share shares[MOST_THREADS];
    pthread_t started[MOST_THREADS];
    int good = 1;
    for (int64_t k = 0; k < threads; k++)
        shares[k] = (Share){job, pieces * k / threads, pieces * (k + 1) / threads, all + k * size};
    while (running < threads - 1 && pthread_create(&started[running], NULL, work, &shares[running]) == 0)
        running++;
    for (int64_t k = running; k < threads; k++) /* the last one here, and any for which there was no thread */
        good &= work(&shares[k]) == NULL;
    for (int64_t k = 0; k < running; k++) {
        void *told = NULL;
        pthread_join(started[k], &told);
        good &= told == NULL;
    }
    memset(results, 0, size * sizeof(double));
    for (int64_t k = 0; k < threads; k++)
        for (int64_t n = 0; n < size; n++)
            results[n] += all[k * size + n];
    free(all);
    return good;
}
