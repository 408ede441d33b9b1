/* plan_codec.c - see plan_codec.h. */
#include "setup/plan_codec.h"

#include "config/option_table.h"
#include "setup/plan.h"
#include "train/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USUAL_BITS = 8 /* of modulo */ };

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

static nw_values values_of(const char *text)
{
    return is(text, "f32")    ? NW_VALUES_F32
           : is(text, "fp16") ? NW_VALUES_FP16
           : is(text, "bf16") ? NW_VALUES_BF16
                              : (nw_values)(NW_VALUES_BITS + atoi(text));
}

/* Epochs of falling ratios; the batches of an epoch are not known here. */
static nw_status plan_warm_up(const nw_codec_settings *s, nw_warm_up *w)
{
    w->epochs = s->warmup_epochs > 0 ? s->warmup_epochs : 0;
    if (s->warmup_coeff.count == 0) return NW_OK;
    NW_FAIL_IF(w->epochs == 0, NW_E_ARGUMENT,
               "--ratio-warm-up-list needs the number of its epochs; give it with --ratio-warm-up");
    for (int i = 0; i < s->warmup_coeff.count; i++)
        NW_FAIL_IF(s->warmup_coeff.at[i] <= 0, NW_E_ARGUMENT,
                   "--ratio-warm-up-list: a ratio is above 0, and at most 1");
    if (s->warmup_coeff.count == 1) {
        w->factor = s->warmup_coeff.at[0];
        return NW_OK;
    }
    NW_FAIL_IF(s->warmup_coeff.count < w->epochs, NW_E_ARGUMENT,
               "--ratio-warm-up-list has %d ratios for the %d epochs of --ratio-warm-up; give one for each",
               s->warmup_coeff.count, w->epochs);
    w->listed = w->epochs;
    for (int i = 0; i < w->listed; i++) w->list[i] = s->warmup_coeff.at[i];
    return NW_OK;
}

/* All that options say of codecs but the method. */
static nw_status plan_options(const nw_codec_settings *s, const char *exchange, uint64_t seed, nw_codec_options *o)
{
    NW_FAIL_IF(s->ratio <= 0, NW_E_ARGUMENT, "--ratio is the share that is sent: above 0, and at most 1");
    NW_FAIL_IF(s->bucket > 0 && s->bucket < 16, NW_E_ARGUMENT, "--bucket is 16 or more, or 0 for the whole tensor");
    *o = nw_codec_options_default("none");
    o->seed = seed;
    o->ratio = s->ratio;
    o->values = values_of(s->values);
    o->sampling = (nw_sampling){.used = is(s->selection, "sampled"),
                                .strided = s->strided_sample,
                                .resample = s->resample,
                                .ratio = s->sample_ratio < 0.01 ? 0.01 : s->sample_ratio,
                                .upper = s->compress_upper_bound,
                                .lower = s->compress_lower_bound,
                                .iterations = s->max_adaptation_iters};
    o->threshold = s->threshold;
    o->shared = is(s->randomk_seed, "shared") && !is(exchange, "server") && !is(exchange, "gossip");
    o->scaled = s->scaled;
    o->levels = s->qstates;
    o->bucket = s->bucket;
    o->max_norm = is(s->norm, "max");
    o->rank = s->powersgd_rank;
    o->bits = s->modulo_bits;
    return plan_warm_up(s, &o->warm_up);
}

/* DGC is top-k, with as many entries as its authors count; 1-bit Adam is signs. */
static void set_method(nw_codec_options *o, const char *method)
{
    bool dgc = is(method, "dgc");
    o->name = dgc ? "topk" : is(method, "onebit") ? "sign" : method;
    o->counting = dgc ? NW_COUNT_CEIL : NW_COUNT_ROUND;
}

/* ---- rules by name ----------------------------------------------------------------------------------------------- */

