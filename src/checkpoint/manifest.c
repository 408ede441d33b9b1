/*
 * manifest.c - manifest.json to and from memory.
 *
 * The manifest has its own SHA-256 as the member "sha256": taken over the text with zeros in the place of the digits.
 * So any change of any byte is found, also in the scalars of the state. Numbers that JSON cannot hold are written as
 * the texts "nan", "inf" and "-inf", and the seed as a text, too, because readers of JSON keep 53 bits.
 */
#define _GNU_SOURCE 1
#include "checkpoint/manifest.h"

#include "base/json.h"
#include "base/json_read.h"
#include "base/digest.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char format_name[] = "nowait-checkpoint";
static const char no_digits[] = "0000000000000000000000000000000000000000000000000000000000000000";

bool nw_manifest_name_is_plain(const char *name)
{
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-");
    return length > 0 && name[length] == '\0' && name[0] != '.' && length < NW_MANIFEST_NAME;
}

static bool is_sha256(const char *text) { return strspn(text, "0123456789abcdef") == 64 && text[64] == '\0'; }

void nw_manifest_free(nw_manifest *manifest)
{
    for (int i = 0; i < manifest->state_count; i++) free(manifest->state[i].text);
    free(manifest->state);
    free(manifest->files);
    *manifest = (nw_manifest){0};
}

/* ---- filling ---- */

static nw_status grow(void *list, int count, size_t bytes)
{
    NW_FAIL_IF(!nw_grow(list, (size_t)count, bytes), NW_E_MEMORY, "no memory for the manifest of a checkpoint");
    return NW_OK;
}

nw_status nw_manifest_add_file(nw_manifest *m, const char *name, uint64_t bytes, const char *sha256)
{
    NW_TRY(grow(&m->files, m->file_count, sizeof *m->files));
    nw_manifest_file *file = &m->files[m->file_count++];
    *file = (nw_manifest_file){.bytes = bytes};
    snprintf(file->name, sizeof file->name, "%s", name);
    snprintf(file->sha256, sizeof file->sha256, "%s", sha256);
    return NW_OK;
}

static nw_status new_state(nw_manifest *m, const char *key, nw_manifest_state **state)
{
    NW_TRY(grow(&m->state, m->state_count, sizeof *m->state));
    *state = &m->state[m->state_count++];
    **state = (nw_manifest_state){0};
    strcpy((*state)->key, key);
    return NW_OK;
}

/* The numbers that JSON cannot hold stand as texts; such a text answers to both. */
static double special_number(const char *text)
{
    return strcmp(text, "nan") == 0    ? NAN
           : strcmp(text, "inf") == 0  ? INFINITY
           : strcmp(text, "-inf") == 0 ? -INFINITY
                                       : 0;
}

static nw_status set_text(nw_manifest_state *state, const char *text)
{
    state->type = NW_MANIFEST_TEXT;
    state->number = special_number(text);
    return nw_text_copy(&state->text, text);
}

/* One of that key, old or new, without a value. */
static nw_status add_state(nw_manifest *m, const char *key, nw_manifest_state **state)
{
    NW_FAIL_IF(!nw_manifest_name_is_plain(key), NW_E_ARGUMENT,
               "'%s' cannot be a key in a checkpoint; use letters, digits, '.', '_' and '-'", key);
    *state = (nw_manifest_state *)nw_manifest_state_find(m, key);
    if (!*state) return new_state(m, key, state);
    free((*state)->text);
    (*state)->text = NULL;
    return NW_OK;
}

nw_status nw_manifest_add_int(nw_manifest *m, const char *key, int64_t value)
{
    nw_manifest_state *state = NULL;
    NW_TRY(add_state(m, key, &state));
    state->type = NW_MANIFEST_INT;
    state->integer = value;
    state->number = (double)value;
    return NW_OK;
}

nw_status nw_manifest_add_double(nw_manifest *m, const char *key, double value)
{
    nw_manifest_state *state = NULL;
    NW_TRY(add_state(m, key, &state));
    state->type = NW_MANIFEST_DOUBLE;
    state->number = value;
    return NW_OK;
}

nw_status nw_manifest_add_text(nw_manifest *m, const char *key, const char *text)
{
    nw_manifest_state *state = NULL;
    NW_TRY(add_state(m, key, &state));
    return set_text(state, text);
}

const nw_manifest_file *nw_manifest_file_find(const nw_manifest *m, const char *name)
{
    for (int i = 0; i < m->file_count; i++)
        if (strcmp(m->files[i].name, name) == 0) return &m->files[i];
    return NULL;
}

const nw_manifest_state *nw_manifest_state_find(const nw_manifest *m, const char *key)
{
    for (int i = 0; i < m->state_count; i++)
        if (strcmp(m->state[i].key, key) == 0) return &m->state[i];
    return NULL;
}

/* ---- writing ---- */

