#!/bin/sh
# reproduce.sh - `nowait reproduce`: what there is, what would run, and what a finished experiment leaves.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
. "$tests/runs.sh"

run 0 "$NOWAIT" reproduce list
out_has '^apam/mnist-lenet5-short +apam/mnist-lenet5-short +40 +99\.01%'
out_has '^cifar10-fast/resnet9 '
out_has '^apam/delays +8 '
out_has '^petra/imagenet-revnet50 +petra/imagenet-revnet50-backprop +90 +75\.40%'
out_has '^acid/cifar10-resnet18 +acid/cifar10-resnet18 +300 +-  '
run 2 "$NOWAIT" reproduce
err_has "name a paper or an experiment first"
run 2 "$NOWAIT" reproduce apma/mnist-lenet5
err_has "no paper 'apma'; the nearest is 'apam'"
run 2 "$NOWAIT" reproduce apam/mnist-lnet5
err_has "no experiment 'apam/mnist-lnet5'"
run 2 "$NOWAIT" reproduce apam/delays/delay7 --dry-run
err_has "no run 'delay7' in runs/reproduce/apam/delays-small"
run 2 "$NOWAIT" reproduce apam/delays --real --dry-run
err_has "apam/delays has no runs with real ranks; leave out --real"

# ---- what would run ----
run 0 "$NOWAIT" reproduce apam/delays --scale paper --dry-run --seeds 2 --run-dir "$runs/r" --max-epoch 12
equal "runs of the delays" "$(wc -l <"$work/out")" 16
out_has "^nowait train --recipe apam/cifar10-allcnn --max-delay=21 --max-epoch 12 --seed=1 --run-dir $runs/r/apam/delays-paper/delay20/seed1$"
out_lacks 'dry-run|--scale|--seeds|--shorten'
err_empty
run 0 "$NOWAIT" reproduce apam/delays/delay100 --scale=tiny --dry_run --seed 5
equal "runs of one delay" "$(wc -l <"$work/out")" 1
out_has '--max-delay=101 --shorten=1 --limit=2048 --seed=5 --run-dir runs/reproduce/apam/delays-tiny/delay100/seed5$'
run 0 "$NOWAIT" reproduce apam/speed --dry-run
equal "runs of the speeds" "$(wc -l <"$work/out")" 12
out_has '--batch-size=80 .*--cluster apam-paper-lenet5 --exchange=server --servers=1 --communication=async --in-flight=2 --max-steps=1125 --virtual=21'
out_has '--communication=sync --in-flight=1 --max-steps=200 --virtual=21'
err_has 'lenet5 is computed in place of resnet18'
run 0 "$NOWAIT" reproduce apam/speed --real --dry-run
out_has '^nowait launch --ranks=3 -- train .*--model resnet18 --threads=1 .*--communication=async'
run 0 "$NOWAIT" reproduce apam/accuracy --dry-run --no-download
equal "runs of the accuracies" "$(wc -l <"$work/out")" 10
out_has '--cluster apam-paper --recipe apam/cinic10-resnet18 .*--virtual=11 --dataset cifar10 --shorten=25 --no-download'
err_has 'CIFAR-10 stands in for CINIC-10; synthetic images'
run 0 "$NOWAIT" reproduce apam/mnist-lenet5 --dry-run --scale paper
equal "runs of LeNet5" "$(wc -l <"$work/out")" 5
out_has '^nowait train --recipe apam/mnist-lenet5 .*--virtual=21 --cluster apam-lenet5 --seed=0'

# ---- a paper of one's own: a file in the current folder ----
mkdir -p "$work/own/experiments"
cat >"$work/own/experiments/mine.yaml" <<END
experiments:
  widths:
    what: narrow networks
    options: --dataset synthetic --limit=100 --model lenet5 --batch-size=20 --threads=1
    runs:
      - with: {steps: [2, 4]}
        tiny: {lr: 0.01}
        name: steps{steps}
        line: here
        x: "{steps}"
        options: --max-steps={steps} --lr={lr}
    charts:
      - {file: loss, title: "Losses, after some steps", x: steps, y: loss, value: test_loss, times: 2, decimals: 3}
      - {file: log, title: "The same", x: steps, y: loss, value: test_loss, logarithmic: true}
      - {file: nothing, title: left out, of: none, x: steps, y: loss, value: test_loss}
