/*
 * test_cluster_file.c - cluster files and scripts of faults: what they mean, that the examples are good, and every
 * refusal with its line.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/file.h"
#include "config/cluster_file.h"
#include "config/units.h"
#include "sim/links.h"
#include "support/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

static nw_cluster *c;
static nw_faults *f;

static int tear_down(void **state)
{
    (void)state;
    nw_cluster_free(c);
    nw_faults_free(f);
    c = NULL;
    f = NULL;
    return 0;
}

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

static void refused(nw_status status, nw_status want, const char *part)
{
    if (status != want || !strstr(nw_error_message(), part))
        fail_msg("status %d and '%s', wanted %d and '%s'", status, nw_error_message(), want, part);
}

static void read_text(const char *text, int world)
{
    tear_down(NULL);
    ok(nw_cluster_parse(&c, "x.yaml", text, strlen(text), world, 42));
}

/* Refused with a sentence that begins with `where` ("x.yaml:2:") and has `part` in it. */
static void check_refusal(nw_status status, const char *text, const char *where, const char *part)
{
    const char *message = nw_error_message();
    if (status != NW_E_FILE || strncmp(message, where, strlen(where)) != 0 || !strstr(message, part))
        fail_msg("'%s': status %d and '%s', wanted '%s' and '%s'", text, status, message, where, part);
}

static void bad(const char *text, const char *where, const char *part)
{
    tear_down(NULL);
    check_refusal(nw_cluster_parse(&c, "x.yaml", text, strlen(text), 4, 0), text, where, part);
    assert_null(c);
}

static void read_faults(const char *text)
{
    tear_down(NULL);
    ok(nw_faults_parse(&f, "x.yaml", text, strlen(text), 4));
}

static void bad_faults(const char *text, const char *where, const char *part)
{
    tear_down(NULL);
    check_refusal(nw_faults_parse(&f, "x.yaml", text, strlen(text), 4), text, where, part);
    assert_null(f);
}

/* ---- units ---- */

static void test_units(void **state)
{
    static const struct {
        const char *text;
        int64_t ns; /* -1: refused */
    } times[] = {{"50 us", 50000},       {"50us", 50000},        {"1.5 ms", 1500000}, {"2 s", 2 * SECOND},
                 {"1 min", 60 * SECOND}, {"1 h", 3600 * SECOND}, {"0 s", 0},          {"1e3 ns", 1000},
                 {"0.4 ns", 0},          {"3 \xc2\xb5s", 3000},  {"50", -1},          {"us", -1},
                 {"-1 s", -1},           {"1  s", -1},           {"1 S", -1},         {"0x10 s", -1},
                 {"inf s", -1},          {"nan s", -1},          {"1e400 s", -1},     {"1. s", -1},
                 {".5 s", -1},           {"1 s ", -1},           {" 1 s", -1},        {"", -1},
                 {"20 y", -1},           {"1e12 s", -1},         {"1e s", -1},        {"+1 s", -1}};
    static const struct {
        const char *text;
        double value; /* -1: refused */
    } bandwidths[] = {{"10 Gbit/s", 1.25e9}, {"100 MB/s", 1e8},   {"8 bit/s", 1},   {"1 kbit/s", 125},
                      {"1 KiB/s", 1024},     {"2 GiB/s", 0x1p31}, {"1 TB/s", 1e12}, {"unlimited", 0},
                      {"10 Gb/s", -1},       {"10 gbit/s", -1},   {"10", -1},       {"-1 GB/s", -1},
                      {"0 GB/s", -1},        {"1 bit/s", -1},     {"1e9 TB/s", -1}, {"Unlimited", -1},
                      {"1e300 TB/s", -1}},
      factors[] = {{"4x", 4}, {"0.5x", 0.5}, {"4 x", 4}, {"4", -1}, {"-4x", -1}, {"0x", -1}, {"4X", -1}, {"1e9x", -1}},
      numbers[] = {{"5", 5}, {"2.5", 2.5}, {"0", -1}, {"11", -1}, {"5 ", -1}, {"a", -1}};
    nw_complaint why;
    int64_t ns;
    double value;
    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        bool accepted = !nw_units_time(times[i].text, &ns, &why);
        if (accepted != (times[i].ns >= 0) || (accepted && ns != times[i].ns)) fail_msg("'%s'", times[i].text);
    }
    for (size_t i = 0; i < sizeof bandwidths / sizeof *bandwidths; i++) {
        bool accepted = !nw_units_bandwidth(bandwidths[i].text, &value, &why);
        if (accepted != (bandwidths[i].value >= 0) || (accepted && value != bandwidths[i].value))
            fail_msg("'%s'", bandwidths[i].text);
    }
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        bool accepted = !nw_units_factor(factors[i].text, &value, &why);
        if (accepted != (factors[i].value >= 0) || (accepted && value != factors[i].value))
            fail_msg("'%s'", factors[i].text);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        bool accepted = !nw_units_number(numbers[i].text, 1, 10, &value, &why);
        if (accepted != (numbers[i].value >= 0) || (accepted && value != numbers[i].value))
            fail_msg("'%s'", numbers[i].text);
    }
    assert_null(nw_units_int("17", 0, 20, &ns, &why));
    assert_int_equal(ns, 17);
    assert_non_null(nw_units_int("21", 0, 20, &ns, &why));
    assert_non_null(nw_units_int("-1", 0, 20, &ns, &why));
    assert_non_null(nw_units_int("1.0", 0, 20, &ns, &why));
    assert_non_null(nw_units_int("99999999999999999999", 0, 20, &ns, &why));
}

