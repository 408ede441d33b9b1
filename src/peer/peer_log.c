/*
 * peer_log.c - --log-averagings DIR: each rank writes to DIR/rank<N>.txt what it does with its parameters in an exchange
 * that averages in pairs, in the order in which it does it, so that others can compute it again
 * (gossip/gossip_mix.h has the arithmetic, tests/ranks/peer.py does it). A line is one of
 *
 *   momentum ALPHA                        or "plain": there is no second vector
 *   pass                                  the program gets a copy of x, for a gradient
 *   update                                what it gave for that copy: both vectors move
 *   mixed FIRST COUNT B                   x and x~ on this range
 *   sent MEMBER FIRST COUNT B
 *   approached MEMBER FIRST COUNT B       by what both have sent
 *   lent MEMBER FIRST COUNT B             x and x~ as they are, to one that was dropped and is back
 *   copied MEMBER FIRST COUNT B           what that one has lent
 *
 * Numbers have all their digits.
 */
#include "peer/peer.h"

#include "base/file.h"
#include "base/text.h"

#include <errno.h>
#include <stdio.h>

nw_status nw_peer_log_open(nw_peer *p)
{
    const nw_train_options *o = nw_train_options_of(p->settings);
    const char *dir = o->gossip.log_averagings;
    NW_AUTOFREE char *path = NULL;
    if (!*dir) return NW_OK;
    NW_FAIL_IF(strcmp(o->world.exchange, "gossip") != 0, NW_E_ARGUMENT,
               "--log-averagings is for ranks that average in pairs; add --exchange gossip");
    NW_FAIL_IF(nw_assign_compresses(&p->codecs), NW_E_ARGUMENT,
               "--log-averagings has what parameters are as they travel, and --method changes that; leave one out");
    NW_TRY(nw_directory_make(dir));
    NW_TRY(nw_text_print(&path, "%s/rank%d.txt", dir, p->index));
    p->log = fopen(path, "w");
    NW_FAIL_IF(!p->log, NW_E_SYSTEM, "%s cannot be written: %s", path, strerror(errno));
    p->gossip.tap = (nw_gossip_tap){nw_peer_log_note, p};
    return NW_OK;
}

void nw_peer_log_begin(const nw_peer *p)
{
    if (!p->log) return;
    if (p->gossip.acid)
        fprintf(p->log, "momentum %.9g\n", (double)(float)p->gossip.alpha);
    else
        fprintf(p->log, "plain\n");
}

void nw_peer_log_line(const nw_peer *p, const char *what)
{
    if (p->log) fprintf(p->log, "%s\n", what);
}

void nw_peer_log_note(void *context, const nw_gossip_note *n)
{
    static const char *const names[] = {[NW_GOSSIP_SENT] = "sent",
                                        [NW_GOSSIP_APPROACHED] = "approached",
                                        [NW_GOSSIP_LENT] = "lent",
                                        [NW_GOSSIP_COPIED] = "copied"};
    const nw_peer *p = context;
    if (n->what == NW_GOSSIP_MIXED)
        fprintf(p->log, "mixed %zu %zu %.9g\n", n->first, n->count, (double)n->weight);
    else
        fprintf(p->log, "%s %d %zu %zu %.9g\n", names[n->what], n->with, n->first, n->count, (double)n->weight);
}

nw_status nw_peer_log_flush(const nw_peer *p)
{
    NW_FAIL_IF(p->log && fflush(p->log) != 0, NW_E_SYSTEM, "the log of averagings cannot be written: %s",
               strerror(errno));
    return NW_OK;
}
