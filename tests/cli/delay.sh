#!/bin/sh
# delay.sh - `--max-delay`: gradients at earlier weights. What a run tells of them, that it repeats and goes on exactly from
# the middle of an epoch, and what is refused.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
. "$tests/runs.sh"

refused() { # PATTERN ARGUMENTS...
    pattern=$1
    shift
    run 2 "$NOWAIT" train $tiny --quiet --run-dir "$runs/refused" "$@"
    err_has "$pattern"
    err_lines 1
    [ ! -e "$runs/refused" ] || complain "a refused run left something"
}

# ---- one model is ordinary training ----
train serial --max-epoch 3
train one --max-epoch 3 --max-delay 1
same_run serial one
equal "delays without delays" "$(value serial delays)" null

# ---- delays are told, repeat, and depend on the seed of the run alone ----
late="--max-epoch 3 --max-delay 6 --optimizer apam --lr 0.001"
train late $late
train again $late --threads 1
same_run late again
train law $late --delay-law fixed
differ "weights under two laws" "$(weights late)" "$(weights law)"
differ "weights with and without delays" "$(weights serial)" "$(weights late)"
grep -q '"step":20,.*"delay":5,' "$runs/law/metrics.jsonl" || complain "a fixed delay is not in the records"
if command -v python3 >/dev/null 2>&1; then
    run 0 python3 -c 'import json, sys
for law in ("late", "law"):
    steps = [json.loads(line) for line in open(sys.argv[1] + "/" + law + "/metrics.jsonl")]
    told = [s["delay"] for s in steps if s["record"] == "step"]
    d = json.load(open(sys.argv[1] + "/" + law + "/summary.json"))["delays"]
    assert len(told) == d["count"] == 36 and max(told) == d["max"] <= 5, d
    assert abs(sum(told) / 36 - d["mean"]) < 1e-12, d
    assert {int(k): v for k, v in d["counts"].items()} == {k: told.count(k) for k in set(told)}, d' "$runs"
fi

# same_steps A B: the end of a part is evaluated, too, and may be the best, so records of epochs differ.
same_steps() {
    equal "weights of $1 and $2" "$(weights "$1")" "$(weights "$2")"
    trajectory "$1" | grep '"record":"step"' >"$work/first"
    trajectory "$2" | grep '"record":"step"' >"$work/second"
    cmp -s "$work/first" "$work/second" || complain "$1 and $2 differ: $(diff "$work/first" "$work/second" | head -n 6)"
    sed -n '/"delays"/,/}/p' "$runs/$1/summary.json" >"$work/first"
    sed -n '/"delays"/,/}/p' "$runs/$2/summary.json" >"$work/second"
    cmp -s "$work/first" "$work/second" || complain "$1 and $2: the histograms of delays differ"
}

# ---- stopped in the middle of an epoch, three times ----
long="--max-epoch 4 --eval-every 4"
for law in "uniform --accumulation-steps 2" "heavy --delay-tail 0.5" "worker --delay-workers 4"; do
    name=${law%% *}
    options="$long --max-delay 9 --optimizer apam --lr 0.001 --delay-law $law"
    train "$name" $options
    train "$name-parts" $options --max-steps 3
    run 0 "$NOWAIT" train --quiet --resume "$runs/$name-parts" --max-steps 10
    run 0 "$NOWAIT" train --quiet --resume "$runs/$name-parts" --max-steps 17
    run 0 "$NOWAIT" train --quiet --resume "$runs/$name-parts" --max-steps 0
    same_steps "$name" "$name-parts"
done

# Its own weights are not enough for other delays; none at all need nothing.
train other $long --max-delay 4 --delay-law fixed --max-steps 20
run 2 "$NOWAIT" train --quiet --resume "$runs/other" --max-delay 30 --max-steps 30
err_has "lacks version\.[0-9]+; give --max-delay, --delay-law and --seed as in the run"
run 0 "$NOWAIT" train --quiet --resume "$runs/other" --max-delay 1 --max-steps 30

# ---- what makes no sense ----
refused "--max-delay is 0; it must be 1 to 1000000" --max-delay 0
refused "--max-delay is 1000001; it must be 1 to 1000000" --max-delay 1000001
refused "simulates delays in one replica alone, but there are 2" --max-delay 3 --virtual 2 --exchange allreduce
refused "give D with --max-delay" --delay-law fixed
refused "add --delay-law heavy" --delay-tail 2 --max-delay 3
refused "add --delay-law worker" --delay-workers 3 --max-delay 3

finish
