/* Vectors of sequences: small loops unrolled, the largest of many, powers of two.

   Compiled for each element type, with -DREAL=double and -DREAL=float. Sequences are laid out in blocks of LANES,
   innermost in memory, so that every operation is one on a vector of sequences. */

#define LANES ((int)(VECTOR_BYTES / sizeof(REAL)))
enum { VECTOR_BYTES = 64 };
#define INLINE static inline __attribute__((always_inline))
#define ONCE __attribute__((noinline))
#define IS_DOUBLE (sizeof(REAL) == 8)

typedef REAL vec __attribute__((vector_size(VECTOR_BYTES)));
typedef __typeof__((vec){0} > (vec){0}) whole; /* whole numbers as wide, or masks: of a comparison, all bits or none */

/* The call with NAME a constant of 1 to 4, so that its loops are unrolled and its sums stay in registers. */
#define FOR_SMALL(NAME, size, call, otherwise)                                                                         \
    switch (size) {                                                                                                    \
    case 1: { enum { NAME = 1 }; call; break; }                                                                        \
    case 2: { enum { NAME = 2 }; call; break; }                                                                        \
    case 3: { enum { NAME = 3 }; call; break; }                                                                        \
    case 4: { enum { NAME = 4 }; call; break; }                                                                        \
    default: { otherwise; }                                                                                            \
    }

/* Of a and b, and a if it is not a number. */
INLINE vec larger(vec a, vec b)
{
    whole which = b > a;
    return (vec)(((whole)b & which) | ((whole)a & ~which));
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
        all &= within[lane] != 0;
    return all;
}

#define LOG2_E ((REAL)1.4426950408889634)
#define FAR (IS_DOUBLE ? (REAL)400 : (REAL)50) /* 2^-FAR is nothing beside 1; 2^FAR times itself does not overflow */

/* A power of two is 2^(n/PARTS), whose bits are known, times a polynomial of the remainder. The coefficients are those
   of Chebyshev's expansion, which is off by less than 2e-17 in double and 3e-9 in single precision. */
#if defined(__AVX512F__) && !defined(__clang__) /* tables fit into registers, and C has a name for looking them up */
#define LOOK_UP(table, index) __builtin_shuffle(table[0], table[1], index)
enum { LOG_PARTS = 4, DEGREE = IS_DOUBLE ? 6 : 3 };
static const double coefficients[2][7] = {
    {1.0, 0.693147180162568, 0.24023589980102675, 0.055505736315523184},
    {1.0, 0.6931471805599468, 0.24022650695910103, 0.05550410865209356,
     0.009618129106053053, 0.0013333818815449907, 0.00015403788510250262}};
static const REAL roots[16] __attribute__((aligned(64))) = {
    1.0, 1.0442737824274138, 1.0905077326652577, 1.1387886347566916, 1.189207115002721, 1.241857812073484,
    1.2968395546510096, 1.3542555469368927, 1.4142135623730951, 1.4768261459394993, 1.5422108254079407,
    1.6104903319492543, 1.681792830507429, 1.7562521603732995, 1.8340080864093424, 1.9152065613971474};
#else
#define LOOK_UP(table, index) table[0]
enum { LOG_PARTS = 0, DEGREE = IS_DOUBLE ? 11 : 6 };
static const double coefficients[2][12] = {
    {1.0, 0.6931472067028326, 0.24022650922288757, 0.05550327226670302,
     0.009618056678524637, 0.0013400428177615838, 0.0001546144469856913},
    {1.0, 0.6931471805599453, 0.24022650695910158, 0.055504108664821625,
     0.009618129107587256, 0.001333355814640647, 0.00015403530463724353, 1.5252733841556773e-05,
     1.3215432535912375e-06, 1.0178057087733941e-07, 7.074194297288521e-09, 4.4558179083360645e-10}};
static const REAL roots[1] = {1.0};
#endif
enum { PARTS = 1 << LOG_PARTS, TO_EXPONENT = (IS_DOUBLE ? 52 : 23) - LOG_PARTS };

/* 2^(n/PARTS): n, moved to where exponents are, adds n/PARTS to the exponent and leaves n mod PARTS below it, which the
   table has to take off again. */
INLINE vec root_of_two(whole n)
{
    whole table[2];
    for (int k = 0; k < 2; k++)
        for (int lane = 0; lane < LANES; lane++) {
            const int64_t j = (k * LANES + lane) % PARTS;
            table[k][lane] = ((whole)((vec){0} + roots[j]))[0] - (j << TO_EXPONENT);
        }
    return (vec)(LOOK_UP(table, n) + (n << TO_EXPONENT));
}

/* 2^x to a unit of its last digit, for x of up to FAR in size. */
INLINE vec power_of_two(vec x)
{
    const REAL magic = (IS_DOUBLE ? (REAL)6755399441055744.0 : (REAL)12582912.0) / PARTS;
    const vec shifted = x + magic, r = x - (shifted - magic); /* adding magic rounds to a multiple of 1/PARTS */
    vec p = (vec){0} + (REAL)coefficients[IS_DOUBLE][DEGREE];
#pragma GCC unroll 12
    for (int k = DEGREE - 1; k > 0; k--)
        p = p * r + (REAL)coefficients[IS_DOUBLE][k];
    const vec root = root_of_two((whole)shifted);
    return root + root * (p * r); /* rounded once; coefficient 0 is one */
}

/* The same for any x <= 0; 2^-FAR if it is less. */
INLINE vec fraction_of_two(vec x) { return power_of_two(larger(x, (vec){0} - FAR)); }
