#!/bin/sh
# sweep.sh - `nowait sweep`: many runs as one job that goes on where it was stopped.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
. "$tests/runs.sh"

sweep() { # EXIT_CODE OPTIONS...
    code=$1
    shift
    run "$code" "$NOWAIT" sweep $tiny --threads 1 --run-dir "$runs/sweep" --grid lr=0.01,0.05 --seeds 2 "$@"
}

sweep 0 --quiet --max-epoch 2
out_has '^combination +runs +top-1 % '
out_has '^lr=0\.01 +2 +[0-9.]+ +[0-9.]+ +[0-9.]+ '
out_has '^lr=0\.05 +2 '
equal "rows of sweep.tsv" "$(wc -l <"$runs/sweep/sweep.tsv")" 3
head -n 1 "$runs/sweep/sweep.tsv" | grep -q '^combination	runs	test_top1_mean	test_top1_std' || complain "sweep.tsv"
for run in lr=0.01/seed0 lr=0.01/seed1 lr=0.05/seed0 lr=0.05/seed1; do
    equal "status of $run" "$(value "sweep/$run" status)" done
done
differ "weights of two seeds" "$(weights sweep/lr=0.01/seed0)" "$(weights sweep/lr=0.01/seed1)"
differ "weights of two rates" "$(weights sweep/lr=0.01/seed0)" "$(weights sweep/lr=0.05/seed0)"
train alone --lr 0.05 --seed 1 --max-epoch 2
same_run alone sweep/lr=0.05/seed1
mean=$(awk -F '\t' '$1 == "lr=0.05" { print $3 }' "$runs/sweep/sweep.tsv")
is "($(value sweep/lr=0.05/seed0 test_top1) + $(value sweep/lr=0.05/seed1 test_top1) - 2 * $mean)^2 < 1e-6" "the mean"
if command -v python3 >/dev/null 2>&1; then
    run 0 python3 -c 'import json, sys
rows = json.load(open(sys.argv[1]))
assert [(r["lr"], r["runs"]) for r in rows] == [("0.01", 2), ("0.05", 2)], rows' "$runs/sweep/sweep.json"
fi

# Once more: nothing is trained again, except what is not done.
touch "$work/mark"
rm -r "$runs/sweep/lr=0.01/seed1"
sleep 0.02
sweep 0 --quiet --max-epoch 2 --format json
out_has '"test_top1_mean"'
equal "runs that were repeated" "$(find "$runs/sweep" -name summary.json -newer "$work/mark" | wc -l)" 1

# Stopped: the child writes a checkpoint, nothing else is started, and the same command goes on.
rm -r "$runs/sweep"
last="a sweep in the background"
long="--max-epoch 60 --eval-every 30 --checkpoint-every 100000"
"$NOWAIT" sweep $tiny --quiet --threads 1 --run-dir "$runs/sweep" --seeds 2 $long >"$work/out" 2>"$work/err" &
process=$!
while kill -0 $process 2>/dev/null; do
    [ "$(cat "$runs/sweep/all/seed0/metrics.jsonl" 2>/dev/null | grep -c '^{"record":"step"')" -ge 20 ] && break
    sleep 0.01
done
kill -s TERM $process
wait $process
equal "exit code" "$?" 4
err_has "interrupted in $runs/sweep/all/seed0; run the same command to continue"
equal "status of the run that was stopped" "$(value sweep/all/seed0 status)" interrupted
[ ! -e "$runs/sweep/all/seed1" ] || complain "another run was started"
run 0 "$NOWAIT" sweep $tiny --quiet --threads 1 --run-dir "$runs/sweep" --seeds 2 $long
out_has '^all +2 '
train uninterrupted $long
same_run uninterrupted sweep/all/seed0

# A run that fails ends the sweep, with its own message above.
run 1 "$NOWAIT" sweep $tiny --quiet --run-dir "$runs/fails" --grid lr=1e6 --max-epoch 1
err_has "step [0-9]+: the loss diverges"
err_has "the run in $runs/fails/lr=1e6/seed0 ended with exit code 1"

run 2 "$NOWAIT" sweep $tiny
err_has "a sweep needs --grid OPTION=VALUE,VALUE or --seeds N"
run 2 "$NOWAIT" sweep $tiny --grid lr
err_has "takes an option and its values, for example lr=0.1,0.2; not 'lr'"
run 2 "$NOWAIT" sweep $tiny --grid lr=0.1,,0.2
err_has "empty value"
run 2 "$NOWAIT" sweep $tiny --grid momentun=0.1,0.2 --run-dir "$runs/typo"
err_has "the nearest is --momentum|nearest is 'momentum'"

finish
