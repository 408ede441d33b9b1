#!/bin/sh
# reproduce.sh - `nowait reproduce`: what there is, what would run, and what a finished experiment leaves.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
. "$tests/runs.sh"

run 0 "$NOWAIT" reproduce list
out_has '^apam/mnist-lenet5-short +apam/mnist-lenet5-short +40 +99\.01%'
out_has '^cifar10-fast/resnet9 '
out_has '^apam/delays +8 '
run 2 "$NOWAIT" reproduce
err_has "name a paper or an experiment first"
run 2 "$NOWAIT" reproduce apma/mnist-lenet5
err_has "no experiment 'apma/mnist-lenet5'"
run 2 "$NOWAIT" reproduce apam/delays/delay7 --dry-run
err_has "apam/delays has no run 'delay7'"
run 2 "$NOWAIT" reproduce apam/logit --dry-run
err_has "apam/logit needs a LIBSVM file.*--data-dir"
run 2 "$NOWAIT" reproduce apam/delays --real --dry-run
err_has "only apam/speed can be done with --real ranks"

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
out_has '--exchange=server --servers=1 --communication=async --in-flight=2 --batch-size=80 .*--virtual=21 --cluster apam-paper-lenet5'
out_has '--communication=sync --in-flight=1 --batch-size=80 .*--virtual=21'
err_has 'lenet5 is computed in place of resnet18'
run 0 "$NOWAIT" reproduce apam/speed --real --dry-run
out_has '^nowait launch --ranks=3 -- train .*--communication=async .*--model resnet18 --threads=1'
run 0 "$NOWAIT" reproduce apam/accuracy --dry-run --no-download
equal "runs of the accuracies" "$(wc -l <"$work/out")" 10
out_has '--recipe apam/cinic10-resnet18 .*--virtual=11 --cluster apam-paper --dataset cifar10 --shorten=25 --no-download'
err_has 'CIFAR-10 stands in for CINIC-10; made images'
run 0 "$NOWAIT" reproduce apam/mnist-lenet5 --dry-run --scale paper
equal "runs of LeNet5" "$(wc -l <"$work/out")" 5
out_has '^nowait train --recipe apam/mnist-lenet5 .*--virtual=21 --cluster apam-lenet5 --seed=0'
run 0 "$NOWAIT" reproduce apam/logit --dry-run --data-dir .
out_has '--model logit --dataset libsvm .*--threads=1'
run 0 "$NOWAIT" reproduce apam --dry-run --scale tiny
err_has 'apam/logit is left out, since it needs a LIBSVM file'

# ---- one that is done: the delays, on a small network and made images ----
small="--model lenet5 --dataset synthetic --limit 100 --batch-size 20 --threads 1 --quiet --run-dir $runs/done"
for delay in delay0 delay5; do
    run 0 "$NOWAIT" reproduce apam/delays/$delay --scale tiny --seeds 2 $small
done
folder=$runs/done/apam/delays-tiny
out_has '^apam/delays, scale tiny'
out_has '^delay 5 +here +[0-9.]+ +-'
out_has '^ +published +52\.66 +75\.60'
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
assert len(lines["delay 5"]["here"]) == 1 and lines["delay 400"]["here"] == [], lines
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
