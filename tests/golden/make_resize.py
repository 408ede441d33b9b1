#!/usr/bin/python3
"""make_resize.py - writes resize.nwg: what Pillow's BILINEAR makes of small images, for tests to compare with.

Usage: make_resize.py [DIRECTORY]     (default: the directory of this script). Needs Pillow and make_golden.py's PyTorch.

The format is make_golden.py's. "<case>/shape" holds H W top left height width new_height new_width; "<case>/y" the part
(top, left, height, width) of the image, cropped and then scaled to new_height x new_width x 3. Byte i of case number t's
image (H x W x 3, interleaved) is bits(300 + t, i) & 255.
"""
import os
import sys

import numpy as np
import torch
from PIL import Image

from make_golden import Golden, bits

CASES = [
    ("same", 5, 6, 0, 0, 5, 6, 5, 6),
    ("up", 7, 9, 0, 0, 7, 9, 16, 13),
    ("down", 31, 23, 0, 0, 31, 23, 8, 9),
    ("mixed", 12, 40, 0, 0, 12, 40, 19, 11),
    ("part", 30, 41, 7, 5, 17, 20, 12, 12),
    ("part_up", 30, 41, 20, 33, 6, 5, 12, 12),
    ("one", 19, 3, 0, 0, 19, 3, 1, 1),
    ("far", 300, 7, 0, 0, 300, 7, 3, 4),
]


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    golden = Golden()
    for t, (name, height, width, top, left, h, w, new_height, new_width) in enumerate(CASES):
        pixels = (bits(300 + t, height * width * 3) & np.uint64(255)).astype(np.uint8).reshape(height, width, 3)
        part = Image.fromarray(pixels).crop((left, top, left + w, top + h))
        scaled = np.asarray(part.resize((new_width, new_height), Image.BILINEAR)).astype(np.float32)
        shape = [height, width, top, left, h, w, new_height, new_width]
        golden.add(f"{name}/shape", torch.tensor(shape, dtype=torch.float32))
        golden.add(f"{name}/y", torch.from_numpy(scaled))
    golden.write(os.path.join(directory, "resize.nwg"))


if __name__ == "__main__":
    main()
