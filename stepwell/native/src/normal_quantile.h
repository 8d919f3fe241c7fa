/* Standard normals from uniform numbers x in (-1, 1): z = sqrt(2) erfinv(x), whose distribution function is (1 + x)/2.

   z = x Q(w) with w = -log(1 - x^2), where Q is smooth. It is a polynomial about the middle of [0, CUT], and another
   one beyond, which one number in a thousand needs. Coefficients are those of Chebyshev's interpolation, for single and
   for double precision, good to about half a unit of the last digit.

   1 - x^2 is taken from the rounded square, as JAX does. Far out the rounding changes z by more than the last digit,
   and would change it differently if it were not there. */

#define MINUS_LOG_DEGREE (IS_DOUBLE ? 20 : 9)
static const double minus_log_coefficients[2][21] = {
    {-0.405465096, -0.666666687, 0.222221375, -0.0987649187, 0.0494093411, -0.0263536423, 0.0143401129,
     -0.00818367675, 0.00614791736, -0.00366224209},
    {-0.4054651081081644, -0.6666666666666663, 0.22222222222222202, -0.09876543209885852, 0.04938271604944208,
     -0.026337448551654746, 0.014631915861371577, -0.008361095096671958, 0.0048773054902392235,
     -0.002890248165579537, 0.0017341486421301076, -0.0010510900039154595, 0.000642335123693839,
     -0.00039453805651686177, 0.000244224633352191, -0.00015582161723400083, 9.743350586589393e-05,
     -4.8876714487850656e-05, 3.0689401459419294e-05, -4.117173716733841e-05, 2.6143387477310773e-05}};

#define CUT ((REAL)6.25)
#define CENTRAL_DEGREE (IS_DOUBLE ? 23 : 10)
static const double central_coefficients[2][24] = {
    {2.33862066, 0.339634955, -0.0085329162, -0.00104750611, 0.000264117669, -1.9639212e-05, -1.95157827e-06,
     6.01978115e-07, -3.62786459e-08, -6.51619603e-09, 9.87641635e-10},
    {2.338620710026593, 0.3396349587011389, -0.008532899177268757, -0.001047511569485382, 0.0002640820495474566,
     -1.9632852864329775e-05, -1.931065040514895e-06, 5.988894869140176e-07, -4.111172885960201e-08,
     -5.816180709117321e-09, 1.4866469703719082e-09, -7.65695838611443e-11, -1.8352087508984784e-11,
     3.720065404608353e-12, -1.148115059715793e-13, -5.6586046712459645e-14, 9.328729249848027e-15,
     -5.69675689717853e-17, -1.8408716141787847e-16, 2.2025414916964945e-17, 1.626377065902945e-18,
     -4.949188055590375e-19, -1.5747038487797289e-21, 4.583048198098026e-21}};

/* The largest x leaves 1 - x^2 = 2^-23 or 2^-52: w is less than LAST. */
#define LAST (IS_DOUBLE ? (REAL)36.25 : (REAL)16.25)
#define TAIL_DEGREE (IS_DOUBLE ? 36 : 9)
static const double tail_coefficients[2][37] = {
    {4.50934649, 0.212139413, -0.00457778387, 0.000189981263, -9.15050896e-06, 4.10999348e-07, -1.29842546e-08,
     -8.81528683e-10, 3.62076591e-10, -3.30692591e-11},
    {6.301244497763841, 0.15497139294300247, -0.0018199329696164245, 4.21543306195486e-05, -1.2109922804814005e-06,
     3.875152388699929e-08, -1.3222237642195608e-09, 4.696452429157107e-11, -1.7042816866566163e-12,
     6.177536313405656e-14, -2.1538681059491456e-15, 6.662822622537043e-17, -1.384742430316124e-18,
     -2.6267897679726412e-20, 5.861083037283943e-21, -4.847892894757302e-22, 3.198165656366188e-23,
     -2.0187622864870712e-24, 1.048581927764529e-25, -2.277315292300348e-27, 5.47618693909363e-29,
     -2.8107127294255607e-29, 1.5109915098091541e-30, 1.5663287774733213e-31, -1.0086866429447466e-32,
     -8.78356227730092e-34, 5.59060629281071e-35, 3.695425335661195e-36, -2.4203850815735894e-37,
     -1.0225553706464829e-38, 7.071606074485951e-40, 1.9333261320885484e-41, -1.4224982656449813e-42,
     -1.888453910044904e-44, 1.6308049650323587e-45, 4.8189213084006484e-48, -7.115981855012764e-49}};

