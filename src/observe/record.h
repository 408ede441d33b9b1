/*
 * record.h - what happens in a run, as typed records, and the list of observers that they are sent to.
 *
 * Every kind of record is one table of fields. A line of a table makes a member of the struct, a key of metrics.jsonl
 * and, where it names them, a scalar of TensorBoard and a key of summary.json: a new quantity is one new line.
 *
 *   X(kind, name, scalar, summary)
 *     kind     INT (int64_t, NW_UNKNOWN if unknown), REAL (double, NAN if unknown), TEXT (const char *, NULL if unknown),
 *              COUNTS (const nw_histogram *, NULL if unknown)
 *     name     of the member and of the key in metrics.jsonl
 *     scalar   TensorBoard's name, or NULL
 *     summary  the key in summary.json, which keeps the last value known, or NULL
 *
 * Every record begins with step, epoch and images: the state of the run at that moment. Rules for all records: losses
 * are means over images, accuracies percent; names that end in _seconds are seconds; steps, epochs and batches count
 * from 1 (step 0 is the state before the first update). Where two records use one summary key, it means the same in
 * both. docs/files.md explains every field.
 *
 * Threads: one thread at a time. Sending a step record allocates nothing.
 */
#ifndef NW_OBSERVE_RECORD_H
#define NW_OBSERVE_RECORD_H

#include <stdio.h>

#include "base/histogram.h"
#include "base/json.h"
#include "base/status.h"

#define NW_UNKNOWN INT64_MIN

/* step: updates done; epoch: the one in progress, or just finished, 0 before the first; images: seen by all workers. */
#define NW_HEAD_FIELDS(X)     \
    X(INT, step, NULL, NULL)  \
    X(INT, epoch, NULL, NULL) \
    X(INT, images, NULL, NULL)

/* The start of a process that trains: first, or continuing from a checkpoint (then step > 0). */
#define NW_RUN_FIELDS(X)                       \
    NW_HEAD_FIELDS(X)                          \
    X(TEXT, started, NULL, "started")          \
    X(TEXT, name, NULL, "name")                \
    X(TEXT, model, NULL, "model")              \
    X(TEXT, dataset, NULL, "dataset")          \
    X(TEXT, algorithm, NULL, "algorithm")      \
    X(TEXT, exchange, NULL, "exchange")        \
    X(TEXT, method, NULL, "method")            \
    X(TEXT, compress, NULL, "compress")        \
    X(TEXT, collective, NULL, NULL)            \
    X(TEXT, optimizer, NULL, "optimizer")      \
    X(TEXT, scheduler, NULL, "scheduler")      \
    X(TEXT, loss_reduction, NULL, NULL)        \
    X(INT, parameters, NULL, "parameters")     \
    X(INT, memory_bytes, NULL, NULL)           \
    X(INT, train_images, NULL, "train_images") \
    X(INT, test_images, NULL, "test_images")   \
    X(INT, batch_size, NULL, "batch_size")     \
    X(INT, batches_per_epoch, NULL, NULL)      \
    X(INT, accumulation_steps, NULL, NULL)     \
    X(INT, max_epoch, NULL, "max_epoch")       \
    X(INT, max_steps, NULL, NULL)              \
    X(INT, seed, NULL, "seed")                 \
    X(INT, world_size, NULL, "world_size")     \
    X(INT, threads, NULL, "threads")           \
    X(TEXT, precision, NULL, "precision")      \
    X(TEXT, isa, NULL, "isa")                  \
    X(TEXT, cpu, NULL, "cpu")                  \
    X(TEXT, host, NULL, "host")                \
    X(TEXT, version, NULL, "version")          \
    X(TEXT, commit, NULL, "commit")

/* One update: loss and accuracies are those of its batches (several, where gradients are accumulated); delay is how
 * many updates lie between the parameters of its gradient and those that it is applied to; times, bytes_sent and
 * messages_sent are those since the record before. exchange_seconds and virtual_seconds are on the simulated clock
 * in a virtual cluster. */
