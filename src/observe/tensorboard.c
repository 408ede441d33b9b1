/*
 * tensorboard.c - events.out.tfevents.<time>.<host>.<pid>: scalars for TensorBoard.
 *
 * The file is a sequence of records in TensorFlow's framing,
 *   u64 length | u32 masked CRC-32C of the length | data | u32 masked CRC-32C of the data        (little-endian)
 * whose data are Event messages (events.proto). The first says "brain.Event:2". Each of our records becomes one event
 * with all its scalars that are known; the x-axis ("step") is the number of images seen, so that runs with different
 * batches compare.
 *
 * TensorBoard expects a new file from every process. If a process continues a run, the second event of its file says
 * that what older files have from its first image on is not valid any more (SessionLog START).
 *
 * Events are collected in memory and written in whole records once a second, after epochs, checkpoints and faults, and
 * when the buffer is full. A step record allocates nothing.
 */
#define _GNU_SOURCE 1
#include "observe/observers.h"

#if !NW_HAVE_PROTOBUF_C

bool nw_tensorboard_available(void) { return false; }

nw_status nw_tensorboard_create(nw_observer **observer, const char *dir, const nw_resume_point *resume)
{
    (void)dir, (void)resume;
    *observer = NULL;
    return NW_FAIL(NW_E_UNSUPPORTED, "this build writes no TensorBoard events: install libprotobuf-c-dev and "
                                     "protobuf-c-compiler and build again, or switch them off");
}

#else

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "events.pb-c.h"
#include "base/append.h"
#include "observe/crc32c.h"

enum { BUFFER_SIZE = 64 << 10, MOST_SCALARS = 64, FRAME = 16, MOST_FILES = 1000 };

typedef struct tensorboard {
    nw_observer base;
    nw_append file;
    int64_t flushed_ns;
    size_t used;
    unsigned char buffer[BUFFER_SIZE];
    Tensorboard__Summary__Value values[MOST_SCALARS];
    Tensorboard__Summary__Value *pointers[MOST_SCALARS];
} tensorboard;

static nw_status flush(tensorboard *self)
{
    size_t bytes = self->used;
    self->used = 0;
    self->flushed_ns = nw_now_ns();
    return bytes > 0 ? nw_append_write(&self->file, self->buffer, bytes) : NW_OK;
}

static void put_little(unsigned char *to, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) to[i] = (unsigned char)(value >> 8 * i);
}

static nw_status add_event(tensorboard *self, Tensorboard__Event *event)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    event->wall_time = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    size_t bytes = tensorboard__event__get_packed_size(event);
    NW_FAIL_IF(bytes > BUFFER_SIZE - FRAME, NW_E_INTERNAL, "an event of %zu bytes does not fit the buffer of %s", bytes,
               self->file.path);
    if (self->used + bytes + FRAME > BUFFER_SIZE) NW_TRY(flush(self));
    unsigned char *at = self->buffer + self->used;
    put_little(at, bytes, 8);
    put_little(at + 8, nw_crc32c_masked(at, 8), 4);
    tensorboard__event__pack(event, at + 12);
    put_little(at + 12 + bytes, nw_crc32c_masked(at + 12, bytes), 4);
    self->used += bytes + FRAME;
    return NW_OK;
}

static nw_status observe(nw_observer *observer, nw_record_kind kind, const void *record)
{
    tensorboard *self = (tensorboard *)observer;
    const nw_record_type *type = nw_record_type_of(kind);
    Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
    summary.value = self->pointers;
    for (int i = 0; i < type->count; i++) {
        const nw_field *field = &type->fields[i];
        nw_field_value value = nw_record_value(field, record);
        if (field->scalar == NULL || !value.known) continue;
        NW_FAIL_IF(summary.n_value == MOST_SCALARS, NW_E_INTERNAL, "a record has more than %d scalars", MOST_SCALARS);
        Tensorboard__Summary__Value *scalar = self->pointers[summary.n_value++];
        tensorboard__summary__value__init(scalar);
        scalar->tag = (char *)field->scalar;
        scalar->value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
        scalar->simple_value = (float)value.real;
    }
    if (summary.n_value > 0) {
        Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
        event.step = nw_record_head_of(record).images;
        event.what_case = TENSORBOARD__EVENT__WHAT_SUMMARY;
        event.summary = &summary;
        NW_TRY(add_event(self, &event));
    }
    return kind != NW_RECORD_STEP || nw_now_ns() - self->flushed_ns > 1000000000 ? flush(self) : NW_OK;
}

static nw_status close_tensorboard(nw_observer *observer)
{
    tensorboard *self = (tensorboard *)observer;
    nw_status written = flush(self);
    nw_status closed = nw_append_close(&self->file);
    free(self);
    NW_TRY(written);
    return closed;
}

static const nw_observer_ops ops = {.record = observe, .close = close_tensorboard};

/* The name of a file that does not exist yet: a process that trains twice within a second adds a number. */
static nw_status open_new(tensorboard *self, const char *dir)
{
    char host[256] = "localhost";
    if (gethostname(host, sizeof host - 1) != 0 || host[0] == '\0') strcpy(host, "localhost");
    for (char *at = host; *at != '\0'; at++) {
        if (*at == '/') *at = '_';
    }
    nw_status status = NW_E_ARGUMENT;
    for (int i = 0; status == NW_E_ARGUMENT && i < MOST_FILES; i++) {
        NW_AUTOFREE char *path = NULL;
        char more[16] = "";
        if (i > 0) snprintf(more, sizeof more, ".%d", i);
        NW_TRY(nw_text_print(&path, "%s/events.out.tfevents.%010lld.%s.%d%s", dir, (long long)time(NULL), host,
                             (int)getpid(), more));
        status = nw_append_open(&self->file, path, NW_APPEND_NEW);
    }
    return status;
}

static nw_status begin(tensorboard *self, const char *dir, const nw_resume_point *resume)
{
    NW_TRY(open_new(self, dir));
    Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
    event.what_case = TENSORBOARD__EVENT__WHAT_FILE_VERSION;
    event.file_version = (char *)"brain.Event:2";
    NW_TRY(add_event(self, &event));
    if (nw_resume_point_continues(resume)) {
        Tensorboard__SessionLog log = TENSORBOARD__SESSION_LOG__INIT;
        log.status = TENSORBOARD__SESSION_LOG__SESSION_STATUS__START;
        tensorboard__event__init(&event);
        event.step = resume->images + 1;
        event.what_case = TENSORBOARD__EVENT__WHAT_SESSION_LOG;
        event.session_log = &log;
        NW_TRY(add_event(self, &event));
    }
    return flush(self);
}

bool nw_tensorboard_available(void) { return true; }

nw_status nw_tensorboard_create(nw_observer **observer, const char *dir, const nw_resume_point *resume)
{
    *observer = NULL;
    tensorboard *self = calloc(1, sizeof *self);
    NW_FAIL_IF(self == NULL, NW_E_MEMORY, "no memory for the events of %s", dir);
    self->base.ops = &ops;
    self->file.file = -1;
    for (int i = 0; i < MOST_SCALARS; i++) self->pointers[i] = &self->values[i];
    nw_status status = begin(self, dir, resume);
    if (status == NW_OK)
        *observer = &self->base;
    else
        close_tensorboard(&self->base);
    return status;
}

#endif
