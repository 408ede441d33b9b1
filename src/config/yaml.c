/* yaml.c - libyaml's events, turned into nodes one by one with an explicit stack; see yaml.h. */
#include "config/yaml.h"

#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if NW_HAVE_YAML
#include <yaml.h>

typedef struct builder {
    const char *name;
    nw_bump *region;
    nw_yaml *stack[NW_YAML_DEPTH];
    int depth, nodes;
    nw_yaml *root;
    /* the key that waits for its value */
    const char *key;
    int key_line, key_column;
} builder;

static nw_status fail(const builder *b, yaml_mark_t mark, const char *what)
{
    return NW_FAIL(NW_E_FILE, "%s:%zu:%zu: %s", b->name, mark.line + 1, mark.column + 1, what);
}

static nw_status parser_failure(const builder *b, const yaml_parser_t *parser)
{
    if (parser->error == YAML_MEMORY_ERROR) return NW_FAIL(NW_E_MEMORY, "no memory left to read %s", b->name);
    if (parser->error == YAML_READER_ERROR)
        return NW_FAIL(NW_E_FILE, "%s: byte %zu: %s; the file must be UTF-8 text", b->name, parser->problem_offset,
                       parser->problem ? parser->problem : "unreadable");
    return NW_FAIL(NW_E_FILE, "%s:%zu:%zu: no valid YAML: %s%s%s", b->name, parser->problem_mark.line + 1,
                   parser->problem_mark.column + 1, parser->problem ? parser->problem : "syntax",
                   parser->context ? ", " : "", parser->context ? parser->context : "");
}

/* Takes a scalar in the place of a key. */
static nw_status take_key(builder *b, const yaml_event_t *event)
{
    const nw_yaml *map = b->stack[b->depth - 1];
    const char *text = (const char *)event->data.scalar.value;
    if (strlen(text) != event->data.scalar.length) return fail(b, event->start_mark, "a key holds a zero byte");
    if (map->count >= NW_YAML_KEYS) return fail(b, event->start_mark, "the map has more than 512 keys");
    const nw_yaml *before = nw_yaml_find(map, text);
    if (before)
        return NW_FAIL(NW_E_FILE, "%s:%zu:%zu: the key '%s' is already there in line %d; remove one of the two",
                       b->name, event->start_mark.line + 1, event->start_mark.column + 1, text, before->line);
    b->key = nw_bump_text(b->region, text, strlen(text));
    NW_TRY_MEMORY(b->key);
    b->key_line = (int)event->start_mark.line + 1;
    b->key_column = (int)event->start_mark.column + 1;
    return NW_OK;
}

/* Adds a node to the innermost collection, or makes it the root. */
static nw_status add_node(builder *b, const yaml_event_t *event, nw_yaml_kind kind, nw_yaml **added)
{
    if (++b->nodes > NW_YAML_NODES) return fail(b, event->start_mark, "the file has more than 20000 values");
    nw_yaml *node = nw_bump_alloc(b->region, sizeof *node);
    NW_TRY_MEMORY(node);
    *added = node;
    node->kind = kind;
    node->text = "";
    node->line = b->key ? b->key_line : (int)event->start_mark.line + 1;
    node->column = b->key ? b->key_column : (int)event->start_mark.column + 1;
    node->key = b->key;
    b->key = NULL;
    if (b->depth == 0) {
        b->root = node;
        return NW_OK;
    }
    nw_yaml *parent = b->stack[b->depth - 1];
    if (parent->last)
        parent->last->next = node;
    else
        parent->first = node;
    parent->last = node;
    parent->count++;
    return NW_OK;
}

static nw_status refuse_extras(const builder *b, const yaml_event_t *event, const void *anchor, const void *tag)
{
    if (anchor) return fail(b, event->start_mark, "anchors (&) are not supported here; write the value out");
    if (tag) return fail(b, event->start_mark, "tags (!) are not supported here; write the plain value");
    return NW_OK;
}

