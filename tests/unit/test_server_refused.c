/*
 * test_server_refused.c - what a parameter server does not take: options that make no sense together, and messages that
 * cannot be.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/world.h"

#include <string.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

enum { GRADIENT = 1, COPY = 9, TAKEN };
static const nw_exchange_options ASYNC = {.name = "server", .max_staleness = -1, .layout.bucket_bytes = 512};
static const nw_exchange_options SYNC = {
    .name = "server", .max_staleness = -1, .layout.bucket_bytes = 512, .sync = true};
static world w;

static void refused_options(int members, nw_exchange_options e, const char *why)
{
    world_options o = {.exchange = e, .members = members, .segments = (const int[]){40, 0}};
    assert_int_equal(world_make(&w, &o), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), why));
    world_free(&w);
}

TEST(test_options)
{
    nw_exchange_options o = ASYNC;
    o.servers = 3;
    refused_options(3, o, "leave no worker");
    o.server_computes = true;
    refused_options(3, o, "too few for 3 servers");
    o = SYNC;
    o.in_flight = 2;
    refused_options(3, o, "--in-flight");
    o = SYNC;
    o.max_staleness = 3;
    refused_options(3, o, "no gradient is stale");
    o = ASYNC;
    o.in_flight = 100;
    refused_options(4, o, "1 to 8");
}

/* The first message of that kind from member 1 to server 0, when it is next to come. */
static nw_message *first_message(world_options o, int kind)
{
    nw_status status = NW_OK;
    world_ok(world_make(&w, &o));
    world_ok(world_go(&w, 10, 0, true));
    world_link *up = &w.links[1][0];
    w.starved = world_bit(1, 0);
    for (int at = 0;; at++) {
        while (up->last == at && world_step(&w, &status)) world_ok(status);
        if (up->at[at]->header->kind == kind) break;
    }
    while (up->at[up->first]->header->kind != kind) world_ok(world_deliver(&w, 1, 0));
    return up->at[up->first++];
}

/* Handed to a member it is refused. */
static void refuse(nw_message *m, int to, const char *why)
{
    assert_int_equal(world_hand(&w, to, m), NW_E_MESSAGE);
    if (!strstr(nw_error_message(), why)) fail_msg("'%s' says nothing of '%s'", nw_error_message(), why);
    nw_message_drop(m);
    world_free(&w);
}

#define FIELD(name) offsetof(nw_header, name), sizeof(((nw_header *)NULL)->name)

/* A message of the worker, with one field changed. */
static void bad_message(size_t at, size_t bytes, uint64_t value, const char *why)
{
    nw_message *m = first_message((world_options){.exchange = ASYNC, .members = 2, .seed = 3}, GRADIENT);
    memcpy((char *)m->header + at, &value, bytes); /* little-endian */
    refuse(m, 0, why);
}

TEST(test_messages)
{
    uint32_t more =
        first_message((world_options){.exchange = ASYNC, .members = 2, .seed = 3}, GRADIENT)->header->count + 1;
    world_free(&w);
    bad_message(FIELD(kind), 99, "does not know");
    bad_message(FIELD(channel), NW_CHANNEL_SNAPSHOT, "does not know");
    bad_message(FIELD(codec), NW_CODEC_BF16, "with codec 3");
    bad_message(FIELD(bucket), 1000, "buckets");
    bad_message(FIELD(count), more, "values for part");
    bad_message(FIELD(version), UINT64_MAX, "impossible numbers");
    bad_message(FIELD(step), UINT64_MAX, "impossible numbers");
    bad_message(FIELD(from), 0, "exchanges nothing");
    bad_message(FIELD(from), 9, "exchanges nothing");
    bad_message(FIELD(kind), 3, "which is not a worker");
}

/* A gradient of parameters that there are not yet, or of several. */
TEST(test_versions)
{
    for (int all = 0; all < 2; all++) {
        nw_message *m = first_message((world_options){.exchange = ASYNC, .members = 2, .seed = 3}, GRADIENT);
        world_link *up = &w.links[1][0];
        nw_status status = NW_OK;
        while (up->at[up->last - 1]->header->kind == GRADIENT && world_step(&w, &status))
            world_ok(status); /* all of it */
        m->header->version = 7;
        for (int i = up->first; all && i < up->last; i++) up->at[i]->header->version = 7;
        for (status = world_hand(&w, 0, m); status == NW_OK;) status = world_deliver(&w, 1, 0);
        assert_int_equal(status, NW_E_MESSAGE);
        assert_non_null(
            strstr(nw_error_message(), all ? "of version 7, but only 0" : "in the middle of version 7"));
        nw_message_drop(m);
        world_free(&w);
    }
}

/* A server's copy for rank 0, changed, or told to another. */
static void bad_copy(size_t at, size_t bytes, uint64_t value, int to, bool again, const char *why)
{
    nw_exchange_options e = ASYNC;
    e.servers = 2;
    e.layout.bucket_bytes = 64;
    nw_message *m =
        first_message((world_options){.exchange = e, .members = 3, .codec = "bf16", .seed = 3, .every = 2}, COPY);
    if (again) world_ok(world_hand(&w, to, m));
    memcpy((char *)m->header + at, &value, bytes);
    refuse(m, to, why);
}

TEST(test_bad_copies)
{
    bad_copy(FIELD(version), 3, 0, false, "not due");
    bad_copy(FIELD(version), 102, 0, false, "not due");
    bad_copy(FIELD(codec), NW_CODEC_BF16, 0, false, "or compressed");
    bad_copy(0, 0, 0, 0, true, "twice");
    bad_copy(FIELD(from), 0, 1, false, "does not belong");
    bad_copy(FIELD(kind), TAKEN, 0, false, "not a first server");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_options), cmocka_unit_test(test_messages),
                                       cmocka_unit_test(test_versions), cmocka_unit_test(test_bad_copies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
