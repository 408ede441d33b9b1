/*
 * cluster_file.c - a cluster file into an nw_cluster, and what was measured into a cluster file;
 * see cluster_file.h and docs/cluster.md.
 *
 * In the order of dependence: the world and its nodes are counted, the cluster is made, ranks and nodes are filled,
 * switches take nodes, links are laid from the general to the special (link, inside, links in the order of the file),
 * times come last.
 */
#include "config/cluster_file.h"

#include "base/file.h"
#include "base/suggest.h"
#include "codec/memory.h"
#include "config/recipe.h"
#include "config/yaml_get.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RULES_MOST = 1024, NAME_MOST = 40 };

typedef struct reader {
    const char *file;
    nw_bump region;
    nw_cluster *cluster;
    const char **base; /* [node]: its name without the number of a copy */
    int next_link;
} reader;

#define COUNT(list) (int)(sizeof(list) / sizeof *(list))

/* ---- the world ---- */

static const char *const node_keys[] = {"name", "count", "ranks", "slowdown", "noise", "memory", "nic"};

static nw_status check_name(reader *r, const nw_yaml *node, const char *what, const char *name)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    NW_YAML_FAIL_IF(!name, r->file, node, "%s has no name; give it one with 'name:'", what);
    NW_YAML_FAIL_IF(
        !*name || !strchr(letters, *name) || strlen(name) > NAME_MOST ||
            name[strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")] ||
            strcmp(name, "any") == 0,
        r->file, node,
        "'%.60s' cannot be a name: begin with a letter, go on with letters, digits, '.', '_' and '-', at most %d in "
        "all, and not 'any'",
        name, (int)NAME_MOST);
    return NW_OK;
}

/* How many copies a node has, and how many ranks each of them. */
static nw_status node_size(reader *r, const nw_yaml *item, int64_t *copies, int64_t *ranks)
{
    *copies = *ranks = 1;
    NW_TRY(nw_yaml_check_map(r->file, item, "a node", node_keys, COUNT(node_keys)));
    NW_TRY(nw_yaml_get_int(r->file, item, "count", 1, NW_CLUSTER_RANKS, copies));
    return nw_yaml_get_int(r->file, item, "ranks", 1, NW_CLUSTER_RANKS, ranks);
}

static nw_status count_nodes(reader *r, const nw_yaml *list, int64_t *world, int64_t *nodes)
{
    *world = *nodes = 0;
    for (const nw_yaml *item = list->first; item; item = item->next) {
        int64_t copies, ranks;
        NW_TRY(node_size(r, item, &copies, &ranks));
        *nodes += copies;
        *world += copies * ranks;
        NW_YAML_FAIL_IF(*world > NW_CLUSTER_RANKS, r->file, item,
                        "with these nodes the world has more than %d ranks; take fewer", (int)NW_CLUSTER_RANKS);
    }
    return NW_OK;
}

/* The size of the world and the number of nodes, of which all sources must agree. */
static nw_status count_world(reader *r, const nw_yaml *root, int wanted, int *world, int *nodes)
{
    const nw_yaml *list, *said = nw_yaml_find(root, "world"), *per_node = nw_yaml_find(root, "ranks_per_node");
    int64_t in_file = 0, each = 1, in_nodes = 0, node_count = 0;
    NW_TRY(nw_yaml_get_int(r->file, root, "world", 1, NW_CLUSTER_RANKS, &in_file));
    NW_TRY(nw_yaml_get_int(r->file, root, "ranks_per_node", 1, NW_CLUSTER_RANKS, &each));
    NW_TRY(nw_yaml_get_list(r->file, root, "nodes", &list));
    if (list) {
        NW_YAML_FAIL_IF(per_node, r->file, per_node, "'nodes' say how many ranks they have; remove 'ranks_per_node'");
        NW_TRY(count_nodes(r, list, &in_nodes, &node_count));
        NW_YAML_FAIL_IF(said && in_file != in_nodes, r->file, said,
                        "'world' is %d, but the nodes have %d ranks together; correct one of them", (int)in_file,
                        (int)in_nodes);
        in_file = in_nodes;
    }
    NW_FAIL_IF(in_file == 0 && wanted == 0, NW_E_FILE,
               "%s has neither 'world' nor 'nodes'; add one of them, or give the number of ranks with --virtual N",
               r->file);
    NW_YAML_FAIL_IF(in_file && wanted && in_file != wanted, r->file, said ? said : list,
                    "the file describes %d ranks, but --virtual asks for %d; correct one of them", (int)in_file,
                    wanted);
    *world = wanted ? wanted : (int)in_file;
    *nodes = list ? (int)node_count : *world / (int)each;
    NW_YAML_FAIL_IF(!list && *world % each, r->file, per_node ? per_node : root,
                    "%d ranks cannot be divided into nodes of %d; change one of the two", *world, (int)each);
    return NW_OK;
}

