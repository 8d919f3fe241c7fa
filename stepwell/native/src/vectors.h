/* Vectors of sequences: small loops unrolled, the largest of many, powers of two.

   Compiled for each element type, with -DREAL=double and -DREAL=float. Sequences are laid out in blocks of LANES,
   innermost in memory, so that every operation is one on a vector of sequences. With ALONE defined there is one lane,
   a plain number, and the compiler fills vectors with what loops run over. */

#if defined(__SSE2__)
#include <immintrin.h>
#endif

/* The target: bytes of a vector, and how many vectors the registers hold. Wider vectors than the processor has would be
   taken apart by way of memory, which is several times slower. */
#if defined(__AVX512F__)
enum { VECTOR_BYTES = 64, REGISTERS = 32 };
#elif defined(__AVX__)
enum { VECTOR_BYTES = 32, REGISTERS = 16 };
#elif defined(__aarch64__)
enum { VECTOR_BYTES = 16, REGISTERS = 32 };
#else
enum { VECTOR_BYTES = 16, REGISTERS = 16 };
#endif

#define IS_DOUBLE (sizeof(REAL) == 8)
#define INLINE static inline __attribute__((always_inline))
#define ONCE __attribute__((noinline))

#define PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define UNROLL(times) PRAGMA(clang loop unroll_count(times))
#else
#define UNROLL(times) PRAGMA(GCC unroll times)
#endif

#if defined(ALONE)
typedef REAL vec;
#define LANES 1
#define LANE(vector, lane) (vector)
#define SUM(name) PRAGMA(omp simd reduction(+ : name)) /* in any order: a vector of sums at a time */
#else
typedef REAL vec __attribute__((vector_size(VECTOR_BYTES)));
#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))
#define LANE(vector, lane) (vector)[lane]
#define SUM(name)
#endif
/* Integers as wide, or masks: of a comparison all bits or none, and with ALONE one or zero, to be used by
   `chosen`, & and | alone. */
typedef __typeof__((vec){0} > (vec){0}) whole;

/* The call with NAME a constant of 1 to 4, so that its loops are unrolled and its sums stay in registers. */
#define FOR_SMALL(NAME, size, call, otherwise)                                                                         \
    switch (size) {                                                                                                    \
    case 1: { enum { NAME = 1 }; call; break; }                                                                        \
    case 2: { enum { NAME = 2 }; call; break; }                                                                        \
    case 3: { enum { NAME = 3 }; call; break; }                                                                        \
    case 4: { enum { NAME = 4 }; call; break; }                                                                        \
    default: { otherwise; }                                                                                            \
    }

INLINE vec chosen(whole which, vec yes, vec no)
{
#if defined(ALONE)
    return which ? yes : no;
#else
    return (vec)(((whole)yes & which) | ((whole)no & ~which));
#endif
}

/* b > a ? b : a, and so a if one of them is not a number. x86 has an instruction for just this, which compilers do not
   recognize. */
