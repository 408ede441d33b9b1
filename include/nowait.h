/*
 * nowait.h - train convolutional networks on CPUs.
 *
 * The header goes from simple to advanced: status and version, the machine, a network that trains, and, for programs
 * that compute gradients themselves, training on several ranks. Everything is
 * thread-compatible: distinct objects may be used from distinct threads, one object from one thread at a time.
 *
 *   nw_net *net;
 *   nw_net_options options = nw_net_options_default();
 *   options.model = "resnet18";
 *   options.batch_size = 128;
 *   if (nw_net_create(&net, &options) != NW_OK) puts(nw_error_message());
 *   nw_net_train_step(net, images, labels, 128, &result);      images: N x C x H x W, f32, normalised
 *   nw_net_free(net);
 */
#ifndef NOWAIT_H
#define NOWAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NW_API __attribute__((visibility("default")))

/* ---- 1. Status ------------------------------------------------------------------------------------------------ */

/* X(identifier, exit code of the command, text) */
#define NW_STATUS_MAP(X)                                         \
    X(OK, 0, "success")                                          \
    X(E_MEMORY, 1, "not enough memory")                          \
    X(E_SYSTEM, 1, "the operating system refused")               \
    X(E_UNSUPPORTED, 1, "not possible on this machine or build") \
    X(E_INTERNAL, 1, "internal error")                           \
    X(E_NUMERIC, 1, "a number is not finite")                    \
    X(E_ARGUMENT, 2, "an argument is out of range")              \
    X(E_UNKNOWN, 2, "unknown name")                              \
    X(E_SHAPE, 2, "impossible shape")                            \
    X(E_FILE, 3, "bad input file")                               \
    X(E_INTERRUPTED, 4, "interrupted, and resumable")            \
    X(E_MESSAGE, 1, "a message makes no sense")                  \
    X(E_PEER, 5, "a peer was lost")                              \
    X(E_MISMATCH, 1, "results that should be equal differ")

typedef enum nw_status {
#define NW_STATUS_ENUM(identifier, exit_code, text) NW_##identifier,
    NW_STATUS_MAP(NW_STATUS_ENUM)
#undef NW_STATUS_ENUM
} nw_status;

/* The identifier ("NW_E_SHAPE"), the general text, and the exit code of the command for a status. */
NW_API const char *nw_status_name(nw_status status);
NW_API const char *nw_status_text(nw_status status);
NW_API int nw_status_exit_code(nw_status status);

/* What went wrong last in the calling thread, one sentence with cause and remedy; and where it passed, for logs. */
NW_API const char *nw_error_message(void);
NW_API const char *nw_error_trace(void);

NW_API const char *nw_version(void);      /* "0.1.0" */
NW_API const char *nw_build_commit(void); /* the commit the library was built from, or "unknown" */

/* ---- 2. Precision ---------------------------------------------------------------------------------------------- */

/* bf16: activations and packed weights in bf16; sums, statistics, loss, weights, gradients and updates in f32. Fast
 * with AMX; elsewhere the same roundings are made and products formed in f32, at about the speed of f32 with half the
 * memory for activations. auto: bf16 where AMX is usable. The environment variable NOWAIT_ISA overrides the set. */
typedef enum nw_precision { NW_PRECISION_AUTO, NW_PRECISION_F32, NW_PRECISION_BF16 } nw_precision;

/* ---- 3. A network that trains ----------------------------------------------------------------------------------- */

typedef struct nw_net nw_net;

/* What a model can be told beyond its name. All zero: the model as it was published. */
typedef struct nw_model_variant {
    const char *stem; /* of ResNets: "small" (3 x 3), "imagenet" (7 x 7, stride 2, pool), "auto": by image size */
    const char *init_scheme;   /* "default": the model's own; "pytorch", "he-out", ... ('nowait info --models') */
    bool zero_init_residual;   /* gamma of the last batch norm of each residual block starts at 0 */
    bool compat_ref;           /* with the quirks of the published code; petra-resnet50 and 101 have some */
    float dropout;             /* in models that have it: its probability; 0: the model's own, negative: none */
    int n_layers, hidden_size; /* of revnet-fixed */
    int widths[4];             /* of resnet9: channels of prep, layer1, layer2, layer3; 0: the usual ones */
    const char *residuals;     /* of resnet9: which layers have a residual block: "layer1,layer3", or "none" */
    const char *extra_layers;  /* of resnet9: which layers get one more convolution: "prep,layer2" */
    float output_weight;       /* of resnet9, alexnet, allcnn: factor of the logits; 0: 0.125 */
} nw_model_variant;

