"""nowait.py - the exchanges and codecs of nowait in Python, by ctypes: this one file, numpy, and libnowait.so.

A PyTorch loop becomes asynchronous data parallel in three added lines, run by `mpirun -np N python3 train.py`:

    peer = nowait.Peer(model, optimizer, "--exchange gossip --apply-acid")      after the model is made
    ...
        loss.backward()
        peer.step()                                                             instead of optimizer.step()
    peer.finish()                                                               after the loop

Which batches a rank takes is the program's to say, by peer.rank and peer.size. All ranks begin with the parameters of
rank 0, and end with the same. Options are those of `nowait train`; docs/wrapper.md tells which, and what they do here.

Ranks is the same without PyTorch, for flat numpy vectors: section 4 of nowait.h has the functions.

The library is looked for at NOWAIT_LIBRARY, beside this file, in build/ beside its folder, and where the system has
libraries.
"""
import ctypes
import ctypes.util
import os
import pathlib
import sys
import weakref

import numpy as np


class Error(RuntimeError):
    """What the library says: .status is the name of nowait.h ("NW_E_PEER"), .exit_code what a script may end with."""

    def __init__(self, message, status, exit_code):
        super().__init__(message)
        self.status, self.exit_code = status, exit_code


class _Tensor(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("offset", ctypes.c_size_t), ("count", ctypes.c_size_t),
                ("dims", ctypes.c_int), ("shape", ctypes.c_int * 4), ("stage", ctypes.c_int)]


class Statistics(ctypes.Structure):
    _fields_ = [("gradients", ctypes.c_int64), ("updates", ctypes.c_int64), ("averagings", ctypes.c_int64),
                ("messages_sent", ctypes.c_int64), ("bytes_sent", ctypes.c_int64), ("delay", ctypes.c_double)]


def _load():
    here = pathlib.Path(__file__).resolve().parent
    places = [os.environ.get("NOWAIT_LIBRARY"), here / "libnowait.so", here.parent / "build" / "libnowait.so",
              ctypes.util.find_library("nowait")]
    for place in places[:1] if places[0] else places[1:]:
        if place and (pathlib.Path(place).exists() or place == places[3]):
            return ctypes.CDLL(str(place))
    raise ImportError("libnowait.so is not found; build it ('make build'), or say where it is with NOWAIT_LIBRARY")


def _declare(library):
    vector, flag, peer = ctypes.c_void_p, ctypes.POINTER(ctypes.c_bool), ctypes.c_void_p
    functions = {
        "nw_status_name": (ctypes.c_char_p, [ctypes.c_int]),
        "nw_status_exit_code": (ctypes.c_int, [ctypes.c_int]),
        "nw_error_message": (ctypes.c_char_p, []),
        "nw_peer_create": (ctypes.c_int, [ctypes.POINTER(peer), ctypes.POINTER(_Tensor), ctypes.c_int, ctypes.c_char_p,
                                          ctypes.c_bool]),
        "nw_peer_free": (None, [peer]),
        "nw_peer_rank": (ctypes.c_int, [peer]),
        "nw_peer_size": (ctypes.c_int, [peer]),
        "nw_peer_note": (ctypes.c_char_p, [peer, ctypes.c_int]),
        "nw_peer_ways": (ctypes.c_int, [peer]),
        "nw_peer_is_over": (ctypes.c_bool, [peer]),
        "nw_peer_begin": (ctypes.c_int, [peer, vector]),
        "nw_peer_reduce": (ctypes.c_int, [peer, vector, flag]),
        "nw_peer_update": (ctypes.c_int, [peer, vector, vector]),
        "nw_peer_merge": (ctypes.c_int, [peer, vector]),
        "nw_peer_finish": (ctypes.c_int, [peer, vector, flag]),
        "nw_peer_mean": (ctypes.c_int, [peer, vector, ctypes.c_size_t]),
        "nw_peer_set_learning_rate": (ctypes.c_int, [peer, ctypes.c_double]),
        "nw_peer_turn": (ctypes.c_int, [peer]),
        "nw_peer_look": (ctypes.c_int, [peer, ctypes.POINTER(Statistics)]),
    }
    for name, (result, arguments) in functions.items():
        getattr(library, name).restype, getattr(library, name).argtypes = result, arguments
    return library


