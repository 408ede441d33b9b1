#!/usr/bin/env python3
"""Does compression pay between two real ranks on a slow link? Measured, beside what `nowait plan` predicts.

  bench/slow_link.py [--nowait build/nowait] [--model vgg16] [--batch-size 32] [--rate 1gbit] [--rounds 3] [--steps 2]
                     [--codecs "--method topk --ratio 0.01 --values fp16 --memory error" ...]

Two MPI ranks of one thread, each in a network namespace of its own, are joined by a cable (veth) whose two ends are held to
the rate by the kernel's token bucket (tc tbf). A plan, dense gradients and every codec take turns in each round; medians of the
step times are compared with each other and with the plans'. Without --codecs: the codec that the first plan recommends. Among the
options of a codec, or alone, "--delay 1" applies each mean a step late. All addresses are inside the namespaces. Needs root,
Open MPI, iproute2.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
LEFT, RIGHT = "nowait-left-%d" % os.getpid(), "nowait-right-%d" % os.getpid()
BURST_SECONDS = 2e-3


def run(line, **more):
    done = subprocess.run(line, capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit("failed: %s\n%s%s" % (" ".join(line), done.stdout, done.stderr))
    return done.stdout


def ip(*words):
    return run(["ip"] + list(words))


def megabits(rate):
    """Of words like 1gbit or 10 Mbit/s."""
    number, prefix = re.fullmatch(r"(?i)\s*([0-9.]+)\s*([kmg])bit(?:/s)?\s*", rate).groups()
    return float(number) * {"k": 1e-3, "m": 1, "g": 1e3}[prefix.lower()]


def plug_in(rate):
    burst = max(3200, int(megabits(rate) * 1e6 / 8 * BURST_SECONDS))  # or short messages would pass at any rate
    for name in (LEFT, RIGHT):
        ip("netns", "add", name)
    ip("-n", LEFT, "link", "add", "name", "cable", "type", "veth", "peer", "name", "cable", "netns", RIGHT)
    for name, address in ((LEFT, "10.77.0.1/24"), (RIGHT, "10.77.0.2/24")):
        ip("-n", name, "address", "add", address, "dev", "cable")
        ip("-n", name, "link", "set", "lo", "up")
        ip("-n", name, "link", "set", "cable", "up")
        run(["tc", "-n", name, "qdisc", "add", "dev", "cable", "root", "tbf", "rate", rate, "burst", str(burst), "latency",
             "200ms"])


def unplug():
    for name in (LEFT, RIGHT):
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


class Job:
    def __init__(self, args, work):
        self.args = args
        enter = os.path.join(work, "enter")
        with open(enter, "w") as file:
            file.write("#!/bin/sh\n"
                       "while [ \"${1#-}\" != \"$1\" ]; do shift; done\nshift\n"
                       "exec ip netns exec %s unshare --uts sh -c 'hostname right; eval \"$1\"' sh \"$*\"\n" % RIGHT)
        os.chmod(enter, 0o755)
        hosts = os.path.join(work, "hosts")
        with open(hosts, "w") as file:
            file.write("10.77.0.1 slots=1\n10.77.0.2 slots=1\n")
        self.front = ["ip", "netns", "exec", LEFT, "unshare", "--uts", "sh", "-c", 'hostname left; exec "$@"', "sh",
                      "mpirun", "-np", "2", "--hostfile", hosts, "--mca", "plm_rsh_agent", enter, "--mca", "btl", "tcp,self",
                      "--mca", "btl_tcp_if_include", "10.77.0.0/24", "--mca", "oob_tcp_if_include", "10.77.0.0/24",
                      "--bind-to", "none"]

    def measure(self, options):
        """Seconds of a step with the exchange, and without."""
        a = self.args
        line = [os.path.abspath(a.nowait), "bench", "exchange", "--model", a.model, "--batch-size", str(a.batch_size),
                "--threads", "1", "--steps", str(a.steps), "--repeats", "1", "--format", "json"] + options
        result = json.loads(run(self.front + line, env=ENVIRONMENT))
        images = 2 * a.batch_size
        return images / result["images_per_second_with"], images / result["images_per_second_without"]


def plan_line(args, bandwidth):
    """Both ranks share this machine, so two measure at once. Of 1514 bytes of a frame, which the token bucket counts, 1448
    are of messages; the plan is told what is left for them."""
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2", args.nowait, "plan", args.model, "--bandwidth",
            "%.6g Mbit/s" % (megabits(bandwidth) * 1448 / 1514), "--ranks", "2", "--batch-size", str(args.batch_size), "--threads", "1",
            "--repeats", "3", "--format", "json"]


def plan(args):
    return json.loads(run(plan_line(args, args.rate), env=ENVIRONMENT))


def predicted(plans, options):
    """What the plans say of a step for these options, any collective: the median of them."""
    delay, codec = 0, list(options)
    if "--delay" in codec:
        at = codec.index("--delay")
        delay, codec = int(codec[at + 1]), codec[:at] + codec[at + 2:]
    steps = [[s["step_seconds"] for s in p["steps"] if s["options"].split() == codec and s["delay"] == delay] for p in plans]
    return statistics.median(min(s) for s in steps) if steps[0] else float("nan")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nowait", default="build/nowait")
    parser.add_argument("--model", default="vgg16")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rate", default="1gbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--codecs", nargs="*", default=[])
    args = parser.parse_args()
    plans = [plan(args)]
    best = min((s for s in plans[0]["steps"] if s["delay"] == 0), key=lambda s: s["step_seconds"])
    lines = [[]] + [c.split() for c in args.codecs or [best["options"]]]
    times, bare = [[] for _ in lines], []
    try:
        plug_in(args.rate)
        with tempfile.TemporaryDirectory() as work:
            job = Job(args, work)
            for number in range(args.rounds):
                if number > 0:
                    plans.append(plan(args))
                for i, options in enumerate(lines):
                    with_exchange, without = job.measure(options)
                    times[i].append(with_exchange)
                    bare.append(without)
    finally:
        unplug()
    dense = statistics.median(times[0])
    print("%s, batch %d, two ranks of one thread, %s each way; a step without exchange takes %.3f s"
          % (args.model, args.batch_size, args.rate, statistics.median(bare)))
    print("%-62s %10s %10s %8s %8s" % ("options", "measured s", "planned s", "error", "of dense"))
    for options, seconds in zip(lines, times):
        step, guess = statistics.median(seconds), predicted(plans, options)
        planned = "%10.3f %+7.1f%%" % (guess, 100 * (guess / step - 1)) if guess == guess else "%10s %8s" % ("-", "-")
        print("%-62s %10.3f %s %7.2fx" % (" ".join(options) or "dense", step, planned, dense / step))


if __name__ == "__main__":
    main()
