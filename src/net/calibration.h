/*
 * calibration.h - what one machine was measured to need for a batch, as a file: written by `--calibrate FILE`, read by
 * the key `calibration:` of a cluster file. Virtual time comes from it; nothing here measures.
 *
 * The file is JSON (docs/cluster.md lists its members). Times are medians in nanoseconds for one batch of `batch`
 * images on one rank, while `ranks` ranks of `threads` threads ran at once.
 */
#ifndef NW_NET_CALIBRATION_H
#define NW_NET_CALIBRATION_H

#include "base/status.h"

enum {
    NW_CALIBRATION_VERSION = 2,
    NW_CALIBRATION_STAGES = 4096, /* at most */
    NW_CALIBRATION_RANKS = 1024,
    NW_CALIBRATION_BYTES = 4 << 20, /* of the file */
};

typedef struct nw_calibration_stage {
    char name[64];
    int64_t forward_ns, backward_ns;
} nw_calibration_stage;

typedef struct nw_calibration {
    char written_by[96]; /* program, version, commit */
    char machine[128];   /* the CPU's name */
    char isa[32], precision[16], model[64];
    int batch, threads, ranks;
    int stages;
    nw_calibration_stage *stage;
    int64_t overhead_ns;           /* of a batch, what no stage owns: taking the images in, the loss */
    int64_t update_ns;             /* the optimizer over all parameters */
    double step_noise;             /* standard deviation of the logarithm of a step's time, 0 to 1 */
    double touch_bytes_per_second; /* adding received values to a vector: bytes received per second */
    int64_t link_latency_ns;       /* between two ranks of this machine; */
    double link_bytes_per_second;  /* both 0 where only one rank was measured */
    int64_t link_overhead_ns;      /* CPU time of a message at each end */
} nw_calibration;

/* Room for the times of `stages` stages, all zero. Freed by nw_calibration_free. */
nw_status nw_calibration_init(nw_calibration *calibration, int stages);
void nw_calibration_free(nw_calibration *calibration);
nw_status nw_calibration_copy(nw_calibration *to, const nw_calibration *from);

/* What a reader would refuse is not written: NW_E_ARGUMENT names the member. The text is to be freed. */
nw_status nw_calibration_print(const nw_calibration *calibration, char **text, size_t *size);
nw_status nw_calibration_write(const nw_calibration *calibration, const char *path);

/* Every member is checked: NW_E_FILE names file, byte, member and what was expected. After a failure the struct is
 * empty. `name` is for messages. */
nw_status nw_calibration_parse(nw_calibration *calibration, const char *text, size_t size, const char *name);
nw_status nw_calibration_read(nw_calibration *calibration, const char *path);

#endif