/* ---- ranks and nodes ---- */

/* What ranks, nodes and the whole can say of ranks. */
static nw_status read_speed(reader *r, const nw_yaml *map, bool all, nw_cluster_rank *rank)
{
    const nw_yaml *memory = nw_yaml_find(map, "memory");
    NW_TRY(nw_yaml_get_factor(r->file, map, "slowdown", &rank->slowdown));
    NW_TRY(nw_yaml_get_noise(r->file, map, "noise", -1, &rank->noise));
    NW_TRY(nw_yaml_get_bandwidth(r->file, map, "memory", &rank->memory_bytes_per_second));
    NW_YAML_FAIL_IF(memory && !all && rank->memory_bytes_per_second == 0, r->file, memory,
                    "'memory: unlimited' can be given for all ranks together, not for one node or rank");
    return NW_OK;
}

/* One bandwidth for both directions, or a map of two. */
static nw_status read_two_ways(reader *r, const nw_yaml *map, const char *key, const char *const names[2],
                               const char *what, double *first, double *second)
{
    const nw_yaml *node = nw_yaml_find(map, key);
    if (!node) return NW_OK;
    if (node->kind == NW_YAML_SCALAR) {
        NW_TRY(nw_yaml_get_bandwidth(r->file, map, key, first));
        *second = *first;
        return NW_OK;
    }
    NW_TRY(nw_yaml_check_map(r->file, node, what, names, 2));
    NW_TRY(nw_yaml_get_bandwidth(r->file, node, names[0], first));
    return nw_yaml_get_bandwidth(r->file, node, names[1], second);
}

static nw_status read_nic(reader *r, const nw_yaml *map, nw_cluster_node *node)
{
    static const char *const names[] = {"out", "in"};
    return read_two_ways(r, map, "nic", names, "a nic", &node->egress, &node->ingress);
}

/* Names are found by whoever refers to a node, so no two may be alike, copies and switches included. */
static nw_status check_unique(reader *r, const nw_yaml *item, const char *name, int nodes, int switches)
{
    const nw_cluster *c = r->cluster;
    bool twice = false;
    for (int i = 0; i < nodes; i++) twice |= strcmp(c->nodes[i].name, name) == 0 || strcmp(r->base[i], name) == 0;
    for (int i = 0; i < switches; i++) twice |= strcmp(c->switches[i].name, name) == 0;
    NW_YAML_FAIL_IF(twice, r->file, item, "the name '%s' is given twice; choose another", name);
    return NW_OK;
}

static nw_status read_node(reader *r, const nw_yaml *item, int *node, int *rank)
{
    nw_cluster *c = r->cluster;
    const char *name = NULL;
    int64_t copies, ranks;
    const int first = *node;
    NW_TRY(node_size(r, item, &copies, &ranks));
    NW_TRY(nw_yaml_get_text(r->file, item, "name", &name));
    NW_TRY(check_name(r, item, "a node", name));
    NW_TRY(check_unique(r, item, name, first, 0));
    for (int copy = 0; copy < copies; copy++, ++*node) {
        nw_cluster_node *n = &c->nodes[*node];
        if (copies == 1)
            snprintf(n->name, sizeof n->name, "%s", name);
        else
            snprintf(n->name, sizeof n->name, "%s-%d", name, copy);
        NW_TRY(check_unique(r, item, n->name, first, 0));
        r->base[*node] = name;
        NW_TRY(read_nic(r, item, n));
        for (int i = 0; i < ranks; i++, ++*rank) {
            c->ranks[*rank].node = *node;
            NW_TRY(read_speed(r, item, false, &c->ranks[*rank]));
        }
    }
    return NW_OK;
}

