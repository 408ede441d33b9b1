#!/bin/sh
# meaning.sh - options of the reference codes mean in a run what they mean there: rates, budgets, names, batches.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"

# Rates of the steps of a run, one a line.
rates() { sed -n 's/^{"record":"step".*"lr":\([^,]*\),.*/\1/p' "$1/metrics.jsonl"; }
train="train --model mlp --dataset synthetic --data-dir $work --threads 1 --quiet"
dgc="$train --configs configs/cifar/resnet20.py --crop 0 --batch-size 16 --limit 256"

# DGC: lr x k x N, from lr x k (compression 2.5.8), here 0.1 x 2 x 4 over 5 epochs of 4 batches of each rank.
run 0 "$NOWAIT" $dgc --virtual 4 --configs.train.num_batches_per_step 2 --max-epoch 6
dir='runs/cifar.resnet20.np4'
[ -d "$dir" ] || complain "a composed run of 4 ranks is not called .np4: $(ls runs)"
equal "evaluations of the initial model" "$(grep -c '^{"record":"epoch","step":0,"epoch":0,' "$dir/metrics.jsonl")" 1
rates "$dir" >"$work/rates"
set -- $(sed -n '1p;2p;3p;10p;11p' "$work/rates")
is "$1 == 0.2" "the first rate is one worker's"
is "$2 > 0.2599 && $2 < 0.2601" "the rate of the second update" # 0.8 (2/4 x 3/5 + 1) / 4
is "$3 > 0.3199 && $3 < 0.3201" "the rate of the second epoch"
is "$5 == 0.8" "the rate after warm-up"

# A second time: the same goes on, a longer one says so, another one is refused.
run 0 "$NOWAIT" $dgc --virtual 4 --configs.train.num_batches_per_step 2 --max-epoch 6
out_has 'nothing to do'
run 2 "$NOWAIT" $dgc --virtual 4 --configs.train.num_batches_per_step 2 --max-epoch 6 --lr 0.2 --seed 3
err_has '.np4 holds a run with other settings: --seed 3 instead of 42, --lr 0.2 instead of 0.1;'
run 0 "$NOWAIT" $dgc --virtual 4 --configs.train.num_batches_per_step 2 --max-epoch 7 --no-quiet
err_has 'continues with --max-epoch 7 instead of 6$'
run 0 "$NOWAIT" $dgc --max-steps 1 # of one rank, and so another run
[ -d runs/cifar.resnet20.np1 ] || complain "a composed run of one rank is not called .np1"

# Its fp16 is a way for dense gradients to travel.
run 0 "$NOWAIT" $dgc --virtual 2 --configs.train.compression fp16 --max-steps 1
grep -q '^method: fp16 ' runs/cifar.resnet20.np2/config.yaml || complain "gradients do not travel in fp16"
rm -r runs

# ACiD: 20 epochs of floor(203 / 8) = 25 batches are 500 gradients of all four workers, with steps at 30, 60 and 80 %.
run 0 "$NOWAIT" $train --defaults acid --exchange allreduce --virtual 4 --n_epoch_if_1_worker 20 --batch-size 8 \
    --limit 203 --eval-every 20 --run-dir "$runs/acid"
equal "steps of a worker" "$(value acid steps)" 125
equal "images of all workers" "$(value acid images)" 4000
equal "steps at which the rate falls" \
    "$(rates "$runs/acid" | awk 'NR > 1 && $1 != last { print NR - 1 } { last = $1 }' | tr '\n' ' ')" '38 75 100 '
# An interrupted pass goes on where it was.
for steps in 60 125; do
    run 0 "$NOWAIT" $train --defaults acid --exchange allreduce --virtual 4 --n_epoch_if_1_worker 20 --batch-size 8 \
        --limit 203 --eval-every 20 --max-steps $steps --run-dir "$runs/again" --resume "$runs/again"
done
equal "weights of a run in two parts" "$(weights again)" "$(weights acid)"

# Its unequal shares of the classes: the budget is the same, the images are others; and a stop within a pass is no matter.
for steps in 60 125; do
    run 0 "$NOWAIT" $train --defaults acid --exchange allreduce --virtual 4 --n_epoch_if_1_worker 20 --batch-size 8 \
        --limit 203 --eval-every 20 --non_iid_data --max-steps $steps --run-dir "$runs/unequal" --resume "$runs/unequal"
done
equal "images of all workers" "$(value unequal images)" 4000
run 0 "$NOWAIT" $train --defaults acid --exchange allreduce --virtual 4 --n_epoch_if_1_worker 20 --batch-size 8 \
    --limit 203 --eval-every 20 --non_iid_data --run-dir "$runs/unequal2"