#define NW_STEP_FIELDS(X)                                      \
    NW_HEAD_FIELDS(X)                                          \
    X(INT, batch, NULL, NULL)                                  \
    X(INT, batch_images, NULL, NULL)                           \
    X(REAL, loss, "loss/train", NULL)                          \
    X(REAL, top1, "acc/train_top1", NULL)                      \
    X(REAL, top5, "acc/train_top5", NULL)                      \
    X(REAL, lr, "train/lr", NULL)                              \
    X(INT, delay, "train/delay", NULL)                         \
    X(REAL, total_seconds, NULL, NULL)                         \
    X(REAL, step_seconds, "time/step_seconds", NULL)           \
    X(REAL, data_wait_seconds, "time/data_wait_seconds", NULL) \
    X(REAL, images_per_second, "time/images_per_second", NULL) \
    X(REAL, exchange_seconds, "time/exchange_seconds", NULL)   \
    X(REAL, virtual_seconds, NULL, NULL)                       \
    X(INT, bytes_sent, "network/bytes_sent", NULL)             \
    X(INT, messages_sent, "network/messages_sent", NULL)

/* One epoch with its evaluation. train_*: means over the epoch's batches as they were trained on; train_eval_*: over
 * training images without augmentation, on request; validation_*: over the split that was put aside. Times named
 * epoch_* are of this epoch; the other times, and bytes_sent, of the run so far. */
#define NW_EPOCH_FIELDS(X)                                                   \
    NW_HEAD_FIELDS(X)                                                        \
    X(REAL, lr, NULL, NULL)                                                  \
    X(REAL, train_loss, "loss/train_epoch", "train_loss")                    \
    X(REAL, train_top1, "acc/train_top1_epoch", "train_top1")                \
    X(REAL, train_top5, "acc/train_top5_epoch", "train_top5")                \
    X(REAL, train_eval_loss, "loss/train_eval", "train_eval_loss")           \
    X(REAL, train_eval_top1, "acc/train_eval_top1", "train_eval_top1")       \
    X(REAL, train_eval_top5, "acc/train_eval_top5", "train_eval_top5")       \
    X(REAL, test_loss, "loss/test", "test_loss")                             \
    X(REAL, test_top1, "acc/test_top1", "test_top1")                         \
    X(REAL, test_top5, "acc/test_top5", "test_top5")                         \
    X(REAL, validation_loss, "loss/validation", "validation_loss")           \
    X(REAL, validation_top1, "acc/validation_top1", "validation_top1")       \
    X(REAL, validation_top5, "acc/validation_top5", "validation_top5")       \
    X(REAL, test_top1_best, "acc/test_top1_best", "test_top1_best")          \
    X(INT, best_epoch, NULL, "best_epoch")                                   \
    X(REAL, epoch_train_seconds, "time/epoch_train_seconds", NULL)           \
    X(REAL, epoch_validation_seconds, "time/epoch_validation_seconds", NULL) \
    X(REAL, dawnbench_seconds, NULL, "dawnbench_seconds")                    \
    X(REAL, total_seconds, NULL, "total_seconds")                            \
    X(REAL, virtual_seconds, "time/virtual_seconds", "virtual_seconds")      \
    X(INT, peak_memory_bytes, "memory/peak_bytes", "peak_memory_bytes")      \
    X(INT, bytes_sent, "network/bytes_sent_total", "bytes_sent")             \
    X(REAL, compression_ratio, "compression/ratio", NULL)                    \
    X(REAL, consensus_distance, "gossip/consensus_distance", NULL)

/* A checkpoint was written, and is complete on the disk. is_best: 1 or 0. */
#define NW_CHECKPOINT_FIELDS(X) \
    NW_HEAD_FIELDS(X)           \
    X(TEXT, path, NULL, NULL)   \
    X(INT, bytes, NULL, NULL)   \
    X(INT, is_best, NULL, NULL) \
    X(REAL, write_seconds, NULL, NULL)

