/* ranges.c - see ranges.h. */
#include "codec/ranges.h"

enum { CUT = 1 << 16 }; /* floats of a task: long beside waking a thread, short beside a vector */

typedef struct job {
    nw_codec_range *ranges;
    int count;
} job;

static size_t width_of(const nw_codec_range *r) { return r->codec->ops->width; }

/* `count` floats from `first` on; a range whose floats do not stand alone is always taken whole. */
static nw_status run_part(const nw_codec_range *r, size_t first, size_t count, nw_encoded *encoded)
{
    const nw_codec_ops *ops = r->codec->ops;
    size_t width = width_of(r), bytes = width ? width * count : r->bytes;
    if (r->way == NW_CODEC_ENCODE)
        return ops->encode(r->codec, &r->key, (const float *)r->in + first, count, (uint8_t *)r->out + width * first,
                           encoded);
    const uint8_t *in = (const uint8_t *)r->in + width * first;
    float *out = (float *)r->out + first;
    return r->way == NW_CODEC_DECODE ? ops->decode(r->codec, &r->key, in, bytes, out, count)
                                     : ops->decode_add(r->codec, &r->key, in, bytes, out, count);
}

/* The last range that begins at a task or before it. */
static nw_codec_range *range_of(const job *j, int task)
{
    int low = 0, high = j->count;
    while (high - low > 1) {
        int middle = low + (high - low) / 2;
        if (j->ranges[middle].first_task <= task)
            low = middle;
        else
            high = middle;
    }
    return &j->ranges[low];
}

static void run_task(void *context, int index, int worker)
{
    (void)worker;
    nw_codec_range *r = range_of(context, index);
    nw_encoded ignored;
    if (!width_of(r)) {
        r->status = run_part(r, 0, r->count, &r->encoded);
        return;
    }
    size_t first = (size_t)(index - r->first_task) * CUT, count = r->count - first < CUT ? r->count - first : CUT;
    run_part(r, first, count, &ignored); /* its length was checked, and nothing else can be wrong */
}

nw_status nw_codec_run(nw_pool *pool, nw_codec_range *ranges, int count)
{
    job j = {ranges, count};
    int tasks = 0;
    for (int i = 0; i < count; i++) {
        nw_codec_range *r = &ranges[i];
        size_t width = width_of(r);
        r->status = NW_OK;
        r->first_task = tasks;
        tasks += width && r->count > CUT ? (int)((r->count + CUT - 1) / CUT) : 1;
        if (!width) continue;
        if (r->way == NW_CODEC_ENCODE)
            r->encoded = (nw_encoded){.bytes = width * r->count};
        else
            NW_TRY(nw_codec_check_bytes(r->codec, r->bytes, r->count, width));
    }
    if (pool)
        nw_pool_run(pool, tasks, run_task, &j);
    else
        for (int i = 0; i < tasks; i++) run_task(&j, i, 0);
    /* A sentence belongs to the thread that failed: this one hears it by failing again. */
    for (int i = 0; i < count; i++)
        if (ranges[i].status != NW_OK) NW_TRY(run_part(&ranges[i], 0, ranges[i].count, &ranges[i].encoded));
    return NW_OK;
}