static void test_noise_units(void **state)
{
    static const struct {
        const char *text;
        int64_t latency;
        nw_noise_kind kind;
        double scale; /* -1: refused */
    } cases[] = {
        {"none", -1, NW_NOISE_NONE, 0},
        {"lognormal 0.2", -1, NW_NOISE_LOGNORMAL, 0.2},
        {"uniform 10%", -1, NW_NOISE_UNIFORM, 10 * 0.01},
        {"exponential 0.5", -1, NW_NOISE_EXPONENTIAL, 0.5},
        {"uniform 0", -1, NW_NOISE_NONE, 0},
        {"uniform 20 us", 80000, NW_NOISE_UNIFORM, 0.25},
        {"exponential 1 ms", 1000, NW_NOISE_EXPONENTIAL, 1000},
        {"uniform 20 us", -1, NW_NOISE_NONE, -1}, /* steps have no latency */
        {"uniform 20 us", 0, NW_NOISE_NONE, -1},
        {"uniform 90 us", 80000, NW_NOISE_NONE, -1}, /* more than the latency: earlier than sent */
        {"uniform 101%", -1, NW_NOISE_NONE, -1},
        {"lognormal 20 us", 80000, NW_NOISE_NONE, -1},
        {"lognormal 4", -1, NW_NOISE_NONE, -1},
        {"lognormal -1", -1, NW_NOISE_NONE, -1},
        {"normal 1", -1, NW_NOISE_NONE, -1},
        {"uniform", -1, NW_NOISE_NONE, -1},
        {"", -1, NW_NOISE_NONE, -1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        nw_complaint why;
        nw_noise noise;
        bool accepted = !nw_units_noise(cases[i].text, cases[i].latency, &noise, &why);
        if (accepted != (cases[i].scale >= 0) ||
            (accepted && (noise.kind != cases[i].kind || noise.scale != cases[i].scale)))
            fail_msg("'%s' with latency %lld", cases[i].text, (long long)cases[i].latency);
    }
}

/* ---- good files ---- */

static void test_meaning(void **state)
{
    nw_links *l;
    (void)state;
    read_text("nodes:\n- {name: a, count: 2, ranks: 2, slowdown: 2x, nic: {out: 1 GB/s, in: 2 GB/s}}\n"
              "- {name: b, noise: uniform 50%, memory: 3 GB/s}\n"
              "ranks: [{rank: [1, 4], slowdown: 5x}]\n"
              "switches: [{name: s, nodes: [a-1, b], trunk: {up: 4 GB/s, down: unlimited}}]\n"
              "link: {latency: 1 ms, bandwidth: 8 GB/s, jitter: uniform 100 us, overhead: 2 us}\n"
              "inside: {bandwidth: 10 GB/s, shared: true}\n"
              "links:\n- {between: [a-0, s], latency: 3 ms}\n- {from: 4, to: 0, bandwidth: 1 GB/s}\n"
              "memory: 5 GB/s\nnic: 7 GB/s\ncompute: {gflops: 50, update: 4 ms}\n",
              0);
    assert_true(c->world == 5 && c->node_count == 3 && c->seed == 42);
    assert_string_equal(c->nodes[0].name, "a-0");
    assert_string_equal(c->nodes[2].name, "b");
    assert_true(c->ranks[0].node == 0 && c->ranks[3].node == 1 && c->ranks[4].node == 2);
    assert_true(c->ranks[0].slowdown == 2 && c->ranks[1].slowdown == 5 && c->ranks[4].slowdown == 5);
    assert_true(c->ranks[4].noise.kind == NW_NOISE_UNIFORM && c->ranks[0].noise.kind == NW_NOISE_NONE);
    assert_true(c->ranks[4].memory_bytes_per_second == 3e9 && c->ranks[0].memory_bytes_per_second == 5e9);
    assert_true(c->compute.memory_bytes_per_second == 5e9 && c->compute.update_ns == 4000000);
    assert_true(c->compute.kind == NW_COMPUTE_FLOPS && c->compute.flops == 50e9);
    assert_true(c->nodes[1].egress == 1e9 && c->nodes[1].ingress == 2e9 && c->nodes[2].egress == 7e9);
    assert_true(c->nodes[0].within == -1 && c->nodes[1].within == 0 && c->nodes[2].within == 0);
    assert_true(c->switches[0].up == 4e9 && c->switches[0].down == 0);
    const nw_cluster_link *usual = nw_cluster_link_between(c, 2, 4), *rule = nw_cluster_link_between(c, 3, 1);
    assert_true(usual->latency_ns == 1000000 && usual->jitter.scale == 0.1 && usual->overhead_ns == 2000);
    assert_true(rule->latency_ns == 3000000 && rule->bandwidth == 8e9 && rule->jitter.scale == 0.1);
    assert_ptr_equal(nw_cluster_link_between(c, 1, 3), rule);
    assert_true(nw_cluster_link_between(c, 4, 0)->bandwidth == 1e9); /* the last rule, in its direction */
    assert_true(nw_cluster_link_between(c, 4, 0)->latency_ns == 1000000 &&
                nw_cluster_link_between(c, 0, 4)->bandwidth == 8e9);
    /* memory is shared inside a node, not among nodes */
    const nw_cluster_link *here = nw_cluster_link_between(c, 0, 1), *there = nw_cluster_link_between(c, 2, 3);
    assert_true(here->shared && there->shared && here != there && here->bandwidth == 10e9);
    ok(nw_links_create(&l, c, NULL));
    assert_int_equal(nw_links_send(l, 0, 1, 1000000, 0, 0), 100000);
    assert_int_equal(nw_links_send(l, 1, 0, 1000000, 0, 0), 200000);
    assert_int_equal(nw_links_send(l, 2, 3, 1000000, 0, 0), 100000);
    nw_links_free(l);

    read_text("ranks_per_node: 2\nseed: 7\nslowdown: 3x\nmemory: unlimited\n"
              "compute: {forward: [1 ms, 2 ms], backward: [3 ms, 4 ms], overhead: 5 us, batch: 64}\n",
              6);
    assert_true(c->world == 6 && c->node_count == 3 && c->seed == 7 && c->ranks[5].node == 2);
    assert_true(c->ranks[5].slowdown == 3 && c->compute.memory_bytes_per_second == 0);
    assert_true(c->compute.kind == NW_COMPUTE_GIVEN && c->compute.stages == 2 && c->compute.batch == 64);
    assert_true(c->compute.forward_ns[1] == 2000000 && c->compute.backward_ns[0] == 3000000 &&
                c->compute.overhead_ns == 5000 && c->compute.update_ns == -1);
    read_text("world: 4\n", 4);
    read_text("world: 4\n", 0);
    assert_int_equal(c->world, 4);
}

static void test_shared_line_between_sites(void **state)
{
    nw_links *l;
    (void)state;
    read_text("nodes: [{name: a, count: 2}, {name: b, count: 2}]\n"
              "links: [{between: [a, b], bandwidth: 1 GB/s, shared: true}]\n",
              0);
    ok(nw_links_create(&l, c, NULL));
    assert_int_equal(nw_links_send(l, 0, 2, 1000000, 0, 0), 1000000);
    assert_int_equal(nw_links_send(l, 1, 3, 1000000, 0, 0), 2000000);
    assert_int_equal(nw_links_send(l, 3, 0, 1000000, 0, 0), 1000000); /* the other direction is another line */
    assert_int_equal(nw_links_send(l, 0, 1, 1000000, 0, 0), 0);
    nw_links_free(l);
}

static void test_examples(void **state)
{
    static const struct {
        const char *name;
        int world; /* to ask for */
        int has;
    } examples[] = {{"1g", 4, 4},
                    {"10g", 64, 64},
                    {"hundred-gigabit", 0, 32},
                    {"one-straggler", 0, 8},
                    {"wide-area", 0, 12},
                    {"parameter-server-paper", 0, 21},
                    {"apam-paper", 21, 21},
                    {"apam-paper-lenet5", 21, 21},
                    {"apam-lenet5", 6, 6},
                    {"acid-even", 16, 16},
                    {"acid-stragglers", 0, 16}};
    (void)state;
    assert_int_equal(chdir(NW_SOURCE_DIR), 0);
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        nw_links *l;
        tear_down(NULL);
        ok(nw_cluster_load(&c, examples[i].name, examples[i].world, 1));
        assert_int_equal(c->world, examples[i].has);
        ok(nw_links_create(&l, c, NULL));
        for (int to = 1; to < c->world; to++) assert_true(nw_links_send(l, 0, to, 1000000, 0, 0) > 10000);
        nw_links_free(l);
    }
    assert_int_equal(count_entries("clusters"), 9 + 1); /* none that is not tested, and the folder of faults */
    assert_int_equal(count_entries("clusters/faults"), 4);
    tear_down(NULL);
    ok(nw_cluster_load(&c, "clusters/one-straggler.yaml", 8, 1));
    assert_true(c->ranks[3].slowdown == 4 && c->ranks[2].slowdown == 1);
    tear_down(NULL);
    ok(nw_cluster_load(&c, "wide-area", 12, 1));
    assert_in_range(nw_cluster_link_between(c, 0, 5)->latency_ns, 30000000, 80000000);
    tear_down(NULL);
    ok(nw_cluster_load(&c, "10g", 5, 9));
    assert_true(c->seed == 9 && c->world == 5);
    tear_down(NULL);
    refused(nw_cluster_load(&c, "10g", 0, 9), NW_E_ARGUMENT, "--virtual N");
    refused(nw_cluster_load(&c, "apam-paper", 0, 9), NW_E_FILE, "--virtual N");
    refused(nw_cluster_load(&c, "one-stragler", 8, 9), NW_E_ARGUMENT, "the nearest is 'one-straggler'");
    refused(nw_cluster_load(&c, "none.yaml", 8, 9), NW_E_ARGUMENT, "none.yaml");
    refused(nw_cluster_load(&c, "", 8, 9), NW_E_ARGUMENT, "there is no cluster ''");

    ok(nw_faults_load(&f, "worker-slows", 4));
    assert_true(f->count == 1 && f->at[0].by_step && f->at[0].at == 100 && f->at[0].rank == 3 && f->at[0].factor == 4);
    tear_down(NULL);
    ok(nw_faults_load(&f, "link-down", 4));
    assert_true(nw_faults_link_up(f, 2, 1, 5 * SECOND) == 8 * SECOND && f->at[0].both_ways);
    tear_down(NULL);
    ok(nw_faults_load(&f, "worker-dies", 4));
    assert_int_equal(nw_faults_health(f, 2, 0, 30 * SECOND), NW_RANK_DEAD);
    tear_down(NULL);
    ok(nw_faults_load(&f, "everything", 4));
    assert_int_equal(f->count, 7);
    tear_down(NULL);
    refused(nw_faults_load(&f, "worker-slows", 3), NW_E_FILE, "rank 3 is not in the world");
    refused(nw_faults_load(&f, "worker-dyes", 4), NW_E_ARGUMENT, "the nearest is 'worker-dies'");
}

