#!/usr/bin/python3
"""peer.py - a PyTorch loop over several ranks, and the same trajectory in plain Python.

  mpirun -np N peer.py run FOLDER [--way update] OPTIONS...     each rank leaves its weights in FOLDER
  peer.py check FOLDER...                                        computes what they must be: in one process, rank after rank

gossip and acid have no fixed order: there the ranks' logs (--log-averagings) say who did what when, and the same is done
again with numpy. A FOLDER's name begins with that of a plain loop in CASES, and ends with the number of ranks: topk-gather-2. Gradients are made by the same code in both, on one
thread, so that weights agree bit for bit. peer_python.sh runs it.
"""
import os
import pathlib
import sys
import time

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
        if "gossip" in options:
            time.sleep(0.003 * (1 + rank))  # so that ranks have their own pace, and averagings come in the middle
        if not peer.step():
            break
    peer.finish()
    np.save(pathlib.Path(folder) / f"{rank}.npy", weights(model))
    if rank == 0:
        look = peer.ranks.look()
        averagings = f", {look.averagings} averagings" if look.averagings else ""
        print(f"{peer.size} ranks: {look.gradients} gradients, {look.bytes_sent} bytes sent by rank 0{averagings}")


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


def load(model, vector):
    at = 0
    for p in model.parameters():
        np.copyto(p.detach().numpy(), vector[at : at + p.numel()].reshape(p.shape))
        at += p.numel()


class Averager:
    """One rank of gossip: x and, with momentum, a second vector."""

    def __init__(self, rank, lines):
        self.rank, self.lines, self.step, self.computing, self.amid = rank, iter(lines), 0, False, 0
        self.model, self.optimizer = make()
        self.x, kind = weights(self.model), next(self.lines).split()
        self.alpha = np.float32(kind[1]) if kind[0] == "momentum" else None
        self.other, self.seen = self.x.copy(), None
        self.steps = np.zeros(self.x.size)  # all together, in double
        self.line = next(self.lines, None)

    def update(self):
        load(self.model, self.seen)
        backward(self.model, self.rank, self.step)
        self.optimizer.step()
        before, step = self.x.copy(), self.seen - weights(self.model)
        self.x -= step
        self.other += self.x - before
        self.steps += step
        self.step += 1

    def mix(self, at, b):
        if self.alpha is not None and b != 0:
            d = b * (self.other[at] - self.x[at])
            self.x[at] += d
            self.other[at] -= d

    def approach(self, at, own, theirs):
        m = own - theirs
        self.x[at] -= np.float32(0.5) * m
        if self.alpha is not None:
            self.other[at] -= self.alpha * m
        self.amid += self.computing

    def go_on(self, mail):
        """Does one line; False: what it needs was not sent yet, or there is no other."""
        if self.line is None:
            return False
        what, *rest = self.line.split()
        if what == "pass":
            self.seen, self.computing = self.x.copy(), True
        elif what == "update":
            self.computing = False
            self.update()
        else:
            first, count, b = int(rest[-3]), int(rest[-2]), np.float32(rest[-1])
            at, other = slice(first, first + count), int(rest[0])
            if what == "mixed":
                self.mix(at, b)
            elif what == "sent":
                sent = self.x[at].copy() if self.alpha is None else self.x[at] + b * (self.other[at] - self.x[at])
                for reader in (self.rank, other):
                    mail.setdefault((self.rank, other, first, reader), []).append(sent)
            else:
                theirs = mail.get((other, self.rank, first, self.rank))
                if not theirs:
                    return False
                self.mix(at, b)
                self.approach(at, mail[self.rank, other, first, self.rank].pop(0), theirs.pop(0))
        self.line = next(self.lines, None)
        return True


def average(folder, ranks):
    mail, all = {}, [Averager(r, (folder / f"rank{r}.txt").read_text().splitlines()) for r in range(ranks)]
    start = all[0].x.astype(np.float64)
    while any([a.go_on(mail) for a in all]):
        pass
    assert all[0].line is None and not any(mail.values()) and [a.step for a in all] == [STEPS] * ranks
    kept = sum(a.x.astype(np.float64) for a in all)
    if all[0].alpha is not None:
        kept = (kept + sum(a.other.astype(np.float64) for a in all)) / 2
    lost = np.abs(kept - (ranks * start - sum(a.steps for a in all))).max()
    print(f"{folder.name}: {sum(a.amid for a in all)} averagings while a gradient was computed; sums kept to {lost:.3g}")
    assert lost < 1e-4 and sum(a.amid for a in all) > ranks
    total = all[0].x
    for a in all[1:]:
        total = total + a.x
    return total / np.float32(ranks)


def go_together(ranks, case):
    encode, delay = CASES[case]
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
    return weights(model)


def check(folder):
    case, *_, ranks = folder.name.split("-")
    plain = go_together(int(ranks), case) if case in CASES else average(folder, int(ranks))
    for rank in range(int(ranks)):
        worst = np.abs(np.load(folder / f"{rank}.npy") - plain).max()
        print(f"{folder.name}: rank {rank} differs by {worst:.3g} from plain Python")
        assert np.isfinite(worst) and worst <= (1e-5 if case == "update" else 0), case
    assert np.abs(plain - weights(make()[0])).max() > 0.1


if sys.argv[1] == "run":
    run(sys.argv[2], sys.argv[3:])
else:
    for folder in sys.argv[2:]:
        check(pathlib.Path(folder))
