"""All ways to write an array, in every array of several networks, before all ways to run.

Each run must see the write. `combinations()` lists all cases, with the type of the arrays and the type of the
context. `check` plays one.
"""

from __future__ import annotations

import ctypes
import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import ml_dtypes
import numpy as np

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff
from kinnor.utils.dlpack import from_dlpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

TYPES: dict[str, tuple[Any, str]] = {
    "float64": (np.float64, "float"),
    "float16": (np.float16, "float"),
    "bfloat16": (ml_dtypes.bfloat16, "float"),
    "int32": (np.int32, "float"),
    "float32": (np.float32, "float"),
    "float32 in double": (np.float32, "double"),
    "float32 in half": (np.float32, "half"),
    "float32 in bfloat16": (np.float32, "bfloat16"),
}
"""By name: the element type of the arrays, and the element type of the context."""

# Networks: the shapes of their arrays, and their results.


def constant(values: Any) -> nn.Variable:
    """Returns a variable without gradient."""
    return nn.Variable.from_numpy_array(np.asarray(values))


def lstm(x: Any, h: Any, c: Any, w: Any, u: Any, b: Any) -> Any:
    """Two steps of an LSTM on the same input."""
    for _ in range(2):
        i, f, o, g = F.split(F.reshape(F.affine(x, w) + F.affine(h, u) + b, (3, 4, 4)), axis=1)
        c = F.sigmoid(f) * c + F.sigmoid(i) * F.tanh(g)
        h = F.sigmoid(o) * F.tanh(c)
    return h


def attention(q: Any, k: Any, v: Any, w: Any) -> Any:
    """Attention with an output layer."""
    return F.affine(F.batch_matmul(F.softmax(F.batch_matmul(q, k, transpose_b=True), axis=2), v), w, base_axis=2)


