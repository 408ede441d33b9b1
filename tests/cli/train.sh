#!/bin/sh
# train.sh - `nowait train`: what a run leaves, what each option of training does to it, and that nothing but options does.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
. "$tests/runs.sh"

# ---- what a run leaves ----
run 0 "$NOWAIT" train $tiny --run-dir "$runs/base" --max-epoch 3 -p 5
err_has '^model     lenet5, 62006 parameters$'
err_has '^memory    [0-9]+\.[0-9] MB for activations, parameters, optimizer and copies of them$'
err_has "^run       $runs/base$"
[ "$(grep -n '^memory ' "$work/err" | cut -d : -f 1)" -lt "$(grep -n '^epoch 1/3 ' "$work/err" | head -n 1 | cut -d : -f 1)" ] ||
    complain "the memory is told after training began"
out_has '^ +epoch +lr +train time'
out_has '^test top-1 [0-9.]+ %, top-5 [0-9.]+ %, loss [0-9.]+ after 3 epochs, 36 steps'
out_has "^results in $runs/base: "
err_has 'lr +0.01  \(command line\)'
err_has '^epoch 1/3  batch 5/12 '
for file in config.yaml metrics.jsonl logs.tsv summary.json checkpoints/36/manifest.json \
    checkpoints/36/model.safetensors checkpoints/36/replica0.safetensors checkpoints/36/config.yaml; do
    [ -s "$runs/base/$file" ] || complain "$file is missing or empty"
done
for key in test_top1 test_top5 test_loss train_loss epochs steps images train_seconds virtual_seconds images_per_second \
    peak_memory_bytes bytes_sent messages_sent weights_sha256 seed world_size precision isa version commit \
    steal_percent load status; do
    [ -n "$(value base $key)" ] || complain "summary.json has no $key"
done
equal "status" "$(value base status)" done
equal "epochs, steps, images" "$(value base epochs) $(value base steps) $(value base images)" "3 36 360"
[ "$(weights base | tr -d '0-9a-f\n' | wc -c)" = 0 ] && [ "$(weights base | wc -c)" = 65 ] ||
    complain "weights_sha256 is no SHA-256"
equal "step records" "$(grep -c '^{"record":"step"' "$runs/base/metrics.jsonl")" 36
equal "epoch records" "$(grep -c '^{"record":"epoch"' "$runs/base/metrics.jsonl")" 3
head -n 1 "$runs/base/logs.tsv" | grep -Eqx "epoch	hours	top1Accuracy" || complain "logs.tsv has no DAWNBench header"
[ "$(sed 1d "$runs/base/logs.tsv" | grep -Ecx '[1-3]	0\.[0-9]{8}	[0-9]+\.[0-9]{2}')" = 3 ] || complain "rows of logs.tsv"
if command -v python3 >/dev/null 2>&1; then
    run 0 python3 -c 'import json, sys
for line in open(sys.argv[1] + "/metrics.jsonl"): json.loads(line)
s = json.load(open(sys.argv[1] + "/summary.json"))
parts = [s[k + "_seconds"] for k in ("preprocess", "train", "validation", "checkpoint", "other")]
assert abs(sum(parts) - s["total_seconds"]) < 1e-6, parts
json.load(open(sys.argv[1] + "/checkpoints/36/manifest.json"))' "$runs/base"
fi

train quick --batch-size 1 --limit 4000 --max-steps 1500 # hundreds of steps a second
equal "step records" "$(grep -c '^{"record":"step"' "$runs/quick/metrics.jsonl")" 1500
train silent --no-tensorboard --max-steps 2
[ -z "$(find "$runs/silent" -name 'events.*')" ] || complain "--no-tensorboard writes events"

# ---- the same options give the same weights; nothing else counts ----
train threads --max-epoch 3 --threads 1
same_run base threads
train workers0 --max-epoch 3 --threads 2 --workers 0
same_run base workers0
train workers3 --max-epoch 3 --workers 3
same_run base workers3
train seed --max-epoch 3 --seed 1
differ "weights of two seeds" "$(weights base)" "$(weights seed)"
run 0 "$NOWAIT" train --recipe "$runs/base/config.yaml" --run-dir "$runs/again" --quiet
same_run base again

