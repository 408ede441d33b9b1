#!/usr/bin/python3
"""make_golden.py - writes layers.nwg, resnet9.nwg and resnet18.nwg: what PyTorch computes, for tests to compare with.

Usage: make_golden.py [DIRECTORY]     (default: the directory of this script). Needs PyTorch; the tests do not.

File format NWG1, little endian:
    4 bytes "NWG1", u32 number of entries, then for each entry:
    u16 length of the name, the name, u8 number of dimensions, that many u32 dimensions, the values as f32.

Generated numbers. Weights and images are not stored but made from integers, identically here and in support/golden.c:
    mix(z)               z ^= z >> 30; z *= 0xBF58476D1CE4E5B9; z ^= z >> 27; z *= 0x94D049BB133111EB; z ^= z >> 31
    bits(stream, index)  mix(stream * 0x9E3779B97F4A7C15 + index), all modulo 2^64
    value(stream, index) (bits >> 40) / 2^23 - 1, exact in f32, in [-1, 1)
    label(stream, index) (bits >> 33) % classes
Element i of a tensor (C order) is offset + scale * value(stream, i), computed in f64 and rounded once to f32:
    conv and linear weight  scale sqrt(3 / fan_in), fan_in = product of all dimensions but the first
    bias 0.1 value          batch norm: weight 1 + 0.2 value, bias 0.2 value
    images 1.7 value
Streams of the model files: parameter t, in the order of parameters(), 1000 + t; images of the single step 1, labels 2;
images of step t of 20 (from 0) 100 + t, labels 200 + t. "hash/stream", "hash/index", "hash/value", "hash/label" (10
classes) hold samples of all this, so that a disagreement is found before anything is computed with it.

Precision. Everything is computed in f64 from the f32 inputs and rounded once, so that a comparison shows the error of
the tested side only. The exception is "losses20", which is PyTorch's own f32.

layers.nwg. "<case>/shape" holds integers, in this order:
    conv*    N C H W K R S stride pad bias?          x w [bias] y dy dx dw [dbias]
    norm*    N C H W train? relu? residual?          x [residual] gamma beta running_mean running_var y, and if train?
                                                     mean rstd new_running_mean new_running_var dy dx dgamma dbeta
                                                     [dresidual]
    maxpool* avgpool*  N C H W kernel stride pad     x y dy dx, for maxpool also index (h W + w in the plane)
    globalpool         N C H W                       x y dy dx
    linear*  N C K bias?                             x w [bias] y dy dx dw [dbias]
    loss*    N classes mean? smoothing*1000          x (logits) labels y (the loss) dx
    sgd*     count steps nesterov?                   options (lr momentum dampening weight_decay) param, grad [steps,
                                                     count], new_param, [buffer] (both after the steps)

resnet9.nwg, resnet18.nwg: widths 8 16 32 64, 10 classes, images 3 x 32 x 32.
    labels logits loss       of one batch of 8, the loss being the mean cross entropy
    grad/<parameter>         its gradients
    buffer/<name>            running_mean and running_var after that one training forward (before: 0 and 1)
    check/params             the first and the last element of each parameter, [parameters, 2]
    check/images             the first four elements of the images
    sgd                      lr, momentum, weight decay of what follows (with Nesterov, without dampening)
    losses20                 the losses of 20 SGD steps on fresh batches of 16, each taken before its update, in f32
    fixed20                  the same, but every step on the batch of step 0: this loss falls, while random labels of
                             images never seen before cannot be learnt
    losses20_double, fixed20_double      both in f64, from the same initial weights
The learning rates are small for a reason. A ReLU whose input is zero up to rounding may fall to either side, and then
its gradient is there or not: the runs part, and a large rate makes 1e-7 grow to 1e-2 in 20 steps. With these, moving
the last bits of all weights at random in every step changed no loss by more than 3e-5 of its value (4 tries).
"""
import math
import os
import struct
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

GOLDEN_GAMMA = 0x9E3779B97F4A7C15
WIDTHS = (8, 16, 32, 64)
CLASSES = 10
MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4


# ---- Generated numbers -----------------------------------------------------------------------------------------------

