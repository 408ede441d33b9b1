/* scratch.c - the working memory of codecs (codec.h, nw_scratch). */
#include "codec/codec.h"

#include <stdlib.h>
#include <string.h>

static size_t scales_of(const nw_block *b)
{
    return b->codec->ops->scales ? b->codec->ops->scales(b) : (size_t)b->item_count;
}

nw_status nw_scratch_make(nw_scratch *s, const nw_block *const *blocks, int count, int threads)
{
    bool chooses = false;
    *s = (nw_scratch){.threads = threads};
    for (int i = 0; i < count; i++) {
        const nw_block *b = blocks[i];
        if (b->codec->ops->family <= NW_FAMILY_BF16 || b->codec->ops->family == NW_FAMILY_FACTORS) continue;
        if ((size_t)b->tile_count > s->tiles) s->tiles = (size_t)b->tile_count;
        if (scales_of(b) > s->scale_count) s->scale_count = scales_of(b);
        if (b->codec->ops->family > NW_FAMILY_CHOSEN) continue;
        chooses = true;
        if (b->floats > s->floats) s->floats = b->floats;
    }
    if (s->tiles == 0) return NW_OK;
    NW_NEW(s->scales, s->scale_count + 1, "%zu scales", s->scale_count);
    if (!chooses) return NW_OK;
    NW_NEW(s->bits, s->tiles * NW_TILE_WORDS, "marks of %zu floats", s->floats);
    NW_NEW(s->list, s->floats / 4 + 1, "a list of %zu floats", s->floats / 4);
    NW_NEW(s->counts, (size_t)threads * NW_SCRATCH_BINS, "histograms of %d threads", threads);
    NW_NEW(s->starts, s->tiles + 1, "%zu tiles", s->tiles);
    return NW_OK;
}

nw_status nw_scratch_reserve_places(nw_scratch *s, size_t places)
{
    if (places <= s->place_count) return NW_OK;
    uint32_t *more = realloc(s->places, places * sizeof *more);
    NW_FAIL_IF(!more, NW_E_MEMORY, "no memory for a message of %zu entries", places);
    s->places = more;
    s->place_count = places;
    return NW_OK;
}

void nw_scratch_free(nw_scratch *s)
{
    free(s->bits);
    free(s->list);
    free(s->scales);
    free(s->counts);
    free(s->places);
    free(s->starts);
    *s = (nw_scratch){0};
}
