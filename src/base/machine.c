/*
 * machine.c - what this machine is and what it did meanwhile, read from Linux's text files.
 *
 * Every function copes with a file that is missing or says something unexpected, by the fallback that machine.h gives,
 * and uses no memory but its stack. Any thread may call; nothing is cached, since affinity and limits can change.
 *
 * Control groups: limits hold for a group and all above it, so the path from this process's group to the root is
 * walked and the tightest limit counts. Only version 2 is read.
 */
#define _GNU_SOURCE 1
#include "base/machine.h"

#include <ctype.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define CGROUP_ROOT "/sys/fs/cgroup"

/* The files of /proc and of control groups that are read here say what is wanted within this many bytes. */
enum { TEXT_SIZE = 8192, PATH_SIZE = 1024 };

static bool read_text(const char *path, char *text, size_t size)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return false;
    size_t length = 0;
    while (length + 1 < size) {
        ssize_t got = read(file, text + length, size - 1 - length);
        if (got <= 0) break;
        length += (size_t)got;
    }
    close(file);
    text[length] = '\0';
    return length > 0;
}

/* What follows `name` at the start of a line, or NULL. */
static const char *after_name(const char *text, const char *name)
{
    size_t length = strlen(name);
    while (strncmp(text, name, length) != 0) {
        text = strchr(text, '\n');
        if (text == NULL) return NULL;
        text++;
    }
    return text + length;
}

/* The unsigned number after `name` at the start of a line; 0 if there is none. */
static uint64_t number_after(const char *text, const char *name)
{
    const char *number = after_name(text, name);
    return number != NULL ? strtoull(number, NULL, 10) : 0;
}

/* Calls visit(directory, limit) for the process's control group and each above it; visit lowers *limit. */
static void walk_cgroups(void (*visit)(const char *directory, uint64_t *limit), uint64_t *limit)
{
    char text[TEXT_SIZE];
    char directory[PATH_SIZE] = CGROUP_ROOT;
    const size_t root = strlen(CGROUP_ROOT);
    if (!read_text("/proc/self/cgroup", text, sizeof text)) return;
    const char *group = after_name(text, "0::/");
    if (group == NULL) return;
    /* Where the group lies outside what this process can see, the path climbs with "..": then only the root counts. */
    size_t length = strcspn(group, "\n");
    if (length > 0 && length < sizeof directory - root - 1 && strncmp(group, "..", 2) != 0) {
        snprintf(directory + root, sizeof directory - root, "/%.*s", (int)length, group);
    }
    for (;;) {
        visit(directory, limit);
        if (strlen(directory) <= root) break;
        *strrchr(directory, '/') = '\0';
    }
}

static bool read_cgroup_file(const char *directory, const char *name, char *text, size_t size)
{
    char path[PATH_SIZE + 32];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return read_text(path, text, size);
}

/* cpu.max: "quota period" in microseconds, or "max period". */
static void visit_cpu(const char *directory, uint64_t *limit)
{
    char text[128];
    unsigned long long quota, period;
    if (!read_cgroup_file(directory, "cpu.max", text, sizeof text)) return;
    if (sscanf(text, "%llu %llu", &quota, &period) != 2 || period == 0) return;
    uint64_t cpus = quota / period + (quota % period != 0);
    if (*limit > cpus) *limit = cpus;
}

/* memory.max minus what is in use and cannot be dropped: memory.current counts cached files, which can. */
static void visit_memory(const char *directory, uint64_t *limit)
{
    char text[TEXT_SIZE];
    if (!read_cgroup_file(directory, "memory.max", text, sizeof text) || !isdigit((unsigned char)text[0])) return;
    uint64_t most = strtoull(text, NULL, 10);
    uint64_t used = 0;
    if (read_cgroup_file(directory, "memory.current", text, sizeof text)) used = strtoull(text, NULL, 10);
    if (read_cgroup_file(directory, "memory.stat", text, sizeof text)) {
        uint64_t cached = number_after(text, "inactive_file ") + number_after(text, "active_file ");
        used -= cached < used ? cached : used;
    }
    /* 0 would mean unknown. */
    uint64_t left = most > used ? most - used : 1;
    if (*limit > left) *limit = left;
}

