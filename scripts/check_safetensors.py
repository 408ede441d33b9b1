#!/usr/bin/python3
"""Our checkpoints in PyTorch, and PyTorch's weights for us.

  check_safetensors.py CHECKPOINT MODEL [--equals FILE] [--probe FILE]
      CHECKPOINT is a run, a checkpoint's directory or a .safetensors file. Checks the format by the book, every hash of the
      manifest, and that the tensors load into MODEL with load_state_dict(strict=True).
      --equals FILE   and that all tensors equal those of that file, bit for bit
      --probe FILE    and that MODEL gives the `logits` of that file for its `images`
  check_safetensors.py --write FILE MODEL [--width W] [--classes N] [--seed S] [--type F32|F64|F16|BF16]
      writes fresh weights of PyTorch, batch norm's statistics made uneven.

MODEL: resnet9, resnet18, resnet34, resnet50, resnet101 or resnet152. Width, classes and stem are read off the tensors.
Needs python3-torch and python3-numpy; exit code 77 where they are missing, 1 where something is wrong.
"""
import argparse
import hashlib
import json
import os
import re
import struct
import sys

try:
    import numpy as np
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError as error:
    print("skipped: %s (apt-get install python3-torch python3-numpy)" % error)
    sys.exit(77)

TYPES = {"F32": torch.float32, "F64": torch.float64, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
         "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
NAMES = {dtype: name for name, dtype in TYPES.items()}


def require(condition, sentence, *values):
    if not condition:
        print("FAILED: " + sentence % values)
        sys.exit(1)


# ---- the format, written down a second time on purpose -----------------------------------------------------------------

def read_safetensors(path):
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    require((8 + length) % 8 == 0, "%s: the data begin at byte %d, no multiple of 8", path, 8 + length)
    require(data[8:9] == b"{", "%s: the header does not begin with {", path)
    header = json.loads(data[8:8 + length].decode("utf-8"))
    notes = header.pop("__metadata__", {})
    require(all(isinstance(v, str) for v in notes.values()), "%s: __metadata__ must map text to text", path)
    at, tensors = 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        dtype, count = TYPES[entry["dtype"]], int(np.prod(entry["shape"], dtype=np.int64))
        width = torch.empty(0, dtype=dtype).element_size()
        require(begin == at, "%s: %s begins at %d, not at %d", path, name, begin, at)
        require(end - begin == width * count, "%s: %s has %d bytes for %d elements", path, name, end - begin, count)
        require(begin % width == 0, "%s: %s is not aligned to its %d bytes", path, name, width)
        raw = bytearray(data[8 + length + begin:8 + length + end])
        flat = torch.frombuffer(raw, dtype=dtype) if count else torch.empty(0, dtype=dtype)
        tensors[name] = flat.reshape(entry["shape"])
        at = end
    require(8 + length + at == len(data), "%s: %d bytes after the last tensor", path, len(data) - 8 - length - at)
    return tensors


def write_safetensors(path, tensors):
    header, pieces, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, t in sorted(tensors.items(), key=lambda item: -item[1].element_size()):
        raw = t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(raw)]}
        pieces.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(pieces))


def check_manifest(directory):
    path = os.path.join(directory, "manifest.json")
    with open(path, "rb") as file:
        text = file.read()
    manifest = json.loads(text)
    require(manifest["format"] == "nowait-checkpoint" and manifest["version"] == 3, "%s: unknown format", path)
    own = manifest["sha256"].encode()
    require(text.count(own) == 1 and hashlib.sha256(text.replace(own, b"0" * 64)).hexdigest().encode() == own,
            "%s: its own hash is wrong", path)
    for name, entry in manifest["files"].items():
        with open(os.path.join(directory, name), "rb") as file:
            content = file.read()
        require(len(content) == entry["bytes"], "%s: %s has %d bytes", path, name, len(content))
        require(hashlib.sha256(content).hexdigest() == entry["sha256"], "%s: the hash of %s is wrong", path, name)
    return manifest