/* The blocks of YAML in the documentation are files: the first a cluster, the second a script of faults. */
static void test_documentation(void **state)
{
    static const char fence[] = "\n```yaml\n";
    char *text;
    size_t size;
    (void)state;
    ok(nw_file_read(NW_SOURCE_DIR "/docs/cluster.md", 1 << 20, &text, &size));
    char *first = strstr(text, fence), *second = first ? strstr(first + 1, fence) : NULL;
    assert_non_null(second);
    first += strlen(fence);
    second += strlen(fence);
    *strstr(first, "```") = 0;
    *strstr(second, "```") = 0;
    ok(nw_cluster_parse(&c, "docs", first, strlen(first), 0, 0));
    assert_int_equal(c->world, 8);
    ok(nw_faults_parse(&f, "docs", second, strlen(second), 4));
    assert_int_equal(f->count, 8);
    free(text);
}

/* What --calibrate writes is a cluster file that says what was measured. */
static void test_measured(void **state)
{
    nw_measured_stage stage[] = {{"prep", 41000000, 80000000}, {"head", 20000, 30001}};
    nw_factor factors[] = {{"topk", "encode", 1.5}, {"topk", "dgc", 2.25}, {"sign", "decode", 0.5}};
    nw_measured m = {
        "an \"odd\" # CPU: 3", "avx2", "f32", "resnet9", 128, 1, 2, 2, stage, 1200000, 3100000, 0.03, 2.5e9, 1800, 4e9,
        {factors, 3}};
    static const double flops[] = {1, 1};
    const nw_workload work = {"resnet9", "f32", 128, 2, flops, flops, 1};
    nw_compute_cost cost;
    char *text;
    size_t size;
    (void)state;
    FILE *out = open_memstream(&text, &size);
    nw_measured_print(&m, out);
    fclose(out);
    ok(nw_cluster_parse(&c, "x.yaml", text, size, 4, 0));
    free(text);
    assert_int_equal(c->codecs.count, 3);
    for (int i = 0; i < 3; i++)
        assert_true(nw_factors_find(&c->codecs, factors[i].codec, factors[i].what) == factors[i].times);
    assert_true(c->compute.kind == NW_COMPUTE_GIVEN && c->node_count == 2);
    assert_true(c->ranks[3].noise.kind == NW_NOISE_LOGNORMAL && c->ranks[3].noise.scale == 0.03);
    const nw_cluster_link *inside = nw_cluster_link_between(c, 0, 1), *outside = nw_cluster_link_between(c, 0, 2);
    assert_true(inside->latency_ns == 1800 && inside->bandwidth == 4e9 && inside->copied);
    assert_true(outside->latency_ns == 0 && !outside->copied);
    ok(nw_cluster_cost(c, &work, &cost));
    assert_true(cost.forward_ns[0] == 41000000 && cost.forward_ns[1] == 20000 && cost.backward_ns[1] == 30001);
    assert_true(cost.overhead_ns == 1200000 && cost.update_ns == 3100000);
    assert_int_equal(nw_cluster_touch_ns(c, cost.touch_bytes_per_second, 0, 2.5e9), SECOND);
    nw_compute_cost_free(&cost);
    nw_workload other = work;
    other.model = "resnet18";
    refused(nw_cluster_cost(c, &other, &cost), NW_E_ARGUMENT, "--model resnet18");
    tear_down(NULL);

    m.ranks = 1; /* no link, no noise, no codecs */
    m.codecs.count = 0;
    m.link_bytes_per_second = m.noise = 0;
    out = open_memstream(&text, &size);
    nw_measured_print(&m, out);
    fclose(out);
    ok(nw_cluster_parse(&c, "x.yaml", text, size, 4, 0));
    free(text);
    assert_true(c->node_count == 4 && c->ranks[0].noise.kind == NW_NOISE_NONE && c->codecs.count == 0);

    bad("calibration: k.json\n", "x.yaml:1:", "calibrate again");
    bad("{\"format\": \"nowait-calibration\", \"version\": 2}", "x.yaml:1:", "calibrate again");
    refused(nw_cluster_load(&c, "k.json", 4, 0), NW_E_ARGUMENT, "calibrate again");
}

