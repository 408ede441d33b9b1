/*
 * codec.c - the registry of codecs. A new codec is one file with its table of functions, and one line here.
 */
#include "codec/codec.h"

#include "base/suggest.h"

#include <stdlib.h>
#include <string.h>

extern const nw_codec_ops nw_codec_none, nw_codec_fp16, nw_codec_bf16;

static const nw_codec_ops *const codecs[] = {
    &nw_codec_none,
    &nw_codec_fp16,
    &nw_codec_bf16,
};
enum { CODECS = sizeof codecs / sizeof codecs[0] };

int nw_codec_count(void) { return CODECS; }
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
