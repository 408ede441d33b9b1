/* layout.c - see layout.h. */
#include "channel/layout.h"

#include "net/message.h"

#include <stdio.h>
#include <stdlib.h>

enum { USUAL_BUCKET = 4 << 20, PART_ALIGN = 16 };

typedef struct making {
    const nw_layout_options *o;
    nw_layout *layout;
    int *bucket_of; /* the bucket of each segment */
    nw_extent *extents;
    size_t *cuts;
    uint32_t items; /* number of items so far */
} making;

static uint32_t rows_of(const nw_layout_options *o, int segment)
{
    const nw_segment *s = &o->segments->at[segment];
    return o->scope == NW_SCOPE_LAYER && s->dims > 1 ? (uint32_t)s->shape[0] : 1;
}

static const nw_codec *codec_of(const nw_layout_options *o, int segment)
{
    const nw_codec *codec = o->codecs ? o->codecs[segment] : o->codec;
    bool fits = !codec->ops->gains || codec->ops->gains(codec, rows_of(o, segment), o->segments->at[segment].count);
    return fits ? codec : o->dense ? o->dense : &nw_codec_plain;
}

static int fragments_of(const nw_layout_options *o) { return o->fragments > 1 ? o->fragments : 1; }

/* The first segment of a fragment: the first one that begins at or after the fragment's share of the floats, such that
 * every fragment has at least one segment. */
static int first_of_fragment(const nw_segments *s, int fragments, int i)
{
    int first = 0;
    if (i >= fragments) return s->count;
    for (int f = 1; f <= i; f++) {
        size_t share = s->floats / (size_t)fragments * (size_t)f;
        first++;
        while (first < s->count - (fragments - f) && s->at[first].offset < share) first++;
    }
    return first;
}

size_t nw_layout_fragment(const nw_segments *s, int fragments, int i)
{
    int first = first_of_fragment(s, fragments, i);
    return first < s->count ? s->at[first].offset : s->floats;
}

static int fragment_of(const nw_layout_options *o, int segment)
{
    int f = fragments_of(o) - 1;
    while (f > 0 && first_of_fragment(o->segments, fragments_of(o), f) > segment) f--;
    return f;
}

static bool goes_on(const nw_bucket *b, const nw_codec *codec, int fragment)
{
    return b->block.codec == codec && b->fragment == fragment;
}

/* Assigns segments to buckets, from the last segment to the first. In a fragment each codec has at most one bucket that is not
 * full. */
static nw_status assign(making *m)
{
    const nw_segments *s = m->o->segments;
    nw_layout *l = m->layout;
    size_t least = (m->o->bucket_bytes ? m->o->bucket_bytes : (size_t)USUAL_BUCKET) / sizeof(float);
    size_t most = NW_MESSAGE_MOST_BYTES / sizeof(float);
    for (int i = s->count - 1; i >= 0; i--) {
        const nw_codec *codec = codec_of(m->o, i);
        bool whole = m->o->scope == NW_SCOPE_MODEL && !codec->exact && codec != m->o->dense;
        size_t count = s->at[i].count;
        NW_FAIL_IF(count > most, NW_E_SHAPE, "%s has %zu parameters; a message can have at most %zu", s->at[i].name,
                   count, most);
        int b = l->count - 1, fragment = fragment_of(m->o, i);
        while (b >= 0 && !goes_on(&l->at[b], codec, fragment)) b = m->o->ranges ? -1 : b - 1;
        bool full = b >= 0 && !whole && l->at[b].block.floats >= least;
        NW_FAIL_IF(b >= 0 && whole && l->at[b].block.floats + count > most, NW_E_SHAPE,
                   "an entire model of more than %zu parameters does not fit into one message; choose --compress "
                   "layerwise",
                   most);
        if (b < 0 || full || l->at[b].block.floats + count > most) {
            b = l->count++;
            l->at[b] = (nw_bucket){.block = {.codec = codec}, .last_segment = i, .fragment = fragment};
        }
        l->at[b].block.floats += count;
        l->at[b].first_segment = i;
        l->at[b].first = s->at[i].offset;
        m->bucket_of[i] = b;
    }
    return NW_OK;
}

static int by_first(const void *a, const void *b)
{
    size_t p = ((const nw_bucket *)a)->first, q = ((const nw_bucket *)b)->first;
    return (p < q) - (p > q);
}

/* The number of buckets that become final before bucket b. */
static int place_of(const nw_layout *l, int b)
{
    int before = 0;
    for (int i = 0; i < l->count; i++) before += l->at[i].first > l->at[b].first;
    return before;
}

static void sort(making *m)
{
    nw_layout *l = m->layout;
    for (int i = 0; i < m->o->segments->count; i++) m->bucket_of[i] = place_of(l, m->bucket_of[i]);
    qsort(l->at, (size_t)l->count, sizeof *l->at, by_first);
}

size_t nw_layout_part(size_t count, int parts, int i)
{
    return i >= parts ? count : count * (size_t)i / (size_t)parts / PART_ALIGN * PART_ALIGN;
}

/* The element of a bucket at which cut number `cut` begins. */
static size_t cut_begin(const making *m, const nw_extent *extents, int count, size_t floats, int cut, int cuts)
{
    size_t at = 0;
    if (!m->o->bounds || cuts == 1 || cut == cuts) return nw_layout_part(floats, cuts, cut);
    for (int i = 0; i < count && extents[i].first < m->o->bounds[cut]; i++) {
        size_t before = m->o->bounds[cut] - extents[i].first;
        at += before < extents[i].count ? before : extents[i].count;
    }
    return at;
}

