/* The singular values of small matrices in lanes, S = sum_j s_j u_j w_j^T, by Jacobi's rotations from one side.

   Columns of S are rotated in pairs until all are at right angles: then they are s_j u_j, and the same rotations make
   w_j of the axes. This is accurate to the last digits of every singular value, however small (Demmel and Veselic,
   1992). */

INLINE vec root(vec x)
{
    for (int lane = 0; lane < LANES; lane++)
        LANE(x, lane) = __builtin_sqrt(LANE(x, lane));
    return x;
}

INLINE vec size_of(vec x) { return larger(x, -x); }

INLINE vec dot(int size, const vec *one, const vec *other)
{
    vec sum = {0};
    SUM(sum)
    for (int k = 0; k < size; k++)
        sum += one[k] * other[k];
    return sum;
}

INLINE void rotate(int size, vec cosine, vec sine, vec *one, vec *other)
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

/* Of a column that is no longer there: where S lacks a rank, columns may cancel to the last digit. */
#define VANISHED ((REAL)1e-280)

/* In one lane, vectors of zero become unit vectors at right angles to all others: each is the axis furthest from them,
   less what it shares with them; twice, since once leaves rounding. */
static void complete(int D, int lane, vec *vectors)
{
    for (int j = 0; j < D; j++) {
        REAL there = 0, most = -1;
        int axis = 0;
        for (int m = 0; m < D; m++) {
            REAL rest = 1;
            for (int i = 0; i < D; i++)
                rest -= LANE(vectors[i * D + m], lane) * LANE(vectors[i * D + m], lane);
            if (rest > most) most = rest, axis = m;
            there += LANE(vectors[j * D + m], lane) * LANE(vectors[j * D + m], lane);
        }
        if (there != 0) continue;
        vec *own = vectors + j * D;
        LANE(own[axis], lane) = 1;
        for (int time = 0; time < 2; time++) {
            for (int i = 0; i < D; i++) {
                REAL shared = 0;
                for (int m = 0; m < D; m++)
                    shared += LANE(vectors[i * D + m], lane) * LANE(own[m], lane);
                for (int m = 0; i != j && m < D; m++)
                    LANE(own[m], lane) -= shared * LANE(vectors[i * D + m], lane);
            }
            REAL square = 0;
            for (int m = 0; m < D; m++)
                square += LANE(own[m], lane) * LANE(own[m], lane);
            for (int m = 0; m < D; m++)
                LANE(own[m], lane) /= __builtin_sqrt(square);
        }
    }
}

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
                const whole both = (first > VANISHED) & (second > VANISHED);
                const vec cosine = chosen(both, mixed / first * (mixed / second), (vec){0});
                const vec zeta = (second - first) / ((REAL)2 * mixed);
                const vec tangent = (REAL)1 / (size_of(zeta) + root((REAL)1 + zeta * zeta));
                const vec t = chosen(cosine > NOTHING, chosen(zeta < (REAL)0, -tangent, tangent), (vec){0});
                const vec c = (REAL)1 / root((REAL)1 + t * t);
                worst = larger(cosine, worst);
                rotate(D, c, c * t, left + i * D, left + j * D);
                rotate(D, c, c * t, right + i * D, right + j * D);
            }
        if (all_within(worst, NOTHING)) break;
    }
    whole lost = (whole)(vec){0};
    for (int j = 0; j < D; j++) {
        const vec square = dot(D, left + j * D, left + j * D), size = root(square);
        const whole gone = square <= VANISHED;
        for (int i = 0; i < D; i++)
            left[j * D + i] = chosen(gone, (vec){0}, left[j * D + i] / size);
        strengths[j] = chosen(size <= (REAL)1e3 * least, (vec){0}, size);
        lost |= gone;
    }
    for (int lane = 0; lane < LANES; lane++)
        if (LANE(lost, lane)) complete(D, lane, left);
}