END
run 0 sh -c "cd '$work/own' && '$NOWAIT' reproduce mine --scale tiny --quiet"
folder=$work/own/runs/reproduce/mine/widths-tiny
out_has '^loss +steps +2 +4$|^loss +steps +4$'
loss=$(awk -F '[:,]' '/"test_loss"/ { printf "%.3f", 2 * $2; exit }' "$folder/steps4/seed0/summary.json")
equal "loss times two" "$(awk '/^here/ { print $NF; exit }' "$folder/table.txt")" "$loss"
awk '/^here/ { last = $NF } END { exit last !~ /^2\.[0-9][0-9]e\+00$/ }' "$folder/table.txt" || complain "no exponents in the table"
[ -s "$folder/loss.svg" ] && [ ! -e "$folder/nothing.svg" ] || complain "drawings"
run 3 sh -c "cd '$work/own' && '$NOWAIT' reproduce mine --scale small --dry-run"
err_has "mine.yaml:[0-9]+: '--max-steps=.steps. --lr=.lr.': there is no value 'lr' at this scale"

# ---- one that is done: the delays, on a small network and synthetic images ----
small="--model lenet5 --dataset synthetic --limit 100 --batch-size 20 --threads 1 --quiet --run-dir $runs/done"
for delay in delay0 delay5; do
    run 0 "$NOWAIT" reproduce apam/delays/$delay --scale tiny --seeds 2 $small
done
folder=$runs/done/apam/delays-tiny
out_has '^apam/delays, scale tiny'
out_has '^delay 5 +here +[0-9.]+ +-'
out_has '^ +published +52\.66 +75\.60'
out_has '^ +\+- +[0-9.]+ +-'
out_has '^means of 2 seeds'
out_has '^delay 400 +here +-'
out_has '^published: APAM, figure 9'
last="what it leaves"
grep -q '^delay 0 *here *[0-9]' "$folder/table.txt" || complain "table.txt lacks the delay that was done before"
for file in delays.svg delays-train.svg table.json; do
    [ -s "$folder/$file" ] || complain "there is no $file"
done
mean=$(awk -v a="$(value done/apam/delays-tiny/delay5/seed0 test_top1)" \
    -v b="$(value done/apam/delays-tiny/delay5/seed1 test_top1)" 'BEGIN { printf "%.2f", (a + b) / 2 }')
equal "mean over two seeds" "$(awk '/^delay 5/ && !n++ { print $4 }' "$folder/table.txt")" "$mean"
if command -v python3 >/dev/null 2>&1; then
    run 0 python3 -c 'import json, sys, xml.dom.minidom
table = json.load(open(sys.argv[1] + "/table.json"))
lines = {line["name"]: line for line in table["charts"][0]["lines"]}
assert [epoch for epoch, _ in lines["delay 5"]["here"]] == [0, 1] and lines["delay 400"]["here"] == [], lines
(_, half), = lines["delay 5"]["half_interval_95"][1:]
a, b = (json.load(open(f"{sys.argv[1]}/delay5/seed{k}/summary.json"))["test_top1"] for k in (0, 1))
assert abs(half - 12.706 * abs(a - b) / 2) < 1e-6 and half > 0, (half, a, b)
assert lines["delay 20"]["half_interval_95"] == []
assert lines["delay 20"]["published"][2] == [10, 70.93], lines
for name in "delays", "delays-train":
    drawing = xml.dom.minidom.parse(sys.argv[1] + "/" + name + ".svg")
    names = [t.firstChild.data for t in drawing.getElementsByTagName("text") if t.getAttribute("class") == "name"]
    assert "delay 5" in names and "delay 10, published" in names, names' "$folder"
fi

# ---- a single run, with the real images ----
data=${NOWAIT_DATA:-$tests/../../../shared/data}
if "$NOWAIT" data info mnist --data-dir "$data" >/dev/null 2>&1; then
    for again in no yes; do
        run 0 "$NOWAIT" reproduce apam/mnist-lenet5-short --scale tiny --quiet --no-download --data-dir "$data" \
            --run-dir "$runs/reproduced"
        out_has '^apam/mnist-lenet5-short +99\.01% +[0-9.]+% +1 .*it runs, no more'
    done
else
    echo "not tried: reproduce, since MNIST is not in $data (NOWAIT_DATA names another folder)"
fi

finish