INLINE vec larger(vec a, vec b)
{
#if defined(ALONE)
    return b > a ? b : a;
#elif defined(__AVX512F__)
    return IS_DOUBLE ? (vec)_mm512_max_pd((__m512d)b, (__m512d)a) : (vec)_mm512_max_ps((__m512)b, (__m512)a);
#elif defined(__AVX__)
    return IS_DOUBLE ? (vec)_mm256_max_pd((__m256d)b, (__m256d)a) : (vec)_mm256_max_ps((__m256)b, (__m256)a);
#elif defined(__SSE2__)
    return IS_DOUBLE ? (vec)_mm_max_pd((__m128d)b, (__m128d)a) : (vec)_mm_max_ps((__m128)b, (__m128)a);
#else
    return chosen(b > a, b, a);
#endif
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

/* Whether every lane is at most `most`; not if one is not a number. */
INLINE int all_within(vec values, REAL most)
{
    whole within = values <= most;
    int all = 1;
    for (int lane = 0; lane < LANES; lane++)
        all &= LANE(within, lane) != 0;
    return all;
}

#if !defined(ALONE)
#define LOG2_E ((REAL)1.4426950408889634)
#define FAR (IS_DOUBLE ? (REAL)400 : (REAL)50) /* 2^-FAR is nothing beside 1; 2^FAR times itself does not overflow */

/* A power of two is 2^(n/PARTS), whose bits are known, times a polynomial of the remainder. PARTS is 1, or more where a
   table of 2^(j/PARTS) is looked up in one instruction. */
#if defined(__AVX512F__)
enum { LOG_PARTS = 4, DEGREE = IS_DOUBLE ? 6 : 3 };
#define COEFFICIENTS (IS_DOUBLE ? sixteenths_double : sixteenths_single)
#define LOOK_UP(table, n)                                                                                              \
    (IS_DOUBLE ? (whole)_mm512_permutex2var_epi64((__m512i)(table)[0], (__m512i)(n), (__m512i)(table)[1])              \
               : (whole)_mm512_permutexvar_epi32((__m512i)(n), (__m512i)(table)[0]))
#elif defined(__AVX2__)
enum { LOG_PARTS = IS_DOUBLE ? 0 : 3, DEGREE = IS_DOUBLE ? 11 : 4 };
#define COEFFICIENTS (IS_DOUBLE ? whole_double : eighths_single)
#define LOOK_UP(table, n)                                                                                              \
    (IS_DOUBLE ? (table)[0] : (whole)_mm256_permutevar8x32_epi32((__m256i)(table)[0], (__m256i)(n)))
#else
enum { LOG_PARTS = 0, DEGREE = IS_DOUBLE ? 11 : 6 };
#define COEFFICIENTS (IS_DOUBLE ? whole_double : whole_single)
#define LOOK_UP(table, n) (table)[0]
#endif
enum { PARTS = 1 << LOG_PARTS, TO_EXPONENT = (IS_DOUBLE ? 52 : 23) - LOG_PARTS };

/* Those of Chebyshev's expansion, the first of them one. It is off by less than 2e-17 in double precision, and by less
   than 6e-9 in single. */
static const double whole_double[] = {
    1.0, 0.6931471805599453, 0.24022650695910158, 0.055504108664821625, 0.009618129107587256, 0.001333355814640647,
    0.00015403530463724353, 1.5252733841556773e-05, 1.3215432535912375e-06, 1.0178057087733941e-07,
    7.074194297288521e-09, 4.4558179083360645e-10};
static const double whole_single[] = {1.0, 0.6931472067028326, 0.24022650922288757, 0.05550327226670302,
                                      0.009618056678524637, 0.0013400428177615838, 0.0001546144469856913};
static const double eighths_single[] = {1.0, 0.6931471780166288, 0.24022650622456868, 0.05550931730416994,
                                        0.009618881259603387};
static const double sixteenths_double[] = {1.0, 0.6931471805599468, 0.24022650695910103, 0.05550410865209356,
                                           0.009618129106053053, 0.0013333818815449907, 0.00015403788510250262};
static const double sixteenths_single[] = {1.0, 0.693147180162568, 0.24023589980102675, 0.055505736315523184};

static const REAL roots[16] = {
    1.0, 1.0442737824274138, 1.0905077326652577, 1.1387886347566916, 1.189207115002721, 1.241857812073484,
    1.2968395546510096, 1.3542555469368927, 1.4142135623730951, 1.4768261459394993, 1.5422108254079407,
    1.6104903319492543, 1.681792830507429, 1.7562521603732995, 1.8340080864093424, 1.9152065613971474};

/* 2^(n/PARTS): n, moved to where exponents are, adds n/PARTS to the exponent and leaves n mod PARTS below it, which the
   table has to take off again. */
INLINE vec root_of_two(whole n)
{
    whole table[2];
    for (int k = 0; k < 2; k++)
        for (int lane = 0; lane < LANES; lane++) {
            const int64_t j = (k * LANES + lane) % PARTS;
            table[k][lane] = ((whole)((vec){0} + roots[16 / PARTS * j]))[0] - (j << TO_EXPONENT);
        }
    return (vec)(LOOK_UP(table, n) + (n << TO_EXPONENT));
}

/* Powers that are made at a time: each step of a polynomial waits for the last, and that of another fills the wait. */
enum { POWERS = 2 };

/* 2^x in place of each of up to POWERS x, to a unit of its last digit, for x of up to FAR in size. */
INLINE void powers_of_two(int count, vec *x)
{
    const REAL magic = (IS_DOUBLE ? (REAL)6755399441055744.0 : (REAL)12582912.0) / PARTS;
    vec shifted[POWERS], p[POWERS];
    for (int v = 0; v < count; v++) {
        shifted[v] = x[v] + magic; /* which rounds to a multiple of 1/PARTS */
        x[v] -= shifted[v] - magic;
        p[v] = (vec){0} + (REAL)COEFFICIENTS[DEGREE];
    }
    UNROLL(12)
    for (int k = DEGREE - 1; k > 0; k--)
        for (int v = 0; v < count; v++)
            p[v] = p[v] * x[v] + (REAL)COEFFICIENTS[k];
    for (int v = 0; v < count; v++) {
        const vec root = root_of_two((whole)shifted[v]);
        x[v] = root + root * (p[v] * x[v]); /* rounded once; coefficient 0 is one */
    }
}

/* The same for any x <= 0; 2^-FAR if it is less. */
INLINE void fractions_of_two(int count, vec *x)
{
    for (int v = 0; v < count; v++)
        x[v] = larger(x[v], (vec){0} - FAR);
    powers_of_two(count, x);
}

INLINE vec power_of_two(vec x)
{
    powers_of_two(1, &x);
    return x;
}

INLINE vec fraction_of_two(vec x)
{
    fractions_of_two(1, &x);
    return x;
}
#endif