/* What the number behind a method means. */
static nw_status set_number(const char *rule, const char *method, const char *text, nw_codec_options *o)
{
    char *end;
    double value = strtod(text, &end);
    bool ratio = is(o->name, "topk") || is(o->name, "randomk"), threshold = is(o->name, "thresholdv");
    bool levels = is(o->name, "qsgd"), rank = is(o->name, "powersgd");
    NW_FAIL_IF(end == text || *end || !(value > 0), NW_E_ARGUMENT, "--codec-for '%s': '%s' is not a number above 0",
               rule, text);
    NW_FAIL_IF(!ratio && !threshold && !levels && !rank, NW_E_ARGUMENT,
               "--codec-for '%s': %s takes no number; topk, randomk, thresholdv, qsgd and powersgd do", rule, method);
    NW_FAIL_IF(ratio && value > 1, NW_E_ARGUMENT, "--codec-for '%s': a ratio is above 0, and at most 1", rule);
    NW_FAIL_IF((levels || rank) && (value > 32767 || value != (int)value), NW_E_ARGUMENT,
               "--codec-for '%s': %s takes a whole number of 1 to 32767", rule, method);
    if (ratio) o->ratio = value;
    if (threshold) o->threshold = value;
    if (levels) o->levels = (int)value;
    if (rank) o->rank = (int)value;
    return NW_OK;
}

/* "layer1.*=topk:0.1" */
static nw_status plan_rule(const nw_codec_settings *s, const char *rule, const nw_codec_options *base,
                           nw_assign_rule *out)
{
    const nw_option *option = nw_option_at(nw_option_find("method", NW_COMMAND_TRAIN).index);
    const char *equals = strrchr(rule, '=');
    NW_FAIL_IF(!equals || equals == rule, NW_E_ARGUMENT,
               "--codec-for takes PATTERN=METHOD[:RATIO], as 'layer1.*=topk:0.1', not '%s'", rule);
    char method[64];
    size_t length = strcspn(equals + 1, ":");
    snprintf(method, sizeof method, "%.*s", (int)length, equals + 1);
    const char *word = nw_choice_find(option->values, method);
    char words[NW_WORDS_MOST];
    nw_option_words(option, '|', words);
    NW_FAIL_IF(!word, NW_E_ARGUMENT, "--codec-for '%s': the method is %s, not '%s'", rule, words, method);
    snprintf(method, sizeof method, "%.*s", (int)strcspn(word, "|="), word);
    bool own = is(method, "dgc") || is(method, "onebit");
    NW_FAIL_IF(own && !is(s->method, method), NW_E_ARGUMENT,
               "--codec-for '%s': %s has a memory and an optimizer of its own; give --method %s, and none for others",
               rule, method, method);
    char *pattern = strndup(rule, (size_t)(equals - rule));
    NW_FAIL_IF(!pattern, NW_E_MEMORY, "no memory for a pattern");
    *out = (nw_assign_rule){.pattern = pattern, .codec = *base};
    /* A name that lives as long as the program: one of the registry's. */
    set_method(&out->codec, method);
    for (int i = 0; i < nw_codec_kinds(); i++)
        if (is(nw_codec_at(i)->name, out->codec.name)) out->codec.name = nw_codec_at(i)->name;
    return equals[1 + length] == ':' ? set_number(rule, method, equals + 2 + length, &out->codec) : NW_OK;
}

static nw_status plan_rules(const nw_codec_settings *s, nw_assign_options *o)
{
    const nw_text_list *list = &s->codec_for;
    if (list->count == 0) return NW_OK;
    NW_NEW(o->rules, list->count, "%d rules", list->count);
    for (int i = 0; i < list->count; i++) {
        NW_TRY(plan_rule(s, list->at[i], &o->codec, &o->rules[i]));
        o->rule_count++;
    }
    return NW_OK;
}

/* ---- what is refused --------------------------------------------------------------------------------------------- */

static bool uses(const nw_assign_options *o, const char *codec)
{
    bool used = is(o->codec.name, codec);
    for (int i = 0; i < o->rule_count; i++) used |= is(o->rules[i].codec.name, codec);
    return used;
}

/* What is sent is Adam's momentum (memory.h). */
static bool sends_momentum(const nw_codec_settings *s) { return is(s->method, "onebit") || is(s->memory, "momentum"); }

