/* yaml_get.c - typed values of maps; see yaml_get.h. */
#include "config/yaml_get.h"

#include "base/suggest.h"

#include <string.h>

nw_status nw_yaml_check_map(const char *file, const nw_yaml *node, const char *what, const char *const *keys, int count)
{
    NW_YAML_FAIL_IF(node->kind != NW_YAML_MAP, file, node, "%s is a map of keys and values; its keys are '%s', ...",
                    what, keys[0]);
    for (const nw_yaml *k = node->first; k; k = k->next) {
        bool known = false;
        for (int i = 0; i < count && !known; i++) known = strcmp(k->key, keys[i]) == 0;
        NW_YAML_FAIL_IF(!known, file, k, "%s has no key '%.60s'%s", what, k->key,
                        nw_suggest(k->key, keys, count, "").text);
        NW_YAML_FAIL_IF(nw_yaml_is_null(k), file, k, "'%s' has no value; give one or remove the line", k->key);
    }
    return NW_OK;
}

nw_status nw_yaml_scalar(const char *file, const nw_yaml *node, const char *what, const char **text)
{
    NW_YAML_FAIL_IF(node->kind != NW_YAML_SCALAR || !*node->text, file, node, "'%s' takes one plain value, not %s",
                    what,
                    node->kind == NW_YAML_LIST  ? "a list"
                    : node->kind == NW_YAML_MAP ? "a map"
                                                : "an empty text");
    *text = node->text;
    return NW_OK;
}

nw_status nw_yaml_get_list(const char *file, const nw_yaml *map, const char *key, const nw_yaml **list)
{
    *list = nw_yaml_find(map, key);
    if (!*list) return NW_OK;
    NW_YAML_FAIL_IF((*list)->kind != NW_YAML_LIST || (*list)->count == 0, file, *list,
                    "'%s' takes a list that is not empty; begin each item with '- ', or remove the key", key);
    return NW_OK;
}

static nw_status find_scalar(const char *file, const nw_yaml *map, const char *key, const nw_yaml **node)
{
    const char *text;
    *node = nw_yaml_find(map, key);
    return *node ? nw_yaml_scalar(file, *node, key, &text) : NW_OK;
}

/* Finds the scalar `node`, and turns what `convert` complains of into a failure. */
#define GET(convert)                                                \
    do {                                                            \
        const nw_yaml *node;                                        \
        nw_complaint complaint;                                     \
        NW_TRY(find_scalar(file, map, key, &node));                 \
        const char *wrong = node ? (convert) : NULL;                \
        NW_YAML_FAIL_IF(wrong, file, node, "'%s': %s", key, wrong); \
        return NW_OK;                                               \
    } while (0)

nw_status nw_yaml_get_text(const char *file, const nw_yaml *map, const char *key, const char **value)
{
    const nw_yaml *node;
    NW_TRY(find_scalar(file, map, key, &node));
    if (node) *value = node->text;
    return NW_OK;
}

nw_status nw_yaml_get_int(const char *file, const nw_yaml *map, const char *key, int64_t least, int64_t most,
                          int64_t *value)
{
    GET(nw_units_int(node->text, least, most, value, &complaint));
}

nw_status nw_yaml_get_number(const char *file, const nw_yaml *map, const char *key, double least, double most,
                             double *value)
{
    GET(nw_units_number(node->text, least, most, value, &complaint));
}

nw_status nw_yaml_get_time(const char *file, const nw_yaml *map, const char *key, int64_t *value)
{
    GET(nw_units_time(node->text, value, &complaint));
}

nw_status nw_yaml_get_bandwidth(const char *file, const nw_yaml *map, const char *key, double *value)
{
    GET(nw_units_bandwidth(node->text, value, &complaint));
}

nw_status nw_yaml_get_factor(const char *file, const nw_yaml *map, const char *key, double *value)
{
    GET(nw_units_factor(node->text, value, &complaint));
}

nw_status nw_yaml_get_noise(const char *file, const nw_yaml *map, const char *key, int64_t latency_ns, nw_noise *value)
{
    GET(nw_units_noise(node->text, latency_ns, value, &complaint));
}

nw_status nw_yaml_get_bool(const char *file, const nw_yaml *map, const char *key, bool *value)
{
    const nw_yaml *node;
    NW_TRY(find_scalar(file, map, key, &node));
    if (!node) return NW_OK;
    *value = strcmp(node->text, "true") == 0;
    NW_YAML_FAIL_IF(!*value && strcmp(node->text, "false") != 0, file, node, "'%s' is true or false, not '%.60s'", key,
                    node->text);
    return NW_OK;
}

static nw_status fill_one(const char *file, const nw_yaml *map, const nw_yaml_field *f, void *to)
{
    switch (f->type) {
    case NW_YAML_TEXT:
        return nw_yaml_get_text(file, map, f->key, to);
    case NW_YAML_INT:
        return nw_yaml_get_int(file, map, f->key, 0, 1000000000, to);
    case NW_YAML_NUMBER:
        return nw_yaml_get_number(file, map, f->key, -1e12, 1e12, to);
    case NW_YAML_BOOL:
        return nw_yaml_get_bool(file, map, f->key, to);
    case NW_YAML_ITEMS:
        return nw_yaml_get_list(file, map, f->key, to);
    case NW_YAML_KEYS_OF:
        break;
    }
    const nw_yaml *node = nw_yaml_find(map, f->key);
    NW_YAML_FAIL_IF(node->kind != NW_YAML_MAP, file, node, "'%s' is a map of keys and values", f->key);
    *(const nw_yaml **)to = node;
    return NW_OK;
}

nw_status nw_yaml_fill(const char *file, const nw_yaml *node, const char *what, const nw_yaml_field *fields, int count,
                       void *to)
{
    enum { MOST_KEYS = 32 };
    const char *keys[MOST_KEYS] = {0};
    NW_FAIL_IF(count > MOST_KEYS, NW_E_INTERNAL, "%s has more than %d keys", what, MOST_KEYS);
    for (int i = 0; i < count; i++) keys[i] = fields[i].key;
    NW_TRY(nw_yaml_check_map(file, node, what, keys, count));
    for (int i = 0; i < count; i++) {
        bool there = nw_yaml_find(node, keys[i]) != NULL;
        NW_YAML_FAIL_IF(!there && fields[i].needed, file, node, "%s needs a key '%s'", what, keys[i]);
        if (there) NW_TRY(fill_one(file, node, &fields[i], (char *)to + fields[i].offset));
    }
    return NW_OK;
}
