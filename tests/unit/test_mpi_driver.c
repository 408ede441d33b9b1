/*
 * test_mpi_driver.c - a rank under MPI whose peer is ahead of it: it has gone back to a checkpoint, and perhaps once
 * more, before this rank knows why. The functions of MPI here, which take the place of the library's, bring what the
 * test puts down.
 */
#define _GNU_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/toys.h"

#include "net/mpi.h"
#include "net/mpi_private.h"

/* ---- MPI, as far as the driver calls it: rank 1 of two ---- */

enum { MAIL_MOST = 16 };
static struct {
    int count, next;
    nw_message *at[MAIL_MOST];
    int sent;
} mail_box;

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    (void)comm;
    *rank = 1;
    return MPI_SUCCESS;
}
int MPI_Comm_size(MPI_Comm comm, int *size)
{
    (void)comm;
    *size = 2;
    return MPI_SUCCESS;
}
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm *copy, MPI_Request *request)
{
    *copy = comm;
    *request = MPI_REQUEST_NULL;
    return MPI_SUCCESS;
}
int MPI_Comm_set_errhandler(MPI_Comm comm, MPI_Errhandler handler)
{
    (void)comm, (void)handler;
    return MPI_SUCCESS;
}
int MPI_Isend(const void *data, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request *request)
{
    (void)data, (void)count, (void)type, (void)to, (void)tag, (void)comm;
    mail_box.sent++;
    memset(request, 1, sizeof *request);
    return MPI_SUCCESS;
}
/* One at a time, the last that began first. */
int MPI_Testsome(int count, MPI_Request *requests, int *done_count, int *done, MPI_Status *infos)
{
    (void)infos;
    *done_count = MPI_UNDEFINED;
    for (int i = count - 1; i >= 0 && *done_count != 1; i--) {
        if (requests[i] == MPI_REQUEST_NULL) continue;
        requests[i] = MPI_REQUEST_NULL;
        done[0] = i;
        *done_count = 1;
    }
    return MPI_SUCCESS;
}
int MPI_Test(MPI_Request *request, int *done, MPI_Status *info)
{
    (void)request, (void)info;
    *done = 1;
    return MPI_SUCCESS;
}
int MPI_Improbe(int from, int tag, MPI_Comm comm, int *there, MPI_Message *handle, MPI_Status *info)
{
    (void)from, (void)tag, (void)comm;
    *there = mail_box.next < mail_box.count;
    *handle = MPI_MESSAGE_NULL;
    info->MPI_SOURCE = 0;
    return MPI_SUCCESS;
}
int MPI_Get_count(const MPI_Status *info, MPI_Datatype type, int *count)
{
    (void)info, (void)type;
    *count = (int)nw_message_size(mail_box.at[mail_box.next]);
    return MPI_SUCCESS;
}
int MPI_Imrecv(void *data, int count, MPI_Datatype type, MPI_Message *handle, MPI_Request *request)
{
    (void)type, (void)handle;
    memcpy(data, mail_box.at[mail_box.next++]->header, (size_t)count);
    memset(request, 1, sizeof *request);
    return MPI_SUCCESS;
}

/* ---- what the peer sends ---- */

static nw_message *put_down(nw_message_pool *pool, int generation, int channel, int kind, const void *data,
                            size_t bytes)
{
    nw_message *m;
    ok(nw_message_take(pool, bytes, &m));
    memcpy(m->payload, data, bytes);
    m->header->kind = (uint8_t)kind;
    m->header->channel = (uint8_t)channel;
    m->header->generation = (uint16_t)generation;
    m->header->from = 0;
    m->header->sequence = (uint64_t)mail_box.count + 1;
    mail_box.at[mail_box.count++] = m;
    return m;
}
static void put_word(nw_message_pool *pool, int generation, int64_t word)
{
    put_down(pool, generation, NW_CHANNEL_DRIVER, NW_KIND_CONTROL, &word, sizeof word);
}
static void put_message(nw_message_pool *pool, int generation, int number)
{
    put_down(pool, generation, NW_CHANNEL_EXCHANGE, 1, "", 0)->header->bucket = (uint32_t)number;
}
static void put_abort(nw_message_pool *pool, int generation, const char *reason)
{
    put_down(pool, generation, NW_CHANNEL_DRIVER, NW_KIND_ABORT, reason, strlen(reason))->header->part = NW_E_NUMERIC;
}