static nw_status check_momentum(const nw_codec_settings *s, const nw_optimizer_settings *u)
{
    bool sends = sends_momentum(s), onebit = is(s->method, "onebit");
    const char *what = onebit ? "--method onebit" : "--memory momentum";
    NW_FAIL_IF(sends && !is(u->optimizer, "adam"), NW_E_ARGUMENT,
               "%s exchanges Adam's momentum, which --optimizer %s does not have; add --optimizer adam", what,
               u->optimizer);
    NW_FAIL_IF(sends && u->freeze_variance == 0, NW_E_ARGUMENT,
               "%s divides by Adam's variance, which must first be estimated from uncompressed gradients; set how many "
               "updates that takes with --freeze-variance",
               what);
    NW_FAIL_IF(!sends && u->freeze_variance > 0, NW_E_ARGUMENT,
               "--freeze-variance is for 1-bit Adam; add --method onebit or --memory momentum");
    return NW_OK;
}

static nw_status check_memory(const nw_codec_settings *s, bool served, const nw_assign_options *o)
{
    bool own = is(s->method, "dgc") || is(s->method, "onebit");
    NW_FAIL_IF(!is(s->memory, "none") && !nw_assign_compresses(o), NW_E_ARGUMENT,
               "--memory %s keeps what a method does not send, and there is none; add --method", s->memory);
    NW_FAIL_IF(own && !is(s->memory, "none"), NW_E_ARGUMENT, "--method %s has a memory of its own; leave --memory out",
               s->method);
    NW_FAIL_IF(served && is(s->memory, "ef21"), NW_E_ARGUMENT,
               "--memory ef21 estimates a mean over all workers, which a server never has; use --memory error");
    NW_FAIL_IF(served && sends_momentum(s), NW_E_ARGUMENT,
               "momentum is that of the mean over all workers, which a server never has; use --memory error with "
               "another method");
    return NW_OK;
}

/* Where parameters of two workers travel, not gradients of all. */
static nw_status check_pairs(const nw_codec_settings *s, const nw_assign_options *o)
{
    bool own = is(s->method, "dgc") || is(s->method, "onebit");
    NW_FAIL_IF(own, NW_E_ARGUMENT,
               "--method %s keeps momentum of gradients, and --exchange gossip sends parameters; use topk or sign", s->method);
    NW_FAIL_IF(!is(s->memory, "none"), NW_E_ARGUMENT,
               "--memory %s keeps what was not sent of gradients; with --exchange gossip nothing is lost, since two workers "
               "send how far they are from what they agreed on last: leave it out",
               s->memory);
    NW_FAIL_IF(uses(o, "powersgd"), NW_E_ARGUMENT,
               "powersgd takes means over all workers, and --exchange gossip averages in pairs; use topk, sign or int8");
    NW_FAIL_IF(uses(o, "randomk") && is(s->randomk_seed, "private"), NW_E_ARGUMENT,
               "--randomk-seed private: two workers that average must send the same entries; leave it out");
    NW_FAIL_IF(uses(o, "randomk") && s->scaled, NW_E_ARGUMENT,
               "--scaled would throw two workers that average apart; leave it out");
    return NW_OK;
}

static nw_status check_codecs(const nw_codec_settings *s, const char *exchange, const nw_assign_options *o)
{
    bool dgc = is(s->method, "dgc"), served = is(exchange, "server"), pairs = is(exchange, "gossip");
    NW_TRY(check_memory(s, served, o));
    if (pairs) NW_TRY(check_pairs(s, o));
    NW_FAIL_IF(!pairs && *exchange && uses(o, "modulo"), NW_E_ARGUMENT,
               "modulo sends the last bits of parameters, to a worker that has nearly the same; add --exchange gossip");
    NW_FAIL_IF(!uses(o, "modulo") && s->modulo_bits != USUAL_BITS, NW_E_ARGUMENT,
               "--modulo-bits is for --method modulo");
    NW_FAIL_IF(served && uses(o, "powersgd"), NW_E_ARGUMENT,
               "powersgd takes means over all workers, which come one by one to a server; use --exchange allreduce");
    NW_FAIL_IF(!dgc && (s->memory_clip_norm > 0 || s->memory_nesterov || s->memory_momentum >= 0), NW_E_ARGUMENT,
               "--memory-momentum, --memory-nesterov and --memory-clip-norm are dgc's; add --method dgc");
    NW_FAIL_IF(o->codec.warm_up.epochs > 0 && !uses(o, "topk"), NW_E_ARGUMENT,
               "--ratio-warm-up is for topk and dgc, whose ratio it lets fall");
    return NW_OK;
}

