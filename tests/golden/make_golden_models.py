#!/usr/bin/python3
"""make_golden_models.py - writes models.nwg: one step of each family of models, as PyTorch computes it.

Usage: make_golden_models.py [DIRECTORY]     (default: the directory of this script). Needs PyTorch; the tests do not.

The file format, the generated numbers and the streams of parameters, images and labels are make_golden.py's. Networks are
narrow and images small. Whole gradients would be large, so three numbers of each stand for them. For every case:
    <case>/loss, <case>/logits     of one batch in training mode, dropout off; the loss is the mean cross entropy
    <case>/grad/<parameter>        2-norm of its gradient, then the gradient's products with two directions: element i is
                                   value(5000 + 2 t, i), and value(5001 + 2 t, i), for parameter number t
    <case>/buffer/<name>           the same of the running statistics afterwards; t counts buffers from 0
    <case>/eval                    logits in evaluation mode, after that one training forward
Everything is computed in f64 from f32 inputs and rounded once. The script prints how far PyTorch's own f32 is from that:
what a tolerance must allow. It also prints the smallest |input| of a ReLU. Where rounding moves one across zero, a whole
gradient appears or goes; the sizes of images and batches are chosen so that this stays well above 1e-6.
"""
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from make_golden import Golden, labels, values, weight_scale

DIRECTION = 5000
plain_relu = F.relu
margins = []


def watched_relu(x, inplace=False):
    size = x.detach().abs()
    margins.append(size[size > 0].min().item())
    return plain_relu(x)


F.relu = watched_relu

def batch_norm(k, running=True):
    return nn.BatchNorm2d(k, track_running_stats=running)


class ConvBn(nn.Module):
    def __init__(self, c, k, stride=1, bias=False):
        super().__init__()
        self.conv = nn.Conv2d(c, k, 3, stride, 1, bias=bias)
        self.bn = batch_norm(k)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


# ---- ResNets ---------------------------------------------------------------------------------------------------------

class Block(nn.Module):
    """Basic block or bottleneck; `early`: the stride on the first convolution and no middle ReLU."""

    def __init__(self, c, width, stride, bottleneck, bias, early=False):
        super().__init__()
        k = 4 * width if bottleneck else width
        sizes = (1, 3, 1) if bottleneck else (3, 3)
        self.count, self.early = len(sizes), early
        strided = 1 if bottleneck and not early else 0
        for i, size in enumerate(sizes):
            out = k if i == self.count - 1 else width
            setattr(self, f"conv{i + 1}", nn.Conv2d(c if i == 0 else width, out, size, stride if i == strided else 1,
                                                    size // 2, bias=bias))
            setattr(self, f"bn{i + 1}", batch_norm(out))
        self.downsample = None
        if stride != 1 or c != k:
            self.downsample = nn.Sequential(nn.Conv2d(c, k, 1, stride, bias=bias), batch_norm(k))

    def forward(self, x):
        y = x
        for i in range(1, self.count + 1):
            y = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(y))
            if i < self.count and not (self.early and i == 2):
                y = F.relu(y)
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, blocks, bottleneck=False, bias=False, pool=None, early=False, w=8, classes=10):
        super().__init__()
        self.pool = pool
        self.conv1 = nn.Conv2d(3, w, 7, 2, 3, bias=bias) if pool else nn.Conv2d(3, w, 3, 1, 1, bias=bias)
        self.bn1 = batch_norm(w)
        c = w
        for group, count in enumerate(blocks):
            width, layers = w << group, []
            for i in range(count):
                layers.append(Block(c, width, 2 if group and i == 0 else 1, bottleneck, bias, early))
                c = 4 * width if bottleneck else width
            setattr(self, f"layer{group + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(c, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        if self.pool:
            x = F.max_pool2d(x, *self.pool)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class CifarBlock(nn.Module):
    def __init__(self, c, k, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c, k, 3, stride, 1, bias=False)
        self.bn1 = batch_norm(k)
        self.conv2 = nn.Conv2d(k, k, 3, 1, 1, bias=False)
        self.bn2 = batch_norm(k)
        self.stride, self.new = stride, k - c

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.new)))


class CifarResNet(nn.Module):
    def __init__(self, n=3, w=8, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, w, 3, 1, 1, bias=False)
        self.bn1 = batch_norm(w)
        c = w
        for group in range(3):
            layers = []
            for i in range(n):
                layers.append(CifarBlock(c, w << group, 2 if group and i == 0 else 1))
                c = w << group
            setattr(self, f"layer{group + 1}", nn.Sequential(*layers))
        self.linear = nn.Linear(c, classes)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(F.relu(self.bn1(self.conv1(x))))))
        return self.linear(F.adaptive_avg_pool2d(x, 1).flatten(1))


class WideBlock(nn.Module):
    def __init__(self, c, k, stride):
        super().__init__()
        self.bn1 = batch_norm(c)
        self.conv1 = nn.Conv2d(c, k, 3, stride, 1, bias=False)
        self.bn2 = batch_norm(k)
        self.conv2 = nn.Conv2d(k, k, 3, 1, 1, bias=False)
        self.convShortcut = nn.Conv2d(c, k, 1, stride, bias=False) if c != k else None

    def forward(self, x):
        a = F.relu(self.bn1(x))
        y = self.conv2(F.relu(self.bn2(self.conv1(a))))
        return y + (self.convShortcut(a) if self.convShortcut else x)