/* Something went wrong, or was asked from outside: fault is one word ("not-finite", "mismatch", "signal", "file",
 * "peer"), detail says which tensor, signal, file or peer, in a sentence. */
#define NW_FAULT_FIELDS(X)      \
    NW_HEAD_FIELDS(X)           \
    X(TEXT, fault, NULL, NULL)  \
    X(TEXT, detail, NULL, NULL) \
    X(INT, rank, NULL, NULL)

/* The end of the process's training: status is "done", "interrupted" (resumable) or "failed"; epoch is the number of
 * finished ones. Times and counts are of the whole run, over all its processes; the five phases add up to
 * total_seconds. */
#define NW_END_FIELDS(X)                                    \
    X(INT, step, NULL, "steps")                             \
    X(INT, epoch, NULL, "epochs")                           \
    X(INT, images, NULL, "images")                          \
    X(TEXT, status, NULL, "status")                         \
    X(REAL, images_per_second, NULL, "images_per_second")   \
    X(REAL, preprocess_seconds, NULL, "preprocess_seconds") \
    X(REAL, train_seconds, NULL, "train_seconds")           \
    X(REAL, validation_seconds, NULL, "validation_seconds") \
    X(REAL, checkpoint_seconds, NULL, "checkpoint_seconds") \
    X(REAL, other_seconds, NULL, "other_seconds")           \
    X(REAL, total_seconds, NULL, "total_seconds")           \
    X(REAL, dawnbench_seconds, NULL, "dawnbench_seconds")   \
    X(REAL, virtual_seconds, NULL, "virtual_seconds")       \
    X(INT, peak_memory_bytes, NULL, "peak_memory_bytes")    \
    X(INT, bytes_sent, NULL, "bytes_sent")                  \
    X(INT, messages_sent, NULL, "messages_sent")            \
    X(INT, payload_bytes, NULL, "payload_bytes")            \
    X(INT, dense_bytes, NULL, "dense_bytes")                \
    X(REAL, encode_seconds, NULL, "encode_seconds")         \
    X(REAL, decode_seconds, NULL, "decode_seconds")         \
    X(REAL, memory_norm, NULL, "memory_norm")               \
    X(COUNTS, delays, NULL, "delays")                       \
    X(INT, thrown_away, NULL, "thrown_away")                \
    X(INT, exchanges, NULL, "exchanges")                    \
    X(REAL, consensus_mean, NULL, "consensus_mean")         \
    X(REAL, consensus_final, NULL, "consensus_final")       \
    X(REAL, idle_seconds, NULL, "idle_seconds")             \
    X(INT, sent_again, NULL, "sent_again")                  \
    X(TEXT, graph, NULL, "graph")                           \
    X(REAL, chi1, NULL, "chi1")                             \
    X(REAL, chi2, NULL, "chi2")                             \
    X(TEXT, weights_sha256, NULL, "weights_sha256")         \
    X(REAL, steal_percent, NULL, "steal_percent")           \
    X(REAL, load, NULL, "load")

/* X(IDENTIFIER, name, table). The name is the value of the key "record" in metrics.jsonl. */
#define NW_RECORD_MAP(X)                            \
    X(RUN, run, NW_RUN_FIELDS)                      \
    X(STEP, step, NW_STEP_FIELDS)                   \
    X(EPOCH, epoch, NW_EPOCH_FIELDS)                \
    X(CHECKPOINT, checkpoint, NW_CHECKPOINT_FIELDS) \
    X(FAULT, fault, NW_FAULT_FIELDS)                \
    X(END, end, NW_END_FIELDS)

typedef enum nw_record_kind {
#define NW_RECORD_ENUM(identifier, name, table) NW_RECORD_##identifier,
    NW_RECORD_MAP(NW_RECORD_ENUM)
#undef NW_RECORD_ENUM
        NW_RECORD_KINDS
} nw_record_kind;

typedef enum nw_field_kind { NW_FIELD_INT, NW_FIELD_REAL, NW_FIELD_TEXT, NW_FIELD_COUNTS } nw_field_kind;