# ---- models with torchvision's names -----------------------------------------------------------------------------------

class Basic(nn.Module):
    expansion = 1

    def __init__(self, c, w, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, w, 3, stride, 1, bias=False), nn.BatchNorm2d(w)
        self.conv2, self.bn2 = nn.Conv2d(w, w, 3, 1, 1, bias=False), nn.BatchNorm2d(w)
        if stride != 1 or c != w:
            self.downsample = nn.Sequential(nn.Conv2d(c, w, 1, stride, bias=False), nn.BatchNorm2d(w))

    def branch(self, x):
        return self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))

    def forward(self, x):
        return F.relu(self.branch(x) + (self.downsample(x) if hasattr(self, "downsample") else x))


class Bottleneck(Basic):
    expansion = 4

    def __init__(self, c, w, stride):
        nn.Module.__init__(self)
        self.conv1, self.bn1 = nn.Conv2d(c, w, 1, bias=False), nn.BatchNorm2d(w)
        self.conv2, self.bn2 = nn.Conv2d(w, w, 3, stride, 1, bias=False), nn.BatchNorm2d(w)
        self.conv3, self.bn3 = nn.Conv2d(w, 4 * w, 1, bias=False), nn.BatchNorm2d(4 * w)
        if stride != 1 or c != 4 * w:
            self.downsample = nn.Sequential(nn.Conv2d(c, 4 * w, 1, stride, bias=False), nn.BatchNorm2d(4 * w))

    def branch(self, x):
        return self.bn3(self.conv3(F.relu(self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x))))))))


