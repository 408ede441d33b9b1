/*
 * yaml_get.h - values of a map of a YAML tree, with their types and units, for files that have a fixed set of keys.
 *
 * Each function leaves *value alone where the key is missing. A value of a wrong kind or out of range is NW_E_FILE and
 * names file, line and key. `file` is for messages.
 */
#ifndef NW_CONFIG_YAML_GET_H
#define NW_CONFIG_YAML_GET_H

#include "config/units.h"
#include "config/yaml.h"

#define NW_YAML_FAIL(file, node, format, ...) NW_FAIL(NW_E_FILE, "%s:%d: " format, file, (node)->line, ##__VA_ARGS__)
#define NW_YAML_FAIL_IF(condition, file, node, format, ...)                    \
    do {                                                                       \
        if (condition) return NW_YAML_FAIL(file, node, format, ##__VA_ARGS__); \
    } while (0)

/* That `node` is a map, which has these keys only, each with a value. `what` names it: "a node". */
nw_status nw_yaml_check_map(const char *file, const nw_yaml *node, const char *what, const char *const *keys,
                            int count);
/* A list that is not empty; *list is NULL where the key is missing. */
nw_status nw_yaml_get_list(const char *file, const nw_yaml *map, const char *key, const nw_yaml **list);

nw_status nw_yaml_get_text(const char *file, const nw_yaml *map, const char *key, const char **value);
nw_status nw_yaml_get_int(const char *file, const nw_yaml *map, const char *key, int64_t least, int64_t most,
                          int64_t *value);
nw_status nw_yaml_get_number(const char *file, const nw_yaml *map, const char *key, double least, double most,
                             double *value);
nw_status nw_yaml_get_time(const char *file, const nw_yaml *map, const char *key, int64_t *value);
nw_status nw_yaml_get_bandwidth(const char *file, const nw_yaml *map, const char *key, double *value);
nw_status nw_yaml_get_factor(const char *file, const nw_yaml *map, const char *key, double *value);
nw_status nw_yaml_get_noise(const char *file, const nw_yaml *map, const char *key, int64_t latency_ns, nw_noise *value);
nw_status nw_yaml_get_bool(const char *file, const nw_yaml *map, const char *key, bool *value);

/* A whole map at once: where each key goes in a struct, whose fields keep what they have where the key is missing. */
typedef enum nw_yaml_type {
    NW_YAML_TEXT,   /* const char * */
    NW_YAML_INT,    /* int64_t, from 0 to 10^9 */
    NW_YAML_NUMBER, /* double, up to 10^12 */
    NW_YAML_BOOL,   /* bool */
    NW_YAML_ITEMS,  /* const nw_yaml *: a list that is not empty */
    NW_YAML_KEYS_OF /* const nw_yaml *: a map */
} nw_yaml_type;

typedef struct nw_yaml_field {
    const char *key;
    nw_yaml_type type;
    size_t offset;
    bool needed;
} nw_yaml_field;

#define NW_YAML_FILL(file, node, what, fields, to) \
    nw_yaml_fill(file, node, what, fields, (int)(sizeof(fields) / sizeof(fields)[0]), to)

nw_status nw_yaml_fill(const char *file, const nw_yaml *node, const char *what, const nw_yaml_field *fields, int count,
                       void *to);

/* The text of a scalar that says something. */
nw_status nw_yaml_scalar(const char *file, const nw_yaml *node, const char *what, const char **text);

#endif
