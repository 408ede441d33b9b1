/*
 * calibration.c - calibrations to and from JSON; see calibration.h.
 *
 * The reader takes exactly the members that the writer writes: a missing or unknown one, a wrong type or a number out
 * of range is refused, because a simulation with a wrong number in it looks as good as one with the right number. The
 * writer reads what it wrote before it hands it out, so the two cannot differ.
 */
#define _GNU_SOURCE 1
#include "net/calibration.h"

#include "base/file.h"
#include "base/json.h"
#include "base/json_read.h"
#include "base/suggest.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char format_name[] = "nowait-calibration";
static const int64_t most_ns = INT64_C(1000000000000000); /* eleven days */
static const double most_bytes_per_second = 1e15;
enum { BATCH_MOST = 1 << 20, THREADS_MOST = 4096 };

nw_status nw_calibration_init(nw_calibration *c, int stages)
{
    *c = (nw_calibration){0};
    NW_FAIL_IF(stages < 1 || stages > NW_CALIBRATION_STAGES, NW_E_ARGUMENT, "a calibration has 1 to %d stages, not %d",
               NW_CALIBRATION_STAGES, stages);
    c->stage = calloc((size_t)stages, sizeof *c->stage);
    NW_FAIL_IF(!c->stage, NW_E_MEMORY, "no memory left for the %d stages of a calibration", stages);
    c->stages = stages;
    return NW_OK;
}

void nw_calibration_free(nw_calibration *c)
{
    free(c->stage);
    *c = (nw_calibration){0};
}

nw_status nw_calibration_copy(nw_calibration *to, const nw_calibration *from)
{
    NW_TRY(nw_calibration_init(to, from->stages));
    nw_calibration_stage *stage = to->stage;
    memcpy(stage, from->stage, (size_t)from->stages * sizeof *stage);
    *to = *from;
    to->stage = stage;
    return NW_OK;
}

/* ---- writing ---- */

static void put_calibration(nw_json *json, const nw_calibration *c)
{
    nw_json_object(json);
    nw_json_put_string(json, "format", format_name);
    nw_json_put_int(json, "version", NW_CALIBRATION_VERSION);
    nw_json_put_string(json, "written_by", c->written_by);
    nw_json_put_string(json, "machine", c->machine);
    nw_json_put_string(json, "isa", c->isa);
    nw_json_put_string(json, "precision", c->precision);
    nw_json_put_string(json, "model", c->model);
    nw_json_put_int(json, "batch", c->batch);
    nw_json_put_int(json, "threads", c->threads);
    nw_json_put_int(json, "ranks", c->ranks);
    nw_json_put_int(json, "overhead_ns", c->overhead_ns);
    nw_json_put_int(json, "update_ns", c->update_ns);
    nw_json_put_double(json, "step_noise", c->step_noise);
    nw_json_put_double(json, "touch_bytes_per_second", c->touch_bytes_per_second);
    nw_json_put_int(json, "link_latency_ns", c->link_latency_ns);
    nw_json_put_double(json, "link_bytes_per_second", c->link_bytes_per_second);
    nw_json_put_int(json, "link_overhead_ns", c->link_overhead_ns);
    nw_json_key(json, "stages");
    nw_json_array(json);
    for (int i = 0; i < c->stages; i++) {
        nw_json_object(json);
        nw_json_put_string(json, "name", c->stage[i].name);
        nw_json_put_int(json, "forward_ns", c->stage[i].forward_ns);
        nw_json_put_int(json, "backward_ns", c->stage[i].backward_ns);
        nw_json_object_end(json);
    }
    nw_json_array_end(json);
    nw_json_object_end(json);
    nw_json_end(json);
}

nw_status nw_calibration_print(const nw_calibration *c, char **text, size_t *size)
{
    nw_calibration again;
    *text = NULL;
    *size = 0;
    FILE *memory = open_memstream(text, size);
    NW_FAIL_IF(!memory, NW_E_MEMORY, "no memory left for the text of a calibration");
    nw_json json = nw_json_begin(memory, true);
    put_calibration(&json, c);
    bool failed = ferror(memory) != 0;
    failed |= fclose(memory) != 0;
    nw_status status = failed ? NW_FAIL(NW_E_MEMORY, "no memory left for the text of a calibration")
                              : nw_calibration_parse(&again, *text, *size, "the calibration to be written");
    if (status == NW_OK) {
        nw_calibration_free(&again);
        return NW_OK;
    }
    free(*text);
    *text = NULL;
    *size = 0;
    if (status != NW_E_FILE) return nw_trace_at(status, __FILE__, __LINE__);
    char cause[512];
    snprintf(cause, sizeof cause, "%s", nw_error_message());
    return NW_FAIL(NW_E_ARGUMENT, "%s", cause);
}

