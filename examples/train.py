#!/usr/bin/python3
"""train.py - a PyTorch training loop on several ranks: mpirun -np 4 python3 examples/train.py --exchange allreduce

The lines that make it so are marked. Options are handed to nowait. The data are made up: points around ten centres."""
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
import nowait

torch.manual_seed(1)
torch.set_num_threads(1)
centres = torch.randn(10, 32) * 0.8
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
peer = nowait.Peer(model, optimizer, sys.argv[1:])  # <- one

data = torch.Generator().manual_seed(100 + peer.rank)
for step in range(200):
    labels = torch.randint(10, (32,), generator=data)
    images = centres[labels] + torch.randn(32, 32, generator=data)
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    peer.step()  # <- two, instead of optimizer.step()
peer.finish()  # <- three

model.eval()
labels = torch.randint(10, (2000,))
right = (model(centres[labels] + torch.randn(2000, 32)).argmax(1) == labels).float().mean()
if peer.rank == 0:
    print(f"{peer.size} ranks, {100 * right:.1f} % right, {peer.ranks.look().bytes_sent} bytes sent by rank 0")
