#!/bin/sh
# faults.sh - what goes wrong while training: numbers that are not finite, full disks, directories that cannot be written,
# data that are missing or damaged. One sentence, the right exit code, nothing lost.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
. "$tests/runs.sh"
corpus=$tests/../fuzz/corpus

refused() { # EXIT_CODE PATTERN ARGUMENTS...
    code=$1 pattern=$2
    shift 2
    run "$code" "$NOWAIT" train --quiet "$@"
    err_has "$pattern"
    err_lines 1
    out_empty
}

# ---- not finite ----
refused 1 "^nowait: step [0-9]+: the (output|gradient|parameter) .*'[a-z0-9.]+' .*is not finite.*--lr" \
    $tiny --lr 1e6 --run-dir "$runs/diverges" --max-epoch 3 --checkpoint-every 1 --divergence-factor 0
equal "status" "$(value diverges status)" failed
grep -q '^{"record":"fault",.*"fault":"not-finite","detail":"step [0-9]*: the ' "$runs/diverges/metrics.jsonl" ||
    complain "metrics.jsonl has no record of the fault"
[ -n "$(ls "$runs/diverges/checkpoints")" ] || complain "no checkpoint is left"
# The last checkpoint's weights are finite: with a learning rate of 0 the next step does not complain of a parameter.
if command -v python3 >/dev/null 2>&1; then
    run 0 python3 -c 'import json, math, os, struct, sys
d = max(int(n) for n in os.listdir(sys.argv[1]) if n.isdigit())
data = open("%s/%d/model.safetensors" % (sys.argv[1], d), "rb").read()
n = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + n])
for name, t in header.items():
    if t.get("dtype") == "F32":
        begin, end = t["data_offsets"]
        values = struct.unpack("<%df" % ((end - begin) // 4), data[8 + n + begin:8 + n + end])
        assert all(math.isfinite(v) for v in values), name' "$runs/diverges/checkpoints"
fi
refused 1 "^nowait: step [0-9]+: the loss diverges: its running mean is .*, and 2\.[0-9]+ at the start; .*--lr" \
    $tiny --lr 1e3 --run-dir "$runs/grows" --max-epoch 3
run 0 "$NOWAIT" train --quiet $tiny --lr 3 --run-dir "$runs/back" --max-epoch 3 --checkpoint-every 2 --max-rollbacks 9 \
    --divergence-factor 1.6 --on-divergence rollback
grep -q '^{"record":"fault",.*"fault":"rollback","detail":"step [0-9]*: the loss diverges: .*went back to step ' \
    "$runs/back/metrics.jsonl" || complain "metrics.jsonl has no record of going back"
run 0 "$NOWAIT" train --quiet $tiny --lr 1e6 --run-dir "$runs/goes-on" --max-steps 12 --on-divergence continue

# ---- nowhere to write ----
echo text >"$work/file"
refused 1 "cannot make the directory .*/file'" $tiny --run-dir "$work/file" --max-epoch 1
refused 1 "cannot make the directory .*/file'" $tiny --run-dir "$work/file/run" --max-epoch 1
if [ "$(id -u)" != 0 ]; then
    mkdir "$work/sealed"
    chmod a-w "$work/sealed"
    refused 1 "$work/sealed/run" $tiny --run-dir "$work/sealed/run" --max-epoch 1
fi
refused 1 "cannot make the directory .*/file'" $tiny --run-dir "$runs/badly-named" --max-epoch 1 --name-checkpoint "$work/file/named"
equal "status" "$(value badly-named status)" failed

# Batch norm over one value per channel: the last batch of the epoch has one image, and the last maps have one pixel.
one="--model resnet18 --stem imagenet --width 8 --dataset synthetic --limit 17 --batch-size 8 --lr 0.01 --max-epoch 1"
refused 2 "the batch norm 'layer4.0.bn1' one value per channel" $one --run-dir "$runs/one-value"
run 0 "$NOWAIT" train $one --quiet --drop-last --run-dir "$runs/dropped"

# A disk of two megabytes, which the checkpoints of some epochs fill. Old ones stay good; with room, the run goes on.
full=$work/full
mkdir "$full"
if mount -t tmpfs -o size=2m tmpfs "$full" 2>/dev/null; then
    trap 'umount "$full"; rm -rf "$work"' EXIT
    run 1 "$NOWAIT" train $tiny --quiet --run-dir "$full/run" --max-epoch 12 --keep 100
    full_once() { # the sentence that ends the run; those of other files, if any, are others
        pattern="the checkpoint '$full/run/checkpoints/[0-9]*' was not written: .*No space left on device.*untouched"
        equal "sentences" "$(grep -c "$pattern" "$work/err")" 1
        [ -z "$(grep "No space left" "$work/err" | sort | uniq -d)" ] || complain "a sentence comes twice"
    }
    full_once
    rm -r "$full/run"
    run 1 "$NOWAIT" train $tiny --run-dir "$full/run" --max-epoch 12 --keep 100
    full_once
    run 0 "$NOWAIT" eval "$full/run"
    mount -o remount,size=20m "$full"
    run 0 "$NOWAIT" train --quiet --resume "$full/run"
    cp -r "$full/run" "$runs/filled"
    train roomy --max-epoch 12
    same_run roomy filled
    umount "$full"
    trap 'rm -rf "$work"' EXIT
else
    echo "not tried: a full disk (mounting a small one needs root)"
fi

# ---- data ----
refused 3 "cifar10 is not there: looked in $work/none.*nowait data fetch cifar10 --data-dir $work/none" \
    --dataset cifar10 --no-download --data-dir "$work/none" --run-dir "$runs/no-data"
[ ! -e "$runs/no-data" ] || complain "a run without data left a directory"
mkdir -p "$work/data/mnist"
cp "$corpus/idx/images" "$work/data/mnist/train-images-idx3-ubyte"
cp "$corpus/idx/labels" "$work/data/mnist/train-labels-idx1-ubyte"
refused 3 "mnist has no test images|t10k-images" --model mlp --dataset mnist --data-dir "$work/data" \
    --run-dir "$runs/no-test" --max-epoch 1
head -c 40 "$corpus/idx/images" >"$work/data/mnist/train-images-idx3-ubyte"
refused 3 "train-images-idx3-ubyte: " --model mlp --dataset mnist --data-dir "$work/data" --run-dir "$runs/torn"
if [ "$(id -u)" != 0 ]; then
    chmod a-r "$work/data/mnist/train-images-idx3-ubyte"
    refused 3 "train-images-idx3-ubyte: " --model mlp --dataset mnist --data-dir "$work/data" --run-dir "$runs/torn"
fi
[ ! -e "$runs/torn" ] || complain "a run with torn data left a directory"

finish
