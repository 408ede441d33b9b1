#!/bin/sh
# compress.sh - compression from the command line: options as the reference codes spell them, choices by name, what is refused
# and why, the tables, and runs that go on bit for bit with what their memories hold, alone and on virtual clusters.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/runs.sh"

refused() { # PATTERN OPTIONS...
    pattern=$1
    shift
    run 2 "$NOWAIT" help config $tiny "$@"
    err_has "$pattern"
}
number() { sed -n "s/^ *\"$2\": \([-0-9.e+]*\),*\$/\1/p" "$runs/$1/summary.json" | head -n 1; }
is() { [ "$(awk "BEGIN { print ($1) ? 1 : 0 }")" = 1 ] || complain "$2: $1"; }

# ---- every method trains, alone and with others ----
for method in none fp16 bf16 topk randomk thresholdv adaptivethreshold terngrad qsgd sign natural int8 powersgd dgc; do
    train "alone-$method" --max-steps 4 --method $method
    train "two-$method" --max-steps 4 --method $method --virtual 2 --exchange allreduce
    equal "method of $method" $method "$(value two-$method method)"
done
for method in fp16 bf16 terngrad qsgd sign natural int8; do # ratios and thresholds are those of the seeds
    is "$(number two-$method payload_bytes) < 0.6 * $(number two-$method dense_bytes)" "$method sends less"
done
equal "payload of floats as they are" "$(number two-none dense_bytes)" "$(number two-none payload_bytes)"
train server --max-steps 12 --method topk --ratio 0.05 --memory error --exchange server --communication async --virtual 4
is "$(number server payload_bytes) < 0.3 * $(number server dense_bytes)" "a server gets and sends less"
train dropping --max-steps 30 --method topk --ratio 0.05 --memory error --exchange server --communication async --virtual 5 \
    --max-staleness 1 --staleness drop
is "$(number dropping memory_norm) > 0" "memories hold something"

# ---- lines of the reference codes ----
run 0 "$NOWAIT" train $tiny --defaults layerwise --quiet --run-dir "$runs/seed" --max-steps 3 --virtual 2 -w 2 -n lenet5 \
    --exchange allreduce -c entiremodel --method Topk -K 0.01 -V 0.001 -Q 255 --momentum 0.9
equal "-c" entiremodel "$(value seed compress)"
run 0 "$NOWAIT" train $tiny --defaults layerwise --quiet --run-dir "$runs/sparsification" --max-steps 3 --sparsification --randk 0.1
equal "sparsification" randomk "$(value sparsification method)"
is "$(number sparsification memory_norm) > 0" "sparsification has error feedback"
run 0 "$NOWAIT" train --configs configs/cifar/resnet20.py configs/dgc/wm5.py configs/dgc/fp16.py configs/dgc/int32.py configs/dgc/mm.py \
    $tiny --quiet --run-dir "$runs/dgc" --max-steps 3 --configs.train.compression.compress_ratio 600
err_has 'compress_ratio 600 means a ratio of 0.0016'
err_has '^nowait: --int32-indices has no effect'
run 0 "$NOWAIT" help config $tiny --method RandomDithering
out_has '^method: qsgd '
err_has 'compresses each tensor by itself'
err_has 'passes --exchange allreduce, also of one replica'
run 0 "$NOWAIT" help config $tiny --method topk --compress none
err_has '^nowait: --compress none: gradients are not compressed'
run 0 "$NOWAIT" help config $tiny --method dgc
out_has '^ratio: 0.001 '
out_has '^optimizer: dgc-sgd '

# ---- tables, and choices by name ----
run 0 "$NOWAIT" train $tiny --run-dir "$runs/named" --max-steps 3 --virtual 3 --exchange allreduce --cluster 1g --method topk \
    --ratio 0.01 --values fp16 --dense-below 50 --codec-for 'fc*.weight=topk:0.1' --codec-for 'fc1.weight=none' 'conv2.*=int8'