static nw_status read_rank(reader *r, const nw_yaml *item)
{
    static const char *const keys[] = {"rank", "slowdown", "noise", "memory"};
    nw_cluster *c = r->cluster;
    NW_TRY(nw_yaml_check_map(r->file, item, "an item of 'ranks'", keys, COUNT(keys)));
    const nw_yaml *who = nw_yaml_find(item, "rank");
    NW_YAML_FAIL_IF(!who || who->kind == NW_YAML_MAP || (who->kind == NW_YAML_LIST && !who->count), r->file, item,
                    "an item of 'ranks' needs a rank; write 'rank: 3' or 'rank: [3, 5]'");
    for (const nw_yaml *one = who->kind == NW_YAML_LIST ? who->first : who; one;
         one = who->kind == NW_YAML_LIST ? one->next : NULL) {
        const char *text = NULL, *wrong;
        nw_complaint complaint;
        int64_t rank;
        NW_TRY(nw_yaml_scalar(r->file, one, "rank", &text));
        wrong = nw_units_int(text, 0, c->world - 1, &rank, &complaint);
        NW_YAML_FAIL_IF(wrong, r->file, one, "'rank': %s; the world has %d ranks, from 0", wrong, c->world);
        NW_TRY(read_speed(r, item, false, &c->ranks[rank]));
    }
    return NW_OK;
}

static nw_status read_ranks_and_nodes(reader *r, const nw_yaml *root)
{
    nw_cluster *c = r->cluster;
    nw_cluster_rank usual = {.slowdown = 1, .memory_bytes_per_second = NW_CLUSTER_MEMORY};
    nw_cluster_node nic = {0};
    const nw_yaml *list;
    int node = 0, rank = 0;
    NW_TRY(read_speed(r, root, true, &usual));
    c->compute.memory_bytes_per_second = usual.memory_bytes_per_second;
    NW_TRY(read_nic(r, root, &nic));
    for (int i = 0; i < c->world; i++) {
        usual.node = c->ranks[i].node;
        c->ranks[i] = usual;
    }
    for (int i = 0; i < c->node_count; i++) {
        c->nodes[i].egress = nic.egress;
        c->nodes[i].ingress = nic.ingress;
    }
    NW_TRY(nw_yaml_get_list(r->file, root, "nodes", &list));
    for (const nw_yaml *item = list ? list->first : NULL; item; item = item->next)
        NW_TRY(read_node(r, item, &node, &rank));
    NW_TRY(nw_yaml_get_list(r->file, root, "ranks", &list));
    for (const nw_yaml *item = list ? list->first : NULL; item; item = item->next) NW_TRY(read_rank(r, item));
    return NW_OK;
}

/* ---- switches ---- */

static bool is_node(const reader *r, int node, const char *name)
{
    return strcmp(r->cluster->nodes[node].name, name) == 0 || strcmp(r->base[node], name) == 0;
}

static nw_status read_switch(reader *r, const nw_yaml *item, int index)
{
    static const char *const keys[] = {"name", "nodes", "trunk"}, *const ways[] = {"up", "down"};
    nw_cluster *c = r->cluster;
    nw_cluster_switch *s = &c->switches[index];
    const nw_yaml *list;
    const char *name = NULL, *text = NULL;
    NW_TRY(nw_yaml_check_map(r->file, item, "a switch", keys, COUNT(keys)));
    NW_TRY(nw_yaml_get_text(r->file, item, "name", &name));
    NW_TRY(check_name(r, item, "a switch", name));
    NW_TRY(check_unique(r, item, name, c->node_count, index));
    snprintf(s->name, sizeof s->name, "%s", name);
    NW_TRY(read_two_ways(r, item, "trunk", ways, "a trunk", &s->up, &s->down));
    NW_TRY(nw_yaml_get_list(r->file, item, "nodes", &list));
    NW_YAML_FAIL_IF(!list, r->file, item, "the switch '%s' has no nodes; list them with 'nodes: [a, b]'", name);
    for (const nw_yaml *one = list->first; one; one = one->next) {
        bool found = false;
        NW_TRY(nw_yaml_scalar(r->file, one, "nodes", &text));
        for (int i = 0; i < c->node_count; i++) {
            if (!is_node(r, i, text)) continue;
            NW_YAML_FAIL_IF(c->nodes[i].within >= 0, r->file, one,
                            "the node '%s' is already on the switch '%s'; a node is on one switch", c->nodes[i].name,
                            c->switches[c->nodes[i].within].name);
            c->nodes[i].within = index;
            found = true;
        }
        NW_YAML_FAIL_IF(!found, r->file, one, "there is no node '%.60s'; 'nodes:' of the file lists those there are",
                        text);
    }
    return NW_OK;
}