def bits(stream, count):
    """The hash of indices 0..count-1 of a stream; numpy's unsigned arithmetic wraps as C's does."""
    start = np.uint64((stream * GOLDEN_GAMMA) % 2**64)
    z = start + np.arange(count, dtype=np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def values(stream, shape, offset=0.0, scale=1.0):
    """f32 numbers offset + scale * value, handed out as f64: every computation starts from numbers that f32 holds."""
    unit = (bits(stream, math.prod(shape)) >> np.uint64(40)).astype(np.float64) / 2**23 - 1.0
    return torch.from_numpy((offset + scale * unit).astype(np.float32).astype(np.float64).reshape(shape))


def labels(stream, count, classes):
    return torch.from_numpy(((bits(stream, count) >> np.uint64(33)) % np.uint64(classes)).astype(np.int64))


def weight_scale(shape):
    return math.sqrt(3.0 / math.prod(shape[1:]))


class Streams:
    """Hands out streams to the tensors of one layer case, so that no two of them are alike."""

    def __init__(self, case):
        self.next = 100000 + 100 * case

    def __call__(self, shape, offset=0.0, scale=1.0):
        self.next += 1
        return values(self.next, shape, offset, scale)


# ---- Files -----------------------------------------------------------------------------------------------------------

class Golden:
    def __init__(self):
        self.entries = {}
        pairs = [(1, 0), (1, 1), (1, 24575), (2, 7), (119, 3071), (219, 15), (1000, 0), (1061, 9), (123456, 16777215)]
        streams = [bits(stream, index + 1)[index] for stream, index in pairs]
        self.add("hash/stream", [stream for stream, _ in pairs])
        self.add("hash/index", [index for _, index in pairs])
        self.add("hash/value", [(int(b) >> 40) / 2**23 - 1.0 for b in streams])
        self.add("hash/label", [(int(b) >> 33) % CLASSES for b in streams])

    def add(self, name, tensor):
        if isinstance(tensor, torch.Tensor):
            tensor = tensor.detach().double().numpy()
        array = np.array(tensor, dtype=np.float64).astype("<f4")
        assert name not in self.entries and np.isfinite(array).all(), name
        self.entries[name] = array

    def add_case(self, case, **tensors):
        for name, tensor in tensors.items():
            if tensor is not None:
                self.add(f"{case}/{name}", tensor)

    def write(self, path):
        with open(path, "wb") as file:
            file.write(b"NWG1" + struct.pack("<I", len(self.entries)))
            for name, array in self.entries.items():
                text = name.encode()
                file.write(struct.pack("<H", len(text)) + text + struct.pack("<B", array.ndim))
                file.write(struct.pack(f"<{array.ndim}I", *array.shape) + array.tobytes())
        print(f"{os.path.basename(path)}: {len(self.entries)} entries, {os.path.getsize(path)} bytes")


# ---- Layers ----------------------------------------------------------------------------------------------------------

def gradients(y, dy, *inputs):
    """The gradients of sum(dy . y); None stays None."""
    present = [tensor for tensor in inputs if tensor is not None]
    found = iter(torch.autograd.grad(y, present, dy))
    return [next(found) if tensor is not None else None for tensor in inputs]


def leaf(tensor):
    return tensor.requires_grad_() if tensor is not None else None


def conv_case(golden, fresh, name, n, c, h, w, k, r, stride, pad, bias):
    x = leaf(fresh((n, c, h, w), scale=1.7))
    weight = leaf(fresh((k, c, r, r), scale=weight_scale((k, c, r, r))))
    b = leaf(fresh((k,), scale=0.1)) if bias else None
    y = F.conv2d(x, weight, b, stride, pad)
    dy = fresh(y.shape)
    dx, dw, dbias = gradients(y, dy, x, weight, b)
    golden.add_case(name, shape=[n, c, h, w, k, r, r, stride, pad, bias], x=x, w=weight, bias=b, y=y, dy=dy, dx=dx,
                    dw=dw, dbias=dbias)


def norm_case(golden, fresh, name, n, c, h, w, train, relu, residual):
    # Channels get their own offset, so that subtracting the mean matters.
    x = leaf((fresh((n, c, h, w), scale=1.7) + fresh((1, c, 1, 1), scale=2.0)).float().double())
    res = leaf(fresh((n, c, h, w))) if residual else None
    gamma, beta = leaf(fresh((c,), 1.0, 0.2)), leaf(fresh((c,), scale=0.2))
    mean, var = fresh((c,), scale=0.5), fresh((c,), 1.0, 0.5)
    new_mean, new_var = mean.clone(), var.clone()
    y = F.batch_norm(x, new_mean, new_var, gamma, beta, training=bool(train), momentum=0.1, eps=1e-5)
    y = y + res if residual else y
    y = F.relu(y) if relu else y
    golden.add_case(name, shape=[n, c, h, w, train, relu, residual], x=x, residual=res, gamma=gamma, beta=beta,
                    running_mean=mean, running_var=var, y=y)
    if train:
        dy = fresh(y.shape)
        dx, dgamma, dbeta, dresidual = gradients(y, dy, x, gamma, beta, res)
        golden.add_case(name, mean=x.mean((0, 2, 3)), rstd=(x.var((0, 2, 3), unbiased=False) + 1e-5).rsqrt(),
                        new_running_mean=new_mean, new_running_var=new_var, dy=dy, dx=dx, dgamma=dgamma, dbeta=dbeta,
                        dresidual=dresidual)


def pool_case(golden, fresh, name, n, c, h, w, kernel, stride, pad, levels=None):
    x = fresh((n, c, h, w), scale=1.7)
    if levels:   # few distinct values: ties, and their order, decide where the gradient goes
        x = torch.round(x * levels)
    x = leaf(x)
    index = None
    if name.startswith("maxpool"):
        y, index = F.max_pool2d(x, kernel, stride, pad, return_indices=True)
    else:
        y = F.avg_pool2d(x, kernel, stride, pad)
    dy = fresh(y.shape)
    dx, = gradients(y, dy, x)
    golden.add_case(name, shape=[n, c, h, w, kernel, stride, pad], x=x, y=y, index=index, dy=dy, dx=dx)


def linear_case(golden, fresh, name, n, c, k, bias):
    x, weight = leaf(fresh((n, c), scale=1.7)), leaf(fresh((k, c), scale=weight_scale((k, c))))
    b = leaf(fresh((k,), scale=0.1)) if bias else None
    y = F.linear(x, weight, b)
    dy = fresh(y.shape)
    dx, dw, dbias = gradients(y, dy, x, weight, b)
    golden.add_case(name, shape=[n, c, k, bias], x=x, w=weight, bias=b, y=y, dy=dy, dx=dx, dw=dw, dbias=dbias)


def loss_case(golden, fresh, name, n, classes, mean, smoothing_thousandths):
    x = leaf(fresh((n, classes), scale=5.0))
    target = labels(fresh.next + 50, n, classes)
    y = F.cross_entropy(x, target, reduction="mean" if mean else "sum", label_smoothing=smoothing_thousandths / 1000)
    dx, = torch.autograd.grad(y, [x])
    golden.add_case(name, shape=[n, classes, mean, smoothing_thousandths], x=x, labels=target, y=y.reshape(1), dx=dx)


def sgd_case(golden, fresh, name, lr, momentum, dampening, weight_decay, nesterov):
    count, steps = 37, 3
    start, grad = fresh((count,)), fresh((steps, count))
    param = nn.Parameter(start.clone())
    optimizer = torch.optim.SGD([param], lr, momentum, dampening, weight_decay, nesterov)
    for step in range(steps):
        param.grad = grad[step]
        optimizer.step()
    golden.add_case(name, shape=[count, steps, nesterov], options=[lr, momentum, dampening, weight_decay], param=start,
                    grad=grad, new_param=param, buffer=optimizer.state[param].get("momentum_buffer"))


LAYER_CASES = (
    (conv_case, "conv3x3", 5, 16, 4, 5, 17, 3, 1, 1, 0),
    (conv_case, "conv3x3s2", 5, 17, 4, 5, 32, 3, 2, 1, 0),
    (conv_case, "conv3x3c3", 5, 3, 6, 6, 16, 3, 1, 1, 1),
    (conv_case, "conv3x3p0", 5, 16, 4, 4, 16, 3, 1, 0, 1),
    (conv_case, "conv1x1", 5, 32, 3, 4, 16, 1, 1, 0, 1),
    (conv_case, "conv1x1s2", 5, 16, 5, 6, 32, 1, 2, 0, 0),
    (conv_case, "conv5x5", 5, 3, 5, 6, 16, 5, 1, 2, 1),
    (conv_case, "conv5x5c1s2", 5, 1, 7, 8, 17, 5, 2, 2, 0),
    (conv_case, "conv7x7s2", 5, 3, 9, 8, 16, 7, 2, 3, 0),
    (conv_case, "conv3x3b33", 33, 16, 2, 3, 16, 3, 1, 1, 0),
    (conv_case, "conv3x3s2b33", 33, 16, 3, 2, 17, 3, 2, 1, 1),
    (conv_case, "conv1x1s2b33", 33, 17, 3, 2, 32, 1, 2, 0, 0),
    (norm_case, "norm", 5, 17, 3, 4, 1, 0, 0),
    (norm_case, "norm_relu", 5, 16, 3, 4, 1, 1, 0),
    (norm_case, "norm_residual", 5, 17, 3, 4, 1, 0, 1),
    (norm_case, "norm_residual_relu", 5, 17, 3, 4, 1, 1, 1),
    (norm_case, "norm_relu_b33", 33, 16, 2, 2, 1, 1, 0),
    (norm_case, "norm_eval", 5, 17, 3, 4, 0, 0, 0),
    (norm_case, "norm_eval_relu_b33", 33, 3, 2, 2, 0, 1, 0),
    (norm_case, "norm_eval_residual_relu", 5, 32, 2, 3, 0, 1, 1),
    (pool_case, "maxpool2", 5, 17, 4, 6, 2, 2, 0),
    (pool_case, "maxpool2odd_b33", 33, 3, 3, 5, 2, 2, 0),
    (pool_case, "maxpool3s2p1", 5, 16, 5, 6, 3, 2, 1),
    (pool_case, "maxpool4", 5, 16, 4, 4, 4, 4, 0),
    (pool_case, "maxpool3s2p1ties", 5, 16, 5, 6, 3, 2, 1, 1),
    (pool_case, "avgpool2", 5, 17, 4, 6, 2, 2, 0),
    (pool_case, "avgpool3s2p1", 5, 16, 5, 6, 3, 2, 1),
    (linear_case, "linear", 5, 17, 10, 1),
    (linear_case, "linear_b33", 33, 32, 10, 0),
    (loss_case, "loss_mean", 33, 10, 1, 0),
    (loss_case, "loss_sum", 5, 17, 0, 0),
    (loss_case, "loss_smooth_mean", 5, 10, 1, 100),
    (loss_case, "loss_smooth_sum", 33, 17, 0, 100),
    # Powers of two: these options are the same number in f32 and f64.
    (sgd_case, "sgd", 0.125, 0.0, 0.0, 0.015625, 0),
    (sgd_case, "sgd_dampening", 0.125, 0.875, 0.25, 0.015625, 0),
    (sgd_case, "sgd_nesterov", 0.125, 0.875, 0.0, 0.015625, 1),
)


def make_layers(path):
    golden = Golden()
    for number, (function, *arguments) in enumerate(LAYER_CASES):
        function(golden, Streams(number), *arguments)
    fresh = Streams(len(LAYER_CASES))
    x = leaf(fresh((5, 17, 3, 4), scale=1.7))
    y = F.adaptive_avg_pool2d(x, 1).flatten(1)
    dy = fresh(y.shape)
    golden.add_case("globalpool", shape=[5, 17, 3, 4], x=x, y=y, dy=dy, dx=gradients(y, dy, x)[0])
    golden.write(path)


# ---- Models ----------------------------------------------------------------------------------------------------------

class ConvBn(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.conv = nn.Conv2d(c, k, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(k)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Residual(nn.Module):
    """x + branch(x): the branch ends in a ReLU, the sum does not."""

    def __init__(self, c):
        super().__init__()
        self.res1 = ConvBn(c, c)
        self.res2 = ConvBn(c, c)

    def forward(self, x):
        return x + self.res2(self.res1(x))


class PoolLayer(ConvBn):
    def __init__(self, c, k, residual):
        super().__init__(c, k)
        self.residual = Residual(k) if residual else nn.Identity()

    def forward(self, x):
        return self.residual(F.max_pool2d(super().forward(x), 2))


class ResNet9(nn.Module):
    def __init__(self):
        super().__init__()
        a, b, c, d = WIDTHS
        self.prep = ConvBn(3, a)
        self.layer1 = PoolLayer(a, b, True)
        self.layer2 = PoolLayer(b, c, False)
        self.layer3 = PoolLayer(c, d, True)
        self.linear = nn.Linear(d, CLASSES, bias=False)

    def forward(self, x):
        x = self.layer3(self.layer2(self.layer1(self.prep(x))))
        return 0.125 * self.linear(F.max_pool2d(x, 4).flatten(1))


class BasicBlock(nn.Module):
    def __init__(self, c, k, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(c, k, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(k)
        self.conv2 = nn.Conv2d(k, k, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(k)
        self.downsample = None
        if stride != 1 or c != k:
            self.downsample = nn.Sequential(nn.Conv2d(c, k, 1, stride, bias=False), nn.BatchNorm2d(k))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        a, b, c, d = WIDTHS
        self.conv1 = nn.Conv2d(3, a, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(a)
        self.layer1 = nn.Sequential(BasicBlock(a, a, 1), BasicBlock(a, a, 1))
        self.layer2 = nn.Sequential(BasicBlock(a, b, 2), BasicBlock(b, b, 1))
        self.layer3 = nn.Sequential(BasicBlock(b, c, 2), BasicBlock(c, c, 1))
        self.layer4 = nn.Sequential(BasicBlock(c, d, 2), BasicBlock(d, d, 1))
        self.fc = nn.Linear(d, CLASSES)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def make_model(kind, dtype):
    model = kind()
    norms = {id(p) for module in model.modules() if isinstance(module, nn.BatchNorm2d) for p in module.parameters()}
    with torch.no_grad():
        for t, (name, p) in enumerate(model.named_parameters()):
            if id(p) in norms:
                offset, scale = (1.0, 0.2) if name.endswith("weight") else (0.0, 0.2)
            else:
                offset, scale = 0.0, weight_scale(p.shape) if p.dim() > 1 else 0.1
            p.copy_(values(1000 + t, p.shape, offset, scale))
    return model.to(dtype).train()


def distance(got, want):
    """Relative, in the 2-norm."""
    return ((got.double() - want).norm() / want.norm()).item()


def one_step(kind, dtype):
    """The model after one forward and backward of a batch of 8, its logits and loss."""
    model = make_model(kind, dtype)
    logits = model(values(1, (8, 3, 32, 32), scale=1.7).to(dtype))
    loss = F.cross_entropy(logits, labels(2, 8, CLASSES))
    loss.backward()
    return model, logits, loss


def losses20(kind, dtype, learning_rate, fixed, ulps=None):
    """The losses of 20 steps. With a generator in ulps, every step first moves each weight by -1, 0 or 1 unit in the
    last place: runs that differ in rounding only."""
    model = make_model(kind, dtype)
    optimizer = torch.optim.SGD(model.parameters(), learning_rate, MOMENTUM, 0.0, WEIGHT_DECAY, True)
    losses = []
    for step in range(20):
        if ulps:
            with torch.no_grad():
                for p in model.parameters():
                    p.mul_(1.0 + (torch.randint(0, 3, p.shape, generator=ulps) - 1) * 2.0**-23)
        batch = 0 if fixed else step
        images = values(100 + batch, (16, 3, 32, 32), scale=1.7).to(dtype)
        loss = F.cross_entropy(model(images), labels(200 + batch, 16, CLASSES))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def make_resnet(kind, learning_rate, path):
    golden = Golden()
    initial = [p.detach().flatten() for p in make_model(kind, torch.float64).parameters()]
    golden.add("check/params", torch.stack([p[[0, -1]] for p in initial]))
    golden.add("check/images", values(1, (4,), scale=1.7))
    golden.add("labels", labels(2, 8, CLASSES))
    model, logits, loss = one_step(kind, torch.float64)
    golden.add("loss", loss.reshape(1))
    golden.add("logits", logits)
    for name, p in model.named_parameters():
        golden.add("grad/" + name, p.grad)
    for name, buffer in model.named_buffers():
        if not name.endswith("num_batches_tracked"):
            golden.add("buffer/" + name, buffer)
    golden.add("sgd", [learning_rate, MOMENTUM, WEIGHT_DECAY])
    runs = {}
    for name, fixed in (("losses20", False), ("fixed20", True)):
        single, double = (losses20(kind, dtype, learning_rate, fixed) for dtype in (torch.float32, torch.float64))
        golden.add(name, single)
        golden.add(name + "_double", double)
        runs[name] = fixed, single, double
    golden.write(path)

    # How far f32 is from f64 in PyTorch itself: what a tolerance must allow.
    model32, logits32, loss32 = one_step(kind, torch.float32)
    worst = max(distance(p32.grad, p.grad) for p32, p in zip(model32.parameters(), model.parameters()))
    print(f"  {len(initial)} parameters, {sum(p.numel() for p in initial)} elements")
    print(f"  f32 against f64, relative: loss {abs(loss32.item() / loss.item() - 1):.1e}, logits "
          f"{distance(logits32, logits):.1e}, worst gradient {worst:.1e}")
    for name, (fixed, single, double) in runs.items():
        moved = [losses20(kind, torch.float32, learning_rate, fixed, torch.Generator().manual_seed(seed))
                 for seed in range(4)]
        print(f"  {name}: worst of 20 {np.abs(single / double - 1).max():.1e}, with last bits moved "
              f"{np.abs(np.array(moved) / double - 1).max():.1e}:", " ".join(f"{value:.3f}" for value in double))


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    make_layers(os.path.join(directory, "layers.nwg"))
    make_resnet(ResNet9, 1e-3, os.path.join(directory, "resnet9.nwg"))
    make_resnet(ResNet18, 5e-5, os.path.join(directory, "resnet18.nwg"))


if __name__ == "__main__":
    main()
