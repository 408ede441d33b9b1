/*
 * roles.h - the roles of ranks: R replicas of P stages each, S dedicated servers, and E evaluation ranks.
 *
 *   rank              what it does
 *   0 .. S - 1        serves; S / P ranks own the parameters of each stage, those of stage 0 first
 *   S + r P + p       computes stage p of replica r
 *   S + R P ..        evaluates
 *
 *                     stage 0      stage 1      stage 2
 *   servers           0 1          2 3          4 5            S = 6
 *   replica 0         6            7            8              a row: one replica, whose pipeline passes batches along
 *   replica 1         9            10           11
 *                     a column: one stage, whose exchange makes its replicas agree
 *
 * If P is 1, a rank has all stages, a row is one rank, and the column has all ranks that do not evaluate. If servers
 * compute gradients, too, S is 0, and the first members of each column are servers in addition.
 *
 * Threads: nothing changes after nw_roles_make.
 */
#ifndef NW_NET_ROLES_H
#define NW_NET_ROLES_H

#include "net/machine.h"

typedef struct nw_roles {
    int servers, replicas, stages, evaluators;
    uint16_t *ranks;   /* 0, 1, 2, ...: a row is a piece of it */
    uint16_t *columns; /* the ranks of column 0, those of column 1, ... */
} nw_roles;

/* NW_E_ARGUMENT: there is no worker, or the servers cannot be divided equally among the stages. */
nw_status nw_roles_make(nw_roles *roles, int servers, int replicas, int stages, int evaluators);
void nw_roles_free(nw_roles *roles);
static inline int nw_roles_world(const nw_roles *r) { return r->servers + r->replicas * r->stages + r->evaluators; }

/* The roles of a rank: numbers from 0 on, -1 for roles that it does not have. `stage` of a server is the one it
 * serves. */
typedef struct nw_duty {
    int server, replica, stage, evaluator;
} nw_duty;
nw_duty nw_roles_of(const nw_roles *roles, int rank);

/* The groups of a rank: that of its pipeline and that of its exchange; empty if it has none. They are valid as long as
 * the roles. */
nw_group nw_roles_row(const nw_roles *roles, int rank);
nw_group nw_roles_column(const nw_roles *roles, int rank);

/* "rank 3", "ranks 2 and 5", "ranks 0-3, 7 and 9" of ascending numbers; cut with "..." where there is no room. */
void nw_rank_list_print(char *text, size_t size, const int *ranks, int count);

#endif