/* ---- refusals ---- */

static void test_bad_clusters(void **state)
{
    (void)state;
    bad("", "x.yaml is empty", "--cluster ideal");
    bad("# only a comment\n", "x.yaml is empty", "--cluster ideal");
    bad("hello\n", "x.yaml:1:", "a map");
    bad("- a\n", "x.yaml:1:", "a map");
    bad("a: [\n", "x.yaml:2:", "no valid YAML");
    bad("about: x\nwrld: 4\n", "x.yaml:2:", "the nearest is 'world'");
    bad("codecs:\n  tokp: {encode: 2x}\n", "x.yaml:2:", "there is no codec 'tokp'; the nearest is 'topk'");
    bad("codecs:\n  topk: {encod: 2x}\n", "x.yaml:2:", "the nearest is 'encode'");
    bad("codecs:\n  topk: {encode: 0x}\n", "x.yaml:2:", "more than 0x");
    bad("codecs: [topk]\n", "x.yaml:1:", "is a map");
    bad("codecs: {topk: 2x}\n", "x.yaml:1:", "a map");
    bad("world:\n", "x.yaml:1:", "'world' has no value");
    bad("world: four\n", "x.yaml:1:", "not a whole number");
    bad("world: 0\n", "x.yaml:1:", "out of range");
    bad("world: 1025\n", "x.yaml:1:", "out of range");
    bad("world: [4]\n", "x.yaml:1:", "not a list");
    bad("world: 4\nworld: 4\n", "x.yaml:2:", "already there");
    bad("about: x\nworld: 5\n", "x.yaml:2:", "the file describes 5 ranks, but --virtual asks for 4");
    bad("seed: -1\n", "x.yaml:1:", "out of range");
    bad("ranks_per_node: 3\n", "x.yaml:1:", "4 ranks cannot be divided into nodes of 3");
    bad("slowdown: 4\n", "x.yaml:1:", "not a factor");
    bad("slowdown: -4x\n", "x.yaml:1:", "out of range");
    bad("noise: gaussian 1\n", "x.yaml:1:", "not a distribution");
    bad("memory: -1 GB/s\n", "x.yaml:1:", "out of range");
    bad("nic: -10 Gbit/s\n", "x.yaml:1:", "out of range");
    bad("nic: 10 Gb/s\n", "x.yaml:1:", "not a bandwidth");
    bad("nic: {out: 1 GB/s, inn: 1 GB/s}\n", "x.yaml:1:", "the nearest is 'in'");
    bad("nic: []\n", "x.yaml:1:", "a nic is a map");

    bad("inside: {copied: true, shared: true, bandwidth: 1 GB/s}\n", "x.yaml:1:", "no wire to share");
    bad("compute: {gflops: 1, model: x}\n", "x.yaml:1:", "'model' goes with");
    bad("compute: {forward: 1 s, backward: 1 s, precision: 0123456789abcdef}\n", "x.yaml:1:", "is too long");
    bad("nodes: 4\n", "x.yaml:1:", "takes a list");
    bad("nodes: []\n", "x.yaml:1:", "not empty");
    bad("nodes:\n- a\n", "x.yaml:2:", "a node is a map");
    bad("nodes:\n- count: 4\n", "x.yaml:2:", "no name");
    bad("nodes:\n- {name: 4, count: 4}\n", "x.yaml:2:", "cannot be a name");
    bad("nodes:\n- {name: any, count: 4}\n", "x.yaml:2:", "cannot be a name");
    bad("nodes:\n- {name: \"a b\", count: 4}\n", "x.yaml:2:", "cannot be a name");
    bad("nodes:\n- {name: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa, count: 4}\n", "x.yaml:2:", "cannot be a name");
    bad("nodes:\n- {name: a, cont: 4}\n", "x.yaml:2:", "the nearest is 'count'");
    bad("nodes:\n- {name: a, count: 0}\n", "x.yaml:2:", "out of range");
    bad("nodes:\n- {name: a, ranks: -1}\n", "x.yaml:2:", "out of range");
    bad("nodes:\n- {name: a, count: 1000, ranks: 1000}\n", "x.yaml:2:", "more than 1024 ranks");
    bad("nodes:\n- {name: a, count: 2}\n- {name: a, count: 2}\n", "x.yaml:3:", "'a' is given twice");
    bad("nodes:\n- {name: a, count: 2}\n- {name: a-1, count: 2}\n", "x.yaml:3:", "'a-1' is given twice");
    bad("nodes:\n- {name: a-1, ranks: 2}\n- {name: a, count: 2}\n", "x.yaml:3:", "'a-1' is given twice");
    bad("nodes: [{name: a, ranks: 3}]\n", "x.yaml:1:", "describes 3 ranks, but --virtual asks for 4");
    bad("nodes: [{name: a, ranks: 3}]\nworld: 4\n", "x.yaml:2:", "'world' is 4, but the nodes have 3 ranks together");
    bad("nodes: [{name: a, ranks: 4}]\nranks_per_node: 2\n", "x.yaml:2:", "remove 'ranks_per_node'");
    bad("nodes: [{name: a, ranks: 4, memory: unlimited}]\n", "x.yaml:1:", "not for one node or rank");
    bad("nodes: [{name: a, ranks: 4, nic: 0 GB/s}]\n", "x.yaml:1:", "out of range");

    bad("ranks:\n- {slowdown: 2x}\n", "x.yaml:2:", "needs a rank");
    bad("ranks:\n- {rank: [], slowdown: 2x}\n", "x.yaml:2:", "needs a rank");
    bad("ranks:\n- {rank: {a: 1}, slowdown: 2x}\n", "x.yaml:2:", "needs a rank");
    bad("ranks:\n- {rank: 4, slowdown: 2x}\n", "x.yaml:2:", "the world has 4 ranks");
    bad("ranks:\n- {rank: [0, -1], slowdown: 2x}\n", "x.yaml:2:", "the world has 4 ranks");
    bad("ranks:\n- {rank: [[0]], slowdown: 2x}\n", "x.yaml:2:", "one plain value");
    bad("ranks:\n- {rank: 3, slowdwon: 2x}\n", "x.yaml:2:", "the nearest is 'slowdown'");
    bad("ranks: [{rank: 3, memory: unlimited}]\n", "x.yaml:1:", "not for one node or rank");

    bad("switches:\n- {nodes: [node-0]}\n", "x.yaml:2:", "no name");
    bad("switches:\n- {name: s}\n", "x.yaml:2:", "has no nodes");
    bad("switches:\n- {name: s, nodes: [node-9]}\n", "x.yaml:2:", "there is no node 'node-9'");
    bad("switches:\n- {name: node-0, nodes: [node-0]}\n", "x.yaml:2:", "given twice");
    bad("switches:\n- {name: s, nodes: [node-0]}\n- {name: s, nodes: [node-1]}\n", "x.yaml:3:", "given twice");
    bad("switches:\n- {name: s, nodes: [node-0]}\n- {name: t, nodes: [node-0]}\n",
        "x.yaml:3:", "already on the switch");
    bad("switches:\n- {name: s, nodes: [node-0], trunk: fast}\n", "x.yaml:2:", "not a bandwidth");
    bad("switches:\n- {name: s, nodes: [node-0], trunk: {upp: 1 GB/s}}\n", "x.yaml:2:", "the nearest is 'up'");

    bad("link: 10 Gbit/s\n", "x.yaml:1:", "a link is a map");
    bad("link: {latency: 50}\n", "x.yaml:1:", "not a time");
    bad("link: {latency: -50 us}\n", "x.yaml:1:", "negative");
    bad("link: {bandwith: 1 GB/s}\n", "x.yaml:1:", "the nearest is 'bandwidth'");
    bad("link: {bandwidth: -1 GB/s}\n", "x.yaml:1:", "out of range");
    bad("link: {jitter: uniform 20 us}\n", "x.yaml:1:", "give a latency too");
    bad("link: {latency: 1 ms, jitter: uniform 2 ms}\n", "x.yaml:1:", "times the latency");
    bad("link: {shared: true}\n", "x.yaml:1:", "shares nothing");
    bad("link: {shared: yes, bandwidth: 1 GB/s}\n", "x.yaml:1:", "true or false");
    bad("inside: {overhead: 1}\n", "x.yaml:1:", "not a time");

    bad("links:\n- {latency: 1 ms}\n", "x.yaml:2:", "needs its ends");
    bad("links:\n- {from: 1, latency: 1 ms}\n", "x.yaml:2:", "needs its ends");
    bad("links:\n- {between: [1, 2], to: 3}\n", "x.yaml:2:", "needs its ends");
    bad("links:\n- {between: [1, 2, 3]}\n", "x.yaml:2:", "a list of two");
    bad("links:\n- {between: 1}\n", "x.yaml:2:", "a list of two");
    bad("links:\n- {between: [1, 1]}\n", "x.yaml:2:", "both ends of the link");
    bad("links:\n- {between: [node-1, 1]}\n", "x.yaml:2:", "both ends of the link");
    bad("links:\n- {between: [1, 4]}\n", "x.yaml:2:", "the world has 4 ranks");
    bad("links:\n- {between: [1, -1]}\n", "x.yaml:2:", "the world has 4 ranks");
    bad("links:\n- {between: [1, mars]}\n", "x.yaml:2:", "no node or switch 'mars'");
    bad("links:\n- {between: [1, [2]]}\n", "x.yaml:2:", "one plain value");
    bad("links:\n- {between: [1, 2], shared: true}\n", "x.yaml:2:", "shares nothing");

    bad("compute: fast\n", "x.yaml:1:", "'compute' is a map");
    bad("compute: {update: 1 ms}\n", "x.yaml:1:", "either 'gflops'");
    bad("compute: {gflops: 1, forward: 1 ms, backward: 1 ms}\n", "x.yaml:1:", "either 'gflops'");
    bad("compute: {gflops: -1}\n", "x.yaml:1:", "out of range");
    bad("compute: {gflops: 1, batch: 3}\n", "x.yaml:1:", "'batch' goes with");
    bad("compute: {gflops: 1, overhead: 3 s}\n", "x.yaml:1:", "'overhead' goes with");
    bad("compute: {forward: 1 ms}\n", "x.yaml:1:", "add 'backward'");
    bad("compute: {forward: [], backward: []}\n", "x.yaml:1:", "not empty");
    bad("compute: {forward: [1 ms], backward: [1 ms, 1 ms]}\n", "x.yaml:1:", "'forward' has 1 times and 'backward' 2");
    bad("compute: {forward: [1 ms, 2], backward: 1 ms}\n", "x.yaml:1:", "not a time");
    bad("compute: {forward: -1 ms, backward: 1 ms}\n", "x.yaml:1:", "negative");
    bad("compute: {forward: 1 ms, backward: 1 ms, batch: 0}\n", "x.yaml:1:", "out of range");
}

