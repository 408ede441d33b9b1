/* plan_gossip.c - see plan_gossip.h. */
#include "setup/plan_gossip.h"

#include <string.h>

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

static nw_pairing find_pairing(const nw_gossip_settings *g)
{
    return is(g->pairing, "first-come") ? NW_PAIR_FIRST_COME
           : is(g->pairing, "scheduled") ? NW_PAIR_SCHEDULED
                                         : NW_PAIR_HANDSHAKE;
}

/* A run that goes on has all options in its file, so they count where they differ from what the table says. */
static nw_status check_others(const nw_gossip_settings *g)
{
    const double usual_rate = 1, usual_step = 1;
    const char *alone = !is(g->graph_topology, "complete") ? "graph-topology"
                        : !is(g->pairing, "handshake")     ? "pairing"
                        : g->rate_com != usual_rate        ? "rate-com"
                        : g->deterministic_coms            ? "deterministic-coms"
                        : g->deterministic_neighbor        ? "deterministic-neighbor"
                        : g->apply_acid                    ? "apply-acid"
                        : g->acid_params.count > 0         ? "acid-params"
                        : g->consensus_every > 0           ? "consensus-every"
                        : !is(g->values, "auto")           ? "gossip-values"
                        : g->consensus_step != usual_step  ? "consensus-step"
                        : g->modulo_bound > 0              ? "modulo-bound"
                                                           : NULL;
    NW_FAIL_IF(alone, NW_E_ARGUMENT,
               "--%s is for workers that average in pairs; add --exchange gossip, or --defaults acid, which has it", alone);
    return NW_OK;
}

static nw_status check_momentum(const nw_gossip_settings *g)
{
    NW_FAIL_IF(g->acid_params.count != 0 && g->acid_params.count != 2, NW_E_ARGUMENT,
               "--acid-params takes two numbers, eta and alpha, not %d", g->acid_params.count);
    NW_FAIL_IF(g->acid_params.count > 0 && !g->apply_acid, NW_E_ARGUMENT,
               "--acid-params are constants of continuous momentum; add --apply-acid");
    NW_FAIL_IF(g->apply_acid && g->rate_com <= 0 && g->acid_params.count == 0, NW_E_ARGUMENT,
               "with --rate-com 0 workers never average, so that continuous momentum has no constants; give a rate above "
               "0, or --acid-params");
    return NW_OK;
}

static bool is_used(const nw_codec_settings *c, const char *method)
{
    bool used = is(c->method, method);
    for (int i = 0; i < c->codec_for.count; i++) used |= strstr(c->codec_for.at[i], method) != NULL;
    return used;
}

static nw_status check_values(const nw_train_options *s)
{
    const nw_codec_settings *c = &s->codec;
    bool encodes = !is(c->method, "none") || c->codec_for.count > 0;
    NW_FAIL_IF(!encodes && !is(s->gossip.values, "auto"), NW_E_ARGUMENT,
               "--gossip-values %s is how encoded parameters travel, and without a method they travel as they are; add "
               "--method",
               s->gossip.values);
    NW_FAIL_IF(s->gossip.modulo_bound > 0 && !is_used(c, "modulo"), NW_E_ARGUMENT,
               "--modulo-bound is for --method modulo");
    return NW_OK;
}

nw_status nw_plan_check_gossip(const nw_train_options *s)
{
    const nw_gossip_settings *g = &s->gossip;
    if (!is(s->world.exchange, "gossip")) return check_others(g);
    NW_FAIL_IF(s->world.delay > 0, NW_E_ARGUMENT,
               "--delay is how late gradients are applied that all workers exchange; --exchange gossip applies each at once");
    NW_FAIL_IF(s->training.ema_decay > 0, NW_E_ARGUMENT,
               "--ema-decay averages one worker's weights over time, but with --exchange gossip each has its own; leave it "
               "out");
    NW_FAIL_IF(g->deterministic_neighbor && find_pairing(g) == NW_PAIR_SCHEDULED, NW_E_ARGUMENT,
               "--pairing scheduled already says with whom each worker averages; leave out --deterministic-neighbor");
    NW_TRY(check_values(s));
    return check_momentum(g);
}

nw_gossip_options nw_plan_averaging(const nw_train_options *s, const char **graph)
{
    const nw_gossip_settings *g = &s->gossip;
    bool by_hand = g->acid_params.count == 2;
    *graph = is(g->graph_topology, "ring") ? "cycle" : g->graph_topology;
    return (nw_gossip_options){.seed = (uint64_t)s->all.seed,
                               .pairing = find_pairing(g),
                               .rate = g->rate_com,
                               .deterministic_coms = g->deterministic_coms,
                               .deterministic_neighbor = g->deterministic_neighbor,
                               .acid = g->apply_acid,
                               .values = is(g->values, "difference") ? NW_AGREE_DIFFERENCE
                                         : is(g->values, "plain")    ? NW_AGREE_PLAIN
                                                                     : NW_AGREE_BY_CODEC,
                               .step = g->consensus_step,
                               .modulo_bound = g->modulo_bound,
                               .eta = by_hand ? g->acid_params.at[0] : -1,
                               .alpha = by_hand ? g->acid_params.at[1] : -1,
                               .measure_every = g->consensus_every};
}

nw_status nw_plan_gossip(const nw_train_options *s, nw_replicas_options *o)
{
    nw_graph *graph;
    o->exchange.gossip = nw_plan_averaging(s, &o->graph);
    if (!is(s->world.exchange, "gossip")) return NW_OK;
    NW_TRY(nw_graph_make(&graph, o->graph, o->world, o->exchange.gossip.seed));
    nw_graph_free(graph);
    return NW_OK;
}

void nw_plan_gossip_print(const nw_train_options *s, FILE *out)
{
    const nw_gossip_settings *g = &s->gossip;
    fprintf(out, ", gossip on the graph %s, %g averagings a gradient%s, %s%s", g->graph_topology, g->rate_com,
            g->deterministic_coms ? ", counted" : "", g->pairing, g->apply_acid ? ", with continuous momentum" : "");
}
