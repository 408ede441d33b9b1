#!/usr/bin/env python3
"""Does `nowait plan` find the codec that pays? Six named set-ups: its winner beside the measured one.

  bench/setups.py [--nowait build/nowait] [--only NAME ...] [--rounds 3] [--json FILE]

  name             ranks                      link          model, batch
  vgg16-1g         2 real                     1 Gbit/s      vgg16, 32
  resnet9-1g       2 real                     1 Gbit/s      resnet9, 32
  resnet20-10m     2 real                     10 Mbit/s     resnet20, 32
  alexnet1-16      16 virtual                 1 Gbit/s      alexnet1, 32
  resnet18-8       8 virtual                  1 Gbit/s      resnet18, 32
  resnet9-32       32 virtual                 10 Gbit/s     resnet9, 16

Real ranks are two MPI processes of one thread in network namespaces, whose cable the kernel holds to the rate
(bench/slow_link.py; needs root, Open MPI, iproute2). Virtual ranks have the step times and codec costs of this machine
(nowait train --calibrate, once for ratios of 1 % and once for 0.1 %) behind NICs of that rate, without noise, since a plan
has none either. What they really compute are two images a step, in the time of the whole batch; the mean of three steps counts.

Of each set-up the plan's codecs without delay are measured once, in turn, and the three fastest and the plan's winner
--rounds - 1 times more; medians count. A set-up takes some minutes on a quiet machine; others change the results.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import slow_link

REAL, VIRTUAL = "real", "virtual"
SETUPS = [
    # name, kind, ranks, rate, model, batch
    ("vgg16-1g", REAL, 2, "1 Gbit/s", "vgg16", 32),
    ("resnet9-1g", REAL, 2, "1 Gbit/s", "resnet9", 32),
    ("resnet20-10m", REAL, 2, "10 Mbit/s", "resnet20", 32),
    ("alexnet1-16", VIRTUAL, 16, "1 Gbit/s", "alexnet1", 32),
    ("resnet18-8", VIRTUAL, 8, "1 Gbit/s", "resnet18", 32),
    ("resnet9-32", VIRTUAL, 32, "10 Gbit/s", "resnet9", 16),
]
STEPS = 3  # of virtual ranks
COMPUTED = 2  # images of a step that virtual ranks really compute; their times are those of the whole batch
PAYS = 1.02  # as plans say it: less cannot be told from noise


def call(line):
    done = subprocess.run(line, capture_output=True, text=True, env=slow_link.ENVIRONMENT)
    if done.returncode != 0:
        sys.exit("failed: %s\n%s%s" % (" ".join(line), done.stdout[-2000:], done.stderr[-2000:]))
    return done.stdout


class Setup:
    def __init__(self, args, row):
        self.args = args
        self.name, self.kind, self.ranks, self.rate, self.model, self.batch = row

    def plan(self):
        """Predicted seconds of a step without delay by options of train; a codec's best collective."""
        made = json.loads(call(self.plan_line()))
        planned = {}
        for s in made["steps"]:
            options = s["options"] + {"gather": " --collective gather", "owners": " --collective owners"}.get(s["collective"], "")
            if s["delay"] == 0 and (s["codec"] not in planned or s["step_seconds"] < planned[s["codec"]][1]):
                planned[s["codec"]] = (options.split(), s["step_seconds"])
        return planned


class Real(Setup):
    def plan_line(self):
        wanted = argparse.Namespace(nowait=self.args.nowait, model=self.model, batch_size=self.batch)
        return slow_link.plan_line(wanted, self.rate)

    def begin(self, work):
        rate = self.rate.replace(" ", "").lower().replace("bit/s", "bit")
        slow_link.plug_in(rate)
        wanted = argparse.Namespace(nowait=self.args.nowait, model=self.model, batch_size=self.batch, steps=2)
        self.job = slow_link.Job(wanted, work)

    def measure(self, options):
        return self.job.measure(options)[0]

    def end(self):
        slow_link.unplug()


