/* G = sum_n phi_n phi_n^T: half of a product of matrices, whose other half is its mirror image.

   Features are packed in panels of as many as a vector holds, a few hundred examples at a time; a tile of G is summed
   in registers, one panel broadcast against a few. Threads have rows of G each. */

#include "native.h"

/* Examples at a time, and panels across a tile: LANES x ACROSS sums, 24 of 32 registers or 12 of 16, but for the
   shortest vectors. */
enum { EXAMPLES = 256, ACROSS = VECTOR_BYTES > 16 ? 3 : 4 };

typedef struct {
    int64_t examples, features;
    const REAL *phi;
    REAL *gram;
} Job;

/* Panel p has features p LANES … of `count` examples from `first` on; what the last lacks is zero. */
static void pack(const Job *job, int64_t first, int64_t count, int64_t from, vec *packed)
{
    const int64_t K = job->features, panels = (K + LANES - 1) / LANES;
    for (int64_t n = 0; n < count; n++)
        for (int64_t p = from; p < panels; p++) {
            const int64_t width = K - p * LANES < LANES ? K - p * LANES : LANES;
            memcpy(&packed[p * EXAMPLES + n], job->phi + (first + n) * K + p * LANES, width * sizeof(REAL));
        }
}

/* Added to `sums`: one panel against `across` others. */
INLINE void tile(int across, int64_t count, const vec *down, const vec *right, vec *sums)
{
    vec sum[LANES][4];
    for (int i = 0; i < LANES; i++)
        for (int c = 0; c < across; c++)
            sum[i][c] = sums[i * ACROSS + c];
    for (int64_t n = 0; n < count; n++)
        UNROLL(16)
        for (int i = 0; i < LANES; i++)
            for (int c = 0; c < across; c++)
                sum[i][c] += down[n][i] * right[c * EXAMPLES + n];
    for (int i = 0; i < LANES; i++)
        for (int c = 0; c < across; c++)
            sums[i * ACROSS + c] = sum[i][c];
}

/* Rows of panel `row`, from the diagonal on, and their mirror image. */
static void hand_back(const Job *job, int64_t row, int64_t panel, int across, const vec *sums)
{
    const int64_t K = job->features;
    for (int64_t i = 0; i < LANES && row * LANES + i < K; i++)
        for (int64_t c = 0; c < across * LANES && panel * LANES + c < K; c++) {
            const int64_t r = row * LANES + i, s = panel * LANES + c;
            job->gram[r * K + s] = job->gram[s * K + r] = sums[i * ACROSS + c / LANES][c % LANES];
        }
}

/* The first and the last, the second and the last but one: rows of the triangle are shorter the later they are. */
static int64_t folded(int64_t place, int64_t panels) { return place % 2 ? panels - 1 - place / 2 : place / 2; }

static void *work(void *given)
{
    const Slice *mine = given;
    const Job *job = mine->job;
    const int64_t panels = (job->features + LANES - 1) / LANES, tiles = (panels + ACROSS - 1) / ACROSS;
    const int64_t rows = mine->last - mine->first, each = LANES * ACROSS;
    int64_t from = panels;
    for (int64_t k = mine->first; k < mine->last; k++)
        if (folded(k, panels) < from) from = folded(k, panels);
    vec *packed = vectors(panels * EXAMPLES), *sums = vectors(rows * tiles * each);
    const int good = packed != NULL && sums != NULL;
    for (int64_t first = 0; good && first < job->examples; first += EXAMPLES) {
        const int64_t left = job->examples - first, count = left < EXAMPLES ? left : EXAMPLES;
        pack(job, first, count, from, packed);
        for (int64_t k = 0; k < rows; k++) {
            const int64_t row = folded(mine->first + k, panels);
            vec *sum = sums + k * tiles * each;
            for (int64_t p = row; p < panels; p += ACROSS, sum += each) {
                const int across = panels - p < ACROSS ? panels - p : ACROSS;
                FOR_SMALL(N, across, tile(N, count, packed + row * EXAMPLES, packed + p * EXAMPLES, sum), )
            }
        }
    }
    for (int64_t k = 0; good && k < rows; k++) {
        const int64_t row = folded(mine->first + k, panels);
        const vec *sum = sums + k * tiles * each;
        for (int64_t p = row; p < panels; p += ACROSS, sum += each)
            hand_back(job, row, p, panels - p < ACROSS ? panels - p : ACROSS, sum);
    }
    free(packed);
    free(sums);
    return good ? NULL : (void *)1;
}

/* Products that are worth a thread: some hundred microseconds. */
enum { ENOUGH = 4000000 };

XLA_FFI_Error *gram(XLA_FFI_CallFrame *frame)
{
    if (asked_for_version(frame)) return NULL;
    XLA_FFI_Buffer **in = (XLA_FFI_Buffer **)frame->args.args, **out = (XLA_FFI_Buffer **)frame->rets.rets;
    Job job = {.examples = in[0]->dims[0], .features = in[0]->dims[1], .phi = in[0]->data, .gram = out[0]->data};
    const int64_t panels = (job.features + LANES - 1) / LANES;
    double none;
    int good = fan_out(work, &job, panels, 1 + ENOUGH / (1 + job.examples * job.features * LANES / 2), 1, &none);
    return good ? NULL : refuse(frame, "gram: out of memory");
}
