#!/usr/bin/python3
"""nowait and PyTorch side by side: whole training steps on the same shapes, interleaved in one run.

  bench/peers.py [--models resnet9,resnet18] [--batch-size 128] [--rounds 5] [--steps 3] [--threads N]
                 [--limit avx2] [--json FILE]

Every contestant takes part in every round, one after the other, so that all see the same neighbours on a shared machine.
PyTorch runs in f32 in its default and in its channels-last layout, and in bf16 (autocast) where that runs at all: in a
child process each, because bf16 may die of an illegal instruction or take minutes a step. The best step of all rounds counts on each side; the
median is printed too. Steps are forward, backward and SGD with momentum on synthetic images of 3 x 32 x 32.
--limit avx2 confines all of them to AVX2.
"""
import argparse
import json
import os
import select
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOWAIT = os.path.join(ROOT, "build", "nowait")
PATIENCE = 45  # seconds for the first step, or for a round: some modes exist but run in reference code


# ---- the PyTorch side: a child that runs k steps per line on its input ------------------------------------------------

def torch_child(model_name, mode, batch_size, threads):
    import resource
    import time

    import torch
    import torch.nn.functional as F

    from torch_models import MODELS

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = MODELS[model_name]()
    images, labels = torch.randn(batch_size, 3, 32, 32), torch.randint(0, 10, (batch_size,))
    if "channels-last" in mode:
        model, images = (t.to(memory_format=torch.channels_last) for t in (model, images))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=5e-4)

    def step():
        optimizer.zero_grad(set_to_none=True)
        if "bf16" in mode:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = model(images)
            loss = F.cross_entropy(out.float(), labels)
        else:
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()

    step()
    print("ready", flush=True)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": times, "peak_memory_bytes": peak}), flush=True)


class Torch:
    def __init__(self, model, mode, args, env):
        self.name, self.mode, self.times, self.memory = "PyTorch " + mode, mode, [], 0
        command = [sys.executable, os.path.abspath(__file__), "--child", model, mode, str(args.batch_size), str(args.threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                        text=True, env=env)
        self.why = ""
        self.alive = self.read_line().strip() == "ready"

    def read_line(self):
        """A line from the child, or nothing if it dies or takes too long."""
        ready, _, _ = select.select([self.process.stdout], [], [], PATIENCE)
        if not ready:
            self.process.kill()
            self.why = "gave up after %d s" % PATIENCE
            return ""
        return self.process.stdout.readline()

    def why_dead(self):
        code = self.process.wait()
        return self.why or ("died of signal %d" % -code if code < 0 else "exit code %d" % code)

    def run(self, steps):
        self.process.stdin.write("%d\n" % steps)
        self.process.stdin.flush()
        line = self.read_line()
        if not line:
            self.alive = False
            return
        answer = json.loads(line)
        self.times += answer["seconds"]
        self.memory = answer["peak_memory_bytes"]

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait()


class Nowait:
    def __init__(self, model, mode, args, env):
        self.name, self.mode, self.times, self.memory, self.alive = "nowait " + mode, mode, [], 0, True
        self.isa = ""
        self.batch_size, self.env = args.batch_size, env
        self.command = [NOWAIT, "bench", "train", "--model", model, "--batch-size", str(args.batch_size), "--precision", mode,
                        "--threads", str(args.threads), "--format", "json"]

    def run(self, steps):
        out = subprocess.run(self.command + ["--steps", str(steps)], env=self.env, stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, check=True, text=True).stdout
        answer = json.loads(out)
        if answer["precision"] != self.mode:  # no AMX: bf16 was answered in f32
            self.alive = False
            return
        self.isa = answer["isa"]
        self.times += answer["step_seconds"]
        self.memory = answer["peak_memory_bytes"]

    def why_dead(self):
        return "no AMX here"

    def close(self):
        pass


# ---- the race -----------------------------------------------------------------------------------------------------------

def ticks():
    with open("/proc/stat") as f:
        fields = [int(x) for x in f.readline().split()[1:]]
    return sum(fields[:8]), fields[7]


def cpu_name():
    with open("/proc/cpuinfo") as f:
        for line in f:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return "unknown"


def race(model, args, env):
    contestants = [Torch(model, mode, args, env) for mode in ("f32", "f32 channels-last", "bf16", "bf16 channels-last")]
    contestants += [Nowait(model, mode, args, env) for mode in ("f32", "bf16")]
    before = ticks()
    for _ in range(args.rounds):
        for c in contestants:
            if c.alive:
                c.run(args.steps)
    after = ticks()
    steal = 100.0 * (after[1] - before[1]) / max(1, after[0] - before[0])
    load = os.getloadavg()[0]
    rows = []
    print("\n%s, batch %d, %d threads, %d rounds of %d steps; steal %.1f %%, load %.2f" %
          (model, args.batch_size, args.threads, args.rounds, args.steps, steal, load))
    print("  %-28s %10s %10s %12s" % ("", "best", "median", "peak memory"))
    for c in contestants:
        if c.alive and c.times:
            row = {"name": c.name, "best": args.batch_size / min(c.times),
                   "median": args.batch_size / statistics.median(c.times), "peak_memory_bytes": c.memory}
            rows.append(row)
            print("  %-28s %6.1f i/s %6.1f i/s %9.0f MB" % (c.name, row["best"], row["median"], c.memory / 1e6))
        else:
            print("  %-28s %s" % (c.name, c.why_dead()))
        c.close()
    torch_f32 = [r for r in rows if r["name"].startswith("PyTorch f32")]
    torch_all = [r for r in rows if r["name"].startswith("PyTorch")]
    ratios = {}
    for r in rows:
        if not r["name"].startswith("nowait"):
            continue
        peers = torch_f32 if r["name"] == "nowait f32" else torch_all
        for key in ("best", "median"):
            ratios["%s over PyTorch's best, %s" % (r["name"], key)] = r[key] / max(p[key] for p in peers)
        ratios["%s memory over PyTorch's f32" % r["name"]] = \
            r["peak_memory_bytes"] / min(p["peak_memory_bytes"] for p in torch_f32)
    for name, value in ratios.items():
        print("  %-48s %.2fx" % (name, value))
    isa = next((c.isa for c in contestants if isinstance(c, Nowait) and c.isa), "")
    return {"model": model, "batch_size": args.batch_size, "threads": args.threads, "steal_percent": steal, "load": load,
            "cpu": cpu_name(), "isa": isa, "limit": args.limit, "rows": rows, "ratios": ratios}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet9,resnet18")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--limit", choices=["", "avx2"], default="")
    parser.add_argument("--json", help="also write the numbers to this file")
    args = parser.parse_args()
    env = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    if args.limit == "avx2":
        env.update(ONEDNN_MAX_CPU_ISA="AVX2", DNNL_MAX_CPU_ISA="AVX2", ATEN_CPU_CAPABILITY="avx2", NOWAIT_ISA="avx2")
    print("cpu: %s%s" % (cpu_name(), ", limited to AVX2" if args.limit else ""))
    version = subprocess.run([NOWAIT, "--version"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
    print(version)
    results = [race(model, args, env) for model in args.models.split(",")]
    if args.json:
        with open(args.json, "w") as f:
            json.dump({"version": version, "results": results}, f, indent=2)
            f.write("\n")


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "--child":
        torch_child(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
