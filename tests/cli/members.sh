#!/bin/sh
# members.sh - workers that average in pairs on a virtual cluster where some die, pause for longer than --timeout, or join late:
# all updates are made, whoever returns copies a neighbour's parameters, and runs are saved, continued and replayed.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"

cat >"$work/cluster.yaml" <<'END'
world: 5
link: {latency: 1 ms, bandwidth: 1 Gbit/s}
compute: {forward: 10 ms, backward: 20 ms, update: 1 ms}
noise: lognormal 0.1
END
fault() { # NAME LINES...: a script of faults
    name=$1
    shift
    { echo "faults:"; printf '  - %s\n' "$@"; } >"$work/$name.yaml"
}
common="--dataset synthetic --model lenet5 --batch-size 16 --limit 320 --max-epoch 15 --eval-every 5 --threads 1 --lr 1e-2 --seed 3"
gossip="--exchange gossip --virtual 5 --cluster $work/cluster.yaml --timeout 0.4"
trained() { # NAME OPTIONS...
    name=$1
    shift
    run 0 "$NOWAIT" train $common --quiet --run-dir "$runs/$name" $gossip "$@"
}
again() {
    run 0 "$NOWAIT" replay "$runs/$1" --threads 1 --quiet
    out_has 'same weights as summary.json'
}
number() { sed -n "s/^ *\"$2\": \([-0-9.e+]*\),*\$/\1/p" "$runs/$1/summary.json" | head -n 1; }
told() { grep -c "\"fault\":\"peer\".*$2" "$runs/$1/metrics.jsonl"; }

fault dies '{kind: die, rank: 3, at: 0.6 s}'
fault two '{kind: die, rank: 3, at: 0.6 s}' '{kind: stop, rank: 1, at: step 30}'
fault pauses '{kind: pause, rank: 2, at: 0.6 s, for: 0.8 s}'
fault joins '{kind: join, rank: 4, at: 0.7 s}' '{kind: join, rank: 2, at: 0.3 s}'
fault all '{kind: join, rank: 4, at: 0.7 s}' '{kind: die, rank: 3, at: 1 s}' '{kind: pause, rank: 2, at: 0.9 s, for: 0.6 s}'

for way in "--graph-topology ring --apply-acid" "--pairing first-come" "--pairing scheduled --graph-topology star" \
    "--deterministic-coms --deterministic-neighbor --graph-topology exponential --apply-acid --acid-params 0.3 0.6"; do
    for what in dies two pauses joins all; do
        rm -rf "$runs/run"
        trained run $way --faults "$work/$what.yaml"
        equal "updates ($what, $way)" 300 "$(number run steps)"
        equal "records of updates" 300 "$(grep -c '^{"record":"step"' "$runs/run/metrics.jsonl")"
        equal "evaluated epochs" 4 "$(epochs run | grep -c '"test_top1":[0-9]')"
        case $what in
        dies | two | all) err_has "rank 3 has sent nothing for too long and is dropped" ;;
        esac
        [ $what = two ] && err_has "rank 1 has sent nothing for too long and is dropped"
        [ $what = pauses ] && { err_has "rank 2 has sent nothing for too long"; err_has "rank 2 is back"; }
        [ $what = joins ] && { err_has "rank 4 is not there yet"; err_has "rank 4 has joined"; err_has "rank 2 has joined"; }
        [ $what = pauses ] && equal "faults told" 2 "$(told run 'rank 2')"
        again run
    done
done
equal "lines of exchanges.tsv" 6 "$(wc -l <"$runs/run/exchanges.tsv")"

# ---- checkpoints while a worker is away ----
trained whole --graph-topology ring --apply-acid --checkpoint-every 60 --keep 100 --faults "$work/dies.yaml"
again whole
saved=$(ls "$runs/whole/checkpoints" | grep 240)
[ -n "$saved" ] || complain "there is no checkpoint of step 240: $(ls "$runs/whole/checkpoints")"
saved=$runs/whole/checkpoints/$saved
ls "$saved" | grep -q replica2 || complain "the checkpoint lacks a rank that was there"
! ls "$saved" | grep -q replica3 || complain "the checkpoint has a rank that was away"
for copy in on others; do
    cp -r "$runs/whole" "$runs/$copy"
    rm -rf "$runs/$copy/summary.json" "$runs/$copy/checkpoints"/*300*
done
run 0 "$NOWAIT" train --quiet --resume "$runs/on" --max-epoch 20 # rank 3, dead again, is dropped again
equal "updates after a resume" 400 "$(number on steps)"
err_has "rank 3 has sent nothing for too long"
again on
run 0 "$NOWAIT" train --quiet --resume "$runs/others" --virtual 4 --cluster ideal --max-epoch 16
equal "updates in another world" 320 "$(number others steps)"
# A replay cannot begin where a rank was away of which the log goes on.
run 1 "$NOWAIT" replay "$runs/whole" --from "$saved" --threads 1 --quiet
err_has "written while 1 ranks? were away"

# ---- nobody is left but the one that counts; and that one is lost ----
fault others '{kind: die, rank: 1, at: 0.3 s}' '{kind: die, rank: 2, at: 0.35 s}' '{kind: stop, rank: 3, at: 0.4 s}' \
    '{kind: die, rank: 4, at: 0.3 s}'
trained alone --graph-topology ring --faults "$work/others.yaml"
equal "updates of one" 300 "$(number alone steps)"
fault first '{kind: die, rank: 0, at: 0.6 s}'
run 5 "$NOWAIT" train $common --quiet $gossip --run-dir "$runs/first" --faults "$work/first.yaml"
err_has '^nowait: .*waited [0-9.]+ s for rank 0'

# ---- refused ----
run 2 "$NOWAIT" train $common --virtual 5 --exchange allreduce --faults "$work/joins.yaml"
err_has "only with --exchange gossip"
fault zero '{kind: join, rank: 0, at: 1 s}'
run 2 "$NOWAIT" train $common $gossip --faults "$work/zero.yaml"
err_has "rank 0 counts the updates"
fault step '{kind: join, rank: 1, at: step 5}'
run 3 "$NOWAIT" train $common $gossip --faults "$work/step.yaml"
err_has "step.yaml:2.*has no steps"
finish
