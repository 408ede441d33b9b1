#!/bin/sh
# results.sh - --path-logs: results.csv of several runs, and who averaged with whom; the published job of ACiD.
tests=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$tests/../.." && pwd)
. "$tests/lib.sh"
. "$tests/runs.sh"
logs=$work/logs
table=$logs/results.csv

command -v python3 >/dev/null 2>&1 || {
    echo "skipped: there is no python3, which reads the table"
    exit 77
}
# field ROW COLUMN: of results.csv.
field() {
    python3 -c 'import csv, sys
print(list(csv.DictReader(open(sys.argv[1], newline="")))[int(sys.argv[2]) - 1][sys.argv[3]])' "$table" "$1" "$2"
}

# ---- a worker alone ----
train alone --max-epoch 2 --path-logs "$logs"
[ "$(wc -l <"$table")" = 2 ] || complain "results.csv has not one row"
equal "rate" "$(field 1 lr)" 0.01
equal "batch" "$(field 1 batch_size)" 10
equal "accuracy" "$(field 1 test_accuracy)" "$(printf %.2f "$(value alone test_top1)")"
field 1 test_correct | grep -Eqx '[0-9]+ / 120' || complain "test_correct: $(field 1 test_correct)"
field 1 total_time | grep -Eqx '[0-9]+ min [0-9]+ s' || complain "total_time: $(field 1 total_time)"
field 1 id | grep -Eqx '[0-9]{4}(_[0-9]+){6}' || complain "id: $(field 1 id)"
[ ! -e "$logs/com_logs" ] || complain "there is nobody to average with"
run 0 python3 -c 'import csv, re, sys
names = next(csv.reader(open(sys.argv[1], newline="")))
key = lambda name: [int(x) if x.isdigit() else x for x in re.split("([0-9]+)", name)]
assert names == sorted(names, key=key) and len(set(names)) == len(names), names' "$table"
equal "knots" "$(field 1 lr_decay_milestones)" "30,60,90"
train elsewhere --max-epoch 1 --max-steps 3
[ "$(wc -l <"$table")" = 2 ] || complain "a run without --path-logs adds no row"
run 0 "$NOWAIT" train $tiny --quiet --run-dir "$runs/alone" --resume "$runs/alone" --max-epoch 2 --path-logs "$logs"
[ "$(wc -l <"$table")" = 2 ] || complain "a run that had ended adds no row"

# ---- four workers on a ring ----
train ring --exchange gossip --graph-topology cycle --virtual 4 --max-epoch 2 --path-logs "$logs"
log=$logs/com_logs/$(field 2 id).txt
equal "workers" "$(field 2 n_workers) $(field 2 n_nodes)" "4 4"
equal "graph" "$(field 2 graph_topology)" cycle
for worker in 0 1 2 3; do
    field 2 worker_$worker | grep -Eqx '[0-9]+ / [0-9]+' || complain "worker_$worker: $(field 2 worker_$worker)"
    [ -z "$(field 1 worker_$worker)" ] || complain "the run before has counts of workers"
    equal "averagings of worker $worker" "$(field 2 worker_$worker | sed 's,.*/ ,,')" \
        "$(awk -v row=$worker 'NR == row + 1 { for (i = 1; i <= NF; i++) sum += $i; print sum }' "$log")"
done
equal "gradients" "$(for w in 0 1 2 3; do field 2 worker_$w; done | awk '{ sum += $1 } END { print sum }')" "$(value ring steps)"
awk 'NF != 4 { bad = 1 } { for (i = 1; i <= NF; i++) n[NR, i] = $i }
    END { for (r = 1; r <= 4; r++) for (c = 1; c <= 4; c++) {
            if (n[r, c] != n[c, r] || ((r - c) % 2 == 0) && n[r, c]) bad = 1
            sum += n[r, c] }
        exit bad || NR != 4 || !sum }' "$log" || complain "com_logs are not those of a ring: $(cat "$log")"

# ---- the published job ----
run 0 env SBATCH=echo RUN=runs/x "$root/scripts/cluster/acid-cifar10.sh" --data-dir /data
out_has '^--nodes=4 --ntasks-per-node=8 .* scripts/cluster/slurm.sbatch --defaults acid '
out_has '--path-logs runs/x --data-dir /data$'
run 0 "$NOWAIT" train $(sed 's/.*slurm.sbatch //' "$work/out") --virtual 32 --print-config
for line in 'exchange: gossip' 'apply_acid: true' 'graph_topology: exponential' 'rate_com: 1' 'max_epoch: 300' 'batch_size: 128' \
    'lr: 0.1' 'momentum: 0.9' 'weight_decay: 0.0005' 'use_linear_scaling: true' 'decay_filter: no-1d' 'clip_norm: 1' \
    'scheduler: acid' 'model: resnet18' 'sampling: replicate' 'epoch_of: all' 'path_logs: runs/x'; do
    out_has "^$line( |$)"
done

finish