nw_status nw_calibration_write(const nw_calibration *c, const char *path)
{
    char *text;
    size_t size;
    NW_TRY(nw_calibration_print(c, &text, &size));
    nw_status status = nw_file_replace(path, text, size);
    free(text);
    return status;
}

/* ---- reading ---- */

/* No members but these. */
static nw_status check_members(const nw_json_document *d, const nw_json_value *object, const char *const *names,
                               int count)
{
    for (const nw_json_value *v = nw_json_first(object); v; v = nw_json_next(object, v)) {
        bool known = false;
        for (int i = 0; i < count && !known; i++) known = strcmp(v->key, names[i]) == 0;
        NW_FAIL_IF(!known, NW_E_FILE, "'%s': at byte %u: there is no member '%s' in a calibration; the nearest is '%s'",
                   d->name, v->offset, v->key, nw_suggest(v->key, names, count));
    }
    return NW_OK;
}

/* A text that is not empty and fits a field of the struct. */
static nw_status get_text(const nw_json_document *d, const nw_json_value *object, const char *key, char *field,
                          size_t size)
{
    const char *text = NULL;
    NW_TRY(nw_json_get_text(d, object, key, &text));
    size_t length = strlen(text);
    NW_FAIL_IF(length == 0 || length >= size, NW_E_FILE, "'%s': '%s' has %zu bytes; 1 to %zu are expected", d->name,
               key, length, size - 1);
    memcpy(field, text, length + 1);
    return NW_OK;
}

static nw_status get_int(const nw_json_document *d, const char *key, int64_t most, int *value)
{
    int64_t wide = 0;
    NW_TRY(nw_json_get_int(d, &d->values[0], key, 1, most, &wide));
    *value = (int)wide;
    return NW_OK;
}

static nw_status get_ns(const nw_json_document *d, const nw_json_value *object, const char *key, int64_t *value)
{
    return nw_json_get_int(d, object, key, 0, most_ns, value);
}

static nw_status get_number(const nw_json_document *d, const char *key, const char *what, double least, double most,
                            double *value)
{
    const nw_json_value *v = NULL;
    NW_TRY(nw_json_get(d, &d->values[0], key, NW_JSON_NUMBER, &v));
    NW_FAIL_IF(!(v->number >= least && v->number <= most), NW_E_FILE,
               "'%s': at byte %u: '%s' is %g; expected %s from %g to %g", d->name, v->offset, key, v->number, what,
               least, most);
    *value = v->number;
    return NW_OK;
}

static nw_status get_rate(const nw_json_document *d, const char *key, double least, double *value)
{
    return get_number(d, key, "bytes per second", least, most_bytes_per_second, value);
}

/* Format and version first, so that a file of a newer program is called that and not damaged. */
static nw_status check_version(const nw_json_document *d)
{
    const nw_json_value *root = &d->values[0], *format = nw_json_find(root, "format");
    int64_t version = 0;
    NW_FAIL_IF(!format || format->type != NW_JSON_STRING || strcmp(format->text, format_name) != 0, NW_E_FILE,
               "'%s' is no calibration: expected \"format\": \"%s\"; 'nowait train --calibrate FILE' writes one",
               d->name, format_name);
    NW_TRY(nw_json_get_int(d, root, "version", 1, INT32_MAX, &version));
    NW_FAIL_IF(version > NW_CALIBRATION_VERSION, NW_E_UNSUPPORTED,
               "'%s' has format version %" PRId64 " and this program reads up to %d; use a newer nowait", d->name,
               version, NW_CALIBRATION_VERSION);
    NW_FAIL_IF(version < NW_CALIBRATION_VERSION, NW_E_UNSUPPORTED,
               "'%s' has format version %" PRId64 ", which lacks what version %d has; calibrate again", d->name,
               version, NW_CALIBRATION_VERSION);
    return NW_OK;
}

