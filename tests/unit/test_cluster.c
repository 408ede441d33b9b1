/* test_cluster.c - the model of virtual clusters: times of arrival computed by hand, draws, faults, costs. */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "sim/links.h"
#include "support/files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { US = 1000, MS = 1000000 };
#define SECOND   INT64_C(1000000000)
#define MEGABYTE ((size_t)1000000) /* 1 ms at GIGA */
#define GIGA     1e9               /* bytes/s */

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static void refused(nw_status status, nw_status want, const char *part)
{
    if (status != want || !strstr(nw_error_message(), part))
        fail_msg("status %d and '%s', wanted %d and '%s'", status, nw_error_message(), want, part);
}

/* A cluster, its links and its faults, of one test. */
static nw_cluster *c;
static nw_links *l;
static nw_faults *f;

static int tear_down(void **state)
{
    (void)state;
    nw_links_free(l);
    nw_cluster_free(c);
    nw_faults_free(f);
    l = NULL;
    c = NULL;
    f = NULL;
    return 0;
}

static void build(int world, int nodes, int switches, int links)
{
    tear_down(NULL);
    ok(nw_cluster_create(&c, world, nodes, switches, links));
}

static void link_up(void) { ok(nw_links_create(&l, c, f)); }

static void nics(double bandwidth)
{
    for (int i = 0; i < c->node_count; i++) c->nodes[i].egress = c->nodes[i].ingress = bandwidth;
}

/* ---- links ---- */

static void test_lone_message(void **state)
{
    (void)state;
    build(2, 2, 0, 1);
    c->links[0] = (nw_cluster_link){.latency_ns = 50 * US, .bandwidth = 125e6};
    link_up();
    assert_int_equal(nw_links_send(l, 0, 1, MEGABYTE, 7, 0), 7 + 8 * MS + 50 * US);
    assert_int_equal(nw_links_send(l, 1, 1, MEGABYTE, 9, 0), 9); /* to oneself */
    assert_int_equal(nw_links_send(l, 1, 0, 0, 9, 0), 9 + 50 * US);

    /* the smallest bandwidth of the way decides; the overhead comes on top once */
    build(2, 2, 2, 1);
    c->links[0] = (nw_cluster_link){.latency_ns = 10, .bandwidth = 4 * GIGA, .overhead_ns = 300};
    nics(2 * GIGA);
    c->nodes[0].within = 0;
    c->nodes[1].within = 1;
    c->switches[0].up = c->switches[1].down = GIGA;
    link_up();
    assert_int_equal(nw_links_send(l, 0, 1, MEGABYTE, 0, 0), MS + 300 + 10);
    assert_int_equal(nw_links_send(l, 1, 0, MEGABYTE, 0, 0), MS / 2 + 300 + 10); /* the trunks have no limit that way */
}

static void test_bytes_round_up(void **state)
{
    (void)state;
    assert_int_equal(nw_time_of_bytes(1, 3e9), 1);
    assert_int_equal(nw_time_of_bytes(0, 3e9), 0);
    assert_int_equal(nw_time_of_bytes(10, 0), 0);
    assert_int_equal(nw_time_of_bytes(1e300, 1), NW_NEVER);
    assert_int_equal(nw_time_add(NW_NEVER, 5), NW_NEVER);
    assert_int_equal(nw_time_add(NW_NEVER - 3, 5), NW_NEVER);
    assert_int_equal(nw_time_scale(NW_NEVER, 0.5), NW_NEVER);
    assert_int_equal(nw_time_scale(INT64_C(1) << 61, 4), NW_NEVER);
    assert_int_equal(nw_time_scale(10, -1), 0);
    assert_int_equal(nw_time_scale(10, 0.25), 3); /* 2.5, away from zero */
}

static void test_card_is_a_queue(void **state)
{
    (void)state;
    build(4, 4, 0, 1);
    c->links[0].latency_ns = 100;
    nics(GIGA);
    link_up();
    /* two messages out of one NIC: the second waits for the first, although they go to different ranks */
    assert_int_equal(nw_links_send(l, 0, 1, MEGABYTE, 0, 0), MS + 100);
    assert_int_equal(nw_links_send(l, 0, 2, MEGABYTE, 0, 0), 2 * MS + 100);
    /* a third later finds it free again from 2 ms on */
    assert_int_equal(nw_links_send(l, 0, 3, MEGABYTE, MS + MS / 2, 0), 3 * MS + 100);
    /* two into one NIC: rank 1's is free from 1 ms on */
    assert_int_equal(nw_links_send(l, 2, 1, MEGABYTE, 5 * MS, 0), 6 * MS + 100);
    assert_int_equal(nw_links_send(l, 3, 1, MEGABYTE, 5 * MS, 0), 7 * MS + 100);
    /* the two directions are apart */
    assert_int_equal(nw_links_send(l, 1, 3, MEGABYTE, 5 * MS, 0), 6 * MS + 100);
}

