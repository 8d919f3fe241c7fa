/* The singular values of small matrices in lanes, S = sum_j s_j u_j w_j^T, by Jacobi's rotations from one side.

   Columns of S are turned in pairs until all are at right angles: then they are s_j u_j, and the same turns make w_j of
   the axes. This is accurate to the last digits of every singular value, however small (Demmel and Veselic, 1992). */

INLINE vec root(vec x)
{
    for (int lane = 0; lane < LANES; lane++)
        x[lane] = __builtin_sqrt(x[lane]);
    return x;
}

INLINE vec size_of(vec x) { return larger(x, -x); }
INLINE vec chosen(whole which, vec yes, vec no) { return (vec)(((whole)yes & which) | ((whole)no & ~which)); }

INLINE vec dot(int size, const vec *one, const vec *other)
{
    vec sum = {0};
    for (int k = 0; k < size; k++)
        sum += one[k] * other[k];
    return sum;
}

INLINE void turn(int size, vec cosine, vec sine, vec *one, vec *other)
{
    for (int k = 0; k < size; k++) {
        const vec before = one[k];
        one[k] = cosine * before - sine * other[k];
        other[k] = sine * before + cosine * other[k];
    }
}

/* Beside one, squares of cosines that are nothing; and sweeps at the most, four times what they ever are. */
#define NOTHING ((REAL)1e-30)
enum { SWEEPS = 40 };

/* `left` and `right` get the vectors u_j and w_j as rows. */
static void singular(int D, const vec *matrix, vec *strengths, vec *left, vec *right)
{
    vec most = {0};
    for (int k = 0; k < D * D; k++)
        most = larger(size_of(matrix[k]), most);
    const vec least = (REAL)1e-25 * most + (REAL)1e-70; /* on the diagonal: with it no column is zero, but as good as */
    for (int i = 0; i < D; i++)
        for (int j = 0; j < D; j++) {
            left[j * D + i] = i == j ? matrix[i * D + j] + least : matrix[i * D + j];
            right[j * D + i] = (vec){0} + (REAL)(i == j);
        }
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        vec worst = {0};
        for (int i = 0; i < D; i++)
            for (int j = i + 1; j < D; j++) {
                const vec mixed = dot(D, left + i * D, left + j * D);
                const vec first = dot(D, left + i * D, left + i * D), second = dot(D, left + j * D, left + j * D);
                const vec cosine = mixed / first * (mixed / second), zeta = (second - first) / ((REAL)2 * mixed);
                const vec tangent = (REAL)1 / (size_of(zeta) + root((REAL)1 + zeta * zeta));
                const vec t = chosen(cosine > NOTHING, chosen(zeta < (REAL)0, -tangent, tangent), (vec){0});
                const vec c = (REAL)1 / root((REAL)1 + t * t);
                worst = larger(cosine, worst);
                turn(D, c, c * t, left + i * D, left + j * D);
                turn(D, c, c * t, right + i * D, right + j * D);
            }
        if (all_within(worst, NOTHING)) break;
    }
    for (int j = 0; j < D; j++) {
        strengths[j] = root(dot(D, left + j * D, left + j * D));
        for (int i = 0; i < D; i++)
            left[j * D + i] /= strengths[j];
        strengths[j] = chosen(strengths[j] > (REAL)1e3 * least, strengths[j], (vec){0});
    }
}