static void test_too_much(void **state)
{
    char *text = NULL;
    size_t size = 0;
    (void)state;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    fprintf(out, "links:\n");
    for (int i = 0; i < 1025; i++) fprintf(out, "- {between: [1, 2]}\n");
    fclose(out);
    bad(text, "x.yaml:1:", "more than 1024 links");
    free(text);
    out = open_memstream(&text, &size);
    assert_non_null(out);
    fprintf(out, "switches:\n");
    for (int i = 0; i < 257; i++) fprintf(out, "- {name: s%d, nodes: [node-0]}\n", i);
    fclose(out);
    bad(text, "x.yaml:1:", "more than 256 switches");
    free(text);
}

static void test_fault_meaning(void **state)
{
    (void)state;
    read_faults("faults:\n- {kind: slow, rank: any, at: step 5, for: 10 steps, factor: 2x}\n"
                "- {kind: pause, rank: 1, at: 1 s, for: 20 ms}\n"
                "- {kind: link_slow, from: 1, to: any, at: 0 s, factor: 3x}\n");
    assert_true(nw_faults_finish(f, 2, 14, 0, 100) == 200 && nw_faults_finish(f, 2, 15, 0, 100) == 100);
    assert_int_equal(nw_faults_finish(f, 1, 0, SECOND, 5), SECOND + 20000005);
    assert_true(nw_faults_link_finish(f, 1, 3, 0, 100) == 300 && nw_faults_link_finish(f, 3, 1, 0, 100) == 100);
    for (int i = 0; i < f->count; i++) assert_in_range(f->at[i].line, 2, 4);
}

