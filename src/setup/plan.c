/* plan.c - see plan.h. */
#include "setup/plan.h"

#include "base/file.h"
#include "data/facts.h"
#include "param/init.h"
#include "setup/download.h"
#include "setup/plan_codec.h"
#include "setup/plan_gossip.h"
#include "setup/plan_local.h"

#include <stdlib.h>
#include <string.h>

static bool is(const char *text, const char *word) { return strcmp(text, word) == 0; }
static const char *or_null(const char *text) { return text[0] ? text : NULL; }

nw_status nw_plan_dataset(const nw_common_settings *all, const nw_data_settings *data, int classes,
                          nw_dataset **dataset)
{
    nw_download_talk talk = {0};
    /* A folder of the user's that is not there is a mistake, and nothing to be filled. */
    bool mistaken = !is(all->data_dir, "./data") && !nw_file_is_directory(all->data_dir);
    nw_dataset_options o = {.name = data->dataset,
                            .dir = all->data_dir,
                            .download = data->download && !mistaken,
                            .val_ratio = data->val_ratio,
                            .classes = classes,
                            .limit = data->limit,
                            .image_size = data->crop > 0 ? data->crop : 0,
                            .seed = (uint64_t)all->seed,
                            .progress = all->quiet ? NULL : nw_download_print,
                            .progress_context = &talk};
    return nw_dataset_open(dataset, &o);
}

/* ---- augmentation ------------------------------------------------------------------------------------------------ */

typedef struct normalisation {
    const char *name;
    float mean[3], deviation[3];
} normalisation;

static const normalisation normalisations[] = {
    {"cifar10", {0.4914f, 0.4822f, 0.4465f}, {0.2023f, 0.1994f, 0.2010f}},
    {"cifar10-fast", {0.4914f, 0.4822f, 0.4465f}, {0.2471f, 0.2435f, 0.2616f}},
    {"cinic10", {0.47889522f, 0.47227842f, 0.43047404f}, {0.24205776f, 0.23828046f, 0.25874835f}},
    {"imagenet", {0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}},
    {"mnist", {0.1307f, 0.1307f, 0.1307f}, {0.3081f, 0.3081f, 0.3081f}},
    {"none", {0, 0, 0}, {1, 1, 1}},
};

static void set_normalisation(const char *name, nw_augment *augment)
{
    for (size_t i = 0; i < sizeof normalisations / sizeof normalisations[0]; i++) {
        if (!is(name, normalisations[i].name)) continue;
        for (int c = 0; c < 3; c++) {
            augment->mean[c] = normalisations[i].mean[c];
            augment->deviation[c] = normalisations[i].deviation[c];
        }
    }
}

/* What the dataset's users do when nothing else is said: small colour images are padded by 4, cropped and mirrored,
 * photographs cropped at random and mirrored, drawings and digits left alone. */
static void usual(const nw_dataset *d, nw_augment *augment)
{
    bool photographs = d->height == 0, colour = d->channels == 3, synthetic = is(d->name, "synthetic");
    augment->resized_crop = photographs;
    augment->flip = (photographs || colour) && !synthetic;
    augment->pad = colour && !photographs && !synthetic ? d->height / 8 : 0;
}

nw_status nw_plan_augment(const nw_data_settings *s, const nw_dataset *d, bool augmented, const float *mean_image,
                          nw_augment *augment)
{
    *augment = nw_augment_plain(d);
    set_normalisation(is(s->normalise, "mean-image") ? "none" : s->normalise, augment);
    augment->mean_image = mean_image;
    if (s->crop >= 0) augment->crop = s->crop;
    if (s->resize >= 0) augment->resize = s->resize;
    if (!augmented) return NW_OK;
    usual(d, augment);
    if (s->pad >= 0) augment->pad = s->pad;
    if (s->cutout >= 0) augment->cutout = s->cutout;
    if (s->flip >= 0) augment->flip = s->flip;
    if (s->resized_crop >= 0) augment->resized_crop = s->resized_crop;
    augment->pad_reflect = is(s->pad_mode, "reflect");
    return NW_OK;
}

/* ---- networks ---------------------------------------------------------------------------------------------------- */

