/*
 * expression.c - derived values of a composed tree: $train.num_epochs - $train.warmup_lr_epochs.
 *
 *   sum     = product (('+' | '-') product)*
 *   product = factor (('*' | '/') factor)*
 *   factor  = number | '$' key | '-' factor | '(' sum ')'
 *
 * A value that is one reference alone takes over whatever is there, a text or list included; arithmetic wants numbers.
 * A key that depends on itself is an error. Depth is limited, of brackets as of references.
 */
#include "cli/compose.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BRACKETS = 32, REFERENCES = 64 };

typedef struct parser {
    nw_region *region;
    nw_key *root, *key;
    const char *at;
    int depth;
    int references; /* how many keys deep */
} parser;

static nw_status evaluate(nw_region *region, nw_key *root, nw_key *key, int references);
static nw_status read_sum(parser *p, double *value);

static nw_status fail(const parser *p, const char *what)
{
    return NW_FAIL(NW_E_FILE, "%s: %s: %s in '%s', at '%s'", p->key->where, nw_key_path(p->region, p->key), what,
                   p->key->text, p->at);
}

static void skip_spaces(parser *p)
{
    while (*p->at == ' ') p->at++;
}

/* The key behind a '$', evaluated. */
static nw_status read_reference(parser *p, nw_key **target)
{
    size_t length = 0;
    char path[256];
    p->at++;
    while (isalnum((unsigned char)p->at[length]) || p->at[length] == '_' || p->at[length] == '.') length++;
    if (length == 0 || length >= sizeof path) return fail(p, "a name must follow the $");
    snprintf(path, sizeof path, "%.*s", (int)length, p->at);
    *target = nw_key_find(p->root, path);
    NW_FAIL_IF(!*target, NW_E_FILE, "%s: %s refers to %s, which is not set", p->key->where,
               nw_key_path(p->region, p->key), path);
    p->at += length;
    return evaluate(p->region, p->root, *target, p->references + 1);
}

static nw_status read_factor(parser *p, double *value)
{
    skip_spaces(p);
    char *end;
    if (++p->depth > BRACKETS) return fail(p, "too many brackets or signs");
    if (*p->at == '-') {
        p->at++;
        NW_TRY(read_factor(p, value));
        *value = -*value;
    } else if (*p->at == '(') {
        p->at++;
        NW_TRY(read_sum(p, value));
        if (*p->at != ')') return fail(p, "a bracket is not closed");
        p->at++;
    } else if (*p->at == '$') {
        nw_key *target;
        NW_TRY(read_reference(p, &target));
        *value = target->kind == NW_YAML_SCALAR ? strtod(target->text, &end) : 0;
        if (target->kind != NW_YAML_SCALAR || end == target->text || *end || !isfinite(*value))
            return NW_FAIL(NW_E_FILE, "%s: %s computes with %s, which is no number but '%s' (%s)", p->key->where,
                           nw_key_path(p->region, p->key), nw_key_path(p->region, target), target->text, target->where);
    } else {
        *value = strtod(p->at, &end);
        if (end == p->at || !isdigit((unsigned char)end[-1]) || !isfinite(*value))
            return fail(p, "a number or $key is expected");
        p->at = end;
    }
    p->depth--;
    skip_spaces(p);
    return NW_OK;
}

static nw_status read_product(parser *p, double *value)
{
    NW_TRY(read_factor(p, value));
    while (*p->at == '*' || *p->at == '/') {
        char sign = *p->at++;
        double right;
        NW_TRY(read_factor(p, &right));
        if (sign == '/' && right == 0) return fail(p, "a division by zero");
        *value = sign == '*' ? *value * right : *value / right;
    }
    return NW_OK;
}

static nw_status read_sum(parser *p, double *value)
{
    NW_TRY(read_product(p, value));
    while (*p->at == '+' || *p->at == '-') {
        char sign = *p->at++;
        double right;
        NW_TRY(read_product(p, &right));
        *value = sign == '+' ? *value + right : *value - right;
    }
    return NW_OK;
}

/* A value that is nothing but one reference. */
static nw_status take_over(parser *p, bool *taken)
{
    const char *text = p->key->text + strspn(p->key->text, " ");
    *taken = *text == '$' &&
             strspn(text + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") == strlen(text + 1);
    if (!*taken) return NW_OK;
    nw_key *target;
    p->at = text;
    NW_TRY(read_reference(p, &target));
    NW_FAIL_IF(target->kind == NW_YAML_MAP, NW_E_FILE, "%s: %s refers to %s, which is a group of keys and no value",
               p->key->where, nw_key_path(p->region, p->key), nw_key_path(p->region, target));
    p->key->kind = target->kind;
    p->key->text = target->text;
    p->key->null = target->null;
    p->key->first = target->first;
    p->key->last = target->last;
    return NW_OK;
}

static nw_status evaluate(nw_region *region, nw_key *root, nw_key *key, int references)
{
    NW_FAIL_IF(key->state == 1 || references > REFERENCES, NW_E_FILE,
               "%s: %s depends on itself; break the circle with a number", key->where, nw_key_path(region, key));
    if (key->state == 2 || key->kind == NW_YAML_MAP) return NW_OK;
    key->state = 1;
    for (nw_key *item = key->first; item; item = item->next) NW_TRY(evaluate(region, root, item, references + 1));
    if (key->kind == NW_YAML_SCALAR && !key->quoted && strchr(key->text, '$')) {
        parser p = {region, root, key, key->text, 0, references};
        bool taken;
        NW_TRY(take_over(&p, &taken));
        if (!taken) {
            double value;
            NW_TRY(read_sum(&p, &value));
            if (*p.at) return fail(&p, "something is left over");
            if (!isfinite(value)) return fail(&p, "the result is no finite number");
            char text[32];
            nw_number_print(value, text);
            key->text = nw_region_text(region, text, strlen(text));
            NW_TRY_MEMORY(key->text);
        }
    }
    key->state = 2;
    return NW_OK;
}

nw_status nw_key_evaluate(nw_region *region, nw_key *root, nw_key *key) { return evaluate(region, root, key, 0); }
