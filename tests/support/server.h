/*
 * server.h - a small web server on loopback for tests of downloads: files from memory, ranges, and faults on demand.
 */
#ifndef NW_TESTS_SERVER_H
#define NW_TESTS_SERVER_H

#include <stdbool.h>
#include <stddef.h>

enum { SERVER_FILES = 4 };

typedef struct server_file {
    const char *path; /* "/name" */
    const void *data;
    size_t size;
} server_file;

/* What the server does wrong, and what it saw. Change it only between downloads. */
typedef struct server_faults {
    int cut_answers; /* this many answers end after cut_after bytes of their body */
    size_t cut_after;
    int busy_answers;     /* this many answers are 503 */
    bool no_ranges;       /* everything is sent, whatever was asked */
    const char *tag;      /* ETag; NULL: none */
    int requests, ranged; /* seen: all, and those that asked for a range and got it */
    size_t sent;          /* bytes of bodies */
} server_faults;

typedef struct server server;

server *server_start(const server_file files[SERVER_FILES]);
void server_stop(server *s);
server_faults *server_control(server *s);
const char *server_url(const server *s); /* "http://127.0.0.1:PORT/" */

#endif