static void test_ranks_of_a_node_share_its_card(void **state)
{
    (void)state;
    build(4, 2, 0, 2);
    nics(GIGA);
    c->links[1] = (nw_cluster_link){.bandwidth = 10 * GIGA};
    c->link_of[0 * 4 + 1] = c->link_of[1 * 4 + 0] = 1;
    link_up();
    assert_int_equal(nw_links_send(l, 0, 2, MEGABYTE, 0, 0), MS);
    assert_int_equal(nw_links_send(l, 1, 3, MEGABYTE, 0, 0), 2 * MS);
    assert_int_equal(nw_links_send(l, 0, 1, MEGABYTE, 0, 0), MS / 10); /* inside: not through the NIC */
}

static void test_idle_receiver_is_not_held_up(void **state)
{
    (void)state;
    /* All to all in rotated order: every NIC is busy without a gap, so all is over after world - 1 transfers. */
    enum { WORLD = 16 };
    int64_t last = 0;
    build(WORLD, WORLD, 0, 1);
    nics(GIGA);
    link_up();
    for (int from = 0; from < WORLD; from++)
        for (int k = 1; k < WORLD; k++) {
            int64_t arrival = nw_links_send(l, from, (from + k) % WORLD, MEGABYTE, 0, 0);
            assert_int_equal(arrival, k * MS);
            if (arrival > last) last = arrival;
        }
    assert_int_equal(last, (WORLD - 1) * MS);
}

static void test_trunk_sharing(void **state)
{
    (void)state;
    build(6, 6, 2, 1);
    nics(GIGA);
    for (int i = 0; i < 6; i++) c->nodes[i].within = i / 3;
    for (int i = 0; i < 2; i++) c->switches[i].up = c->switches[i].down = 2 * GIGA;
    link_up();
    /* 3 MB over a trunk of 2 GB/s: half a millisecond each. The NICs hold each of them for a millisecond. */
    assert_int_equal(nw_links_send(l, 0, 3, MEGABYTE, 0, 0), MS);
    assert_int_equal(nw_links_send(l, 1, 4, MEGABYTE, 0, 0), MS + MS / 2); /* begins at 0.5 on the trunk and the NIC */
    assert_int_equal(nw_links_send(l, 2, 5, MEGABYTE, 0, 0), 2 * MS);
    /* inside the switch the trunk does not count */
    assert_int_equal(nw_links_send(l, 3, 5, MEGABYTE, 5 * MS, 0), 6 * MS);
}

static void test_shared_link(void **state)
{
    (void)state;
    build(4, 4, 0, 2);
    c->links[0] = (nw_cluster_link){.latency_ns = 40 * MS, .bandwidth = GIGA, .shared = true};
    c->links[1] = (nw_cluster_link){.bandwidth = GIGA};
    c->link_of[0 * 4 + 1] = 1;
    link_up();
    assert_int_equal(nw_links_send(l, 0, 2, MEGABYTE, 0, 0), 41 * MS);
    assert_int_equal(nw_links_send(l, 1, 3, MEGABYTE, 0, 0), 42 * MS);
    assert_int_equal(nw_links_send(l, 0, 1, MEGABYTE, 0, 0), MS);
}

static void test_no_overtaking(void **state)
{
    static const nw_noise kinds[] = {{NW_NOISE_LOGNORMAL, 1}, {NW_NOISE_UNIFORM, 1}, {NW_NOISE_EXPONENTIAL, 2}};
    (void)state;
    for (int k = 0; k < 3; k++) {
        int pushed = 0;
        int64_t before = 0;
        build(2, 2, 0, 1);
        c->seed = 5;
        c->links[0] = (nw_cluster_link){.latency_ns = MS, .bandwidth = GIGA, .jitter = kinds[k]};
        link_up();
        for (int i = 0; i < 2000; i++) {
            int64_t now = i * 10 * US;
            int64_t arrival = nw_links_send(l, 0, 1, 1000, now, (uint64_t)i);
            assert_true(arrival >= before && arrival >= now + US);
            pushed += arrival == before;
            before = arrival;
        }
        assert_true(pushed > 100); /* without the rule they would have overtaken */
    }
}