_library = None


def _c():
    global _library
    _library = _library or _declare(_load())
    return _library


def _do(name, *arguments):
    status = getattr(_c(), name)(*arguments)
    if status != 0:
        raise Error(_c().nw_error_message().decode(), _c().nw_status_name(status).decode(), _c().nw_status_exit_code(status))


def _free(handle):
    _c().nw_peer_free(handle)


class Ranks:
    """The ranks of this job, and this one among them. `tensors` is a list of (name, shape), in the order in which they
    lie in the vectors; `options` a text or a list of words. Vectors are contiguous numpy arrays of float32."""

    def __init__(self, tensors, options="", threaded=True):
        if not isinstance(options, str):
            options = " ".join(options)
        table = (_Tensor * max(1, len(tensors)))()
        for at, (name, shape) in zip(table, tensors):
            shape = tuple(shape)
            if len(shape) > 4:
                shape = shape[:3] + (int(np.prod(shape[3:])),)
            at.name, at.dims, at.shape = name.encode(), len(shape), (ctypes.c_int * 4)(*shape)
        self.count = sum(int(np.prod(shape)) for _, shape in tensors)
        self._peer = ctypes.c_void_p()
        _do("nw_peer_create", ctypes.byref(self._peer), table, len(tensors), options.encode(), threaded)
        self.rank, self.size = _c().nw_peer_rank(self._peer), _c().nw_peer_size(self._peer)
        # At the end of the program, too, also where an exception ends it: then the other ranks are told.
        self._close = weakref.finalize(self, _free, self._peer)

    def _vector(self, vector, count=None):
        count = self.count if count is None else count
        if not isinstance(vector, np.ndarray) or vector.dtype != np.float32 or not vector.flags.c_contiguous:
            raise TypeError("a vector is a contiguous numpy array of float32")
        if vector.size != count:
            raise ValueError(f"the vector has {vector.size} elements, not {count}")
        return ctypes.c_void_p(vector.ctypes.data)

    @property
    def notes(self):
        """What the options imply."""
        notes = []
        while (note := _c().nw_peer_note(self._peer, len(notes))) is not None:
            notes.append(note.decode())
        return notes

    @property
    def ways(self):
        """Which of "reduce", "update", "merge" the exchange can go."""
        bits = _c().nw_peer_ways(self._peer)
        return {way for bit, way in ((1, "reduce"), (2, "update"), (4, "merge")) if bits & bit}

    @property
    def is_over(self):
        """Whether there are no more steps, with --max-steps."""
        return _c().nw_peer_is_over(self._peer)

    def begin(self, values):
        """Begins a run; values become those of rank 0."""
        _do("nw_peer_begin", self._peer, self._vector(values))

    def reduce(self, gradient):
        """Makes the gradient the mean over all ranks. False: with --delay 1 there is none yet, and it is void."""
        there = ctypes.c_bool()
        _do("nw_peer_reduce", self._peer, self._vector(gradient), ctypes.byref(there))
        return there.value

    def update(self, gradient, values):
        """Gives a gradient; values become the next ones, which the library's optimizer has updated."""
        _do("nw_peer_update", self._peer, self._vector(gradient), self._vector(values))

    def merge(self, values):
        """Gives values that an optimizer of the program has updated; they become the next ones."""
        _do("nw_peer_merge", self._peer, self._vector(values))

    def finish(self, vector):
        """Ends the run. Of reduce(): whether the vector now is a mean that --delay held back; else it is the model."""
        there = ctypes.c_bool()
        _do("nw_peer_finish", self._peer, self._vector(vector), ctypes.byref(there))
        return there.value

    def mean(self, vector):
        """Between runs: makes any vector the mean over all ranks."""
        _do("nw_peer_mean", self._peer, self._vector(vector, vector.size), vector.size)

    def set_learning_rate(self, rate):
        """Of update()."""
        _do("nw_peer_set_learning_rate", self._peer, rate)

    def turn(self):
        """Without a thread: moves messages, and does not wait."""
        _do("nw_peer_turn", self._peer)

    def look(self):
        """How many gradients, updates, messages and bytes there were."""
        statistics = Statistics()
        _do("nw_peer_look", self._peer, ctypes.byref(statistics))
        return statistics

    def close(self):
        """Leaves the other ranks."""
        self._close()


