#!/bin/sh
# equal.sh - processes under mpirun and ranks of a virtual cluster do the same, bit for bit, and count the same bytes.
. "$(dirname "$0")/lib.sh"

# balanced DIR: every byte that was sent was received, and is what the transport moved.
balanced() {
    for key in messages bytes values headers control; do
        equal "$1: $key sent and received" "$(ledger "$1" sent $key)" "$(ledger "$1" received $key)"
    done
    equal "$1: bytes and transport" "$(ledger "$1" sent bytes)" "$(ledger "$1" sent transport_bytes)"
    equal "$1: bytes and transport" "$(ledger "$1" received bytes)" "$(ledger "$1" received transport_bytes)"
}
# model DIR: parameters and running statistics of the last checkpoint, as one number.
model() { sha256sum <"$runs/$1/checkpoints/$(ls "$runs/$1/checkpoints" | sort -n | tail -n 1)/model.safetensors"; }
# both N NAME OPTIONS...: the same with mpirun and simulated.
both() {
    world_of=$1 name=$2
    shift 2
    ranks "$world_of" "$name" "$@"
    simulated "$world_of" "$name-virtual" "$@"
    same_weights "$name" "$name-virtual"
    equal "$name: the model with its statistics" "$(model "$name")" "$(model "$name-virtual")"
    is "($(value "$name" test_loss) / $(value "$name-virtual" test_loss) - 1)^2 < 1e-18" "$name: the loss, but for the order of its sum"
    balanced "$name"
    balanced "$name-virtual"
    for key in values headers; do
        equal "$name: $key here and there" "$(ledger "$name" sent $key)" "$(ledger "$name-virtual" sent $key)"
    done
}

both 4 plain --max-steps 50 --max-epoch 9 --compare-every 10 --evaluate-first
for dir in plain plain-virtual; do
    equal "evaluations of the initial model of $dir" 1 "$(epochs $dir | grep -c '"step":0,"epoch":0,.*"test_top1":[0-9]')"
done
differ "weights after one step less" "$(weights plain)" "$(simulated 4 less --max-steps 49 --max-epoch 9; weights less)"
ranks 2 threads --max-steps 12 --threads 2
simulated 2 threads-virtual --max-steps 12 --threads 1
same_weights threads threads-virtual

both 3 delayed --delay 1 --max-steps 15 --bucket-bytes 10000 --trace
# Their traces: one file of all ranks, with as many arrows as messages went about, each with both its ends.
for dir in delayed delayed-virtual; do
    run 0 /usr/bin/python3 - "$runs/$dir/trace.json" <<'END'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
assert {e["args"]["name"].split(" @")[0] for e in events if e["name"] == "process_name"} == {"rank 0", "rank 1", "rank 2"}
ids = {phase: sorted(e["id"] for e in events if e["ph"] == phase) for phase in "sf"}
print(len(ids["s"]), "arrows", ids["s"] == ids["f"], min(e["ts"] for e in events if e["ph"] == "X") >= 0)
END
    out_has '^[1-9][0-9]+ arrows True True$'
done
both 3 bf16 --method bf16 --max-steps 15 --accumulation-steps 2 --ema-decay 0.9 --bn-sync average
is "$(ledger bf16 sent values) * 2 * 15 == $(ledger delayed sent values) * 15" "bf16 halves what values take"
both 3 unequal --non-iid-data --max-steps 15
differ "weights with equal shares" "$(weights unequal)" "$(simulated 3 equal --max-steps 15; weights equal)"
both 2 recalibrated --bn-sync recalibrate --recalibrate-batches 2 --max-steps 6
both 4 local --bn-sync local --max-steps 6

# One rank under mpirun is a run alone.
run 0 mpirun -np 1 "$NOWAIT" train $narrow --threads 1 --run-dir "$runs/one" --max-steps 8
run 0 "$NOWAIT" train $narrow --threads 1 --run-dir "$runs/alone" --max-steps 8
same_weights one alone
finish
