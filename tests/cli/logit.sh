#!/bin/sh
# logit.sh - `nowait train --dataset libsvm`: logistic regression in shared memory, what it leaves, resumes and refuses.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
. "$tests/runs.sh"

# rows COUNT SEED: rows of a linear rule that is wrong for one in ten; the numbers are awk's own, from a small generator.
rows() {
    awk -v count="$1" -v state="$2" 'function draw() { state = (state * 16807) % 2147483647; return state / 2147483647 }
    BEGIN {
        for (r = 0; r < count; r++) {
            text = ""; score = 0
            for (i = 1; i <= 40; i++) if (draw() < 0.2) {
                value = 2 * draw() - 1; text = text sprintf(" %d:%.6f", i, value); score += value * (i % 2 ? 2 : -1)
            }
            if (draw() < 0.1) score = -score
            print (score > 0 ? "+1" : "-1") text
        }
    }'
}
data=$work/data
mkdir "$data"
rows 400 1 >"$data/train"
{ rows 100 2 && echo '+1 45:1'; } >"$data/test"

logit="--model logit --dataset libsvm --data-dir $data --batch-size 32"
fit() { # DIR OPTIONS...
    dir=$1
    shift
    run 0 "$NOWAIT" train $logit --quiet --run-dir "$runs/$dir" "$@"
}

# ---- what a run leaves; features are those of both files ----
run 0 "$NOWAIT" train $logit --threads 1 --max-epoch 8 --run-dir "$runs/base"
out_has '^ +epoch +train loss +train acc +test loss +test acc +seconds +mean delay$'
out_has '^ +8 +0\.[0-9]+ +0\.[0-9]+ +0\.[0-9]+ +0\.[0-9]+ +[0-9.]+ +0\.00$'
out_has '^train loss 0\.[0-9]+, top-1 [0-9.]+ %; test loss .* after 8 epochs, 104 steps, .* delays: mean 0.00, at most 0$'
err_has 'scheduler +inverse-sqrt  \(default of libsvm\)'
err_has '400 rows, .* 101 rows; 45 features$'
for file in config.yaml metrics.jsonl logs.tsv summary.json checkpoints/104/manifest.json \
    checkpoints/104/model.safetensors checkpoints/104/replica0.safetensors; do
    [ -s "$runs/base/$file" ] || complain "$file is missing or empty"
done
equal "status, epochs, steps, rows" "$(value base status) $(value base epochs) $(value base steps) $(value base images)" \
    "done 8 104 3200"
equal "parameters, precision" "$(value base parameters) $(value base precision)" "45 f64"
is "$(value base train_eval_top1) > 80 && $(value base test_top1) > 75" "it learns"
is "$(value base train_eval_loss) < 0.6 && $(value base test_loss) < 0.69" "the losses fall"
equal "epoch records" "$(grep -c '^{"record":"epoch"' "$runs/base/metrics.jsonl")" 8
grep -q '"delays"' "$runs/base/summary.json" || complain "summary.json has no delays"

# ---- one thread: the same bits; resumed, the same run ----
fit again --threads 1 --max-epoch 8
same_run base again
fit seed --threads 1 --max-epoch 8 --seed 1
differ "weights of two seeds" "$(weights base)" "$(weights seed)"
fit half --threads 1 --max-epoch 3
run 0 "$NOWAIT" train --resume "$runs/half" --max-epoch 8 --quiet
same_run base half
fit cut --threads 1 --max-epoch 8 --max-steps 30 --checkpoint-every 7
run 0 "$NOWAIT" train --resume "$runs/cut" --max-steps 0 --quiet
equal "weights after a cut inside an epoch" "$(weights cut)" "$(weights base)"
run 0 "$NOWAIT" train --resume "$runs/cut" --max-steps 0
out_has '^nothing to do: '
run 3 "$NOWAIT" train --resume "$runs/cut" --batch-size 16 --max-epoch 9
err_has 'batches an epoch'

