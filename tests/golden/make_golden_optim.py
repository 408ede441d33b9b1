#!/usr/bin/python3
"""make_golden_optim.py - writes optim.nwg: trajectories of optimizers, for tests to compare with.

Usage: make_golden_optim.py [DIRECTORY]     (default: the directory of this script). Needs PyTorch; the tests do not.

make_golden.py describes the file format and the generated numbers. 200 parameters in five tensors:
    conv 4 x 3 x 3 x 3, gamma 4, beta 4, linear 8 x 10, bias 4
start as 0.5 value(stream 30000), but beta as 0. The gradient of step t (from 0, of 50) is 2 / (1 + t / 8) value(stream
30001 + t), so that AMSGrad's maximum differs from the average, with zeros in two places: element i of all 200 with
i % 10 == 3 while t < 25 (APAM's paper skips what never had a gradient), and the bias while t < 10 (LARS leaves a tensor
without norm alone). The learning rate of step t is lr (1 - t / 100).

"<case>/params" holds the 200 parameters after steps 1, 10 and 50, computed in f64 and rounded once. SGD, Adam, AMSGrad
and gradient clipping are PyTorch's own; LARS, APAM and DGC-SGD are written below from their equations, tensor by tensor
and with other loops than the C code has. tests/unit/test_optim.c repeats the options of CASES.
"""
import math
import os
import sys

import numpy as np
import torch

from make_golden import Golden, values

SHAPES = {"conv": (4, 3, 3, 3), "gamma": (4,), "beta": (4,), "linear": (8, 10), "bias": (4,)}
COUNT, STEPS, KEPT = 200, 50, (1, 10, 50)
FILTERS = {"all": SHAPES, "no-norm-bias": ("conv", "linear"), "no-1d": ("conv", "linear"),
           "no-norm": ("conv", "linear", "bias")}


def split(flat):
    parts, at = {}, 0
    for name, shape in SHAPES.items():
        parts[name] = flat[at:at + math.prod(shape)].reshape(shape)
        at += math.prod(shape)
    return parts


def start():
    flat = values(30000, (COUNT,), scale=0.5)
    split(flat)["beta"][:] = 0
    return flat


def gradient(t):
    flat = values(30001 + t, (COUNT,), scale=2 / (1 + t / 8))
    if t < 25:
        flat[3::10] = 0
    if t < 10:
        split(flat)["bias"][:] = 0
    return flat


def rate(lr, t):
    return lr * (1 - t / 100)


# ---- PyTorch's own ---------------------------------------------------------------------------------------------------

def torch_case(make, lr, weight_decay=0.0, decays="all", clip_norm=None, clip_value=None, scale=1.0):
    """make(groups) is an optimizer over two groups: what decays and what does not."""
    params = {name: torch.nn.Parameter(part.clone()) for name, part in split(start()).items()}
    groups = [{"params": [p for n, p in params.items() if n in FILTERS[decays]], "weight_decay": weight_decay},
              {"params": [p for n, p in params.items() if n not in FILTERS[decays]], "weight_decay": 0.0}]
    optimizer = make([group for group in groups if group["params"]])
    for t in range(STEPS):
        for name, part in split(gradient(t)).items():
            params[name].grad = scale * part
        if clip_norm:
            torch.nn.utils.clip_grad_norm_(params.values(), clip_norm)
        if clip_value:
            torch.nn.utils.clip_grad_value_(params.values(), clip_value)
        for group in optimizer.param_groups:
            group["lr"] = rate(lr, t)
        optimizer.step()
        yield torch.cat([p.detach().flatten() for p in params.values()]).numpy()


def sgd(lr, momentum=0.0, dampening=0.0, nesterov=False, **more):
    return torch_case(lambda groups: torch.optim.SGD(groups, lr, momentum, dampening, nesterov=nesterov), lr, **more)


def adam(lr, amsgrad=False, **more):
    return torch_case(lambda groups: torch.optim.Adam(groups, lr, (0.9, 0.999), 1e-8, amsgrad=amsgrad), lr, **more)


# ---- From the equations ----------------------------------------------------------------------------------------------

class Momentum:
    def __init__(self, momentum, dampening=0.0, nesterov=False):
        self.momentum, self.fresh, self.nesterov, self.buffers = momentum, 1 - dampening, nesterov, {}

    def __call__(self, name, d):
        if name not in self.buffers:
            self.buffers[name] = d
        else:
            self.buffers[name] = self.momentum * self.buffers[name] + self.fresh * d
        return d + self.momentum * self.buffers[name] if self.nesterov else self.buffers[name]