static void put_state(nw_json *json, const nw_manifest_state *state)
{
    nw_json_key(json, state->key);
    if (state->type == NW_MANIFEST_TEXT) {
        nw_json_string(json, state->text);
    } else if (state->type == NW_MANIFEST_INT) {
        nw_json_int(json, state->integer);
    } else if (isfinite(state->number)) {
        nw_json_double(json, state->number);
    } else {
        nw_json_string(json, isnan(state->number) ? "nan" : state->number > 0 ? "inf" : "-inf");
    }
}

static void put_manifest(nw_json *json, const nw_manifest *m)
{
    char seed[24];
    snprintf(seed, sizeof seed, "%" PRIu64, m->info.seed);
    nw_json_object(json);
    nw_json_put_string(json, "format", format_name);
    nw_json_put_int(json, "version", NW_MANIFEST_VERSION);
    nw_json_put_string(json, "written_by", m->written_by);
    nw_json_put_string(json, "model", m->info.model);
    nw_json_put_int(json, "step", m->info.step);
    nw_json_put_int(json, "epoch", m->info.epoch);
    nw_json_put_string(json, "seed", seed);
    nw_json_put_string(json, "precision", m->info.precision);
    nw_json_put_string(json, "isa", m->info.isa);
    nw_json_put_string(json, "weights_sha256", m->info.weights_sha256);
    nw_json_put_object(json, "state");
    for (int i = 0; i < m->state_count; i++) put_state(json, &m->state[i]);
    nw_json_object_end(json);
    nw_json_put_object(json, "files");
    for (int i = 0; i < m->file_count; i++) {
        nw_json_put_object(json, m->files[i].name);
        nw_json_put_int(json, "bytes", (int64_t)m->files[i].bytes);
        nw_json_put_string(json, "sha256", m->files[i].sha256);
        nw_json_object_end(json);
    }
    nw_json_object_end(json);
    nw_json_put_string(json, "sha256", no_digits);
    nw_json_object_end(json);
    nw_json_end(json);
}

nw_status nw_manifest_write(const nw_manifest *manifest, char **text, size_t *size)
{
    static const char tail[] = "\"\n}\n"; /* what follows the digits of the last member */
    NW_CLEANUP(nw_text_free) nw_text written = {0};
    NW_TRY(nw_text_begin(&written));
    nw_json json = nw_json_begin(written.out, true);
    put_manifest(&json, manifest);
    NW_TRY(nw_text_end(&written));
    char digits[65];
    nw_sha256_of(written.text, written.size, digits);
    memcpy(written.text + written.size - strlen(tail) - 64, digits, 64);
    *text = written.text;
    *size = written.size;
    written.text = NULL;
    return NW_OK;
}

/* ---- reading ---- */

static nw_status damaged(const char *name, const char *what)
{
    return NW_FAIL(NW_E_FILE, "'%s' is damaged: %s; use another checkpoint, or copy this one again", name, what);
}

/* A text that fits a field of the struct. */
static nw_status get_field(const nw_json_document *d, const char *key, char *field, size_t size)
{
    const char *text = NULL;
    NW_TRY(nw_json_get_text(d, &d->values[0], key, &text));
    NW_FAIL_IF(strlen(text) >= size, NW_E_FILE, "'%s': '%s' has %zu characters; at most %zu are expected", d->name, key,
               strlen(text), size - 1);
    strcpy(field, text);
    return NW_OK;
}

static nw_status get_seed(const nw_json_document *d, uint64_t *seed)
{
    char text[24], *end;
    NW_TRY(get_field(d, "seed", text, sizeof text));
    *seed = strtoull(text, &end, 10);
    char again[24];
    snprintf(again, sizeof again, "%" PRIu64, *seed);
    NW_FAIL_IF(strcmp(text, again) != 0, NW_E_FILE, "'%s': the seed '%s' is not a number below 2^64", d->name, text);
    return NW_OK;
}

/* Format and version first, so that a file of another version is called that and not damaged. */
static nw_status check_version(const nw_json_document *d)
{
    const nw_json_value *root = &d->values[0], *format = nw_json_find(root, "format");
    int64_t version = 0;
    NW_FAIL_IF(!format || format->type != NW_JSON_STRING || strcmp(format->text, format_name) != 0, NW_E_FILE,
               "'%s' is not the manifest of a checkpoint: expected \"format\": \"%s\"", d->name, format_name);
    NW_TRY(nw_json_get_int(d, root, "version", 1, INT32_MAX, &version));
    NW_FAIL_IF(
        version < NW_MANIFEST_VERSION, NW_E_UNSUPPORTED,
        "'%s': this checkpoint was written by an older version of nowait (format %" PRId64
        ", this program reads %d); continue with that version, or start a new run from its weights with --init and "
        "the path of its model.safetensors",
        d->name, version, NW_MANIFEST_VERSION);
    NW_FAIL_IF(version > NW_MANIFEST_VERSION, NW_E_UNSUPPORTED,
               "'%s' has format version %" PRId64 " and this program reads %d; use a newer nowait", d->name, version,
               NW_MANIFEST_VERSION);
    return NW_OK;
}