static void test_jitter_depends_on_names_alone(void **state)
{
    int64_t first[8], other = 0;
    (void)state;
    for (int round = 0; round < 2; round++) {
        build(3, 3, 0, 1);
        c->seed = 11;
        c->links[0] = (nw_cluster_link){.latency_ns = MS, .jitter = {NW_NOISE_UNIFORM, 0.5}};
        link_up();
        for (int i = 0; i < 8; i++) {
            if (round == 1) other += nw_links_send(l, 1, 2, 10, i * SECOND, (uint64_t)i) != first[i];
            int64_t arrival = nw_links_send(l, 0, 1, 10, i * SECOND, (uint64_t)i);
            if (round == 0) first[i] = arrival;
            assert_int_equal(arrival, first[i]);
            assert_in_range(arrival - i * SECOND, MS / 2, MS + MS / 2);
        }
    }
    assert_int_equal(other, 8); /* another link draws other numbers */
}

static void set_faults(const nw_fault *list, int count)
{
    nw_faults_free(f);
    ok(nw_faults_create(&f, list, count, c->world));
}

static void test_link_down(void **state)
{
    static const nw_fault list[] = {
        {.kind = NW_FAULT_LINK_DOWN, .rank = 1, .peer = 2, .both_ways = true, .at = 5 * SECOND, .until = 8 * SECOND},
        {.kind = NW_FAULT_LINK_DOWN, .rank = 0, .peer = 2, .at = 1 * SECOND, .until = NW_NEVER},
        {.kind = NW_FAULT_LINK_DOWN, .rank = 1, .peer = 2, .at = 8 * SECOND, .until = 9 * SECOND},
        {.kind = NW_FAULT_LINK_SLOW, .rank = 3, .peer = NW_FAULT_ANY, .at = 0, .until = SECOND, .factor = 4},
    };
    (void)state;
    build(4, 4, 0, 1);
    c->links[0] = (nw_cluster_link){.latency_ns = 100, .bandwidth = GIGA};
    set_faults(list, 4);
    link_up();
    assert_int_equal(nw_links_send(l, 2, 1, MEGABYTE, 4 * SECOND, 0), 4 * SECOND + MS + 100);
    /* begun half a millisecond before: the other half waits for the end */
    assert_int_equal(nw_links_send(l, 2, 1, MEGABYTE, 5 * SECOND - MS / 2, 1), 8 * SECOND + MS / 2 + 100);
    assert_int_equal(nw_links_send(l, 2, 1, MEGABYTE, 6 * SECOND, 2), 8 * SECOND + MS / 2 + MS + 100); /* behind it */
    assert_int_equal(nw_links_send(l, 1, 2, MEGABYTE, 6 * SECOND, 0), 9 * SECOND + MS + 100); /* two windows in a row */
    assert_int_equal(nw_links_send(l, 2, 1, MEGABYTE, 8 * SECOND + 10 * MS, 3), 8 * SECOND + 11 * MS + 100);
    assert_int_equal(nw_links_send(l, 0, 2, MEGABYTE, 6 * SECOND, 0), NW_NEVER);
    assert_int_equal(nw_links_send(l, 2, 0, MEGABYTE, 6 * SECOND, 0), 6 * SECOND + MS + 100); /* the other direction */
    assert_int_equal(nw_faults_link_up(f, 1, 2, 5 * SECOND), 9 * SECOND);
    assert_int_equal(nw_faults_link_up(f, 1, 2, 5 * SECOND - 1), 5 * SECOND - 1);
    assert_int_equal(nw_faults_link_up(f, 2, 1, 8 * SECOND), 8 * SECOND);

    /* slow: also where the NIC, not the link, has the bandwidth */
    c->links[0].bandwidth = 0;
    nics(GIGA);
    nw_links_free(l);
    link_up();
    assert_int_equal(nw_links_send(l, 3, 0, MEGABYTE, 0, 0), 4 * MS + 100);
    /* one millisecond of work, a quarter of it done in the last slow millisecond */
    assert_int_equal(nw_links_send(l, 3, 1, MEGABYTE, SECOND - MS, 0), SECOND + MS - MS / 4 + 100);
}

