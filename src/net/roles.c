/* roles.c - see roles.h. */
#include "net/roles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Servers of a column; they are its first members. */
static int servers_of(const nw_roles *r) { return r->servers / r->stages; }
static int column_count(const nw_roles *r) { return servers_of(r) + r->replicas; }

static void fill_roles(nw_roles *r)
{
    int world = nw_roles_world(r), at = 0;
    for (int i = 0; i < world; i++) r->ranks[i] = (uint16_t)i;
    for (int p = 0; p < r->stages; p++) {
        for (int i = 0; i < servers_of(r); i++) r->columns[at++] = (uint16_t)(p * servers_of(r) + i);
        for (int i = 0; i < r->replicas; i++) r->columns[at++] = (uint16_t)(r->servers + i * r->stages + p);
    }
}

nw_status nw_roles_make(nw_roles *r, int servers, int replicas, int stages, int evaluators)
{
    *r = (nw_roles){servers, replicas, stages, evaluators, NULL, NULL};
    NW_FAIL_IF(replicas < 1 || stages < 1, NW_E_ARGUMENT,
               "%d servers in a world of %d ranks leave nobody to compute; use fewer, or --server-computes", servers,
               nw_roles_world(r));
    NW_FAIL_IF(servers % stages != 0, NW_E_ARGUMENT,
               "%d servers cannot be divided among %d stages; use a multiple of these", servers, stages);
    r->ranks = calloc((size_t)nw_roles_world(r), sizeof *r->ranks);
    r->columns = calloc((size_t)nw_roles_world(r), sizeof *r->columns);
    if (!r->ranks || !r->columns) {
        nw_roles_free(r);
        return NW_FAIL(NW_E_MEMORY, "no memory for the groups of %d ranks", nw_roles_world(r));
    }
    fill_roles(r);
    return NW_OK;
}

void nw_roles_free(nw_roles *r)
{
    free(r->ranks);
    free(r->columns);
    *r = (nw_roles){0};
}

nw_duty nw_roles_of(const nw_roles *r, int rank)
{
    int computing = rank - r->servers, evaluator = computing - r->replicas * r->stages;
    if (computing < 0) return (nw_duty){rank, -1, rank / servers_of(r), -1};
    if (evaluator >= 0) return (nw_duty){-1, -1, -1, evaluator};
    return (nw_duty){-1, computing / r->stages, computing % r->stages, -1};
}

nw_group nw_roles_row(const nw_roles *r, int rank)
{
    nw_duty duty = nw_roles_of(r, rank);
    if (duty.replica < 0) return (nw_group){0};
    return (nw_group){r->ranks + r->servers + duty.replica * r->stages, r->stages, duty.stage};
}

nw_group nw_roles_column(const nw_roles *r, int rank)
{
    nw_duty duty = nw_roles_of(r, rank);
    if (duty.stage < 0) return (nw_group){0};
    nw_group group = {r->columns + duty.stage * column_count(r), column_count(r), 0};
    group.me = duty.server >= 0 ? duty.server % servers_of(r) : servers_of(r) + duty.replica;
    return group;
}

void nw_rank_list_print(char *text, size_t size, const int *ranks, int count)
{
    size_t used = (size_t)snprintf(text, size, count == 1 ? "rank " : "ranks ");
    for (int i = 0; i < count;) {
        int end = i;
        while (end + 1 < count && ranks[end + 1] == ranks[end] + 1) end++;
        if (end == i + 1) end = i; /* two neighbours are written one by one */
        char part[48];
        const char *before = i == 0 ? "" : end + 1 == count ? " and " : ", ";
        if (end > i)
            snprintf(part, sizeof part, "%s%d-%d", before, ranks[i], ranks[end]);
        else
            snprintf(part, sizeof part, "%s%d", before, ranks[i]);
        bool last = end + 1 == count;
        if (used + strlen(part) + (last ? 0 : 3) >= size) { /* room for the dots, unless nothing follows */
            if (used + 4 <= size) memcpy(text + used, "...", 4);
            return;
        }
        memcpy(text + used, part, strlen(part) + 1);
        used += strlen(part);
        i = end + 1;
    }
}
