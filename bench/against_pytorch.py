#!/usr/bin/python3
"""nowait against PyTorch, step by step: do both learn the same from the same weights and the same batches?

  bench/against_pytorch.py [--steps 200] [--batch-size 64] [--threads T] [--width 64] [--seed 0] [--data-dir DIR]
                           [--json FILE]

resnet18 in f32 on CIFAR-10. Three contestants take every step on the same batch, in one process: PyTorch in its default
layout, PyTorch in channels-last, nowait (through build/libnowait_bench.so). They begin with the same weights, which
PyTorch draws with its default rules and which are copied by name.

Batches: a random order of the 50,000 training images; each image cut at random out of its zero padding of 4 pixels,
mirrored in half of the cases, normalised with the recipe's mean and deviation. Made with NumPy from --seed.
Rates: the beginning of recipe petra/cifar10-resnet18-backprop without accumulation. With B images a batch and
N = ceil(50000 / B) batches an epoch, step q = 0, 1, ... has the rate 0.1 B / 256 (q + 1) / (5 N): a warm-up of 5 epochs.
SGD with Nesterov momentum 0.9; weight decay 5e-4 on all parameters (the recipe spares batch norm and biases).

Two verdicts; the exit code is 0 if both hold:
  first 20 steps   every loss of nowait within 0.1 % of that of PyTorch's default layout
  all steps        the running mean of the loss (window of 20 steps) never further from that of PyTorch's default layout
                   than twice the largest distance of PyTorch's own channels-last layout

DIR holds cifar-10-batches-bin; by default it is NOWAIT_DATA, or ../shared/data beside the project. FILE is written again
every ten steps, so that an interrupted run leaves what it has.
"""
import argparse
import ctypes
import json
import os
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # PyTorch's threads must not spin while nowait computes

import numpy as np
import torch
import torch.nn.functional as F

from peers import cpu_name, ticks
from torch_models import ResNet18

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
IMAGES, SIDE, PAD = 50000, 32, 4
MEAN, DEVIATION = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
RATE, WARM_UP, MOMENTUM, WEIGHT_DECAY = 0.1, 5, 0.9, 5e-4
FIRST, WINDOW = 20, 20
CLOSE, FACTOR = 1e-3, 2.0  # what the verdicts allow


# ---- batches ------------------------------------------------------------------------------------------------------------

class Batches:
    def __init__(self, directory, batch_size, seed):
        record = 1 + 3 * SIDE * SIDE
        files = [os.path.join(directory, "cifar-10-batches-bin", "data_batch_%d.bin" % i) for i in range(1, 6)]
        records = np.concatenate([np.fromfile(f, np.uint8) for f in files])
        if records.size != IMAGES * record:
            sys.exit("against_pytorch: %s holds %d bytes, expected %d" % (directory, records.size, IMAGES * record))
        records = records.reshape(IMAGES, record)
        self.labels = records[:, 0].astype(np.int32)
        self.pixels = records[:, 1:].reshape(IMAGES, 3, SIDE, SIDE)
        self.batch_size, self.random, self.left = batch_size, np.random.RandomState(seed), np.empty(0, np.int64)

    def next(self):
        if self.left.size < self.batch_size:  # an epoch ends; its last, smaller batch is left out
            self.left = self.random.permutation(IMAGES)
        chosen, self.left = self.left[:self.batch_size], self.left[self.batch_size:]
        padded = np.pad(self.pixels[chosen], ((0, 0), (0, 0), (PAD, PAD), (PAD, PAD)))
        images = np.empty((self.batch_size, 3, SIDE, SIDE), np.float32)
        corners = self.random.randint(0, 2 * PAD + 1, (self.batch_size, 2))
        mirror = self.random.rand(self.batch_size) < 0.5
        for i, (top, left) in enumerate(corners):
            window = padded[i, :, top:top + SIDE, left:left + SIDE]
            images[i] = window[:, :, ::-1] if mirror[i] else window
        mean, deviation = (np.float32(v).reshape(1, 3, 1, 1) for v in (MEAN, DEVIATION))
        return (images / np.float32(255) - mean) / deviation, self.labels[chosen]


# ---- contestants --------------------------------------------------------------------------------------------------------