static void test_bad_faults(void **state)
{
    (void)state;
    bad_faults("", "x.yaml is empty", "clusters/faults/");
    bad_faults("about: x\n", "x.yaml has no key 'faults'", "list");
    bad_faults("fault: []\n", "x.yaml:1:", "the nearest is 'faults'");
    bad_faults("faults: []\n", "x.yaml:1:", "not empty");
    bad_faults("faults:\n- die\n", "x.yaml:2:", "a fault is a map");
    bad_faults("faults:\n-\n", "x.yaml:2:", "a fault is a map");
    bad_faults("faults:\n- {rank: 1, at: 1 s}\n", "x.yaml:2:", "needs a kind");
    bad_faults("faults:\n- {kind: dye, rank: 1, at: 1 s}\n", "x.yaml:2:", "the nearest is 'die'");
    bad_faults("faults:\n- {kind: die, rnk: 1, at: 1 s}\n", "x.yaml:2:", "the nearest is 'rank'");
    bad_faults("faults:\n- {kind: die, at: 1 s}\n", "x.yaml:2:", "happens to a rank");
    bad_faults("faults:\n- {kind: die, rank: 1, link: [1, 2], at: 1 s}\n", "x.yaml:2:", "happens to a rank");
    bad_faults("faults:\n- {kind: die, rank: 4, at: 1 s}\n", "x.yaml:2:", "rank 4 is not in the world");
    bad_faults("faults:\n- {kind: die, rank: -1, at: 1 s}\n", "x.yaml:2:", "write a rank, or any");
    bad_faults("faults:\n- {kind: die, rank: 1}\n", "x.yaml:2:", "needs a beginning");
    bad_faults("faults:\n- {kind: die, rank: 1, at: 30}\n", "x.yaml:2:", "not a time");
    bad_faults("faults:\n- {kind: die, rank: 1, at: -3 s}\n", "x.yaml:2:", "before the start");
    bad_faults("faults:\n- {kind: die, rank: 1, at: step -3}\n", "x.yaml:2:", "out of range");
    bad_faults("faults:\n- {kind: die, rank: 1, at: step x}\n", "x.yaml:2:", "or, for a step, step 100");
    bad_faults("faults:\n- {kind: die, rank: 1, at: 1 s, until: 2 s}\n", "x.yaml:2:", "never ends");
    bad_faults("faults:\n- {kind: stop, rank: 1, at: 1 s, for: 2 s}\n", "x.yaml:2:", "never ends");
    bad_faults("faults:\n- {kind: join, rank: 1, at: 1 s, for: 2 s}\n", "x.yaml:2:", "'join' never ends");
    bad_faults("faults:\n- {kind: join, rank: 1, at: step 3}\n", "x.yaml:2:", "has no steps");
    bad_faults("faults:\n- {kind: join, rank: any, at: 1 s}\n", "x.yaml:2:", "which one joins");
    bad_faults("faults:\n- {kind: die, rank: 1, at: 1 s, factor: 2x}\n", "x.yaml:2:", "takes no factor");
    bad_faults("faults:\n- {kind: slow, rank: 1, at: 1 s}\n", "x.yaml:2:", "need a factor");
    bad_faults("faults:\n- {kind: slow, rank: 1, at: 1 s, factor: 2}\n", "x.yaml:2:", "not a factor");
    bad_faults("faults:\n- {kind: slow, rank: 1, at: 1 s, factor: 0x}\n", "x.yaml:2:", "out of range");
    bad_faults("faults:\n- {kind: slow, rank: 1, at: 2 s, until: 1 s, factor: 2x}\n", "x.yaml:2:", "ends before");
    bad_faults("faults:\n- {kind: slow, rank: 1, at: 2 s, for: 0 s, factor: 2x}\n", "x.yaml:2:", "ends before");
    bad_faults("faults:\n- {kind: slow, rank: 1, at: 2 s, until: step 9, factor: 2x}\n", "x.yaml:2:", "differently");
    bad_faults("faults:\n- {kind: slow, rank: 1, at: step 2, for: 2 s, factor: 2x}\n", "x.yaml:2:", "differently");
    bad_faults("faults:\n- {kind: slow, rank: 1, at: step 2, for: 2 step s, factor: 2x}\n", "x.yaml:2:", "20 steps");
    bad_faults("faults:\n- {kind: slow, rank: 1, at: 1 s, for: 1 s, until: 2 s, factor: 2x}\n",
               "x.yaml:2:", "remove one");
    bad_faults("faults:\n- {kind: pause, rank: 1, at: 1 s}\n", "x.yaml:2:", "needs a length");
    bad_faults("faults:\n- {kind: pause, rank: 1, at: 1 s, until: 3 s}\n", "x.yaml:2:", "needs a length");
    bad_faults("faults:\n- {kind: pause, rank: 1, at: 1 s, for: 0 s}\n", "x.yaml:2:", "longer than 0");
    bad_faults("faults:\n- {kind: link_down, rank: 1, at: 1 s}\n", "x.yaml:2:", "happens to a link");
    bad_faults("faults:\n- {kind: link_down, from: 1, at: 1 s}\n", "x.yaml:2:", "happens to a link");
    bad_faults("faults:\n- {kind: link_down, link: 1, at: 1 s}\n", "x.yaml:2:", "a list of two");
    bad_faults("faults:\n- {kind: link_down, link: [1], at: 1 s}\n", "x.yaml:2:", "a list of two");
    bad_faults("faults:\n- {kind: link_down, link: [1, 1], at: 1 s}\n", "x.yaml:2:", "to itself");
    bad_faults("faults:\n- {kind: link_down, link: [1, 7], at: 1 s}\n", "x.yaml:2:", "rank 7 is not in the world");
    bad_faults("faults:\n- {kind: link_down, link: [1, 2], at: step 1}\n", "x.yaml:2:", "no steps");
}

static void test_without_yaml(void **state)
{
    (void)state;
    refused(nw_cluster_parse(&c, "x.yaml", "world: 4\n", 9, 4, 0), NW_E_UNSUPPORTED, "libyaml-dev");
    refused(nw_faults_parse(&f, "x.yaml", "faults: []\n", 11, 4), NW_E_UNSUPPORTED, "libyaml-dev");
    ok(nw_cluster_load(&c, "1g", 4, 0)); /* those that need no file still work */
}

int main(void)
{
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_units),    TEST(test_noise_units),   TEST(test_meaning),    TEST(test_shared_line_between_sites),
        TEST(test_examples), TEST(test_documentation), TEST(test_measured),   TEST(test_bad_clusters),
        TEST(test_too_much), TEST(test_fault_meaning), TEST(test_bad_faults),
    };
    const struct CMUnitTest without[] = {TEST(test_units), TEST(test_noise_units), TEST(test_without_yaml)};
    return NW_HAVE_YAML ? cmocka_run_group_tests(tests, NULL, NULL) : cmocka_run_group_tests(without, NULL, NULL);
}
