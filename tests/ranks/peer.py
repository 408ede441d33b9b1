#!/usr/bin/python3
"""peer.py - a PyTorch loop over several ranks, and the same trajectory in plain Python.

  mpirun -np N peer.py run FOLDER [--way update] OPTIONS...     each rank leaves its weights in FOLDER
  peer.py check FOLDER...                                        computes what they must be: in one process, rank after rank

A FOLDER's name begins with that of a plain loop in CASES, and ends with the number of ranks: topk-gather-2. Gradients are made by the same code in both, on one
thread, so that weights agree bit for bit. peer_python.sh runs it.
"""
import os
import pathlib
import sys

import numpy as np
import torch

root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "python"))
STEPS = 40
torch.set_num_threads(1)


def make(rank=0):
    torch.manual_seed(rank)  # ranks begin with rank 0's all the same
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 10))
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)


def backward(model, rank, step):
    data = torch.Generator().manual_seed(1000 * rank + step)
    images = torch.randn(8, 1, 6, 6, generator=data)
    labels = torch.randint(10, (8,), generator=data)
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()


def weights(model):
    return np.concatenate([p.detach().numpy().ravel() for p in model.parameters()])


# ---- over ranks ----


def run(folder, options):
    import nowait

    rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", os.environ.get("PMI_RANK", "0")))
    model, optimizer = make(rank)
    update = options[:2] == ["--way", "update"]
    peer = nowait.Peer(model, None if update else optimizer, options[2:] if update else options)
    assert peer.rank == rank and peer.way == ("update" if update else peer.way)
    for step in range(STEPS):
        backward(model, rank, step)
        if not peer.step():
            break
    peer.finish()
    np.save(pathlib.Path(folder) / f"{rank}.npy", weights(model))
    if rank == 0:
        look = peer.ranks.look()
        print(f"{peer.size} ranks: {look.gradients} gradients, {look.bytes_sent} bytes sent by rank 0")


# ---- in plain Python ----


def largest(v, share):
    """Top-k of a tensor: all but the max(1, round(share n)) largest become 0."""
    k = max(1, round(share * v.size))
    flat = v.ravel()
    kept = np.zeros_like(flat)
    chosen = np.argsort(-np.abs(flat), kind="stable")[:k]
    kept[chosen] = flat[chosen]
    return kept.reshape(v.shape)


def exact(vectors, memories):
    return vectors


def topk(vectors, memories):
    """With error feedback: what is not sent is added to the next gradient."""
    sent = []
    for v, memory in zip(vectors, memories):
        memory += v
        sent.append(largest(memory, 0.05))
        memory -= sent[-1]
    return sent


CASES = {"dense": (exact, 0), "delayed": (exact, 1), "topk": (topk, 0), "update": (exact, 0)}


def check(folder):
    case, *_, ranks = folder.name.split("-")
    ranks, (encode, delay) = int(ranks), CASES[case]
    model, optimizer = make()
    parameters = list(model.parameters())
    memories = [[np.zeros(p.shape, np.float32) for p in parameters] for _ in range(ranks)]
    held = []
    for step in range(STEPS + delay):
        if step < STEPS:
            sums = [np.zeros(p.shape, np.float32) for p in parameters]
            for rank in range(ranks):
                backward(model, rank, step)
                for s, g in zip(sums, encode([p.grad.numpy().copy() for p in parameters], memories[rank])):
                    s += g
            held.append([s * np.float32(1 / np.float32(ranks)) for s in sums])
        if step >= delay:
            for p, mean in zip(parameters, held.pop(0)):
                p.grad = torch.from_numpy(mean)
            optimizer.step()
    for rank in range(ranks):
        theirs, plain = np.load(folder / f"{rank}.npy"), weights(model)
        worst = np.abs(theirs - plain).max()
        print(f"{folder.name}: rank {rank} differs by {worst:.3g} from plain Python")
        assert np.isfinite(worst) and worst <= (1e-5 if case == "update" else 0), case
        assert np.abs(plain - weights(make()[0])).max() > 0.1


if sys.argv[1] == "run":
    run(sys.argv[2], sys.argv[3:])
else:
    for folder in sys.argv[2:]:
        check(pathlib.Path(folder))
