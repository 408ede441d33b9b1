#!/usr/bin/env python3
"""How well a virtual cluster predicts: the step time of real MPI ranks on this machine, measured and simulated.

For each model and batch size, windows are measured until WINDOWS of them are accepted: calibrate (all ranks at once),
train for some steps under mpirun, calibrate again. A window in which the two calibrations differ by more than --drift is
thrown away and counted: the machine changed under the measurement. Both calibrations are simulated; the prediction is the
mean of the two, each a median of steps, the measurement the median step. Printed is the median over windows, with misses.

  bench/predict.py [--nowait build/nowait] [--ranks 2] [--format table|json] [MODEL:BATCH ...]
"""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

CASES = ["resnet9:16", "resnet9:32", "resnet18:8", "resnet18:16", "resnet20:32", "resnet20:64"]
WARM = 2  # steps that do not count
PREDICTED = 4  # simulated steps that do; their arithmetic is real


def environment():
    """What Open MPI wants from root, and from more ranks than cores."""
    env = dict(os.environ)
    env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_rmaps_base_oversubscribe="1",
               OMPI_MCA_hwloc_base_binding_policy="none")
    return env


def run(line):
    done = subprocess.run(line, env=environment(), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit("failed: %s\n%s" % (" ".join(line), done.stderr))
    return done.stdout


def pass_ns(path):
    """All times of 'compute' in a cluster file that --calibrate wrote."""
    with open(path) as file:
        compute = file.read().split("\ncompute:")[1].split("\ninside:")[0]
    return sum(int(ns) for ns in re.findall(r"(\d+) ns", compute))


def steps_of(run_dir):
    with open(os.path.join(run_dir, "metrics.jsonl")) as file:
        records = [json.loads(line) for line in file]
    return [r for r in records if r["record"] == "step"]


class Case:
    def __init__(self, args, model, batch, work):
        self.args, self.model, self.batch, self.work = args, model, batch, work
        images = str(batch * args.ranks * (args.steps + WARM))
        self.train = [args.nowait, "train", "--dataset", "synthetic", "--model", model, "--batch-size", str(batch),
                      "--threads", str(args.threads), "--exchange", "allreduce", "--max-steps", str(args.steps + WARM),
                      "--limit", images, "--quiet", "--test-batch-size", str(batch), "--lr", "1e-4"]
        if args.width:
            self.train += ["--width", str(args.width)]

    def path(self, name):
        return os.path.join(self.work, name)

    def mpirun(self, *more):
        return ["mpirun", "-np", str(self.args.ranks)] + self.train + list(more)

    def calibrate(self, name):
        run(self.mpirun("--calibrate", self.path(name)))
        return pass_ns(self.path(name))

    def measure(self):
        shutil.rmtree(self.path("real"), ignore_errors=True)
        run(self.mpirun("--run-dir", self.path("real")))
        return statistics.median(s["step_seconds"] for s in steps_of(self.path("real"))[WARM:])

    def predict(self, name):
        shutil.rmtree(self.path("virtual"), ignore_errors=True)
        run(self.train + ["--cluster", self.path(name), "--virtual", str(self.args.ranks),
                          "--run-dir", self.path("virtual"), "--max-steps", str(PREDICTED + 2)])
        times = [s["virtual_seconds"] for s in steps_of(self.path("virtual"))][1:]
        return statistics.median(b - a for a, b in zip(times, times[1:]))

    def windows(self):
        """The calibration after a window is the one before the next."""
        accepted, thrown, names = [], 0, ["one.yaml", "other.yaml"]
        before = self.calibrate(names[0])
        while len(accepted) < self.args.windows and thrown < 3 * self.args.windows:
            real = self.measure()
            after = self.calibrate(names[1])
            if abs(before - after) > self.args.drift * min(before, after):
                thrown += 1
            else:
                accepted.append((real, 0.5 * (self.predict(names[0]) + self.predict(names[1]))))
                after = self.calibrate(names[1])  # the simulations took their time
            before = after
            names.reverse()
        return accepted, thrown


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=CASES, metavar="MODEL:BATCH")
    parser.add_argument("--nowait", default="build/nowait")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--drift", type=float, default=0.08)
    parser.add_argument("--format", choices=["table", "json"], default="table")
    args = parser.parse_args()
    results = []
    for case in args.cases:
        model, batch = case.split(":")
        with tempfile.TemporaryDirectory() as work:
            accepted, thrown = Case(args, model, int(batch), work).windows()
        errors = [predicted / real - 1 for real, predicted in accepted]
        if not accepted:
            print("%s: no window was quiet enough (%d thrown away)" % (case, thrown), file=sys.stderr)
            continue
        results.append({"model": model, "batch_size": int(batch), "ranks": args.ranks, "threads": args.threads,
                        "measured_seconds": statistics.median(r for r, _ in accepted),
                        "predicted_seconds": statistics.median(p for _, p in accepted),
                        "error_percent": 100 * statistics.median(errors),
                        "worst_error_percent": 100 * max(errors, key=abs), "windows": len(accepted), "thrown": thrown})
        if args.format == "table":
            r = results[-1]
            print("%-10s batch %4d  measured %8.4f s  predicted %8.4f s  error %+6.1f %%  worst %+6.1f %%  "
                  "windows %d, thrown away %d" % (model, int(batch), r["measured_seconds"], r["predicted_seconds"],
                                                  r["error_percent"], r["worst_error_percent"], len(accepted), thrown),
                  flush=True)
    if args.format == "json":
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