static void test_state_goes_on(void **state)
{
    enum { WORLD = 5, BEFORE = 60, AFTER = 60 };
    int64_t want[AFTER];
    (void)state;
    build(WORLD, 3, 2, 1);
    nics(GIGA);
    c->nodes[0].within = 0;
    c->nodes[2].within = 1;
    c->switches[0].up = c->switches[1].down = 3 * GIGA;
    c->links[0] = (nw_cluster_link){.latency_ns = MS, .bandwidth = 2 * GIGA, .jitter = {NW_NOISE_EXPONENTIAL, 1}};
    link_up();
    for (int i = 0; i < BEFORE; i++) nw_links_send(l, i % WORLD, (i + 1 + i / 7) % WORLD, MEGABYTE, i * 100 * US, 0);
    size_t count = nw_links_state_count(l);
    int64_t *saved = malloc(count * sizeof *saved);
    assert_non_null(saved);
    nw_links_save(l, saved);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < AFTER; i++) {
            int64_t arrival =
                nw_links_send(l, (i + i / 5) % WORLD, (i + 1) % WORLD, MEGABYTE, (BEFORE + i) * 100 * US, (uint64_t)i);
            if (round == 0) want[i] = arrival;
            assert_int_equal(arrival, want[i]);
        }
        nw_links_free(l);
        link_up();
        ok(nw_links_load(l, saved, count));
        assert_int_equal(nw_links_state_count(l), count);
    }
    /* every length but the right one, and wrong numbers */
    for (size_t n = 0; n < count; n++) {
        int64_t *part = malloc(n ? n * sizeof *part : 1); /* its own block, so that the sanitizer sees its end */
        assert_non_null(part);
        memcpy(part, saved, n * sizeof *part);
        refused(nw_links_load(l, part, n), NW_E_FILE, "make no sense");
        free(part);
    }
    for (size_t i = 0; i < 4; i++) {
        int64_t kept = saved[i];
        saved[i] = i == 3 ? INT64_MAX : 77;
        refused(nw_links_load(l, saved, count), NW_E_FILE, "make no sense");
        saved[i] = kept;
    }
    int64_t kept = saved[4];
    saved[4] = WORLD * WORLD;
    refused(nw_links_load(l, saved, count), NW_E_FILE, "out of range");
    saved[4] = kept;
    kept = saved[count - 1];
    int64_t *with_more = calloc(count + 1, sizeof *with_more);
    assert_non_null(with_more);
    memcpy(with_more, saved, count * sizeof *saved);
    refused(nw_links_load(l, with_more, count + 1), NW_E_FILE, "something follows");
    free(with_more);
    free(saved);
}

static void test_full_queue_stays_in_order(void **state)
{
    (void)state;
    /* One receiver, reserved by many senders in scattered slots: more gaps than a queue has room for. Capacity is
     * never given twice: whatever the order, n transfers of 1 ms into one NIC end no earlier than after n ms. */
    enum { WORLD = 400 };
    int64_t last = 0;
    build(WORLD, WORLD, 0, 1);
    nics(GIGA);
    link_up();
    for (int i = 1; i < WORLD; i++) {
        /* a first message elsewhere delays the second, to rank 0, by an odd time */
        nw_links_send(l, i, 1 + i % (WORLD - 1), (size_t)(i * 7919 % WORLD) * 3 * MEGABYTE, 0, 0);
        int64_t arrival = nw_links_send(l, i, 0, MEGABYTE, 0, 0);
        if (arrival > last) last = arrival;
    }
    assert_true(last >= (WORLD - 1) * (int64_t)MS);
    size_t count = nw_links_state_count(l);
    int64_t *saved = malloc(count * sizeof *saved);
    assert_non_null(saved);
    nw_links_save(l, saved);
    ok(nw_links_load(l, saved, count)); /* checks that intervals are in order and apart */
    free(saved);
}

