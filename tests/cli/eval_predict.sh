#!/bin/sh
# eval_predict.sh - `nowait eval` and `nowait predict`: a run's own results again, other splits, classes of image files.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
. "$tests/runs.sh"

json() { # KEY: from the object on stdout
    sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p" "$work/out"
}
same_score() { # DIR: stdout has the results of that run
    for key in top1 top5 loss; do equal "$key" "$(json $key)" "$(value "$1" test_$key)"; done
}

# ---- eval ----
train run --max-epoch 3 --val-ratio 0.25
run 0 "$NOWAIT" eval "$runs/run" --format json
same_score run
equal "images" "$(json images)" 120
equal "averaged" "$(json averaged_weights)" false
cp "$work/out" "$work/score"
if command -v python3 >/dev/null 2>&1; then run 0 python3 -m json.tool "$work/score"; fi
run 0 "$NOWAIT" eval "$runs/run/checkpoints/27" --format json
same_score run
run 0 "$NOWAIT" eval "$runs/run/checkpoints/27/model.safetensors" $tiny --format json # weights only: options say the rest
same_score run
run 0 "$NOWAIT" eval "$runs/run"
out_has "^synthetic, test split, 120 images: top-1 [0-9.]+ %, top-5 [0-9.]+ %, loss [0-9.]+ \("
run 0 "$NOWAIT" eval "$runs/run" --split val --format json
equal "images to validate with" "$(json images)" 30
equal "loss" "$(json loss)" "$(value run validation_loss)"
run 0 "$NOWAIT" eval "$runs/run" --split train --format json
equal "images trained on" "$(json images)" 90
run 0 "$NOWAIT" eval "$runs/run" --batch-size 7 --threads 1 --workers 0 --format json # partial batches count once
equal "images" "$(json images)" 120
is "($(json loss) / $(value run test_loss) - 1)^2 < 1e-10" "the loss does not depend on the batch size"
run 0 "$NOWAIT" eval "$runs/run" --tta flip --format json
differ "loss with mirrored images" "$(json loss)" "$(value run test_loss)"

# The best checkpoint, of a run that ends badly: the first epoch learns, the second destroys.
run 0 "$NOWAIT" train --model mlp --dataset synthetic --limit 300 --batch-size 20 --optimizer adam --lr 0.001 \
    --scheduler piecewise-linear --lr-knots 0:1,1:1,1.01:1000,2:1000 --divergence-factor 0 --max-epoch 2 --quiet --run-dir "$runs/worse"
differ "best and last epoch" "$(value worse best_epoch)" "$(value worse epochs)"
run 0 "$NOWAIT" train --evaluate --resume "$runs/worse" --quiet
out_has "^synthetic, test split, 300 images: top-1 $(printf %.2f "$(value worse test_top1_best)") %"
run 0 "$NOWAIT" eval "$runs/worse" --format json
same_score worse

train averaged --max-epoch 2 --ema-decay 0.9
run 0 "$NOWAIT" eval "$runs/averaged" --format json
same_score averaged
equal "averaged" "$(json averaged_weights)" true

# An earlier checkpoint has its own results.
train steps --max-epoch 2
run 0 "$NOWAIT" eval "$runs/steps/checkpoints/12" --format json
first=$(sed -n 's/^{"record":"epoch","step":12,.*"test_loss":\([^,]*\),.*/\1/p' "$runs/steps/metrics.jsonl")
equal "loss after epoch 1" "$(json loss)" "$first"

run 2 "$NOWAIT" eval
err_has "takes one checkpoint, not 0"
run 3 "$NOWAIT" eval "$runs/none" --dataset synthetic --limit 10
err_has "$runs/none"
run 3 "$NOWAIT" eval "$runs/run" --model resnet20
err_has "of the model 'lenet5' does not fit the model 'resnet20'"
run 2 "$NOWAIT" eval "$runs/steps" --split val
err_has "synthetic has no images in its val split"
printf 'x' | dd of="$runs/steps/checkpoints/24/model.safetensors" bs=1 seek=9000 conv=notrunc 2>/dev/null
run 3 "$NOWAIT" eval "$runs/steps/checkpoints/24"
err_has "model.safetensors"
err_lines 1
out_empty

