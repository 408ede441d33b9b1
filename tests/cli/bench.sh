#!/bin/sh
# bench.sh - the benchmarks run on narrow models and say what they should.
. "$(dirname "$0")/lib.sh"

run 0 "$NOWAIT" bench train --model resnet9 --width 8 --batch-size 5 --steps 3 --threads 1 --format json
for key in images_per_second precision isa threads peak_memory_bytes peak_gflops step_seconds steal_percent load commit; do
    out_has "\"$key\":"
done
out_has '"threads": 1'
out_has '"batch_size": 5'
err_empty

run 0 "$NOWAIT" bench train --model resnet18 --width 8 --batch_size=4 --steps 2 --profile True
out_has 'images/s'
out_has 'conv backward weights +[0-9.]+ %'
out_has '^update +[0-9.]+ ns and 20 bytes a parameter, [0-9.]+ GB/s, [0-9.]+ % of the step$'
run 0 "$NOWAIT" bench train --model resnet9 --width 8 --batch-size 4 --steps 2 --profile --format json
for key in update_ns_per_parameter update_gb_per_second; do
    out_has "\"$key\": [0-9.]+"
done

run 0 "$NOWAIT" bench train --model resnet18 --width 8 --batch-size 4 --steps 1 --profile --no-profile
out_lacks 'conv backward weights|a parameter'

# bf16 without AMX is stored in bf16, multiplied in f32, and says so once.
run 0 env NOWAIT_ISA=generic "$NOWAIT" bench train --model resnet9 --width 8 --batch-size 4 --steps 1 --precision bf16 --format json
[ "$(grep -c 'there is no AMX here' "$work/err")" = 1 ] || complain "it is not said once that there is no AMX"
err_lines 0
out_has '"precision": "bf16"'
out_has '"isa": "generic-bf16"'

run 0 env NOWAIT_ISA=amx-emulated "$NOWAIT" bench train --model resnet9 --width 8 --batch-size 4 --steps 1 --format json
out_has '"precision": "bf16"'
out_has '"isa": "amx-emulated"'

run 0 "$NOWAIT" bench conv --model resnet18 --width 16 --batch-size 8 --repeats 1
out_has 'peak [0-9.]+ GFLOP/s'
out_has 'backward weights'
out_has 'geometric mean'
run 0 "$NOWAIT" bench conv --model resnet9 --width 16 --batch-size 8 --repeats 1 --fused --format json
out_has '"percent_of_peak":'
out_has '"percent_executed":'

# Winograd's algorithm and plain sums: the same losses but for rounding, not the same bits.
for way in auto direct; do
    run 0 "$NOWAIT" train --dataset synthetic --limit 64 --model resnet9 --width 16 --batch-size 32 --max-steps 2 \
        --precision f32 --convolution $way --run-dir "$work/$way" --quiet
    grep -o '"loss":[0-9.]*' "$work/$way/metrics.jsonl" | cut -c1-13 >"$work/$way.losses"
    grep -o '"weights_sha256":"[0-9a-f]*' "$work/$way/metrics.jsonl" | tail -n 1 >"$work/$way.hash"
    [ -s "$work/$way.losses" ] && [ -s "$work/$way.hash" ] || complain "--convolution $way leaves no losses or no hash"
done
cmp -s "$work/auto.losses" "$work/direct.losses" || complain "Winograd's losses are others"
if cmp -s "$work/auto.hash" "$work/direct.hash"; then complain "--convolution direct changes nothing"; fi

run 0 "$NOWAIT" bench loader --dataset synthetic --batch-size 16 --steps 2 --workers 1
out_has 'a core +[0-9]+ images/s'
out_has '1 worker +[0-9]+ images/s'
run 0 "$NOWAIT" bench loader --dataset synthetic --batch-size 16 --steps 2 --format json
for key in images_per_second_core images_per_second_core_best workers source height steal_percent commit; do
    out_has "\"$key\":"
done
out_has '"source": "memory"'
out_lacks '"images_per_second":'
run 2 "$NOWAIT" bench loader --dataset synthetic --workers -1
err_has 'workers'

run 0 "$NOWAIT" bench codec --repeats 1 --vectors 2
out_has '^copy: [0-9.]+ ms by one thread'
for codec in 'none +4.00( +[0-9.]+){4} +- \|( +[0-9.]+) +-( +[0-9.]+) \|( +[0-9.]+){2}$' 'fp16 +2.00( +[0-9.]+){5} \|( +[0-9.]+){3} \|( +[0-9.]+){2}$' \
    'terngrad +0.20( +[0-9.]+){4} +- ' 'sign +0.13( +[0-9.]+){5} ' 'qsgd 127/512 +1.01( +[0-9.]+){5} '; do
    out_has "^$codec"
done
err_empty
run 0 "$NOWAIT" bench codec --repeats 2 --vectors 2 --format json
for key in copy_ms encode decode decode_add encode_with_memory one_thread two_threads gain_over_copy kernels steal_percent \
    commit gb_per_second break_even_gbit_per_second; do
    out_has "\"$key\":"
done
out_has '"floats": 11000000'
out_has '"bytes_per_float": 2'
run 2 "$NOWAIT" bench codec --repeats 0
err_has 'repeats'
run 0 "$NOWAIT" bench codec --help
out_has 'in copies of the vector'

# The same seed gives the same loss, whatever the number of threads.
losses=""
for threads in 1 0; do
    run 0 "$NOWAIT" bench train --model resnet18 --width 8 --batch-size 20 --steps 3 --seed 7 --threads $threads --format json
    losses="$losses $(grep '"loss"' "$work/out")"
done
last="equal losses"
[ "$(echo "$losses" | tr ' ' '\n' | grep -E '^[0-9]' | sort -u | wc -l)" = 1 ] || complain "losses differ:$losses"

finish