/* ---- draws ---- */

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void test_draws(void **state)
{
    enum { DRAWS = 20000 };
    static double draws[DRAWS];
    static const struct {
        nw_noise noise;
        double mean, median, q99, least;
    } cases[] = {
        {{NW_NOISE_LOGNORMAL, 0.3}, 1, 0.955997, 1.921, 0}, /* median exp(-s^2/2), q99 exp(2.3263 s - s^2/2) */
        {{NW_NOISE_UNIFORM, 0.2}, 1, 1, 1.196, 0.8},
        {{NW_NOISE_EXPONENTIAL, 0.5}, 1.5, 1.346574, 3.302585, 1}, /* 1 + x ln 2, 1 + x ln 100 */
    };
    (void)state;
    for (int k = 0; k < 3; k++) {
        double sum = 0;
        build(8, 8, 0, 1);
        c->seed = 3;
        for (int r = 0; r < 8; r++) c->ranks[r].noise = cases[k].noise;
        for (int i = 0; i < DRAWS; i++) sum += draws[i] = nw_cluster_factor(c, i % 8, (uint64_t)i / 8);
        qsort(draws, DRAWS, sizeof *draws, by_value);
        assert_true(fabs(sum / DRAWS - cases[k].mean) < 0.015);
        assert_true(fabs(draws[DRAWS / 2] - cases[k].median) < 0.015);
        assert_true(fabs(draws[DRAWS / 100 * 99] - cases[k].q99) < 0.04 * cases[k].q99);
        assert_true(draws[0] >= cases[k].least);
        double again = nw_cluster_factor(c, 3, 17);
        assert_true(again == nw_cluster_factor(c, 3, 17) && again != nw_cluster_factor(c, 3, 18) &&
                    again != nw_cluster_factor(c, 4, 17));
        c->ranks[3].slowdown = 4;
        assert_true(nw_cluster_factor(c, 3, 17) == 4 * again);
        c->seed = 4;
        assert_true(nw_cluster_factor(c, 3, 17) != 4 * again);
    }
    c->ranks[3].noise.kind = NW_NOISE_NONE;
    assert_true(nw_cluster_factor(c, 3, 17) == 4);
}

/* ---- faults ---- */

static void test_rank_faults(void **state)
{
    static const nw_fault list[] = {
        {.kind = NW_FAULT_DIE, .rank = 2, .at = 30 * SECOND, .until = NW_NEVER},
        {.kind = NW_FAULT_SLOW, .rank = 3, .by_step = true, .at = 100, .until = NW_NEVER, .factor = 4},
        {.kind = NW_FAULT_SLOW, .rank = 1, .at = 10 * SECOND, .until = 20 * SECOND, .factor = 2},
        {.kind = NW_FAULT_PAUSE, .rank = 1, .at = 12 * SECOND, .duration_ns = 3 * SECOND},
        {.kind = NW_FAULT_PAUSE, .rank = 1, .by_step = true, .at = 7, .duration_ns = 5 * MS},
        {.kind = NW_FAULT_STOP, .rank = 0, .by_step = true, .at = 50, .until = NW_NEVER},
        {.kind = NW_FAULT_SLOW, .rank = NW_FAULT_ANY, .by_step = true, .at = 200, .until = 210, .factor = 1.5},
    };
    (void)state;
    build(4, 4, 0, 1);
    set_faults(list, 7);
    assert_true(nw_faults_finish(f, 3, 99, 0, 100) == 100 && nw_faults_finish(f, 3, 100, 0, 100) == 400);
    assert_true(nw_faults_finish(f, 3, 205, 0, 100) == 600 && nw_faults_finish(f, 3, 210, 0, 100) == 400);
    assert_int_equal(nw_faults_finish(f, 3, 100, SECOND, 10 * MS), SECOND + 40 * MS);
    /* 9 s to 10 s at full speed, 10 to 12 at half, rest until 15, half again to 20, then full */
    assert_int_equal(nw_faults_finish(f, 1, 0, 9 * SECOND, SECOND / 2), 9 * SECOND + SECOND / 2);
    assert_int_equal(nw_faults_finish(f, 1, 0, 9 * SECOND, 2 * SECOND), 12 * SECOND);
    assert_int_equal(nw_faults_finish(f, 1, 0, 9 * SECOND, 3 * SECOND), 17 * SECOND);
    assert_int_equal(nw_faults_finish(f, 1, 0, 9 * SECOND, 6 * SECOND), 21 * SECOND + SECOND / 2);
    assert_int_equal(nw_faults_finish(f, 1, 0, 13 * SECOND, 0), 15 * SECOND);
    assert_int_equal(nw_faults_finish(NULL, 1, 0, 5, 6), 11);
    assert_int_equal(nw_faults_step_pause(f, 1, 7), 5 * MS);
    assert_int_equal(nw_faults_step_pause(f, 1, 8), 0);
    assert_int_equal(nw_faults_step_pause(f, 0, 7), 0);
    assert_int_equal(nw_faults_health(f, 2, 0, 30 * SECOND - 1), NW_RANK_LIVES);
    assert_int_equal(nw_faults_health(f, 2, 0, 30 * SECOND), NW_RANK_DEAD);
    assert_int_equal(nw_faults_health(f, 0, 49, 99 * SECOND), NW_RANK_LIVES);
    assert_int_equal(nw_faults_health(f, 0, 51, 0), NW_RANK_STOPPED);
    assert_int_equal(nw_faults_health(NULL, 0, 51, 0), NW_RANK_LIVES);
    assert_null(nw_faults_virtual_only(f));
    for (int i = 1; i < f->count; i++)
        assert_true(f->at[i - 1].by_step < f->at[i].by_step ||
                    (f->at[i - 1].by_step == f->at[i].by_step && f->at[i - 1].at <= f->at[i].at));
}

