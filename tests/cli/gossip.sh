#!/bin/sh
# gossip.sh - averaging in pairs in one process: one worker is serial training bit for bit; virtual workers give the same bits
# with any number of threads, resumed and replayed; the end is a mean of all; what makes no sense is refused.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"

common="--dataset synthetic --model lenet5 --batch-size 16 --limit 320 --max-epoch 2 --threads 1 --lr 1e-2 --seed 3"
trained() { # NAME OPTIONS...
    name=$1
    shift
    run 0 "$NOWAIT" train $common --quiet --run-dir "$runs/$name" "$@"
}
same() { equal "weights of $1 and $2" "$(weights "$1")" "$(weights "$2")"; }
number() { sed -n "s/^ *\"$2\": \([-0-9.e+]*\),*\$/\1/p" "$runs/$1/summary.json" | head -n 1; }
# sum DIR COLUMN: over the ranks, of exchanges.tsv
sum() { awk -F '\t' -v name="$2" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { all += $at } END { print all }' "$runs/$1/exchanges.tsv"; }
again() { # NAME: the same from its event log
    run 0 "$NOWAIT" replay "$runs/$1" --threads 1 --quiet
    out_has 'same weights as summary.json'
}

# ---- one worker ----
for rule in "" "--optimizer adam --lr 1e-3" "--optimizer lars" "--accumulation-steps 3"; do
    rm -rf "$runs/serial" "$runs/alone" "$runs/one"
    trained serial $rule
    trained alone --exchange gossip --apply-acid $rule
    trained one --exchange gossip --virtual 1 $rule
    same serial alone
    same serial one
    equal "accuracy alone" "$(number serial test_top1)" "$(number alone test_top1)"
done
equal "exchanges of one worker" 0 "$(number one exchanges)"

# ---- several: any number of threads, repeated, replayed ----
for way in "" "--apply-acid" "--pairing first-come --graph-topology exponential" "--pairing scheduled --apply-acid" \
    "--deterministic-coms --rate-com 2 --apply-acid" "--deterministic-neighbor --graph-topology ring" \
    "--rate-com 0.3 --graph-topology star" "--graph-topology torus --accumulation-steps 2 --apply-acid --optimizer adam --lr 1e-3"; do
    rm -rf "$runs/first" "$runs/second"
    trained first --exchange gossip --virtual 5 $way
    trained second --exchange gossip --virtual 5 $way --threads 3
    same first second
    equal "updates" "$(number first steps)" "$(sum first gradients)"
    is "$(number first exchanges) > 0" "workers average ($way)"
    equal "halves of pairs" "$(awk "BEGIN { print 2 * $(number first exchanges) }")" "$(sum first exchanges)"
    again first
done

# ---- rates; what is counted ----
long="--max-epoch 20 --eval-every 100 --virtual 8 --exchange gossip"
for rate in 0.5 1 3; do
    trained rate$rate $long --rate-com $rate
    is "$(number rate$rate exchanges) / (0.5 * $rate * 400) > 0.7 && $(number rate$rate exchanges) / (0.5 * $rate * 400) < 1.2" \
        "averagings per gradient at rate $rate"
done
trained never $long --rate-com 0
equal "averagings at rate 0" 0 "$(number never exchanges)"
is "$(number rate3 consensus_mean) < $(number rate1 consensus_mean)" "more averagings keep workers together"
is "$(number rate1 consensus_mean) < 0.5 * $(number never consensus_mean)" "averaging keeps workers together"
trained ring $long --graph-topology ring
trained ring-acid $long --graph-topology ring --apply-acid
equal "graph" cycle "$(value ring graph)"
is "$(number ring chi1) > 3.414 && $(number ring chi1) < 3.415 && $(number ring chi2) == 0.875" "constants of a ring of 8"
is "$(number ring-acid consensus_mean) < $(number ring consensus_mean)" "momentum keeps workers together"

# ---- epochs are evaluated while all go on; unequal shares of the images ----
trained epochs --exchange gossip --virtual 4 --max-epoch 4 --apply-acid --bn-sync average --model resnet9 --width 8
equal "evaluated epochs" 4 "$(epochs epochs | grep -c '"test_top1":[0-9]')"
equal "quiescent points" 1 "$(quiescent epochs)"
run 0 "$NOWAIT" eval "$runs/epochs" --format json
grep -q "\"weights_sha256\": \"$(weights epochs)\"" "$runs/epochs"/checkpoints/*/manifest.json || complain "no checkpoint has the mean"
trained unequal --exchange gossip --virtual 4 --max-epoch 4 --non-iid-data --dirichlet-alpha 0.1
differ "weights with unequal shares" "$(weights unequal)" "$(weights epochs)"

# ---- stopped and resumed: the same bits where the ranks were quiescent at the same updates ----
whole="--exchange gossip --virtual 4 --graph-topology ring --apply-acid --checkpoint-every 20 --keep 100 --momentum 0.9"
trained whole $whole
cp -r "$runs/whole" "$runs/resumed"
rm -rf "$runs/resumed/summary.json" "$runs/resumed/checkpoints"/*40 "$runs/resumed/checkpoints"/*4[0-9]
[ -n "$(ls "$runs/resumed/checkpoints")" ] || complain "there is no checkpoint to resume from"
run 0 "$NOWAIT" train --quiet --resume "$runs/resumed"
same whole resumed
equal "averagings after a resume" "$(number whole exchanges)" "$(number resumed exchanges)"
run 0 "$NOWAIT" train --quiet --resume "$runs/whole" --virtual 7 --max-epoch 3
equal "updates in another world" 60 "$(number whole steps)"

# ---- parameters travel encoded ----
for way in "--method topk --ratio 0.05" "--method sign --apply-acid --graph-topology ring" "--method int8 --gossip-values plain" \
    "--method randomk --ratio 0.1 --pairing scheduled" "--method bf16 --apply-acid" "--method modulo --apply-acid" \
    "--method modulo --modulo-bits 4 --modulo-bound 0.5 --pairing first-come" \
    "--method topk --ratio 0.1 --values 4 --compress bucket --codec-for conv1.bias=none fc1.weight=int8 --consensus-step 0.7"; do
    rm -rf "$runs/first" "$runs/second"
    trained first --exchange gossip --virtual 5 --consensus-every 1000 $way
    trained second --exchange gossip --virtual 5 --consensus-every 1000 $way --threads 3
    same first second
    is "$(number first payload_bytes) < 0.9 * $(number first dense_bytes)" "messages are shorter ($way)"
    is "$(number first encode_seconds) > 0 && $(number first decode_seconds) > 0" "codecs take time ($way)"
    again first
done
is "$(number first memory_norm) > 0" "copies lack something"
for way in "--method topk --ratio 0.05 --apply-acid" "--method modulo"; do
    rm -rf "$runs/whole" "$runs/resumed"
    trained whole --exchange gossip --virtual 4 --graph-topology ring $way --checkpoint-every 20 --keep 100
    cp -r "$runs/whole" "$runs/resumed"
    rm -rf "$runs/resumed/summary.json" "$runs/resumed/checkpoints"/*40 "$runs/resumed/checkpoints"/*4[0-9]
    run 0 "$NOWAIT" train --quiet --resume "$runs/resumed"
    same whole resumed
    run 0 "$NOWAIT" train --quiet --resume "$runs/whole" --virtual 3 --max-epoch 3
    equal "updates in another world" 60 "$(number whole steps)"
done
run 0 "$NOWAIT" train $common --run-dir "$runs/told" --exchange gossip --virtual 4 --method topk --ratio 0.05
out_has 'topk 0.05 .* difference: a rank sends about [0-9]+ bytes in an averaging'
grep -q '"collective": *"pairs [0-9]* B"' "$runs/told/metrics.jsonl" || complain "the record does not say how pairs average"

# ---- refused, in one sentence ----
refused() { # PATTERN OPTIONS...
    pattern=$1
    shift
    run 2 "$NOWAIT" train $common "$@"
    err_has "$pattern"
    err_lines 1
}
gossip="--exchange gossip --virtual 4"
refused "add --exchange gossip" --apply-acid
refused "add --exchange gossip" --exchange allreduce --virtual 2 --rate-com 2
refused "add --exchange gossip" --pairing scheduled
refused "add --apply-acid" $gossip --acid-params 0.1 0.5
refused "two numbers, eta and alpha" $gossip --apply-acid --acid-params 0.1
refused "each at once" $gossip --delay 1
refused "nothing is lost" $gossip --method topk --memory error
refused "keeps momentum of gradients" $gossip --method dgc
refused "averages in pairs" $gossip --method powersgd
refused "send the same entries" $gossip --method randomk --randomk-seed private
refused "throw two workers" $gossip --method randomk --scaled
refused "add --exchange gossip" --exchange allreduce --virtual 2 --method modulo
refused "add --exchange gossip" --exchange allreduce --virtual 2 --consensus-step 0.5
refused "add --method" $gossip --gossip-values plain
refused "is for --method modulo" $gossip --method topk --modulo-bound 1
refused "is for --method modulo" $gossip --method topk --modulo-bits 4
run 2 "$NOWAIT" train $common $gossip --method terngrad
err_has "terngrad may miss more of a tensor"
run 2 "$NOWAIT" train $common $gossip --method topk --gossip-values plain
err_has "use --gossip-values difference"
run 2 "$NOWAIT" train $common $gossip --method modulo --modulo-bits 3
err_has "or a --modulo-bound"
run 2 "$NOWAIT" train $common $gossip --method topk --compress entiremodel --codec-for 'fc1*=none'
err_has "choose --compress layerwise or bucket"
refused "averages one worker's weights" $gossip --ema-decay 0.99
refused "leave out --deterministic-neighbor" $gossip --pairing scheduled --deterministic-neighbor
refused "never average" $gossip --rate-com 0 --apply-acid
refused "exponentail" $gossip --graph-topology exponentail
finish