/* nw_run_record, nw_step_record, nw_epoch_record, nw_checkpoint_record, nw_fault_record, nw_end_record */
#define NW_TYPE_INT                                    int64_t
#define NW_TYPE_REAL                                   double
#define NW_TYPE_TEXT                                   const char *
#define NW_TYPE_COUNTS                                 const nw_histogram *
#define NW_FIELD_MEMBER(kind, member, scalar, summary) NW_TYPE_##kind member;
#define NW_RECORD_STRUCT(identifier, name, table) \
    typedef struct nw_##name##_record {           \
        table(NW_FIELD_MEMBER)                    \
    } nw_##name##_record;
NW_RECORD_MAP(NW_RECORD_STRUCT)
#undef NW_RECORD_STRUCT
#undef NW_FIELD_MEMBER

/* ---- Reading any record by its table ---- */

typedef struct nw_field {
    nw_field_kind kind;
    size_t offset;
    const char *name, *scalar, *summary;
} nw_field;

typedef struct nw_record_type {
    const char *name;
    const nw_field *fields;
    int count;
    size_t size; /* of the struct */
} nw_record_type;

/* What every record begins with. */
typedef struct nw_record_head {
    int64_t step, epoch, images;
} nw_record_head;

typedef struct nw_field_value {
    nw_field_kind kind;
    bool known;
    int64_t integer;            /* of an INT, else 0 */
    double real;                /* of a REAL or INT, else NAN */
    const char *text;           /* of a TEXT, else NULL; as long as the record's */
    const nw_histogram *counts; /* of COUNTS, else NULL; as long as the record's */
} nw_field_value;

const nw_record_type *nw_record_type_of(nw_record_kind kind);
nw_field_value nw_record_value(const nw_field *field, const void *record);
void nw_value_json(nw_json *json, nw_field_value value); /* unknown: null */
nw_record_head nw_record_head_of(const void *record);

/* Makes every field of a record unknown. */
void nw_record_clear(nw_record_kind kind, void *record);

/* ---- Observers ---- */

typedef struct nw_observer nw_observer;

typedef struct nw_observer_ops {
    /* Takes what it wants from a record, whose texts and counts live only during the call. */
    nw_status (*record)(nw_observer *self, nw_record_kind kind, const void *record);
    /* Writes what is left and frees, also after a failure. */
    nw_status (*close)(nw_observer *self);
} nw_observer_ops;

/* The first member of every observer's own struct. */
struct nw_observer {
    const nw_observer_ops *ops;
};

enum { NW_MOST_OBSERVERS = 16 };

/* Zero-initialised, it is empty. An observer that fails gets no further records; the failure is returned once, and
 * training may go on: the others still get theirs. */
typedef struct nw_observers {
    FILE *warnings; /* where messages go if there is no progress to show them with; NULL: nowhere */
    int count;
    struct nw_observer_slot {
        nw_observer *observer;
        nw_status status; /* of its failure */
        bool reported;
        char message[512];
    } slots[NW_MOST_OBSERVERS];
} nw_observers;

/* Owns the observer from here on. Records go to observers in the order in which they were added. */
void nw_observers_add(nw_observers *observers, nw_observer *observer);

/* Sends a record to all. A failing observer does not keep it from the others. */
nw_status nw_observers_send(nw_observers *observers, nw_record_kind kind, const void *record);

/* Closes and frees all; returns a failure that was not returned before. The list is empty afterwards. */
nw_status nw_observers_close(nw_observers *observers);

/* nw_observers_run(&observers, &record), nw_observers_step(...), and so on. */
#define NW_OBSERVERS_SEND(identifier, name, table)                                                         \
    static inline nw_status nw_observers_##name(nw_observers *observers, const nw_##name##_record *record) \
    {                                                                                                      \
        return nw_observers_send(observers, NW_RECORD_##identifier, record);                               \
    }
NW_RECORD_MAP(NW_OBSERVERS_SEND)
#undef NW_OBSERVERS_SEND

#endif