out_has '^conv1.weight +450  topk 0.01 +[45]$'
out_has '^conv1.bias +6  dense +all$'
out_has '^fc1.weight +48000  dense +all$'
out_has '^fc2.weight +10080  topk 0.1 +1008$'
out_has '^conv2.bias +16  int8 +all$'
out_has '^dense .*owners: a rank sends about [0-9]+ bytes a step$'
out_has '^topk 0.01 .*gather: a rank sends about [0-9]+ bytes a step$'
out_has 'shorter by a factor of'
out_has 'positions of entries'
out_has 'it (paid|did not pay)|it pays on links below'
run 0 "$NOWAIT" help config $tiny --method topk --ratio 0.01 -c entiremodel --dense-below 50
out_has '^# conv1.weight +150  topk 0.01 +of the model$|^# conv1.weight +450  topk 0.01 +of the model$'
out_has '^# conv1.bias +6  dense +all$'
codec_of() { # RUN CODEC KEY: from ledger.json
    awk -v codec="\"$2\"," -v key="\"$3\":" '$1 == "\"codec\":" { here = $2 == codec } here && $1 == key { print $2 + 0; exit }' \
        "$runs/$1/ledger.json"
}
entries=$(codec_of named topk entries)
is "$(codec_of named topk indices) >= $(codec_of named topk indices_bound)" "places take what they need at least"
is "$(codec_of named topk indices) < 1.1 * $(codec_of named topk indices_bound) + 9 * $(codec_of named topk payloads)" "and little more"
equal "lists of int32 places" "$((6 * entries))" "$(codec_of named topk int32_lists)"
equal "lists of int64 places" "$((10 * entries))" "$(codec_of named topk int64_lists)"
is "$(codec_of named topk bytes) < 0.6 * $(codec_of named topk int32_lists)" "lists are longer"
is "$(codec_of named int8 bytes) * 3 < $(codec_of named int8 float_bytes)" "int8 is shorter than floats"
train low-rank --max-steps 3 --virtual 2 --method powersgd --memory error --cluster 1g
is "$(codec_of low-rank powersgd payloads) == 12 && $(codec_of low-rank powersgd bytes) > 0" "rounds of floats are counted"
is "$(number low-rank encode_seconds) > 0 && $(number low-rank decode_seconds) > 0" "and so is their time"
run 0 "$NOWAIT" train $tiny --run-dir "$runs/verdict" --max-steps 3 --virtual 3 --cluster 1g --method topk --ratio 0.01
out_has 'at 940 Mbit/s a step saves .* it (paid|did not pay)$'
grep -q '"collective":"owners [0-9]* B, gather [0-9]* B"' "$runs/named/metrics.jsonl" || complain "the run record lacks what travels how"
grep -q '"compression_ratio":0.01' "$runs/named/metrics.jsonl" || complain "the ratio of an epoch is missing"

# ---- epochs without compression are said, and so are options without effect ----
run 0 "$NOWAIT" train $tiny --run-dir "$runs/falls" --max-epoch 3 --virtual 3 --method dgc --ratio 0.01 --ratio-warm-up 2 \
    --ratio-warm-up-list 1 0.5 --exchange allreduce --replica-lr-scaling false
