/* What the machine can do at most, on all its cores: exponentials made by the native passes, and numbers read. */

#include "../stepwell/native/src/native.h"

enum { TURNS = 2000 };
typedef struct { const vec *numbers; int64_t count; } Given;

static void *make(void *given)
{
    const Slice *mine = given;
    const Given *job = mine->job;
    vec sum = {0};
    for (int64_t turn = mine->first; turn < mine->last; turn++)
        for (int64_t k = 0; k < job->count; k++)
            sum += power_of_two(job->numbers[k] - (REAL)turn / 8); /* never beyond FAR */
    mine->results[0] = (double)sum[0];
    return NULL;
}

static void *read_all(void *given)
{
    const Slice *mine = given;
    const Given *job = mine->job;
    vec sum[4] = {{0}};
    for (int64_t k = 4 * mine->first; k < 4 * mine->last; k++)
        sum[k & 3] += job->numbers[k];
    sum[0] += sum[1] + sum[2] + sum[3];
    mine->results[0] = (double)sum[0][0];
    return NULL;
}

/* Of each of some vectors, TURNS times. */
XLA_FFI_Error *exponentials(XLA_FFI_CallFrame *frame)
{
    if (asked_for_version(frame)) return NULL;
    const XLA_FFI_Buffer *in = frame->args.args[0];
    const Given job = {in->data, in->dims[0] / LANES};
    return fan_out(make, &job, TURNS, 1, 1, ((XLA_FFI_Buffer *)frame->rets.rets[0])->data) ? NULL
                                                                                          : refuse(frame, "out of memory");
}

/* Of an array, once. */
XLA_FFI_Error *reading(XLA_FFI_CallFrame *frame)
{
    if (asked_for_version(frame)) return NULL;
    const XLA_FFI_Buffer *in = frame->args.args[0];
    const Given job = {in->data, in->dims[0] / LANES};
    return fan_out(read_all, &job, job.count / 4, 1, 1, ((XLA_FFI_Buffer *)frame->rets.rets[0])->data)
               ? NULL
               : refuse(frame, "out of memory");
}