def lars(lr, momentum, nesterov=False, weight_decay=0.0, decays="all", trust=0.02, eps=1e-8, clip=True):
    params = {name: part.numpy().copy() for name, part in split(start()).items()}
    step = Momentum(momentum, nesterov=nesterov)
    for t in range(STEPS):
        now = rate(lr, t)
        for name, part in split(gradient(t)).items():
            p, g, wd = params[name], part.numpy(), weight_decay if name in FILTERS[decays] else 0.0
            p_norm, g_norm = np.linalg.norm(p), np.linalg.norm(g)
            if p_norm != 0 and g_norm != 0:
                ratio = trust * p_norm / (g_norm + wd * p_norm + eps)
                g = (min(ratio / now, 1) if clip else ratio) * (g + wd * p)
            params[name] = p - now * step(name, g)
        yield np.concatenate([p.ravel() for p in params.values()])


def dgc_sgd(lr, momentum, dampening=0.0, nesterov=False, weight_decay=0.0, decays="all"):
    params = {name: part.numpy().copy() for name, part in split(start()).items()}
    step = Momentum(momentum, dampening, nesterov)
    for t in range(STEPS):
        for name, part in split(gradient(t)).items():
            wd = weight_decay if name in FILTERS[decays] else 0.0
            term = step(name, wd * params[name]) if wd and momentum else wd * params[name]
            params[name] = params[name] - rate(lr, t) * (term + part.numpy())
        yield np.concatenate([p.ravel() for p in params.values()])


def moments(weight_decay, beta1=0.9, beta2=0.999):
    """Sends back, for parameters and t, the averages after one more gradient."""
    m, v, u = np.zeros(COUNT), np.zeros(COUNT), np.zeros(COUNT)
    w, t = yield
    while True:
        g = gradient(t).numpy() + weight_decay * w
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        u = np.maximum(u, v)
        w, t = yield m, v, u


def apam(lr, amsgrad=True, weight_decay=0.0):
    w, state = start().numpy(), moments(weight_decay)
    next(state)
    for t in range(STEPS):
        m, v, u = state.send((w, t))
        step = rate(lr, t) * math.sqrt(1 - 0.999**(t + 1)) / (1 - 0.9**(t + 1))
        w = w - step * m / (np.sqrt(u if amsgrad else v) + 1e-8)
        yield w


def apam_paper(lr, box=None):
    w, state = start().numpy(), moments(0.0)
    next(state)
    for t in range(STEPS):
        m, _, u = state.send((w, t))
        moved = u > 0
        w = w.copy()
        w[moved] -= rate(lr, t) * m[moved] / np.sqrt(u[moved])
        if box:
            w = np.clip(w, *box)
        yield w


CASES = {
    "sgd": lambda: sgd(0.1),
    "sgd-decay": lambda: sgd(0.1, weight_decay=0.03),
    "sgd-momentum": lambda: sgd(0.05, 0.9, weight_decay=5e-4),
    "sgd-dampening": lambda: sgd(0.05, 0.9, 0.3, weight_decay=0.01),
    "sgd-nesterov": lambda: sgd(0.05, 0.9, nesterov=True, weight_decay=0.02, decays="no-norm-bias"),
    "sgd-no-norm": lambda: sgd(0.05, 0.9, weight_decay=0.05, decays="no-norm"),
    "sgd-clip-norm": lambda: sgd(0.1, 0.9, weight_decay=0.01, clip_norm=3.0),
    "sgd-clip-value": lambda: sgd(0.1, weight_decay=0.01, clip_value=0.25, scale=0.5),
    "adam": lambda: adam(0.01),
    "adam-decay": lambda: adam(0.01, weight_decay=0.02, decays="no-1d"),
    "amsgrad": lambda: adam(0.01, amsgrad=True, weight_decay=0.01),
    "lars": lambda: lars(0.1, 0.9, weight_decay=5e-4),
    "lars-nesterov": lambda: lars(0.01, 0.9, nesterov=True, weight_decay=0.01, decays="no-norm-bias"),
    "lars-unclipped": lambda: lars(1.0, 0.5, weight_decay=0.01, trust=0.1, eps=1e-3, clip=False),
    "apam": lambda: apam(0.01, weight_decay=0.01),
    "apam-no-amsgrad": lambda: apam(0.01, amsgrad=False),
    "apam-paper": lambda: apam_paper(0.005),
    "apam-paper-box": lambda: apam_paper(0.01, box=(-0.4, 0.5)),
    "dgc-sgd": lambda: dgc_sgd(0.02, 0.9, weight_decay=0.05, decays="no-norm"),
    "dgc-sgd-dampening": lambda: dgc_sgd(0.02, 0.9, dampening=0.5, weight_decay=0.05),
    "dgc-sgd-nesterov": lambda: dgc_sgd(0.02, 0.9, nesterov=True, weight_decay=0.05),
    "dgc-sgd-plain": lambda: dgc_sgd(0.02, 0.0, weight_decay=0.05),
}


def main():
    directory = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
    golden = Golden()
    for name, run in CASES.items():
        kept = [params for step, params in enumerate(run(), 1) if step in KEPT]
        golden.add(f"{name}/params", np.stack(kept))
    golden.write(os.path.join(directory, "optim.nwg"))


if __name__ == "__main__":
    main()
