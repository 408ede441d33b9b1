/* faults_file.c - a script of faults from a file; see cluster_file.h and docs/cluster.md. */
#include "config/cluster_file.h"

#include "base/file.h"
#include "base/suggest.h"
#include "config/recipe.h"
#include "config/yaml_get.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(list) (int)(sizeof(list) / sizeof *(list))
static const int64_t most_steps = INT64_C(1) << 40;

enum { DIGITS = 24 };

/* The number in "step 100", or in a duration of "100 steps". False where the text is something else. */
static bool take_steps(const char *text, bool duration, char digits[DIGITS])
{
    if (!duration) {
        if (strncmp(text, "step ", 5) != 0) return false;
        text += 5;
    }
    size_t length = strspn(text, "-0123456789");
    const char *rest = text + length;
    if (length == 0 || length >= DIGITS) return false;
    memcpy(digits, text, length);
    digits[length] = 0;
    return duration ? strcmp(rest, " steps") == 0 || strcmp(rest, " step") == 0 : !*rest;
}

/* Where on its axis something happens: "step 100", or a time. A duration of steps is "100 steps". */
static nw_status read_point(const char *file, const nw_yaml *map, const char *key, bool duration, bool *by_step,
                            int64_t *value)
{
    const nw_yaml *node = nw_yaml_find(map, key);
    const char *text = NULL, *wrong;
    nw_complaint complaint;
    char digits[DIGITS];
    NW_TRY(nw_yaml_scalar(file, node, key, &text));
    NW_YAML_FAIL_IF(*text == '-', file, node,
                    "'%s: %.60s' is before the start of the run; times and steps count from 0", key, text);
    *by_step = take_steps(text, duration, digits);
    if (*by_step)
        wrong = nw_units_int(digits, 0, most_steps, value, &complaint);
    else
        wrong = nw_units_time(text, value, &complaint);
    NW_YAML_FAIL_IF(wrong, file, node, "'%s': %s%s", key, wrong,
                    *by_step   ? ""
                    : duration ? " or, in steps, 20 steps"
                               : " or, for a step, step 100");
    return NW_OK;
}

static nw_status read_rank(const char *file, const nw_yaml *node, const char *what, int *rank)
{
    const char *text = NULL;
    nw_complaint complaint;
    int64_t value = NW_FAULT_ANY;
    NW_TRY(nw_yaml_scalar(file, node, what, &text));
    const char *wrong =
        strcmp(text, "any") == 0 ? NULL : nw_units_int(text, 0, NW_CLUSTER_RANKS - 1, &value, &complaint);
    NW_YAML_FAIL_IF(wrong, file, node, "'%s': %s; write a rank, or any", what, wrong);
    *rank = (int)value;
    return NW_OK;
}

static nw_status read_kind(const char *file, const nw_yaml *item, nw_fault_kind *kind)
{
    static const nw_fault_kind kinds[] = {NW_FAULT_SLOW,      NW_FAULT_PAUSE,     NW_FAULT_STOP, NW_FAULT_DIE,
                                          NW_FAULT_LINK_DOWN, NW_FAULT_LINK_SLOW, NW_FAULT_JOIN};
    const char *names[COUNT(kinds)], *text = NULL;
    NW_TRY(nw_yaml_get_text(file, item, "kind", &text));
    NW_YAML_FAIL_IF(!text, file, item,
                    "a fault needs a kind; write 'kind: slow', or pause, stop, die, join, link_down, link_slow");
    for (int i = 0; i < COUNT(kinds); i++) {
        names[i] = nw_fault_name(kinds[i]);
        *kind = kinds[i];
        if (strcmp(names[i], text) == 0) return NW_OK;
    }
    return NW_YAML_FAIL(file, nw_yaml_find(item, "kind"), "there is no fault '%.60s'%s", text,
                        nw_suggest(text, names, COUNT(kinds), "").text);
}

/* Whom: 'rank' of ranks; 'link', or 'from' and 'to', of links. */
static nw_status read_subject(const char *file, const nw_yaml *item, nw_fault *fault)
{
    const nw_yaml *rank = nw_yaml_find(item, "rank"), *link = nw_yaml_find(item, "link"),
                  *from = nw_yaml_find(item, "from"), *to = nw_yaml_find(item, "to");
    const char *name = nw_fault_name(fault->kind);
    if (fault->kind != NW_FAULT_LINK_DOWN && fault->kind != NW_FAULT_LINK_SLOW) {
        NW_YAML_FAIL_IF(!rank || link || from || to, file, item,
                        "'%s' happens to a rank; add 'rank: 3', or 'rank: any'", name);
        return read_rank(file, rank, "rank", &fault->rank);
    }
    NW_YAML_FAIL_IF(rank || (link ? from || to : !from || !to), file, item,
                    "'%s' happens to a link; add 'link: [1, 2]', or 'from: 1' and 'to: 2' for one direction", name);
    NW_YAML_FAIL_IF(link && (link->kind != NW_YAML_LIST || link->count != 2), file, link,
                    "'link' takes a list of two ranks: 'link: [1, 2]'");
    fault->both_ways = link != NULL;
    NW_TRY(read_rank(file, link ? link->first : from, link ? "link" : "from", &fault->rank));
    return read_rank(file, link ? link->first->next : to, link ? "link" : "to", &fault->peer);
}

