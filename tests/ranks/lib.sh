# lib.sh - sourced by tests of several ranks under mpirun, after which $NOWAIT trains tiny models in parallel.
#   $MPI says whether the build has MPI. Without it or mpirun these tests are skipped (exit code 77).
here=$(cd "$(dirname "$0")" && pwd)
if [ "${MPI:-0}" != 1 ]; then
    echo "skipped: built without MPI (Debian package libopenmpi-dev)"
    exit 77
fi
if ! command -v mpirun >/dev/null 2>&1; then
    echo "skipped: there is no mpirun (Debian package openmpi-bin)"
    exit 77
fi
. "$here/../cli/lib.sh"
. "$here/../cli/runs.sh"

# More ranks than cores, in a container, as root: what Open MPI wants to be told. Other MPIs do not look at it.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 \
    OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_btl_base_warn_component_unused=0

narrow="--dataset synthetic --model resnet9 --width 8 --batch-size 4 --limit 160 --lr 0.01 --eval-every 100 --quiet"
world="$narrow --threads 1 --exchange allreduce"

# ranks N DIR OPTIONS... and simulated N DIR OPTIONS...: a run that must succeed, of processes or of simulated ranks.
ranks() {
    n=$1 dir=$2
    shift 2
    run 0 mpirun -np "$n" "$NOWAIT" train $world --run-dir "$runs/$dir" "$@"
}
simulated() {
    n=$1 dir=$2
    shift 2
    run 0 "$NOWAIT" train $world --virtual "$n" --run-dir "$runs/$dir" "$@"
}
same_weights() { equal "weights of $1 and $2" "$(weights "$1")" "$(weights "$2")"; }

# said N PATTERN: N lines of stderr that nowait itself wrote match, and it wrote no others.
said() {
    lines=$(grep -c '^nowait:' "$work/err")
    [ "$lines" = "$1" ] || complain "nowait said $lines lines, not $1"
    [ "$(grep '^nowait:' "$work/err" | grep -Ec -- "$2")" = "$1" ] || complain "nowait did not say '$2'"
}

# A number of ledger.json: of the first object with that name, the key's value.
ledger() { # DIR sent|received KEY
    sed -n "/\"$2\": {/,/}/s/^ *\"$3\": \([0-9]*\),\{0,1\}\$/\1/p" "$runs/$1/ledger.json" | head -n 1
}
