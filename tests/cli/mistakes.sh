#!/bin/sh
# mistakes.sh - what goes wrong in a first hour: wrong paths and names are found before any data are read or fetched, and
# lines of the reference codes are recognised. Nothing here trains for long.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
. "$tests/runs.sh"
# Downloads fail at once.
NOWAIT_MIRROR=http://127.0.0.1:9/
export NOWAIT_MIRROR

refused() { # EXIT_CODE PATTERN ARGUMENTS...: at once, and before data are looked for
    code=$1 pattern=$2
    shift 2
    run "$code" "$NOWAIT" "$@"
    err_has "$pattern"
    ! grep -q 'looked' "$work/err" || complain "data were looked for first"
    err_lines 1
}

# ---- paths ----
none=$work/none
refused 3 "--resume $none: there is no run and no checkpoint; check the path" train --resume "$none"
refused 3 "--resume $none: there is no run" train --resume "$none" --run-dir "$runs/other" $tiny
refused 3 "--resume $none: there is no run" launch -n 1 -- train --resume "$none"
refused 3 "--init $none: there is no checkpoint; check the path" train --init "$none" --model lenet5 --dataset mnist
refused 2 "there is no recipe in a file $none.yaml" train --recipe "$none.yaml"
refused 2 "--configs: there is no file $none.yaml" train --configs "$none"
refused 2 "there is no cluster '$none'|$none" train --model lenet5 --virtual 2 --exchange allreduce --cluster "$none"
refused 2 "there is no script of faults '$none'|$none" train --model lenet5 --virtual 2 --exchange allreduce --faults "$none"
refused 3 "there is no checkpoint '$none'; check the path" eval "$none"
refused 3 "there is no checkpoint '$none'; check the path" predict "$none" x.png
refused 3 "there is no run '$none'; check the path" replay "$none"
[ ! -e "$runs/other" ] || complain "a refused run left a directory"

# Nothing is fetched into a folder that the user names and that is not there.
run 3 "$NOWAIT" train --model lenet5 --dataset mnist --data-dir "$none"
err_has "mnist is not there: looked in $none, .*nowait data fetch mnist --data-dir $none"
[ ! -e "$none" ] || complain "a mistyped --data-dir was made"
# What cannot be fetched: where it was looked for, and advice that holds for this command.
if ! "$NOWAIT" data info mnist >/dev/null 2>&1; then
    run 1 "$NOWAIT" train --model lenet5 --dataset mnist
    err_has "mnist cannot be fetched: http://127.0.0.1:9/.*; it was looked for in ./data, ./data/"
    err_has "let 'nowait data fetch' take it from another address with --url"
    rm -rf data
fi

# ---- names ----
for name in resnet-20 ResNet_20 all-cnn lenet-5 vgg16bn; do
    run 0 "$NOWAIT" info "$name"
    run 0 "$NOWAIT" help config --model "$name" --dataset synthetic
done
train dashes --model LeNet-5 --max-steps 2
train plain --max-steps 2
equal "weights, however the model is spelled" "$(weights dashes)" "$(weights plain)"
equal "the model's name" "$(value dashes model)" lenet5
run 0 "$NOWAIT" train --quiet --resume "$runs/dashes" --max-steps 3
refused 2 "there is no model 'resnt18'; the nearest is 'resnet18', and 'nowait info" train --model resnt18 --dataset mnist
refused 2 "there is no init scheme 'hee'" train --model lenet5 --dataset mnist --init-scheme hee
refused 2 "--dataset is cifar10\\|.*, not 'minst'" train --dataset minst
refused 2 "--scheduler is steplr\\|.*, not 'cosin'" train --dataset mnist --scheduler cosin
refused 2 "--exchange is none\\|allreduce\\|local\\|server\\|gossip, not 'alreduce'" train --dataset mnist --exchange alreduce
refused 2 "--method is none\\|fp16\\|bf16\\|topk\\|.*, not 'pf16'" train --dataset mnist --method pf16
refused 2 "no recipe 'petra/cifar10-revnet18'; the nearest is 'petra/cifar10-revnet18-backprop'" \
    train --recipe petra/cifar10-revnet18
refused 2 "no option --foo here; --help lists all$" train --foo
refused 2 "no option --sched here; the nearest is --scheduler, and" train --sched cosine

# ---- a line that is read as a run is checked as one ----
for wrong in "--model resnt18" "--init $none" "--resume $none" "--pipeline 2" "--remove-ctx-input" "--max-delay 3 --exchange allreduce" \
    "--virtual 2 --exchange allreduce --cluster $none" "--virtual 2" "--world-size 2 --exchange allreduce"; do
    "$NOWAIT" train --dataset mnist --defaults global $wrong >/dev/null 2>"$work/want" && complain "$wrong trains"
    for way in "help config" "train --print-config"; do
        "$NOWAIT" $way --dataset mnist --defaults global $wrong >"$work/out" 2>"$work/err" && complain "$way $wrong is accepted"
        cmp -s "$work/want" "$work/err" || complain "$way $wrong is refused in other words: $(cat "$work/want")"
    done
done

# ---- help lists nothing that is refused as not being there ----
run 0 "$NOWAIT" help completion bash
sed -n "s/^    --\([a-z0-9-]*\)) words='\(.*\)' ;;\$/\1 \2/p" "$work/out" | grep -v '^help' >"$work/choices"
[ "$(wc -l <"$work/choices")" -gt 25 ] || complain "choices are missing"
while read -r option words; do
    for word in $words; do
        also=
        [ "$option $word" != "defaults petra" ] || also=--synchronous
        "$NOWAIT" help config --model lenet5 --dataset synthetic "--$option" "$word" $also >"$work/out" 2>"$work/err"
        ! grep -q 'not part of this version' "$work/err" || complain "help lists --$option $word: $(cat "$work/err")"
    done
done <"$work/choices"
for topic in gradient exchange codec; do
    run 0 "$NOWAIT" help train $topic
    out_lacks '\(later\)|petra|--pipeline'
done

# ---- lines of the reference codes ----
"$NOWAIT" train --model_name lenet5 --data_name MNIST --alpha 1e-4 --train_batch_size 40 --communication sync --max-steps 1 \
    >"$work/out" 2>"$work/err" # there are no data, or one step is made: the warning comes first
head -n 1 "$work/err" | grep -q 'warning: --data_name, --alpha, --train_batch_size are each an option of the reference code .apam' ||
    complain "the line was not recognised: $(cat "$work/err")"
rm -rf data runs
refused 2 "--alpha, --cuda: this looks like a line of the reference code 'apam'.* add --defaults apam" train --alpha 1e-4 --cuda False
refused 2 "--graph-topology is for workers that average in pairs; add --exchange gossip, or --defaults acid" \
    train --dataset_name CIFAR10 --n_epoch_if_1_worker 2 --graph_topology cycle
train own --defaults global --network lenet5 --max-steps 1
err_empty
train hinted --network lenet5 --max-steps 1
err_has "--network is an option of the reference code 'layerwise'.*add --defaults layerwise"
err_lines 1

finish