/* ---- a rank that waits for one message a run ---- */

static void wait_for_one(toy *t, const nw_event *e, nw_actions *actions)
{
    (void)actions;
    if (e->kind == NW_EVENT_GO) t->waiting = true;
    if (e->kind != NW_EVENT_MESSAGE) return;
    t->waiting = false;
    t->number = (int)e->message->header->bucket;
}

static int64_t word_of_peer(nw_driver *d)
{
    int64_t mine = 7, all[2];
    ok(nw_driver_allgather(d, &mine, sizeof mine, all));
    assert_int_equal(all[1], 7);
    return all[0];
}

static void test_a_peer_that_has_gone_back_twice(void **state)
{
    (void)state;
    static stage s;
    nw_message_pool *pool;
    open_stage(&s, 2);
    ok(nw_message_pool_create(&pool));
    nw_mpi_process.started = true;
    s.options.timeout_ns = 20000000000;
    ok(nw_mpi_create(&s.driver, &s.options));
    fill_ranks(&s, wait_for_one);
    toy *t = &s.toys[1];

    put_abort(pool, 0, "the first loss is infinite");
    put_word(pool, 1, 11); /* it has gone back, ... */
    put_message(pool, 1, 5);
    put_abort(pool, 1, "the second loss is infinite"); /* ... trained on, gone back again, ... */
    put_word(pool, 2, 22);
    put_message(pool, 2, 6); /* ... and goes on */

    const nw_go go = {.until = 1, .batches = INT64_MAX};
    refused(nw_driver_run(s.driver, &s.ranks[1], &go), NW_E_NUMERIC, "the first loss is infinite");
    assert_int_equal(mail_box.next, mail_box.count); /* all of it is here by now */
    assert_int_equal(t->messages, 0);                /* but nothing of it was for this run */

    nw_driver_reset(s.driver);
    fill_ranks(&s, wait_for_one);
    assert_int_equal(word_of_peer(s.driver), 11);
    refused(nw_driver_run(s.driver, &s.ranks[1], &go), NW_E_NUMERIC, "the second loss is infinite");
    assert_int_equal(t->messages, 0);

    put_message(pool, 1, 99); /* late, of a run that is over */
    nw_driver_reset(s.driver);
    fill_ranks(&s, wait_for_one);
    assert_int_equal(word_of_peer(s.driver), 22);
    ok(nw_driver_run(s.driver, &s.ranks[1], &go));
    assert_int_equal(t->messages, 1);
    assert_int_equal(t->number, 6);
    for (int i = 0; i < mail_box.count; i++) nw_message_drop(mail_box.at[i]);
    close_stage(&s);
    nw_message_pool_free(pool);
}

/* Waits for three, and writes down which. */
static void wait_for_three(toy *t, const nw_event *e, nw_actions *actions)
{
    (void)actions;
    if (e->kind == NW_EVENT_GO) t->waiting = true;
    if (e->kind != NW_EVENT_MESSAGE) return;
    t->number = 10 * t->number + (int)e->message->header->bucket;
    t->waiting = t->messages < 3;
}

static void test_messages_keep_their_order(void **state)
{
    (void)state;
    static stage s;
    nw_message_pool *pool;
    const nw_go go = {.until = 1, .batches = INT64_MAX};
    open_stage(&s, 2);
    ok(nw_message_pool_create(&pool));
    nw_mpi_process.started = true;
    s.options.timeout_ns = 20000000000;
    ok(nw_mpi_create(&s.driver, &s.options));
    fill_ranks(&s, wait_for_three);
    mail_box.count = mail_box.next = 0;
    for (int i = 1; i <= 3; i++) put_message(pool, 0, i);
    ok(nw_driver_run(s.driver, &s.ranks[1], &go));
    assert_int_equal(s.toys[1].number, 123); /* although the last was through first */
    for (int i = 0; i < mail_box.count; i++) nw_message_drop(mail_box.at[i]);
    close_stage(&s);
    nw_message_pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_peer_that_has_gone_back_twice),
                                       cmocka_unit_test(test_messages_keep_their_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