# ---- how long, how often measured ----
train steps --max-epoch 3 --max-steps 17
equal "steps, epochs" "$(value steps steps) $(value steps epochs)" "17 1"
is "$(value steps test_loss) > 0" "a run of some steps is evaluated at its end"
train every --max-epoch 5 --eval-every 2
equal "evaluated epochs" "$(sed 1d "$runs/every/logs.tsv" | cut -f 1 | tr '\n' ' ')" "1 2 4 5 "
train short --max-epoch 3 --max-batches 4
equal "steps of short epochs" "$(value short steps)" 12

# ---- what is measured ----
train metrics --max-epoch 3 --train-metrics --tta flip
equal "weights, however measured" "$(weights metrics)" "$(weights base)"
is "$(value metrics train_eval_loss) > 0" "training images are evaluated on request"
differ "test loss with mirrored images" "$(value metrics test_loss)" "$(value base test_loss)"
train val --max-epoch 3 --val-ratio 0.25 --metric val_top1
equal "training images left" "$(value val train_images)" 90
is "$(value val validation_loss) > 0 && $(value val best_epoch) >= 1" "the validation split is measured"
run 2 "$NOWAIT" train $tiny --metric val_top1 --max-epoch 1 --run-dir "$runs/refused"
err_has "needs a validation split; give --val-ratio"
[ ! -e "$runs/refused" ] || complain "a refused run left a directory"
train ema --max-epoch 3 --ema-decay 0.9
equal "weights beside their average" "$(weights ema)" "$(weights base)"
differ "test loss of the average" "$(value ema test_loss)" "$(value base test_loss)"

# ---- what is trained ----
train smooth --max-epoch 3 --label-smoothing 0.2
differ "first loss with smoothing" "$(first_loss smooth)" "$(first_loss base)"
train whole --max-epoch 2 --precision f32 --batch-size 20
train halves --max-epoch 2 --precision f32 --batch-size 10 --accumulation-steps 2 --accumulation-averaging
equal "updates" "$(value halves steps)" "$(value whole steps)"
# One record an update, of all its batches.
records() { # DIR: update, epoch, images so far, images of it
    sed -n 's/^{"record":"step","step":\([0-9]*\),"epoch":\([0-9]*\),"images":\([0-9]*\),.*"batch_images":\([0-9]*\),.*/\1 \2 \3 \4/p' \
        "$runs/$1/metrics.jsonl"
}
equal "updates" "$(records halves)" "$(records whole)"
equal "step records" "$(records halves | wc -l | tr -d ' ')" 12
is "($(first_loss halves) / $(first_loss whole) - 1)^2 < 1e-10" "the loss is that of both halves"
train thirds --max-epoch 2 --limit 70 --accumulation-steps 3 # 7 batches: an epoch's end cuts a gradient in two
equal "updates" "$(records thirds | tr '\n' ';')" "1 1 30 30;2 1 60 30;3 2 90 30;4 2 120 30;"
is "($(value halves test_loss) / $(value whole test_loss) - 1)^2 < 1e-10" "two halves of a batch are the batch"
train sums --max-epoch 2 --precision f32 --batch-size 10 --accumulation-steps 2
is "($(value sums test_loss) / $(value whole test_loss) - 1)^2 > 1e-10" "without averaging the step is twice as long"

equal "accumulation" "$(sed -n 's/^{"record":"run",.*"accumulation_steps":\([0-9]*\),.*/\1/p' "$runs/sums/metrics.jsonl")" 2

