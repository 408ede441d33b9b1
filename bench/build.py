#!/usr/bin/python3
"""CPU time of building fresh clones of several commits, in turns; or what a build of this tree spends it on.

  bench/build.py [COMMIT ...] [--rounds 2] [--dir DIR]     default: HEAD alone
  bench/build.py --steps 30 [--dir DIR]                    the commands of a build of HEAD that took longest

A build is that of `make build`: CMake's default preset and all targets, tests included, one command at a time. User and
system time of all its processes count, so what else runs matters less than for elapsed time. DIR holds the clones, which
are removed; the default is the system's folder for temporary files.
"""
import argparse
import collections
import os
import resource
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def launch():
    """Runs a command of the build and notes its time: CMake starts it as LAUNCHER LOG COMMAND..."""
    log, command = sys.argv[2], sys.argv[3:]
    code = subprocess.run(command).returncode
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    output = command[command.index("-o") + 1] if "-o" in command else os.path.basename(command[0])
    with open(log, "a") as f:
        f.write("%.3f %s\n" % (used.ru_utime + used.ru_stime, output))
    sys.exit(code)


def cpu_seconds(command, cwd):
    """The user and the system time of a command with all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, cwd=cwd, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime


def build(commit, directory, log=None):
    clone = tempfile.mkdtemp(prefix="build-", dir=directory)
    try:
        subprocess.run(["git", "clone", "-q", "--no-checkout", ROOT, clone], check=True)
        subprocess.run(["git", "checkout", "-q", "--detach", commit], cwd=clone, check=True)
        configure = ["cmake", "--preset", "default", "--log-level=WARNING"]
        if log:
            launcher = ";".join([sys.executable, os.path.abspath(__file__), "--launch", log])
            configure += ["-DCMAKE_C_COMPILER_LAUNCHER=" + launcher, "-DCMAKE_C_LINKER_LAUNCHER=" + launcher]
        times = [cpu_seconds(configure, clone), cpu_seconds(["cmake", "--build", "--preset", "default", "-j", "1"], clone)]
    finally:
        shutil.rmtree(clone)
    return sum(t[0] for t in times), sum(t[1] for t in times)


def list_steps(most, directory):
    with tempfile.NamedTemporaryFile() as log:
        user, system = build("HEAD", directory, log.name)
        steps = sorted(((float(s), name) for s, name in (line.split() for line in open(log.name))), reverse=True)
    sums = collections.Counter()
    for seconds, name in steps:
        kind = "links" if not name.endswith(".o") else "/".join(name.split(".dir/")[0].split("/")[:2]) \
            if "kernels" in name or "codec_" in name else "tests" if "/test" in name or "fuzz" in name else "sources"
        sums[kind] += seconds
    print("CPU seconds %.1f (user %.1f, system %.1f); of these:" % (user + system, user, system))
    for kind, seconds in sums.most_common():
        print("  %8.2f  %s" % (seconds, kind))
    for seconds, name in steps[:most]:
        print("%8.2f  %s" % (seconds, name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", default=["HEAD"])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=0)
    parser.add_argument("--dir")
    args = parser.parse_args()
    if args.steps:
        return list_steps(args.steps, args.dir)
    names = {c: subprocess.run(["git", "rev-parse", "--short=12", c], cwd=ROOT, check=True, text=True,
                               stdout=subprocess.PIPE).stdout.strip() for c in args.commits}
    times = {c: [] for c in args.commits}
    for number in range(args.rounds):
        for commit in args.commits:
            user, system = build(names[commit], args.dir)
            times[commit].append(user + system)
            print("round %d  %-14s %s  user %6.1f s  system %5.1f s  together %6.1f s  load %s" %
                  (number + 1, commit, names[commit], user, system, user + system,
                   open("/proc/loadavg").read().split()[0]), flush=True)
    best = {c: min(t) for c, t in times.items()}
    for commit in args.commits:
        print("%-14s best %6.1f s, %.3f of %s" % (commit, best[commit], best[commit] / best[args.commits[0]],
                                                 args.commits[0]))


if __name__ == "__main__":
    launch() if len(sys.argv) > 1 and sys.argv[1] == "--launch" else main()
