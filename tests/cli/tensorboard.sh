#!/bin/sh
# tensorboard.sh - a run that was interrupted and resumed leaves files that Python's json and protobuf read: every line
# of metrics.jsonl, summary.json, logs.tsv, and the events, checked against each other. Skips where
# python3-protobuf or protobuf-c is missing.
tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/lib.sh"
python=/usr/bin/python3

if ! $python -c 'import google.protobuf' 2>/dev/null || ! command -v protoc >/dev/null; then
    echo "skipped: needs python3-protobuf and protobuf-compiler"
    exit 77
fi
if ! "$SAMPLE" --tensorboard; then
    echo "skipped: this build writes no events; it needs libprotobuf-c-dev and protobuf-c-compiler"
    exit 77
fi
protoc --proto_path="$tests" --python_out="$work" tensorboard.proto || exit 1

# Step 12 was the last checkpoint; the process went on to step 15, and the next one continues from 12.
mkdir "$work/run"
run 0 "$SAMPLE" "$work/run" 0 15
err_has '^epoch 1/4  batch 2/6  time 0.250 s \(0.250\)  exchange 0.062 s \(0.062\)  loss 0.5000 \(0.7500\)'
err_has '^a message of the command$'
out_has '^ +epoch +lr +train time +train loss +train acc +test time +test loss +test acc +total time$'
out_has '^ +2 +0.1000 +- +0.1667 +0.1200 +- +0.2500 +0.2400 +432.0000$'
run 0 "$SAMPLE" "$work/run" 12 24
run 0 env PYTHONPATH="$work" $python "$tests/read_run.py" "$work/run" "$tests/../../docs/files.md"
out_has '^read '

# One flipped bit must be noticed, or the reader proves nothing.
for file in "$work"/run/events.*; do
    printf '\001' | dd of="$file" bs=1 seek=40 conv=notrunc 2>/dev/null
done
run 1 env PYTHONPATH="$work" $python "$tests/read_run.py" "$work/run" "$tests/../../docs/files.md"
err_has 'checksum'

finish
