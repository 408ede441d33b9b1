#!/usr/bin/python3
"""make_golden_rev.py - writes revnet.nwg: one training step of narrow reversible networks, as PyTorch computes it.

Usage: make_golden_rev.py [DIRECTORY]     (default: the directory of this script). Needs PyTorch; the tests do not.

Format, generated numbers and precision are those of make_golden.py. Entries of each case of CASES, images 3 x 32 x 32,
10 classes, one batch of 8:
    <case>/loss, <case>/logits          mean cross entropy
    <case>/grad/<parameter>             its gradient
    <case>/buffer/<name>                running_mean and running_var after that one training forward
Gradients and buffers are not stored whole but as a digest: the 2-norm; the inner product with value(5000, i), in which
every element counts; then at most 32 elements, number floor(i * count / 32).

Some gradients are zero: of a bias in front of batch norm; in bottleneck networks also of a projection's shift, since a
stream's offset reaches only 1 x 1 convolutions with batch norm behind. PyTorch's is what rounding leaves; the file has
zeros.
"""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from make_golden import CLASSES, Golden, distance, labels, values, weight_scale

SAMPLES = 32
ROUNDING = 1e-12   # gradients below this are zero but for rounding in f64


def conv_norm(owner, conv, norm, c, k, size, stride):
    """Both become children of the owner itself, so that names stay flat."""
    owner.add_module(conv, nn.Conv2d(c, k, size, stride, size // 2))
    owner.add_module(norm, nn.BatchNorm2d(k))


class Block(nn.Module):
    """A residual function of 2 (basic) or 3 (bottleneck) convolutions, all with batch norm and ReLU; where the shape
    changes, with the projections of a transition."""

    def __init__(self, c, k, stride, bottleneck):
        super().__init__()
        self.bottleneck = bottleneck
        self.reversible = c == k and stride == 1
        shapes = ([(c, k // 4, 1, 1), (k // 4, k // 4, 3, stride), (k // 4, k, 1, 1)] if bottleneck else
                  [(c, k, 3, stride), (k, k, 3, 1)])
        self.count = len(shapes)
        for i, shape in enumerate(shapes):
            conv_norm(self, f"conv{i + 1}", f"bn{i + 1}", *shape)
        if not self.reversible:
            self.downsample = nn.Sequential(nn.Conv2d(c, k, 1, stride), nn.BatchNorm2d(k))
            if bottleneck:
                self.projection = nn.Sequential(nn.Conv2d(c, k, 1, stride), nn.BatchNorm2d(k))

    def unit(self, i, x):
        return F.relu(getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x)))

    def forward(self, x, twin):
        first = y = self.unit(1, x)
        for i in range(2, self.count + 1):
            y = self.unit(i, y)
        if self.reversible:
            return twin + y, x
        return y + self.downsample(twin), self.projection(x) if self.bottleneck else first


class RevNet(nn.Module):
    def __init__(self, width, blocks, bottleneck=False, large=False):
        super().__init__()
        conv_norm(self, "conv1", "bn1", 3, 2 * width, 7 if large else 3, 2 if large else 1)
        self.large = large
        c = width
        for group, count in enumerate(blocks):
            k = (4 if bottleneck else 1) * (width << group)
            layer = []
            for i in range(count):
                layer.append(Block(c, k, 2 if group > 0 and i == 0 else 1, bottleneck))
                c = k
            self.add_module(f"layer{group + 1}", nn.ModuleList(layer))
        self.groups = len(blocks)
        self.fc = nn.Linear(2 * c, CLASSES)

    def forward(self, images):
        y = F.relu(self.bn1(self.conv1(images)))
        y = F.max_pool2d(y, 2) if self.large else y
        x, twin = y.chunk(2, 1)
        for group in range(self.groups):
            for block in getattr(self, f"layer{group + 1}"):
                x, twin = block(x, twin)
        return self.fc(torch.cat((x, twin), 1).mean((2, 3)))


CASES = {
    "revnet18": lambda: RevNet(8, (2, 2, 2, 2)),
    "revnet18-imagenet": lambda: RevNet(8, (2, 2, 2, 2), large=True),
    "revnet50": lambda: RevNet(8, (3, 4, 6, 3), bottleneck=True),
    "revnet-fixed": lambda: RevNet(8, (5,)),
}


def one_step(kind, dtype):
    model = kind()
    with torch.no_grad():
        for t, (name, p) in enumerate(model.named_parameters()):
            norm = isinstance(model.get_submodule(name.rpartition(".")[0]), nn.BatchNorm2d)
            if norm:
                offset, scale = (1.0, 0.2) if name.endswith("weight") else (0.0, 0.2)
            else:
                offset, scale = 0.0, weight_scale(p.shape) if p.dim() > 1 else 0.1
            p.copy_(values(1000 + t, p.shape, offset, scale))
    model = model.to(dtype).train()
    logits = model(values(1, (8, 3, 32, 32), scale=1.7).to(dtype))
    loss = F.cross_entropy(logits, labels(2, 8, CLASSES))
    loss.backward()
    return model, logits, loss


def digest(tensor):
    flat = tensor.detach().double().flatten()
    if flat.norm() < ROUNDING:
        flat = torch.zeros_like(flat)
    count = flat.numel()
    picked = flat[[i * count // SAMPLES for i in range(SAMPLES)]] if count > SAMPLES else flat
    return torch.cat((flat.norm().reshape(1), (flat * values(5000, (count,))).sum().reshape(1), picked))


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    golden = Golden()
    for case, kind in CASES.items():
        model, logits, loss = one_step(kind, torch.float64)
        golden.add(f"{case}/loss", loss.reshape(1))
        golden.add(f"{case}/logits", logits)
        for name, p in model.named_parameters():
            golden.add(f"{case}/grad/{name}", digest(p.grad))
        for name, buffer in model.named_buffers():
            if not name.endswith("num_batches_tracked"):
                golden.add(f"{case}/buffer/{name}", digest(buffer))
        # How far f32 is from f64 in PyTorch itself: what a tolerance must allow.
        model32, logits32, loss32 = one_step(kind, torch.float32)
        worst = max(distance(p32.grad, p.grad) for p32, p in zip(model32.parameters(), model.parameters())
                    if p.grad.norm() >= ROUNDING)
        print(f"  {case}: {sum(p.numel() for p in model.parameters())} parameters; f32 against f64, relative: loss "
              f"{abs(loss32.item() / loss.item() - 1):.1e}, logits {distance(logits32, logits):.1e}, worst gradient "
              f"{worst:.1e}")
    golden.write(os.path.join(directory, "revnet.nwg"))


if __name__ == "__main__":
    main()