static const char *lines_of(const nw_text_list *list) { return list->count ? list->lines : NULL; }

nw_status nw_plan_variant(const nw_model_settings *s, nw_model_variant *v)
{
    *v = (nw_model_variant){.stem = or_null(s->stem),
                            .init_scheme = or_null(s->init_scheme),
                            .zero_init_residual = s->last_bn_zero_init,
                            .compat_ref = s->compat_ref,
                            .n_layers = s->n_layers,
                            .hidden_size = s->hidden_size,
                            .residuals = lines_of(&s->residual_layers),
                            .extra_layers = lines_of(&s->extra_layers),
                            .output_weight = (float)s->output_weight};
    v->dropout = s->dropout < 0 ? 0.0f : s->dropout == 0 ? -1.0f : (float)s->dropout; /* the model's own, none, this */
    NW_FAIL_IF(s->channels.count != 0 && s->channels.count != 4, NW_E_ARGUMENT,
               "--channels takes four numbers, for prep, layer1, layer2 and layer3, not %d", s->channels.count);
    for (int i = 0; i < s->channels.count; i++) v->widths[i] = s->channels.at[i];
    return NW_OK;
}

nw_net_options nw_plan_net_alone(const nw_common_settings *all, const nw_model_settings *net, int batch_size)
{
    nw_net_options o = nw_net_options_default();
    o.model = net->model;
    o.batch_size = batch_size;
    o.base_width = net->width;
    o.precision = nw_settings_precision(net);
    o.direct_convolution = nw_settings_direct(net);
    o.threads = all->threads;
    o.seed = (uint64_t)all->seed;
    return o;
}

nw_status nw_plan_net(const nw_train_options *s, const nw_dataset *d, const nw_augment *augment, int batch_size,
                      nw_net_options *o)
{
    int side = augment->crop, photograph = 224;
    *o = nw_plan_net_alone(&s->all, &s->net, batch_size);
    o->channels = d->channels;
    o->height = side ? side : d->height ? d->height : photograph;
    o->width = side ? side : d->height ? d->width : photograph;
    o->classes = d->classes;
    o->label_smoothing = (float)s->training.label_smoothing;
    o->loss_sum = is(s->training.loss_reduction, "sum");
    return nw_plan_variant(&s->net, &o->variant);
}

/* ---- the run ----------------------------------------------------------------------------------------------------- */

nw_status nw_plan_optimizer(const nw_optimizer_settings *s, nw_optimizer_options *o)
{
    *o = nw_optimizer_options_default(s->optimizer);
    o->momentum = s->momentum;
    o->dampening = s->dampening;
    o->nesterov = s->nesterov;
    o->beta1 = s->beta1;
    o->beta2 = s->beta2;
    o->eps = s->eps;
    if (s->amsgrad != NW_SWITCH_AUTO) o->amsgrad = s->amsgrad == NW_SWITCH_ON;
    o->freeze = (uint64_t)s->freeze_variance;
    o->weight_decay = s->weight_decay;
    o->lars_trust = s->lars_trust;
    o->lars_eps = s->lars_eps;
    o->lars_clip = s->lars_clip;
    o->clip_norm = s->clip_norm;
    o->clip_value = s->clip_value;
    NW_TRY(nw_decay_filter_find(s->decay_filter, &o->decay_filter));
    NW_FAIL_IF(s->box.count != 0 && s->box.count != 2, NW_E_ARGUMENT,
               "--box takes the least and the greatest weight, not %d numbers", s->box.count);
    if (s->box.count) {
        o->box = true;
        o->box_low = s->box.at[0];
        o->box_high = s->box.at[1];
    }
    return NW_OK;
}

