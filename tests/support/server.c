/* server.c - one thread, one connection at a time, every answer closes it; see server.h. */
#define _GNU_SOURCE 1
#include "support/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

struct server {
    int listener;
    pthread_t thread;
    char url[64];
    server_file files[SERVER_FILES];
    server_faults faults;
};

static bool send_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;
    while (bytes) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n <= 0) return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

/* The value of a header line, or NULL; ends the line with a zero. */
static char *header(char *request, const char *name)
{
    char *at = strcasestr(request, name);
    if (!at) return NULL;
    at += strlen(name);
    while (*at == ' ') at++;
    return at;
}

static void answer(server *s, int fd, char *request)
{
    server_faults *f = &s->faults;
    char head[512], path[128] = "";
    const server_file *file = NULL;
    f->requests++;
    sscanf(request, "GET %127s", path);
    for (int i = 0; i < SERVER_FILES && s->files[i].path; i++)
        if (strcmp(s->files[i].path, path) == 0) file = &s->files[i];
    const char *failure = f->busy_answers > 0 ? "503 Busy" : file ? NULL : "404 Not Found";
    if (failure) {
        if (f->busy_answers > 0) f->busy_answers--;
        int n =
            snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: 4\r\nConnection: close\r\n\r\nnope", failure);
        send_all(fd, head, (size_t)n);
        return;
    }
    size_t from = 0;
    char *range = header(request, "\r\nRange: bytes="), *condition = header(request, "\r\nIf-Range:");
    bool same = !condition || (f->tag && strncmp(condition, f->tag, strlen(f->tag)) == 0);
    bool partial = range && same && !f->no_ranges;
    if (partial) {
        from = strtoull(range, NULL, 10);
        f->ranged++;
    }
    if (from >= file->size && partial) {
        int n = snprintf(head, sizeof head, "HTTP/1.1 416 Range\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        send_all(fd, head, (size_t)n);
        return;
    }
    int n = snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Length: %zu\r\nConnection: close\r\n",
                     partial ? "206 Partial" : "200 OK", file->size - from);
    if (partial)
        n += snprintf(head + n, sizeof head - (size_t)n, "Content-Range: bytes %zu-%zu/%zu\r\n", from, file->size - 1,
                      file->size);
    if (f->tag) n += snprintf(head + n, sizeof head - (size_t)n, "ETag: %s\r\n", f->tag);
    n += snprintf(head + n, sizeof head - (size_t)n, "\r\n");
    size_t bytes = file->size - from;
    if (f->cut_answers > 0) {
        f->cut_answers--;
        if (bytes > f->cut_after) bytes = f->cut_after;
    }
    if (send_all(fd, head, (size_t)n) && send_all(fd, (const char *)file->data + from, bytes)) f->sent += bytes;
}

static void *serve(void *context)
{
    server *s = context;
    for (;;) {
        int fd = accept(s->listener, NULL, NULL);
        if (fd < 0) return NULL;
        char request[4096];
        size_t used = 0;
        request[0] = 0;
        while (used < sizeof request - 1 && !strstr(request, "\r\n\r\n")) {
            ssize_t n = recv(fd, request + used, sizeof request - 1 - used, 0);
            if (n <= 0) break;
            used += (size_t)n;
            request[used] = 0;
        }
        if (strstr(request, "\r\n\r\n")) answer(s, fd, request);
        shutdown(fd, SHUT_WR);
        close(fd);
    }
}

server *server_start(const server_file files[SERVER_FILES])
{
    server *s = calloc(1, sizeof *s);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    memcpy(s->files, files, sizeof s->files);
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    if (s->listener < 0 || bind(s->listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(s->listener, 8) != 0 || getsockname(s->listener, (struct sockaddr *)&address, &length) != 0 ||
        pthread_create(&s->thread, NULL, serve, s) != 0) {
        free(s);
        return NULL;
    }
    snprintf(s->url, sizeof s->url, "http://127.0.0.1:%d/", ntohs(address.sin_port));
    return s;
}

void server_stop(server *s)
{
    shutdown(s->listener, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->listener);
    free(s);
}

server_faults *server_control(server *s) { return &s->faults; }
const char *server_url(const server *s) { return s->url; }
