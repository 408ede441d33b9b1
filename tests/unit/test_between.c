/*
 * test_between.c - what ranks do between runs, in one process and in several: they share words, bring data to rank 0
 * and make means, the same bits everywhere. Processes are threads here, each with a driver that says and hears through
 * queues.
 */
#define _GNU_SOURCE 1
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "net/driver.h"

#define TEST(name) static void name(void **state __attribute__((unused)))

enum { RANKS = 6, FLOATS = 41 };

static void ok(nw_status status)
{
    if (status != NW_OK) fail_msg("%s", nw_error_message());
}

/* ---- ranks as threads ---- */

typedef struct word {
    struct word *next;
    size_t bytes;
    char data[];
} word;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t news;
    word *queue[RANKS][RANKS]; /* from, to */
    size_t said;               /* bytes of all */
} net = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = PTHREAD_COND_INITIALIZER};

static nw_status say(nw_driver *d, int to, const void *data, size_t bytes)
{
    word *w = malloc(sizeof *w + bytes);
    w->next = NULL;
    w->bytes = bytes;
    memcpy(w->data, data, bytes);
    pthread_mutex_lock(&net.lock);
    word **at = &net.queue[d->first][to];
    while (*at) at = &(*at)->next;
    *at = w;
    net.said += bytes;
    pthread_cond_broadcast(&net.news);
    pthread_mutex_unlock(&net.lock);
    return NW_OK;
}

static nw_status hear(nw_driver *d, int from, void *data, size_t bytes)
{
    pthread_mutex_lock(&net.lock);
    word **at = &net.queue[from][d->first];
    while (!*at) pthread_cond_wait(&net.news, &net.lock);
    word *w = *at;
    *at = w->next;
    pthread_mutex_unlock(&net.lock);
    bool fits = w->bytes == bytes;
    if (fits) memcpy(data, w->data, bytes);
    free(w);
    NW_FAIL_IF(!fits, NW_E_MESSAGE, "rank %d speaks of something else", from);
    return NW_OK;
}

static nw_status finish(nw_driver *d)
{
    (void)d;
    return NW_OK;
}

static const nw_driver_ops apart = {.name = "apart", .send = say, .receive = hear, .finish = finish};
static const nw_driver_ops together = {.name = "together"};

/* ---- the same in both ---- */

typedef struct task {
    int size, rank;
    bool dropped[RANKS], gives[RANKS];
    size_t floats;
    float vector[FLOATS];
    int64_t mine[4], all[RANKS][4];
    char data[100];
    nw_status status[3];
} task;

static void *do_rank(void *argument)
{
    task *t = argument;
    nw_driver d = {.ops = &apart, .size = t->size, .first = t->rank, .count = 1, .dropped = t->dropped};
    float *vector = t->vector;
    t->status[0] = nw_driver_mean(&d, &vector, t->floats, t->gives);
    t->status[1] = nw_driver_allgather(&d, t->mine, sizeof t->mine, t->all);
    for (int from = 0; from < t->size; from++)
        if (t->rank == 0 || t->rank == from) {
            char data[100];
            memcpy(data, t->data, sizeof data);
            t->status[2] = nw_driver_gather(&d, from, data, sizeof data);
            for (size_t i = 0; from > 0 && !t->dropped[from] && i < sizeof data; i++)
                if (data[i] != (char)from) t->status[2] = NW_E_INTERNAL;
        }
    return NULL;
}

/* All but the dropped ranks, as threads, against all in one process. */
static void check(int size, const bool *dropped, const bool *gives, size_t floats, uint64_t seed)
{
    task tasks[RANKS] = {0};
    pthread_t threads[RANKS];
    float here[RANKS][FLOATS], *vectors[RANKS];
    nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, 0, 0);
    for (int r = 0; r < size; r++) {
        task *t = &tasks[r];
        t->size = size;
        t->rank = r;
        t->floats = floats;
        memcpy(t->dropped, dropped, sizeof t->dropped);
        memcpy(t->gives, gives, sizeof t->gives);
        for (size_t i = 0; i < FLOATS; i++) t->vector[i] = here[r][i] = (float)nw_rng_u32(&rng) * 1e-9f - 2;
        t->vector[3] = here[r][3] = -0.0f;
        for (int i = 0; i < 4; i++) t->mine[i] = r * 10 + i;
        memset(t->data, r, sizeof t->data);
        memset(t->all, 1, sizeof t->all);
        vectors[r] = here[r];
    }
    net.said = 0;
    for (int r = 0; r < size; r++)
        if (!dropped[r]) assert_int_equal(pthread_create(&threads[r], NULL, do_rank, &tasks[r]), 0);
    for (int r = 0; r < size; r++)
        if (!dropped[r]) pthread_join(threads[r], NULL);
    nw_driver d = {.ops = &together, .size = size, .count = size, .dropped = tasks[0].dropped};
    ok(nw_driver_mean(&d, vectors, floats, gives));
    for (int r = 0; r < size; r++) {
        if (dropped[r]) continue;
        for (int i = 0; i < 3; i++) assert_int_equal(tasks[r].status[i], NW_OK);
        assert_memory_equal(tasks[r].vector, here[r], sizeof here[r]); /* and nothing behind it is touched */
        for (int q = 0; q < size; q++)
            for (int i = 0; i < 4; i++) assert_int_equal(tasks[r].all[q][i], dropped[q] ? 0 : q * 10 + i);
    }
}

