#!/bin/sh
# local.sh - outer steps from the command line: what is said of them, what is refused and why, runs on virtual clusters that
# send less, and that go on bit for bit, also in a world of another size.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"

refused() { # PATTERN OPTIONS...
    pattern=$1
    shift
    run 2 "$NOWAIT" help config $tiny "$@"
    err_has "$pattern"
}
local="--exchange local --virtual 4"

# ---- what is said, and what is counted ----
run 0 "$NOWAIT" train $tiny --run-dir "$runs/told" $local --sync-every 4 --fragments 2 --max-steps 8 --method topk --ratio 0.02 \
    --values 2 --memory error --outer-optimizer nesterov
out_has '^outer steps: every 4 inner steps, all ranks, 2 fragments; uncompressed a rank sends [0-9]+ bytes in 4 steps .allreduce: [0-9]+.$'
out_has '^outer memory: [0-9.]+ MiB per rank for outer parameters.*, [0-9.]+ MiB for the outer optimizer$'
out_has '^topk 0.02 .*: a rank sends about [0-9]+ bytes in 4 steps$'
is "$(value told payload_bytes) * 10 < $(value told dense_bytes)" "few entries of few bits are short"
train reduced --exchange allreduce --virtual 4 --max-steps 8
train averaged $local --sync-every 4 --max-steps 8
is "$(value reduced payload_bytes) == 4 * $(value averaged payload_bytes)" "a quarter of the outer steps is a quarter of the bytes"
equal "what floats take" "$(value averaged dense_bytes)" "$(value averaged payload_bytes)"
train pairs $local --sync-every 4 --outer-group pairs --max-steps 8
equal "what floats take" "$(value pairs dense_bytes)" "$(value pairs payload_bytes)"
is "$(value averaged payload_bytes) == 1.5 * $(value pairs payload_bytes)" "a partner gets one model"
run 0 "$NOWAIT" eval "$runs/pairs" --quiet
run 0 "$NOWAIT" help train exchange
out_has 'sync-every'

# ---- steps of one's own in slow and fast ranks: the bits do not depend on time ----
echo 'ranks: [{rank: 1, slowdown: 4x}]' >"$work/uneven.yaml"
for delay in 0 1; do
    train "even$delay" $local --sync-every 3 --delay $delay --max-steps 10 --outer-optimizer nesterov
    train "uneven$delay" $local --sync-every 3 --delay $delay --max-steps 10 --outer-optimizer nesterov --cluster "$work/uneven.yaml"
    equal "weights with a slow rank" "$(weights "even$delay")" "$(weights "uneven$delay")"
done
# What is sent during 32 steps costs little time, unless an epoch ends.
for delay in 0 1; do
    train "slow$delay" --limit 6400 $local --sync-every 32 --delay $delay --max-steps 160 --cluster 1g
done
is "$(value slow1 virtual_seconds) < 0.9 * $(value slow0 virtual_seconds)" "a delay hides the exchange"

# ---- from between outer steps ----
train whole $local --sync-every 5 --delay 1 --fragments 2 --max-steps 17 --max-epoch 9
train half $local --sync-every 5 --delay 1 --fragments 2 --max-steps 17 --max-epoch 9 --checkpoint-every 7 --keep 9
cp -r "$runs/half" "$runs/again"
rm -r "$runs/again/checkpoints/17" "$runs/again/summary.json"
run 0 "$NOWAIT" train --resume "$runs/again" --quiet
equal "weights after a resume" "$(weights whole)" "$(weights again)"
equal "the same with checkpoints" "$(weights whole)" "$(weights half)"
cp -r "$runs/half" "$runs/other"
rm -r "$runs/other/checkpoints/17" "$runs/other/summary.json"
run 0 "$NOWAIT" train --resume "$runs/other" --quiet --virtual 3
err_has 'was written by a world of another size'
equal "steps" 17 "$(value other steps)"
train continued --init "$runs/whole" --exchange allreduce --virtual 2 --max-steps 4
run 2 "$NOWAIT" train --resume "$runs/half" --quiet --max-steps 20 --fragments 3
err_has 'give the same --fragments'
train alone --exchange local --sync-every 3 --max-steps 7 --outer-optimizer nesterov # what is called lookahead

# ---- refusals ----
refused 'add --exchange local' --exchange allreduce --virtual 2 --sync-every 4
refused 'add --exchange local' --exchange allreduce --virtual 2 --outer-group pairs
refused 'sync-every is 0; it must be 1 to' $local --sync-every 0
refused 'fewer fragments or more steps' $local --sync-every 4 --fragments 5
refused 'momentum above 0; sgd has none' $local --outer-optimizer nesterov --outer-momentum 0
refused 'nothing is learned' $local --outer-lr 0
refused 'drift apart' $local --outer-group pairs --outer-lr 0.7 --outer-momentum 0.9
refused 'sends parameters, of which --method topk' $local --outer-group pairs --method topk
refused 'keeps momentum of gradients' $local --method dgc
refused 'drop --ema-decay' $local --ema-decay 0.9
run 2 "$NOWAIT" train $tiny --quiet --run-dir "$runs/full" $local --method topk --ratio 1
err_has 'makes messages longer than floats'
finish