class Torch:
    def __init__(self, name, layout, weights, width):
        self.name, self.layout, self.model, self.losses = name, layout, ResNet18(width), []
        self.model.load_state_dict(weights)
        self.model.to(memory_format=layout)
        self.optimizer = torch.optim.SGD(self.model.parameters(), RATE, momentum=MOMENTUM, nesterov=True,
                                         weight_decay=WEIGHT_DECAY)

    def step(self, images, labels, rate):
        self.optimizer.param_groups[0]["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        images = torch.from_numpy(images).contiguous(memory_format=self.layout)
        loss = F.cross_entropy(self.model(images), torch.from_numpy(labels.astype(np.int64)))
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def weights(self):
        return torch.cat([p.detach().contiguous().flatten() for p in self.model.parameters()]).double().numpy()


class Nowait:
    def __init__(self, name, weights, args):
        self.name, self.losses = name, []
        lib = self.lib = ctypes.CDLL(os.path.join(ROOT, "build", "libnowait_bench.so"))
        text, size, floats = ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_float)
        lib.against_create.restype = lib.nw_net_parameters.restype = ctypes.c_void_p
        lib.against_create.argtypes = [text] + [ctypes.c_int] * 3 + [ctypes.c_double, ctypes.c_bool, ctypes.c_double]
        lib.against_parameter.restype = lib.nw_net_isa.restype = lib.nw_error_message.restype = text
        lib.nw_version.restype = lib.nw_build_commit.restype = text
        lib.against_parameter.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(size), ctypes.POINTER(size)]
        lib.against_step.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_double,
                                     ctypes.POINTER(ctypes.c_double)]
        lib.nw_net_parameters.argtypes = [ctypes.c_void_p, ctypes.POINTER(size)]
        lib.nw_net_parameter_count.argtypes = lib.nw_net_isa.argtypes = [ctypes.c_void_p]
        self.net = lib.against_create(b"resnet18", args.batch_size, args.width, args.threads, MOMENTUM, True, WEIGHT_DECAY)
        if not self.net:
            self.fail()
        count = size()
        address = lib.nw_net_parameters(self.net, ctypes.byref(count))
        self.vector = np.ctypeslib.as_array(ctypes.cast(address, floats), (count.value,))
        self.copy(weights)

    def copy(self, weights):
        """By name. Every learned value must find its place, and every place a value."""
        filled, offset, count = 0, ctypes.c_size_t(), ctypes.c_size_t()
        for i in range(self.lib.nw_net_parameter_count(self.net)):
            name = self.lib.against_parameter(self.net, i, ctypes.byref(offset), ctypes.byref(count)).decode()
            values = weights[name].numpy().ravel()
            assert values.size == count.value, name
            self.vector[offset.value:offset.value + count.value] = values
            filled += count.value
        learned = sum(v.numel() for k, v in weights.items() if "running" not in k and "num_batches" not in k)
        assert filled == self.vector.size == learned, "%d values filled of %d, PyTorch has %d" % (
            filled, self.vector.size, learned)

    def fail(self):
        sys.exit("against_pytorch: " + self.lib.nw_error_message().decode())

    def step(self, images, labels, rate):
        images, labels, loss = np.ascontiguousarray(images), np.ascontiguousarray(labels), ctypes.c_double()
        if self.lib.against_step(self.net, images.ctypes.data, labels.ctypes.data, len(labels), rate, ctypes.byref(loss)):
            self.fail()
        self.losses.append(loss.value)

    def weights(self):
        return self.vector.astype(np.float64)

    def facts(self):
        return {"nowait": "%s (%s)" % (self.lib.nw_version().decode(), self.lib.nw_build_commit().decode()),
                "isa": self.lib.nw_net_isa(self.net).decode()}


# ---- verdicts -----------------------------------------------------------------------------------------------------------

def running_mean(losses):
    sums = np.cumsum(np.concatenate([[0.0], losses]))
    return (sums[WINDOW:] - sums[:-WINDOW]) / WINDOW


def verdicts(default, channels_last, nowait):
    """The numbers after so many steps; complete windows only."""
    base, answer = np.array(default.losses), {}
    for c in (channels_last, nowait):
        losses = np.array(c.losses)
        relative = np.abs(losses - base)[:FIRST] / np.abs(base[:FIRST])
        distance = np.abs(running_mean(losses) - running_mean(base))
        w, w0 = c.weights(), default.weights()
        answer[c.name] = {"first_20_worst_relative": float(relative.max()),
                          "mean_distance_max": float(distance.max()), "mean_distance_end": float(distance[-1]),
                          "mean_distance_max_relative": float((distance / running_mean(base)).max()),
                          "weights_relative_distance": float(np.linalg.norm(w - w0) / np.linalg.norm(w0))}
    ours, theirs = answer[nowait.name], answer[channels_last.name]
    answer["first_20_pass"] = ours["first_20_worst_relative"] <= CLOSE
    answer["running_mean_pass"] = ours["mean_distance_max"] <= FACTOR * theirs["mean_distance_max"]
    return answer