def mlp(x: Any, a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
    """A perceptron of three layers."""
    return F.affine(F.relu(F.affine(F.tanh(F.affine(x, a, b)), c, d)), e)


def residual(x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """A residual block of two convolutions."""
    h = F.relu(F.convolution(x, a, b, pad=(1, 1)))
    return x + F.convolution(h, c, d, pad=(1, 1))


def normalized(x: Any, beta: Any, gamma: Any, mean: Any, variance: Any) -> Any:
    """Batch normalization with running statistics."""
    return F.batch_normalization(x, beta, gamma, mean, variance, batch_stat=False)


NETWORKS: dict[str, tuple[list[tuple[int, ...]], Callable[..., Any]]] = {
    "affine": ([(34, 64), (64, 96), (96,)], F.affine),
    "mlp": ([(5, 8), (8, 6), (6,), (6, 7), (7,), (7, 3)], mlp),
    "product twice": ([(6, 8), (8, 8)], lambda x, w: F.affine(F.affine(x, w), w)),
    "convolution": ([(2, 3, 6, 6), (4, 3, 3, 3), (4,)], lambda x, w, b: F.convolution(x, w, b, pad=(1, 1))),
    "strided": ([(2, 3, 7, 7), (4, 3, 3, 3), (4,)], lambda x, w, b: F.convolution(x, w, b, stride=(2, 2))),
    "pointwise": ([(2, 8, 4, 4), (6, 8, 1, 1), (6,)], F.convolution),
    "residual": ([(2, 4, 6, 6), (4, 4, 3, 3), (4,), (4, 4, 3, 3), (4,)], residual),
    "depthwise": ([(2, 4, 6, 6), (4, 3, 3), (4,)], lambda x, w, b: F.depthwise_convolution(x, w, b, pad=(1, 1))),
    "deconvolution": ([(2, 3, 4, 4), (3, 4, 3, 3), (4,)], F.deconvolution),
    "batch normalization": ([(4, 3, 2), (1, 3, 1), (1, 3, 1), (1, 3, 1), (1, 3, 1)], normalized),
    "layer normalization": (
        [(4, 6), (4, 6), (4, 6)],
        lambda x, b, g: F.layer_normalization(x, b[1:2], g[:1]),
    ),
    "lstm": ([(3, 5), (3, 4), (3, 4), (5, 16), (4, 16), (1, 16)], lstm),
    "attention": ([(2, 4, 3), (2, 4, 3), (2, 4, 3), (3, 5)], attention),
    "elementwise": ([(5, 7), (5, 7), (5, 7)], lambda a, b, c: F.sin(a * b) + F.tanh(b - c) * a),
    "broadcast": ([(4, 5), (4, 1), (5,)], lambda a, b, c: a * b + c),
    "slopes": ([(4, 3, 2), (3,)], F.prelu),
    "embedding": ([(6, 4), (4, 3)], lambda w, m: F.affine(F.embed(constant(np.array([0, 5, 2, 2])), w), m)),
    "softmax": ([(4, 6), (6, 5)], lambda x, w: F.log_softmax(F.affine(x, w))),
    "cross entropy": ([(4, 6)], lambda x: F.softmax_cross_entropy(x, constant(np.array([[0], [5], [2], [2]])))),
    "reductions": ([(4, 6), (4, 6)], lambda x, y: F.sum(x * x, axis=0) + F.mean(F.exp(y * 0.1), axis=0)),
    "joined": ([(2, 3), (4, 3), (2, 3)], lambda a, b, c: F.concatenate(a, F.sin(b), c, axis=0)),
    "moved": ([(4, 6), (6, 4)], lambda a, b: F.transpose(a, (1, 0)) * F.reshape(b, (6, 4))),
    "chosen": ([(4, 6), (4, 6)], lambda a, b: F.maximum2(a, b) + F.sort(a, axis=1)),
    "pooled": ([(2, 3, 6, 6)], lambda x: F.max_pooling(x, (2, 2)) + F.average_pooling(x, (2, 2))),
    "weights normalized": ([(4, 6), (6, 5), (5,)], lambda x, w, g: F.affine(x, F.weight_normalization(w, g, dim=1))),
    "distances": ([(4, 3), (4, 3)], lambda a, b: F.huber_loss(a, b, 0.7) + F.squared_error(a, b)),
    "powers": ([(4, 3), (4, 3)], lambda a, b: F.pow_scalar(a * 0.1, 3.0) + F.exp(b * 0.1)),
    "a part": ([(6, 3), (2, 3)], lambda a, b: a[1:3] * b + a[4]),
    "four of one": ([(1, 3), (1, 3), (1, 3), (1, 3)], lambda a, b, c, d: F.sin(a) * b + F.sin(c) * d),
}
"""By name: shapes of the leaves, and the network as a function of them."""


class Net:
    """A network with arrays of its own."""

    def __init__(self, name: str, arrays: Sequence[Any]) -> None:
        """Builds the network `name` with copies of these arrays as leaves."""
        self.name = name
        self.leaves = [nn.Variable.from_numpy_array(a, need_grad=a.dtype.kind != "i") for a in arrays]
        self.loss = self.build()

    def build(self) -> Any:
        """Builds the loss."""
        y = NETWORKS[self.name][1](*self.leaves)
        return F.sum(F.sin(y * 0.3)) + F.sum(F.pow_scalar(y, 2.0))


def numbers(*arrays: Any) -> list[Any]:
    """Returns copies of the values of these arrays."""
    return [np.array(a.get_data("r")) for a in arrays]


# Ways to run.


def forward(net: Net) -> list[Any]:
    """Runs a static graph forward. Returns copies of the loss."""
    net.loss.forward()
    return numbers(net.loss.data)


def clearing(net: Net) -> list[Any]:
    """Runs a static training step that clears values. Returns copies of loss and gradients."""
    net.loss.forward(clear_no_need_grad=True)
    wanted = [x for x in net.leaves if x.need_grad]
    if not wanted:
        return numbers(net.loss.data)
    for x in wanted:
        x.grad.zero()
    net.loss.backward(clear_buffer=True)
    return numbers(net.loss.data, *(x.grad for x in wanted))


def predicting(net: Net) -> list[Any]:
    """Builds a graph without gradients and runs it. Returns a copy of the loss."""
    with nn.no_grad():
        y = net.build()
        y.forward()
    return numbers(y.data)


def at_once(net: Net) -> list[Any]:
    """Builds the network eagerly. Returns a copy of the loss."""
    with nn.auto_forward():
        y = net.build()
    return numbers(y.data)


def differentiating(net: Net) -> list[Any]:
    """Runs forward and `autodiff.grad`. Returns copies of loss and gradients."""
    net.loss.forward()
    wanted = [x for x in net.leaves if x.need_grad]
    found = autodiff.grad(net.loss, wanted, allow_unused=True) if wanted else ()
    return numbers(net.loss.data, *(g.data for g in found if g is not None))


def without_graph(net: Net) -> list[Any]:
    """Builds the network eagerly and without gradients. Returns a copy of the loss."""
    with nn.auto_forward(), nn.no_grad():
        y = net.build()
    return numbers(y.data)


RUNS = [forward, clearing, predicting, at_once, differentiating, without_graph]
"""Ways to run a network and its gradients."""

# Ways to write.


def dropped(view: Callable[[Any], Any]) -> Callable[[Any, Any, Any], None]:
    """Returns a way to write: takes a NumPy view of the array, runs, writes through the view and drops it."""

    def write(array: Any, new: Any, run: Callable[[], Any]) -> None:
        """Takes a view, runs, writes `new` through the view, and drops it."""
        seen = view(array)
        run()
        seen[...] = new

    return write


def parts(array: Any, new: Any, run: Callable[[], Any]) -> None:
    """Writes through NumPy views of the array's two halves, which are made before the run."""
    half = new.shape[0] // 2
    views = [array.narrow(0, 0, half).data, array.narrow(0, half, new.shape[0] - half).data]
    run()
    views[0][...], views[1][...] = new[:half], new[half:]


def address(array: Any, new: Any, run: Callable[[], Any]) -> None:
    """Writes to the address of the elements, which is taken before the run."""
    place = array.data_ptr(new.dtype)
    run()
    ctypes.memmove(place, np.ascontiguousarray(new).ctypes.data, new.nbytes)


def borrowed(array: Any, new: Any, run: Callable[[], Any]) -> None:
    """Gives the array NumPy memory by DLPack, runs, and writes to that memory."""
    own = np.zeros_like(new)
    from_dlpack(own, array)
    run()
    own[...] = new


def between(array: Any, new: Any, run: Callable[[], Any]) -> None:
    """Writes `new` through views that are made and dropped between runs."""
    array.data[...] = new
    run()
    array.data[...] = new[::-1]
    array.data[...] = new


def in_steps(array: Any, new: Any, run: Callable[[], Any]) -> None:
    """Writes in several steps with runs between them."""
    view = array.data
    step = -(-new.shape[0] // 2)
    for i in range(0, new.shape[0], step):
        run()
        view[i : i + step] = new[i : i + step]


def assigned(array: Any, new: Any, run: Callable[[], Any]) -> None:
    """Assigns `new` to the array, and runs."""
    array.data = new
    run()


def by_bytes(array: Any, new: Any, run: Callable[[], Any]) -> None:
    """Writes through a view of the elements as bytes, which is made before the run."""
    view = memoryview(array.data.view(np.uint8)).cast("B")
    run()
    view[:] = np.ascontiguousarray(new).tobytes()


# Comes last: an array whose address was taken is never cached again.
WRITES: dict[str, Callable[[Any, Any, Any], None]] = {
    "data": dropped(lambda array: array.data),
    "asarray": dropped(np.asarray),
    "get_data": dropped(lambda array: array.get_data("rw")),
    "cast": dropped(lambda array: array.cast(array.dtype)),
    "by_bytes": by_bytes,
    "between": between,
    "in_steps": in_steps,
    "assigned": assigned,
    "borrowed": borrowed,
    "parts": parts,
    "address": address,
}


class Combination(NamedTuple):
    """A type, a network, an array of it, a way to write and a way to run."""

    kind: str
    network: str
    leaf: int
    write: str
    run: int


def fits(kind: str, network: str, leaf: int, write: str) -> bool:
    """True if the write is possible: a single row has no halves, and DLPack cannot pass NumPy's bfloat16."""
    return not (write == "parts" and NETWORKS[network][0][leaf][0] < 2) and (
        write != "borrowed" or TYPES[kind][0] is not ml_dtypes.bfloat16
    )


def combinations(kinds: Sequence[str] = tuple(TYPES)) -> Iterator[Combination]:
    """Yields all combinations of networks, leaves, writes and runs for these types."""
    for kind, (network, (shapes, _)) in itertools.product(kinds, NETWORKS.items()):
        for leaf, write, run in itertools.product(range(len(shapes)), WRITES, range(len(RUNS))):
            if fits(kind, network, leaf, write):
                yield Combination(kind, network, leaf, write, run)


def values(combination: Combination, seed: int) -> list[Any]:
    """Returns the arrays of a network in the type of the combination."""
    rng, dtype = np.random.default_rng(seed), TYPES[combination.kind][0]
    arrays = [rng.uniform(0.2, 1.0, shape) for shape in NETWORKS[combination.network][0]]
    return [np.round(a * 4).astype(dtype) if dtype == np.int32 else a.astype(dtype) for a in arrays]


def check_in_turn(kind: str, network: str, run: int) -> None:
    """Writes every array of one network in every way, in turn."""
    with nn.context_scope(nn.Context([f"cpu:{TYPES[kind][1]}"])):
        net = Net(network, values(Combination(kind, network, 0, "", run), 0))
        for seed, (name, write) in enumerate(WRITES.items(), 1):
            combination = Combination(kind, network, 0, name, run)
            new = values(combination, seed)
            for leaf, (x, array) in enumerate(zip(net.leaves, new, strict=True)):
                if fits(kind, network, leaf, name):
                    write(x.data, array, lambda: (RUNS[run](net), RUNS[run](net)))
                else:
                    x.d = array
            expected = RUNS[run](Net(network, new))
            for found in (RUNS[run](net), RUNS[run](net)):
                assert all(map(np.array_equal, found, expected)), combination


def check(combination: Combination) -> None:
    """Runs, writes, and runs twice more. They must equal the results of a network built from the new values."""
    run, write = RUNS[combination.run], WRITES[combination.write]
    with nn.context_scope(nn.Context([f"cpu:{TYPES[combination.kind][1]}"])):
        old, new = values(combination, 0), values(combination, 1)
        net = Net(combination.network, old)
        run(net)
        write(net.leaves[combination.leaf].data, new[combination.leaf], lambda: (run(net), run(net)))
        old[combination.leaf] = new[combination.leaf]
        expected = run(Net(combination.network, old))
        for found in (run(net), run(net)):
            assert len(found) == len(expected), combination
            assert all(map(np.array_equal, found, expected)), combination
