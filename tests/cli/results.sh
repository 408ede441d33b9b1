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

finish