/* Vectors taken at a time: each step of a polynomial waits for the last, and those of others fill the wait. */
enum { TOGETHER = 8 };

/* p = sum_k coefficients[k] t^k. Not unrolled, or the compiler would take one p after the other. */
INLINE void polynomial(const double *coefficients, int degree, const vec *t, vec *p)
{
    for (int v = 0; v < TOGETHER; v++)
        p[v] = (vec){0} + (REAL)coefficients[degree];
    UNROLL(1)
    for (int k = degree - 1; k >= 0; k--)
        for (int v = 0; v < TOGETHER; v++)
            p[v] = p[v] * t[v] + (REAL)coefficients[k];
}

/* The same numbers, in a way that the compiler may not merge what follows with what made them. */
INLINE vec rounded(vec x)
{
    __asm__("" : "+m"(x));
    return x;
}

enum { MANTISSA = IS_DOUBLE ? 52 : 23, BIAS = IS_DOUBLE ? 1023 : 127 };

/* Without a sign: most processors have no vectors of 64 bits that shift one in. */
typedef __typeof__(__builtin_choose_expr(IS_DOUBLE, (uint64_t)0, (uint32_t)0)) natural
    __attribute__((vector_size(VECTOR_BYTES)));

/* A power of two plus the bits below the exponent, in units of its last digit. */
INLINE vec with_bits(REAL power, whole bits)
{
    const whole exponent_and_sign = (whole)((vec){0} - (REAL)__builtin_inf());
    return (vec)((bits & ~exponent_and_sign) | (whole)((vec){0} + power));
}

/* -log(d) of normal numbers d > 0, to a unit of the last digit of 1: d is 2^n m, and m in [1, 2). */
INLINE void minus_log(const vec *d, vec *w)
{
    const REAL magic = (REAL)((int64_t)1 << MANTISSA); /* the unit of its last digit is 1 */
    vec t[TOGETHER];
    for (int v = 0; v < TOGETHER; v++)
        t[v] = with_bits(1, (whole)d[v]) - (REAL)1.5;
    polynomial(minus_log_coefficients[IS_DOUBLE], MINUS_LOG_DEGREE, t, w);
    for (int v = 0; v < TOGETHER; v++)
        w[v] -= (with_bits(magic, (whole)((natural)d[v] >> MANTISSA)) - (magic + BIAS)) * (REAL)0.6931471805599453;
}

/* Of each x, in place. */
INLINE void normal_quantiles(vec *x)
{
    vec d[TOGETHER], w[TOGETHER], t[TOGETHER], central[TOGETHER];
    for (int v = 0; v < TOGETHER; v++)
        d[v] = (REAL)1 - rounded(x[v] * x[v]);
    minus_log(d, w);
    for (int v = 0; v < TOGETHER; v++)
        t[v] = w[v] - CUT / 2;
    polynomial(central_coefficients[IS_DOUBLE], CENTRAL_DEGREE, t, central);
    if (!all_within(largest(w, TOGETHER), CUT)) {
        vec tail[TOGETHER];
        for (int v = 0; v < TOGETHER; v++)
            t[v] = w[v] - (CUT + LAST) / 2;
        polynomial(tail_coefficients[IS_DOUBLE], TAIL_DEGREE, t, tail);
        for (int v = 0; v < TOGETHER; v++) {
            const whole far = w[v] > CUT;
            central[v] = (vec)(((whole)tail[v] & far) | ((whole)central[v] & ~far));
        }
    }
    for (int v = 0; v < TOGETHER; v++)
        x[v] *= central[v];
}
