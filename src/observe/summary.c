/*
 * summary.c - summary.json: for scripts, the last known value of everything that the tables of record.h mark.
 *
 * Keys appear in the order of the tables (run, step, epoch, ..., end), each once; a key that no record had is null. The
 * file is written when the end record comes, by one rename. An older one is removed at the start. So if the file
 * exists, the run has ended, and its key "status" says how.
 */
#define _GNU_SOURCE 1
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"
#include "observe/observers.h"

enum { MOST_KEYS = 128 };

typedef struct summary_entry {
    const char *key;
    nw_field_value value; /* its text and counts are ours */
} summary_entry;

typedef struct summary {
    nw_observer base;
    char *path;
    int count;
    summary_entry entries[MOST_KEYS];
} summary;

static summary_entry *find(summary *self, const char *key)
{
    for (int i = 0; i < self->count; i++) {
        if (strcmp(self->entries[i].key, key) == 0) return &self->entries[i];
    }
    return NULL;
}

static void list_keys(summary *self)
{
    for (int kind = 0; kind < NW_RECORD_KINDS; kind++) {
        const nw_record_type *type = nw_record_type_of((nw_record_kind)kind);
        for (int i = 0; i < type->count; i++) {
            const char *key = type->fields[i].summary;
            if (key == NULL || find(self, key) != NULL) continue;
            if (self->count == MOST_KEYS) {
                fprintf(stderr, "nowait: bug: more than %d keys in summary.json\n", MOST_KEYS);
                abort();
            }
            self->entries[self->count++] = (summary_entry){.key = key};
        }
    }
}

static void forget(summary_entry *entry)
{
    free((char *)entry->value.text);
    free((nw_histogram *)entry->value.counts);
}

static nw_status keep(summary *self, const nw_field *field, const void *record)
{
    nw_field_value value = nw_record_value(field, record);
    if (!value.known) return NW_OK;
    summary_entry *entry = find(self, field->summary);
    if (value.kind == NW_FIELD_TEXT || value.kind == NW_FIELD_COUNTS) {
        void *copy = value.text != NULL ? (void *)strdup(value.text) : malloc(sizeof *value.counts);
        NW_FAIL_IF(copy == NULL, NW_E_MEMORY, "no memory for the value of '%s' in %s", field->summary, self->path);
        if (value.text != NULL)
            value.text = copy;
        else
            value.counts = memcpy(copy, value.counts, sizeof *value.counts);
        forget(entry);
    }
    entry->value = value;
    return NW_OK;
}

static nw_status write_summary(FILE *out, void *context)
{
    const summary *self = context;
    nw_json json = nw_json_begin(out, true);
    nw_json_object(&json);
    for (int i = 0; i < self->count; i++) {
        nw_json_key(&json, self->entries[i].key);
        nw_value_json(&json, self->entries[i].value);
    }
    nw_json_object_end(&json);
    nw_json_end(&json);
    return NW_OK;
}

static nw_status observe(nw_observer *observer, nw_record_kind kind, const void *record)
{
    summary *self = (summary *)observer;
    const nw_record_type *type = nw_record_type_of(kind);
    for (int i = 0; i < type->count; i++) {
        if (type->fields[i].summary != NULL) NW_TRY(keep(self, &type->fields[i], record));
    }
    return kind == NW_RECORD_END ? nw_file_replace_by(self->path, write_summary, self) : NW_OK;
}

static nw_status close_summary(nw_observer *observer)
{
    summary *self = (summary *)observer;
    for (int i = 0; i < self->count; i++) forget(&self->entries[i]);
    free(self->path);
    free(self);
    return NW_OK;
}

static const nw_observer_ops ops = {.record = observe, .close = close_summary};

nw_status nw_summary_create(nw_observer **observer, const char *path)
{
    *observer = NULL;
    NW_FAIL_IF(unlink(path) != 0 && errno != ENOENT, NW_E_SYSTEM,
               "cannot remove the old %s: %s; check that the run's directory is writable", path, strerror(errno));
    NW_AUTOFREE summary *self = calloc(1, sizeof *self);
    NW_FAIL_IF(self == NULL, NW_E_MEMORY, "no memory for %s", path);
    self->base.ops = &ops;
    NW_TRY(nw_text_copy(&self->path, path));
    list_keys(self);
    *observer = &self->base;
    self = NULL;
    return NW_OK;
}
