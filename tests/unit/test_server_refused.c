/*
 * test_server_refused.c - what a parameter server does not take: options that make no sense together, and messages that cannot be.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/server_world.h"

static void refused_options(int world_size, nw_exchange_options o, const char *why)
{
    nw_exchange *e;
    nw_codec *codec;
    nw_params params = {0};
    int index;
    ok(nw_codec_create(&codec, &(nw_codec_options){.name = "none"}));
    ok(nw_segments_add(&params.learned, "a", NW_ROLE_BIAS, 0, 1, 1, (int[]){40}, &index));
    o.name = "server";
    o.world = world_size;
    o.params = &params;
    o.codec = codec;
    assert_int_equal(nw_exchange_create(&e, &o), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), why));
    nw_codec_free(codec);
    free(params.learned.at);
}

static void test_options(void **state)
{
    (void)state;
    nw_exchange_options o = ASYNC;
    o.servers = 3;
    refused_options(3, o, "nobody to compute");
    o.server_computes = true;
    refused_options(3, o, "too few for 3 servers");
    o = SYNC;
    o.in_flight = 2;
    refused_options(3, o, "--in-flight");
    o = SYNC;
    o.max_staleness = 3;
    refused_options(3, o, "no gradient is old");
    o = ASYNC;
    o.servers = 2;
    o.max_staleness = 3;
    refused_options(4, o, "--staleness weight");
    o = ASYNC;
    o.in_flight = 100;
    refused_options(4, o, "1 to 8");
}

/* A message of the worker, with one thing changed. */
static void bad_message(void (*change)(nw_header *), const char *why)
{
    world w;
    nw_status status = NW_OK;
    make_world(&w, 2, ASYNC, "none", 3);
    go(&w, 5);
    link_queue *up = &w.links[1 * 2 + 0];
    while (up->first == up->last && move(&w, &status)) ok(status);
    change(up->at[up->first % LINK]->header);
    nw_message *m = up->at[up->first++ % LINK];
    assert_int_equal(tell(&w, 0, (nw_event){.kind = NW_EVENT_MESSAGE, .message = m}), NW_E_MESSAGE);
    assert_non_null(strstr(nw_error_message(), why));
    nw_message_drop(m);
    free_world(&w);
}

static void other_kind(nw_header *h) { h->kind = 99; }
static void other_codec(nw_header *h) { h->codec = 3; }
static void other_bucket(nw_header *h) { h->segment = 1000; }
static void other_count(nw_header *h) { h->count++; }
static void other_version(nw_header *h) { h->version = 7; }
static void far_version(nw_header *h) { h->version = UINT64_MAX; }
static void other_sender(nw_header *h) { h->from = 0; }
static void other_role(nw_header *h) { h->kind = NW_KIND_FIRST + 2; }

static void test_messages(void **state)
{
    (void)state;
    bad_message(other_kind, "does not know");
    bad_message(other_codec, "encodes with codec");
    bad_message(other_bucket, "buckets");
    bad_message(other_count, "values for part");
    bad_message(other_version, "nobody asked");
    bad_message(far_version, "cannot be");
    bad_message(other_sender, "no worker");
    bad_message(other_role, "which is no worker");
}

/* A server's copy for rank 0, changed, or told to another. */
static void bad_copy(void (*change)(nw_header *), int to, bool again, const char *why)
{
    world w;
    nw_status status = NW_OK;
    nw_exchange_options o = ASYNC;
    o.servers = 2;
    make_world(&w, 3, o, "bf16", 3);
    w.every = 2;
    go(&w, 10);
    link_queue *up = &w.links[1 * 3 + 0];
    while (up->first == up->last && move(&w, &status)) ok(status);
    nw_message *m = up->at[up->first++ % LINK];
    assert_int_equal(m->header->kind, COPY);
    if (again) ok(tell(&w, to, (nw_event){.kind = NW_EVENT_MESSAGE, .message = m}));
    if (change) change(m->header);
    assert_int_equal(tell(&w, to, (nw_event){.kind = NW_EVENT_MESSAGE, .message = m}), NW_E_MESSAGE);
    assert_non_null(strstr(nw_error_message(), why));
    nw_message_drop(m);
    free_world(&w);
}

static void odd_version(nw_header *h) { h->version++; }
static void next_version(nw_header *h) { h->version += 100; }
static void lossy(nw_header *h) { h->codec = NW_CODEC_BF16; }
static void taken(nw_header *h) { h->kind = TAKEN; }

static void test_bad_copies(void **state)
{
    (void)state;
    bad_copy(odd_version, 0, false, "nobody asked");
    bad_copy(next_version, 0, false, "nobody asked");
    bad_copy(lossy, 0, false, "not exactly");
    bad_copy(NULL, 0, true, "twice");
    bad_copy(NULL, 1, false, "copies go to rank 0");
    bad_copy(taken, 0, false, "did not give");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_bad_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
