/*
 * status.c - the texts of the status table and the record of each thread's last failure.
 *
 * Invariants: the record lives in fixed thread-local buffers, so a failure can be reported when memory is what ran out,
 * and one thread never sees the failure of another. Both buffers always hold a terminated string that is never cut
 * inside a UTF-8 character. The first line of the trace is the origin; when the buffer is full, the places nearest to
 * the origin are the ones kept. The rank belongs to the process. Any thread may call anything here.
 */
#include "base/status.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#ifndef NW_VERSION
#define NW_VERSION "0.1.0"
#endif
#ifndef NW_COMMIT
#define NW_COMMIT "unknown"
#endif

enum { MESSAGE_SIZE = 1024, TRACE_SIZE = 3072 };

static _Thread_local char error_message[MESSAGE_SIZE];
static _Thread_local char error_trace[TRACE_SIZE];
static _Thread_local nw_status error_status = NW_OK;

const char *nw_status_name(nw_status status)
{
    switch (status) {
#define CASE(identifier, exit_code, text) \
    case NW_##identifier:                 \
        return "NW_" #identifier;
        NW_STATUS_MAP(CASE)
#undef CASE
    }
    return "unknown status";
}

const char *nw_status_text(nw_status status)
{
    switch (status) {
#define CASE(identifier, exit_code, text) \
    case NW_##identifier:                 \
        return text;
        NW_STATUS_MAP(CASE)
#undef CASE
    }
    return "unknown status";
}

int nw_status_exit_code(nw_status status)
{
    switch (status) {
#define CASE(identifier, exit_code, text) \
    case NW_##identifier:                 \
        return exit_code;
        NW_STATUS_MAP(CASE)
#undef CASE
    }
    return 1;
}

/* Ends a text that did not fit with three dots, at the last whole character before them. */
static void mark_cut(char *text, size_t size)
{
    size_t end = size - 4;
    while (end > 0 && ((unsigned char)text[end] & 0xC0) == 0x80) end--;
    memcpy(text + end, "...", 4);
}

/* Adds a line to the trace, whole or not at all. */
static void trace_add(const char *file, int line, const char *what)
{
    size_t used = strlen(error_trace);
    size_t space = sizeof error_trace - used;
    const char *start = used > 0 ? "\n" : "";
    const char *colon = what[0] != '\0' ? ": " : "";
    int wrote = snprintf(error_trace + used, space, "%s%s:%d%s%s", start, file, line, colon, what);
    if (wrote < 0 || (size_t)wrote >= space) error_trace[used] = '\0';
}

nw_status nw_fail_at(nw_status status, const char *file, int line, const char *format, ...)
{
    /* Formatted aside first: an argument may well be the message of the failure that this one explains. */
    char fresh[MESSAGE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(fresh, sizeof fresh, format, arguments);
    va_end(arguments);
    if (wrote < 0) snprintf(fresh, sizeof fresh, "%s", nw_status_text(status));
    if (wrote >= (int)sizeof fresh) mark_cut(fresh, sizeof fresh);
    memcpy(error_message, fresh, strlen(fresh) + 1);

    error_status = status;
    error_trace[0] = '\0';
    char what[MESSAGE_SIZE + 64];
    snprintf(what, sizeof what, "%s: %s", nw_status_name(status), error_message);
    trace_add(file, line, what);
    return status;
}

nw_status nw_pass_up_at(nw_status status, const char *file, int line)
{
    /* A status that nobody explained in this thread (a worker failed, say) must not borrow an older explanation. */
    if (status != error_status) return nw_fail_at(status, file, line, "%s", nw_status_text(status));
    trace_add(file, line, "");
    return status;
}

const char *nw_error_message(void) { return error_message; }

const char *nw_error_trace(void) { return error_trace; }

const char *nw_version(void) { return NW_VERSION; }

const char *nw_build_commit(void) { return NW_COMMIT; }