# The initial model: an epoch 0 in the records, whose results are those of its weights and no candidate for the best.
train first --max-epoch 2 --evaluate-first --lr 0
equal "epochs" "$(epochs first | sed 's/.*"epoch":\([0-9]*\),.*/\1/' | paste -s -d ' ')" '0 1 2'
results() { epochs first | sed -n "$1"'s/.*\("test_loss":.*\),"validation_loss.*/\1/p'; }
equal "results of weights that stay" "$(results 1)" "$(results 3)"
equal "rows of logs.tsv" "$(cut -f 1 "$runs/first/logs.tsv" | paste -s -d ' ')" 'epoch 0 1 2'
equal "the best epoch" "$(value first best_epoch)" 1
train first-steps --max-epoch 3 --evaluate-first
equal "weights with and without a first evaluation" "$(weights base)" "$(weights first-steps)"
train first-parts --max-epoch 3 --evaluate-first --max-steps 12
run 0 "$NOWAIT" train --quiet --resume "$runs/first-parts" --max-steps 0
same_run first-steps first-parts

# A run that ends in the middle of an epoch says so; its logs go where they shall, also if nothing is there yet.
train part --max-epoch 3 --max-steps 18 --log_dir "$work/new/logs" --metrics-file "$work/more/deep/m.jsonl"
[ -s "$work/more/deep/m.jsonl" ] || complain "the folder of --metrics-file was not made"
out_has 'after 1\.5 epochs, 18 steps'
[ -f "$work/new/logs/logs.tsv" ] || complain "--log_dir was not made"

# Quiet runs show what the user must know.
train anew --max-steps 1 --threads 1000 --resume "$runs/anew"
err_has "there is no checkpoint at $runs/anew; starting anew"
err_has '1000 threads share'
err_lines 2

# Weights of another run: the first loss is that of those weights, not of this run's own.
train start --max-steps 1 --lr 0
train other --max-steps 1 --init-scheme he-out
differ "first loss of another scheme" "$(first_loss other)" "$(first_loss base)"
train init --max-steps 1 --init-scheme he-out --init "$runs/start/checkpoints/1/model.safetensors"
equal "first loss from given weights" "$(first_loss init)" "$(first_loss base)"
train init-run --max-steps 1 --init-scheme he-out --init "$runs/start"
equal "first loss from a given run" "$(first_loss init-run)" "$(first_loss base)"
run 3 "$NOWAIT" train $tiny --max-steps 1 --init "$runs/none" --run-dir "$runs/refused"
err_has "$runs/none"
[ ! -e "$runs/refused" ] || complain "a refused run left a directory"

# It learns: 10 classes, so chance is 10 %.
run 0 "$NOWAIT" train --model mlp --dataset synthetic --limit 300 --batch-size 20 --optimizer adam --lr 0.001 \
    --max-epoch 3 --quiet --run-dir "$runs/learns"
is "$(value learns test_top1) > 20" "a learnable set is learned"
if "$NOWAIT" data info fashion-mnist >/dev/null 2>&1; then
    run 0 "$NOWAIT" train --model lenet5 --dataset fashion-mnist --limit 600 --batch-size 20 --optimizer adam \
        --lr 0.002 --max-epoch 3 --quiet --run-dir "$runs/fashion"
    is "$(value fashion test_top1) > 45" "Fashion-MNIST is learned"
    grep -q 'Ankle boot' "$runs/fashion/checkpoints/90/classes.txt" || complain "names of the classes are missing"
fi

# ---- what is said, and where runs go ----
train quiet --max-epoch 1
err_empty
[ "$(wc -l <"$work/out")" = 1 ] || complain "--quiet prints more than the result"
out_has '^test top-1 '
"$NOWAIT" train $tiny --max-epoch 2 --run-dir "$runs/pipe" 2>/dev/null | head -n 1 >/dev/null
equal "status, when nobody reads any more" "$(value pipe status)" done
run 2 "$NOWAIT" train $tiny --quiet --run-dir "$runs/quiet"
err_has "quiet holds a run already; continue it with --resume"
err_lines 1
out_empty
run 0 "$NOWAIT" train $tiny --quiet --max-steps 1
run 0 "$NOWAIT" train $tiny --quiet --max-steps 1
[ -s runs/lenet5-synthetic/summary.json ] && [ -s runs/lenet5-synthetic-2/summary.json ] ||
    complain "two runs without --run-dir are not in two directories"
rm -r runs
run 2 "$NOWAIT" train $tiny extra
err_has "'extra' is not understood here"

finish
