/* command_options.c - see command_options.h. */
#include "config/settings.h"

const nw_train_options *nw_train_options_of(const nw_settings *s) { return &s->run; }

nw_eval_options nw_eval_options_of(const nw_settings *s)
{
    return (nw_eval_options){&s->run, .format = s->bench.format, .split = s->look.split};
}

nw_predict_options nw_predict_options_of(const nw_settings *s)
{
    return (nw_predict_options){&s->run, .format = s->bench.format, .top = s->look.top};
}

nw_sweep_options nw_sweep_options_of(const nw_settings *s)
{
    return (nw_sweep_options){&s->run.all, .run_name = s->run.job.run_name, .format = s->bench.format,
                              .grid = &s->experiment.grid, .seeds = s->experiment.seeds};
}

nw_reproduce_options nw_reproduce_options_of(const nw_settings *s)
{
    bool given = nw_settings_is_set(s, "dataset");
    return (nw_reproduce_options){&s->run.all,
                                  .scale = s->experiment.scale,
                                  .seeds = s->experiment.seeds,
                                  .real = s->experiment.real,
                                  .dry_run = s->experiment.dry_run,
                                  .dataset_given = given};
}

nw_replay_options nw_replay_options_of(const nw_settings *s)
{
    return (nw_replay_options){s, &s->run.all, .steps = s->bench.steps, .from = s->replay.from, .show = s->replay.show};
}

nw_launch_options nw_launch_options_of(const nw_settings *s) { return (nw_launch_options){s, &s->run.all, &s->launch}; }

nw_data_options nw_data_options_of(const nw_settings *s)
{
    return (nw_data_options){&s->run.all,
                             .val_ratio = s->run.data.val_ratio,
                             .limit = s->run.data.limit,
                             .classes = s->run.net.classes,
                             .format = s->bench.format,
                             .url = s->look.url,
                             .output = s->look.output};
}

nw_info_options nw_info_options_of(const nw_settings *s)
{
    return (nw_info_options){&s->run.all, &s->run.net, .models = s->look.models, .graph = s->look.graph};
}

nw_plan_options nw_plan_options_of(const nw_settings *s)
{
    return (nw_plan_options){&s->run.all,
                             &s->run.net,
                             .bandwidth = s->plan.bandwidth,
                             .latency = s->plan.latency,
                             .overhead = s->plan.overhead,
                             .format = s->bench.format,
                             .svg = s->plan.svg,
                             .ranks = s->plan.ranks,
                             .repeats = s->bench.repeats,
                             .bucket_bytes = s->run.world.bucket_bytes};
}

nw_bench_options nw_bench_options_of(const nw_settings *s)
{
    return (nw_bench_options){&s->run.all, &s->run.net, &s->run.data, &s->run.world, &s->run.codec, &s->bench};
}
