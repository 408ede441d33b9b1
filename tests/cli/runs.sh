# runs.sh - sourced after lib.sh by tests that train: runs that take a fraction of a second, and what they left.
#   Run directories are in $work/runs, so that the folder in which the command runs stays empty.
runs=$work/runs
mkdir "$runs"
tiny="--model lenet5 --dataset synthetic --limit 120 --batch-size 10 --lr 0.01"

# A run's own options come back from its config.yaml.
"$NOWAIT" help config >/dev/null 2>"$work/err" || if grep -q libyaml "$work/err"; then
    echo "skipped: built without libyaml"
    exit 77
fi

# train DIR OPTIONS...: a tiny run that must succeed.
train() {
    dir=$1
    shift
    run 0 "$NOWAIT" train $tiny --quiet --run-dir "$runs/$dir" "$@"
}

# value DIR KEY: from summary.json, without quotes.
value() { sed -n "s/^  \"$2\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$runs/$1/summary.json"; }
weights() { value "$1" weights_sha256; }

# The loss of the first step.
first_loss() { sed -n 's/^{"record":"step","step":1,.*"loss":\([^,]*\),.*/\1/p' "$runs/$1/metrics.jsonl"; }

equal() { # WHAT A B
    [ -n "$2" ] || complain "$1 is missing"
    [ "$2" = "$3" ] || complain "$1: $2 and $3 should be equal"
}
differ() { # WHAT A B
    [ -n "$2" ] && [ -n "$3" ] || complain "$1 is missing"
    [ "$2" != "$3" ] || complain "$1: both are $2"
}
# is 'EXPRESSION OF AWK' MESSAGE
is() { awk "BEGIN { exit !($1) }" || complain "$2: not $1"; }

# What was trained and measured, without the times: records of steps and epochs, each once and in order.
trajectory() {
    sed -E -n '/^\{"record":"(step|epoch)"/s/,"([a-z_]*seconds|images_per_second|peak_memory_bytes)":[^,}]*//gp' \
        "$runs/$1/metrics.jsonl"
    sed 's/	[0-9.]*	/	/' "$runs/$1/logs.tsv"
}
# What each epoch trained and found, without times and bytes.
epochs() {
    sed -E -n '/^\{"record":"epoch"/s/,"([a-z_]*seconds|peak_memory_bytes|bytes_sent)":[^,}]*//gp' "$runs/$1/metrics.jsonl"
}
# How often rank 0 was quiescent.
quiescent() { "$NOWAIT" replay "$runs/$1" --show | grep -c '^rank 0, [0-9]*: quiescent'; }
same_run() { # A B: the same training, whatever happened on the way
    equal "weights of $1 and $2" "$(weights "$1")" "$(weights "$2")"
    trajectory "$1" >"$work/first"
    trajectory "$2" >"$work/second"
    cmp -s "$work/first" "$work/second" || complain "$1 and $2 differ: $(diff "$work/first" "$work/second" | head -n 6)"
}
