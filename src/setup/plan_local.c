/* plan_local.c - see plan_local.h. */
#include "setup/plan_local.h"

#include <string.h>

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }

/* Rates and momentum of each rule: plain averaging; DiLoCo's; FedAdam's. */
static const struct {
    const char *name;
    double lr, momentum;
} usual[] = {{"sgd", 1, 0}, {"nesterov", 0.7, 0.9}, {"adam", 0.01, 0.9}};
enum { RULES = sizeof usual / sizeof usual[0] };

void nw_plan_outer(const nw_train_options *s, nw_exchange_options *e)
{
    e->sync_every = s->world.sync_every;
    e->pairs = is(s->world.outer_group, "pairs");
    e->seed = s->all.seed;
    e->layout.fragments = is(s->world.exchange, "local") ? s->world.fragments : 0;
}

void nw_plan_outer_rule(const nw_train_options *s, nw_replica_options *r)
{
    int rule = 0;
    if (!is(s->world.exchange, "local")) return;
    while (rule + 1 < RULES && !is(s->world.outer_optimizer, usual[rule].name)) rule++;
    double momentum = s->world.outer_momentum >= 0 ? s->world.outer_momentum : usual[rule].momentum;
    bool adam = is(s->world.outer_optimizer, "adam");
    r->outer = nw_optimizer_options_default(adam ? "adam" : "sgd");
    r->outer.weight_decay = 0;
    r->outer.momentum = r->outer.beta1 = momentum;
    r->outer.nesterov = is(s->world.outer_optimizer, "nesterov");
    r->outer.beta2 = 0.99;
    r->outer.eps = 1e-3;
    r->outer_lr = s->world.outer_lr >= 0 ? s->world.outer_lr : usual[rule].lr;
}

/* Where replicas make no steps of their own. A run that goes on has all options in its file, so they count where they
 * differ from what the table says. */
static nw_status check_others(const nw_exchange_settings *w)
{
    const int usual_steps = 8;
    const char *alone = w->sync_every != usual_steps     ? "sync-every"
                        : !is(w->outer_optimizer, "sgd") ? "outer-optimizer"
                        : w->outer_lr >= 0               ? "outer-lr"
                        : w->outer_momentum >= 0         ? "outer-momentum"
                        : w->fragments > 1               ? "fragments"
                        : !is(w->outer_group, "all")     ? "outer-group"
                                                         : NULL;
    NW_FAIL_IF(alone, NW_E_ARGUMENT,
               "--%s is for outer steps of replicas that make steps of their own; add --exchange local", alone);
    return NW_OK;
}

static nw_status check_rule(const nw_train_options *s)
{
    nw_replica_options r = {0};
    nw_plan_outer_rule(s, &r);
    NW_FAIL_IF(is(s->world.outer_optimizer, "nesterov") && r.outer.momentum == 0, NW_E_ARGUMENT,
               "--outer-optimizer nesterov needs an --outer-momentum above 0; sgd has none");
    NW_FAIL_IF(r.outer_lr == 0, NW_E_ARGUMENT, "with --outer-lr 0 nothing is learned; give a rate above 0");
    bool pairs = is(s->world.outer_group, "pairs") && !is(s->world.outer_optimizer, "adam");
    NW_FAIL_IF(pairs && nw_local_drift(r.outer_lr, r.outer.momentum, r.outer.nesterov) >= 1, NW_E_ARGUMENT,
               "with --outer-lr %g and --outer-momentum %g random pairs drift apart faster than they pull each other "
               "together; choose a smaller momentum, or --outer-group all",
               r.outer_lr, r.outer.momentum);
    return NW_OK;
}

nw_status nw_plan_check_outer(const nw_train_options *s)
{
    bool pairs = is(s->world.outer_group, "pairs"), dense = is(s->codec.method, "none");
    if (!is(s->world.exchange, "local")) return check_others(&s->world);
    NW_FAIL_IF(
        s->world.fragments > s->world.sync_every, NW_E_ARGUMENT,
        "--fragments %d have an outer step each in turn, one behind a step at most, of which --sync-every has %d; "
        "give fewer fragments or more steps",
        s->world.fragments, s->world.sync_every);
    NW_FAIL_IF(is(s->codec.method, "dgc"), NW_E_ARGUMENT,
               "--method dgc keeps momentum of gradients, and --exchange local sends differences of parameters; use "
               "--method topk --memory error");
    NW_FAIL_IF(pairs && ((!dense && !is(s->codec.method, "fp16") && !is(s->codec.method, "bf16")) ||
                         !is(s->codec.memory, "none")),
               NW_E_ARGUMENT,
               "--outer-group pairs sends parameters, of which --method %s%s would leave too little; use none, fp16 or "
               "bf16 without a memory, or --outer-group all, where differences travel",
               s->codec.method, is(s->codec.memory, "none") ? "" : " with --memory");
    NW_FAIL_IF(
        s->training.ema_decay > 0, NW_E_ARGUMENT,
        "an average of the weights follows those of one replica, and with --exchange local each has its own; drop "
        "--ema-decay");
    return check_rule(s);
}
