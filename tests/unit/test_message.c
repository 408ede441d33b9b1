/*
 * test_message.c - messages: their memory, who holds them, and headers that must be refused.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "net/message.h"
#include "support/allocations.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static nw_message *take(nw_message_pool *pool, size_t bytes)
{
    nw_message *m = NULL;
    assert_int_equal(nw_message_take(pool, bytes, &m), NW_OK);
    return m;
}

static nw_message_pool *make_pool(void)
{
    nw_message_pool *pool = NULL;
    assert_int_equal(nw_message_pool_create(&pool), NW_OK);
    return pool;
}

/* ---- the pool ---- */

static void test_a_message_is_fresh_and_in_one_piece(void **state)
{
    (void)state;
    nw_message_pool *pool = make_pool();
    nw_header zeros = {.magic = NW_MESSAGE_MAGIC};
    for (int round = 0; round < 2; round++) /* a new one, and one that was used */
        for (size_t bytes = 0; bytes < 3000; bytes += 37) {
            nw_message *m = take(pool, bytes);
            zeros.bytes = (uint32_t)bytes;
            assert_memory_equal(m->header, &zeros, sizeof zeros);
            assert_int_equal(m->references, 1);
            assert_null(m->next);
            assert_ptr_equal(m->pool, pool);
            assert_true((uintptr_t)m->header % 64 == 0);
            assert_ptr_equal(m->payload, (uint8_t *)m->header + NW_HEADER_BYTES);
            assert_true(m->capacity >= bytes);
            assert_int_equal(nw_message_size(m), NW_HEADER_BYTES + bytes);
            memset(m->payload, 0xa5, m->capacity); /* the sanitizer sees whether it is all there */
            memset(m->header, 0xa5, NW_HEADER_BYTES);
            nw_message_drop(m);
        }
    nw_message_pool_free(pool);
}

/* The room of every size up to the largest is near to what was asked for. The memory of large ones is never touched. */
static void test_sizes(void **state)
{
    (void)state;
    nw_message_pool *pool = make_pool();
    for (size_t power = 256; power < NW_MESSAGE_MOST_BYTES; power *= 4)
        for (size_t part = 0; part < 8; part++)
            for (int off = -1; off <= 1; off++) {
                size_t bytes = power + part * power / 8 + (size_t)off;
                if (bytes > (size_t)16 << 20) continue;
                nw_message *m = take(pool, bytes);
                assert_true(m->capacity >= bytes && m->capacity <= bytes + bytes / 4 + 64);
                nw_message_drop(m);
            }
    nw_message *m = take(pool, NW_MESSAGE_MOST_BYTES);
    assert_int_equal(m->capacity, NW_MESSAGE_MOST_BYTES);
    assert_int_equal(nw_message_take(pool, (size_t)NW_MESSAGE_MOST_BYTES + 1, &m), NW_E_ARGUMENT);
    assert_non_null(strstr(nw_error_message(), "1073741825"));
    assert_int_equal(nw_message_take(pool, SIZE_MAX, &m), NW_E_ARGUMENT);
    nw_message_pool_free(pool);
}

static void test_what_was_dropped_is_taken_again(void **state)
{
    (void)state;
    nw_message_pool *pool = make_pool();
    size_t before = nw_message_pool_bytes(pool);
    nw_message *a = take(pool, 1000), *b = take(pool, 1000);
    assert_ptr_not_equal(a, b);
    size_t bytes = nw_message_pool_bytes(pool);
    assert_true(bytes >= before + 2 * (1000 + NW_HEADER_BYTES));
    nw_message_drop(a);
    assert_ptr_equal(take(pool, 990), a);
    nw_message_drop(b);
    nw_message_drop(a);
    assert_ptr_equal(take(pool, 1000), a); /* the last one first */
    assert_ptr_equal(take(pool, 1000), b);
    assert_int_equal(nw_message_pool_bytes(pool), bytes);
    take(pool, 1000);
    assert_true(nw_message_pool_bytes(pool) > bytes);
    nw_message_pool_free(pool); /* and all that are held */
    nw_message_pool_free(NULL);
}

static void test_references(void **state)
{
    (void)state;
    nw_message_pool *pool = make_pool();
    nw_message *m = take(pool, 10);
    assert_ptr_equal(nw_message_hold(m), m);
    nw_message_hold(m);
    nw_message_drop(m);
    nw_message_drop(m);
    assert_int_equal(m->references, 1);
    nw_message *other = take(pool, 10);
    assert_ptr_not_equal(other, m);
    nw_message_drop(m);
    assert_ptr_equal(take(pool, 10), m);
    nw_message_drop(NULL);
    nw_message_pool_free(pool);
}