/* A rank that is late does nothing before, and its own time begins then. */
static void test_late_ranks(void **state)
{
    static const nw_fault list[] = {
        {.kind = NW_FAULT_SLOW, .rank = 1, .at = SECOND, .until = NW_NEVER, .factor = 2},
        {.kind = NW_FAULT_JOIN, .rank = 1, .at = 10 * SECOND, .until = NW_NEVER},
        {.kind = NW_FAULT_PAUSE, .rank = 1, .at = 20 * SECOND, .duration_ns = 3 * SECOND},
    };
    (void)state;
    build(4, 4, 0, 1);
    set_faults(list, 3);
    assert_true(nw_faults_is_late(f, 1) && !nw_faults_is_late(f, 2) && !nw_faults_is_late(NULL, 1));
    assert_true(f->at[0].kind == NW_FAULT_JOIN && f->at[0].at == 0 && f->at[0].until == 10 * SECOND);
    assert_int_equal(nw_faults_finish(f, 1, 0, 0, SECOND), 12 * SECOND);
    assert_int_equal(nw_faults_awake(f, 1, 5), 10 * SECOND);
    assert_int_equal(nw_faults_awake(f, 1, 21 * SECOND), 23 * SECOND);
    assert_int_equal(nw_faults_awake(f, 1, 15 * SECOND), 15 * SECOND);
    assert_int_equal(nw_faults_awake(f, 2, 5), 5);
    assert_int_equal(nw_faults_paused(f, 1, 4 * SECOND), 4 * SECOND);
    assert_int_equal(nw_faults_paused(f, 1, 22 * SECOND), 12 * SECOND);
    assert_int_equal(nw_faults_virtual_only(f)->kind, NW_FAULT_JOIN);
}

static void test_due(void **state)
{
    static const nw_fault list[] = {
        {.kind = NW_FAULT_SLOW, .rank = 0, .by_step = true, .at = 2, .until = 4, .factor = 3},
        {.kind = NW_FAULT_PAUSE, .rank = 0, .by_step = true, .at = 4, .duration_ns = 7 * MS},
        {.kind = NW_FAULT_PAUSE, .rank = 0, .at = 500 * MS, .duration_ns = MS},
        {.kind = NW_FAULT_DIE, .rank = 0, .by_step = true, .at = 6, .until = NW_NEVER},
        {.kind = NW_FAULT_STOP, .rank = 1, .at = 0, .until = NW_NEVER},
    };
    nw_faults_state s = {0};
    nw_faults_action a;
    (void)state;
    build(4, 4, 0, 1);
    set_faults(list, 5);
    a = nw_faults_due(f, 0, 0, 0, &s);
    assert_true(a.sleep_ns == 0 && a.end == NW_RANK_LIVES && !a.cause);
    a = nw_faults_due(f, 0, 1, 100 * MS, &s);
    assert_true(a.sleep_ns == 0 && !a.cause);
    a = nw_faults_due(f, 0, 2, 200 * MS, &s); /* step 1 was done at full speed */
    assert_true(a.sleep_ns == 0 && !a.cause);
    a = nw_faults_due(f, 0, 3, 300 * MS, &s); /* step 2 took 100 ms and should have taken 300 */
    assert_true(a.sleep_ns == 200 * MS && a.cause->kind == NW_FAULT_SLOW && a.end == NW_RANK_LIVES);
    /* step 3 began at 500 ms; 10 ms of it are slow, then two pauses come due at once */
    a = nw_faults_due(f, 0, 4, 510 * MS, &s);
    assert_true(a.sleep_ns == 20 * MS + 7 * MS + MS && a.cause->kind == NW_FAULT_PAUSE);
    a = nw_faults_due(f, 0, 5, 600 * MS, &s);
    assert_true(a.sleep_ns == 0 && !a.cause); /* each comes once */
    a = nw_faults_due(f, 0, 6, 700 * MS, &s);
    assert_true(a.end == NW_RANK_DEAD && a.cause->kind == NW_FAULT_DIE);
    s = (nw_faults_state){0};
    a = nw_faults_due(f, 0, 7, 0, &s); /* resumed behind it */
    assert_true(a.end == NW_RANK_LIVES && a.sleep_ns == 0);
    s = (nw_faults_state){0};
    a = nw_faults_due(f, 1, 0, 0, &s);
    assert_true(a.end == NW_RANK_STOPPED);
    a = nw_faults_due(f, 1, 1, 9, &s);
    assert_true(a.end == NW_RANK_LIVES);
}