class ResNet(nn.Module):
    def __init__(self, block, counts, width, classes, stem):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, stem, 2 if stem == 7 else 1, stem // 2, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1) if stem == 7 else nn.Identity()
        c = width
        for group, count in enumerate(counts):
            blocks, w = [], width << group
            for i in range(count):
                blocks.append(block(c, w, 2 if group and not i else 1))
                c = w * block.expansion
            setattr(self, "layer%d" % (group + 1), nn.Sequential(*blocks))
        self.fc = nn.Linear(c, classes)

    def forward(self, x):
        x = self.pool(F.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


class ConvNorm(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(c, k, 3, 1, 1, bias=False), nn.BatchNorm2d(k)

    def forward(self, x):
        return F.relu(self.bn(self.conv(x)))


class Residual9(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.res1, self.res2 = ConvNorm(c, c), ConvNorm(c, c)

    def forward(self, x):
        return x + self.res2(self.res1(x))


class Layer9(ConvNorm):
    def __init__(self, c, k, residual):
        super().__init__(c, k)
        if residual:
            self.residual = Residual9(k)

    def forward(self, x):
        x = F.max_pool2d(super().forward(x), 2)
        return self.residual(x) if hasattr(self, "residual") else x


class ResNet9(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.prep = ConvNorm(3, width)
        self.layer1, self.layer2 = Layer9(width, 2 * width, True), Layer9(2 * width, 4 * width, False)
        self.layer3, self.linear = Layer9(4 * width, 8 * width, True), nn.Linear(8 * width, classes, bias=False)

    def forward(self, x):
        return 0.125 * self.linear(self.layer3(self.layer2(self.layer1(self.prep(x)))).amax((2, 3)))


DEPTHS = {"resnet18": (Basic, (2, 2, 2, 2)), "resnet34": (Basic, (3, 4, 6, 3)), "resnet50": (Bottleneck, (3, 4, 6, 3)),
          "resnet101": (Bottleneck, (3, 4, 23, 3)), "resnet152": (Bottleneck, (3, 8, 36, 3))}


def make_model(name, width, classes, stem):
    require(name == "resnet9" or name in DEPTHS, "no model '%s' here; there are resnet9, %s", name, ", ".join(DEPTHS))
    if name == "resnet9":
        return ResNet9(width, classes)
    return ResNet(*DEPTHS[name], width, classes, stem)


def model_for(name, tensors):
    """The model of that name with the width, classes and stem that the tensors have."""
    first, last = ("prep.conv.weight", "linear.weight") if name == "resnet9" else ("conv1.weight", "fc.weight")
    require(first in tensors and last in tensors, "no %s or no %s: these are no weights of %s", first, last, name)
    return make_model(name, tensors[first].shape[0], tensors[last].shape[0], tensors[first].shape[2])


# ---- the two ways ------------------------------------------------------------------------------------------------------

def newest(path):
    """The checkpoint's directory, or the file, that `path` means."""
    if os.path.isfile(path) or os.path.exists(os.path.join(path, "manifest.json")):
        return path
    inner = os.path.join(path, "checkpoints")
    inner = inner if os.path.isdir(inner) else path
    steps = [int(n) for n in os.listdir(inner) if re.fullmatch("0|[1-9][0-9]*", n)] if os.path.isdir(inner) else []
    require(steps, "%s holds no checkpoint", path)
    return os.path.join(inner, str(max(steps)))


def check(args):
    path, manifest = newest(args.checkpoint), None
    if os.path.isdir(path):
        manifest = check_manifest(path)
        require(manifest["model"] == args.model, "%s is of model %s", path, manifest["model"])
        path = os.path.join(path, "model.safetensors")
    tensors = read_safetensors(path)
    model = model_for(args.model, tensors)
    try:
        model.load_state_dict(tensors, strict=True)
    except RuntimeError as error:
        require(False, "%s does not load: %s", path, error)
    for name, value in model.state_dict().items():
        require(torch.isfinite(value.float()).all(), "%s: %s is not finite", path, name)
    parameters = sum(p.numel() for p in model.parameters())
    if manifest:
        digest = hashlib.sha256()
        for p in model.parameters():  # in PyTorch's order of modules
            digest.update(p.detach().numpy().tobytes())
        require(digest.hexdigest() == manifest["weights_sha256"], "weights_sha256 is not that of the parameters")
    if args.equals:
        other = read_safetensors(args.equals)
        require(set(other) == set(tensors), "names differ: %s", sorted(set(other) ^ set(tensors))[:3])
        for name, value in other.items():
            same = value.float().numpy().tobytes() == tensors[name].float().numpy().tobytes()
            require(same, "%s differs from the one in %s", name, args.equals)
    if args.probe:
        probe = read_safetensors(args.probe)
        with torch.no_grad():
            logits = model.eval()(probe["images"])
        error = ((logits - probe["logits"]).abs().max() / probe["logits"].abs().max()).item()
        require(error < 1e-4, "logits differ by %g", error)
    print("%s: %d tensors, %d parameters of %s load in PyTorch" % (path, len(tensors), parameters, args.model))


def write(args):
    torch.manual_seed(args.seed)
    model = make_model(args.model, args.width, args.classes, 3)
    tensors = {}
    for name, value in model.state_dict().items():
        if name.endswith("running_mean"):
            value = torch.randn_like(value)
        if name.endswith("running_var"):
            value = torch.rand_like(value) + 0.5
        if name.endswith("num_batches_tracked"):
            value = torch.tensor(17)
        tensors[name] = value.to(TYPES[args.type]) if value.is_floating_point() else value
    write_safetensors(args.write, tensors)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", metavar="FILE")
    parser.add_argument("--equals", metavar="FILE")
    parser.add_argument("--probe", metavar="FILE")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--type", choices=("F32", "F64", "F16", "BF16"), default="F32")
    parser.add_argument("names", nargs="+", metavar="CHECKPOINT MODEL")
    args = parser.parse_args()
    if len(args.names) != (1 if args.write else 2):
        parser.error("give CHECKPOINT and MODEL, or --write FILE and MODEL")
    args.checkpoint, args.model = args.names[0], args.names[-1]
    torch.set_num_threads(1)
    write(args) if args.write else check(args)


if __name__ == "__main__":
    main()