TEST(test_processes_make_the_means_of_one)
{
    for (int size = 1; size <= RANKS; size++)
        for (uint64_t seed = 0; seed < 40; seed++) {
            bool dropped[RANKS] = {0}, gives[RANKS] = {0}, any = false;
            nw_rng rng = nw_rng_make(seed, NW_PURPOSE_TEST, (uint64_t)size, 0);
            for (int r = 0; r < size; r++) {
                dropped[r] = seed % 4 == 3 && r > 0 && nw_rng_below(&rng, 3) == 0;
                gives[r] = !dropped[r] && (seed % 2 == 0 || nw_rng_below(&rng, 2) == 0);
                any |= gives[r];
            }
            if (!any) gives[0] = true;
            check(size, dropped, gives, seed % 5 == 4 ? nw_rng_below(&rng, 5) : FLOATS, seed); /* or fewer than ranks */
        }
}

/* The order of ranks counts: floats are not added in another one. And what one alone gives comes as it is. */
TEST(test_a_mean_is_added_in_the_order_of_ranks)
{
    nw_driver d = {.ops = &together, .size = 3, .count = 3, .dropped = (bool[3]){false, false, false}};
    float a = 1e8f, b = 3, c = -1e8f, *vectors[] = {&a, &b, &c};
    ok(nw_driver_mean(&d, vectors, 1, (bool[]){true, true, true}));
    assert_true(a == ((1e8f + 3) + -1e8f) / 3 && b == a && c == a);
    a = 0.1f, b = -0.0f, c = 7;
    ok(nw_driver_mean(&d, vectors, 1, (bool[]){false, true, false}));
    assert_true(a == 0 && signbit(a) && signbit(b) && signbit(c));
    assert_int_equal(nw_driver_mean(&d, vectors, 1, (bool[]){false, false, false}), NW_E_INTERNAL);
}

/* Not world x floats a rank: each sends its vector once in parts, and its part of the mean to all. */
TEST(test_what_a_mean_costs)
{
    const bool dropped[RANKS] = {0}, gives[RANKS] = {true, true, true, true, true, true};
    check(RANKS, dropped, gives, 36, 1);
    size_t others = RANKS - 1, share = RANKS * others * sizeof(int64_t[4]), collect = others * 100;
    assert_int_equal(net.said, 2 * others * 36 * sizeof(float) + share + collect);
}

TEST(test_words_are_short)
{
    char mine[NW_SHARE_MOST + 1] = {0}, all[NW_SHARE_MOST + 1];
    nw_driver d = {.ops = &together, .size = 1, .count = 1, .dropped = (bool[1]){false}};
    ok(nw_driver_allgather(&d, mine, NW_SHARE_MOST, all));
    assert_int_equal(nw_driver_allgather(&d, mine, NW_SHARE_MOST + 1, all), NW_E_INTERNAL);
}

/* What a virtual cluster counts is what processes would have sent. */
TEST(test_one_process_counts_what_several_send)
{
    nw_ledger *ledger;
    float here[RANKS][FLOATS] = {{0}}, *vectors[RANKS];
    bool dropped[RANKS] = {[4] = true}, gives[RANKS] = {true, true, false, true};
    for (int r = 0; r < RANKS; r++) vectors[r] = here[r];
    ok(nw_ledger_create(&ledger, &(nw_ledger_options){.world = RANKS, .ranks = RANKS, .segments = 1}));
    nw_driver d = {.ops = &together, .size = RANKS, .count = RANKS, .dropped = dropped, .options.ledger = ledger};
    ok(nw_driver_mean(&d, vectors, FLOATS, gives));
    nw_account sent = nw_ledger_total(ledger, NW_SENT);
    ok(nw_ledger_check(ledger));
    int64_t mine[RANKS][4] = {{0}}, all[RANKS][4];
    ok(nw_driver_allgather(&d, mine, sizeof mine[0], all));
    uint64_t messages = nw_ledger_total(ledger, NW_SENT).messages;
    nw_ledger_free(ledger);
    check(RANKS, dropped, gives, FLOATS, 2);
    assert_int_equal(messages, 3 * 4 + 5 * 4 + 5 * 4);
    size_t mean = net.said - 5 * 4 * sizeof mine[0] - 4 * 100;
    assert_int_equal(nw_account_bytes(&sent), mean + (3 * 4 + 5 * 4) * NW_HEADER_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes_make_the_means_of_one),
        cmocka_unit_test(test_a_mean_is_added_in_the_order_of_ranks),
        cmocka_unit_test(test_what_a_mean_costs),
        cmocka_unit_test(test_words_are_short),
        cmocka_unit_test(test_one_process_counts_what_several_send),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