/* The number of entries sent of a bucket: the sum over its items. */
static uint64_t count_entries(const nw_codec *codec, const nw_extent *extents, int count)
{
    uint64_t entries = 0;
    for (int i = 0, next; i < count; i = next) {
        size_t floats = 0;
        for (next = i; next < count && extents[next].item == extents[i].item; next++) floats += extents[next].count;
        entries += nw_mode_entries(codec, floats);
    }
    return entries;
}

static nw_status make_bucket(making *m, int b)
{
    const nw_segments *s = m->o->segments;
    nw_bucket *bucket = &m->layout->at[b];
    const nw_codec *codec = bucket->block.codec;
    size_t floats = bucket->block.floats;
    int count = 0, cuts;
    for (int i = bucket->first_segment; i <= bucket->last_segment; i++)
        if (m->bucket_of[i] == b) {
            int item = m->o->scope == NW_SCOPE_LAYER ? count : 0;
            m->extents[count++] = (nw_extent){s->at[i].offset, s->at[i].count, item, rows_of(m->o, i)};
        }
    bool dense = codec->exact || codec == m->o->dense;
    bucket->entries = count_entries(codec, m->extents, count);
    bucket->mode = dense || m->o->plainly
                       ? NW_MODE_OWNERS
                       : nw_mode_choose(m->o->collective, codec, floats, bucket->entries, (uint64_t)m->o->cuts);
    if (m->o->plainly && !dense) codec = &nw_codec_plain;
    bucket->dense = dense && !m->o->remembers;
    bucket->summed = bucket->mode == NW_MODE_SUMMED;
    bucket->gathered = bucket->mode == NW_MODE_GATHER;
    cuts = bucket->gathered || bucket->summed ? 1 : m->o->cuts;
    for (int c = 0; c <= cuts; c++) m->cuts[c] = cut_begin(m, m->extents, count, floats, c, cuts);
    NW_TRY(nw_block_make(&bucket->block, codec, m->extents, count, m->cuts, cuts, m->items));
    m->items += (uint32_t)bucket->block.item_count;
    return NW_OK;
}

/* An entire model, of which other codecs have tensors in the middle, is no range. */
static nw_status check_ranges(const making *m)
{
    const nw_layout *l = m->layout;
    for (int b = 0; b + 1 < l->count && m->o->ranges && m->o->scope == NW_SCOPE_MODEL; b++)
        for (int other = b + 1; other < l->count; other++)
            NW_FAIL_IF(
                l->at[b].block.codec == l->at[other].block.codec && !l->at[b].block.codec->exact, NW_E_ARGUMENT,
                "tensors with other codecs, or none, lie between those that are compressed as one; choose --compress "
                "layerwise or bucket");
    return NW_OK;
}

static nw_status make_layout(making *m)
{
    nw_layout *l = m->layout;
    size_t segments = (size_t)m->o->segments->count;
    NW_NEW(l->at, segments + 1, "a list of buckets");
    NW_NEW(m->bucket_of, segments + 1, "a list of buckets");
    NW_NEW(m->extents, segments + 1, "a list of buckets");
    NW_NEW(m->cuts, m->o->cuts + 1, "a list of buckets");
    NW_TRY(assign(m));
    NW_TRY(check_ranges(m));
    sort(m);
    for (int b = 0; b < l->count; b++) NW_TRY(make_bucket(m, b));
    return NW_OK;
}

static nw_status check_scope(const nw_layout_options *o)
{
    for (int i = 0; i < o->segments->count && o->scope != NW_SCOPE_LAYER; i++) {
        const nw_codec *codec = o->codecs ? o->codecs[i] : o->codec;
        NW_FAIL_IF(codec->ops->gains, NW_E_ARGUMENT,
                   "codec %s needs matrices, so it works on single tensors only; choose --compress layerwise",
                   codec->ops->name);
    }
    return NW_OK;
}

nw_status nw_layout_make(nw_layout *layout, const nw_layout_options *options)
{
    making m = {.o = options, .layout = layout};
    NW_TRY(check_scope(options));
    NW_FAIL_IF(options->fragments > options->segments->count, NW_E_ARGUMENT,
               "%d fragments are asked for, but the model has %d tensors, which are not divided; choose fewer",
               options->fragments, options->segments->count);
    *layout = (nw_layout){.floats = options->segments->floats, .segments = options->segments};
    nw_status status = make_layout(&m);
    free(m.bucket_of);
    free(m.extents);
    free(m.cuts);
    if (status != NW_OK) nw_layout_free(layout);
    return status;
}

bool nw_layout_is_exact(const nw_layout *l)
{
    bool exact = true;
    for (int b = 0; b < l->count; b++) exact &= l->at[b].block.codec->exact;
    return exact;
}

nw_status nw_layout_check_memory(const nw_layout *l, const nw_memory_options *memory)
{
    for (int k = 0; k < l->count; k++) {
        const nw_block *b = &l->at[k].block;
        for (int i = 0; i < b->item_count && !l->at[k].dense; i++) {
            const nw_tile *last = &b->tiles[b->item_tile[i + 1] - 1];
            NW_TRY(nw_memory_check(b->codec, memory, (size_t)last->within + last->count));
        }
    }
    return NW_OK;
}

void nw_layout_free(nw_layout *l)
{
    for (int b = 0; l->at && b < l->count; b++) nw_block_free(&l->at[b].block);
    free(l->at);
    *l = (nw_layout){0};
}

void nw_layout_name(const nw_layout *l, const nw_segments *s, int bucket, char *name, size_t size)
{
    const nw_bucket *b = &l->at[bucket];
    const char *first = s->at[b->first_segment].name, *last = s->at[b->last_segment].name;
    snprintf(name, size, b->last_segment > b->first_segment ? "%.75s ... %.75s" : "%.75s", first, last);
}
