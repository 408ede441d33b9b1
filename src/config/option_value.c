/*
 * option_value.c - from the text of a value to its type, checked, and back to one canonical text.
 *
 * Words of a choice are compared without regard to case, dashes and underscores: CINIC-10 is cinic10. Numbers must be
 * finite and used up to the last character. Lists take commas, spaces and newlines between numbers; texts of a list are
 * separated by newlines, and by commas where the option says so (least == 1).
 */
#include "config/settings.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct reading {
    const nw_option *option;
    const char *where, *name, *text;
    nw_status status;
    nw_bump *region;
} reading;

bool nw_text_is_bool(const char *text, bool *value)
{
    static const char *const words[2][4] = {{"false", "no", "0", "off"}, {"true", "yes", "1", "on"}};
    for (int v = 0; v < 2; v++)
        for (int i = 0; i < 4; i++)
            if (strcasecmp(text, words[v][i]) == 0) {
                *value = v == 1;
                return true;
            }
    return false;
}

void nw_number_print(double value, char text[32])
{
    if (fabs(value) < 1e15 && value == floor(value)) {
        snprintf(text, 32, "%.0f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, 32, "%.*g", digits, value);
        if (strtod(text, NULL) == value) break;
    }
    /* YAML wants a point in a number with an exponent. */
    char *e = strchr(text, 'e');
    if (e && !strchr(text, '.') && strlen(text) < 29) {
        memmove(e + 2, e, strlen(e) + 1);
        e[0] = '.';
        e[1] = '0';
    }
}

const char *nw_choice_find(const char *choices, const char *text)
{
    for (const char *c = choices; *c && *text; c += *c == '|') {
        c += *c == '~';
        for (const char *at = c;; at++) {
            size_t one = strcspn(at, "|=");
            if (nw_name_same_part(text, at, one)) return c;
            at += one;
            if (*at != '=') break;
        }
        c += strcspn(c, "|");
    }
    return NULL;
}

void nw_option_words(const nw_option *o, char separator, char text[NW_WORDS_MOST])
{
    size_t used = 0;
    bool choice = o->kind == NW_OPTION_CHOICE;
    for (const char *c = o->values ? o->values : ""; *c && used + 2 < NW_WORDS_MOST; c += *c == '|') {
        size_t all = strcspn(c, "|"), shown = choice ? strcspn(c, "|=") : all;
        if (*c != '~' || !choice) {
            if (used) text[used++] = separator;
            used += (size_t)snprintf(text + used, NW_WORDS_MOST - used, "%.*s", (int)shown, c);
        }
        c += all;
    }
    text[used < NW_WORDS_MOST ? used : NW_WORDS_MOST - 1] = 0;
}

static nw_status read_choice(const reading *r, const char **value)
{
    char words[NW_WORDS_MOST];
    const char *word = nw_choice_find(r->option->values, r->text);
    nw_option_words(r->option, '|', words);
    NW_FAIL_IF(!word, r->status, "%s%s is %s, not '%s'", r->where, r->name, words, r->text);
    *value = nw_bump_text(r->region, word, strcspn(word, "|="));
    NW_TRY_MEMORY(*value);
    return NW_OK;
}

static nw_status check_range(const reading *r, double value, const char *text)
{
    const nw_option *o = r->option;
    if (value >= o->least && value <= o->most) return NW_OK;
    char least[32], most[32];
    nw_number_print(o->least, least);
    nw_number_print(o->most, most);
    return NW_FAIL(r->status, "%s%s is %s; it must be %s to %s", r->where, r->name, text, least, most);
}

static nw_status read_whole(const reading *r, const char *text, int64_t *value)
{
    char *end;
    errno = 0;
    *value = strtoll(text, &end, 10);
    NW_FAIL_IF(end == text || *end || isspace((unsigned char)*text), r->status, "%s%s takes a whole number, not '%s'",
               r->where, r->name, text);
    return check_range(r, errno ? (*text == '-' ? -1e30 : 1e30) : (double)*value, text);
}

static nw_status read_number(const reading *r, const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    NW_FAIL_IF(end == text || *end || isspace((unsigned char)*text) || !isfinite(*value), r->status,
               "%s%s takes a number, not '%s'", r->where, r->name, text);
    return check_range(r, *value, text);
}

/* The items of the text, cut at any of `separators`; empty ones are left out. */
static nw_status split(const reading *r, const char *separators, nw_text_list *list)
{
    const char *text = r->text;
    int count = 0;
    for (const char *t = text + strspn(text, separators); *t; t += strspn(t, separators)) {
        t += strcspn(t, separators);
        count++;
    }
    const char **at = nw_bump_alloc(r->region, (size_t)count * sizeof *at);
    NW_TRY_MEMORY(at);
    count = 0;
    for (const char *t = text + strspn(text, separators); *t; t += strspn(t, separators)) {
        size_t length = strcspn(t, separators);
        at[count] = nw_bump_text(r->region, t, length);
        NW_TRY_MEMORY(at[count++]);
        t += length;
    }
    *list = (nw_text_list){.count = count, .at = at};
    return NW_OK;
}

static nw_status read_list(const reading *r, const nw_text_list *items, void *field)
{
    size_t count = (size_t)items->count;
    if (r->option->kind == NW_OPTION_INTS) {
        int *at = nw_bump_alloc(r->region, count * sizeof *at);
        NW_TRY_MEMORY(at);
        for (size_t i = 0; i < count; i++) {
            int64_t value;
            NW_TRY(read_whole(r, items->at[i], &value));
            at[i] = (int)value;
        }
        if (field) *(nw_int_list *)field = (nw_int_list){items->count, at};
    } else if (r->option->kind == NW_OPTION_NUMBERS) {
        double *at = nw_bump_alloc(r->region, count * sizeof *at);
        NW_TRY_MEMORY(at);
        for (size_t i = 0; i < count; i++) NW_TRY(read_number(r, items->at[i], &at[i]));
        if (field) *(nw_number_list *)field = (nw_number_list){items->count, at};
    } else if (field) {
        *(nw_text_list *)field = *items;
    }
    return NW_OK;
}

static nw_status read_knots(const reading *r, const nw_text_list *items, void *field)
{
    nw_knot *at = nw_bump_alloc(r->region, (size_t)items->count * sizeof *at);
    NW_TRY_MEMORY(at);
    for (int i = 0; i < items->count; i++) {
        char x[64];
        const char *colon = strchr(items->at[i], ':');
        NW_FAIL_IF(!colon || colon - items->at[i] >= (long)sizeof x, r->status,
                   "%s%s takes pairs as in 0:0,5:0.4,24:0, not '%s'", r->where, r->name, items->at[i]);
        snprintf(x, sizeof x, "%.*s", (int)(colon - items->at[i]), items->at[i]);
        NW_TRY(read_number(r, x, &at[i].x));
        NW_TRY(read_number(r, colon + 1, &at[i].y));
        NW_FAIL_IF(i > 0 && at[i].x <= at[i - 1].x, r->status, "%s%s must have growing epochs, but %s follows %s",
                   r->where, r->name, items->at[i], items->at[i - 1]);
    }
    if (field) *(nw_knots *)field = (nw_knots){items->count, at};
    return NW_OK;
}

static nw_status join(nw_bump *region, const nw_text_list *items, char separator, const char **text)
{
    size_t length = 1;
    for (int i = 0; i < items->count; i++) length += strlen(items->at[i]) + 1;
    char *to = nw_bump_alloc(region, length);
    NW_TRY_MEMORY(to);
    *text = to;
    for (int i = 0; i < items->count; i++) {
        if (i) *to++ = separator;
        size_t n = strlen(items->at[i]);
        memcpy(to, items->at[i], n);
        to += n;
    }
    return NW_OK;
}

static nw_status read_scalar(const reading *r, void *field, const char **canonical)
{
    int64_t whole;
    double number;
    char text[32];
    if (r->option->kind == NW_OPTION_NUMBER) {
        NW_TRY(read_number(r, r->text, &number));
        if (field) *(double *)field = number;
        nw_number_print(number, text);
    } else {
        NW_TRY(read_whole(r, r->text, &whole));
        if (field && r->option->kind == NW_OPTION_INT) *(int *)field = (int)whole;
        if (field && r->option->kind == NW_OPTION_INT64) *(int64_t *)field = whole;
        snprintf(text, sizeof text, "%lld", (long long)whole);
    }
    *canonical = nw_bump_text(r->region, text, strlen(text));
    NW_TRY_MEMORY(*canonical);
    return NW_OK;
}

nw_status nw_option_read(const nw_option *o, const char *where, const char *name, const char *text, nw_status status,
                         nw_bump *region, void *field, const char **canonical)
{
    reading r = {o, where, name, text, status, region};
    bool value = false, automatic = o->kind == NW_OPTION_SWITCH && strcasecmp(text, "auto") == 0;
    nw_text_list items;
    switch (o->kind) {
    case NW_OPTION_FLAG:
    case NW_OPTION_SWITCH:
        NW_FAIL_IF(!automatic && !nw_text_is_bool(text, &value), status, "%s%s takes true or false, not '%s'", where,
                   name, text);
        if (field && o->kind == NW_OPTION_FLAG) *(bool *)field = value;
        if (field && o->kind == NW_OPTION_SWITCH)
            *(int *)field = automatic ? NW_SWITCH_AUTO : value ? NW_SWITCH_ON : NW_SWITCH_OFF;
        *canonical = automatic ? "auto" : value ? "true" : "false";
        return NW_OK;
    case NW_OPTION_TEXT:
    case NW_OPTION_CHOICE:
        if (o->kind == NW_OPTION_CHOICE)
            NW_TRY(read_choice(&r, canonical));
        else
            *canonical = nw_bump_text(region, text, strlen(text));
        NW_TRY_MEMORY(*canonical);
        if (field) *(const char **)field = *canonical;
        return NW_OK;
    case NW_OPTION_INTS:
    case NW_OPTION_NUMBERS:
    case NW_OPTION_KNOTS:
        NW_TRY(split(&r, ", \n", &items));
        NW_TRY(o->kind == NW_OPTION_KNOTS ? read_knots(&r, &items, field) : read_list(&r, &items, field));
        return join(region, &items, ',', canonical);
    case NW_OPTION_TEXTS:
        NW_TRY(split(&r, o->least == 1 ? ",\n" : "\n", &items));
        NW_TRY(join(region, &items, '\n', canonical));
        items.lines = *canonical;
        return read_list(&r, &items, field);
    case NW_OPTION_INT:
    case NW_OPTION_INT64:
    case NW_OPTION_NUMBER:
        break;
    }
    return read_scalar(&r, field, canonical);
}
