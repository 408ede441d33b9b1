/*
 * state.h - the state of machines and workers between runs, for checkpoints: named tensors, each with a rule for a
 * world of another size.
 *
 * Every owner of state lists it: a name, a type, a shape, an address, and a rule. The list is made anew each time it is
 * needed. Loading fills single numbers first, tells the owner (`loaded`), and asks for the list again, because its
 * tensors may depend on these numbers.
 *
 *   rule        values                  in a world of another size, N members before and M now
 *   KEPT        equal on all members    unchanged; that of member 0 is saved
 *   RANGE       a range of a vector     each member reads the range that it has now
 *   DELIVERED   differ                  the total still to be sent is unchanged: that of old member j is added to
 *                                       that of new member j mod M; if receivers take means, times M / N. If only
 *                                       members from `from` on have it (workers behind servers), N and M count these
 *   LIKE        differ                  new member j starts with that of old member j mod N
 *   FOLLOWS     differ                  all start with the KEPT tensor of the same name
 *   OWN         differ                  lost, and the user is told
 *   REFUSED     differ                  the run cannot be continued
 *
 * A member whose state was not saved, because it had been dropped, starts by the same rules.
 *
 * A vector is parallel to the parameters, or to batch norm's running statistics; `first` is the element with which it
 * begins. Checkpoints store it under the names of these parameters, so that they do not depend on how a world was
 * divided.
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
#define NW_STATE_EXCHANGE "exchange." /* prefix of the names of machines' tensors */

/* To what a vector is parallel. */
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
    bool mean;            /* DELIVERED: receivers take the mean over members, not the sum */
    int from, was_from;   /* DELIVERED: the first member that has it, now and in the saved world */
    bool optional;        /* if the checkpoint lacks it, it stays as it is */
    const char *remedy;   /* what the user can do if the checkpoint lacks it; NULL: "give the options of its run" */
} nw_state_entry;

typedef struct nw_state {
    nw_state_entry *at;
    int count;
    nw_status status; /* the last failure */
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
/* Checks an entry that rank `from` sent, for a model with that many parameters and running statistics; NW_E_MESSAGE
 * says what is wrong. `data` and `remedy` are ignored. */
nw_status nw_state_check(const nw_state_entry *entry, int from, size_t parameters, size_t statistics);
void nw_state_free(nw_state *state);

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* The owner of a state. */
typedef struct nw_state_owner {
    void *whose;
    void (*list)(void *whose, nw_state *state);
    nw_status (*loaded)(void *whose); /* NW_E_FILE: the loaded numbers are invalid */
} nw_state_owner;

/* From where saved state is read. */
typedef struct nw_state_source {
    void *context;
    int members; /* number of members of the saved world */
    /* Reads the tensor of that name, type and shape that old member `member` saved (KEPT and RANGE: that of all
     * members). *there is false if there is none; then nothing is written. */
    nw_status (*read)(void *context, int member, const nw_state_entry *entry, void *out, bool *there);
    bool (*has)(void *context, int member); /* whether that member's state was saved; NULL: all members' was */
    bool (*skips)(void *context, const nw_state_entry *entry); /* whether an entry must not be loaded; NULL: all are */
} nw_state_source;

/* Loads the state of member `me` of `members`. The names of lost tensors, and of lost numbers that were not 0, are
 * added to `lost`, a list for the user, as long as there is room. */
nw_status nw_state_load(const nw_state_owner *owner, const nw_state_source *source, int me, int members, char *lost,
                        size_t lost_size);

/* Adds a name to such a list, once. */
void nw_state_lose(char *lost, size_t lost_size, const char *name);

#endif