class Peer:
    """A PyTorch model on several ranks. With an optimizer of PyTorch, that one makes the steps: of the mean gradient
    where ranks go in step (--exchange none, allreduce), else of each rank's own gradient. With None the library's does
    (--optimizer, --lr, ...)."""

    def __init__(self, model, optimizer=None, options="", threaded=True):
        named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        for name, p in named:
            if p.device.type != "cpu" or str(p.dtype) != "torch.float32":
                raise TypeError(f"parameter {name} is {p.dtype} on {p.device}; this library takes float32 on cpu")
        self.model, self.optimizer = model, optimizer
        self._parameters = [p for _, p in named]
        self.ranks = Ranks([(name, p.shape) for name, p in named], options, threaded)
        self.rank, self.size = self.ranks.rank, self.ranks.size
        ways = self.ranks.ways
        self.way = "update" if optimizer is None else "reduce" if "reduce" in ways else "merge"
        if self.way not in ways:
            raise ValueError("with this exchange and method the library updates the parameters; give Peer no optimizer, and "
                             "options of one: --optimizer, --lr, ...")
        self._flat = np.empty(self.ranks.count, np.float32)
        self._gradient = np.empty(self.ranks.count, np.float32)
        if self.rank == 0:
            for note in self.ranks.notes:
                print(f"nowait: {note}", file=sys.stderr)
        self._read_parameters()
        self.ranks.begin(self._flat)
        self._write_parameters()

    def _pieces(self, flat):
        at = 0
        for p in self._parameters:
            yield p, flat[at : at + p.numel()].reshape(p.shape)
            at += p.numel()

    def _read_parameters(self):
        for p, piece in self._pieces(self._flat):
            np.copyto(piece, p.detach().numpy())

    def _write_parameters(self):
        for p, piece in self._pieces(self._flat):
            np.copyto(p.detach().numpy(), piece)

    def _read_gradients(self):
        for p, piece in self._pieces(self._gradient):
            if p.grad is None:
                piece.fill(0)
            else:
                np.copyto(piece, p.grad.detach().numpy())

    def _apply_mean(self):
        for p, piece in self._pieces(self._gradient):
            if p.grad is None:
                p.grad = p.detach().clone()
            np.copyto(p.grad.numpy(), piece)
        self.optimizer.step()

    def step(self):
        """After backward: exchanges, and updates the model. False: the run is over (--max-steps), and so is the loop."""
        if self.ranks.is_over:
            return False
        if self.way == "reduce":
            self._read_gradients()
            if self.ranks.reduce(self._gradient):
                self._apply_mean()
        elif self.way == "merge":
            self.optimizer.step()
            self._read_parameters()
            self.ranks.merge(self._flat)
            self._write_parameters()
        else:
            self._read_gradients()
            self.ranks.update(self._gradient, self._flat)
            self._write_parameters()
        return not self.ranks.is_over

    def finish(self):
        """Ends the run: all ranks have the same model, and the mean of what batch norm has seen."""
        if self.way == "reduce":
            if self.ranks.finish(self._gradient):
                self._apply_mean()
        else:
            self.ranks.finish(self._flat)
            self._write_parameters()
        buffers = [b.detach().numpy() for b in self.model.buffers() if b.is_floating_point()]
        if buffers:
            mean = np.concatenate([b.ravel() for b in buffers]).astype(np.float32)
            self.ranks.mean(mean)
            for b, piece in zip(buffers, np.split(mean, np.cumsum([b.size for b in buffers])[:-1])):
                np.copyto(b, piece.reshape(b.shape), casting="same_kind")
