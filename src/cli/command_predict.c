/*
 * command_predict.c - `nowait predict CHECKPOINT IMAGE...`: the most likely classes of image files.
 *
 * Everything but the images comes from the checkpoint: model, image shape, normalisation, names of the classes. An
 * image is scaled so that its short side fits the network, and the middle is cut out; networks for one channel get its
 * brightness (0.299 R + 0.587 G + 0.114 B).
 */
#include "cli/command.h"
#include "setup/plan.h"
#include "setup/session.h"

#include "base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct predictor {
    nw_predict_options options;
    nw_dataset dataset; /* what the checkpoint says of it; no images */
    nw_net *net;
    nw_transform transform;
    nw_photo photo;
    float *colour, *input, *logits; /* an image as it is decoded, as the network wants it, its answers */
    char *names;                    /* classes.txt, lines ended by zeros; NULL: none */
    const char **name;
    nw_json json;
} predictor;

/* ---- what the checkpoint says ------------------------------------------------------------------------------------ */

static nw_status read_names(predictor *p, nw_checkpoint *c)
{
    size_t size;
    if (!nw_checkpoint_has_file(c, "classes.txt")) return NW_OK;
    NW_TRY(nw_checkpoint_read_file(c, "classes.txt", &p->names, &size));
    NW_NEW(p->name, p->dataset.classes, "the names of the classes");
    char *at = p->names;
    for (int i = 0; i < p->dataset.classes; i++) {
        char *end = strchr(at, '\n');
        NW_FAIL_IF(!end, NW_E_FILE, "%s: classes.txt has %d lines; %d classes were expected", nw_checkpoint_path(c), i,
                   p->dataset.classes);
        *end = 0;
        p->name[i] = at;
        at = end + 1;
    }
    return NW_OK;
}

static nw_status read_int(const nw_checkpoint *c, const char *key, int least, int most, int *value)
{
    int64_t number;
    NW_TRY(nw_checkpoint_get_int(c, key, &number));
    NW_FAIL_IF(number < least || number > most, NW_E_FILE, "%s: '%s' is %lld; %d to %d was expected",
               nw_checkpoint_path(c), key, (long long)number, least, most);
    *value = (int)number;
    return NW_OK;
}

static nw_status read_dataset(predictor *p, nw_checkpoint *c)
{
    nw_dataset *d = &p->dataset;
    const char *name;
    NW_FAIL_IF(nw_checkpoint_is_bare(c), NW_E_FILE,
               "%s holds weights only; 'predict' needs a checkpoint that nowait wrote, which also knows image shape, "
               "normalisation and classes",
               nw_checkpoint_path(c));
    NW_TRY(nw_checkpoint_get_text(c, "dataset", &name));
    snprintf(d->name, sizeof d->name, "%s", name);
    NW_TRY(read_int(c, "classes", 2, 1 << 20, &d->classes));
    NW_TRY(read_int(c, "channels", 1, 3, &d->channels));
    NW_TRY(read_int(c, "height", 0, 4096, &d->height));
    NW_TRY(read_int(c, "width", 0, 4096, &d->width));
    for (int i = 0; i < d->channels; i++) {
        char key[32];
        double mean, deviation;
        snprintf(key, sizeof key, "mean%d", i);
        NW_TRY(nw_checkpoint_get_double(c, key, &mean));
        snprintf(key, sizeof key, "deviation%d", i);
        NW_TRY(nw_checkpoint_get_double(c, key, &deviation));
        d->mean[i] = (float)mean;
        d->deviation[i] = (float)deviation;
    }
    return read_names(p, c);
}

static nw_status prepare(predictor *p, const char *checkpoint)
{
    NW_CLEANUP(nw_checkpoint_autoclose) nw_checkpoint *c = NULL;
    NW_TRY(nw_checkpoint_open(&c, checkpoint));
    NW_TRY(read_dataset(p, c));

    nw_augment augment;
    nw_net_options options;
    bool averaged;
    NW_FAIL_IF(
        strcmp(p->options.run->data.normalise, "mean-image") == 0, NW_E_UNSUPPORTED,
        "this network subtracts the mean of its training images, which a checkpoint does not hold; 'nowait eval' "
        "works with it");
    NW_TRY(nw_plan_augment(&p->options.run->data, &p->dataset, false, NULL, &augment));
    NW_TRY(nw_plan_net(p->options.run, &p->dataset, &augment, 1, &options));
    NW_FAIL_IF(options.height != options.width, NW_E_UNSUPPORTED,
               "'predict' takes networks for square images, not %d x %d", options.height, options.width);
    NW_TRY(nw_session_load(checkpoint, &options, &p->net, &averaged));

    bool grey = p->dataset.channels == 1;
    augment.crop = options.height;
    if (p->dataset.height > 0) augment.resize = options.height; /* small images are seen whole */
    for (int i = 0; i < 3 && grey; i++) augment.mean[i] = 0, augment.deviation[i] = 1;
    NW_TRY(nw_transform_prepare(&p->transform, &augment, false, 3, 0, 0));
    size_t pixels = (size_t)options.height * (size_t)options.width;
    p->colour = malloc(3 * pixels * sizeof(float));
    p->input = malloc(3 * pixels * sizeof(float));
    p->logits = malloc((size_t)options.classes * sizeof(float));
    NW_FAIL_IF(!p->colour || !p->input || !p->logits, NW_E_MEMORY, "no memory for an image");
    return NW_OK;
}

