/*
 * fuzz_cluster.c - bytes as a cluster file and as a script of faults. What is accepted must be usable: messages between
 * all pairs arrive after they were sent and in order, and work comes to an end or never does.
 */
#include "config/cluster_file.h"
#include "sim/links.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const nw_cluster *c, const nw_faults *f)
{
    nw_links *l;
    if (nw_links_create(&l, c, f) != NW_OK) return;
    for (int from = 0; from < c->world && from < 8; from++) {
        if (!(nw_cluster_factor(c, from, 3) >= 0) || c->ranks[from].node < 0 || c->ranks[from].node >= c->node_count)
            abort();
        for (int to = 0; to < c->world && to < 8; to++) {
            if (c->link_of[(size_t)from * (size_t)c->world + (size_t)to] >= c->link_count) abort();
            int64_t first = nw_links_send(l, from, to, 100000, 50, 0), second = nw_links_send(l, from, to, 0, 60, 1);
            if (first < 50 || second < 60 || (from != to && second < first)) abort();
        }
        if (nw_faults_finish(f, from, 5, 1000, 1000000) < 1000) abort();
    }
    nw_links_free(l);
}

static void use_cost(const nw_cluster *c)
{
    static const double flops[] = {1e9, 0};
    const nw_workload work = {"fuzz", "f32", 16, 2, flops, flops, 1e6};
    nw_compute_cost cost;
    if (nw_cluster_cost(c, &work, &cost) != NW_OK) return;
    for (int i = 0; i < cost.stages; i++)
        if (cost.forward_ns[i] < 0 || cost.backward_ns[i] < 0) abort();
    nw_compute_cost_free(&cost);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nw_cluster *c = NULL;
    nw_faults *f = NULL;
    if (nw_cluster_parse(&c, "fuzz.yaml", data, size, 0, 1) != NW_OK)
        (void)nw_cluster_parse(&c, "fuzz.yaml", data, size, 8, 1);
    if (c) {
        use(c, NULL);
        use_cost(c);
        nw_cluster_free(c);
    }
    if (nw_faults_parse(&f, "fuzz.yaml", data, size, 4) == NW_OK) {
        nw_faults_state state = {0};
        if (nw_cluster_builtin(&c, "1g", 4) != NW_OK) abort();
        use(c, f);
        for (int step = 0; step < 4; step++)
            if (nw_faults_due(f, 1, step * 50, step * INT64_C(10000000000), &state).sleep_ns < 0) abort();
        nw_cluster_free(c);
        nw_faults_free(f);
    }
    return 0;
}
