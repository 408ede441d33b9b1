/*
 * download.c - one file from a web server, through libcurl; see download.h.
 *
 * Only http and https are spoken, also after a redirection. A transfer that moves nothing for STALL seconds is given up
 * and tried again, at most TRIES times in a row without a new byte. Before the first byte is written the space on the
 * disk is compared with what the server announces.
 */
#include "data/download.h"

#include "data/bytes.h"

#include <stdio.h>
#include <unistd.h>

static void tag_path(char path[NW_PATH_SIZE], const char *part) { snprintf(path, NW_PATH_SIZE, "%.4000s.tag", part); }

void nw_download_forget(const char *part)
{
    char tag[NW_PATH_SIZE];
    tag_path(tag, part);
    unlink(tag);
    unlink(part);
}

#if NW_HAVE_CURL

#include "base/clock.h"

#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

enum { CONNECT_SECONDS = 30, STALL = 30, TRIES = 5, TAG_SIZE = 256 };

typedef struct transfer {
    const char *url, *part;
    nw_fetch_progress progress;
    void *context;
    CURL *curl;
    int fd;
    int64_t held, total;                /* bytes in the part; of the whole file, 0 if unknown */
    int64_t asked_from;                 /* where the range began that was asked for */
    int64_t range_start;                /* where the answer begins, by its Content-Range; -1: it has none */
    bool started, moved;                /* the answer's body has begun; bytes came */
    char tag[TAG_SIZE], date[TAG_SIZE]; /* of the answer */
    int64_t last_call;                  /* of progress, in ns */
    nw_status status;                   /* why a callback stopped the transfer */
} transfer;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void start_curl(void) { curl_global_init(CURL_GLOBAL_DEFAULT); }

static void copy_value(char to[TAG_SIZE], const char *from, size_t length)
{
    while (length && (*from == ' ' || *from == '\t')) from++, length--;
    while (length && (from[length - 1] == '\r' || from[length - 1] == '\n' || from[length - 1] == ' ')) length--;
    if (length >= TAG_SIZE) length = 0;
    memcpy(to, from, length);
    to[length] = 0;
}

static size_t on_header(char *line, size_t item, size_t count, void *context)
{
    transfer *t = context;
    size_t length = item * count;
    const char *colon = memchr(line, ':', length);
    if (!colon) {
        if (length >= 5 && strncmp(line, "HTTP/", 5) == 0) { /* another answer, after a redirection */
            t->tag[0] = t->date[0] = 0;
            t->range_start = -1;
        }
        return length;
    }
    size_t name = (size_t)(colon - line), rest = length - name - 1;
    char value[TAG_SIZE];
    copy_value(value, colon + 1, rest);
    if (name == 4 && strncasecmp(line, "ETag", 4) == 0 && strncmp(value, "W/", 2) != 0) /* weak tags prove nothing */
        memcpy(t->tag, value, sizeof value);
    else if (name == 13 && strncasecmp(line, "Last-Modified", 13) == 0)
        memcpy(t->date, value, sizeof value);
    else if (name == 13 && strncasecmp(line, "Content-Range", 13) == 0) {
        long long from, to;
        if (sscanf(value, "bytes %lld-%lld/", &from, &to) == 2) t->range_start = from;
    }
    return length;
}

static void keep_tag(const transfer *t)
{
    char path[NW_PATH_SIZE];
    tag_path(path, t->part);
    FILE *f = fopen(path, "w");
    if (!f) return; /* then the next attempt begins anew */
    fprintf(f, "%s\n", t->tag[0] ? t->tag : t->date);
    fclose(f);
}

static nw_status check_space(const transfer *t, int64_t more)
{
    struct statvfs disk;
    if (fstatvfs(t->fd, &disk) != 0) return NW_OK;
    double available = (double)disk.f_bavail * (double)disk.f_frsize;
    NW_FAIL_IF((double)more > available, NW_E_SYSTEM,
               "%s needs %.1f GB more and the disk has %.1f GB; free some space, or choose another --data-dir", t->part,
               (double)more / 1e9, available / 1e9);
    return NW_OK;
}