static void test_impossible_faults(void **state)
{
    static const struct {
        nw_fault fault;
        const char *part;
    } cases[] = {
        {{.kind = NW_FAULT_DIE, .rank = 4, .until = NW_NEVER}, "rank 4 is not in the world"},
        {{.kind = NW_FAULT_DIE, .rank = -2, .until = NW_NEVER}, "rank -2 is not in the world"},
        {{.kind = NW_FAULT_DIE, .at = -1, .until = NW_NEVER}, "before the start"},
        {{.kind = NW_FAULT_DIE, .at = 1, .until = 9}, "never ends"},
        {{.kind = NW_FAULT_LINK_DOWN, .peer = 9, .until = 9}, "rank 9 is not in the world"},
        {{.kind = NW_FAULT_LINK_DOWN, .until = 9}, "to itself"},
        {{.kind = NW_FAULT_LINK_DOWN, .peer = 1, .by_step = true, .until = 9}, "a link has no steps"},
        {{.kind = NW_FAULT_SLOW, .until = 9}, "the factor of 'slow' is 0"},
        {{.kind = NW_FAULT_SLOW, .until = 9, .factor = NAN}, "the factor of 'slow'"},
        {{.kind = NW_FAULT_SLOW, .at = 9, .until = 9, .factor = 2}, "ends before it begins"},
        {{.kind = NW_FAULT_PAUSE}, "must last longer than 0"},
        {{.kind = NW_FAULT_JOIN, .rank = 1, .until = NW_NEVER}, "give the time at which it joins"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(nw_faults_create(&f, &cases[i].fault, 1, 4), NW_E_ARGUMENT, cases[i].part);
    refused(nw_faults_create(&f, NULL, NW_FAULTS_MOST + 1, 4), NW_E_ARGUMENT, "at most");
    ok(nw_faults_create(&f, NULL, 0, 4));
}

/* ---- clusters and costs ---- */

static void test_builtin(void **state)
{
    static const char *const names[] = {"ideal", "1g", "10g", "100g"};
    int64_t before = INT64_MAX;
    (void)state;
    for (int i = 3; i >= 0; i--) {
        tear_down(NULL);
        assert_true(nw_cluster_is_builtin(names[i]));
        ok(nw_cluster_builtin(&c, names[i], 3));
        assert_string_equal(c->name, names[i]);
        link_up();
    }
    assert_int_equal(nw_links_send(l, 0, 1, 1 << 30, 5, 0), 5); /* ideal */
    for (int i = 1; i < 4; i++) {
        tear_down(NULL);
        ok(nw_cluster_builtin(&c, names[i], 3));
        link_up();
        int64_t arrival = nw_links_send(l, 0, 1, 1 << 20, 0, 0);
        assert_true(arrival < before);
        before = arrival;
    }
    tear_down(NULL);
    refused(nw_cluster_builtin(&c, "10gb", 3), NW_E_UNKNOWN, "'10g'");
    refused(nw_cluster_builtin(&c, "10g", 0), NW_E_ARGUMENT, "1 to 1024");
    refused(nw_cluster_builtin(&c, "10g", 1025), NW_E_ARGUMENT, "1 to 1024");
    refused(nw_cluster_create(&c, 4, 5, 0, 1), NW_E_ARGUMENT, "nodes");
    refused(nw_cluster_create(&c, 4, 4, 0, 0), NW_E_ARGUMENT, "links");
}

static void test_costs(void **state)
{
    static const double forward[] = {1e6, 3e6}, backward[] = {2e6, 6e6};
    const nw_workload work = {"resnet9", "f32", 100, 2, forward, backward, 5e6};
    nw_workload other = work;
    nw_compute_cost cost;
    (void)state;
    build(4, 2, 0, 2);
    ok(nw_cluster_cost(c, &work, &cost)); /* 100 images of 1e6 operations at 1e11 a second: 1 ms */
    assert_true(cost.forward_ns[0] == MS && cost.forward_ns[1] == 3 * MS);
    assert_true(cost.backward_ns[0] == 2 * MS && cost.backward_ns[1] == 6 * MS);
    assert_true(cost.update_ns == MS / 2 && cost.overhead_ns == 0); /* 5 MB at 10 GB/s */
    assert_int_equal(nw_cluster_touch_ns(c, cost.touch_bytes_per_second, 0, 1e6), 100 * US);
    c->ranks[0].memory_bytes_per_second = 1e9;
    assert_int_equal(nw_cluster_touch_ns(c, cost.touch_bytes_per_second, 0, 1e6), MS);
    nw_compute_cost_free(&cost);

    c->compute.kind = NW_COMPUTE_GIVEN; /* totals, for 50 images */
    c->compute.batch = 50;
    c->compute.stages = 1;
    c->compute.forward_ns = calloc(1, sizeof(int64_t));
    c->compute.backward_ns = calloc(1, sizeof(int64_t));
    assert_true(c->compute.forward_ns && c->compute.backward_ns);
    c->compute.forward_ns[0] = 4 * MS + 1;
    c->compute.backward_ns[0] = 8 * MS;
    c->compute.overhead_ns = 10;
    c->compute.update_ns = 77;
    ok(nw_cluster_cost(c, &work, &cost));
    assert_true(cost.forward_ns[0] == 2 * MS + 1 && cost.forward_ns[0] + cost.forward_ns[1] == 8 * MS + 2);
    assert_true(cost.backward_ns[0] == 4 * MS && cost.backward_ns[1] == 12 * MS);
    assert_true(cost.overhead_ns == 20 && cost.update_ns == 77);
    nw_compute_cost_free(&cost);
    c->compute.stages = 3;
    refused(nw_cluster_cost(c, &work, &cost), NW_E_ARGUMENT, "3 stages, but resnet9 has 2");

    c->compute.stages = 1; /* of one model, in one precision */
    strcpy(c->compute.model, "resnet9");
    strcpy(c->compute.precision, "f32");
    ok(nw_cluster_cost(c, &work, &cost));
    nw_compute_cost_free(&cost);
    other.model = "resnet18";
    refused(nw_cluster_cost(c, &other, &cost), NW_E_ARGUMENT, "--model resnet18");
    other.model = work.model;
    other.precision = "bf16";
    refused(nw_cluster_cost(c, &other, &cost), NW_E_ARGUMENT, "--precision bf16");

    /* inside a node the receiver copies */
    c->links[1] = (nw_cluster_link){.latency_ns = 900, .overhead_ns = 70, .bandwidth = 4e9, .copied = true};
    c->link_of[1] = 1;
    link_up();
    assert_int_equal(nw_links_send(l, 0, 1, 4 * MEGABYTE, 0, 0), 900 + 70); /* its bytes are the receiver's work */
    assert_int_equal(nw_cluster_copy_ns(c, 0, 1, 4 * MEGABYTE), MS);
    assert_int_equal(nw_links_send(l, 0, 2, 4 * MEGABYTE, 0, 0), 0);
    assert_int_equal(nw_cluster_copy_ns(c, 0, 2, 4 * MEGABYTE), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_lone_message),
        TEST(test_bytes_round_up),
        TEST(test_card_is_a_queue),
        TEST(test_ranks_of_a_node_share_its_card),
        TEST(test_idle_receiver_is_not_held_up),
        TEST(test_trunk_sharing),
        TEST(test_shared_link),
        TEST(test_no_overtaking),
        TEST(test_jitter_depends_on_names_alone),
        TEST(test_link_down),
        TEST(test_state_goes_on),
        TEST(test_full_queue_stays_in_order),
        TEST(test_draws),
        TEST(test_rank_faults),
        TEST(test_late_ranks),
        TEST(test_due),
        TEST(test_impossible_faults),
        TEST(test_builtin),
        TEST(test_costs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
