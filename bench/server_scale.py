#!/usr/bin/python3
"""What an update of an asynchronous parameter server costs with 100 and with 1,000 workers, on a virtual cluster.

  bench/server_scale.py [--rounds 5] [--updates 4000]

A LeNet of 11,898 parameters is trained by 100 and by 1,000 workers in turns; the median of wall-clock seconds for an
update counts (training alone: without start, evaluation and checkpoint). The number that matters is their ratio, which
must stay below 2. Then build/server_scale tells what is left without the arithmetic of the workers.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

BUILD = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build")


def measure(workers, updates):
    run = tempfile.mkdtemp()
    try:
        subprocess.run([os.path.join(BUILD, "nowait"), "train", "--dataset", "synthetic", "--limit", "16000", "--model",
                        "lenet5", "--width", "2", "--batch-size", "4", "--lr", "1e-5", "--exchange", "server",
                        "--communication", "async", "--virtual", str(workers + 1), "--threads", "1", "--max-steps",
                        str(updates), "--eval-every", "100000", "--quiet", "--run-dir", os.path.join(run, "run")],
                       stdout=subprocess.DEVNULL, check=True)
        with open(os.path.join(run, "run", "summary.json")) as file:
            summary = json.load(file)
    finally:
        shutil.rmtree(run)
    return summary["train_seconds"] / updates * 1e3, summary


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=4000)
    args = parser.parse_args()
    times = {100: [], 1000: []}
    memory = {}
    for _ in range(args.rounds):
        for workers in times:
            ms, summary = measure(workers, args.updates)
            times[workers].append(ms)
            memory[workers] = summary["peak_memory_bytes"] / 2**20
    few, many = statistics.median(times[100]), statistics.median(times[1000])
    print("%d parameters, batch 4, f32 on %s, 1 thread; %s; commit %s; %d updates, median of %d rounds" %
          (summary["parameters"], summary["isa"], summary["cpu"], summary["commit"], args.updates, args.rounds))
    for workers in times:
        print("  %4d workers  %.3f ms an update (%s), %.0f MiB" % (workers, statistics.median(times[workers]), " ".join(
            "%.3f" % ms for ms in times[workers]), memory[workers]))
    print("  ratio %.2f\n" % (many / few), flush=True)
    subprocess.run([os.path.join(BUILD, "server_scale"), str(args.rounds)], check=True)
    sys.exit(1 if many / few >= 2 else 0)


if __name__ == "__main__":
    main()
