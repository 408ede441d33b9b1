/*
 * filter.h - a panel of an OIHW filter as the two directions see it: forward reduces over C and gives K outputs,
 * backward to the data reduces over K and gives C. Packing walks it with two steps.
 */

typedef struct filter_view {
    const float *w;        /* the panel's first output, reduced index 0, tap 0 */
    size_t taps;           /* contiguous */
    size_t c_step, k_step; /* floats from one reduced index, and from one output, to the next */
    int reduced;           /* length of the reduction, without the taps */
    int outputs;           /* in this panel, at most TILE */
} filter_view;

static filter_view view_filter(const nw_conv *v, bool backward, const float *w, int panel)
{
    size_t taps = (size_t)(v->r * v->s), row = (size_t)v->c * taps;
    filter_view f = {.taps = taps,
                     .c_step = backward ? row : taps,
                     .k_step = backward ? taps : row,
                     .reduced = backward ? v->k : v->c};
    f.outputs = nw_min(TILE, (backward ? v->c : v->k) - panel * TILE);
    f.w = w + (size_t)(panel * TILE) * f.k_step;
    return f;
}

/* Where a filter's (channel, tap) pairs lie, tap after tap, while they are walked as OIHW has them, channel after
 * channel. */
typedef struct tap_walk {
    size_t taps, channels; /* of which a tap's row has so many */
    size_t tap, channel;
} tap_walk;
INLINE size_t next_pair(tap_walk *w)
{
    size_t at = w->tap * w->channels + w->channel;
    if (++w->tap == w->taps) {
        w->tap = 0;
        w->channel++;
    }
    return at;
}
