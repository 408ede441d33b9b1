/*
 * state.h - what machines and workers keep between runs, for checkpoints: named tensors, and what becomes of each in a
 * world of another size.
 *
 * Whoever has state lists it: a name, a type, a shape, where it lies, and a rule. The list is made anew each time it is
 * needed. Loading fills single numbers first, tells the owner (`loaded`), and asks for the list again, since which
 * tensors there are may depend on them.
 *
 *   rule        who has it              in a world of another size, N before and M now
 *   KEPT        all have the same       the same; member 0's is saved
 *   RANGE       elements of a vector    whoever has these elements now reads them
 *   DELIVERED   each its own            what will be delivered stays the same: old member j's is added to new member
 *                                       j mod M's; where means are delivered, times M / N. If only members from `from`
 *                                       on have it (workers behind servers), these alone are counted
 *   LIKE        each its own            new member j begins as old member j mod N was
 *   FOLLOWS     each its own            all begin with what is KEPT under the same name
 *   OWN         each its own            lost, and the user is told
 *   REFUSED     each its own            cannot be continued
 *
 * A member of which nothing was saved, since it had been dropped, begins as in another world.
 *
 * A vector runs along the parameters, or along batch norm's running statistics: `first` says with which element of them
 * it begins, and checkpoints keep it under their names, so that they do not depend on how a world was cut.
 *
 * Threads: a list belongs to one thread.
 */
#ifndef NW_NET_STATE_H
#define NW_NET_STATE_H

#include "base/status.h"

typedef enum nw_state_rule {
    NW_STATE_KEPT,
    NW_STATE_RANGE,
    NW_STATE_DELIVERED,
    NW_STATE_LIKE,
    NW_STATE_FOLLOWS,
    NW_STATE_OWN,
    NW_STATE_REFUSED
} nw_state_rule;

typedef enum nw_state_type { NW_STATE_F32, NW_STATE_F64, NW_STATE_I64, NW_STATE_U8 } nw_state_type;
enum { NW_STATE_NAME = 96, NW_STATE_DIMS = 4 };
#define NW_STATE_EXCHANGE "exchange." /* begins the names of what machines have */

/* What a vector runs parallel to. */
typedef enum nw_state_along { NW_ALONG_NOTHING, NW_ALONG_PARAMETERS, NW_ALONG_STATISTICS } nw_state_along;

typedef struct nw_state_entry {
    char name[NW_STATE_NAME];
    nw_state_rule rule;
    nw_state_type type;
    int dims; /* 0: a single number */
    int64_t shape[NW_STATE_DIMS];
    void *data;
    nw_state_along along; /* a vector: F32, one dimension, ... */
    size_t first;         /* ... beginning with this element */
    bool mean;            /* DELIVERED: in a mean over members, not in a sum */
    int from, was_from;   /* DELIVERED: the first member that has it, now and in the world that was saved */
    bool optional;        /* where the checkpoint lacks it, it stays as it is */
    const char *remedy;   /* what the user can do where the checkpoint lacks it; NULL: give the options of its run */
} nw_state_entry;

typedef struct nw_state {
    nw_state_entry *at;
    int count;
    nw_status status; /* of the last that failed */
} nw_state;

size_t nw_state_type_bytes(nw_state_type type);
size_t nw_state_count(const nw_state_entry *entry); /* elements */
static inline size_t nw_state_bytes(const nw_state_entry *e)
{
    return nw_state_count(e) * nw_state_type_bytes(e->type);
}

/* Adds to the list. A failure stays in state->status. */
void nw_state_add(nw_state *state, nw_state_entry entry);
void nw_state_integer(nw_state *state, const char *name, nw_state_rule rule, int64_t *value);
void nw_state_real(nw_state *state, const char *name, nw_state_rule rule, double *value);
void nw_state_tensor(nw_state *state, const char *name, nw_state_rule rule, nw_state_type type, int dims,
                     const int64_t *shape, void *data);
/* Elements first .. first + count of a vector parallel to the parameters; `data` is that of element `first`. */
void nw_state_vector(nw_state *state, const char *name, nw_state_rule rule, float *data, size_t first, size_t count);
/* A vector parallel to the running statistics. */
void nw_state_statistics(nw_state *state, const char *name, nw_state_rule rule, float *data, size_t count);
/* The entry of that name; NULL: there is none. */
nw_state_entry *nw_state_find(const nw_state *state, const char *name);
/* NW_E_MESSAGE where an entry that rank `from` sent makes no sense, in a world of so many parameters and running
 * statistics. What it says of `data` and `remedy` is not looked at. */
nw_status nw_state_check(const nw_state_entry *entry, int from, size_t parameters, size_t statistics);
void nw_state_free(nw_state *state);

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* Whose state it is. */
typedef struct nw_state_owner {
    void *whose;
    void (*list)(void *whose, nw_state *state);
    nw_status (*loaded)(void *whose); /* NW_E_FILE where the numbers make no sense */
} nw_state_owner;

/* Where saved state is read from. */
typedef struct nw_state_source {
    void *context;
    int members; /* of the world that was saved */
    /* The tensor of that name, type and shape that old member `member` saved; of KEPT and RANGE, what all had in
     * common. *there is false where there is none, and nothing is written then. */
    nw_status (*read)(void *context, int member, const nw_state_entry *entry, void *out, bool *there);
    bool (*has)(void *context, int member); /* whether anything of that member was saved; NULL: of all */
    bool (*skips)(void *context, const nw_state_entry *entry); /* what stays as it is; NULL: nothing */
} nw_state_source;

/* Loads the state of member `me` of `members`. What is lost is added to `lost`, a list of names for people, as long as
 * there is room: tensors, and numbers that were not 0. */
nw_status nw_state_load(const nw_state_owner *owner, const nw_state_source *source, int me, int members, char *lost,
                        size_t lost_size);

/* Adds a name to such a list, once. */
void nw_state_lose(char *lost, size_t lost_size, const char *name);

#endif
