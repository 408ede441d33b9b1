/*
 * record.c - the tables of records, and the list of observers.
 *
 * The tables of record.h are expanded a second time here, into lists of fields. Observers go through these lists, so
 * they name a field only where they show it to people. Records are plain structs; fields are read by their offset.
 *
 * Invariant of the list: an observer that failed gets no further record, and its failure is returned exactly once. If
 * several fail in one call, the next calls return the others, one each.
 */
#include "observe/record.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(kind, member, scalar, summary) {NW_FIELD_##kind, offsetof(RECORD, member), #member, scalar, summary},
#define RECORD                               nw_run_record
static const nw_field run_fields[] = {NW_RUN_FIELDS(FIELD)};
#undef RECORD
#define RECORD nw_step_record
static const nw_field step_fields[] = {NW_STEP_FIELDS(FIELD)};
#undef RECORD
#define RECORD nw_epoch_record
static const nw_field epoch_fields[] = {NW_EPOCH_FIELDS(FIELD)};
#undef RECORD
#define RECORD nw_checkpoint_record
static const nw_field checkpoint_fields[] = {NW_CHECKPOINT_FIELDS(FIELD)};
#undef RECORD
#define RECORD nw_fault_record
static const nw_field fault_fields[] = {NW_FAULT_FIELDS(FIELD)};
#undef RECORD
#define RECORD nw_end_record
static const nw_field end_fields[] = {NW_END_FIELDS(FIELD)};
#undef RECORD
#undef FIELD

static const nw_record_type types[NW_RECORD_KINDS] = {
#define TYPE(identifier, kind, table)                                                           \
    [NW_RECORD_##identifier] = {.name = #kind,                                                  \
                                .fields = kind##_fields,                                        \
                                .count = (int)(sizeof kind##_fields / sizeof kind##_fields[0]), \
                                .size = sizeof(nw_##kind##_record)},
    NW_RECORD_MAP(TYPE)
#undef TYPE
};

/* nw_record_head_of relies on it. */
#define BEGINS_WITH_HEAD(identifier, kind, table)                                                \
    _Static_assert(offsetof(nw_##kind##_record, step) == offsetof(nw_record_head, step) &&       \
                       offsetof(nw_##kind##_record, epoch) == offsetof(nw_record_head, epoch) && \
                       offsetof(nw_##kind##_record, images) == offsetof(nw_record_head, images), \
                   "a record begins with step, epoch and images");
NW_RECORD_MAP(BEGINS_WITH_HEAD)
#undef BEGINS_WITH_HEAD

const nw_record_type *nw_record_type_of(nw_record_kind kind) { return &types[kind]; }

nw_field_value nw_record_value(const nw_field *field, const void *record)
{
    const char *at = (const char *)record + field->offset;
    nw_field_value value = {.kind = field->kind, .real = (double)NAN};
    switch (field->kind) {
    case NW_FIELD_INT:
        memcpy(&value.integer, at, sizeof value.integer);
        value.known = value.integer != NW_UNKNOWN;
        if (value.known) value.real = (double)value.integer;
        break;
    case NW_FIELD_REAL:
        memcpy(&value.real, at, sizeof value.real);
        value.known = !isnan(value.real);
        break;
    case NW_FIELD_TEXT:
        memcpy(&value.text, at, sizeof value.text);
        value.known = value.text != NULL;
        break;
    case NW_FIELD_COUNTS:
        memcpy(&value.counts, at, sizeof value.counts);
        value.known = value.counts != NULL;
        break;
    }
    return value;
}

void nw_value_json(nw_json *json, nw_field_value value)
{
    if (!value.known) {
        nw_json_string(json, NULL);
    } else if (value.kind == NW_FIELD_INT) {
        nw_json_int(json, value.integer);
    } else if (value.kind == NW_FIELD_REAL) {
        nw_json_double(json, value.real);
    } else if (value.kind == NW_FIELD_COUNTS) {
        nw_histogram_json(json, value.counts);
    } else {
        nw_json_string(json, value.text);
    }
}

nw_record_head nw_record_head_of(const void *record)
{
    nw_record_head head;
    memcpy(&head, record, sizeof head);
    return head;
}

void nw_record_clear(nw_record_kind kind, void *record)
{
    const nw_record_type *type = &types[kind];
    memset(record, 0, type->size); /* texts and counts are NULL */
    for (int i = 0; i < type->count; i++) {
        char *at = (char *)record + type->fields[i].offset;
        if (type->fields[i].kind == NW_FIELD_INT) memcpy(at, &(int64_t){NW_UNKNOWN}, sizeof(int64_t));
        if (type->fields[i].kind == NW_FIELD_REAL) memcpy(at, &(double){NAN}, sizeof(double));
    }
}

/* ---- the list ---- */

void nw_observers_add(nw_observers *observers, nw_observer *observer)
{
    if (observers->count == NW_MOST_OBSERVERS) {
        fprintf(stderr, "nowait: bug: more than %d observers\n", NW_MOST_OBSERVERS);
        abort();
    }
    observers->slots[observers->count++] = (struct nw_observer_slot){.observer = observer};
}

static void keep_failure(struct nw_observer_slot *slot, nw_status status)
{
    if (status == NW_OK || slot->status != NW_OK) return;
    slot->status = status;
    snprintf(slot->message, sizeof slot->message, "%s", nw_error_message());
}

static nw_status report_failure(nw_observers *observers)
{
    for (int i = 0; i < observers->count; i++) {
        struct nw_observer_slot *slot = &observers->slots[i];
        if (slot->status == NW_OK || slot->reported) continue;
        slot->reported = true;
        return NW_FAIL(slot->status, "%s", slot->message);
    }
    return NW_OK;
}

nw_status nw_observers_send(nw_observers *observers, nw_record_kind kind, const void *record)
{
    for (int i = 0; i < observers->count; i++) {
        struct nw_observer_slot *slot = &observers->slots[i];
        if (slot->status == NW_OK) keep_failure(slot, slot->observer->ops->record(slot->observer, kind, record));
    }
    return report_failure(observers);
}

nw_status nw_observers_close(nw_observers *observers)
{
    for (int i = 0; i < observers->count; i++) {
        struct nw_observer_slot *slot = &observers->slots[i];
        keep_failure(slot, slot->observer->ops->close(slot->observer));
    }
    nw_status status = report_failure(observers);
    observers->count = 0;
    return status;
}