/* The learning rate over time; the batches of an epoch are not known here. */
static void plan_schedule(const nw_train_options *s, const char *dataset, int replicas, nw_schedule_options *o)
{
    *o = nw_schedule_options_default();
    o->name = s->rate.scheduler;
    o->lr = s->update.lr;
    o->epochs = s->all.epochs;
    o->batch_size = s->net.batch_size;
    o->accumulation_steps = s->update.accumulation_steps;
    o->replicas = replicas;
    o->lr_scaling = s->rate.lr_scaling;
    o->goyal_lr_scaling = s->rate.goyal_lr_scaling;
    o->replica_scaling = s->rate.replica_lr_scaling;
    o->use_linear_scaling = s->rate.use_linear_scaling;
    o->warmup_epochs = s->rate.warm_up;
    o->warmup_from = s->rate.warm_up_from < 0 ? 1.0 / replicas : s->rate.warm_up_from;
    o->warmup = s->rate.warm_up_from < 0 ? NW_WARMUP_STEP_START : NW_WARMUP_STEP_END;
    o->milestones = s->rate.milestones.at;
    o->milestone_count = s->rate.milestones.count;
    o->factor = s->rate.lr_decay_fact;
    o->cifar_milestones = strncmp(dataset, "cifar", 5) == 0;
    o->compat = s->net.compat_ref;
    o->t_max = s->rate.t_max;
    o->per_step = !s->rate.schedule_lr_per_epoch;
    o->knots = (const double *)s->rate.lr_knots.at; /* a knot is two doubles */
    o->knot_count = s->rate.lr_knots.count;
    o->lr_max = s->rate.lr_max;
}

static nw_status plan_best(const nw_training_settings *s, const nw_dataset *d, nw_best_rule *rule)
{
    *rule = (nw_best_rule){.none = is(s->metric, "none"), .validation = strncmp(s->metric, "val_", 4) == 0};
    const char *by = strchr(s->metric, '_');
    rule->by = by && is(by, "_top5") ? NW_BEST_TOP5 : by && is(by, "_loss") ? NW_BEST_LOSS : NW_BEST_TOP1;
    NW_FAIL_IF(rule->validation && d->split[NW_SPLIT_VALID].count == 0, NW_E_ARGUMENT,
               "--metric %s needs a validation split; give --val-ratio, for example 0.1", s->metric);
    return NW_OK;
}

/* The files' own where they have one, otherwise that of the training images. */
static nw_status make_mean_image(const nw_dataset *d, float **mean)
{
    size_t count = (size_t)d->channels * (size_t)nw_max(d->height, 1) * (size_t)nw_max(d->width, 1);
    NW_NEW(*mean, count, "a mean image");
    if (!d->mean_image) return nw_data_mean_image(d, *mean);
    memcpy(*mean, d->mean_image, count * sizeof **mean);
    return NW_OK;
}

static nw_norm_sync plan_norms(const nw_train_options *s)
{
    return is(s->world.bn_sync, "local")     ? NW_NORMS_LOCAL
           : is(s->world.bn_sync, "average") ? NW_NORMS_AVERAGE
                                             : NW_NORMS_RECALIBRATE;
}

nw_exchange_options nw_plan_exchange(const nw_train_options *s, const nw_world *w)
{
    bool sync = is(s->server.communication, "sync") && !is(s->world.exchange, "gossip");
    nw_exchange_options o = {.name = s->world.exchange,
                             .group = {.count = w ? w->size : 1, .me = w ? w->rank : 0},
                             .layout = {.bucket_bytes = (size_t)s->world.bucket_bytes,
                                        .ranges = is(s->world.exchange, "gossip")},
                             .delay = s->world.delay,
                             .sync = sync,
                             .servers = s->server.servers,
                             .server_computes = s->server.server_computes,
                             .in_flight = s->server.in_flight,
                             .memory_bytes = (size_t)s->server.server_memory,
                             .max_staleness = s->server.max_staleness,
                             .staleness = is(s->server.staleness, "wait")   ? NW_STALE_WAIT
                                          : is(s->server.staleness, "drop") ? NW_STALE_DROP
                                                                            : NW_STALE_WEIGHT,
                             .correction = is(s->server.server_correction, "none")      ? NW_CORRECT_NONE
                                           : is(s->server.server_correction, "inverse") ? NW_CORRECT_INVERSE
                                                                                        : NW_CORRECT_DC,
                             .dc_lambda = s->server.dc_lambda,
                             .deadline_ns = (int64_t)(s->world.timeout * 1e9)};
    nw_plan_outer(s, &o);
    return o;
}

