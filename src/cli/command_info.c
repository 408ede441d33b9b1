/*
 * command_info.c - `nowait info`: the machine and the build, with a self-test of every usable instruction set; or a
 * model's stages with parameters, multiply-adds and activation memory, and a drawing of them.
 */
#include "bench/bench.h"
#include "cli/command.h"
#include "setup/plan.h"

#include "compute/isa.h"
#include "compute/self_test.h"
#include "net/mpi.h"
#include "nn/model.h"
#include "observe/drawing.h"
#include "param/init.h"

#include <string.h>

static void usage(void)
{
    printf("usage: nowait info [MODEL] [options]   this machine and build; or a model's stages\n");
    nw_options_help(NW_COMMAND_INFO, stdout);
}

/* Libraries that the build can do without, and what is refused where they are missing. */
static const struct {
    const char *name, *package, *use;
    bool here;
} features[] = {
    {"yaml", "libyaml-dev", "recipes, files of options, clusters, resuming runs", NW_HAVE_YAML},
    {"zlib", "zlib1g-dev", "compressed datasets and event logs", NW_HAVE_ZLIB},
    {"jpeg", "libjpeg62-turbo-dev", "JPEG files", NW_HAVE_JPEG},
    {"png", "libpng-dev", "PNG files", NW_HAVE_PNG},
    {"curl", "libcurl4-openssl-dev", "downloads of datasets", NW_HAVE_CURL},
    {"archive", "libarchive-dev", "unpacking of downloads", NW_HAVE_ARCHIVE},
    {"protobuf-c", "libprotobuf-c-dev protobuf-c-compiler", "event files for TensorBoard", NW_HAVE_PROTOBUF_C},
    {"lapack", "liblapack-dev", "--apply-acid on graphs without a closed form", NW_HAVE_LAPACK},
};

static void show_features(void)
{
    printf("libraries\n");
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        printf("  %-16s ", features[i].name);
        if (features[i].here)
            printf("yes, for %s\n", features[i].use);
        else
            printf("no: without %s; Debian: %s\n", features[i].use, features[i].package);
    }
    if (nw_mpi_available())
        printf("  %-16s yes, for several ranks: %s\n", "mpi", nw_mpi_library());
    else
        printf("  %-16s no: without ranks over mpirun and srun; Debian: libopenmpi-dev openmpi-bin\n", "mpi");
}

static nw_status show_machine(void)
{
    char cpu[128];
    nw_machine_cpu_name(cpu, sizeof cpu);
    printf("nowait      %s, commit %s\n", nw_version(), nw_build_commit());
    printf("cpu         %s, %d usable\n", cpu, nw_machine_allowed_cpus());
    printf("memory      %.1f GB available\n", (double)nw_machine_available_memory() / 1e9);
    show_features();
    printf("sets        (self-test: convolutions against the generic set)\n");
    nw_status worst = NW_OK;
    for (int i = 0; i < nw_isa_count(); i++) {
        const nw_kernels *k = nw_isa_kernels(i);
        const char *why = nw_isa_why_not(i), *type = k->dtype == NW_BF16 ? "bf16" : "f32";
        if (why) {
            printf("  %-16s %-5s no: %s\n", k->isa, type, why);
            continue;
        }
        double error;
        nw_status status = nw_self_test(k, &error);
        printf("  %-16s %-5s yes, self-test %s (differs by %.1e)\n", k->isa, type,
               status == NW_OK ? "passed" : "FAILED", error);
        if (status != NW_OK) worst = status;
    }
    const nw_kernels *chosen;
    const char *note;
    NW_TRY(nw_isa_select(NW_PRECISION_AUTO, &chosen, &note));
    printf("chosen      %s, %s\n", chosen->isa, chosen->dtype == NW_BF16 ? "bf16" : "f32");
    return worst;
}

static void show_models(void)
{
    for (int i = 0; i < nw_model_families(); i++)
        printf("%-16s %s\n", nw_model_family_at(i)->name, nw_model_family_at(i)->summary);
    printf("\ninitial values (--init-scheme; default is each model's own)\n");
    for (int i = 0; i < nw_init_schemes(); i++)
        printf("%-16s %s\n", nw_init_scheme_at(i)->name, nw_init_scheme_at(i)->summary);
}