/* ---- links ---- */

#define LINK_KEYS "latency", "bandwidth", "jitter", "overhead", "shared", "copied"

static nw_status read_link(reader *r, const nw_yaml *map, nw_cluster_link *link)
{
    NW_TRY(nw_yaml_get_time(r->file, map, "latency", &link->latency_ns));
    NW_TRY(nw_yaml_get_bandwidth(r->file, map, "bandwidth", &link->bandwidth));
    NW_TRY(nw_yaml_get_noise(r->file, map, "jitter", link->latency_ns, &link->jitter));
    NW_TRY(nw_yaml_get_time(r->file, map, "overhead", &link->overhead_ns));
    NW_TRY(nw_yaml_get_bool(r->file, map, "shared", &link->shared));
    NW_TRY(nw_yaml_get_bool(r->file, map, "copied", &link->copied));
    NW_YAML_FAIL_IF(link->shared && link->copied, r->file, map,
                    "a link that the receiver copies from has no wire to share; remove 'shared' or 'copied'");
    NW_YAML_FAIL_IF(link->shared && link->bandwidth == 0, r->file, map,
                    "a shared link without a bandwidth shares nothing; give it a bandwidth");
    return NW_OK;
}

static nw_status read_only_link(reader *r, const nw_yaml *root, const char *key, nw_cluster_link *link)
{
    static const char *const keys[] = {LINK_KEYS};
    const nw_yaml *map = nw_yaml_find(root, key);
    if (!map) return NW_OK;
    NW_TRY(nw_yaml_check_map(r->file, map, "a link", keys, COUNT(keys)));
    return read_link(r, map, link);
}

static void lay(nw_cluster *c, int from, int to, int link)
{
    c->link_of[(size_t)from * (size_t)c->world + (size_t)to] = (uint16_t)link;
}

/* Ranks of one node: one kind of link, or one for each node where they share it. */
static nw_status read_inside(reader *r, const nw_yaml *root)
{
    nw_cluster *c = r->cluster;
    nw_cluster_link inside = {0};
    NW_TRY(read_only_link(r, root, "inside", &inside));
    const int first = r->next_link, kinds = inside.shared ? c->node_count : 1;
    for (int i = 0; i < kinds; i++) c->links[r->next_link++] = inside;
    for (int from = 0; from < c->world; from++)
        for (int to = 0; to < c->world; to++)
            if (c->ranks[from].node == c->ranks[to].node)
                lay(c, from, to, first + (inside.shared ? c->ranks[from].node : 0));
    return NW_OK;
}

/* The ranks that one end of a link means: a rank, those of a node, or those below a switch. */
static nw_status read_end(reader *r, const nw_yaml *node, bool *set)
{
    const nw_cluster *c = r->cluster;
    const char *text = NULL;
    bool found = false;
    NW_TRY(nw_yaml_scalar(r->file, node, "an end of a link", &text));
    memset(set, 0, (size_t)c->world * sizeof *set);
    if (*text == '-' || (*text >= '0' && *text <= '9')) {
        nw_complaint complaint;
        int64_t rank;
        const char *wrong = nw_units_int(text, 0, c->world - 1, &rank, &complaint);
        NW_YAML_FAIL_IF(wrong, r->file, node, "an end of a link: %s; the world has %d ranks, from 0", wrong, c->world);
        set[rank] = true;
        return NW_OK;
    }
    for (int i = 0; i < c->world; i++) {
        const int at = c->ranks[i].node, within = c->nodes[at].within;
        set[i] = is_node(r, at, text) || (within >= 0 && strcmp(c->switches[within].name, text) == 0);
        found |= set[i];
    }
    NW_YAML_FAIL_IF(!found, r->file, node,
                    "there is no node or switch '%.60s'; name one of this file, or write a rank as a number", text);
    return NW_OK;
}