int nw_plan_replicas(const nw_train_options *s, const nw_world *w)
{
    nw_exchange_options e = nw_plan_exchange(s, w);
    if (!is(s->world.exchange, "server")) return e.group.count;
    int workers = nw_server_workers(&e);
    return e.sync && workers > 0 ? workers : 1;
}

static nw_status check_server(const nw_train_options *s)
{
    bool serves = is(s->world.exchange, "server");
    const int64_t usual_memory = (int64_t)4 << 30;
    const char *alone = !is(s->server.communication, "sync")       ? "communication"
                        : s->server.servers > 1                    ? "servers"
                        : s->server.server_computes                ? "server-computes"
                        : s->server.max_staleness >= 0             ? "max-staleness"
                        : !is(s->server.server_correction, "none") ? "server-correction"
                        : s->server.in_flight > 1                  ? "in-flight"
                        : s->server.server_threads > 0             ? "server-threads"
                        : s->server.server_memory != usual_memory  ? "server-memory"
                                                                   : NULL;
    NW_FAIL_IF(!serves && alone, NW_E_ARGUMENT, "--%s is for a parameter server; add --exchange server", alone);
    NW_FAIL_IF(serves && s->server.servers > 1 && s->update.clip_norm > 0, NW_E_ARGUMENT,
               "--clip-norm needs the whole gradient, of which each of %d servers has a part; use --servers 1",
               s->server.servers);
    NW_FAIL_IF(
        serves && s->server.servers > 1 && is(s->update.optimizer, "lars"), NW_E_ARGUMENT,
        "--optimizer lars needs the norms of whole tensors, of which each of %d servers has a part; use --servers 1",
        s->server.servers);
    NW_FAIL_IF(serves && s->server.servers > 1 && s->training.ema_decay > 0, NW_E_ARGUMENT,
               "an average of the weights needs all of them, of which each of %d servers has a part; use --servers 1",
               s->server.servers);
    return NW_OK;
}

static nw_status plan_codecs(const nw_train_options *s, nw_assign_options *o)
{
    return nw_plan_codecs(&s->codec, s->world.exchange, &s->update, (uint64_t)s->all.seed, o);
}

nw_status nw_plan_check_exchange(const nw_train_options *s)
{
    NW_TRY(nw_plan_check_gossip(s));
    NW_FAIL_IF(s->world.delay > 0 && !is(s->world.exchange, "allreduce") && !is(s->world.exchange, "local"),
               NW_E_ARGUMENT,
               "--delay is how late allreduce applies gradients, and local outer steps; add --exchange allreduce");
    NW_TRY(nw_plan_check_outer(s));
    NW_CLEANUP(nw_plan_codecs_free) nw_assign_options codecs = {0};
    NW_TRY(plan_codecs(s, &codecs));
    return check_server(s);
}

static nw_status check_data(const nw_train_options *s)
{
    const double usual_alpha = 0.3;
    NW_FAIL_IF(s->data.dirichlet_alpha != usual_alpha && !s->data.non_iid_data, NW_E_ARGUMENT,
               "--dirichlet-alpha %g says how unequal the workers' images are; add --non-iid-data",
               s->data.dirichlet_alpha);
    return NW_OK;
}

static nw_status plan_group(const nw_train_options *s, const nw_world *w, nw_replicas_options *o)
{
    bool several = w && w->size > 1;
    o->mode = w ? w->mode : NW_REPLICAS_ALONE;
    o->world = w ? w->size : 1;
    o->rank = w ? w->rank : 0;
    o->cluster = w ? w->cluster : NULL;
    o->faults = w ? w->faults : NULL;
    o->exchange = nw_plan_exchange(s, w);
    NW_TRY(nw_plan_gossip(s, o));
    o->norms = plan_norms(s);
    o->recalibrate_batches = s->world.recalibrate_batches;
    o->shared_epochs = is(s->data.epoch_of, "all");
    o->driver.timeout_ns = (int64_t)(s->world.timeout * 1e9);
    o->trace = s->world.trace;
    o->trace_events = (size_t)s->world.trace_events;
    if (several) {
        o->dirichlet_alpha = s->data.non_iid_data ? s->data.dirichlet_alpha : 0;
        o->replica.loader.replicate = is(s->data.sampling, "replicate");
        if (o->mode != NW_REPLICAS_MPI) o->replica.loader.workers = 0; /* many replicas share this process's cores */
    }
    return plan_codecs(s, &o->codecs);
}