static size_t stage_parameters(const nw_model *m, int stage)
{
    size_t count = 0;
    for (int i = 0; i < m->params.learned.count; i++)
        if (m->params.learned.at[i].stage == stage) count += m->params.learned.at[i].count;
    return count;
}

static void print_stages(const nw_model *m, int batch)
{
    static const char line[] = "%-22s %-14s %12zu %18s %12.2f %12.2f\n";
    char kept_title[32];
    snprintf(kept_title, sizeof kept_title, "kept MB/%d", batch);
    printf("%-22s %-14s %12s %18s %12s %12s\n", "stage", "kind", "parameters", "output", "M MACs", kept_title);
    double macs = 0, kept = 0;
    for (int i = 0; i < m->count; i++) {
        const nw_stage *stage = m->stages[i];
        char shape[40];
        snprintf(shape, sizeof shape, "%s%d x %d x %d", stage->two_streams ? "2 x " : "", stage->out_c, stage->out_h,
                 stage->out_w);
        printf(line, stage->name, stage->ops->kind, stage_parameters(m, i), shape, stage->macs * 1e-6,
               (double)stage->kept_bytes / 1e6);
        macs += stage->macs;
        kept += (double)stage->kept_bytes;
    }
    printf(line, "total", "", m->params.learned.floats, "", macs * 1e-6, kept / 1e6);
}

static nw_status draw_model(const nw_model *m, const char *path)
{
    static nw_drawing_stage nodes[NW_MAX_STAGES];
    for (int i = 0; i < m->count; i++) {
        const nw_stage *stage = m->stages[i];
        nodes[i] = (nw_drawing_stage){.name = stage->name,
                                   .kind = stage->ops->kind,
                                   .shortcut = stage->shortcut,
                                   .reversible = stage->ops->inverse != NULL,
                                   .two_streams = stage->two_streams,
                                   .c = stage->out_c,
                                   .h = stage->out_h,
                                   .w = stage->out_w,
                                   .parameters = stage_parameters(m, i),
                                   .macs = stage->macs};
    }
    const nw_model_options *o = &m->options;
    nw_drawing graph = {
        .title = o->name, .c = o->channels, .h = o->height, .w = o->width, .nodes = nodes, .count = m->count};
    NW_TRY(nw_drawing_write(&graph, path));
    fprintf(stderr, "nowait: drew %s as %s\n", o->name, path);
    return NW_OK;
}

static nw_status show_model(const char *name, const nw_info_options *s)
{
    enum { BATCH = 128 };
    static nw_model m;
    const nw_kernels *kernels;
    nw_model_options o = {.name = name,
                          .height = s->net->image_size,
                          .width = s->net->image_size,
                          .classes = s->net->classes,
                          .base_width = s->net->width};
    NW_TRY(nw_isa_select(NW_PRECISION_AUTO, &kernels, NULL));
    int threads = s->all->threads ? s->all->threads : nw_machine_allowed_cpus();
    NW_TRY(nw_plan_variant(s->net, &o.variant));
    NW_TRY(nw_model_make(&m, &o, kernels, BATCH, threads));
    nw_arena arena = nw_arena_measure();
    nw_model_bind(&m, &arena);
    print_stages(&m, BATCH);
    printf("training memory at batch %d in %s: %.0f MB (weights, gradients, momentum, activations, scratch)\n", BATCH,
           kernels->dtype == NW_BF16 ? "bf16" : "f32",
           ((double)arena.used + 4.0 * (double)m.params.learned.floats) / 1e6);
    nw_status status = *s->graph ? draw_model(&m, s->graph) : NW_OK;
    nw_model_free(&m);
    return status;
}

nw_status nw_command_info(int argc, char **argv)
{
    if (nw_wants_help(argc, argv)) {
        usage();
        return NW_OK;
    }
    NW_CLEANUP(nw_settings_free) nw_settings *settings = NULL;
    int positional;
    NW_TRY(nw_options_parse(NW_COMMAND_INFO, argc, argv, &settings, &positional));
    NW_FAIL_IF(positional > 1, NW_E_ARGUMENT, "'nowait info' takes one model, not %d", positional);
    nw_info_options options = nw_info_options_of(settings);
    if (!options.models) return positional ? show_model(argv[0], &options) : show_machine();
    show_models();
    return NW_OK;
}