static nw_status read_rule(reader *r, const nw_yaml *item)
{
    static const char *const keys[] = {"between", "from", "to", LINK_KEYS};
    nw_cluster *c = r->cluster;
    nw_cluster_link link = c->links[0];
    bool a[NW_CLUSTER_RANKS], b[NW_CLUSTER_RANKS];
    NW_TRY(nw_yaml_check_map(r->file, item, "an item of 'links'", keys, COUNT(keys)));
    const nw_yaml *between = nw_yaml_find(item, "between"), *from = nw_yaml_find(item, "from"),
                  *to = nw_yaml_find(item, "to");
    NW_YAML_FAIL_IF(
        between ? from || to : !from || !to, r->file, item,
        "an item of 'links' needs its ends; write 'between: [a, b]', or 'from: a' and 'to: b' for one direction");
    NW_YAML_FAIL_IF(between && (between->kind != NW_YAML_LIST || between->count != 2), r->file, between,
                    "'between' takes a list of two: 'between: [a, b]'");
    NW_TRY(read_end(r, between ? between->first : from, a));
    NW_TRY(read_end(r, between ? between->first->next : to, b));
    for (int i = 0; i < c->world; i++)
        NW_YAML_FAIL_IF(a[i] && b[i], r->file, item,
                        "rank %d is at both ends of the link; name two ends without a common rank", i);
    link.shared = link.copied = false; /* each rule says so for itself */
    NW_TRY(read_link(r, item, &link));
    const int there = r->next_link++, back = between && link.shared ? r->next_link++ : there;
    c->links[there] = c->links[back] = link;
    for (int i = 0; i < c->world; i++)
        for (int k = 0; a[i] && k < c->world; k++) {
            if (!b[k]) continue;
            lay(c, i, k, there);
            if (between) lay(c, k, i, back);
        }
    return NW_OK;
}

/* ---- times ---- */

/* A time, or a list of times, one a stage. */
static nw_status read_times(reader *r, const nw_yaml *map, const char *key, int64_t **times, int *count)
{
    const nw_yaml *node = nw_yaml_find(map, key);
    NW_YAML_FAIL_IF(!node, r->file, map, "'forward' and 'backward' belong together; add '%s'", key);
    const nw_yaml *list = node;
    if (node->kind != NW_YAML_SCALAR) NW_TRY(nw_yaml_get_list(r->file, map, key, &list));
    *count = node->kind == NW_YAML_SCALAR ? 1 : list->count;
    NW_YAML_FAIL_IF(*count > NW_CLUSTER_STAGES, r->file, node, "'%s' has more than %d times", key,
                    (int)NW_CLUSTER_STAGES);
    *times = calloc((size_t)*count, sizeof **times);
    NW_FAIL_IF(!*times, NW_E_MEMORY, "no memory left for the times in %s", r->file);
    const nw_yaml *one = node->kind == NW_YAML_SCALAR ? node : list->first;
    for (int i = 0; i < *count; i++, one = one->next) {
        const char *text = NULL, *wrong;
        nw_complaint complaint;
        NW_TRY(nw_yaml_scalar(r->file, one, key, &text));
        wrong = nw_units_time(text, &(*times)[i], &complaint);
        NW_YAML_FAIL_IF(wrong, r->file, one, "'%s': %s", key, wrong);
    }
    return NW_OK;
}

static nw_status read_word(reader *r, const nw_yaml *map, const char *key, char *word, size_t size)
{
    const char *text = "";
    NW_TRY(nw_yaml_get_text(r->file, map, key, &text));
    NW_YAML_FAIL_IF(strlen(text) >= size, r->file, nw_yaml_find(map, key), "the value of '%s' is too long", key);
    snprintf(word, size, "%s", text);
    return NW_OK;
}