static nw_status take_event(builder *b, const yaml_event_t *event, int *documents)
{
    nw_yaml *node = NULL;
    bool wants_key = b->depth > 0 && b->stack[b->depth - 1]->kind == NW_YAML_MAP && !b->key;
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return ++*documents > 1 ? fail(b, event->start_mark, "a second document begins; a file holds one") : NW_OK;
    case YAML_ALIAS_EVENT:
        return fail(b, event->start_mark, "aliases (*) are not supported here; write the value out, or quote the text");
    case YAML_SCALAR_EVENT:
        NW_TRY(refuse_extras(b, event, event->data.scalar.anchor, event->data.scalar.tag));
        if (wants_key) return take_key(b, event);
        if (strlen((const char *)event->data.scalar.value) != event->data.scalar.length)
            return fail(b, event->start_mark, "a text holds a zero byte");
        NW_TRY(add_node(b, event, NW_YAML_SCALAR, &node));
        node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        node->text = nw_bump_text(b->region, (const char *)event->data.scalar.value, event->data.scalar.length);
        NW_TRY_MEMORY(node->text);
        return NW_OK;
    case YAML_SEQUENCE_START_EVENT:
        NW_TRY(refuse_extras(b, event, event->data.sequence_start.anchor, event->data.sequence_start.tag));
        break;
    case YAML_MAPPING_START_EVENT:
        NW_TRY(refuse_extras(b, event, event->data.mapping_start.anchor, event->data.mapping_start.tag));
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        b->depth--;
        return NW_OK;
    default:
        return NW_OK;
    }
    if (wants_key) return fail(b, event->start_mark, "a key must be a plain text");
    if (b->depth == NW_YAML_DEPTH) return fail(b, event->start_mark, "more than 16 levels of nesting");
    NW_TRY(add_node(b, event, event->type == YAML_MAPPING_START_EVENT ? NW_YAML_MAP : NW_YAML_LIST, &node));
    b->stack[b->depth++] = node;
    return NW_OK;
}

nw_status nw_yaml_parse(const char *name, const void *data, size_t size, nw_bump *region, nw_yaml **root)
{
    builder b = {.name = name, .region = region};
    yaml_parser_t parser;
    yaml_event_t event;
    int documents = 0;
    bool done = false;
    nw_status status = NW_OK;
    *root = NULL;
    NW_FAIL_IF(size > NW_YAML_BYTES, NW_E_FILE, "%s is larger than 1 MiB, which no file of options is", name);
    NW_FAIL_IF(!yaml_parser_initialize(&parser), NW_E_MEMORY, "no memory left to read %s", name);
    yaml_parser_set_input_string(&parser, data, size);
    while (status == NW_OK && !done) {
        if (!yaml_parser_parse(&parser, &event)) {
            status = parser_failure(&b, &parser);
            break;
        }
        done = event.type == YAML_STREAM_END_EVENT;
        status = take_event(&b, &event, &documents);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    NW_TRY(status);
    if (!b.root) {
        b.root = nw_bump_alloc(region, sizeof *b.root);
        NW_TRY_MEMORY(b.root);
        b.root->kind = NW_YAML_MAP;
        b.root->text = "";
    }
    *root = b.root;
    return NW_OK;
}

#else

nw_status nw_yaml_parse(const char *name, const void *data, size_t size, nw_bump *region, nw_yaml **root)
{
    (void)data, (void)size, (void)region;
    *root = NULL;
    return NW_FAIL(NW_E_UNSUPPORTED,
                   "%s cannot be read: this build is without libyaml; install libyaml-dev and build again, or give the "
                   "options on the command line",
                   name);
}

#endif

nw_status nw_yaml_read(const char *path, nw_bump *region, nw_yaml **root)
{
    *root = NULL;
    NW_AUTOFREE char *data = NULL;
    size_t size;
    NW_TRY(nw_file_read(path, NW_YAML_BYTES, &data, &size));
    return nw_yaml_parse(path, data, size, region, root);
}

nw_yaml *nw_yaml_find(const nw_yaml *map, const char *key)
{
    for (nw_yaml *node = map->first; node; node = node->next)
        if (node->key && strcmp(node->key, key) == 0) return node;
    return NULL;
}

bool nw_yaml_is_null(const nw_yaml *node)
{
    if (node->kind != NW_YAML_SCALAR || node->quoted) return false;
    return !*node->text || strcmp(node->text, "~") == 0 || strcmp(node->text, "null") == 0 ||
           strcmp(node->text, "None") == 0;
}