typedef struct nw_net_options {
    const char *model;           /* "resnet18"; 'nowait info --models' lists all */
    int batch_size;              /* images of a step, at most */
    int channels, height, width; /* of an image; 0: what the model was published for */
    int classes;
    int base_width; /* channels of the first stage, the others in proportion, in multiples of 8; 0: the model's own */
    nw_model_variant variant;
    nw_precision precision;
    bool
        direct_convolution; /* never Winograd's algorithm, which f32 sums of 3 x 3 filters else use where it is faster */
    int threads;            /* 0: all CPUs this process may use */
    uint64_t seed;          /* of the initial weights, and of dropout */
    /* SGD as PyTorch defines it */
    float learning_rate, momentum, dampening, weight_decay;
    bool nesterov;
    float label_smoothing;
    bool loss_sum; /* the loss is the sum over the batch, not the mean */
} nw_net_options;

/* resnet18, batch 128 of 3 x 32 x 32 with 10 classes, SGD 0.1, momentum 0.9, weight decay 5e-4, seed 0. */
NW_API nw_net_options nw_net_options_default(void);

typedef struct nw_step_result {
    double loss;
    int images, top1, top5; /* correct: the best, or among the five best */
} nw_step_result;

/* Takes all memory that training will need in one piece. Fails with NW_E_MEMORY before anything is mapped. */
NW_API nw_status nw_net_create(nw_net **net, const nw_net_options *options);
NW_API void nw_net_free(nw_net *net);

/* One step of SGD on n images (N x C x H x W, f32, normalised) with labels in [0, classes): forward, backward, update.
 * 1 <= n <= batch_size. Allocates nothing. The result may be NULL. */
NW_API nw_status nw_net_train_step(nw_net *net, const float *images, const int32_t *labels, int n,
                                   nw_step_result *result);

/* The two halves of a step: gradients (added to those present if `accumulate`), and the update. */
NW_API nw_status nw_net_gradients(nw_net *net, const float *images, const int32_t *labels, int n, bool accumulate,
                                  nw_step_result *result);
NW_API nw_status nw_net_update(nw_net *net, float learning_rate);

/* Loss and correct answers with running statistics; changes no state. logits (n x classes) may be NULL. */
NW_API nw_status nw_net_evaluate(nw_net *net, const float *images, const int32_t *labels, int n, float *logits,
                                 nw_step_result *result);

/* All parameters in one vector, in PyTorch's order; likewise their gradients, and batch norm's running statistics. */
NW_API float *nw_net_parameters(nw_net *net, size_t *count);
NW_API float *nw_net_parameter_gradients(nw_net *net, size_t *count);
NW_API float *nw_net_buffers(nw_net *net, size_t *count);

typedef struct nw_parameter_info {
    const char *name; /* as PyTorch spells it: "layer1.0.conv1.weight" */
    size_t offset, count;
    int dims, shape[4];
    int stage;
} nw_parameter_info;

NW_API int nw_net_parameter_count(const nw_net *net);
NW_API nw_parameter_info nw_net_parameter(const nw_net *net, int index);
NW_API int nw_net_buffer_count(const nw_net *net);
NW_API nw_parameter_info nw_net_buffer(const nw_net *net, int index);

/* SHA-256 of the parameters as little-endian f32, 64 hexadecimal digits and a zero. */
NW_API void nw_net_weights_sha256(const nw_net *net, char text[65]);

NW_API const char *nw_net_isa(const nw_net *net);       /* "amx", "avx512", "avx2", "generic" */
NW_API const char *nw_net_precision(const nw_net *net); /* "f32" or "bf16": what really runs */
NW_API const char *nw_net_note(const nw_net *net);      /* why that differs from what was asked, or NULL */
NW_API int nw_net_threads(const nw_net *net);
NW_API size_t nw_net_memory(const nw_net *net); /* bytes of the one block: known before the first step */

/* ---- 4. Several ranks, for a program that computes gradients itself ------------------------------------------------ */