/* The first bytes of an answer: are they the rest of the part, or everything? */
static nw_status begin_body(transfer *t, long code)
{
    curl_off_t length = -1;
    t->started = true;
    if (code == 206) {
        NW_FAIL_IF(t->range_start != t->asked_from, NW_E_FILE,
                   "%s: asked for the bytes from %lld on, the server sent those from %lld; remove %s and try again",
                   t->url, (long long)t->asked_from, (long long)t->range_start, t->part);
    } else {
        NW_FAIL_IF(ftruncate(t->fd, 0) != 0 || lseek(t->fd, 0, SEEK_SET) != 0, NW_E_SYSTEM, "%s cannot be emptied: %s",
                   t->part, strerror(errno));
        t->held = 0;
    }
    curl_easy_getinfo(t->curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    t->total = length > 0 ? t->held + length : 0;
    if (length > 0) NW_TRY(check_space(t, length));
    keep_tag(t);
    return NW_OK;
}

static nw_status store(transfer *t, const char *data, size_t bytes)
{
    while (bytes) {
        ssize_t n = write(t->fd, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        NW_FAIL_IF(n <= 0, NW_E_SYSTEM,
                   "%s cannot be written at offset %lld: %s; what was received is kept; free some "
                   "space and run the same command to continue",
                   t->part, (long long)t->held, n < 0 ? strerror(errno) : "nothing was taken");
        data += n;
        bytes -= (size_t)n;
        t->held += n;
        t->moved = true;
    }
    int64_t now = nw_now_ns();
    if (t->progress && (now - t->last_call > 100000000 || t->held == t->total)) {
        t->last_call = now;
        NW_FAIL_IF(!t->progress(t->context, t->url, t->held, t->total), NW_E_SYSTEM,
                   "the download of %s was stopped; run the same command again to continue", t->url);
    }
    return NW_OK;
}

static size_t on_body(char *data, size_t item, size_t count, void *context)
{
    transfer *t = context;
    long code = 0;
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    if (code != 200 && code != 206) return item * count; /* the text of an error: not wanted */
    if (!t->started) t->status = begin_body(t, code);
    if (t->status == NW_OK) t->status = store(t, data, item * count);
    return t->status == NW_OK ? item * count : 0;
}

/* The tag that an earlier attempt left; empty if none. */
static void read_tag(const char *part, char tag[TAG_SIZE])
{
    char path[NW_PATH_SIZE];
    tag[0] = 0;
    tag_path(path, part);
    FILE *f = fopen(path, "r");
    if (!f) return;
    if (!fgets(tag, TAG_SIZE, f)) tag[0] = 0;
    tag[strcspn(tag, "\r\n")] = 0;
    fclose(f);
}

/* One attempt. *again: it failed in a way that may pass. */
static nw_status attempt(transfer *t, bool *again)
{
    char tag[TAG_SIZE], range[64], condition[TAG_SIZE + 16], said[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    long code = 0;
    *again = false;
    read_tag(t->part, tag);
    if (!tag[0] && t->held > 0) t->held = 0; /* nothing to prove that it is the same file */
    NW_FAIL_IF(lseek(t->fd, t->held, SEEK_SET) < 0, NW_E_SYSTEM, "%s: %s", t->part, strerror(errno));
    t->asked_from = t->held;
    t->started = t->moved = false;
    t->status = NW_OK;
    curl_easy_reset(t->curl);
    curl_easy_setopt(t->curl, CURLOPT_URL, t->url);
    curl_easy_setopt(t->curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(t->curl, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(t->curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(t->curl, CURLOPT_MAXREDIRS, 10L);
    curl_easy_setopt(t->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(t->curl, CURLOPT_CONNECTTIMEOUT, (long)CONNECT_SECONDS);
    curl_easy_setopt(t->curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(t->curl, CURLOPT_LOW_SPEED_TIME, (long)STALL);
    curl_easy_setopt(t->curl, CURLOPT_USERAGENT, "nowait");
    curl_easy_setopt(t->curl, CURLOPT_ERRORBUFFER, said);
    curl_easy_setopt(t->curl, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(t->curl, CURLOPT_HEADERDATA, t);
    curl_easy_setopt(t->curl, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(t->curl, CURLOPT_WRITEDATA, t);
    if (t->held > 0) {
        snprintf(range, sizeof range, "%lld-", (long long)t->held);
        snprintf(condition, sizeof condition, "If-Range: %s", tag);
        headers = curl_slist_append(NULL, condition);
        curl_easy_setopt(t->curl, CURLOPT_RANGE, range);
        curl_easy_setopt(t->curl, CURLOPT_HTTPHEADER, headers);
    }
    CURLcode result = curl_easy_perform(t->curl);
    curl_easy_getinfo(t->curl, CURLINFO_RESPONSE_CODE, &code);
    curl_slist_free_all(headers);
    if (t->status != NW_OK) return nw_pass_up_at(t->status, __FILE__, __LINE__);
    if (result == CURLE_OK && code == 416 && t->held > 0) return NW_OK; /* nothing behind it: the digest will tell */
    if (result == CURLE_OK && (code == 200 || code == 206)) {
        /* An answer without body never came to begin_body. */
        if (!t->started && code == 200) t->held = 0;
        return NW_OK;
    }
    if (result == CURLE_OK) {
        *again = code >= 500 || code == 429 || code == 408;
        return NW_FAIL(NW_E_SYSTEM,
                       "%s: the server answers %ld; try later, or "
                       "let 'nowait data fetch' take it from another address with --url",
                       t->url, code);
    }
    *again = result == CURLE_PARTIAL_FILE || result == CURLE_RECV_ERROR || result == CURLE_SEND_ERROR ||
             result == CURLE_GOT_NOTHING || result == CURLE_OPERATION_TIMEDOUT || result == CURLE_COULDNT_CONNECT ||
             result == CURLE_HTTP2 || result == CURLE_HTTP2_STREAM;
    return NW_FAIL(NW_E_SYSTEM,
                   "%s: %s; check the network, or let 'nowait data fetch' take it from another address with --url",
                   t->url, said[0] ? said : curl_easy_strerror(result));
}

static nw_status attempts(transfer *t)
{
    for (int failures = 0;;) {
        bool again;
        nw_status status = attempt(t, &again);
        if (status == NW_OK) return NW_OK;
        failures = t->moved ? 1 : failures + 1;
        if (!again || failures >= TRIES) return status;
        struct timespec pause = {.tv_sec = failures / 2, .tv_nsec = failures % 2 * 500000000L};
        nanosleep(&pause, NULL);
        if (t->progress && !t->progress(t->context, t->url, t->held, t->total)) return status;
    }
}

nw_status nw_download(const char *url, const char *part, nw_fetch_progress progress, void *context, bool *resumed)
{
    struct stat facts;
    *resumed = false;
    pthread_once(&once, start_curl);
    transfer t = {.url = url, .part = part, .progress = progress, .context = context, .curl = curl_easy_init()};
    NW_FAIL_IF(!t.curl, NW_E_MEMORY, "no memory to download %s", url);
    t.fd = open(part, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    nw_status status = NW_OK;
    if (t.fd < 0 || fstat(t.fd, &facts) != 0) {
        status = NW_FAIL(NW_E_SYSTEM, "%s cannot be written: %s; choose another --data-dir", part, strerror(errno));
    } else {
        t.held = facts.st_size;
        status = attempts(&t);
        *resumed = t.held > 0 && facts.st_size > 0;
        if (status == NW_OK && (ftruncate(t.fd, t.held) != 0 || fsync(t.fd) != 0))
            status = NW_FAIL(NW_E_SYSTEM, "%s cannot be written: %s", part, strerror(errno));
    }
    if (t.fd >= 0) close(t.fd);
    if (t.fd >= 0 && t.held == 0) nw_download_forget(part); /* nothing came: leave nothing */
    curl_easy_cleanup(t.curl);
    return status;
}

#else

nw_status nw_download(const char *url, const char *part, nw_fetch_progress progress, void *context, bool *resumed)
{
    (void)part, (void)progress, (void)context;
    *resumed = false;
    return NW_FAIL(NW_E_UNSUPPORTED,
                   "this build has no libcurl and cannot download %s; fetch it by other means, or install "
                   "libcurl4-openssl-dev and build again",
                   url);
}

#endif
