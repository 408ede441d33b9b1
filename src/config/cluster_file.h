/*
 * cluster_file.h - cluster.yaml and faults.yaml into the structs of sim/cluster.h and sim/faults.h. docs/cluster.md has
 * the format.
 *
 * Files are not trusted: sizes and counts are limited, keys unknown or out of place are refused with the nearest one,
 * quantities need their units (units.h). Every failure is NW_E_FILE and names file and line, cause and remedy; a build
 * without libyaml refuses all files with NW_E_UNSUPPORTED.
 */
#ifndef NW_CONFIG_CLUSTER_FILE_H
#define NW_CONFIG_CLUSTER_FILE_H

#include "sim/cluster.h"
#include "sim/faults.h"

#include <stdio.h>

/* What `--cluster NAME` means: a name that is built in (ideal, 1g, 10g, 100g), a path to a .yaml file, or a name of
 * clusters/NAME.yaml, found as recipes are. `world` is what --virtual says; 0: what the file says. `seed` is the
 * run's, and holds where the file has none. NW_E_ARGUMENT names the nearest known name. */
nw_status nw_cluster_load(nw_cluster **cluster, const char *name, int world, uint64_t seed);

/* The bytes of a file. */
nw_status nw_cluster_parse(nw_cluster **cluster, const char *name, const void *data, size_t size, int world,
                           uint64_t seed);

/* What `--faults NAME` means: a path to a .yaml file, or a name of clusters/faults/NAME.yaml. */
nw_status nw_faults_load(nw_faults **faults, const char *name, int world);
nw_status nw_faults_parse(nw_faults **faults, const char *name, const void *data, size_t size, int world);

typedef struct nw_measured_stage {
    const char *name;
    int64_t forward_ns, backward_ns;
} nw_measured_stage;

/* Times are of one batch on one rank, while `ranks` ranks of `threads` threads ran at once. */
typedef struct nw_measured {
    char machine[128]; /* the CPU's name */
    const char *isa, *precision, *model;
    int batch, threads, ranks, stages;
    nw_measured_stage *stage;
    int64_t overhead_ns;            /* what no stage owns: taking the images in, the loss */
    int64_t update_ns;              /* the optimizer over all parameters */
    double noise;                   /* standard deviation of the logarithm of a step's time, 0 to 1 */
    double memory_bytes_per_second; /* adding received values to a vector */
    int64_t link_latency_ns;        /* between two ranks of this machine; */
    double link_bytes_per_second;   /* both 0 where only one rank was measured */
    nw_factors codecs;              /* those of a codec one after the other */
} nw_measured;

/* The cluster file of what was measured. */
void nw_measured_print(const nw_measured *measured, FILE *out);

#endif
