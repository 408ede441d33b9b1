/*
 * settings_codec.c - what options of codecs leave unsaid, once all layers are in: so that config.yaml has what a run does,
 * and a run that goes on does the same. See settings.h.
 *
 *   --sparsification          is --method randomk with a shared seed, --ratio as --randk, --memory error
 *   a method                  without --compress is layer-wise; with --exchange none it passes allreduce, of one replica too
 *   --compress none           given beside a method that needs to know what it sees at once: nothing is compressed
 *   --method dgc              has a ratio of 0.001, and SGD whose gradients carry momentum already
 */
#include "config/settings.h"

#include <stdio.h>
#include <string.h>

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

/* Whether an option has the table's value, whoever gave it. */
static bool is_usual(const nw_settings *s, const char *option)
{
    const nw_option *o = nw_option_at(nw_option_find(option, s->command).index);
    return is(nw_settings_value(s, option), o->fallback);
}

/* The whole method of one flag. */
static nw_status take_sparsification(nw_settings *s)
{
    char ratio[32];
    if (!s->run.codec.sparsification) return NW_OK;
    bool same = is(s->run.codec.method, "randomk") && is(s->run.codec.memory, "error") &&
                s->run.codec.ratio == s->run.codec.randk;
    NW_FAIL_IF(!is_usual(s, "method") && !same, NW_E_ARGUMENT,
               "--sparsification is random-k with error feedback, and --method %s is something else; leave one out",
               s->run.codec.method);
    if (same) return NW_OK;
    nw_number_print(s->run.codec.randk, ratio);
    NW_TRY(nw_settings_replace(s, "method", "randomk", ", for --sparsification"));
    NW_TRY(nw_settings_replace(s, "ratio", ratio, ", as --randk"));
    NW_TRY(nw_settings_replace(s, "randomk-seed", "shared", ", for --sparsification"));
    NW_TRY(nw_settings_replace(s, "memory", "error", ", for --sparsification"));
    return nw_settings_add_note(s, "--sparsification is --method randomk --ratio %s --memory error", ratio);
}

static nw_status take_scope(nw_settings *s)
{
    const char *method = s->run.codec.method;
    bool by_value = is(method, "none") || is(method, "fp16") || is(method, "bf16");
    if (by_value || !is(s->run.codec.compress, "none")) return NW_OK;
    if (nw_settings_is_set(s, "compress")) {
        NW_TRY(nw_settings_add_note(s, "--compress none: gradients are not compressed, and --method %s has no effect",
                                    method));
        return nw_settings_replace(s, "method", "none", ", since --compress is none");
    }
    NW_TRY(nw_settings_replace(s, "compress", "layerwise", ", for --method"));
    return nw_settings_add_note(s, "--method %s compresses each tensor by itself (--compress layerwise)", method);
}

/* DGC is top-k with a memory and an optimizer of its own. */
static nw_status take_dgc(nw_settings *s)
{
    if (!is(s->run.codec.method, "dgc")) return NW_OK;
    if (!nw_settings_is_set(s, "ratio")) NW_TRY(nw_settings_replace(s, "ratio", "0.001", ", for --method dgc"));
    if (is(s->run.update.optimizer, "dgc-sgd")) return NW_OK;
    NW_FAIL_IF(!is(s->run.update.optimizer, "sgd"), NW_E_ARGUMENT,
               "--method dgc makes momentum of what each worker keeps, which --optimizer %s does not know; use sgd",
               s->run.update.optimizer);
    NW_TRY(nw_settings_replace(s, "optimizer", "dgc-sgd", ", for --method dgc"));
    return nw_settings_add_note(s,
                                "--method dgc has momentum in its memory: --optimizer sgd is dgc-sgd, which has it for "
                                "weight decay alone");
}

static nw_status take_exchange(nw_settings *s)
{
    bool travels = !is(s->run.codec.method, "none") || s->run.codec.codec_for.count > 0;
    if (!travels || !is(s->run.world.exchange, "none") || s->run.delays.max_delay > 1) return NW_OK;
    NW_TRY(nw_settings_replace(s, "exchange", "allreduce", ", for --method"));
    return nw_settings_add_note(s, "what is compressed passes --exchange allreduce, also of one replica");
}

/* DGC's keys of how it samples, where the choice is exact. */
static nw_status note_selection(nw_settings *s)
{
    static const char *const keys[] = {"sample-ratio",         "strided-sample", "compress-upper-bound",
                                       "compress-lower-bound", "resample",       "max-adaptation-iters"};
    char list[256] = "";
    int count = 0;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && is(s->run.codec.selection, "exact"); i++) {
        size_t used = strlen(list);
        if (!is_usual(s, keys[i])) snprintf(list + used, sizeof list - used, "%s--%s", count++ ? ", " : "", keys[i]);
    }
    if (count == 0) return NW_OK;
    return nw_settings_add_note(s,
                                "%s %s how a threshold is guessed; the largest are chosen exactly here, unless "
                                "--selection sampled is added",
                                list, count == 1 ? "says" : "say");
}

/* Which methods each option is for; codecs of --codec-for may use any. */
static nw_status note_unused(nw_settings *s)
{
    static const struct {
        const char *option, *methods;
    } uses[] = {{"ratio", "|topk|randomk|dgc|"},
                {"threshold", "|thresholdv|"},
                {"qstates", "|qsgd|"},
                {"bucket", "|qsgd|"},
                {"norm", "|qsgd|"},
                {"powersgd-rank", "|powersgd|"},
                {"randomk-seed", "|randomk|"},
                {"scaled", "|randomk|"},
                {"selection", "|topk|dgc|"},
                {"values", "|topk|dgc|thresholdv|adaptivethreshold|"}};
    const char *method = s->run.codec.method;
    char list[256] = "", word[32];
    int count = 0;
    bool served = is(s->run.world.exchange, "server");
    bool chosen = is(method, "randomk") && (served || is(s->run.codec.randomk_seed, "private"));
    snprintf(word, sizeof word, "|%s|", method);
    for (size_t i = 0; i < sizeof uses / sizeof uses[0] && s->run.codec.codec_for.count == 0; i++) {
        size_t used = strlen(list);
        bool values = is(uses[i].option, "values") && chosen;
        if (is(method, "none") || values || strstr(uses[i].methods, word) || is_usual(s, uses[i].option)) continue;
        snprintf(list + used, sizeof list - used, "%s--%s", count++ ? ", " : "", uses[i].option);
    }
    if (count == 0) return NW_OK;
    return nw_settings_add_note(
        s, "%s %s no effect with --method %s%s", list, count == 1 ? "has" : "have", method,
        is(method, "randomk") && strstr(list, "--values") ? ", whose shared entries are averaged as f32" : "");
}

nw_status nw_settings_finish_codec(nw_settings *s)
{
    NW_TRY(take_sparsification(s));
    NW_TRY(take_scope(s));
    if (s->command & NW_COMMAND_BENCH_EXCHANGE) return NW_OK;
    NW_TRY(take_dgc(s));
    NW_TRY(take_exchange(s));
    NW_TRY(note_unused(s));
    return note_selection(s);
}
