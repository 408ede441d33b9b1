"""The networks that PyTorch runs beside nowait. The parameters of ResNet18 have the names that nowait gives them."""
import torch.nn as nn
import torch.nn.functional as F


class ConvNorm(nn.Sequential):
    def __init__(self, c, k):
        super().__init__(nn.Conv2d(c, k, 3, padding=1, bias=False), nn.BatchNorm2d(k), nn.ReLU(inplace=True))


class Residual9(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.branch = nn.Sequential(ConvNorm(c, c), ConvNorm(c, c))

    def forward(self, x):
        return x + self.branch(x)


class Scale(nn.Module):
    def forward(self, x):
        return x * 0.125


def resnet9():
    """For timing only: its parameters are numbered, not named."""
    return nn.Sequential(ConvNorm(3, 64), ConvNorm(64, 128), nn.MaxPool2d(2), Residual9(128), ConvNorm(128, 256),
                         nn.MaxPool2d(2), ConvNorm(256, 512), nn.MaxPool2d(2), Residual9(512), nn.MaxPool2d(4),
                         nn.Flatten(), nn.Linear(512, 10, bias=False), Scale())


class Block(nn.Module):
    def __init__(self, c, k, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(c, k, 3, stride, 1, bias=False), nn.BatchNorm2d(k)
        self.conv2, self.bn2 = nn.Conv2d(k, k, 3, 1, 1, bias=False), nn.BatchNorm2d(k)
        self.downsample = None
        if stride != 1 or c != k:
            self.downsample = nn.Sequential(nn.Conv2d(c, k, 1, stride, bias=False), nn.BatchNorm2d(k))

    def forward(self, x):
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        out += x if self.downsample is None else self.downsample(x)
        return F.relu(out, inplace=True)


class ResNet18(nn.Module):
    """For images of 32 x 32: a first convolution of 3 x 3 and no pooling after it."""

    def __init__(self, width=64):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        c = width
        for group in range(4):
            k = width << group
            setattr(self, f"layer{group + 1}", nn.Sequential(Block(c, k, 2 if group else 1), Block(k, k, 1)))
            c = k
        self.fc = nn.Linear(c, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


MODELS = {"resnet9": resnet9, "resnet18": ResNet18}