class Virtual(Setup):
    def plan_line(self):
        return [self.args.nowait, "plan", self.model, "--bandwidth", self.rate, "--ranks", str(self.ranks), "--batch-size",
                str(self.batch), "--threads", "1", "--repeats", "5", "--format", "json"]

    def begin(self, work):
        self.work, self.runs = work, 0
        self.clusters = {ratio: self.calibrate(ratio) for ratio in ("0.01", "0.001")}

    def net(self, batch):
        return ["--model", self.model, "--dataset", "synthetic", "--batch-size", str(batch), "--threads", "1",
                "--limit", str(batch * self.ranks * STEPS)]

    def calibrate(self, ratio):
        path = os.path.join(self.work, "cluster-%s.yaml" % ratio)
        call([self.args.nowait, "train", "--quiet", "--calibrate", path, "--ratio", ratio, "--values", "fp16", "--qstates",
              "127", "--bucket", "512", "--powersgd-rank", "4"] + self.net(self.batch))
        with open(path) as file:
            lines = [line for line in file if not line.startswith(("noise:", "  batch:"))]
        lines += ["\nnic: %s\nlink:\n  latency: 50 us\n  overhead: 5 us\n" % self.rate]
        with open(path, "w") as file:
            file.writelines(lines)
        return path

    def measure(self, options):
        self.runs += 1
        folder = os.path.join(self.work, "run%d" % self.runs)
        ratio = "0.001" if "0.001" in options else "0.01"
        call([self.args.nowait, "train", "--quiet", "--virtual", str(self.ranks), "--cluster", self.clusters[ratio],
              "--exchange", "allreduce", "--lr", "1e-6", "--max-steps", str(STEPS), "--eval-every", "1000",
              "--no-record-events", "--run-dir", folder] + self.net(COMPUTED) + options)
        with open(os.path.join(folder, "summary.json")) as file:
            seconds = json.load(file)["virtual_seconds"] / STEPS
        shutil.rmtree(folder)  # a checkpoint of all ranks
        return seconds

    def end(self):
        pass


def measure(setup, planned, rounds):
    times = {codec: [] for codec in planned}

    def go(codecs):
        for codec in codecs:
            times[codec].append(setup.measure(planned[codec][0]))

    winner = min(planned, key=lambda c: planned[c][1])
    with tempfile.TemporaryDirectory() as work:
        try:
            setup.begin(work)
            go(planned)
            best = sorted(planned, key=lambda c: times[c][0])[:3]
            for _ in range(rounds - 1 if setup.kind == REAL else 0):  # virtual time is the same every time
                go(dict.fromkeys(best + [winner, "dense"]))
        finally:
            setup.end()
    return {codec: statistics.median(seconds) for codec, seconds in times.items()}


def winner_of(seconds):
    """The codec with the shortest step, or dense where it gains less than can be told."""
    best = min(seconds, key=seconds.get)
    return best if seconds["dense"] / seconds[best] >= PAYS else "dense"


def report(setup, planned, measured):
    predicted = {codec: seconds for codec, (_, seconds) in planned.items()}
    plan, found = winner_of(predicted), winner_of(measured)
    print("\n%s: %d %s ranks, %s, %s, batch %d" % (setup.name, setup.ranks, setup.kind, setup.rate, setup.model, setup.batch))
    print("  %-12s %12s %12s %8s %9s" % ("codec", "measured ms", "planned ms", "error", "of dense"))
    for codec in sorted(measured, key=measured.get):
        marks = [word for word, who in (("measured winner", found), ("plan's winner", plan)) if who == codec]
        print("  %-12s %12.1f %12.1f %+7.1f%% %8.2fx  %s"
              % (codec, 1e3 * measured[codec], 1e3 * predicted[codec], 100 * (predicted[codec] / measured[codec] - 1),
                 measured["dense"] / measured[codec], ", ".join(marks)))
    sys.stdout.flush()
    return {"name": setup.name, "kind": setup.kind, "ranks": setup.ranks, "rate": setup.rate, "model": setup.model,
            "batch_size": setup.batch, "plan": plan, "measured": found, "loss": measured[plan] / measured[found] - 1,
            "planned_over_dense": predicted["dense"] / predicted[plan], "measured_over_dense": measured["dense"] / measured[found],
            "steps": {c: {"planned_seconds": predicted[c], "measured_seconds": measured[c]} for c in measured}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nowait", default="build/nowait")
    parser.add_argument("--only", nargs="*", choices=[row[0] for row in SETUPS], default=[])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", default="")
    args = parser.parse_args()
    results = []
    for row in SETUPS:
        if args.only and row[0] not in args.only:
            continue
        setup = (Real if row[1] == REAL else Virtual)(args, row)
        planned = setup.plan()
        results.append(report(setup, planned, measure(setup, planned, args.rounds)))
    print("\n%-14s %-12s %-16s %-8s %s" % ("set-up", "plan", "measured", "", "lost by following the plan"))
    for r in results:
        print("%-14s %-12s %-16s %-8s %.1f %%" % (r["name"], r["plan"], r["measured"],
                                                  "the same" if r["plan"] == r["measured"] else "missed", 100 * r["loss"]))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(results, file, indent=2)


if __name__ == "__main__":
    main()