static nw_status check_hash(const nw_json_document *d, const char *text, size_t size)
{
    const nw_json_value *stored = NULL;
    NW_TRY(nw_json_get(d, &d->values[0], "sha256", NW_JSON_STRING, &stored));
    char digits[65];
    size_t at = stored->offset + 1u; /* behind the quote */
    if (!is_sha256(stored->text) || size - at < 64 || memcmp(text + at, stored->text, 64) != 0)
        return damaged(d->name, "it has no valid hash of itself");
    nw_digest hash = nw_sha256_begin();
    nw_digest_add(&hash, text, at);
    nw_digest_add(&hash, no_digits, 64);
    nw_digest_add(&hash, text + at + 64, size - at - 64);
    nw_digest_end(&hash, digits);
    return strcmp(digits, stored->text) == 0 ? NW_OK : damaged(d->name, "its hash differs from the one it names");
}

static nw_status read_files(nw_manifest *m, const nw_json_document *d)
{
    const nw_json_value *files = NULL;
    NW_TRY(nw_json_get(d, &d->values[0], "files", NW_JSON_OBJECT, &files));
    for (const nw_json_value *v = nw_json_first(files); v; v = nw_json_next(files, v)) {
        int64_t bytes = 0;
        const char *sha256 = NULL;
        NW_FAIL_IF(!nw_manifest_name_is_plain(v->key), NW_E_FILE,
                   "'%s': at byte %u: '%s' is not a plain file name; expected letters, digits, '.', '_' and '-'",
                   d->name, v->offset, v->key);
        NW_TRY(nw_json_get_int(d, v, "bytes", 0, INT64_MAX, &bytes));
        NW_TRY(nw_json_get_text(d, v, "sha256", &sha256));
        NW_FAIL_IF(!is_sha256(sha256), NW_E_FILE, "'%s': the sha256 of '%s' is not 64 hexadecimal digits", d->name,
                   v->key);
        NW_TRY(nw_manifest_add_file(m, v->key, (uint64_t)bytes, sha256));
    }
    return NW_OK;
}

static nw_status read_state(nw_manifest *m, const nw_json_document *d)
{
    const nw_json_value *states = NULL;
    NW_TRY(nw_json_get(d, &d->values[0], "state", NW_JSON_OBJECT, &states));
    for (const nw_json_value *v = nw_json_first(states); v; v = nw_json_next(states, v)) {
        NW_FAIL_IF(!nw_manifest_name_is_plain(v->key), NW_E_FILE, "'%s': at byte %u: '%s' is not a valid key", d->name,
                   v->offset, v->key);
        NW_FAIL_IF(v->type != NW_JSON_NUMBER && v->type != NW_JSON_STRING, NW_E_FILE,
                   "'%s': at byte %u: '%s' is %s; expected a number or a string", d->name, v->offset, v->key,
                   nw_json_type_name(v->type));
        nw_manifest_state *state = NULL;
        NW_TRY(new_state(m, v->key, &state));
        state->type = v->is_integer ? NW_MANIFEST_INT : NW_MANIFEST_DOUBLE;
        state->integer = v->integer;
        state->number = v->number;
        if (v->type == NW_JSON_STRING) NW_TRY(set_text(state, v->text));
    }
    return NW_OK;
}

static nw_status read_manifest(nw_manifest *m, const nw_json_document *d, const char *text, size_t size)
{
    NW_TRY(check_version(d));
    NW_TRY(check_hash(d, text, size));
    NW_TRY(nw_json_get_int(d, &d->values[0], "step", 0, INT64_MAX, &m->info.step));
    NW_TRY(nw_json_get_int(d, &d->values[0], "epoch", 0, INT64_MAX, &m->info.epoch));
    NW_TRY(get_seed(d, &m->info.seed));
    NW_TRY(get_field(d, "written_by", m->written_by, sizeof m->written_by));
    NW_TRY(get_field(d, "model", m->info.model, sizeof m->info.model));
    NW_TRY(get_field(d, "precision", m->info.precision, sizeof m->info.precision));
    NW_TRY(get_field(d, "isa", m->info.isa, sizeof m->info.isa));
    NW_TRY(get_field(d, "weights_sha256", m->info.weights_sha256, sizeof m->info.weights_sha256));
    NW_TRY(read_files(m, d));
    return read_state(m, d);
}

nw_status nw_manifest_parse(nw_manifest *manifest, const char *text, size_t size, const char *name)
{
    *manifest = (nw_manifest){0};
    NW_CLEANUP(nw_json_free) nw_json_document document = {0};
    NW_TRY(nw_json_parse(&document, text, size, name));
    NW_TRY_OR(read_manifest(manifest, &document, text, size), nw_manifest_free(manifest));
    return NW_OK;
}