/*
 * N ranks (mpirun -np N PROGRAM; without mpirun one) train one model, with the exchanges, codecs and options of 'nowait
 * train'. A thread of the library moves messages while the program computes. docs/wrapper.md has the details.
 *
 *   nw_peer *peer;
 *   nw_parameter_info w = {.name = "w", .dims = 1, .shape = {N}};
 *   nw_peer_create(&peer, &w, 1, "--exchange allreduce --method topk --ratio 0.01 --memory error", true);
 *   nw_peer_begin(peer, values);                                      all begin with rank 0's values
 *   for (int i = 0; i < 100; i++) {
 *       compute_gradient(values, batch(i, nw_peer_rank(peer)), gradient);
 *       nw_peer_reduce(peer, gradient, NULL);                         now it is the mean over all ranks
 *       for (int k = 0; k < N; k++) values[k] -= 0.1f * gradient[k];
 *   }
 *   nw_peer_finish(peer, NULL, NULL);
 *   nw_peer_free(peer);
 */
typedef struct nw_peer nw_peer;
typedef enum nw_peer_way { NW_PEER_REDUCE = 1, NW_PEER_UPDATE = 2, NW_PEER_MERGE = 4 } nw_peer_way;

/* Joins the other ranks. `tensors` are those of the model, in the order in which they lie in its vectors; offsets and
 * counts follow from their shapes. Without a thread messages move only during these calls, and nw_peer_turn. */
NW_API nw_status nw_peer_create(nw_peer **peer, const nw_parameter_info *tensors, int tensor_count, const char *options,
                                bool threaded);
/* Leaves them. If the run failed or is not finished, this ends the job, unless all ranks leave within seconds. */
NW_API void nw_peer_free(nw_peer *peer);
NW_API int nw_peer_rank(const nw_peer *peer);
NW_API int nw_peer_size(const nw_peer *peer);
NW_API int nw_peer_ways(const nw_peer *peer); /* that its exchange allows, see below: a sum of nw_peer_way */
NW_API const char *nw_peer_note(const nw_peer *peer, int index); /* what the options imply, for people; NULL: no more */

/* Begins a run; values become those of rank 0. On a rank that only serves parameters it returns when the run is over. */
NW_API nw_status nw_peer_begin(nw_peer *peer, float *values);
/* A step, in one of three ways, the same in the whole run. Returns when the next gradient can be computed.
 *   reduce   gradient in, mean of all ranks' gradients out, for the program to apply: none, allreduce. With --delay 1 it
 *            is the mean of the step before: in the first step *there is false, and the gradient void
 *   update   gradient in, next values out, updated by the library's --optimizer: any exchange
 *   merge    values in, updated by the program's own optimizer, next values out: any exchange but server */
NW_API nw_status nw_peer_reduce(nw_peer *peer, float *gradient, bool *there);
NW_API nw_status nw_peer_update(nw_peer *peer, const float *gradient, float *values);
NW_API nw_status nw_peer_merge(nw_peer *peer, float *values);
NW_API bool nw_peer_is_over(const nw_peer *peer); /* no more steps, after --max-steps: these calls then do nothing */
/* Ends a run; all ranks call it. After update and merge, `vector` is the model, the mean over all ranks if theirs differ;
 * after reduce it is the mean that --delay still held back, if *there. Both may be NULL. */
NW_API nw_status nw_peer_finish(nw_peer *peer, float *vector, bool *there);

NW_API nw_status nw_peer_turn(nw_peer *peer);               /* without a thread: moves messages, does not wait */
NW_API nw_status nw_peer_mean(nw_peer *peer, float *vector, size_t count); /* between runs, on all ranks: any vector */
NW_API nw_status nw_peer_set_learning_rate(nw_peer *peer, double rate);    /* of update, on this rank */

typedef struct nw_peer_statistics {
    int64_t gradients, updates; /* of this rank; of the world, as far as this rank knows */
    int64_t averagings;         /* gossip: pairs that this rank was one of */
    int64_t messages_sent, bytes_sent;
    double delay; /* on rank 0: how many updates (of gossip: averagings) a gradient missed, on average */
} nw_peer_statistics;
NW_API nw_status nw_peer_look(nw_peer *peer, nw_peer_statistics *statistics);

#ifdef __cplusplus
}
#endif
#endif