/* Options of one law are refused beside another, since they would do nothing there. A run that goes on has all options
 * in its file, so they count where they differ from what the table says. */
static nw_status plan_delays(const nw_train_options *s, int replicas, nw_delay_options *o)
{
    const int usual_workers = 10;
    const double usual_tail = 1;
    *o = (nw_delay_options){.models = s->delays.max_delay,
                            .tail = s->delays.delay_tail,
                            .workers = s->delays.delay_workers,
                            .seed = (uint64_t)s->all.seed};
    NW_TRY(nw_delay_law_find(s->delays.delay_law, &o->law));
    NW_FAIL_IF(s->delays.max_delay > 1 && (replicas > 1 || !is(s->world.exchange, "none")), NW_E_ARGUMENT,
               "--max-delay %d simulates delays in one replica alone, but there are %d, with --exchange %s; start one "
               "process, with --exchange none",
               s->delays.max_delay, replicas, s->world.exchange);
    NW_FAIL_IF(!nw_settings_is_set(s->settings, "max-delay") && nw_settings_is_set(s->settings, "delay-law"),
               NW_E_ARGUMENT,
               "--delay-law %s says which of the last D models a gradient is taken at; give D with --max-delay",
               s->delays.delay_law);
    NW_FAIL_IF(s->delays.delay_tail != usual_tail && o->law != NW_DELAY_HEAVY, NW_E_ARGUMENT,
               "--delay-tail %g is for heavy-tailed delays; add --delay-law heavy, and --max-delay",
               s->delays.delay_tail);
    NW_FAIL_IF(s->delays.delay_workers != usual_workers && o->law != NW_DELAY_WORKER, NW_E_ARGUMENT,
               "--delay-workers %d is for delays by worker; add --delay-law worker, and --max-delay",
               s->delays.delay_workers);
    return nw_delay_check(o);
}

nw_status nw_plan_check(const nw_train_options *s)
{
    const nw_model_family *family;
    const nw_init_scheme *scheme;
    nw_model_variant variant;
    nw_optimizer_options optimizer;
    nw_delay_options delay;
    NW_TRY(nw_settings_check(s->settings));
    NW_TRY(nw_model_find(s->net.model, &family));
    if (!is(s->net.model, family->name)) NW_TRY(nw_settings_replace(s->settings, "model", family->name, ""));
    if (!is(s->net.init_scheme, "default")) NW_TRY(nw_init_find(s->net.init_scheme, &scheme));
    NW_FAIL_IF(s->net.init[0] && !nw_checkpoint_exists(s->net.init), NW_E_FILE,
               "--init %s: there is no checkpoint; check the path", s->net.init);
    NW_TRY(nw_plan_variant(&s->net, &variant));
    NW_TRY(nw_plan_optimizer(&s->update, &optimizer));
    NW_TRY(nw_plan_check_exchange(s));
    NW_TRY(check_data(s));
    return plan_delays(s, nw_max(1, s->world.virtual_ranks), &delay);
}

static void plan_record(const nw_train_options *s, const char *dataset, nw_run_record *record)
{
    nw_record_clear(NW_RECORD_RUN, record);
    record->model = s->net.model;
    record->dataset = dataset;
    record->algorithm = s->training.algorithm;
    record->exchange = s->world.exchange;
    record->method = s->codec.method;
    record->compress = s->codec.compress;
    record->optimizer = s->update.optimizer;
    record->scheduler = s->rate.scheduler;
    record->loss_reduction = s->training.loss_reduction;
    record->name = s->job.run_name;
    record->version = nw_version();
    record->commit = nw_build_commit();
}

