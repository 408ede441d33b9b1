#!/usr/bin/env python3
"""What averaging costs real ranks of gossip, and what a rank that stands still costs the others.

  bench/gossip_ranks.py [--nowait build/nowait] [--ranks 4] [--model resnet18] [--batch-size 64] [--updates 64] [--rounds 3]
                        [--stop-model resnet20] [--stop-seconds 5] [--only throughput|stopped] [--graph cycle] [--acid]

throughput: MPI ranks of one thread train with one averaging for each gradient (--rate-com 1) and without any (0), in turns.
Images of a second are those of all ranks between the first quarter of the updates and the last one; medians of the rounds are
compared.

stopped: one rank of the job (not rank 0) is suspended (SIGSTOP) for some seconds and continued. Updates of all ranks meanwhile are
compared with those in as many seconds before, of which the other ranks had their share.
"""
import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def line(args, model, batch, updates, folder, rate):
    more = ["--apply-acid"] if args.acid and rate > 0 else []
    return ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", str(args.ranks), args.nowait, "train", "--quiet", "--model",
            model, "--dataset", "synthetic", "--limit", str(batch * updates), "--sampling", "replicate", "--epoch-of", "all",
            "--batch-size", str(batch), "--max-steps", str(updates), "--exchange", "gossip", "--graph-topology", args.graph,
            "--rate-com", str(rate), "--threads", "1", "--eval-every", "1000", "--consensus-every", "0", "--lr", "0.001",
            "--tensorboard=false", "--run-dir", folder] + more


def steps_of(folder):
    with open(os.path.join(folder, "metrics.jsonl")) as file:
        records = [json.loads(text) for text in file]
    return [r for r in records if r["record"] == "step"]


def throughput(args):
    rates = {0: [], 1: []}
    for _ in range(args.rounds):
        for rate in rates:
            with tempfile.TemporaryDirectory() as work:
                folder = os.path.join(work, "run")
                done = subprocess.run(line(args, args.model, args.batch_size, args.updates, folder, rate), env=ENVIRONMENT,
                                      capture_output=True, text=True)
                if done.returncode != 0:
                    sys.exit(done.stdout + done.stderr)
                steps = steps_of(folder)
                first = steps[len(steps) // 4]
                seconds = steps[-1]["total_seconds"] - first["total_seconds"]
                rates[rate].append(args.batch_size * (steps[-1]["step"] - first["step"]) / seconds)
    without, with_averaging = (statistics.median(rates[r]) for r in (0, 1))
    print("%s, batch %d, %d ranks of one thread, %s%s: %.1f images/s with one averaging a gradient (%s), %.1f with none (%s): %.3f"
          % (args.model, args.batch_size, args.ranks, args.graph, ", momentum" if args.acid else "", with_averaging,
             " ".join("%.1f" % r for r in rates[1]), without, " ".join("%.1f" % r for r in rates[0]), with_averaging / without))


def ranks_of(job):
    """Process ids by rank, once all have begun."""
    while job.poll() is None:
        found = {}
        for name in os.listdir("/proc"):
            try:
                with open("/proc/%s/environ" % name, "rb") as file:
                    environ = dict(part.split(b"=", 1) for part in file.read().split(b"\0") if b"=" in part)
                with open("/proc/%s/stat" % name) as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except (OSError, ValueError):
                continue
            if parent == job.pid and b"OMPI_COMM_WORLD_RANK" in environ:
                found[int(environ[b"OMPI_COMM_WORLD_RANK"])] = int(name)
        if len(found) > 1:
            return found
        time.sleep(0.1)
    sys.exit("the job ended before it began")


def count(path):
    """Updates that rank 0 has counted: it writes a record of each at once."""
    try:
        with open(path, "rb") as file:
            return file.read().count(b'{"record":"step"')
    except FileNotFoundError:
        return 0


def stop_one(args, victim):
    """Updates of all ranks in the seconds before the stop, and in those of the stop."""
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.join(work, "run")
        job = subprocess.Popen(line(args, args.stop_model, 32, 1000000, folder, 1), env=ENVIRONMENT,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        path = os.path.join(folder, "metrics.jsonl")
        while count(path) < 20 * args.ranks:
            if job.poll() is not None:
                sys.exit("the job ended before it began")
            time.sleep(0.1)
        counts = [count(path)]
        time.sleep(args.stop_seconds)
        os.kill(ranks_of(job)[victim], signal.SIGSTOP)
        counts.append(count(path))
        time.sleep(args.stop_seconds)
        counts.append(count(path))
        os.kill(ranks_of(job)[victim], signal.SIGCONT)
        time.sleep(1)
        job.send_signal(signal.SIGTERM)
        job.wait()
        return counts[1] - counts[0], counts[2] - counts[1]


def stopped(args):
    rounds = [stop_one(args, 1 + turn % (args.ranks - 1)) for turn in range(args.rounds)]
    others = (args.ranks - 1) / args.ranks
    print("%s, batch 32, %d ranks of one thread, %s; one is suspended for %g s. Updates in as many seconds before and meanwhile: %s"
          % (args.stop_model, args.ranks, args.graph, args.stop_seconds, ", ".join("%d and %d" % r for r in rounds)))
    print("the other %d ranks compute %.2f times what they did before (all %d together: %.2f times)"
          % (args.ranks - 1, statistics.median(r[1] / (r[0] * others) for r in rounds), args.ranks,
             statistics.median(r[1] / r[0] for r in rounds)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nowait", default="build/nowait")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--updates", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--graph", default="cycle")
    parser.add_argument("--acid", action="store_true")
    parser.add_argument("--stop-model", default="resnet20")
    parser.add_argument("--stop-seconds", type=float, default=5)
    parser.add_argument("--only", choices=["throughput", "stopped"])
    args = parser.parse_args()
    if args.only != "stopped":
        throughput(args)
    if args.only != "throughput":
        stopped(args)


if __name__ == "__main__":
    main()