static nw_status read_stages(nw_calibration *c, const nw_json_document *d)
{
    static const char *const names[] = {"name", "forward_ns", "backward_ns"};
    const nw_json_value *list = NULL;
    NW_TRY(nw_json_get(d, &d->values[0], "stages", NW_JSON_ARRAY, &list));
    NW_FAIL_IF(list->count < 1 || list->count > NW_CALIBRATION_STAGES, NW_E_FILE,
               "'%s': at byte %u: 'stages' has %u elements; expected 1 to %d", d->name, list->offset, list->count,
               NW_CALIBRATION_STAGES);
    c->stage = calloc(list->count, sizeof *c->stage);
    NW_FAIL_IF(!c->stage, NW_E_MEMORY, "no memory left for the %u stages of '%s'", list->count, d->name);
    for (const nw_json_value *v = nw_json_first(list); v; v = nw_json_next(list, v)) {
        nw_calibration_stage *stage = &c->stage[c->stages];
        NW_FAIL_IF(v->type != NW_JSON_OBJECT, NW_E_FILE, "'%s': at byte %u: stage %d is %s; expected an object",
                   d->name, v->offset, c->stages, nw_json_type_name(v->type));
        NW_TRY(check_members(d, v, names, 3));
        NW_TRY(get_text(d, v, "name", stage->name, sizeof stage->name));
        NW_TRY(get_ns(d, v, "forward_ns", &stage->forward_ns));
        NW_TRY(get_ns(d, v, "backward_ns", &stage->backward_ns));
        c->stages++;
    }
    return NW_OK;
}

static nw_status read_calibration(nw_calibration *c, const nw_json_document *d)
{
    static const char *const names[] = {"format",
                                        "version",
                                        "written_by",
                                        "machine",
                                        "isa",
                                        "precision",
                                        "model",
                                        "batch",
                                        "threads",
                                        "ranks",
                                        "overhead_ns",
                                        "update_ns",
                                        "step_noise",
                                        "touch_bytes_per_second",
                                        "link_latency_ns",
                                        "link_bytes_per_second",
                                        "link_overhead_ns",
                                        "stages"};
    const nw_json_value *root = &d->values[0];
    NW_TRY(check_version(d));
    NW_TRY(check_members(d, root, names, (int)(sizeof names / sizeof *names)));
    NW_TRY(get_text(d, root, "written_by", c->written_by, sizeof c->written_by));
    NW_TRY(get_text(d, root, "machine", c->machine, sizeof c->machine));
    NW_TRY(get_text(d, root, "isa", c->isa, sizeof c->isa));
    NW_TRY(get_text(d, root, "precision", c->precision, sizeof c->precision));
    NW_TRY(get_text(d, root, "model", c->model, sizeof c->model));
    NW_TRY(get_int(d, "batch", BATCH_MOST, &c->batch));
    NW_TRY(get_int(d, "threads", THREADS_MOST, &c->threads));
    NW_TRY(get_int(d, "ranks", NW_CALIBRATION_RANKS, &c->ranks));
    NW_TRY(get_ns(d, root, "overhead_ns", &c->overhead_ns));
    NW_TRY(get_ns(d, root, "update_ns", &c->update_ns));
    NW_TRY(get_number(d, "step_noise", "a deviation", 0, 1, &c->step_noise));
    NW_TRY(get_rate(d, "touch_bytes_per_second", 1, &c->touch_bytes_per_second));
    NW_TRY(get_ns(d, root, "link_latency_ns", &c->link_latency_ns));
    NW_TRY(get_rate(d, "link_bytes_per_second", 0, &c->link_bytes_per_second));
    NW_TRY(get_ns(d, root, "link_overhead_ns", &c->link_overhead_ns));
    NW_FAIL_IF(c->ranks > 1 && c->link_bytes_per_second < 1, NW_E_FILE,
               "'%s': %d ranks were measured, but 'link_bytes_per_second' is %g; calibrate again", d->name, c->ranks,
               c->link_bytes_per_second);
    return read_stages(c, d);
}

nw_status nw_calibration_parse(nw_calibration *c, const char *text, size_t size, const char *name)
{
    nw_json_document document;
    *c = (nw_calibration){0};
    NW_TRY(nw_json_parse(&document, text, size, name));
    nw_status status = read_calibration(c, &document);
    nw_json_free(&document);
    if (status != NW_OK) nw_calibration_free(c);
    return status;
}

nw_status nw_calibration_read(nw_calibration *c, const char *path)
{
    char *text;
    size_t size;
    *c = (nw_calibration){0};
    NW_FAIL_IF(!nw_file_is_regular(path), NW_E_FILE,
               "there is no calibration '%s'; 'nowait train --calibrate %s' measures this machine and writes it", path,
               path);
    NW_TRY(nw_file_read(path, NW_CALIBRATION_BYTES, &text, &size));
    nw_status status = nw_calibration_parse(c, text, size, path);
    free(text);
    return status;
}
