/* assign.c - see assign.h. */
#include "channel/assign.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool nw_assign_compresses(const nw_assign_options *o)
{
    bool some = o->codec.name && strcmp(o->codec.name, "none") != 0;
    for (int i = 0; i < o->rule_count; i++) some |= strcmp(o->rules[i].codec.name, "none") != 0;
    return some;
}

/* Which codec a tensor has: the index of a rule of --codec-for, OF_ALL (that of --method), or DENSE (none). */
enum { OF_ALL = -1, DENSE = -2 };
static int find_rule(const nw_assign_options *o, const nw_segment *s)
{
    for (int i = o->rule_count - 1; i >= 0; i--)
        if (fnmatch(o->rules[i].pattern, s->name, 0) == 0) return i;
    bool dense = (int64_t)s->count < o->dense_below || (o->dense_vectors && s->dims < 2);
    return dense ? DENSE : OF_ALL;
}

/* Whether two sets of options mean the same codec. Options that are not compared are equal for all tensors of a run. */
static bool is_same(const nw_codec_options *a, const nw_codec_options *b)
{
    return strcmp(a->name, b->name) == 0 && a->ratio == b->ratio && a->counting == b->counting &&
           a->threshold == b->threshold && a->levels == b->levels && a->rank == b->rank;
}

/* Finds the codec with these options, or creates it. */
static nw_status find_codec(nw_assignment *c, const nw_codec_options *o, const nw_codec **codec)
{
    for (int i = 0; i < c->codec_count; i++) {
        *codec = c->codecs[i];
        bool none = (*codec)->exact && strcmp(o->name, (*codec)->options.name) == 0;
        if (none || is_same(&(*codec)->options, o)) return NW_OK;
    }
    NW_TRY(nw_codec_create(&c->codecs[c->codec_count], o));
    *codec = c->codecs[c->codec_count++];
    return NW_OK;
}

/* Whether the codec makes this tensor smaller: low-rank factors of a small matrix would not. */
static bool is_for(const nw_codec *codec, nw_scope scope, const nw_segment *s)
{
    size_t rows = s->dims > 1 ? (size_t)s->shape[0] : 1;
    return scope != NW_SCOPE_LAYER || !codec->ops->gains || codec->ops->gains(codec, rows, s->count);
}

static nw_status choose_codecs(nw_assignment *c, const nw_assign_options *o, const nw_segments *s, bool *used)
{
    nw_codec_options none = nw_codec_options_default("none");
    const nw_codec *codec;
    NW_TRY(find_codec(c, &none, &codec));
    for (int i = 0; i < s->count; i++) {
        int rule = find_rule(o, &s->at[i]);
        const nw_codec_options *wanted = rule >= 0                         ? &o->rules[rule].codec
                                         : rule == DENSE || !o->codec.name ? &none
                                                                           : &o->codec;
        NW_TRY(find_codec(c, wanted, &c->of[i]));
        if (!is_for(c->of[i], o->scope, &s->at[i])) c->of[i] = c->codecs[0];
        for (int r = 0; r < o->rule_count; r++) used[r] |= fnmatch(o->rules[r].pattern, s->at[i].name, 0) == 0;
    }
    return NW_OK;
}

static nw_status make_assignment(nw_assignment *c, const nw_assign_options *o, const nw_segments *s)
{
    NW_AUTOFREE bool *used = NULL;
    NW_NEW(used, o->rule_count + 1, "%d rules", o->rule_count);
    NW_NEW(c->codecs, o->rule_count + 2, "codecs of %d rules", o->rule_count);
    NW_NEW(c->of, s->count + 1, "codecs of %d tensors", s->count);
    NW_TRY(choose_codecs(c, o, s, used));
    for (int r = 0; r < o->rule_count; r++)
        NW_FAIL_IF(
            !used[r], NW_E_ARGUMENT,
            "--codec-for '%s=...' matches no tensor; they are called %s, ..., %s ('nowait help config' lists all)",
            o->rules[r].pattern, s->at[0].name, s->at[s->count - 1].name);
    return NW_OK;
}

nw_status nw_assign_make(nw_assignment *assignment, const nw_assign_options *options, const nw_segments *segments)
{
    *assignment = (nw_assignment){0};
    NW_TRY_OR(make_assignment(assignment, options, segments), nw_assign_free(assignment));
    return NW_OK;
}

void nw_assign_free(nw_assignment *c)
{
    for (int i = 0; i < c->codec_count; i++) nw_codec_free(c->codecs[i]);
    free(c->codecs);
    free(c->of);
    *c = (nw_assignment){0};
}

void nw_assign_fill(const nw_assignment *assignment, const nw_assign_options *o, nw_layout_options *layout)
{
    layout->codec = assignment->codecs[0];
    layout->codecs = assignment->of;
    layout->scope = o->scope;
    layout->collective = o->collective;
}

void nw_assign_name(const nw_codec *codec, char *text, size_t size)
{
    const nw_codec_options *o = &codec->options;
    if (strcmp(o->name, "topk") == 0 || strcmp(o->name, "randomk") == 0)
        snprintf(text, size, "%s %g", o->name, o->ratio);
    else if (strcmp(o->name, "thresholdv") == 0)
        snprintf(text, size, "%s %g", o->name, o->threshold);
    else if (strcmp(o->name, "qsgd") == 0)
        snprintf(text, size, "%s %d levels", o->name, o->levels);
    else if (strcmp(o->name, "modulo") == 0)
        snprintf(text, size, "%s %d bits", o->name, o->bits);
    else if (strcmp(o->name, "powersgd") == 0)
        snprintf(text, size, "%s rank %d", o->name, o->rank);
    else
        snprintf(text, size, "%s", o->name);
}

void nw_assign_print(const nw_assignment *a, nw_scope scope, const nw_segments *s, const char *before, FILE *out)
{
    static const char *const chosen_of[] = {"", "of its bucket", "of the model"}; /* by scope */
    fprintf(out, "%s%-40s %12s  %-24s %s\n", before, "tensor", "floats", "codec", "entries");
    for (int i = 0; i < s->count; i++) {
        const nw_codec *codec = a->of[i];
        char name[64], entries[32] = "all";
        nw_assign_name(codec, name, sizeof name);
        uint64_t sent = nw_mode_entries(codec, s->at[i].count);
        bool thresholds = strncmp(name, "threshold", 9) == 0 || strncmp(name, "adaptive", 8) == 0;
        if (sent < s->at[i].count && scope != NW_SCOPE_LAYER)
            snprintf(entries, sizeof entries, "%s", chosen_of[scope]);
        else if (sent < s->at[i].count)
            snprintf(entries, sizeof entries, "%s%llu", thresholds ? "about " : "", (unsigned long long)sent);
        fprintf(out, "%s%-40s %12zu  %-24s %s\n", before, s->at[i].name, s->at[i].count, codec->exact ? "dense" : name,
                entries);
    }
}