out_has '^exchanged uncompressed, since messages would not be shorter: epochs 1$'
equal "shares of epochs" "1 0.5 0.01" "$(sed -n 's/^{"record":"epoch".*"compression_ratio":\([^,}]*\).*/\1/p' "$runs/falls/metrics.jsonl" | tr '\n' ' ' | sed 's/ $//')"
run 0 "$NOWAIT" train $tiny --run-dir "$runs/all" --max-steps 2 --virtual 2 --method topk --ratio 1
out_has '^a ratio of 1 sends everything: gradients are exchanged uncompressed$'
equal "all is sent as it is" "$(number all dense_bytes)" "$(number all payload_bytes)"
# a ratio that belongs to no codec of the run changes nothing
train threshold --max-steps 2 --virtual 2 --method thresholdv --threshold 0.05 --ratio 1
is "$(number threshold payload_bytes) < 0.5 * $(number threshold dense_bytes)" "thresholds compress, whatever --ratio is"
train mixed --max-steps 2 --virtual 2 --method sign --codec-for 'conv1.weight=topk:1'
is "$(number mixed payload_bytes) < 0.1 * $(number mixed dense_bytes)" "one tensor's ratio of 1 leaves the others compressed"
run 0 "$NOWAIT" help config $tiny --method qsgd --ratio 0.1 --threshold 3
err_has '^nowait: --ratio, --threshold have no effect with --method qsgd$'
run 0 "$NOWAIT" help config $tiny --method randomk --values fp16
err_has '^nowait: --values has no effect with --method randomk, whose shared entries are averaged as f32$'
run 0 "$NOWAIT" help config $tiny --method randomk --values fp16 --randomk-seed private
! grep -q 'no effect' "$work/err" || complain "values of private random-k are 16 bits long"

# ---- 1-bit Adam: gradients as they are first, then signs of momentum ----
adam="--optimizer adam --lr 0.0001"
for n in 2 3; do
    train "adam$n" --max-steps 6 $adam --virtual $n --exchange allreduce
    train "early$n" --max-steps 6 $adam --virtual $n --method onebit --freeze-variance 6
    train "late$n" --max-steps 12 $adam --virtual $n --method onebit --freeze-variance 6 --checkpoint-every 4
    equal "what the first steps send" "$(number adam$n payload_bytes)" "$(number early$n payload_bytes)"
    is "$(number late$n payload_bytes) < 1.1 * $(number early$n payload_bytes)" "signs are short"
    is "$(number late$n memory_norm) > 0" "momentum has error feedback"
    train "stopped$n" --max-steps 4 $adam --virtual $n --method onebit --freeze-variance 6
    run 0 "$NOWAIT" train --quiet --resume "$runs/stopped$n" --max-steps 12
    equal "1-bit Adam goes on" "$(weights late$n)" "$(weights stopped$n)"
done
equal "the first steps are Adam's" "$(weights adam2)" "$(weights early2)"
train momentum --max-steps 8 $adam --virtual 2 --method int8 --memory momentum --freeze-variance 4 --accumulation-steps 2
refused 'add --optimizer adam' --method onebit
refused 'with --freeze-variance' --method onebit --optimizer adam
refused 'add --method onebit' --optimizer adam --freeze-variance 9
refused 'of its own; leave --memory out' --method onebit --memory error --optimizer adam --freeze-variance 9
refused 'which a server never has' --exchange server --method onebit --optimizer adam --freeze-variance 9
refused 'give --method onebit' --codec-for 'fc1.*=onebit'

# ---- what codecs cost on virtual clusters ----
for n in 0 1 2; do
    printf 'world: 2\nmemory: 1 GB/s\nnic: 1 Gbit/s\n' >"$work/cost$n.yaml"
done
echo 'codecs: {topk: {error: 500x}, sign: {encode: 500x}}' >>"$work/cost1.yaml"
echo 'codecs: {topk: {encode: 500x, decode: 500x}, sign: {encode: 500x}}' >>"$work/cost2.yaml"
for n in 0 1 2; do
    train "cost$n" --cluster "$work/cost$n.yaml" --exchange allreduce --max-steps 3 --method topk --ratio 0.05 --memory error
    train "plain$n" --cluster "$work/cost$n.yaml" --exchange allreduce --max-steps 3 --method fp16
done
seconds() { number "$1" virtual_seconds; }
is "$(seconds cost1) > 2 * $(seconds cost0)" "a memory's own factor counts"
is "$(seconds cost2) > 1.5 * $(seconds cost1)" "a memory that is not listed costs what encoding does, and decoding counts"
equal "the weights are the same" "$(weights cost0)" "$(weights cost2)"
equal "other codecs' factors change nothing" "$(seconds plain0)" "$(seconds plain2)"

