#!/usr/bin/python3
"""read_run.py RUN_DIR FILES_MD - reads what tests/support/observe_sample.c left in RUN_DIR, steps 0 to 15 and then again
from 12 to 24, and compares the files with each other and with the numbers the sample sends. FILES_MD must explain every
key. tensorboard_pb2 comes from protoc. Where TensorBoard itself is installed, its own reader has to agree."""
import glob
import json
import math
import os
import re
import struct
import sys

import tensorboard_pb2

IMAGES, BATCHES = 8, 6


def fail(message):
    sys.exit(f"read_run.py: {message}")


def check(condition, message):
    if not condition:
        fail(message)


def crc32c(data):
    """Bit by bit, from the definition."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def read_events(path):
    data = open(path, "rb").read()
    at = 0
    while at < len(data):
        length, sum_of_length = struct.unpack_from("<QI", data, at)
        check(sum_of_length == masked(data[at:at + 8]), f"{path}, offset {at}: checksum of the length")
        payload = data[at + 12:at + 12 + length]
        check(len(payload) == length, f"{path}, offset {at}: the record is cut off")
        (sum_of_data,) = struct.unpack_from("<I", data, at + 12 + length)
        check(sum_of_data == masked(payload), f"{path}, offset {at}: checksum of the data")
        event = tensorboard_pb2.Event()
        event.ParseFromString(payload)
        check(event.SerializeToString() == payload, f"{path}, offset {at}: unknown fields")
        yield event
        at += 16 + length


def no_constant(text):
    fail(f"{text} is not JSON")


def load(text):
    return json.loads(text, parse_constant=no_constant)


def f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


run_dir, files_md = sys.argv[1:]

# metrics.jsonl: every step and epoch once, in order, though some were written twice.
lines = open(os.path.join(run_dir, "metrics.jsonl"), encoding="utf-8").read().split("\n")
check(lines.pop() == "", "metrics.jsonl does not end with a newline")
records = [load(line) for line in lines]
kinds = [record["record"] for record in records]
steps = [record for record in records if record["record"] == "step"]
epochs = [record for record in records if record["record"] == "epoch"]
check([s["step"] for s in steps] == list(range(1, 25)), "steps are not 1 to 24")
check([e["epoch"] for e in epochs] == [1, 2, 3, 4], "epochs are not 1 to 4")
check(kinds.count("run") == 2 and kinds.count("end") == 1 and kinds.count("checkpoint") == 4, "run, end, checkpoint")
check(kinds[0] == "run" and kinds[-1] == "end", "the first and last record")
check(records[0]["model"] == 'sample "quoted" \u00e9', "quotes and UTF-8")
for s in steps:
    n = s["step"]
    check(s["loss"] == 1 / n and s["top1"] == n / 2 and s["images"] == n * IMAGES, f"values of step {n}")
    check(s["bytes_sent"] == 1000 * n and s["messages_sent"] == 10, f"what step {n} sent")
    check(s["data_wait_seconds"] is None, "what is unknown is null")
for e in epochs:
    sent = sum(s["bytes_sent"] for s in steps if s["step"] <= e["step"])
    check(e["bytes_sent"] == sent, f"what was sent until epoch {e['epoch']}")

# logs.tsv
want = ["epoch\thours\ttop1Accuracy"] + ["%d\t%.8f\t%.2f" % (e, 36.0 * 6 * e / 3600, 12.0 * e) for e in range(1, 5)]
check(open(os.path.join(run_dir, "logs.tsv")).read() == "\n".join(want), "logs.tsv")

# summary.json
summary = load(open(os.path.join(run_dir, "summary.json"), encoding="utf-8").read())
expected = {"status": "done", "steps": 24, "epochs": 4, "images": 192, "test_top1": 48, "best_epoch": 4, "seed": 7,
            "train_seconds": 6, "load": None, "virtual_seconds": None, "weights_sha256": None}
for key, value in expected.items():
    check(key in summary and summary[key] == value, f"summary.json: {key} is {summary.get(key)}, not {value}")

# The documentation has a row for every key and scalar.
documented = set(re.findall(r"`([^`\n]+)`", open(files_md, encoding="utf-8").read()))
keys = {key for record in records for key in record} | set(summary)

# Events: the second file voids what the first has from image 97 on.
scalars = {}
paths = sorted(glob.glob(os.path.join(run_dir, "events.out.tfevents.*")))
check(len(paths) == 2, f"{len(paths)} files of events, not 2")
for index, path in enumerate(paths):
    check(re.fullmatch(r"events\.out\.tfevents\.\d{10}\..+\.\d+(\.\d+)?", os.path.basename(path)), f"the name {path}")
    events = list(read_events(path))
    check(events[0].file_version == "brain.Event:2", "the first event says no version")
    check(all(e.wall_time > 1.6e9 for e in events), "wall time")
    starts = [e.step for e in events if e.WhichOneof("what") == "session_log" and e.session_log.status == 1]
    check(starts == ([] if index == 0 else [12 * IMAGES + 1]), f"session starts {starts}")
    for start in starts:
        for points in scalars.values():
            points[:] = [point for point in points if point[0] < start]
    for event in events:
        for value in event.summary.value:
            check(value.WhichOneof("value") == "simple_value", f"{value.tag} is no scalar")
            scalars.setdefault(value.tag, []).append((event.step, value.simple_value))

for tag, field in {"loss/train": "loss", "acc/train_top1": "top1", "acc/train_top5": "top5", "train/lr": "lr",
                   "network/bytes_sent": "bytes_sent", "time/exchange_seconds": "exchange_seconds"}.items():
    check(scalars[tag] == [(s["images"], f32(s[field])) for s in steps], f"scalar {tag}")
for tag in ("acc/test_top1", "acc/test_top5", "acc/test_top1_best", "loss/test"):
    field = "test_loss" if tag == "loss/test" else tag[4:]
    check(scalars[tag] == [(e["images"], f32(e[field])) for e in epochs], f"scalar {tag}")
check("time/data_wait_seconds" not in scalars, "a scalar that no record knew")
missing = sorted((keys | set(scalars)) - documented)
check(not missing, f"docs/files.md does not explain {missing}")

readers = "protobuf"
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    EventAccumulator = None
if EventAccumulator is not None:
    readers += " and TensorBoard"
    accumulator = EventAccumulator(run_dir, size_guidance={"scalars": 0})
    accumulator.Reload()
    check(sorted(accumulator.Tags()["scalars"]) == sorted(scalars), "TensorBoard sees other scalars")
    for tag, points in scalars.items():
        theirs = [(point.step, point.value) for point in accumulator.Scalars(tag)]
        check(len(theirs) == len(points) and all(a[0] == b[0] and math.isclose(a[1], b[1]) for a, b in zip(theirs, points)),
              f"TensorBoard reads {tag} differently")
print(f"read {len(records)} records and {sum(map(len, scalars.values()))} scalars with {readers}")
