/*
 * test_server_worlds.c - memories of workers in a world of another shape: what they will deliver to the servers stays the
 * same, with other numbers of workers and of servers, whether servers compute or not. Asynchronous updates take each
 * gradient for itself, so that sums of memories are kept; synchronous ones take the mean over workers, so that means are.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "exchange/server_private.h"
#include "support/third.h"
#include "support/world.h"

#include <math.h>

#define TEST(name) static void name(void **state __attribute__((unused)))

typedef struct shape {
    int servers, workers; /* workers: servers among them, where these compute */
    bool computes;
} shape;

static const shape SHAPES[] = {{1, 1, false}, {1, 2, false}, {1, 3, false}, {2, 2, false},
                               {1, 4, true},  {1, 1, true},  {2, 3, true},  {3, 1, false}};
enum { SHAPE_COUNT = sizeof SHAPES / sizeof SHAPES[0], STEPS = 7 };

static world before, w;

static world_options options(shape s, bool sync, uint64_t seed)
{
    return (world_options){.exchange = {.name = "server",
                                        .max_staleness = -1,
                                        .layout.bucket_bytes = 512,
                                        .sync = sync,
                                        .servers = s.servers,
                                        .server_computes = s.computes,
                                        .memory = {.name = "error"}},
                           .members = s.workers + (s.computes ? 0 : s.servers),
                           .with = &third,
                           .bare = true,
                           .exact = true,
                           .seed = seed};
}

/* What the memories of all workers hold of an element. */
static double held(const world *from, size_t i)
{
    double sum = 0;
    for (int m = 0; m < from->o.members; m++) {
        const server *s = (const server *)from->at[m].rank.machine;
        if (s->works) sum += (double)s->up.memory->v[i];
    }
    return sum;
}

static void check_move(shape from, shape to, bool sync, uint64_t seed)
{
    world_options o = options(from, sync, seed);
    bool any = false;
    world_ok(world_make(&before, &o));
    world_ok(world_run(&before, STEPS));
    o = options(to, sync, seed);
    world_ok(world_make(&w, &o));
    world_resume(&w, &before);
    double times = sync ? (double)to.workers / from.workers : 1;
    for (size_t i = 0; i < w.floats; i++) {
        double was = times * held(&before, i), is = held(&w, i);
        any |= was != 0;
        if (fabs(was - is) > 1e-5 * (1 + fabs(was)))
            fail_msg("%d+%d to %d+%d: element %zu was %g and is %g", from.servers, from.workers, to.servers,
                     to.workers, i, was, is);
    }
    assert_true(any);
    for (int m = 0; m < w.o.members; m++) { /* and saved again it is of this world */
        const server *s = (const server *)w.at[m].rank.machine;
        assert_int_equal(s->saved_first, s->first_worker);
    }
    world_ok(world_run(&w, 2 * STEPS));
    world_check_quiescent(&w, 2 * STEPS);
    world_free(&before);
    world_free(&w);
}

TEST(test_what_memories_will_deliver_stays)
{
    for (int from = 0; from < SHAPE_COUNT; from++)
        for (int to = 0; to < SHAPE_COUNT; to++)
            for (int sync = 0; sync < 2; sync++)
                check_move(SHAPES[from], SHAPES[to], sync, (uint64_t)(from * SHAPE_COUNT + to));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_what_memories_will_deliver_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