class WideGroup(nn.Module):
    def __init__(self, c, k, stride):
        super().__init__()
        self.layer = nn.Sequential(WideBlock(c, k, stride), *(WideBlock(k, k, 1) for _ in range(3)))

    def forward(self, x):
        return self.layer(x)


class WideResNet(nn.Module):
    def __init__(self, w=8, factor=5, classes=10):
        super().__init__()
        self.conv1 = nn.Conv2d(3, w, 3, 1, 1, bias=False)
        self.block1 = WideGroup(w, w * factor, 1)
        self.block2 = WideGroup(w * factor, 2 * w * factor, 2)
        self.block3 = WideGroup(2 * w * factor, 4 * w * factor, 2)
        self.bn1 = batch_norm(4 * w * factor)
        self.fc = nn.Linear(4 * w * factor, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.block3(self.block2(self.block1(self.conv1(x))))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


# ---- the rest --------------------------------------------------------------------------------------------------------

class Layer9(ConvBn):
    """A layer of cifar10-fast: cb, pool, perhaps a residual block, perhaps one more cb."""

    def __init__(self, c, k, pool, residual, extra):
        super().__init__(c, k)
        self.pool = pool
        if residual:
            self.residual = nn.Module()
            self.residual.res1, self.residual.res2 = ConvBn(k, k), ConvBn(k, k)
        if extra:
            self.extra = ConvBn(k, k)

    def forward(self, x):
        x = super().forward(x)
        if self.pool:
            x = F.max_pool2d(x, 2)
        if hasattr(self, "residual"):
            x = x + self.residual.res2(self.residual.res1(x))
        return self.extra(x) if hasattr(self, "extra") else x


class ResNet9(nn.Module):
    def __init__(self, widths, residuals, extras, weight):
        super().__init__()
        c, self.weight, self.names = 3, weight, ("prep", "layer1", "layer2", "layer3")
        for name, k in zip(self.names, widths):
            setattr(self, name, Layer9(c, k, name != "prep", name in residuals, name in extras))
            c = k
        self.linear = nn.Linear(c, 10, bias=False)

    def forward(self, x):
        for name in self.names:
            x = getattr(self, name)(x)
        return self.weight * self.linear(F.adaptive_max_pool2d(x, 1).flatten(1))


class AlexNet(nn.Module):
    def __init__(self, channels=(8, 24, 48, 32, 32)):
        super().__init__()
        c, self.names = 3, ("prep", "layer1", "layer2", "layer3", "layer4")
        for name, k in zip(self.names, channels):
            setattr(self, name, ConvBn(c, k, 2 if name == "prep" else 1))
            c = k
        self.linear = nn.Linear(c, 10, bias=False)

    def forward(self, x):
        for name in self.names:
            x = getattr(self, name)(x)
            if name in ("prep", "layer1", "layer4"):
                x = F.max_pool2d(x, 2)
        return 0.125 * self.linear(F.adaptive_max_pool2d(x, 1).flatten(1))


class AlexNet1(nn.Module):
    def __init__(self, channels=(8, 24, 48, 32, 32), hidden=512):
        super().__init__()
        layers, c = [], 3
        for i, k in enumerate(channels):
            layers += [nn.Conv2d(c, k, 3, 2 if i == 0 else 1, 1), nn.ReLU()]
            if i in (0, 1, 4):
                layers.append(nn.MaxPool2d(2))
            c = k
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(0), nn.Linear(4 * c, hidden), nn.ReLU(), nn.Dropout(0),
                                        nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.classifier(self.features(x).flatten(1))


class Vgg16(nn.Module):
    def __init__(self, norm, w=8, hidden=512):
        super().__init__()
        layers, c = [], 3
        for k in (1, 1, 0, 2, 2, 0, 4, 4, 4, 0, 8, 8, 8, 0, 8, 8, 8, 0):
            if k == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            layers.append(nn.Conv2d(c, k * w, 3, 1, 1))
            c = k * w
            layers += [batch_norm(c), nn.ReLU()] if norm else [nn.ReLU()]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Linear(49 * c, hidden), nn.ReLU(), nn.Dropout(0), nn.Linear(hidden, hidden),
                                        nn.ReLU(), nn.Dropout(0), nn.Linear(hidden, 10))

    def forward(self, x):
        return self.classifier(F.adaptive_avg_pool2d(self.features(x), 7).flatten(1))


