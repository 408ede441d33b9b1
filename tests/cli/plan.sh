#!/bin/sh
# plan.sh - `nowait plan`: tables, JSON and drawing of which codec pays; odd networks; what is refused.
. "$(dirname "$0")/lib.sh"

net="resnet9 --width 8 --batch-size 4 --repeats 1 --threads 1"
number() { sed -n "s/^ *\"$1\": \([-0-9.e+]*\),*\$/\1/p" "$work/out" | head -n 1; }

# ---- tables ----
run 0 "$NOWAIT" plan $net --bandwidth '10 Mbit/s' --ranks 4
err_empty
out_has '^resnet9, batch 4 a rank, 1 thread, .*: a pass takes [0-9.]+ ms, an update [0-9.]+ ms, 0\.4 MB of gradient$'
out_has '^4 ranks, 10 Mbit/s each way, latency 50 us, 5 us a message$'
out_has '^delay 0$'
out_has '^delay 1: a gradient is exchanged while the next one is computed$'
for codec in dense fp16 int8 natural 'qsgd 127' terngrad sign 'powersgd 4' 'randomk 1%' 'topk 1%' 'dgc 0.1%'; do
    out_has "^  $codec +(gather|owners|summed|its own) +[0-9.]+ +[0-9.]+x( +[0-9.]+){4}\$"
done
out_has '^  prep\.conv\.weight +216 '
out_has '^    256( +[a-z8.] +[0-9.]+){9}$'
# A wire of 10 Mbit/s needs 0.4 s for the gradient of a pass of some milliseconds.
out_has '^Between 4 ranks at 10 Mbit/s, .* makes a step [0-9.]+ times as fast as dense:$'
out_has '^  nowait train --exchange allreduce --method '
out_has '^That is time, not accuracy'

# ---- the same for programs; what it recommends is a run that starts ----
run 0 "$NOWAIT" plan $net --bandwidth '10 Mbit/s' --ranks 2 --format json --svg "$work/map.svg"
err_empty
for key in model batch_size ranks bits_per_second measured_by pass_seconds update_seconds steps tensors map step_seconds \
    sent_bytes wire_seconds encode_seconds decode_seconds saved_seconds over_dense options; do
    out_has "\"$key\":"
done
if command -v python3 >/dev/null; then
    python3 - "$work/out" "$work/map.svg" <<'PYTHON' >"$work/line" || complain "the JSON or the drawing is not what it should be"
import json, sys, xml.etree.ElementTree
plan = json.load(open(sys.argv[1]))
steps = plan["steps"]
assert all(a["step_seconds"] <= b["step_seconds"] for a, b in zip(steps, steps[1:])), "sorted"
dense = [s for s in steps if s["codec"] == "dense"]
assert sorted(s["delay"] for s in dense) == [0, 1] and all(s["options"] == "" for s in dense)
floats = sum(t["floats"] for t in plan["tensors"])
buckets = round((dense[0]["sent_bytes"] - 4 * floats) / 64)
assert dense[0]["sent_bytes"] == 4 * floats + 64 * buckets and 2 <= buckets < 100, dense[0]
assert len(plan["map"]) == 72 and all(m["over_dense"] >= 1 for m in plan["map"])
assert all(m["codec"] == "dense" for m in plan["map"] if m["over_dense"] < 1.02)
drawing = xml.etree.ElementTree.parse(sys.argv[2]).getroot()
names = [t.text for t in drawing.iter("{http://www.w3.org/2000/svg}text")]
for m in plan["map"]: assert m["codec"] in names
assert "resnet9: the codec with the shortest step" in names and "256 ranks" in names and "100 Gbit/s" in names
best = next(s for s in steps if s["delay"] == 0)
print(best["options"])
PYTHON
    run 0 "$NOWAIT" train --model resnet9 --width 8 --dataset synthetic --limit 16 --batch-size 4 --max-steps 2 --quiet --virtual 2 \
        --run-dir "$work/run" --exchange allreduce $(cat "$work/line")
fi

# ---- other links and worlds ----
run 0 "$NOWAIT" plan lenet5 --repeats 1 --threads 1 --batch-size 2 --bandwidth unlimited --latency '0 us' --overhead '0 us' --ranks 1024
out_has '^1024 ranks, unlimited each way, latency 0 us, 0 us a message$'
out_has 'ranks'
run 0 "$NOWAIT" plan lenet5 --repeats 1 --threads 1 --batch-size 2 --bandwidth '1000 TB/s' --ranks 2
run 0 "$NOWAIT" plan lenet5 --repeats 1 --threads 1 --batch-size 2 --bandwidth '1 kbit/s' --np 3
out_has '^Between 3 ranks at 0.001 Mbit/s, dgc 0.1% makes a step'

# ---- refusals ----
refused() { # PATTERN OPTIONS...
    pattern=$1
    shift
    run 2 "$NOWAIT" plan "$@"
    err_lines 1
    err_has "$pattern"
    out_empty
}
refused "there is no model 'resnet21'; the nearest is 'resnet20'" resnet21
refused "'nowait plan' takes one model, not 2" resnet9 resnet18
refused "'1gbit' is not a bandwidth; write a number and bit/s" resnet9 --bandwidth 1gbit
refused "out of range: a bandwidth is at least 1 B/s" resnet9 --bandwidth '0 Mbit/s'
refused "'fast' is not a time" resnet9 --latency fast
refused 'ranks is 1; it must be 2 to 1024' resnet9 --ranks 1
refused 'ranks is 1025; it must be 2 to 1024' resnet9 --ranks 1025
run 1 "$NOWAIT" plan $net --svg "$work/no/such/folder/map.svg"
err_has 'no/such/folder'
finish
