/*
 * jsonl.c - metrics.jsonl: every record, one JSON object a line.
 *
 * A line begins with the kind of the record and its step, {"record":"step","step":17, and then has every field of
 * the record's table in order, null where unknown. It is formatted in memory and appended in one piece, so readers may
 * follow the file while it grows.
 *
 * A run that resumes first removes the lines that were written after its checkpoint, because they will be written
 * again: later steps, batches of an update that was not finished there (their step is the same, but more images had
 * been seen), and the end of an epoch that was not finished there (it may have the same step, too, since evaluation
 * comes after it). The shorter file replaces the old one by one rename. A last line without newline was left by a crash
 * and is removed, too. Any other line that is not a record was not written by nowait: the file is refused and not
 * changed.
 *
 * A step record allocates nothing: the memory of a line is kept.
 */
#define _GNU_SOURCE 1
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/append.h"
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

static bool is_past(const nw_line_place *line, const nw_resume_point *resume)
{
    return line->step > resume->step || line->images > resume->images ||
           (line->ends_epoch && line->epoch > resume->epoch);
}

/* Moves the lines that stay together and counts their bytes. */
static nw_status keep_lines(const char *path, char *text, size_t size, const nw_resume_point *resume, size_t *kept)
{
    *kept = 0;
    int64_t number = 1;
    for (size_t at = 0; at < size; number++) {
        const char *newline = memchr(text + at, '\n', size - at);
        if (newline == NULL) break;
        size_t length = (size_t)(newline - (text + at));
        nw_line_place place;
        NW_FAIL_IF(!nw_jsonl_line_place(text + at, length, &place), NW_E_FILE,
                   "%s, line %lld: this is not a record of a run; remove the line or move the file away, then resume",
                   path, (long long)number);
        if (!is_past(&place, resume)) {
            memmove(text + *kept, text + at, length + 1);
            *kept += length + 1;
        }
        at += length + 1;
    }
    return NW_OK;
}

static nw_status cut(const char *path, const nw_resume_point *resume)
{
    if (!nw_file_is_regular(path)) return NW_OK;
    NW_AUTOFREE char *text = NULL;
    size_t size, kept;
    NW_TRY(nw_file_read(path, LARGEST_FILE, &text, &size));
    NW_TRY(keep_lines(path, text, size, resume, &kept));
    return kept < size ? nw_file_replace(path, text, kept) : NW_OK;
}

static nw_status observe(nw_observer *observer, nw_record_kind kind, const void *record)
{
    jsonl *self = (jsonl *)observer;
    const nw_record_type *type = nw_record_type_of(kind);
    rewind(self->line);
    nw_json json = nw_json_begin(self->line, false);
    nw_json_object(&json);
    nw_json_put_string(&json, "record", type->name);
    for (int i = 0; i < type->count; i++) {
        nw_json_key(&json, type->fields[i].name);
        nw_value_json(&json, nw_record_value(&type->fields[i], record));
    }
    nw_json_object_end(&json);
    nw_json_end(&json);
    bool whole = fflush(self->line) == 0 && !ferror(self->line);
    NW_FAIL_IF(!whole, NW_E_SYSTEM, "a line of %s would be longer than %d bytes: shorten the names of the run's files",
               self->file.path, LINE_SIZE);
    return nw_append_write(&self->file, self->memory, (size_t)ftell(self->line));
}

static nw_status close_jsonl(nw_observer *observer)
{
    jsonl *self = (jsonl *)observer;
    if (self->line != NULL) fclose(self->line);
    nw_status status = nw_append_close(&self->file);
    free(self);
    return status;
}

static const nw_observer_ops ops = {.record = observe, .close = close_jsonl};

nw_status nw_jsonl_create(nw_observer **observer, const char *path, const nw_resume_point *resume)
{
    *observer = NULL;
    bool continued = nw_resume_point_continues(resume);
    if (continued) NW_TRY(cut(path, resume));
    jsonl *self = calloc(1, sizeof *self);
    NW_FAIL_IF(self == NULL, NW_E_MEMORY, "no memory for the lines of %s", path);
    self->base.ops = &ops;
    self->file.file = -1;
    self->line = fmemopen(self->memory, sizeof self->memory, "w");
    nw_status status = self->line != NULL
                           ? nw_append_open(&self->file, path, continued ? NW_APPEND_CONTINUE : NW_APPEND_REPLACE)
                           : NW_FAIL(NW_E_MEMORY, "no memory for the lines of %s", path);
    if (status == NW_OK)
        *observer = &self->base;
    else
        close_jsonl(&self->base);
    return status;
}
