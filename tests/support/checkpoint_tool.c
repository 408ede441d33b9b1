/*
 * checkpoint_tool.c - writes checkpoints for scripts/check_safetensors.py to look at, as a run would.
 *
 *   checkpoint_tool RUN MODEL WIDTH            after a step of training on noise
 *   checkpoint_tool RUN MODEL WIDTH FILE       of the weights in FILE, without training
 *
 * Beside the checkpoint goes RUN/probe.safetensors: images, and the logits that the network gives for them.
 */
#include "base/rng.h"
#include "checkpoint/checkpoint.h"
#include "train/net.h"

#include <stdio.h>
#include <stdlib.h>

enum { IMAGES = 4, PIXELS = 3 * 32 * 32, CLASSES = 10 };

static nw_status write_probe(const char *run, nw_net *net, const float *images, const int32_t *labels)
{
    float logits[IMAGES * CLASSES];
    nw_saved_list list = {0};
    nw_file_writer out;
    char *path;
    NW_TRY(nw_net_evaluate(net, images, labels, IMAGES, logits, NULL));
    NW_TRY(nw_saved_list_add(&list, "images", NW_SAVED_F32, 4, (int64_t[]){IMAGES, 3, 32, 32}, images));
    NW_TRY(nw_saved_list_add(&list, "logits", NW_SAVED_F32, 2, (int64_t[]){IMAGES, CLASSES}, logits));
    NW_TRY(nw_path_join(&path, run, "probe.safetensors"));
    NW_TRY(nw_file_create(&out, path));
    NW_TRY(nw_safetensors_write(&out, &list, NULL, 0));
    nw_saved_list_free(&list);
    free(path);
    return nw_file_finish(&out, NULL);
}

static nw_status write_run(const char *run, const char *model, int width, const char *weights)
{
    static float images[IMAGES * PIXELS];
    static const int32_t labels[IMAGES] = {0, 1, 2, 3};
    nw_net *net;
    nw_net_options options = nw_net_options_default();
    options.model = model;
    options.batch_size = IMAGES;
    options.base_width = width;
    options.precision = NW_PRECISION_F32;
    options.threads = 1;
    NW_TRY(nw_net_create(&net, &options));
    nw_rng rng = nw_rng_make(1, NW_PURPOSE_TEST, 0, 0);
    for (int i = 0; i < IMAGES * PIXELS; i++) images[i] = nw_rng_normal(&rng);
    int64_t batches = 1;
    if (weights) {
        nw_checkpoint *from;
        NW_TRY(nw_checkpoint_open(&from, weights));
        NW_TRY(nw_checkpoint_read_model(from, model, &net->model.params, &batches));
        nw_checkpoint_close(from);
    } else {
        NW_TRY(nw_net_train_step(net, images, labels, IMAGES, NULL));
    }
    nw_checkpoint_info info = {.step = 1};
    snprintf(info.model, sizeof info.model, "%s", model);
    snprintf(info.precision, sizeof info.precision, "%s", nw_net_precision(net));
    snprintf(info.isa, sizeof info.isa, "%s", nw_net_isa(net));
    nw_net_weights_sha256(net, info.weights_sha256);
    nw_checkpoint_writer *writer;
    char *path;
    NW_TRY(nw_checkpoint_step_path(&path, run, 1));
    NW_TRY(nw_checkpoint_begin(&writer, path, &info));
    (void)nw_checkpoint_add_model(writer, &net->model.params, batches);
    NW_TRY(nw_checkpoint_commit(writer));
    free(path);
    NW_TRY(write_probe(run, net, images, labels));
    nw_net_free(net);
    return NW_OK;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: %s RUN MODEL WIDTH [FILE]\n", argv[0]);
        return 2;
    }
    if (write_run(argv[1], argv[2], atoi(argv[3]), argc > 4 ? argv[4] : NULL) == NW_OK) return 0;
    fprintf(stderr, "%s\n", nw_error_message());
    return 1;
}