# ---- refusals ----
refused 'share that is sent: above 0' --method topk --ratio 0
refused 'must be 0 to 1' --method topk --ratio 1.5
refused 'of its own; leave --memory out' --method dgc --memory error
refused 'does not know; use sgd' --method dgc --optimizer adam
refused 'keeps what a method does not send' --memory error
refused 'takes PATTERN=METHOD' --codec-for layer1
refused "the method is none.*, not 'tokp'" --codec-for 'a=tokp'
refused 'takes no number' --codec-for 'a=sign:3'
refused 'above 0, and at most 1' --codec-for 'a=topk:3'
refused 'come one by one to a server' --exchange server --method powersgd
refused 'estimates a mean over all workers' --exchange server --method topk --memory ef21
refused '16 or more' --method qsgd --bucket 7
refused 'memory dgc resets the momentum' --method dgc --codec-for 'fc1.weight=fp16'
refused 'choose --memory none, or leave --scaled out' --method randomk --ratio 0.01 --scaled --memory error
refused 'needs the number of its epochs' --method dgc --ratio-warm-up-list 0.1 0.2
run 2 "$NOWAIT" train $tiny --quiet --run-dir "$runs/none" --max-steps 1 --method topk --codec-for 'x*=none'
err_has "'x\*=\.\.\.' matches no tensor"
run 2 "$NOWAIT" train $tiny --quiet --run-dir "$runs/none" --max-steps 1 --method terngrad --memory error
err_has 'memory'

# ---- a run that was stopped goes on, bit for bit, with all that memories hold ----
for way in "--exchange allreduce" "--virtual 2 --exchange allreduce" "--virtual 4 --exchange allreduce --collective owners" \
    "--virtual 3 --exchange allreduce --collective gather --delay 1"; do
    for how in "topk --ratio 0.05 --memory error --values fp16" "dgc --ratio 0.02 --ratio-warm-up 1" "sign --memory ef21"; do
        name=$(echo "$way $how" | tr -c 'a-z0-9\n' -)
        train "whole$name" $way --method $how --max-steps 8 --checkpoint-every 4
        train "part$name" $way --method $how --max-steps 4 --checkpoint-every 4
        run 0 "$NOWAIT" train --quiet --resume "$runs/part$name" --max-steps 8
        equal "weights of$name" "$(weights "whole$name")" "$(weights "part$name")"
    done
done
# ... and its tables are of the whole run
for way in "allreduce" "server --communication async"; do
    how="--virtual 3 --exchange $way --method topk --ratio 0.05 --memory error --checkpoint-every 4"
    whole=counts-${way%% *} part=counts-part-${way%% *}
    train "$whole" $how --max-steps 8
    train "$part" $how --max-steps 4
    run 0 "$NOWAIT" train --quiet false --resume "$runs/$part" --max-steps 8
    out_has '^    topk +[0-9]'
    for key in payloads bytes entries int64_lists float_bytes indices_bound; do
        equal "$key of $way" "$(codec_of "$whole" topk $key)" "$(codec_of "$part" topk $key)"
    done
    equal "payloads of $way" "$(number "$whole" payload_bytes)" "$(number "$part" payload_bytes)"
    equal "floats of $way" "$(number "$whole" dense_bytes)" "$(number "$part" dense_bytes)"
    is "$(number "$whole" dense_bytes) > 2 * $(number "$whole" payload_bytes)" "and they are shorter"
done
equal "one thread and two" "$(train t1 --max-steps 5 --method topk --ratio 0.05 --memory error --threads 1; weights t1)" \
    "$(train t2 --max-steps 5 --method topk --ratio 0.05 --memory error --threads 2; weights t2)"
finish
