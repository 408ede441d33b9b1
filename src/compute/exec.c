/* exec.c - running kernels and booking their time; geometry of convolutions and pools. */
#include "base/clock.h"
#include "compute/kernels.h"

#include <string.h>

enum { AT_ONCE = 8 };          /* tasks for each of several threads: 2 MiB of parameters of an update */
enum { BETWEEN_NS = 200 * 1000 }; /* at least so long between two calls of `between` */
enum { MOST = 1 << 15 };       /* of any number of a shape, so that the product of two is still an int */

const char *nw_work_text(nw_work work)
{
    static const char *const text[] = {
#define NW_WORK_TEXT(identifier, text) text,
        NW_WORK_MAP(NW_WORK_TEXT)
#undef NW_WORK_TEXT
    };
    return text[work];
}

/* Tasks from an index on. */
typedef struct stretch {
    nw_pool_task task;
    void *context;
    int first;
} stretch;

static void run_stretch(void *context, int index, int worker)
{
    const stretch *s = context;
    s->task(s->context, s->first + index, worker);
}

static void call_between(nw_exec *exec)
{
    int64_t now = nw_now_ns();
    if (now - exec->between_ns < BETWEEN_NS) return;
    exec->between(exec->listener);
    exec->between_ns = nw_now_ns();
}

/* A layer or an update may take long: now and then it stops to call `between`, so that messages move. The tasks are
 * the same, and so are the bits. */
static void run_tasks(nw_exec *exec, int count, nw_pool_task task, void *context)
{
    int threads = nw_pool_threads(exec->pool), most = !exec->between ? count : threads > 1 ? AT_ONCE * threads : 1;
    nw_pool_run(exec->pool, count < most ? count : most, task, context);
    for (int first = most; first < count; first += most) {
        stretch rest = {task, context, first};
        call_between(exec);
        nw_pool_run(exec->pool, count - first < most ? count - first : most, run_stretch, &rest);
    }
}

void nw_exec_run(nw_exec *exec, nw_work work, int count, nw_pool_task task, void *context)
{
    if (!exec->profile) {
        run_tasks(exec, count, task, context);
        return;
    }
    int threads = nw_pool_threads(exec->pool);
    memset(exec->fused_ns, 0, (size_t)threads * 8 * sizeof exec->fused_ns[0]);
    int64_t start = nw_now_ns();
    run_tasks(exec, count, task, context);
    int64_t total = nw_now_ns() - start, norm = 0, moves = 0, pack = 0;
    for (int t = 0; t < threads; t++) {
        norm += exec->fused_ns[t * 8];
        moves += exec->fused_ns[t * 8 + 1];
        pack += exec->fused_ns[t * 8 + 2];
    }
    /* What the workers spent on sources and weights, as wall time if it was spread evenly. */
    norm /= threads;
    moves /= threads;
    pack /= threads;
    exec->work_ns[NW_WORK_NORM] += norm;
    exec->work_ns[NW_WORK_MOVES] += moves;
    exec->work_ns[NW_WORK_PACK] += pack;
    exec->work_ns[work] += total - norm - moves - pack;
}

nw_status nw_conv_make(nw_conv *conv, int c, int h, int w, int k, int r, int s, int stride, int pad)
{
    NW_FAIL_IF(
        c < 1 || h < 1 || w < 1 || k < 1 || r < 1 || s < 1 || stride < 1 || pad < 0, NW_E_SHAPE,
        "a convolution of %d x %d x %d to %d channels with a %d x %d filter, stride %d, padding %d is impossible: "
        "all but the padding must be at least 1",
        c, h, w, k, r, s, stride, pad);
    NW_FAIL_IF(c > MOST || h > MOST || w > MOST || k > MOST || r > MOST || s > MOST || stride > MOST || pad > MOST,
               NW_E_SHAPE,
               "a convolution of %d x %d x %d to %d channels with a %d x %d filter, stride %d, padding %d "
               "is too large: no number may exceed %d",
               c, h, w, k, r, s, stride, pad, MOST);
    NW_FAIL_IF(r * s > 1024, NW_E_SHAPE, "a %d x %d filter is too large: at most 1024 taps are supported", r, s);
    NW_FAIL_IF(h + 2 * pad < r || w + 2 * pad < s, NW_E_SHAPE,
               "a %d x %d filter does not fit a %d x %d input with padding %d; use a larger input or padding", r, s, h,
               w, pad);
    *conv = (nw_conv){.c = c,
                      .h = h,
                      .w = w,
                      .k = k,
                      .r = r,
                      .s = s,
                      .stride = stride,
                      .pad = pad,
                      .oh = (h + 2 * pad - r) / stride + 1,
                      .ow = (w + 2 * pad - s) / stride + 1};
    return NW_OK;
}

nw_status nw_pool2d_make(nw_pool2d *pool, int c, int h, int w, int size, int stride, int pad)
{
    NW_FAIL_IF(c > MOST || h > MOST || w > MOST || size > MOST || stride > MOST || pad > MOST, NW_E_SHAPE,
               "pooling %d x %d x %d with size %d, stride %d, padding %d is too large: no number may exceed %d", c, h,
               w, size, stride, pad, MOST);
    NW_FAIL_IF(c < 1 || h < 1 || w < 1 || size < 1 || stride < 1 || pad < 0 || 2 * pad > size, NW_E_SHAPE,
               "pooling %d x %d x %d with size %d, stride %d, padding %d is impossible: all but the padding must be at "
               "least 1, the padding at most half the size",
               c, h, w, size, stride, pad);
    NW_FAIL_IF(h + 2 * pad < size || w + 2 * pad < size, NW_E_SHAPE,
               "a pooling window of %d does not fit a %d x %d input with padding %d; use a larger input", size, h, w,
               pad);
    *pool = (nw_pool2d){.c = c,
                        .h = h,
                        .w = w,
                        .r = size,
                        .s = size,
                        .stride = stride,
                        .pad = pad,
                        .oh = (h + 2 * pad - size) / stride + 1,
                        .ow = (w + 2 * pad - size) / stride + 1};
    return NW_OK;
}
