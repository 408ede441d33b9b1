#!/usr/bin/python3
"""nowait's loader and Pillow + NumPy side by side on one core: photographs made ready for training.

  bench/loader.py [--data DIR] [--batch-size 64] [--rounds 7] [--steps 4] [--json FILE]

Each image is opened and decoded to RGB, a random resized crop of it scaled to 224 x 224 with the bilinear filter, flipped
in half of the cases, and written as normalised float32 into a batch of N x 3 x 224 x 224. Both sides run on the same core,
one after the other in every round, so that both see the same neighbours on a shared machine. The medians count.
DIR holds train/<class>/*.JPEG; by default imagenette-sample under NOWAIT_DATA or ../shared/data.
"""
import argparse
import glob
import json
import math
import os
import random
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOWAIT = os.path.join(ROOT, "build", "nowait")
SIDE = 224


# ---- the Pillow side ----------------------------------------------------------------------------------------------------

class Pillow:
    def __init__(self, files, batch_size):
        import numpy
        from PIL import Image
        self.numpy, self.image = numpy, Image
        self.files, self.batch_size, self.next = files, batch_size, 0
        self.random = random.Random(0)
        self.random.shuffle(files)
        mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        self.scale = [numpy.float32(1 / (255 * d)) for d in deviation]
        self.shift = [numpy.float32(-m / d) for m, d in zip(mean, deviation)]
        self.batch = numpy.empty((batch_size, 3, SIDE, SIDE), numpy.float32)

    def part(self, width, height):
        for _ in range(10):
            area = width * height * self.random.uniform(0.08, 1)
            aspect = math.exp(self.random.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                left, top = self.random.randint(0, width - w), self.random.randint(0, height - h)
                return left, top, left + w, top + h
        return 0, 0, width, height

    def run(self, steps):
        """Images per second over so many batches."""
        start = time.perf_counter()
        for _ in range(steps):
            for i in range(self.batch_size):
                with self.image.open(self.files[self.next % len(self.files)]) as file:
                    photo = file.convert("RGB")
                self.next += 1
                photo = photo.crop(self.part(*photo.size)).resize((SIDE, SIDE), self.image.BILINEAR)
                if self.random.random() < 0.5:
                    photo = photo.transpose(self.image.FLIP_LEFT_RIGHT)
                pixels = self.numpy.asarray(photo)
                for c in range(3):  # plane by plane: several times faster than broadcasting over the channels
                    plane = self.batch[i, c]
                    self.numpy.multiply(pixels[:, :, c], self.scale[c], out=plane)
                    plane += self.shift[c]
        return steps * self.batch_size / (time.perf_counter() - start)


# ---- the race -----------------------------------------------------------------------------------------------------------

def nowait(directory, batch_size, steps):
    command = [NOWAIT, "bench", "loader", "--dataset", "folder", "--data-dir", directory, "--batch-size", str(batch_size),
               "--steps", str(steps), "--workers", "0", "--format", "json"]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    roots = os.environ.get("NOWAIT_DATA", os.path.join(ROOT, "..", "shared", "data"))
    parser.add_argument("--data", default=os.path.join(roots, "imagenette-sample"))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", help="also write the numbers to this file")
    args = parser.parse_args()
    files = sorted(glob.glob(os.path.join(args.data, "train", "*", "*.[Jj][Pp]*[Gg]")))
    if not files:
        sys.exit("no photographs in %s/train/*: name a folder with --data" % args.data)
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})  # and what it starts
    pillow = Pillow(files, args.batch_size)
    pillow.run(1)
    rates = {"nowait": [], "pillow": []}
    for _ in range(args.rounds):
        answer = nowait(args.data, args.batch_size, args.steps)
        rates["nowait"].append(answer["images_per_second_core"])
        rates["pillow"].append(pillow.run(args.steps))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    ratio = statistics.median(a / b for a, b in zip(rates["nowait"], rates["pillow"]))
    print("%d photographs, core %d, %d rounds of %d batches of %d; load %.2f; %s" %
          (len(files), core, args.rounds, args.steps, args.batch_size, os.getloadavg()[0], answer["cpu"]))
    for name in rates:
        print("  %-8s %7.0f images/s (median), %.0f to %.0f" % (name, medians[name], min(rates[name]), max(rates[name])))
    print("  nowait over Pillow, median of the rounds: %.2fx" % ratio)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"medians": medians, "ratio": ratio, "rates": rates, "cpu": answer["cpu"],
                       "commit": answer["commit"]}, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
