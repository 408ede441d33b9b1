#!/usr/bin/python3
"""wrapper.py - what the library's thread takes from a program that computes: mpirun -np 2 bench/wrapper.py [OPTIONS]

A plain loop runs with a run under way and without one, in turns, and the time that the library's thread had a CPU is read
from /proc. Prints the share of a CPU and the ratio of the loop's median times, on rank 0."""
import pathlib
import statistics
import sys
import time

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import nowait

ROUNDS = 7


def loop():
    begin = time.perf_counter()
    sum(i * i for i in range(10_000_000))
    return time.perf_counter() - begin


def thread_seconds():
    for task in pathlib.Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().startswith("nowait-peer"):
            return int((task / "schedstat").read_text().split()[0]) * 1e-9


ranks = nowait.Ranks([("w", (1000, 1000))], sys.argv[1:] or "--exchange allreduce")
values, without, beside, share = np.zeros(ranks.count, np.float32), [], [], []
for _ in range(ROUNDS):
    without.append(loop())
    ranks.begin(values)
    before = thread_seconds()
    beside.append(loop())
    share.append((thread_seconds() - before) / beside[-1])
    ranks.finish(values)
if ranks.rank == 0:
    ratio = statistics.median(beside) / statistics.median(without)
    print(f"the library's thread had {100 * statistics.median(share):.2f} % of a CPU; the loop took {ratio:.3f} times as long")
