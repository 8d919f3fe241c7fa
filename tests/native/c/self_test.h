/* Tests of a kernel without Python and XLA: its library is loaded, its function is called as XLA would call it, and what
   it returns is compared with plain loops in double precision.

   Compiled with -DREAL=double or -DREAL=float, as the library was, and called with the path of the library. Derivatives
   are those of the plain loops along the imaginary axis, Im f(x + ih)/h, which has no rounding of its own. */

#include <complex.h>
#include <dlfcn.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "xla/ffi/api/c_api.h"

#define EPSILON (sizeof(REAL) == 8 ? DBL_EPSILON : (double)FLT_EPSILON)
#define COUNT(list) ((int)(sizeof(list) / sizeof(*(list))))
static const double ALONG = 1e-40; /* h */

static int failures;

/* An array as XLA passes it; all zero. */
typedef struct {
    XLA_FFI_Buffer buffer;
    int64_t dims[5], size;
} Array;

static inline Array *array(size_t element, int rank, ...)
{
    Array *made = calloc(1, sizeof(Array));
    va_list dims;
    va_start(dims, rank);
    made->size = 1;
    for (int k = 0; k < rank; k++)
        made->size *= made->dims[k] = va_arg(dims, int);
    va_end(dims);
    made->buffer.rank = rank;
    made->buffer.dims = made->dims;
    if (posix_memalign(&made->buffer.data, 64, made->size * element + 64)) exit(2);
    memset(made->buffer.data, 0, made->size * element);
    return made;
}

static inline REAL *reals(const Array *of) { return of->buffer.data; }
static inline double *doubles(const Array *of) { return of->buffer.data; }

static inline void release(int count, Array **arrays)
{
    for (int k = 0; k < count; k++) {
        free(arrays[k]->buffer.data);
        free(arrays[k]);
    }
}

/* Uniform in (-1, 1), by xorshift; the same numbers in every test. */
static inline double uniform(void)
{
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return (double)(state >> 11) / 4503599627370496.0 - 1;
}

/* Random numbers of up to `scale`, rounded as the kernel will see them. */
static inline Array *random_array(Array *into, double scale)
{
    for (int64_t k = 0; k < into->size; k++)
        reals(into)[k] = (REAL)(scale * uniform());
    return into;
}

typedef struct {
    XLA_FFI_Handler *call;
    int lanes;
} Kernel;

static inline Kernel load(int argc, char **argv, const char *name)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    void *function = library ? dlsym(library, name) : NULL;
    const int *bytes = library ? dlsym(library, "vector_bytes") : NULL;
    if (function == NULL || bytes == NULL) {
        fprintf(stderr, "usage: %s LIBRARY, which has %s and vector_bytes\n", argv[0], name);
        exit(2);
    }
    Kernel loaded = {.lanes = *bytes / (int)sizeof(REAL)};
    memcpy(&loaded.call, &function, sizeof(function));
    return loaded;
}

static char refusal[200];

static inline XLA_FFI_Error *take_error(XLA_FFI_Error_Create_Args *error)
{
    strncpy(refusal, error->message, sizeof(refusal) - 1);
    return (XLA_FFI_Error *)refusal;
}

/* Whether the kernel accepted the arrays. */
static inline int called(Kernel kernel, int inputs, Array **in, int outputs, Array **out)
{
    XLA_FFI_Api api;
    memset(&api, 0, sizeof(api));
    api.XLA_FFI_Error_Create = take_error;
    XLA_FFI_CallFrame frame;
    memset(&frame, 0, sizeof(frame));
    frame.api = &api;
    frame.args.size = inputs, frame.args.args = (void **)in;
    frame.rets.size = outputs, frame.rets.rets = (void **)out;
    return kernel.call(&frame) == NULL;
}

static inline void call(Kernel kernel, int inputs, Array **in, int outputs, Array **out)
{
    if (called(kernel, inputs, in, outputs, out)) return;
    printf("refused: %s\n", refusal);
    failures++;
}

static inline void expect_refusal(Kernel kernel, int inputs, Array **in, int outputs, Array **out)
{
    if (!called(kernel, inputs, in, outputs, out) && strstr(refusal, "do not fit together")) return;
    printf("arrays that do not fit together were accepted\n");
    failures++;
}

/* Every number right to `roundings` of the largest one expected. */
static inline void expect_close(const char *what, int64_t count, const double *found, const double *expected,
                                double roundings)
{
    double most = DBL_MIN, worst = 0;
    for (int64_t k = 0; k < count; k++) {
        const double off = fabs(found[k] - expected[k]);
        most = fmax(most, fabs(expected[k]));
        worst = off <= worst ? worst : off; /* not a number is the worst of all, and stays */
    }
    if (worst <= roundings * EPSILON * most) return;
    printf("%s: off by %g, %.1f roundings, of %g\n", what, worst, worst / (EPSILON * most), most);
    failures++;
}

static inline int done(const char *name, Kernel kernel)
{
    printf("%s, %s, %d lanes: %s\n", name, sizeof(REAL) == 8 ? "double" : "float", kernel.lanes,
           failures ? "FAILED" : "passed");
    return failures != 0;
}
