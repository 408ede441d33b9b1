#!/bin/sh
# resume.sh - runs that are stopped, killed or damaged go on, and end as if nothing had happened: the same weights, the
# same records, each once.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
. "$tests/runs.sh"

# begin DIR OPTIONS...: in the background; its number is $process.
begin() {
    last="nowait train in the background: $*"
    dir=$runs/$1
    shift
    "$NOWAIT" train $tiny --quiet --run-dir "$dir" "$@" >"$work/out" 2>"$work/err" &
    process=$!
}
# until_steps N: waits until the run in $dir has recorded N batches, or has ended.
until_steps() {
    while kill -0 "$process" 2>/dev/null; do
        [ "$(cat "$dir/metrics.jsonl" 2>/dev/null | grep -c '^{"record":"step"')" -ge "$1" ] && return
        sleep 0.01
    done
}
# ended EXIT_CODE
ended() {
    wait "$process"
    got=$?
    [ "$got" = "$1" ] || complain "exit code $got, not $1"
}
# stopped SIGNAL N DIR OPTIONS...: stops the run after about N batches, and checks what it says and leaves.
stopped() {
    signal=$1 batches=$2 name=$3
    shift 2
    begin "$@"
    until_steps "$batches"
    kill -s "$signal" "$process"
    kill -s "$signal" "$process" # a terminal and a supervisor may both say it
    ended 4
    err_has "interrupted at step [0-9]+; continue with: nowait train --resume $runs/$name\$"
    err_lines 1
    equal "status" "$(value "$name" status)" interrupted
    [ -n "$(ls "$runs/$name/checkpoints")" ] || complain "no checkpoint was written"
}
# The command that the message names.
continued() { run 0 "$NOWAIT" train --quiet --resume "$runs/$1"; }

# ---- stopped by a signal: long enough that the signal comes before the end ----
long="--threads 1 --max-epoch 40 --eval-every 20 --checkpoint-every 100000"
train whole $long
stopped TERM 30 term $long
continued term
same_run whole term
stopped INT 100 int $long
continued int
same_run whole int
equal "records of ends" "$(grep -c '^{"record":"end"' "$runs/int/metrics.jsonl")" 2

# Adam's state and an average of the weights. The stop comes in the middle of an update, which is completed first.
rich="--optimizer adam --amsgrad --ema-decay 0.95 --accumulation-steps 3 --clip-norm 1 --scheduler cosine --warm-up 2"
train rich $long $rich
stopped TERM 40 rich-stopped $long $rich
continued rich-stopped
same_run rich rich-stopped

# An update that is half done: epochs of 12 batches cut every one of 5 somewhere.
train half --max-epoch 5 --keep 9 $rich --accumulation-steps 5
cp -r "$runs/half" "$runs/whole-half"
for checkpoint in 9 7 4 2; do
    [ -d "$runs/half/checkpoints/$checkpoint" ] || complain "no checkpoint $checkpoint"
    for later in "$runs/half/checkpoints"/*; do
        [ "${later##*/}" -le $checkpoint ] || rm -r "$later"
    done
    rm "$runs/half/summary.json"
    continued half
    same_run whole-half half
done

# During an evaluation that takes much longer than the epoch; it is done again.
slow="--max-epoch 4 --batch-size 60 --test-batch-size 1 --train-metrics --train-eval-batch-size 1 --threads 1"
train slow $slow
stopped TERM 4 slow-stopped $slow
continued slow-stopped
same_run slow slow-stopped

# Where a server gives the credits, an epoch is evaluated while all go on. A stop does not wait for it: the checkpoint keeps the
# copy of the weights, in the middle of a run as at its end, and whoever goes on evaluates it, once.
serve="--exchange server --communication async --in-flight 1 --virtual 2"
served="$slow --limit 600 --batch-size 300 --max-epoch 2 $serve"
train served $served
for batches in 2 4; do
    stopped TERM $batches served-$batches $served
    equal "what waits after $batches batches" 1 "$(ls "$runs/served-$batches"/checkpoints/*/judged0.safetensors | wc -l | tr -d ' ')"
    continued served-$batches
    equal "weights" "$(weights served)" "$(weights served-$batches)"
    equal "epochs" "$(epochs served)" "$(epochs served-$batches)"
done

# Dropout draws by batch, batch norm keeps statistics; both go on where they were.
dropping="--model alexnet1 --width 8 --limit 40 --max-epoch 2 --eval-every 2"
train dropping $dropping
train dropping-parts $dropping --max-steps 3
run 0 "$NOWAIT" train --quiet --resume "$runs/dropping-parts" --max-steps 5
run 0 "$NOWAIT" train --quiet --resume "$runs/dropping-parts" --max-steps 0
same_run dropping dropping-parts
norm="--model resnet20 --width 8 --limit 40 --max-epoch 2"
train norm $norm
train norm-parts $norm --max-steps 3
run 0 "$NOWAIT" train --quiet --resume "$runs/norm-parts" --max-steps 0
same_run norm norm-parts