# ---- options ----
fit intercept --threads 1 --max-epoch 8 --intercept
equal "parameters with intercept" "$(value intercept parameters)" 46
fit decay --threads 1 --max-epoch 8 --weight-decay 0.01
differ "weights with decay" "$(weights decay)" "$(weights base)"
fit sum --threads 1 --max-epoch 1 --batch-size 8 --loss-reduction sum --drop-last
fit mean --threads 1 --max-epoch 1 --batch-size 8 --drop-last
equal "weights of sums and means of eight rows" "$(weights sum)" "$(weights mean)"
fit ref --threads 1 --max-epoch 2 --defaults apam --compat-ref
equal "groups" "$(value ref steps)" 24
differ "first loss from a random start" "$(value ref train_loss)" "$(value base train_loss)"
fit limit --threads 1 --max-epoch 1 --limit 50
equal "limit" "$(value limit train_images)" 50
rows 30 3 | gzip >"$data/other.gz"
run 0 "$NOWAIT" train --dataset libsvm --data-dir "$data/other.gz" --threads 1 --max-epoch 1 --quiet --run-dir "$runs/gz"
out_has '^train loss 0\.[0-9]+, top-1 [0-9.]+ % after 1 epochs, 1 steps'
run 0 "$NOWAIT" train --dataset libsvm --data-dir "$data/other.gz" --test-file "$data/test" --threads 1 --max-epoch 1 \
    --quiet --run-dir "$runs/test-file"
equal "rows of a named test file" "$(value test-file test_images)" 101

# ---- several threads: as many updates, nearly the same minimum, delays that are reported ----
for shape in "2 1" "3 2"; do
    set -- $shape
    fit "threads$1" --threads "$1" --servers "$2" --max-epoch 8
    equal "steps" "$(value "threads$1" steps)" 104
    is "($(value "threads$1" train_eval_loss) / $(value base train_eval_loss) - 1)^2 < 0.01" "$1 threads learn as well"
done

# ---- interrupted ----
"$NOWAIT" train $logit --threads 2 --max-epoch 1000000 --quiet --eval-every 1000 --checkpoint-every 1000000 --metric none \
    --run-dir "$runs/stopped" >"$work/out" 2>"$work/err" &
child=$!
tries=0
while [ ! -s "$runs/stopped/metrics.jsonl" ] && [ $tries -lt 200 ]; do sleep 0.1; tries=$((tries + 1)); done
kill -INT $child
wait $child
code=$?
last="interrupt"
[ "$code" = 4 ] || complain "exit code $code, not 4"
err_has 'interrupted at step [0-9]+; continue with: nowait train --resume'
equal "status" "$(value stopped status)" interrupted
[ "$(ls "$runs/stopped/checkpoints")" = "$(value stopped steps)" ] || complain "no checkpoint where it stopped"
run 0 "$NOWAIT" train --resume "$runs/stopped" --max-epoch "$(($(value stopped epochs) + 1))" --quiet
equal "status" "$(value stopped status)" done

# ---- refused, in one sentence, and nothing is left ----
refused() { # WORDS OPTIONS...
    words=$1
    shift
    run 2 "$NOWAIT" train $logit --run-dir "$runs/refused" "$@"
    err_has "$words"
    err_lines 1
    [ ! -e "$runs/refused" ] || complain "a refused run left a directory"
}
refused 'rows of LIBSVM are for logistic regression' --model lenet5
refused 'double precision' --precision bf16
refused 'threads of one process' --virtual 2
refused 'AMSGrad as APAM' --optimizer sgd
refused 'nothing travels' --exchange allreduce
refused '\-\-servers 3, but --threads 2' --threads 2 --servers 3
run 2 "$NOWAIT" eval "$runs/base"
err_has "for 'nowait train --model logit' only"
run 3 "$NOWAIT" train --dataset libsvm --data-dir "$work" --run-dir "$runs/refused"
err_has 'name the training file itself with --data-dir'
printf '1 2:1 1:1\n' >"$data/bad"
run 3 "$NOWAIT" train --dataset libsvm --data-dir "$data/bad" --run-dir "$runs/refused"
err_has 'bad:1: index 1 follows 2; indices of a row must ascend'
[ ! -e "$runs/refused" ] || complain "a refused run left a directory"

finish