int nw_machine_allowed_cpus(void)
{
    /* Many sets in a row, because the kernel refuses a mask shorter than its own and one set ends at 1024 CPUs. */
    cpu_set_t sets[16];
    memset(sets, 0, sizeof sets);
    bool known = sched_getaffinity(0, sizeof sets, sets) == 0;
    long cpus = known ? CPU_COUNT_S(sizeof sets, sets) : sysconf(_SC_NPROCESSORS_ONLN);
    uint64_t limit = cpus > 0 ? (uint64_t)cpus : 1;
    walk_cgroups(visit_cpu, &limit);
    return limit > 0 ? (int)limit : 1;
}

/* Copies the rest of a line "  : Some   name" as "Some name". */
static void copy_value(char *to, size_t size, const char *from)
{
    size_t length = 0;
    from += strspn(from, " \t:");
    for (; *from != '\0' && *from != '\n' && length + 1 < size; from++) {
        bool blank = isspace((unsigned char)*from);
        if (blank && (length == 0 || to[length - 1] == ' ')) continue;
        to[length++] = blank ? ' ' : *from;
    }
    while (length > 0 && to[length - 1] == ' ') length--;
    to[length] = '\0';
}

void nw_machine_cpu_name(char *text, size_t size)
{
    static const char *const names[] = {"model name", "cpu model", "Hardware", "cpu\t"};
    char info[TEXT_SIZE];
    if (size == 0) return;
    text[0] = '\0';
    if (read_text("/proc/cpuinfo", info, sizeof info)) {
        for (size_t i = 0; i < sizeof names / sizeof names[0] && text[0] == '\0'; i++) {
            const char *value = after_name(info, names[i]);
            if (value != NULL) copy_value(text, size, value);
        }
        /* 64-bit ARM gives numbers only. */
        const char *implementer = after_name(info, "CPU implementer");
        const char *part = after_name(info, "CPU part");
        if (text[0] == '\0' && implementer != NULL && part != NULL) {
            char implementer_code[16], part_code[16];
            copy_value(implementer_code, sizeof implementer_code, implementer);
            copy_value(part_code, sizeof part_code, part);
            snprintf(text, size, "ARM implementer %s part %s", implementer_code, part_code);
        }
    }
    if (text[0] == '\0') snprintf(text, size, "unknown");
}

size_t nw_machine_available_memory(void)
{
    char text[TEXT_SIZE];
    uint64_t limit = UINT64_MAX;
    if (read_text("/proc/meminfo", text, sizeof text)) {
        uint64_t kib = number_after(text, "MemAvailable:");
        if (kib > 0) limit = kib * 1024;
    }
    walk_cgroups(visit_memory, &limit);
    if (limit == UINT64_MAX) return 0;
    return limit < SIZE_MAX ? (size_t)limit : SIZE_MAX;
}

size_t nw_machine_peak_memory(void)
{
    char text[TEXT_SIZE];
    if (read_text("/proc/self/status", text, sizeof text)) {
        uint64_t kib = number_after(text, "VmHWM:");
        if (kib > 0) return (size_t)(kib * 1024);
    }
    /* Second choice, because it starts from what the program had that this one replaced. */
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0) return 0;
    return (size_t)usage.ru_maxrss * 1024;
}

double nw_machine_load(void)
{
    double load;
    return getloadavg(&load, 1) == 1 ? load : -1.0;
}

nw_cpu_ticks nw_machine_ticks(void)
{
    /* user nice system idle iowait irq softirq steal; the guest times that follow are counted in user and nice. */
    enum { IDLE = 3, IOWAIT = 4, STEAL = 7, FIELDS = 8 };
    char text[TEXT_SIZE];
    uint64_t fields[FIELDS] = {0};
    if (read_text("/proc/stat", text, sizeof text)) {
        const char *at = after_name(text, "cpu ");
        for (int i = 0; at != NULL && i < FIELDS; i++) {
            char *end;
            fields[i] = strtoull(at, &end, 10);
            at = end;
        }
    }
    nw_cpu_ticks ticks = {.steal = fields[STEAL], .idle = fields[IDLE] + fields[IOWAIT]};
    for (int i = 0; i < FIELDS; i++) ticks.total += fields[i];
    return ticks;
}

double nw_machine_steal_percent(nw_cpu_ticks before, nw_cpu_ticks after)
{
    if (after.total <= before.total || after.steal <= before.steal) return 0.0;
    return 100.0 * (double)(after.steal - before.steal) / (double)(after.total - before.total);
}
