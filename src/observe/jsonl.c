/*
 * jsonl.c - metrics.jsonl: every record, one JSON object a line.
 *
 * A line begins with the kind of the record and its step, {"record":"step","step":17, and then has every field of
 * the record's table in order, null where unknown. It is formatted in memory and appended in one piece, so readers may
 * follow the file while it grows.
 *
 * A run that continues from step S first removes the lines past S: they were written after the checkpoint and will be
 * written again. The shorter file replaces the old one at one stroke. A last line without its newline is what a crash
 * left and goes too; any other line that is not a record is somebody else's, and the file is refused, not changed.
 *
 * A step record allocates nothing: the memory of a line is kept.
 */
#define _GNU_SOURCE 1
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "observe/append.h"
#include "observe/lines.h"
#include "observe/observers.h"

enum { LINE_SIZE = 64 << 10 };
#define LARGEST_FILE ((size_t)1 << 36)

typedef struct jsonl {
    nw_observer base;
    nw_append file;
    FILE *line; /* over `memory` */
    char memory[LINE_SIZE];
} jsonl;

/* Moves the lines up to `last_step` together and counts their bytes. */
static nw_status keep_lines(const char *path, char *text, size_t size, int64_t last_step, size_t *kept)
{
    *kept = 0;
    int64_t number = 1;
    for (size_t at = 0; at < size; number++) {
        const char *newline = memchr(text + at, '\n', size - at);
        if (newline == NULL) break;
        size_t length = (size_t)(newline - (text + at));
        int64_t step;
        NW_FAIL_IF(!nw_jsonl_line_step(text + at, length, &step), NW_E_FILE,
                   "%s, line %lld: this is no record of a run; remove the line or move the file away, then resume",
                   path, (long long)number);
        if (step <= last_step) {
            memmove(text + *kept, text + at, length + 1);
            *kept += length + 1;
        }
        at += length + 1;
    }
    return NW_OK;
}

static nw_status cut(const char *path, int64_t last_step)
{
    if (!nw_file_is_regular(path)) return NW_OK;
    char *text;
    size_t size, kept;
    NW_TRY(nw_file_read(path, LARGEST_FILE, &text, &size));
    nw_status status = keep_lines(path, text, size, last_step, &kept);
    if (status == NW_OK && kept < size) status = nw_file_replace(path, text, kept);
    free(text);
    NW_TRY(status);
    return NW_OK;
}

static nw_status observe(nw_observer *observer, nw_record_kind kind, const void *record)
{
    jsonl *self = (jsonl *)observer;
    const nw_record_type *type = nw_record_type_of(kind);
    rewind(self->line);
    nw_json json = nw_json_begin(self->line, false);
    nw_json_object(&json);
    nw_json_key(&json, "record");
    nw_json_string(&json, type->name);
    for (int i = 0; i < type->count; i++) {
        nw_json_key(&json, type->fields[i].name);
        nw_value_json(&json, nw_record_value(&type->fields[i], record));
    }
    nw_json_object_end(&json);
    nw_json_end(&json);
    bool whole = fflush(self->line) == 0 && !ferror(self->line);
    NW_FAIL_IF(!whole, NW_E_SYSTEM, "a line of %s would be longer than %d bytes: shorten the names of the run's files",
               self->file.path, LINE_SIZE);
    NW_TRY(nw_append_write(&self->file, self->memory, (size_t)ftell(self->line)));
    return NW_OK;
}

static nw_status close_jsonl(nw_observer *observer)
{
    jsonl *self = (jsonl *)observer;
    if (self->line != NULL) fclose(self->line);
    nw_status status = nw_append_close(&self->file);
    free(self);
    NW_TRY(status);
    return NW_OK;
}

static const nw_observer_ops ops = {.record = observe, .close = close_jsonl};

nw_status nw_jsonl_create(nw_observer **observer, const char *path, const nw_resume_point *resume)
{
    *observer = NULL;
    bool continued = resume != NULL && resume->step > 0;
    if (continued) NW_TRY(cut(path, resume->step));
    jsonl *self = calloc(1, sizeof *self);
    NW_FAIL_IF(self == NULL, NW_E_MEMORY, "no memory for the lines of %s", path);
    self->base.ops = &ops;
    self->file.file = -1;
    self->line = fmemopen(self->memory, sizeof self->memory, "w");
    nw_status status = self->line != NULL
                           ? nw_append_open(&self->file, path, continued ? NW_APPEND_CONTINUE : NW_APPEND_REPLACE)
                           : NW_FAIL(NW_E_MEMORY, "no memory for the lines of %s", path);
    if (status != NW_OK) {
        if (self->line != NULL) fclose(self->line);
        free(self);
        NW_TRY(status);
    }
    *observer = &self->base;
    return NW_OK;
}