static void test_one_drop_too_many_aborts(void **state)
{
    (void)state;
    nw_message_pool *pool = make_pool();
    nw_message *m = take(pool, 10);
    nw_message_drop(m);
    pid_t child = fork();
    if (child == 0) {
        const struct rlimit no_core = {0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        nw_message_drop(m);
        _exit(0);
    }
    int result = 0;
    assert_int_equal(waitpid(child, &result, 0), child);
    assert_true(WIFSIGNALED(result) && WTERMSIG(result) == SIGABRT);
    nw_message_pool_free(pool);
}

/* A step of several messages of different lengths, some of them sent to many. */
static void step(nw_message_pool *pool, int variation)
{
    enum { COUNT = 12 };
    nw_message *held[COUNT];
    for (int i = 0; i < COUNT; i++) {
        held[i] = take(pool, (size_t)(5000 << i % 6) - (size_t)(variation * 7 + i));
        if (i % 3 == 0) nw_message_hold(held[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        nw_message *m = held[variation % 2 ? i : COUNT - 1 - i];
        while (m->references > 1) nw_message_drop(m);
        nw_message_drop(m);
    }
}

static void test_steps_allocate_nothing(void **state)
{
    (void)state;
    nw_message_pool *pool = make_pool();
    step(pool, 0);
    size_t bytes = nw_message_pool_bytes(pool);
    int before = atomic_load(&allocations);
    for (int i = 1; i < 20; i++) step(pool, i);
    assert_int_equal(nw_message_pool_bytes(pool), bytes);
    assert_int_equal(atomic_load(&allocations), before);
    void *volatile proof = malloc(1); /* that the counter counts */
    free(proof);
    if (COUNTS_ALLOCATIONS) assert_int_equal(atomic_load(&allocations), before + 1);
    nw_message_pool_free(pool);
}

/* ---- headers ---- */

enum { BYTES = 100, FROM = 2, WORLD = 4 };

static nw_header good(void)
{
    return (nw_header){.magic = NW_MESSAGE_MAGIC,
                       .kind = 1,
                       .channel = NW_CHANNEL_EXCHANGE,
                       .codec = 1,
                       .from = FROM,
                       .count = 25,
                       .step = 7,
                       .bytes = BYTES,
                       .sequence = 321};
}

static void refuse(const nw_header *h, size_t size, const char *words)
{
    assert_int_equal(nw_message_check(h, size, FROM, WORLD), NW_E_MESSAGE);
    if (!strstr(nw_error_message(), words)) fail_msg("'%s' does not say '%s'", nw_error_message(), words);
}

/* Each field lies where docs/wire.md says. */
static void test_the_header_on_the_wire(void **state)
{
    (void)state;
    nw_header h = {.magic = NW_MESSAGE_MAGIC,
                   .kind = 0x11,
                   .channel = 0x12,
                   .codec = 0x13,
                   .flags = 0x14,
                   .generation = 0x1615,
                   .part = 0x1817,
                   .from = 0x1a19,
                   .reserved = 0x1c1b,
                   .bucket = 0x201f1e1d,
                   .count = 0x24232221,
                   .bytes = 0x28272625,
                   .index_bytes = 0x2c2b2a29,
                   .scale_bytes = 0x302f2e2d,
                   .until = 0x34333231,
                   .step = 0x3c3b3a3938373635,
                   .version = 0x44434241403f3e3d,
                   .sequence = 0x4c4b4a4948474645};
    uint8_t want[NW_HEADER_BYTES] = {'N', 'W', 'M', '2'};
    for (int i = 4; i < NW_HEADER_BYTES; i++) want[i] = (uint8_t)(0x11 + i - 4);
    assert_memory_equal(&h, want, sizeof want);
}

static void test_good_headers(void **state)
{
    (void)state;
    nw_header h = good();
    assert_int_equal(nw_message_check(&h, NW_HEADER_BYTES + BYTES, FROM, WORLD), NW_OK);
    h.index_bytes = 60, h.scale_bytes = 40;
    assert_int_equal(nw_message_check(&h, NW_HEADER_BYTES + BYTES, FROM, WORLD), NW_OK);
    for (int channel = NW_CHANNEL_UP; channel < NW_CHANNELS; channel++) { /* kinds are the machine's */
        h.channel = (uint8_t)channel;
        for (int kind = 1; kind < 256; kind += 127) {
            h.kind = (uint8_t)kind;
            assert_int_equal(nw_message_check(&h, NW_HEADER_BYTES + BYTES, FROM, FROM + 1), NW_OK);
        }
    }
    h.channel = NW_CHANNEL_DRIVER;
    h.kind = NW_KIND_ABORT;
    assert_int_equal(nw_message_check(&h, NW_HEADER_BYTES + BYTES, FROM, WORLD), NW_OK);
    h = (nw_header){.magic = NW_MESSAGE_MAGIC, .kind = NW_KIND_CONTROL, .from = FROM};
    assert_int_equal(nw_message_check(&h, NW_HEADER_BYTES, FROM, WORLD), NW_OK);
    h = good();
    h.bytes = NW_MESSAGE_MOST_BYTES;
    assert_int_equal(nw_message_check(&h, NW_HEADER_BYTES + (size_t)NW_MESSAGE_MOST_BYTES, FROM, WORLD), NW_OK);
}

#define REFUSE(change, size, words) \
    do {                            \
        nw_header h = good();       \
        change;                     \
        refuse(&h, (size), words);  \
    } while (0)

static void test_bad_headers(void **state)
{
    (void)state;
    const size_t whole = NW_HEADER_BYTES + BYTES;
    /* Fewer bytes than a header: none of them is read. */
    for (size_t size = 0; size < NW_HEADER_BYTES; size++) refuse(NULL, size, "fewer than its header's 64");
    REFUSE(h.magic = 0, whole, "starts with 0x00000000");
    REFUSE(h.magic = NW_MESSAGE_MAGIC - (1u << 24), whole, "format '1', this rank reads '2'");
    REFUSE(h.magic = NW_MESSAGE_MAGIC & 0xffffffu, whole, "format '?', this rank reads '2'");
    REFUSE(h.magic = __builtin_bswap32(NW_MESSAGE_MAGIC), whole, "big-endian");
    for (int kind = 0; kind < 256; kind++)
        if (kind != NW_KIND_CONTROL && kind != NW_KIND_ABORT)
            REFUSE((h.channel = NW_CHANNEL_DRIVER, h.kind = (uint8_t)kind), whole, "which does not exist");
    for (int channel = 0; channel < 256; channel++)
        REFUSE((h.channel = (uint8_t)channel, h.kind = channel < NW_CHANNELS ? 0 : 1), whole, "which does not exist");
    REFUSE(h.reserved = 1, whole, "which does not exist");
    REFUSE(h.from = FROM + 1, whole, "says that rank 3 sent it");
    REFUSE(h.from = UINT16_MAX, whole, "says that rank 65535 sent it");
    REFUSE(h.bytes = BYTES - 1, whole, "99 bytes, but 100 arrived");
    REFUSE(h.bytes = BYTES + 1, whole, "101 bytes, but 100 arrived");
    REFUSE(h.bytes = 0, whole, "0 bytes, but 100 arrived");
    REFUSE(h.bytes = BYTES, NW_HEADER_BYTES, "100 bytes, but 0 arrived");
    REFUSE(h.bytes = NW_MESSAGE_MOST_BYTES + 1u, NW_HEADER_BYTES + (size_t)NW_MESSAGE_MOST_BYTES + 1,
           "1073741824 is the most");
    REFUSE(h.index_bytes = BYTES + 1, whole, "101 bytes of indices");
    REFUSE(h.scale_bytes = BYTES + 1, whole, "101 of scales");
    REFUSE((h.index_bytes = 51, h.scale_bytes = 50), whole, "in a payload of 100");
    REFUSE((h.index_bytes = UINT32_MAX, h.scale_bytes = 1), whole, "in a payload of 100"); /* no overflow */
    nw_header h = good();
    assert_int_equal(nw_message_check(&h, whole, FROM, FROM), NW_E_MESSAGE); /* no such rank in this world */
    h.from = UINT16_MAX;
    assert_int_equal(nw_message_check(&h, whole, -1, WORLD), NW_E_MESSAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_message_is_fresh_and_in_one_piece),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_what_was_dropped_is_taken_again),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_one_drop_too_many_aborts),
        cmocka_unit_test(test_steps_allocate_nothing),
        cmocka_unit_test(test_the_header_on_the_wire),
        cmocka_unit_test(test_good_headers),
        cmocka_unit_test(test_bad_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