static nw_status read_compute(reader *r, const nw_yaml *map)
{
    static const char *const keys[] = {"gflops", "forward", "backward", "overhead",
                                       "update", "batch",   "model",    "precision"};
    static const char *const of_times[] = {"batch", "overhead", "model", "precision"};
    nw_compute_model *m = &r->cluster->compute;
    double gflops = 0;
    int64_t batch = 0;
    int backward_stages = 0;
    NW_TRY(nw_yaml_check_map(r->file, map, "'compute'", keys, COUNT(keys)));
    NW_TRY(nw_yaml_get_number(r->file, map, "gflops", 1e-6, 1e9, &gflops));
    NW_TRY(nw_yaml_get_time(r->file, map, "update", &m->update_ns));
    const bool given = nw_yaml_find(map, "forward") || nw_yaml_find(map, "backward");
    NW_YAML_FAIL_IF((gflops > 0) == given, r->file, map,
                    "'compute' takes either 'gflops', or 'forward' and 'backward' times");
    if (gflops > 0) {
        for (int i = 0; i < COUNT(of_times); i++) {
            const nw_yaml *extra = nw_yaml_find(map, of_times[i]);
            NW_YAML_FAIL_IF(extra, r->file, extra, "'%s' goes with 'forward' and 'backward' times, not with 'gflops'",
                            extra->key);
        }
        m->flops = gflops * 1e9;
        return NW_OK;
    }
    m->kind = NW_COMPUTE_GIVEN;
    NW_TRY(nw_yaml_get_time(r->file, map, "overhead", &m->overhead_ns));
    NW_TRY(nw_yaml_get_int(r->file, map, "batch", 1, 1 << 20, &batch));
    m->batch = (int)batch;
    NW_TRY(read_word(r, map, "model", m->model, sizeof m->model));
    NW_TRY(read_word(r, map, "precision", m->precision, sizeof m->precision));
    NW_TRY(read_times(r, map, "forward", &m->forward_ns, &m->stages));
    NW_TRY(read_times(r, map, "backward", &m->backward_ns, &backward_stages));
    NW_YAML_FAIL_IF(m->stages != backward_stages, r->file, map,
                    "'forward' has %d times and 'backward' %d; give one of each for every stage", m->stages,
                    backward_stages);
    return NW_OK;
}

/* ---- codecs ---- */

/* A codec's keys: what encoding with no memory and decoding take, and encoding with each memory. */
enum { FACTORS_MOST = 16 };
static int list_factors(const char *names[FACTORS_MOST])
{
    int count = 0;
    names[count++] = NW_FACTOR_ENCODE;
    names[count++] = NW_FACTOR_DECODE;
    for (int i = 0; i < nw_memory_kinds() && count < FACTORS_MOST; i++)
        if (nw_memory_at(i)->vectors > 0) names[count++] = nw_memory_at(i)->name;
    return count;
}

static nw_status check_codec(reader *r, const nw_yaml *item)
{
    const char *names[64];
    int count = 0;
    while (count < nw_codec_kinds() && count < COUNT(names)) {
        names[count] = nw_codec_at(count)->name;
        if (strcmp(names[count++], item->key) == 0) return NW_OK;
    }
    return NW_YAML_FAIL(r->file, item, "there is no codec '%.40s'%s", item->key,
                        nw_suggest(item->key, names, count, "'nowait train --help codec' lists them").text);
}

static nw_status read_factors(reader *r, const nw_yaml *root)
{
    const nw_yaml *codecs = nw_yaml_find(root, "codecs");
    nw_factors *f = &r->cluster->codecs;
    const char *names[FACTORS_MOST];
    int count = list_factors(names);
    if (!codecs) return NW_OK;
    NW_YAML_FAIL_IF(codecs->kind != NW_YAML_MAP, r->file, codecs,
                    "'codecs' is a map, as 'codecs: {topk: {encode: 1.5x, decode: 0.5x}}'");
    NW_NEW(f->at, codecs->count * count + 1, "the times of %d codecs", codecs->count);
    for (const nw_yaml *item = codecs->first; item; item = item->next) {
        NW_TRY(check_codec(r, item));
        NW_TRY(nw_yaml_check_map(r->file, item, "a codec", names, count));
        for (int i = 0; i < count; i++) {
            nw_factor *at = &f->at[f->count];
            if (!nw_yaml_find(item, names[i])) continue;
            NW_TRY(nw_yaml_get_factor(r->file, item, names[i], &at->times));
            snprintf(at->codec, sizeof at->codec, "%s", item->key);
            snprintf(at->what, sizeof at->what, "%s", names[i]);
            f->count++;
        }
    }
    return NW_OK;
}

