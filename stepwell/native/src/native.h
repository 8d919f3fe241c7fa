/* What the kernels have in common beside vectors.h: arrays of one or of all runs, threads, and replies to XLA. */

#if defined(__linux__)
#define _GNU_SOURCE
#include <sched.h>
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "xla/ffi/api/c_api.h"
#include "vectors.h"

/* For those who lay out data in lanes. */
const int vector_bytes = VECTOR_BYTES;

/* Memory for vectors, all zero; NULL if there is none. */
static inline vec *vectors(int64_t count)
{
    vec *memory = NULL;
    if (posix_memalign((void **)&memory, 64, count * sizeof(vec)))
        return NULL;
    return memset(memory, 0, count * sizeof(vec));
}

static inline vec *take(vec **free, int64_t count)
{
    vec *taken = *free;
    *free += count;
    return taken;
}

/* Add the lanes of what a thread has gathered to its results, in double precision, and clear it. */
static inline void settle(vec *gathered, int64_t count, double *results)
{
    for (int64_t k = 0; k < count; k++)
        for (int lane = 0; lane < LANES; lane++)
            results[k] += (double)LANE(gathered[k], lane);
    memset(gathered, 0, count * sizeof(vec));
}

/* Axes before an array's own are runs: as many as there are, or one that all of them share. */
static inline int64_t runs_of(const XLA_FFI_Buffer *buffer, int own)
{
    int64_t product = 1;
    for (int64_t k = 0; k < buffer->rank - own; k++)
        product *= buffer->dims[k];
    return product;
}

static inline const int64_t *own_dims(const XLA_FFI_Buffer *buffer, int own)
{
    return buffer->dims + buffer->rank - own;
}

static inline int64_t own_size(const XLA_FFI_Buffer *buffer, int own)
{
    int64_t product = 1;
    for (int k = 0; k < own; k++)
        product *= own_dims(buffer, own)[k];
    return product;
}

typedef struct {
    const REAL *data;
    int64_t step; /* from one run to the next; 0 if they share it */
} Input;

static inline Input input(const XLA_FFI_Buffer *buffer, int own)
{
    return (Input){buffer->data, runs_of(buffer, own) == 1 ? 0 : own_size(buffer, own)};
}

INLINE const REAL *of_run(Input array, int64_t run) { return array.data + run * array.step; }
INLINE const vec *vectors_of_run(Input array, int64_t run) { return (const vec *)of_run(array, run); }

static inline XLA_FFI_Error *refuse(XLA_FFI_CallFrame *frame, const char *message)
{
    XLA_FFI_Error_Create_Args error = {XLA_FFI_Error_Create_Args_STRUCT_SIZE, NULL, message,
                                       XLA_FFI_Error_Code_INVALID_ARGUMENT};
    return frame->api->XLA_FFI_Error_Create(&error);
}

/* Whether XLA asks only for the version of its interface; then it is answered. */
static inline int asked_for_version(XLA_FFI_CallFrame *frame)
{
    if (frame->extension_start == NULL || frame->extension_start->type != XLA_FFI_Extension_Metadata)
        return 0;
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
    metadata->api_version.major_version = XLA_FFI_API_MAJOR;
    metadata->api_version.minor_version = XLA_FFI_API_MINOR;
    return 1;
}

/* Cores that this process may use. */
static inline int64_t cores(void)
{
#if defined(__linux__)
    cpu_set_t set;
    return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
#else
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? online : 1;
#endif
}

/* Pieces of work for one thread, which has results of its own. */
enum { MOST_THREADS = 64 };
typedef struct {
    const void *job;
    int64_t first, last;
    double *results;
} Slice;

/* Divide `pieces` among the cores, no fewer than `least` each. Every thread has `size` results of its own, and they are
   added up in order: the same sum whenever there are as many threads. `work` returns NULL if all went well. */
static inline int fan_out(void *(*work)(void *), const void *job, int64_t pieces, int64_t least, int64_t size,
                          double *results)
{
    int64_t threads = cores(), running = 0;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads > pieces / least) threads = pieces / least > 0 ? pieces / least : 1;
    double *all = calloc(threads * size, sizeof(double));
    if (all == NULL) return 0;
    Slice slices[MOST_THREADS];
    pthread_t started[MOST_THREADS];
    int good = 1;
    for (int64_t k = 0; k < threads; k++)
        slices[k] = (Slice){job, pieces * k / threads, pieces * (k + 1) / threads, all + k * size};
    while (running < threads - 1 && pthread_create(&started[running], NULL, work, &slices[running]) == 0)
        running++;
    for (int64_t k = running; k < threads; k++) /* the last one here, and any for which there was no thread */
        good &= work(&slices[k]) == NULL;
    for (int64_t k = 0; k < running; k++) {
        void *status = NULL;
        pthread_join(started[k], &status);
        good &= status == NULL;
    }
    memset(results, 0, size * sizeof(double));
    for (int64_t k = 0; k < threads; k++)
        for (int64_t n = 0; n < size; n++)
            results[n] += all[k * size + n];
    free(all);
    return good;
}