class PetraVgg(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        c = 3
        for i, (k, stride) in enumerate(zip((1, 2, 4, 4, 8, 8, 8, 8), (1, 2, 2, 1, 2, 2, 2, 2))):
            setattr(self, f"layer{i + 1}", ConvBn(c, k * w, stride, True))
            c = k * w
        self.fc = nn.Linear(c, 10)

    def forward(self, x):
        for i in range(8):
            x = getattr(self, f"layer{i + 1}")(x)
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


class AllCnn(nn.Module):
    def __init__(self, channels=(8, 8, 8, 16, 16, 16, 16, 16, 10)):
        super().__init__()
        c = 3
        for i, k in enumerate(channels):
            setattr(self, f"conv{i + 1}", nn.Conv2d(c, k, 3, 2 if i in (2, 5) else 1, 0 if i == 6 else 1, bias=False))
            setattr(self, f"bn{i + 1}", batch_norm(k, False))
            c = k

    def forward(self, x):
        for i in range(1, 10):
            x = F.relu(getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(x)))
        return 0.125 * F.adaptive_avg_pool2d(x, 1).flatten(1)


class LeNet5(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(256, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(784, 390), nn.Linear(390, 10)

    def forward(self, x):
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


class Logit(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(784, 10)

    def forward(self, x):
        return self.fc(x.flatten(1))


# Name, images, the model. tests/unit/test_golden_zoo.c has the same table.
CASES = (
    ("resnet9", (8, 3, 16, 16), lambda: ResNet9((8, 24, 16, 40), ("layer2",), ("prep", "layer3"), 0.25)),
    ("resnet18-imagenet", (8, 3, 64, 64), lambda: ResNet((2, 2, 2, 2), pool=(3, 2, 1))),
    ("resnet50", (10, 3, 12, 12), lambda: ResNet((3, 4, 6, 3), bottleneck=True)),
    ("resnet20", (8, 3, 16, 16), CifarResNet),
    ("petra-resnet18", (8, 3, 64, 64), lambda: ResNet((2, 2, 2, 2), bias=True, pool=(2, 2))),
    ("petra-resnet50", (8, 3, 12, 12), lambda: ResNet((3, 4, 6, 3), bottleneck=True, bias=True, early=True)),
    ("petra-vgg", (12, 3, 32, 32), PetraVgg),
    ("vgg16", (5, 3, 32, 32), lambda: Vgg16(False)),
    ("vgg16_bn", (8, 3, 32, 32), lambda: Vgg16(True)),
    ("alexnet", (8, 3, 32, 32), AlexNet),
    ("alexnet1", (8, 3, 32, 32), AlexNet1),
    ("allcnn", (8, 3, 16, 16), AllCnn),
    ("wideresnet28_5", (10, 3, 8, 8), WideResNet),
    ("lenet5", (8, 1, 28, 28), LeNet5),
    ("mlp", (8, 1, 28, 28), Mlp),
    ("logit", (8, 1, 28, 28), Logit),
)


def fill(model):
    """Parameters of make_golden.py: from streams 1000 + t."""
    norms = {id(p) for module in model.modules() if isinstance(module, nn.BatchNorm2d) for p in module.parameters()}
    with torch.no_grad():
        for t, (name, p) in enumerate(model.named_parameters()):
            if id(p) in norms:
                offset, scale = (1.0, 0.2) if name.endswith("weight") else (0.0, 0.2)
            else:
                offset, scale = 0.0, weight_scale(p.shape) if p.dim() > 1 else 0.1
            p.copy_(values(1000 + t, p.shape, offset, scale))
    return model


def step(make, shape, dtype):
    model = fill(make()).to(dtype).train()
    images = values(1, shape, scale=1.7).to(dtype)
    logits = model(images)
    loss = F.cross_entropy(logits, labels(2, shape[0], 10))
    loss.backward()
    model.eval()
    with torch.no_grad():
        return model, loss, logits, model(images)


def digest(t, x):
    x = x.detach().double().flatten()
    return torch.stack([x.norm()] + [(x * values(DIRECTION + 2 * t + i, x.shape)).sum() for i in range(2)])


def running(model):
    return [(name, b) for name, b in model.named_buffers() if not name.endswith("num_batches_tracked")]


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    golden = Golden()
    for case, shape, make in CASES:
        margins.clear()
        model, loss, logits, after = step(make, shape, torch.float64)
        margin = min(margins[:len(margins) // 2], default=1.0)  # the first half is the training pass
        golden.add(case + "/loss", loss.reshape(1))
        golden.add(case + "/logits", logits)
        golden.add(case + "/eval", after)
        for t, (name, p) in enumerate(model.named_parameters()):
            golden.add(f"{case}/grad/{name}", digest(t, p.grad))
        for t, (name, buffer) in enumerate(running(model)):
            golden.add(f"{case}/buffer/{name}", digest(t, buffer))
        single, loss32, logits32, after32 = step(make, shape, torch.float32)
        worst = max(((q.grad.double() - p.grad).norm() / max(p.grad.norm(), 1e-6)).item()
                    for p, q in zip(model.parameters(), single.parameters()))
        print(f"{case}: {sum(p.numel() for p in model.parameters())} parameters; f32 against f64: loss "
              f"{abs(loss32.item() / loss.item() - 1):.1e}, logits {((logits32 - logits).norm() / logits.norm()).item():.1e},"
              f" eval {((after32 - after).norm() / after.norm()).item():.1e}, worst gradient {worst:.1e}; ReLU {margin:.1e}")
    golden.write(os.path.join(directory, "models.nwg"))


if __name__ == "__main__":
    main()