static nw_status read_end(const char *file, const nw_yaml *item, nw_fault *fault)
{
    const nw_yaml *until = nw_yaml_find(item, "until"), *lasts = nw_yaml_find(item, "for");
    const char *name = nw_fault_name(fault->kind);
    bool by_step = fault->by_step;
    int64_t value = 0;
    fault->until = NW_NEVER;
    NW_YAML_FAIL_IF(until && lasts, file, lasts, "'until' and 'for' both say when '%s' ends; remove one of them", name);
    if (fault->kind == NW_FAULT_PAUSE) {
        NW_YAML_FAIL_IF(!lasts, file, item,
                        "a pause needs a length; add 'for: 2 s', or use 'kind: stop', which never ends");
        NW_TRY(nw_yaml_get_time(file, item, "for", &fault->duration_ns));
        return NW_OK;
    }
    if (!until && !lasts) return NW_OK;
    NW_YAML_FAIL_IF(fault->kind == NW_FAULT_JOIN, file, until ? until : lasts,
                    "'join' never ends; the rank may 'pause' or 'stop' later");
    NW_YAML_FAIL_IF(fault->kind == NW_FAULT_STOP || fault->kind == NW_FAULT_DIE, file, until ? until : lasts,
                    "'%s' never ends; for a limited time use 'kind: pause' with 'for: 2 s'", name);
    NW_TRY(read_point(file, item, until ? "until" : "for", lasts != NULL, &by_step, &value));
    NW_YAML_FAIL_IF(by_step != fault->by_step, file, until ? until : lasts,
                    "'at' and '%s' count differently, one in steps, the other in time; use the same for both",
                    until ? "until" : "for");
    fault->until = until ? value : nw_time_add(fault->at, value);
    return NW_OK;
}

static nw_status read_fault(const char *file, const nw_yaml *item, int world, nw_fault *fault)
{
    static const char *const keys[] = {"kind", "rank", "link", "from", "to", "at", "until", "for", "factor"};
    const nw_yaml *factor = nw_yaml_find(item, "factor");
    char where[NW_PATH_MOST];
    *fault = (nw_fault){.line = item->line};
    NW_TRY(nw_yaml_check_map(file, item, "a fault", keys, COUNT(keys)));
    NW_TRY(read_kind(file, item, &fault->kind));
    NW_TRY(read_subject(file, item, fault));
    NW_YAML_FAIL_IF(!nw_yaml_find(item, "at"), file, item,
                    "a fault needs a beginning; add 'at: step 100' or 'at: 30 s'");
    NW_TRY(read_point(file, item, "at", false, &fault->by_step, &fault->at));
    NW_TRY(read_end(file, item, fault));
    const bool slow = fault->kind == NW_FAULT_SLOW || fault->kind == NW_FAULT_LINK_SLOW;
    NW_YAML_FAIL_IF(slow && !factor, file, item, "'slow' and 'link_slow' need a factor; add 'factor: 4x'");
    NW_YAML_FAIL_IF(!slow && factor, file, factor, "'%s' takes no factor; remove it", nw_fault_name(fault->kind));
    NW_TRY(nw_yaml_get_factor(file, item, "factor", &fault->factor));
    snprintf(where, sizeof where, "%s:%d", file, item->line);
    return nw_fault_check(fault, world, NW_E_FILE, where);
}

static nw_status read_faults(nw_faults **faults, const char *file, const nw_yaml *root, nw_bump *region, int world)
{
    static const char *const keys[] = {"faults", "about"};
    const nw_yaml *items;
    int count = 0;
    NW_FAIL_IF(root->kind == NW_YAML_MAP && root->count == 0, NW_E_FILE,
               "%s is empty; list faults in it under 'faults:' (clusters/faults/ has examples)", file);
    NW_TRY(nw_yaml_check_map(file, root, "a file of faults", keys, COUNT(keys)));
    NW_TRY(nw_yaml_get_list(file, root, "faults", &items));
    NW_FAIL_IF(!items, NW_E_FILE, "%s has no key 'faults'; list what goes wrong under it", file);
    NW_YAML_FAIL_IF(items->count > NW_FAULTS_MOST, file, items, "more than %d faults", (int)NW_FAULTS_MOST);
    nw_fault *list = nw_bump_alloc(region, (size_t)items->count * sizeof *list);
    NW_TRY_MEMORY(list);
    for (const nw_yaml *item = items->first; item; item = item->next)
        NW_TRY(read_fault(file, item, world, &list[count++]));
    return nw_faults_create(faults, list, count, world);
}

nw_status nw_faults_parse(nw_faults **faults, const char *name, const void *data, size_t size, int world)
{
    NW_CLEANUP(nw_bump_free) nw_bump region = {0};
    nw_yaml *root;
    *faults = NULL;
    NW_TRY(nw_yaml_parse(name, data, size, &region, &root));
    return read_faults(faults, name, root, &region, world);
}

nw_status nw_faults_load(nw_faults **faults, const char *name, int world)
{
    NW_AUTOFREE char *data = NULL;
    char path[NW_PATH_MOST];
    size_t size;
    *faults = NULL;
    NW_TRY(nw_installed_named("clusters/faults", "script of faults", "docs/cluster.md tells how to write one", name,
                              path));
    NW_TRY(nw_file_read(path, NW_YAML_BYTES, &data, &size));
    return nw_faults_parse(faults, path, data, size, world);
}