# ---- killed, eight times, at moments that nobody chose ----
killed="--threads 1 --max-epoch 12 --eval-every 3 --checkpoint-every 3 --nesterov"
train unkilled $killed
for round in 1 2 3 4 5 6 7 8; do
    begin killed $killed --resume "$runs/killed"
    sleep "0.$(awk "BEGIN { srand($$ + $round); printf \"%03d\", 30 + 350 * rand() }")"
    kill -s KILL "$process" 2>/dev/null
    wait "$process" 2>/dev/null
    grep -v 'no checkpoint at' "$work/err" | grep -q . && complain "a run that was killed did not go on"
done
run 0 "$NOWAIT" train $tiny --quiet $killed --run-dir "$runs/killed" --resume "$runs/killed"
same_run unkilled killed
[ -z "$(find "$runs/killed" -name '.*.tmp-*')" ] || complain "something half-written stayed"

# Killed between the last checkpoint and the summary: the summary comes later.
rm "$runs/killed/summary.json"
continued killed
same_run unkilled killed
equal "test loss" "$(value killed test_loss)" "$(value unkilled test_loss)"

# Killed before the first checkpoint: the run's own options are known, and nothing is in the way.
mkdir "$runs/young"
cp "$runs/unkilled/config.yaml" "$runs/young"
run 0 "$NOWAIT" train --no-quiet --resume "$runs/young"
err_has "there is no checkpoint at $runs/young; starting anew"
same_run unkilled young

# ---- as a reference code does it: one path, named twice ----
train named --max-epoch 3 --name-checkpoint "$work/named" --resume "$work/named"
run 0 "$NOWAIT" train $tiny --max-epoch 3 --run-dir "$runs/named-2" --name-checkpoint "$work/elsewhere" \
    --resume "$work/elsewhere" --max-steps 14
err_has "there is no checkpoint at $work/elsewhere; starting anew"
run 0 "$NOWAIT" train --quiet --resume "$work/elsewhere" --max-steps 0 # the checkpoint knows its run
same_run named named-2
begin named-3 $long --name-checkpoint "$work/third"
until_steps 3
kill -s TERM "$process"
ended 4
[ -s "$work/third/manifest.json" ] || complain "the named checkpoint was not written at the interruption"

# ---- nothing to do, or not what was asked for ----
run 0 "$NOWAIT" train --resume "$runs/whole"
out_has "^nothing to do: $runs/whole has reached the end asked for \(40 epochs\)"
run 0 "$NOWAIT" train --quiet --resume "$runs/named" --max-epoch 4 # more than was asked for at first
train longer --max-epoch 4
same_run longer named
run 3 "$NOWAIT" train --quiet --resume "$runs/named" --model resnet20 --max-epoch 5
err_has "of the model 'lenet5' does not fit the model 'resnet20'"
run 2 "$NOWAIT" train --quiet --resume "$runs/named" --batch-size 20 --max-epoch 5
err_has "an epoch was 12 batches of 10 images and would now be 6 of 20"
run 3 "$NOWAIT" train --quiet --resume "$runs/named" --optimizer adam --max-epoch 5
err_lines 1
run 3 "$NOWAIT" train --quiet --resume "$runs/named/checkpoints/48/model.safetensors" $tiny
err_has "holds weights only, not the state of a run; --init starts a new run from them"
same_run longer named

# Two processes in one directory: the second is refused.
begin busy $long --metric none
until_steps 1
"$NOWAIT" train $tiny --quiet --max-epoch 1 --run-dir "$runs/busy" >/dev/null 2>"$work/second"
equal "exit code of the second process" "$?" 2
grep -q "another process is training in $runs/busy" "$work/second" || complain "it says: $(cat "$work/second")"
kill -s TERM "$process"
ended 4

# ---- damage ----
train damaged --max-epoch 3
printf 'x' | dd of="$runs/damaged/checkpoints/36/replica0.safetensors" bs=1 seek=5000 conv=notrunc 2>/dev/null
run 0 "$NOWAIT" train --no-quiet --resume "$runs/damaged"
err_has "damaged/checkpoints/36"
train intact --max-epoch 3
same_run intact damaged
head -c 300 "$runs/damaged/checkpoints/36/manifest.json" >"$work/torn"
cp "$work/torn" "$runs/damaged/checkpoints/36/manifest.json"
run 0 "$NOWAIT" train --quiet --resume "$runs/damaged"
same_run intact damaged
for step in 12 24 36; do rm -f "$runs/damaged/checkpoints/$step/model.safetensors"; done
run 3 "$NOWAIT" train --quiet --resume "$runs/damaged"
err_has "damaged/checkpoints"
err_lines 1
echo 'not a record' >>"$runs/intact/metrics.jsonl"
run 3 "$NOWAIT" train --quiet --resume "$runs/intact" --max-epoch 4
err_has "metrics.jsonl, line [0-9]+: this is not a record of a run"

finish