def print_table(contestants, answer):
    print("\nlosses of the first %d steps" % FIRST)
    print("  %4s" % "step" + "".join("%24s" % c.name for c in contestants))
    for q in range(FIRST):
        print("  %4d" % (q + 1) + "".join("%24.6f" % c.losses[q] for c in contestants))
    print("\nrunning mean of the loss over %d steps" % WINDOW)
    means = [running_mean(c.losses) for c in contestants]
    last = len(contestants[0].losses)
    for q in sorted(set(range(WINDOW, last + 1, 20)) | {last}):
        print("  %4d" % q + "".join("%24.6f" % m[q - WINDOW] for m in means))
    print("\ndistance from %s" % contestants[0].name)
    print("  %-24s %16s %16s %16s %16s" % ("", "first 20, worst", "mean, largest", "mean, at the end", "weights"))
    for c in contestants[1:]:
        a = answer[c.name]
        print("  %-24s %14.5f %% %16.3e %16.3e %16.3e" % (c.name, 100 * a["first_20_worst_relative"],
              a["mean_distance_max"], a["mean_distance_end"], a["weights_relative_distance"]))
    for key, text in (("first_20_pass", "first 20 losses within 0.1 %"),
                      ("running_mean_pass", "running mean within twice the distance of channels-last")):
        print("%s  %s" % ("PASS" if answer[key] else "FAIL", text))


def write_json(path, document):
    with open(path + ".part", "w") as f:
        json.dump(document, f, indent=1)
        f.write("\n")
    os.replace(path + ".part", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--width", type=int, default=64, help="channels of the first stage; 64 is the real network")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data-dir", default=os.environ.get("NOWAIT_DATA", os.path.join(ROOT, "..", "shared", "data")))
    parser.add_argument("--json", help="write all losses and the verdicts to this file")
    args = parser.parse_args()
    if args.steps < max(FIRST, WINDOW):
        parser.error("--steps must be at least %d" % max(FIRST, WINDOW))
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    batches = Batches(args.data_dir, args.batch_size, args.seed)
    weights = ResNet18(args.width).state_dict()
    contestants = [Torch("PyTorch", torch.contiguous_format, weights, args.width),
                   Torch("PyTorch channels-last", torch.channels_last, weights, args.width),
                   Nowait("nowait", weights, args)]
    document = {"model": "resnet18", "width": args.width, "precision": "f32", "batch_size": args.batch_size,
                "threads": args.threads, "seed": args.seed, "pytorch": torch.__version__, "cpu": cpu_name(),
                **contestants[2].facts(), "window": WINDOW, "steps": 0, "rates": []}
    print("%s, PyTorch %s, nowait %s, %s, %d threads" % (document["cpu"], torch.__version__, document["nowait"],
          document["isa"], args.threads), flush=True)
    before = ticks()
    per_epoch = -(-IMAGES // args.batch_size)
    for q in range(args.steps):
        images, labels = batches.next()
        rate = RATE * args.batch_size / 256 * (q + 1) / (WARM_UP * per_epoch)
        for c in contestants:
            c.step(images, labels, rate)
        document["rates"].append(rate)
        document["steps"] = q + 1
        done = q + 1 == args.steps
        print("step %3d/%d  rate %.3e  " % (q + 1, args.steps, rate) +
              "  ".join("%s %.6f" % (c.name, c.losses[-1]) for c in contestants), file=sys.stderr, flush=True)
        if q + 1 >= WINDOW and (done or (q + 1) % 10 == 0):
            after = ticks()
            document["steal_percent"] = 100.0 * (after[1] - before[1]) / max(1, after[0] - before[0])
            document["load"] = os.getloadavg()[0]
            document["complete"] = done
            document["verdicts"] = verdicts(*contestants)
            document["losses"] = {c.name: c.losses for c in contestants}
            if args.json:
                write_json(args.json, document)
    print_table(contestants, document["verdicts"])
    sys.exit(0 if document["verdicts"]["first_20_pass"] and document["verdicts"]["running_mean_pass"] else 1)


if __name__ == "__main__":
    main()
