#!/bin/sh
# gossip_train.sh - training with averaging in pairs over MPI: exactly the updates asked for, weights that all ranks share at
# the end, replays; stopped by a signal, resumed with as many ranks and with others; whoever is suspended, also the rank that
# counts, holds up nobody else's gradients.
. "$(dirname "$0")/lib.sh"

common="--dataset synthetic --model lenet5 --batch-size 16 --limit 320 --max-epoch 4 --threads 1 --lr 1e-2 --seed 3"
pairs="--exchange gossip --graph-topology ring"
met() { # RANKS NAME OPTIONS...
    n=$1 name=$2
    shift 2
    run 0 mpirun -np "$n" "$NOWAIT" train $common --quiet --run-dir "$runs/$name" $pairs "$@"
}
again() {
    run 0 "$NOWAIT" replay "$runs/$1" --threads 1 --quiet
    out_has 'same weights as summary.json'
}
number() { sed -n "s/^ *\"$2\": \([-0-9.e+]*\),*\$/\1/p" "$runs/$1/summary.json" | head -n 1; }
gradients() { awk -F '\t' 'NR > 1 { all += $2 } END { print all }' "$runs/$1/exchanges.tsv"; }

for way in "--apply-acid" "--pairing first-come" "--pairing scheduled --apply-acid"; do
    rm -rf "$runs/four"
    met 4 four $way
    equal "updates" 80 "$(value four steps)"
    equal "updates of all ranks" 80 "$(gradients four)"
    equal "evaluated epochs" 4 "$(epochs four | grep -c '"test_top1":[0-9]')"
    is "$(number four exchanges) > 8" "ranks average ($way)"
    again four
done
for way in sent received; do
    equal "bytes and transport, $way" "$(ledger four $way bytes)" "$(ledger four $way transport_bytes)"
done
equal "bytes sent and received" "$(ledger four sent bytes)" "$(ledger four received bytes)"

# All ranks end with the same weights, of which the checkpoint is.
run 0 "$NOWAIT" eval "$runs/four" --format json
grep -q "\"weights_sha256\": \"$(weights four)\"" "$runs/four"/checkpoints/*/manifest.json || complain "no checkpoint has the mean"

# Encoded parameters: every byte is accounted for, what was recorded is replayed, what is saved goes on.
for way in "--method topk --ratio 0.05 --apply-acid" "--method modulo --pairing scheduled" "--method sign --pairing first-come"; do
    rm -rf "$runs/coded"
    met 4 coded $way --consensus-every 1000
    equal "updates" 80 "$(value coded steps)"
    is "$(number coded exchanges) > 8" "ranks average ($way)"
    is "$(number coded payload_bytes) < 0.9 * $(number coded dense_bytes)" "messages are shorter ($way)"
    equal "bytes and transport" "$(ledger coded sent bytes)" "$(ledger coded sent transport_bytes)"
    again coded
done
run 0 mpirun -np 4 "$NOWAIT" train --quiet --resume "$runs/coded" --max-epoch 5
equal "updates after a resume" 100 "$(value coded steps)"
again coded

# Stopped by a signal, and resumed with as many ranks and with others.
mpirun -np 4 "$NOWAIT" train $common --quiet --max-epoch 5000 --eval-every 100000 --run-dir "$runs/stopped" $pairs --apply-acid \
    >/dev/null 2>"$work/err" &
job=$!
for i in $(seq 200); do
    [ "$(steps_of "$runs/stopped")" -gt 60 ] && break
    sleep 0.1
done
kill -USR1 $job
wait $job
ls "$runs/stopped/checkpoints" | grep -q '[0-9]' || complain "there is no checkpoint after a signal"
again stopped
stopped=$(steps_of "$runs/stopped")
epochs=$((stopped / 20 + 2))
run 0 mpirun -np 4 "$NOWAIT" train --quiet --resume "$runs/stopped" --max-epoch $epochs
equal "updates after a resume" $((epochs * 20)) "$(value stopped steps)"
run 0 mpirun -np 3 "$NOWAIT" train --quiet --resume "$runs/four" --max-epoch 6
equal "updates of other ranks" 120 "$(value four steps)"

# A rank is suspended for some seconds: the others go on. Rank 0 counts, so what was made meanwhile is seen afterwards.
for rank in 2 0; do
    dir=$runs/suspended$rank
    mpirun -np 4 "$NOWAIT" train $common --quiet --max-epoch 100000 --eval-every 1000000 --batch-size 64 --model resnet9 --width 16 \
        --run-dir "$dir" $pairs --apply-acid >/dev/null 2>"$work/err" &
    job=$!
    for i in $(seq 400); do
        [ "$(steps_of "$dir")" -gt 40 ] && break
        sleep 0.1
    done
    process=$(process_of "$dir" $rank)
    kill -s STOP "$process"
    before=$(steps_of "$dir")
    sleep 5
    [ $rank = 0 ] || is "$(steps_of "$dir") > $before + 5" "others compute while rank $rank is suspended"
    kill -s CONT "$process"
    sleep 1
    is "$(steps_of "$dir") > $before + 5" "others have computed while rank $rank was suspended"
    kill -USR1 $job
    wait $job
    again suspended$rank
done
finish
