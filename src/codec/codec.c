/*
 * codec.c - the registry of codecs. A new codec is one file with its table of functions, and one line here.
 */
#include "codec/codec.h"

#include "base/suggest.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

extern const nw_codec_ops nw_codec_none, nw_codec_fp16, nw_codec_bf16;
extern const nw_codec_ops nw_codec_topk, nw_codec_thresholdv, nw_codec_adaptivethreshold;
extern const nw_codec_ops nw_codec_qsgd, nw_codec_terngrad, nw_codec_sign, nw_codec_natural, nw_codec_int8;
extern const nw_codec_ops nw_codec_powersgd, nw_codec_randomk, nw_codec_modulo;

static const nw_codec_ops *const codecs[] = {
    &nw_codec_none,    &nw_codec_fp16,       &nw_codec_bf16,
    &nw_codec_topk,    &nw_codec_thresholdv, &nw_codec_adaptivethreshold,
    &nw_codec_qsgd,    &nw_codec_terngrad,   &nw_codec_sign,
    &nw_codec_natural, &nw_codec_int8,       &nw_codec_powersgd,
    &nw_codec_randomk, &nw_codec_modulo,
};
enum { CODECS = sizeof codecs / sizeof codecs[0] };

int nw_codec_kinds(void) { return CODECS; }
const nw_codec_ops *nw_codec_at(int index) { return codecs[index]; }

static nw_status find(const char *name, const nw_codec_ops **ops)
{
    const char *names[CODECS];
    for (int i = 0; i < CODECS; i++) {
        names[i] = codecs[i]->name;
        if (strcmp(name, names[i]) != 0) continue;
        *ops = codecs[i];
        return NW_OK;
    }
    return NW_FAIL(NW_E_UNKNOWN, "there is no codec '%s'%s", name, nw_suggest(name, names, CODECS, "").text);
}

nw_codec_options nw_codec_options_default(const char *name)
{
    return (nw_codec_options){
        .name = name,
        .ratio = 0.01,
        .values = NW_VALUES_F32,
        .sampling = {.strided = true, .resample = true, .ratio = 0.01, .upper = 1.3, .lower = 0.8, .iterations = 10},
        .threshold = 0.001,
        .shared = true,
        .levels = 255,
        .rank = 1,
        .bits = 8,
    };
}

bool nw_codec_warms_up(const nw_codec *codec) { return strcmp(codec->ops->name, "topk") == 0; }

double nw_codec_ratio(const nw_codec *codec, int64_t clock)
{
    const nw_codec_options *o = &codec->options;
    const nw_warm_up *w = &o->warm_up;
    int64_t epoch = w->batches > 0 ? clock / w->batches : w->epochs;
    if (epoch >= w->epochs || !nw_codec_warms_up(codec)) return o->ratio;
    if (epoch < w->listed) return w->list[epoch];
    double factor = w->factor > 0 ? w->factor : pow(o->ratio, 1.0 / (w->epochs + 1));
    double ratio = pow(factor, (double)(epoch + 1));
    return ratio > o->ratio ? ratio : o->ratio;
}

size_t nw_codec_count(const nw_codec *codec, size_t n, double ratio)
{
    double wanted = (double)n * ratio;
    double count = codec->options.counting == NW_COUNT_CEIL    ? ceil(wanted * (1 - 1e-12)) /* 30 times 0.1 is 3 */
                   : codec->options.counting == NW_COUNT_ROUND ? round(wanted)
                                                               : floor(wanted) + 1;
    return count < 1 ? 1 : count < (double)n ? (size_t)count : n;
}

nw_status nw_codec_create(nw_codec **codec, const nw_codec_options *options)
{
    const nw_codec_ops *ops = NULL;
    *codec = NULL;
    NW_TRY(find(options->name, &ops));
    nw_codec *made = calloc(1, ops->size);
    NW_FAIL_IF(!made, NW_E_MEMORY, "no memory for the codec %s; end other programs", ops->name);
    made->ops = ops;
    made->options = *options;
    made->options.name = ops->name;
    NW_TRY_OR(ops->init(made), free(made));
    *codec = made;
    return NW_OK;
}

void nw_codec_free(nw_codec *codec) { free(codec); }

nw_status nw_codec_check_bytes(const nw_decoding *d, size_t width)
{
    size_t floats = d->block->cut_floats[d->cut];
    NW_FAIL_IF(d->bytes != floats * width, NW_E_MESSAGE,
               "%zu bytes of codec %s cannot stand for %zu floats of %zu bytes each; sender and receiver must run the "
               "same build with the same options",
               d->bytes, d->codec->ops->name, floats, width);
    return NW_OK;
}
