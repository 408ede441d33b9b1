#!/usr/bin/python3
"""Two threads against one: whole training steps, over what the bare micro-kernel gains from the second thread.

  bench/scaling.py [--model resnet18] [--batch-size 128] [--precision auto] [--threads 2] [--rounds 5] [--steps 3]

Rounds of one and of several threads take turns; the best step and the best peak of all rounds count. The number that
matters is the last: (images/s gained) / (peak gained). On a machine whose second CPU is half of a core, or is shared, the
peak gains less than two.
"""
import argparse
import json
import os
import subprocess

NOWAIT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "build", "nowait")


def measure(args, threads):
    command = [NOWAIT, "bench", "train", "--model", args.model, "--batch-size", str(args.batch_size), "--precision",
               args.precision, "--threads", str(threads), "--steps", str(args.steps), "--format", "json"]
    answer = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)
    return answer["images_per_second_best"], answer["peak_gflops"], answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    args = parser.parse_args()
    best = {1: [0, 0], args.threads: [0, 0]}
    for _ in range(args.rounds):
        for threads in best:
            speed, peak, answer = measure(args, threads)
            best[threads] = [max(best[threads][0], speed), max(best[threads][1], peak)]
    (one, peak_one), (many, peak_many) = best[1], best[args.threads]
    print("%s, batch %d, %s on %s; %s; commit %s" % (args.model, args.batch_size, answer["precision"], answer["isa"],
                                                   answer["cpu"], answer["commit"]))
    print("  1 thread   %7.1f images/s, peak %7.1f GFLOP/s" % (one, peak_one))
    print("  %d threads  %7.1f images/s, peak %7.1f GFLOP/s" % (args.threads, many, peak_many))
    print("  gain %.3f, peak's gain %.3f, ratio %.3f" % (many / one, peak_many / peak_one, many / one / (peak_many / peak_one)))


if __name__ == "__main__":
    main()