# ---- predict ----
run 2 "$NOWAIT" predict "$runs/run"
err_has "takes a checkpoint and at least one image"
picture=$work/picture.png
if /usr/bin/python3 -c 'import PIL, numpy' 2>/dev/null && "$NOWAIT" data info fashion-mnist >/dev/null 2>&1; then
    run 0 "$NOWAIT" train --model lenet5 --dataset fashion-mnist --limit 600 --batch-size 20 --optimizer adam \
        --lr 0.002 --max-epoch 3 --quiet --run-dir "$runs/fashion"
    source=$("$NOWAIT" data info fashion-mnist | sed -n 's/^source *//p')
    run 0 /usr/bin/python3 -c 'import glob, gzip, sys
import numpy as np
from PIL import Image
path = glob.glob(sys.argv[1] + "/t10k-images-idx3-ubyte*")[0]
data = (gzip.open if path.endswith(".gz") else open)(path, "rb").read(16 + 10 * 784)
for i in range(10):
    pixels = np.frombuffer(data, np.uint8, 784, 16 + 784 * i).reshape(28, 28)
    Image.fromarray(pixels).save(sys.argv[2] + "/%d.png" % i)
Image.fromarray(pixels).resize((61, 45)).convert("RGB").save(sys.argv[2] + "/large.jpg", quality=95)' "$source" "$work"
    run 0 "$NOWAIT" predict "$runs/fashion" "$work/0.png" "$work/1.png" --top 3
    out_has "^$work/0.png\$"
    out_has '^ +[0-9.]+ %  (Ankle boot|Sneaker|Sandal)$'
    equal "lines" "$(wc -l <"$work/out")" 8
    run 0 "$NOWAIT" predict "$runs/fashion" "$work"/[0-9].png "$work/large.jpg" --format json --top 10 \
        --precision f32
    cp "$work/out" "$work/answers"
    # The same answers as evaluation's: cross-entropy and correct answers of the first ten test images.
    run 0 "$NOWAIT" eval "$runs/fashion" --limit 10 --precision f32 --format json
    cp "$work/out" "$work/score"
    run 0 /usr/bin/python3 -c 'import glob, gzip, json, math, sys
answers = json.load(open(sys.argv[2]))
path = glob.glob(sys.argv[1] + "/t10k-labels-idx1-ubyte*")[0]
labels = (gzip.open if path.endswith(".gz") else open)(path, "rb").read(18)[8:]
score = json.load(open(sys.argv[3]))
assert len(answers) == 11 and all(abs(sum(c["probability"] for c in a["classes"]) - 1) < 1e-4 for a in answers)
right = sum(a["classes"][0]["class"] == label for a, label in zip(answers, labels))
assert 10 * right == score["top1"], (right, score)
loss = -sum(math.log(c["probability"]) for a, label in zip(answers, labels) for c in a["classes"] if c["class"] == label) / 10
assert abs(loss - score["loss"]) < 0.03, (loss, score)' "$source" "$work/answers" "$work/score"
    cp "$work/0.png" "$picture"
    head -c 100 "$work/0.png" >"$work/torn.png"
    run 3 "$NOWAIT" predict "$runs/fashion" "$picture" "$work/torn.png"
    err_has "$work/torn.png"
    err_lines 1
    out_has "^$picture\$"
    run 3 "$NOWAIT" predict "$runs/fashion" "$work/torn.png" --format json
    err_has "$work/torn.png"
    run 3 "$NOWAIT" predict "$runs/fashion/checkpoints/90/model.safetensors" "$picture"
    err_has "holds weights only; 'predict' needs a checkpoint that nowait wrote"
else
    echo "not tried: predict on images of Fashion-MNIST (needs python3-pil, python3-numpy and dataset-fashion-mnist)"
fi
echo "no image" >"$work/text.png"
run 3 "$NOWAIT" predict "$runs/run" "$work/text.png"
err_has "$work/text.png"
err_lines 1
run 3 "$NOWAIT" predict "$runs/run" "$work/missing.png"
err_has "$work/missing.png"
err_lines 1

finish