/* ---- the whole ---- */

static nw_status read_network(reader *r, const nw_yaml *root, const nw_yaml *switches, const nw_yaml *rules)
{
    int index = 0;
    for (const nw_yaml *item = switches ? switches->first : NULL; item; item = item->next)
        NW_TRY(read_switch(r, item, index++));
    NW_TRY(read_only_link(r, root, "link", &r->cluster->links[0]));
    r->next_link = 1;
    NW_TRY(read_inside(r, root));
    const nw_yaml *compute = nw_yaml_find(root, "compute");
    if (compute) NW_TRY(read_compute(r, compute));
    NW_TRY(read_factors(r, root));
    for (const nw_yaml *item = rules ? rules->first : NULL; item; item = item->next) NW_TRY(read_rule(r, item));
    return NW_OK;
}

/* Calibrations were files of JSON, which cluster files named. */
static nw_status refuse_old_calibration(reader *r, const nw_yaml *root)
{
    const nw_yaml *named = root->kind == NW_YAML_MAP ? nw_yaml_find(root, "calibration") : NULL;
    const nw_yaml *is_one = root->kind == NW_YAML_MAP ? nw_yaml_find(root, "format") : NULL;
    NW_YAML_FAIL_IF(named || is_one, r->file, named ? named : is_one,
                    "calibrations are cluster files now; calibrate again with --calibrate FILE.yaml and give that file "
                    "to --cluster");
    return NW_OK;
}

static nw_status read_cluster(reader *r, const nw_yaml *root, int wanted, uint64_t seed)
{
    static const char *const keys[] = {"about",    "world",  "seed",   "ranks_per_node", "slowdown",
                                       "noise",    "memory", "nic",    "nodes",          "ranks",
                                       "switches", "link",   "inside", "links",          "compute",
                                       "codecs"};
    const nw_yaml *switches, *rules;
    int64_t own_seed = -1;
    int world = 0, nodes = 0;
    NW_FAIL_IF(root->kind == NW_YAML_MAP && root->count == 0, NW_E_FILE,
               "%s is empty; describe a cluster in it (clusters/ has examples), or use --cluster ideal", r->file);
    NW_TRY(refuse_old_calibration(r, root));
    NW_TRY(nw_yaml_check_map(r->file, root, "a cluster file", keys, COUNT(keys)));
    NW_TRY(nw_yaml_get_int(r->file, root, "seed", 0, INT64_MAX, &own_seed));
    NW_TRY(count_world(r, root, wanted, &world, &nodes));
    NW_TRY(nw_yaml_get_list(r->file, root, "switches", &switches));
    NW_TRY(nw_yaml_get_list(r->file, root, "links", &rules));
    NW_YAML_FAIL_IF(switches && switches->count > NW_CLUSTER_SWITCHES, r->file, switches, "more than %d switches",
                    (int)NW_CLUSTER_SWITCHES);
    NW_YAML_FAIL_IF(rules && rules->count > RULES_MOST, r->file, rules, "more than %d links", (int)RULES_MOST);
    /* link, inside (of each node at most), and two for each rule */
    NW_TRY(nw_cluster_create(&r->cluster, world, nodes, switches ? switches->count : 0,
                             1 + nodes + (rules ? 2 * rules->count : 0)));
    r->cluster->seed = own_seed >= 0 ? (uint64_t)own_seed : seed;
    snprintf(r->cluster->name, sizeof r->cluster->name, "%s", r->file);
    r->base = nw_bump_alloc(&r->region, (size_t)nodes * sizeof *r->base);
    NW_TRY_MEMORY(r->base);
    for (int i = 0; i < nodes; i++) r->base[i] = r->cluster->nodes[i].name;
    NW_TRY(read_ranks_and_nodes(r, root));
    return read_network(r, root, switches, rules);
}

static void free_reader(reader *r)
{
    nw_bump_free(&r->region);
    nw_cluster_free(r->cluster);
}