equal "weights of a run in two parts" "$(weights unequal)" "$(weights unequal2)"
differ "weights with equal shares" "$(weights unequal)" "$(weights acid)"
run 2 "$NOWAIT" $train --dirichlet-alpha 1 --limit 203 --run-dir "$runs/alpha"
err_has 'add --non-iid-data$'

# Its workers average in pairs: a pasted line needs no other option, with one worker or several.
run 0 "$NOWAIT" $train --defaults acid --n_epoch_if_1_worker 2 --graph_topology cycle --apply_acid --rate_com 1 --batch-size 8 \
    --virtual 3 --cluster 10g --limit 48 --run-dir "$runs/pasted" --no-quiet
err_has 'a step is 8 images$'
equal "steps of all workers" "$(value pasted steps)" 12
equal "images of all workers" "$(value pasted images)" 96
equal "the exchange of --defaults acid" "$(value pasted exchange)" gossip
is "$(value pasted exchanges) > 0" "its workers average"
run 0 "$NOWAIT" help config --recipe acid/cifar10-resnet18
out_has '^exchange: none '

# APAM: batches of 40 are divided among three synchronous workers, so that 400 images are 10 updates.
run 0 "$NOWAIT" $train --defaults apam --exchange server --virtual 4 --limit 400 --max-epoch 1 --run-dir "$runs/apam" \
    --no-quiet
err_has '1 server and 3 workers, synchronous; batches of 40 are divided among them: 13 or 14 images each.* a step is 40 images$'
equal "updates of an epoch" "$(value apam steps)" 10
is "$(value apam images) >= 390 && $(value apam images) <= 400" "all images but a few are taken"
run 2 "$NOWAIT" $train --defaults apam --exchange server --virtual 4 --limit 400 --batch-size 2 --run-dir "$runs/small"
err_has 'too small for 3 of them'
run 0 "$NOWAIT" help config --defaults apam --dataset imagenet32
out_has '^normalise: mean-image  # defaults apam$'
out_has '^in_flight: 1  # defaults apam$'
run 0 "$NOWAIT" help config --defaults apam
out_has '^normalise: auto '
equal "evaluations of the initial model" "$(epochs apam | grep -c '"step":0,"epoch":0,.*"train_eval_top1":[0-9.]*,.*"test_top1":[0-9]')" 1
# Its rule is AMSGrad unless that is switched off.
for amsgrad in '' true false; do
    run 0 "$NOWAIT" $train --optimizer apam --lr 0.01 --limit 60 --batch-size 20 --max-epoch 2 \
        ${amsgrad:+--amsgrad $amsgrad} --run-dir "$runs/amsgrad$amsgrad"
done
equal "weights with AMSGrad" "$(weights amsgrad)" "$(weights amsgradtrue)"
differ "weights without AMSGrad" "$(weights amsgrad)" "$(weights amsgradfalse)"

# PETRA: its networks, Nesterov's form with dampening, and its synchronous modes, whose gradient is backprop's.
run 0 "$NOWAIT" help config --defaults petra --model resnet18 --synchronous
out_has '^model: petra-resnet18  # command line, as --defaults mean it$'
err_has 'with --defaults petra, --model resnet18 is petra-resnet18$'
petra="$train --limit 120 --batch-size 20 --max-epoch 1 --nesterov --dampening 0.5"
run 0 "$NOWAIT" $petra --run-dir "$runs/backprop"
for flags in '' --remove-ctx-param --remove-ctx-input '--remove-ctx-input --remove-ctx-param' --approximate-input; do
    rm -rf "$runs/mode"
    run 0 "$NOWAIT" $petra --synchronous $flags --run-dir "$runs/mode" --no-quiet
    err_has 'synchronous.* means that backward (recomputes|inverts) .*; here plain backprop computes the same gradient'
    equal "weights by --synchronous $flags" "$(weights mode)" "$(weights backprop)"
done

# cifar10-fast: the loss is a sum, so the rate goes with one over the batch, and the decay with the batch.
run 0 "$NOWAIT" help config --recipe cifar10-fast --batch-size 128
out_has '^lr: 0.0078125  # .*, scaled from batches of 512 to 128$'
out_has '^weight_decay: 0.064 '
err_has 'scaled to batches of 128'
run 0 "$NOWAIT" help config --recipe cifar10-fast --batch-size 128 --lr 0.5
out_has '^lr: 0.5  # command line$'
run 0 "$NOWAIT" help config --defaults layerwise --batch-size 256
out_has '^lr: 0.00390625 '
# Its rate is highest at epoch 5, however long the run.
run 0 "$NOWAIT" help config --defaults layerwise --max-epoch 40
out_has '^lr_knots: "0:0,5:0.4,40:0" '
run 0 "$NOWAIT" help config --defaults layerwise --max-epoch 3
out_has '^lr_knots: "0:0,0.625:0.4,3:0" '

finish
