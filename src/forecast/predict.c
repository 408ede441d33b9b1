/* predict.c - see predict.h. */
#include "forecast/predict.h"

#include "net/message.h"

#include <math.h>
#include <stdlib.h>

enum { FIRST = 4, COUNTED = 16 }; /* steps until all is as it always is from then on, and those that count */

/* What a bucket of a gradient goes through: each is some work of the processor, then perhaps something to send. */
typedef enum stage { ENCODE, ADD, MEAN, DECODE, DONE } stage;

typedef struct bucket_state {
    stage at;
    int round;
    int left;     /* messages that the stage still waits for */
    double ready; /* when the next work can begin; INFINITY: it waits for `arrivals` */
    double first; /* when the first message of this stage comes, and ... */
    double apart; /* ... how far apart they are */
} bucket_state;

typedef struct play {
    const nw_forecast_step *s;
    bucket_state *buckets[2]; /* of even and of odd gradients */
    int open[2];              /* buckets that are not done */
    double now, wire_free;
    nw_forecast_time time;
} play;

/* Work of the processor. */
static void spend(play *p, double *account, double seconds)
{
    p->now += seconds;
    *account += seconds;
}

/* Sends N - 1 messages of so many bytes; says when the like of them come. */
static void send_all(play *p, bucket_state *b, double bytes)
{
    const nw_forecast_step *s = p->s;
    int others = s->members - 1;
    double each = bytes + NW_HEADER_BYTES;
    double takes = s->overhead + (s->bytes_per_second > 0 ? each / s->bytes_per_second : 0);
    double begin = fmax(p->now, p->wire_free);
    p->wire_free = begin + others * takes;
    p->time.sent += others * each;
    p->time.wire += others * takes;
    b->left = others;
    b->first = begin + takes + s->latency;
    b->apart = takes;
    b->ready = others > 0 ? b->first : p->now;
}

static double part_of(const play *p, double whole) { return whole / p->s->members; }

/* Bytes of a bucket as it travels in this round, whole. */
static double bytes_of(const nw_forecast_bucket *o, const bucket_state *b)
{
    return o->mode == NW_MODE_SUMMED ? o->round_bytes[b->round] : o->bytes;
}
static double decode_of(const play *p, const nw_forecast_bucket *o, const bucket_state *b)
{
    return o->mode == NW_MODE_SUMMED ? p->s->add * o->round_bytes[b->round] / sizeof(float) : o->decode;
}
static double fill_of(const play *p, const nw_forecast_bucket *o, const bucket_state *b)
{
    return o->mode == NW_MODE_SUMMED ? decode_of(p, o, b) : o->fill;
}

/* The next of a stage's messages has come and is dealt with; true: it was the last. */
static bool take_message(bucket_state *b)
{
    if (b->left > 0) b->left--;
    b->first += b->apart;
    b->ready = b->first;
    return b->left == 0;
}

static void do_encode(play *p, const nw_forecast_bucket *o, bucket_state *b)
{
    double share = o->mode == NW_MODE_SUMMED ? 1.0 / o->rounds : 1;
    spend(p, &p->time.encode, o->encode * share);
    send_all(p, b, o->mode == NW_MODE_GATHER ? o->bytes : part_of(p, bytes_of(o, b)));
    b->at = ADD;
}

/* Contributions of others are added as they come, the own one with the first of them. */
static void do_add(play *p, const nw_forecast_bucket *o, bucket_state *b)
{
    double share = o->mode == NW_MODE_GATHER ? 1 : part_of(p, 1);
    if (b->left == p->s->members - 1) spend(p, &p->time.decode, share * fill_of(p, o, b));
    if (b->left > 0) spend(p, &p->time.decode, share * decode_of(p, o, b));
    if (!take_message(b)) return;
    spend(p, &p->time.decode, share * o->mean);
    b->at = o->mode == NW_MODE_GATHER ? DONE : MEAN;
    b->ready = p->now;
}

static void do_mean(play *p, const nw_forecast_bucket *o, bucket_state *b)
{
    if (o->mode != NW_MODE_SUMMED) spend(p, &p->time.encode, part_of(p, o->encode));
    send_all(p, b, part_of(p, bytes_of(o, b)));
    b->at = DECODE;
}

static void do_decode(play *p, const nw_forecast_bucket *o, bucket_state *b)
{
    if (b->left > 0) spend(p, &p->time.decode, part_of(p, fill_of(p, o, b)));
    if (!take_message(b)) return;
    b->at = o->mode == NW_MODE_SUMMED && ++b->round < o->rounds ? ENCODE : DONE;
    b->ready = p->now;
}

static void work_on(play *p, int gradient, int index)
{
    static void (*const work[])(play *, const nw_forecast_bucket *, bucket_state *) = {do_encode, do_add, do_mean,
                                                                                       do_decode};
    bucket_state *b = &p->buckets[gradient & 1][index];
    work[b->at](p, &p->s->buckets[index], b);
    if (b->at != DONE) return;
    b->ready = INFINITY;
    p->open[gradient & 1]--;
}

typedef struct next_work {
    double ready; /* INFINITY: there is none */
    int gradient, index;
} next_work;

static next_work find_work(const play *p)
{
    next_work next = {.ready = INFINITY};
    for (int g = 0; g < 2; g++)
        for (int i = 0; p->open[g] > 0 && i < p->s->count; i++)
            if (p->buckets[g][i].ready < next.ready) next = (next_work){p->buckets[g][i].ready, g, i};
    return next;
}

/* Computes for so long, with the exchange's work in between. */
static void compute(play *p, double seconds)
{
    for (next_work w = find_work(p); w.ready < p->now + seconds; w = find_work(p)) {
        if (w.ready > p->now) {
            seconds -= w.ready - p->now;
            p->now = w.ready;
        }
        work_on(p, w.gradient, w.index);
    }
    p->now += seconds;
}

/* Until all means of a gradient are here. */
static void wait_for(play *p, int gradient)
{
    while (p->open[gradient & 1] > 0) {
        next_work w = find_work(p);
        p->now = fmax(p->now, w.ready);
        work_on(p, w.gradient, w.index);
    }
}

static void play_step(play *p, int number)
{
    const nw_forecast_step *s = p->s;
    bucket_state *b = p->buckets[number & 1];
    double done = 0;
    p->open[number & 1] = s->count;
    for (int i = 0; i < s->count; i++) b[i] = (bucket_state){.ready = INFINITY};
    for (int i = 0; i <= s->count; i++) {
        double share = i < s->count ? s->buckets[i].final : 1;
        compute(p, (share - done) * s->pass);
        done = share;
        if (i < s->count) b[i].ready = p->now;
    }
    if (number >= s->delay) wait_for(p, number - s->delay);
    compute(p, s->update);
}

nw_forecast_time nw_forecast_predict(const nw_forecast_step *s)
{
    play p = {.s = s};
    double begin = 0;
    for (int i = 0; i < 2; i++) p.buckets[i] = calloc((size_t)s->count + 1, sizeof(bucket_state));
    for (int i = 0; p.buckets[0] && p.buckets[1] && i < FIRST + COUNTED; i++) {
        if (i == FIRST) {
            begin = p.now;
            p.time = (nw_forecast_time){0};
        }
        play_step(&p, i);
    }
    free(p.buckets[0]);
    free(p.buckets[1]);
    nw_forecast_time t = p.time;
    return (nw_forecast_time){.step = (p.now - begin) / COUNTED,
                              .encode = t.encode / COUNTED,
                              .decode = t.decode / COUNTED,
                              .sent = t.sent / COUNTED,
                              .wire = t.wire / COUNTED};
}