nw_status nw_cluster_parse(nw_cluster **cluster, const char *name, const void *data, size_t size, int world,
                           uint64_t seed)
{
    NW_CLEANUP(free_reader) reader r = {.file = name};
    nw_yaml *root;
    *cluster = NULL;
    NW_TRY(nw_yaml_parse(name, data, size, &r.region, &root));
    NW_TRY(read_cluster(&r, root, world, seed));
    *cluster = r.cluster;
    r.cluster = NULL;
    return NW_OK;
}

nw_status nw_cluster_load(nw_cluster **cluster, const char *name, int world, uint64_t seed)
{
    NW_AUTOFREE char *data = NULL;
    char path[NW_PATH_MOST];
    size_t size;
    *cluster = NULL;
    if (nw_cluster_is_builtin(name)) {
        NW_FAIL_IF(world == 0, NW_E_ARGUMENT,
                   "the cluster '%s' has no size of its own; give the number of ranks with --virtual N", name);
        NW_TRY(nw_cluster_builtin(cluster, name, world));
        (*cluster)->seed = seed;
        return NW_OK;
    }
    const char *end = strrchr(name, '.');
    NW_FAIL_IF(end && strcmp(end, ".json") == 0, NW_E_ARGUMENT,
               "%s: cluster files are YAML; where it is an old calibration, calibrate again with --calibrate FILE.yaml",
               name);
    NW_TRY(nw_installed_named("clusters", "cluster", "ideal, 1g, 10g and 100g need no file", name, path));
    NW_TRY(nw_file_read(path, NW_YAML_BYTES, &data, &size));
    return nw_cluster_parse(cluster, path, data, size, world, seed);
}

/* ---- writing ---- */

/* Factors of a codec follow one another. */
static void print_factors(const nw_factors *f, FILE *out)
{
    if (f->count > 0)
        fprintf(out, "\n# Encoding and decoding, in times of reading and writing their bytes at the rate of 'memory'.\n"
                     "codecs:\n");
    for (int i = 0; i < f->count; i++) {
        bool first = i == 0 || strcmp(f->at[i].codec, f->at[i - 1].codec) != 0;
        bool last = i + 1 == f->count || strcmp(f->at[i].codec, f->at[i + 1].codec) != 0;
        if (first) fprintf(out, "  %s: {", f->at[i].codec);
        fprintf(out, "%s: %.3fx%s", f->at[i].what, f->at[i].times, last ? "}\n" : ", ");
    }
}

void nw_measured_print(const nw_measured *m, FILE *out)
{
    fprintf(out, "# Measured by nowait %s, commit %s, on %s (%s): %s in %s, batches of %d, %d %s of %d %s at once.\n",
            nw_version(), nw_build_commit(), m->machine, m->isa, m->model, m->precision, m->batch, m->ranks,
            m->ranks == 1 ? "rank" : "ranks", m->threads, m->threads == 1 ? "thread" : "threads");
    fprintf(out, "# Times are medians. How machines are joined is not measured: add 'nic' and 'link'.\n");
    if (m->ranks > 1) fprintf(out, "ranks_per_node: %d\n", m->ranks);
    if (m->noise > 0) fprintf(out, "noise: lognormal %.6f\n", m->noise);
    fprintf(out, "memory: %.0f B/s\n\ncompute:\n  model: \"%s\"\n  precision: %s\n  batch: %d\n",
            m->memory_bytes_per_second, m->model, m->precision, m->batch);
    fprintf(out, "  overhead: %lld ns\n  update: %lld ns\n", (long long)m->overhead_ns, (long long)m->update_ns);
    for (int pass = 0; pass < 2; pass++) {
        fprintf(out, "  %s:\n", pass ? "backward" : "forward");
        for (int i = 0; i < m->stages; i++)
            fprintf(out, "    - %lld ns # %s\n", (long long)(pass ? m->stage[i].backward_ns : m->stage[i].forward_ns),
                    m->stage[i].name);
    }
    print_factors(&m->codecs, out);
    if (m->link_bytes_per_second > 0)
        fprintf(out, "\ninside:\n  latency: %lld ns\n  bandwidth: %.0f B/s\n  copied: true\n",
                (long long)m->link_latency_ns, m->link_bytes_per_second);
}
