/* stats.c - see stats.h. */
#include "channel/stats.h"

#include "codec/packed.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* log2 of n choose k */
static double choose_bits(double n, double k) { return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(2.0); }

int nw_channel_stats_index(const nw_codec *codec)
{
    int most = nw_codec_kinds() < NW_STATS_CODECS ? nw_codec_kinds() : NW_STATS_CODECS;
    for (int i = 0; i < most; i++)
        if (strcmp(nw_codec_at(i)->name, codec->ops->name) == 0) return i;
    return NW_STATS_CODECS - 1; /* of tests */
}

static nw_codec_stats *stats_of(nw_channel_stats *t, const nw_codec *codec)
{
    return &t->of[nw_channel_stats_index(codec)];
}

static void add_entries(nw_codec_stats *t, const nw_codec *codec, const uint8_t *payload)
{
    nw_packed h = nw_packed_read(payload);
    nw_values values = codec->options.values;
    int64_t value = values == NW_VALUES_FP16 || values == NW_VALUES_BF16 ? 2 : 4;
    t->entries += h.entries;
    t->listed32 += h.entries * (value + 4);
    t->listed64 += h.entries * (value + 8);
    t->bound_bits += choose_bits((double)h.coordinates, (double)h.entries);
}

void nw_channel_stats_add(nw_channel_stats *stats, const nw_codec *codec, size_t floats, const uint8_t *payload,
                          nw_encoded encoded)
{
    if (!stats) return;
    nw_codec_stats *t = stats_of(stats, codec);
    bool sparse = codec->ops->id == NW_CODEC_PACKED && codec->ops->family == NW_FAMILY_SPARSE;
    t->payloads++;
    t->floats += (int64_t)floats;
    t->bytes += (int64_t)encoded.bytes;
    t->index_bytes += (int64_t)encoded.index_bytes;
    t->scale_bytes += (int64_t)encoded.scale_bytes;
    if (sparse && encoded.bytes >= NW_PACKED_HEADER) add_entries(t, codec, payload);
}

void nw_channel_stats_add_round(nw_channel_stats *stats, const nw_codec *codec, size_t floats, size_t bytes)
{
    if (!stats) return;
    nw_codec_stats *t = stats_of(stats, codec);
    t->payloads++;
    t->floats += (int64_t)floats;
    t->bytes += (int64_t)bytes;
}

void nw_channel_stats_add_time(nw_channel_stats *stats, const nw_codec *codec, nw_channel_stats_time what, int64_t ns)
{
    if (!stats) return;
    nw_codec_stats *t = stats_of(stats, codec);
    *(what == NW_STATS_ENCODING ? &t->encode_ns : &t->decode_ns) += ns;
}

enum { /* how the whole numbers follow each other */
       TIMES = offsetof(nw_codec_stats, payloads) / sizeof(int64_t),
       COUNTS = offsetof(nw_codec_stats, bound_bits) / sizeof(int64_t) - TIMES
};
_Static_assert(TIMES == 2 && COUNTS == 8, "times come first, then counts, then what is no whole number");

static void list_optional(nw_state *s, const char *name, nw_state_type type, int64_t count, void *data)
{
    int before = s->count;
    nw_state_tensor(s, name, NW_STATE_DELIVERED, type, count > 1, &count, data);
    if (s->count > before) s->at[before].optional = true;
}

void nw_channel_stats_state(nw_channel_stats *t, nw_codec *const *codecs, int count, nw_state *s)
{
    bool listed[NW_STATS_CODECS] = {false};
    list_optional(s, "codec_stats.sent_floats", NW_STATE_I64, 1, &t->sent_floats);
    for (int i = 0; i < count; i++) {
        int k = nw_channel_stats_index(codecs[i]);
        char name[NW_STATE_NAME];
        if (listed[k]) continue;
        listed[k] = true;
        snprintf(name, sizeof name, "codec_stats.%.40s", codecs[i]->ops->name);
        list_optional(s, name, NW_STATE_I64, COUNTS, &t->of[k].payloads);
        snprintf(name, sizeof name, NW_STATS_TIMES "%.40s", codecs[i]->ops->name);
        list_optional(s, name, NW_STATE_I64, TIMES, &t->of[k].encode_ns);
        snprintf(name, sizeof name, "codec_stats.%.40s.bound_bits", codecs[i]->ops->name);
        list_optional(s, name, NW_STATE_F64, 1, &t->of[k].bound_bits);
    }
}

void nw_channel_stats_merge(nw_codec_stats *to, const nw_codec_stats *from)
{
    to->encode_ns += from->encode_ns;
    to->decode_ns += from->decode_ns;
    to->payloads += from->payloads;
    to->floats += from->floats;
    to->bytes += from->bytes;
    to->index_bytes += from->index_bytes;
    to->scale_bytes += from->scale_bytes;
    to->entries += from->entries;
    to->listed32 += from->listed32;
    to->listed64 += from->listed64;
    to->bound_bits += from->bound_bits;
}

void nw_channel_stats_read_memory(nw_channel_stats *t)
{
    t->memory_square = t->rest ? t->rest(t->whose) : 0;
    for (size_t i = 0; t->memory && i < t->memory->floats; i++)
        t->memory_square += (double)t->memory->v[i] * (double)t->memory->v[i];
}

nw_codec_stats nw_channel_stats_total(const nw_channel_stats *stats, bool compressed)
{
    nw_codec_stats all = {0};
    for (int i = compressed; i < NW_STATS_CODECS; i++) nw_channel_stats_merge(&all, &stats->of[i]);
    return all;
}
