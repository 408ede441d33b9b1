# environment.sh - sourced first by tests of ranks that are processes. $NOWAIT is the program, $MPI says whether it was built
# with MPI, and the mpirun of that MPI comes first in PATH. Skips (exit code 77) where one of them is missing.
here=$(cd "$(dirname "$0")" && pwd)
skip() {
    echo "skipped: $1"
    exit 77
}
[ "${MPI:-0}" = 1 ] || skip "built without MPI (Debian package libopenmpi-dev)"
command -v mpirun >/dev/null || skip "there is no mpirun (Debian package openmpi-bin)"
. "$here/../cli/lib.sh"
. "$here/../cli/runs.sh"
unset SLURM_JOB_ID SLURM_STEP_NUM_TASKS SLURM_NTASKS PBS_NODEFILE LSB_DJOB_HOSTFILE PMI_SIZE PMI_RANK

# What Open MPI wants of root, of machines with fewer cores than ranks, and to leave ranks the CPUs they had.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_base_warn_component_unused=0
# Open MPI frees not all it takes, in modules that are gone when a sanitizer looks: it could not tell whose leak it is.
export ASAN_OPTIONS=detect_leaks=0

# process_of DIR RANK: the process of a rank of the job in that run directory.
process_of() {
    for process_id in $(pgrep -f -- "--run-dir[= ]$1( |\$)"); do
        tr '\0' '\n' 2>/dev/null <"/proc/$process_id/environ" | grep -Eqx "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$2" || continue
        [ "$(basename "$(readlink "/proc/$process_id/exe")")" = "$(basename "$NOWAIT")" ] && echo "$process_id" && return
    done
}
# steps_of DIR: how far rank 0 of the job in that run directory has come.
steps_of() { tail -n 1 "$1/metrics.jsonl" 2>/dev/null | sed -n 's/^{"record":"[a-z]*","step":\([0-9]*\).*/\1/p' | grep . || echo 0; }
