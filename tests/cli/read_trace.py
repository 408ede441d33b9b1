#!/usr/bin/python3
"""read_trace.py DIR STEPS FILES_MD - reads the trace.json and ledger.json that tests/support/trace_sample.c left in DIR,
and compares them with what the sample did. FILES_MD must explain every key."""
import json
import re
import sys

WORLD, MESSAGE = 4, 1064


def check(condition, message):
    if not condition:
        sys.exit(f"read_trace.py: {message}")


directory, steps, files_md = sys.argv[1], int(sys.argv[2]), sys.argv[3]
trace = json.load(open(f"{directory}/trace.json", encoding="utf-8"))
ledger = json.load(open(f"{directory}/ledger.json", encoding="utf-8"))
facts, events = trace["otherData"], trace["traceEvents"]
by_phase = {}
for event in events:
    by_phase.setdefault(event["ph"], []).append(event)
slices = by_phase["X"]

# Steps: the first ones, then every m-th; each with all its events.
kept = {s for s in range(1, steps + 1) if s <= facts["first_steps"] or s % facts["then_every"] == 0}
check({e["args"]["step"] for e in slices} == kept, "not the steps that otherData says")
per_step = WORLD * (4 + 2 * (WORLD - 1))
check(len(slices) == len(kept) * per_step, "a step is not whole")
check(facts["events_lost"] == 0 and facts["ranks"] == WORLD, "events are lost")

# Names: four ranks in order.
names = {e["pid"]: e["args"]["name"] for e in by_phase["M"] if e["name"] == "process_name"}
check([names[p] for p in sorted(names)] == [f"rank {r} @ sample" for r in range(WORLD)], "names of ranks")
threads = {e["tid"]: (e["pid"], e["args"]["name"]) for e in by_phase["M"] if e["name"] == "thread_name"}
check(all(threads[e["tid"]][0] == e["pid"] for e in slices), "a slice in a thread without name")

# Slices of a thread nest.
for tid in threads:
    open_ends = []
    for e in sorted((e for e in slices if e["tid"] == tid), key=lambda e: (e["ts"], -e["dur"])):
        while open_ends and open_ends[-1] <= e["ts"] + 1e-6:
            open_ends.pop()
        check(not open_ends or e["ts"] + e["dur"] <= open_ends[-1] + 1e-6, f"slices overlap: {e}")
        open_ends.append(e["ts"] + e["dur"])

# Arrows: one for each message of the steps that are here, 200 us long, from its sender to its receiver.
starts = {e["id"]: e for e in by_phase["s"]}
finishes = {e["id"]: e for e in by_phase["f"]}
check(len(starts) == len(by_phase["s"]) == len(by_phase["f"]) == len(finishes), "ids of arrows are not unique")
check(set(starts) == set(finishes) and len(starts) == len(kept) * WORLD * (WORLD - 1), "arrows do not pair")
begun = {(e["tid"], e["ts"]): e for e in slices if e["cat"] == "messages"}
for key, start in starts.items():
    finish, number = finishes[key], int(key, 16)
    check(abs(finish["ts"] - start["ts"] - 200) < 0.01, "an arrow is too long")  # messages of one moment lie 1 ns apart
    check(names[start["pid"]] == f"rank {number >> 48} @ sample", "the sender of an arrow")
    check(names[finish["pid"]] == f"rank {number >> 32 & 0xffff} @ sample", "the receiver of an arrow")
    check(begun[start["tid"], start["ts"]]["args"]["sequence"] == number & 0xffffffff, "an arrow on no slice")
    check(begun[finish["tid"], finish["ts"]]["args"]["bytes"] == MESSAGE, "an arrow to no slice")

# The ledger counts all steps.
messages = steps * WORLD * (WORLD - 1)
for direction in ("sent", "received"):
    account = ledger[direction]
    check(account["messages"] == messages and account["bytes"] == account["transport_bytes"] == messages * MESSAGE,
          f"what was {direction}")
check(sum(link["bytes"] for link in ledger["links"]) == messages * MESSAGE, "links do not add up")
check(sum(s["bytes"] for s in ledger["segments"]) == messages * MESSAGE, "segments do not add up")

documented = set(re.findall(r"`([^`\n]+)`", open(files_md, encoding="utf-8").read()))
keys = set(facts) | set(ledger) | {key for part in ledger["links"] + ledger["segments"] for key in part}
check(keys <= documented, f"docs/files.md does not explain {sorted(keys - documented)}")
print(f"read {len(slices)} slices and {len(starts)} arrows of {len(kept)} steps")