/* Momentum is that of the optimizer, unless DGC has its own. */
static nw_memory_options plan_memory(const nw_codec_settings *s, const nw_optimizer_settings *u)
{
    double momentum = u ? u->momentum : 0.9;
    if (sends_momentum(s))
        return (nw_memory_options){
            .name = "momentum", .momentum = u ? u->beta1 : 0.9, .freeze = u ? u->freeze_variance : 1};
    if (!is(s->method, "dgc")) return (nw_memory_options){.name = s->memory};
    return (nw_memory_options){.name = "dgc",
                               .momentum = s->memory_momentum < 0 ? momentum : s->memory_momentum,
                               .nesterov = s->memory_nesterov,
                               .masking = s->momentum_masking,
                               .clip_norm = s->memory_clip_norm};
}

nw_status nw_plan_codecs(const nw_codec_settings *s, const char *exchange, const nw_optimizer_settings *update,
                         uint64_t seed, nw_assign_options *o)
{
    *o = (nw_assign_options){0};
    NW_TRY(plan_options(s, exchange, seed, &o->codec));
    set_method(&o->codec, s->method);
    o->dense_below = s->dense_below;
    o->dense_vectors = is(s->method, "dgc");
    o->scope = is(s->compress, "entiremodel") ? NW_SCOPE_MODEL
               : is(s->compress, "bucket")    ? NW_SCOPE_BUCKET
                                              : NW_SCOPE_LAYER;
    o->collective = is(s->collective, "gather")   ? NW_COLLECTIVE_GATHER
                    : is(s->collective, "owners") ? NW_COLLECTIVE_OWNERS
                                                  : NW_COLLECTIVE_AUTO;
    o->memory = plan_memory(s, update);
    NW_TRY(plan_rules(s, o));
    if (update) NW_TRY(check_momentum(s, update));
    return check_codecs(s, exchange, o);
}

void nw_plan_codecs_free(nw_assign_options *o)
{
    for (int i = 0; i < o->rule_count; i++) free((char *)o->rules[i].pattern);
    free(o->rules);
    *o = (nw_assign_options){0};
}

void nw_plan_codecs_describe(const nw_codec_settings *c, char *text, size_t size)
{
    bool ratio = is(c->method, "topk") || is(c->method, "randomk") || is(c->method, "dgc");
    char number[32] = "";
    if (ratio) snprintf(number, sizeof number, " %g", c->ratio);
    snprintf(text, size, "%s%s%s%s%s%s", is(c->method, "none") ? "f32" : c->method, number,
             is(c->compress, "none") ? "" : " ", is(c->compress, "none") ? "" : c->compress,
             is(c->memory, "none") ? "" : ", memory ", is(c->memory, "none") ? "" : c->memory);
}

/* The table; and whether the memory may be used with these codecs. */
static nw_status print_assignment(const nw_train_options *s, const nw_assign_options *o, FILE *out)
{
    NW_CLEANUP(nw_net_autofree) nw_net *net = NULL;
    NW_CLEANUP(nw_assign_free) nw_assignment assignment = {0};
    NW_CLEANUP(nw_layout_free) nw_layout layout = {0};
    nw_net_options options = nw_plan_net_alone(&s->all, &s->net, 1);
    options.classes = s->net.classes ? s->net.classes : 10;
    if (s->net.image_size) options.height = options.width = s->net.image_size;
    NW_TRY(nw_net_create(&net, &options));
    const nw_segments *segments = &net->model.params.learned;
    NW_TRY(nw_assign_make(&assignment, o, segments));
    nw_assign_print(&assignment, o->scope, segments, "# ", out);
    nw_layout_options l = {.segments = segments, .cuts = 1};
    nw_assign_fill(&assignment, o, &l);
    NW_TRY(nw_layout_make(&layout, &l));
    return nw_layout_check_memory(&layout, &o->memory);
}

nw_status nw_plan_codecs_print(const nw_train_options *s, FILE *out)
{
    NW_CLEANUP(nw_plan_codecs_free) nw_assign_options o = {0};
    NW_TRY(nw_plan_codecs(&s->codec, s->world.exchange, &s->update, (uint64_t)s->all.seed, &o));
    return nw_assign_compresses(&o) ? print_assignment(s, &o, out) : NW_OK;
}