/* ---- one image --------------------------------------------------------------------------------------------------- */

static nw_status answer(predictor *p, const char *path)
{
    size_t pixels = (size_t)p->transform.height * (size_t)p->transform.width;
    nw_rng none = nw_rng_make(0, NW_PURPOSE_AUGMENT, 0, 0); /* nothing is drawn from it */
    NW_TRY(nw_photo_load(&p->photo, &p->transform, nw_image_decode, path, &none, p->colour));
    const float *input = p->colour;
    if (p->dataset.channels == 1) {
        nw_augment usual;
        NW_TRY(nw_plan_augment(&p->options.run->data, &p->dataset, false, NULL, &usual));
        for (size_t i = 0; i < pixels; i++) {
            float grey = 0.299f * p->colour[i] + 0.587f * p->colour[pixels + i] + 0.114f * p->colour[2 * pixels + i];
            p->input[i] = (grey - usual.mean[0]) / usual.deviation[0];
        }
        input = p->input;
    }
    int32_t label = 0; /* not looked at */
    return nw_net_evaluate(p->net, input, &label, 1, p->logits, NULL);
}

static void softmax(float *values, int count)
{
    float most = values[0];
    double sum = 0;
    for (int i = 1; i < count; i++) most = fmaxf(most, values[i]);
    for (int i = 0; i < count; i++) sum += exp((double)(values[i] - most));
    for (int i = 0; i < count; i++) values[i] = (float)(exp((double)(values[i] - most)) / sum);
}

static void print_answer(predictor *p, const char *path)
{
    int classes = p->dataset.classes, top = nw_min(p->options.top, classes);
    bool as_json = strcmp(p->options.format, "json") == 0;
    softmax(p->logits, classes);
    if (as_json) {
        nw_json_object(&p->json);
        nw_json_put_string(&p->json, "image", path);
        nw_json_put_array(&p->json, "classes");
    } else {
        printf("%s\n", path);
    }
    for (int i = 0; i < top; i++) {
        int best = 0;
        for (int k = 1; k < classes; k++)
            if (p->logits[k] > p->logits[best]) best = k;
        char number[16];
        snprintf(number, sizeof number, "class %d", best);
        const char *name = p->name ? p->name[best] : number;
        double share = (double)p->logits[best];
        if (as_json) {
            nw_json_object(&p->json);
            nw_json_put_int(&p->json, "class", best);
            nw_json_put_string(&p->json, "name", name);
            nw_json_put_double(&p->json, "probability", share);
            nw_json_object_end(&p->json);
        } else {
            printf("  %6.2f %%  %s\n", 100 * share, name);
        }
        p->logits[best] = -1;
    }
    if (as_json) {
        nw_json_array_end(&p->json);
        nw_json_object_end(&p->json);
    }
}

static nw_status predict(predictor *p, int count, char **paths)
{
    NW_TRY(prepare(p, paths[0]));
    bool as_json = strcmp(p->options.format, "json") == 0;
    if (as_json) {
        p->json = nw_json_begin(stdout, true);
        nw_json_array(&p->json);
    }
    nw_status status = NW_OK;
    for (int i = 1; i < count && status == NW_OK; i++) {
        status = answer(p, paths[i]);
        if (status == NW_OK) print_answer(p, paths[i]);
    }
    if (as_json) {
        nw_json_array_end(&p->json);
        nw_json_end(&p->json);
    }
    return status;
}

static void free_predictor(predictor *p)
{
    nw_photo_free(&p->photo);
    nw_net_free(p->net);
    free(p->colour);
    free(p->input);
    free(p->logits);
    free(p->names);
    free(p->name);
}

nw_status nw_command_predict(int argc, char **argv)
{
    if (nw_wants_help(argc, argv)) {
        printf(
            "usage: nowait predict CHECKPOINT IMAGE... [options]\n\n"
            "Prints the most likely classes of JPEG or PNG files. CHECKPOINT is the directory of a run or a checkpoint.\n\n");
        nw_options_help(NW_COMMAND_PREDICT, stdout);
        return NW_OK;
    }
    NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
    NW_CLEANUP(free_predictor) predictor p = {0};
    int positional;
    NW_TRY(nw_session_parse(NW_COMMAND_PREDICT, argc, argv, &settings, &positional));
    NW_FAIL_IF(positional < 2, NW_E_ARGUMENT, "'nowait predict' takes a checkpoint and at least one image; see --help");
    p.options = nw_predict_options_of(settings);
    return predict(&p, positional, argv);
}
