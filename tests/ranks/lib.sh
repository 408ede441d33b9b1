# lib.sh - sourced by tests that compare ranks under mpirun with simulated ones; see environment.sh.
. "$(dirname "$0")/../ranks/environment.sh"

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
    lines=$(err_count '^nowait:')
    [ "$lines" = "$1" ] || complain "nowait said $lines lines, not $1"
    [ "$(grep '^nowait:' "$work/err" | grep -Ec -- "$2")" = "$1" ] || complain "nowait did not say '$2'"
}

# A number of ledger.json: of the first object with that name, the key's value.
ledger() { # DIR sent|received KEY
    sed -n "/\"$2\": {/,/}/s/^ *\"$3\": \([0-9]*\),\{0,1\}\$/\1/p" "$runs/$1/ledger.json" | head -n 1
}
