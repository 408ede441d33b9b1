/*
 * yaml.h - YAML files as a small tree, read with libyaml from bytes that are not trusted.
 *
 * Only the plain part of YAML is taken: maps, lists and scalars. Anchors, aliases and tags are refused (they can make a
 * small file large), so are a second document, keys that are no scalars, equal keys in one map, zero bytes, and
 * whatever exceeds the limits below. Every failure is NW_E_FILE and names file, line and column. Scalars stay text;
 * nobody guesses types.
 */
#ifndef NW_CONFIG_YAML_H
#define NW_CONFIG_YAML_H

#include "config/bump.h"

enum { NW_YAML_BYTES = 1 << 20, NW_YAML_DEPTH = 16, NW_YAML_NODES = 20000, NW_YAML_KEYS = 512 };

typedef enum nw_yaml_kind { NW_YAML_SCALAR, NW_YAML_LIST, NW_YAML_MAP } nw_yaml_kind;

typedef struct nw_yaml {
    nw_yaml_kind kind;
    const char *key;  /* in a map; else NULL */
    const char *text; /* of a scalar */
    bool quoted;
    int line, column; /* of the key in a map, else of the value; from 1 */
    int count;        /* children */
    struct nw_yaml *first, *last, *next;
} nw_yaml;

/* The nodes live in the region. An empty document is a map without keys. `name` is for messages. */
nw_status nw_yaml_parse(const char *name, const void *data, size_t size, nw_bump *region, nw_yaml **root);
nw_status nw_yaml_read(const char *path, nw_bump *region, nw_yaml **root);

nw_yaml *nw_yaml_find(const nw_yaml *map, const char *key); /* NULL: none */
/* An unquoted scalar that says nothing: empty, ~, null, None. */
bool nw_yaml_is_null(const nw_yaml *node);

#endif