nw_status nw_plan_run(const nw_train_options *s, const nw_dataset *d, const nw_world *w, nw_run_options *o)
{
    memset(o, 0, sizeof *o);
    NW_FAIL_IF(d->split[NW_SPLIT_TRAIN].count == 0, NW_E_FILE,
               "%s has no training images; check --dataset and --data-dir", d->source);
    NW_FAIL_IF(d->split[NW_SPLIT_TEST].count == 0, NW_E_FILE, "%s has no test images; check --dataset and --data-dir",
               d->source);
    nw_replica_options *r = &o->group.replica;
    nw_augment augment;
    int workers = s->data.workers;
    if (is(s->data.normalise, "mean-image")) NW_TRY(make_mean_image(d, &o->mean_image));
    NW_TRY(nw_plan_augment(&s->data, d, true, o->mean_image, &augment));
    NW_TRY(nw_plan_augment(&s->data, d, false, o->mean_image, &o->test_augment));
    o->test_batch_size = s->training.test_batch_size ? s->training.test_batch_size : s->net.batch_size;
    o->train_eval_batch_size =
        s->training.train_eval_batch_size ? s->training.train_eval_batch_size : o->test_batch_size;
    int most =
        nw_max(s->net.batch_size, nw_max(o->test_batch_size, s->training.train_metrics ? o->train_eval_batch_size : 0));
    NW_TRY(nw_plan_net(s, d, &augment, most, &r->net));
    if (w) r->net.threads = w->threads;
    bool serves = w && w->mode == NW_REPLICAS_MPI && is(s->world.exchange, "server") && !s->server.server_computes &&
                  w->rank < s->server.servers;
    if (serves && s->server.server_threads > 0) r->net.threads = s->server.server_threads;
    NW_TRY(nw_plan_optimizer(&s->update, &r->optimizer));
    plan_schedule(s, d->name, nw_plan_replicas(s, w), &r->schedule);
    bool divides = s->server.global_batch && is(s->world.exchange, "server") && is(s->server.communication, "sync");
    int shared = divides ? nw_plan_replicas(s, w) : 1;
    NW_FAIL_IF(shared > s->net.batch_size, NW_E_ARGUMENT,
               "--batch-size %d is the total over all workers (--global-batch), and too small for %d of them",
               s->net.batch_size, shared);
    o->group.global_batch = divides ? s->net.batch_size : 0;
    r->loader = (nw_loader_options){.dataset = d,
                                    .split = NW_SPLIT_TRAIN,
                                    .batch_size = s->net.batch_size / shared,
                                    .shuffle = true,
                                    .drop_last = s->data.drop_last,
                                    .augmented = true,
                                    .augment = augment,
                                    .seed = (uint64_t)s->all.seed,
                                    .workers = workers,
                                    .decode = nw_image_decode};
    r->max_batches = s->training.max_batches;
    r->accumulation = s->update.accumulation_steps;
    r->averaging = s->update.accumulation_averaging;
    r->ema_decay = s->training.ema_decay;
    r->ema_every = s->training.ema_every;
    r->ema_from = s->training.ema_epochs > 0 ? s->all.epochs - s->training.ema_epochs : 0;
    r->watch = !is(s->training.on_divergence, "continue");
    r->diverged = s->training.divergence_factor;
    NW_TRY(plan_delays(s, w ? w->size : 1, &r->delay));
    nw_plan_outer_rule(s, r);
    o->rollbacks = is(s->training.on_divergence, "rollback") ? s->training.max_rollbacks : 0;
    o->rollback_lr = s->training.rollback_lr;
    NW_TRY(plan_group(s, w, &o->group));
    o->compare_every = s->world.compare_every;
    o->dataset = d;
    o->workers = workers;
    o->both_views = is(s->training.tta, "flip");
    o->train_metrics = s->training.train_metrics;
    o->epochs = s->all.epochs;
    o->max_steps = s->all.max_steps;
    o->start_epoch = s->training.start_epoch;
    o->eval_every = s->training.eval_every;
    o->evaluate_first = s->training.evaluate_first;
    NW_TRY(plan_best(&s->training, d, &o->best));
    o->name_checkpoint = or_null(s->job.name_checkpoint);
    o->resume = or_null(s->job.resume);
    o->init = or_null(s->net.init);
    o->checkpoint_every = s->job.checkpoint_every;
    o->keep = s->job.keep;
    o->record_events = s->world.record_events;
    plan_record(s, d->name, &o->record);
    return NW_OK;
}

void nw_plan_free(nw_run_options *o)
{
    free(o->mean_image);
    nw_plan_codecs_free(&o->group.codecs);
}
