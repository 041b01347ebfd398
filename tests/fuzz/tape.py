"""A record in NumPy of the values that arrays of a program should hold: the reference for `programs.py`.

It tracks memory (shared arrays, values that may be cleared or unknown) and how values are computed. It does not
model plans, fusion or the order of runs. Of the library it uses only the calls that build functions.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from plain_graph import OPS, GraphNode, Op, sigmoid, softmax
from support import UnaryFunction

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

GRID = np.random.RandomState(1).uniform(-0.5, 0.5, (3, 3))
"""A constant matrix that operations use."""
ROW = np.array([0.5, -1.0, 0.25])
"""A constant row that operations use."""


class ShiftedSquare(UnaryFunction):
    """A user's function: half the square of `x - 0.5`."""

    reads_input = True

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        """Computes the output."""
        outputs[0].d = squared(inputs[0].d.astype(np.float64))

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        if propagate_down[0]:
            g = outputs[0].g * (inputs[0].d - 0.5)
            inputs[0].g = inputs[0].g + g if accum[0] else g


def squared(x: Any) -> Any:
    """The NumPy version of `ShiftedSquare`: half the square of `x - 0.5`."""
    return (x - 0.5) ** 2 * 0.5


def normalized(x: np.ndarray) -> np.ndarray:
    """The NumPy version of `normalization`."""
    c = x - x.mean(1, keepdims=True)
    return c / np.sqrt((c * c).mean(1, keepdims=True) + 0.5)


def normalized_backward(gy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the gradient of `normalization`."""
    c = x - x.mean(1, keepdims=True)
    s = np.sqrt((c * c).mean(1, keepdims=True) + 0.5)
    y = c / s
    return ((gy - gy.mean(1, keepdims=True) - y * (gy * y).mean(1, keepdims=True)) / s,)


def normalization(x: Any) -> Any:
    """Normalizes each row by `F.layer_normalization`."""
    one, zero = nn.Variable((1, 3)), nn.Variable((1, 3))
    one.d, zero.d = 1, 0
    return F.layer_normalization(x, zero, one, batch_axis=0, eps=0.5)


def replaced(x: Any, y: Any) -> Any:
    """Copies `x` and assigns a column of `y` to it in place."""
    h = x * 1.0
    h[:, 1] = y[:, 2] * 2.0
    return h


def replaced_plain(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The NumPy version of `replaced`."""
    h = x.copy()
    h[:, 1] = y[:, 2] * 2
    return h


def replaced_backward(gy: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the gradients of `replaced`."""
    gx, g = gy.copy(), np.zeros_like(gy)
    gx[:, 1], g[:, 2] = 0, gy[:, 1] * 2
    return gx, g


def overwritten(x: Any, y: Any) -> Any:
    """Like `replaced` on `tanh(x)`: the gradient of `tanh` reads the output that is assigned to."""
    h = F.tanh(x)
    h[:, 1] = y[:, 2] * 2.0
    return h


def overwritten_plain(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The NumPy version of `overwritten`."""
    return replaced_plain(np.tanh(x), y)


def overwritten_backward(gy: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the gradients of `overwritten`."""
    gx, g = replaced_backward(gy, x, y)
    return gx * (1 - np.tanh(x) ** 2), g


def forgotten_twice(x: Any, y: Any) -> Any:
    """A `forget` segment within another one. Both have an unused input."""

    def segment(u: Any, unused: Any, v: Any) -> Any:
        """The outer segment, which contains the inner one."""
        return F.forget(lambda a, _: F.tanh(a * 0.5), u, unused) * F.sigmoid(u) + v * 0.5

    return F.forget(segment, x, y, y)


def constant(a: np.ndarray) -> nn.Variable:
    """Returns a variable without gradient."""
    return nn.Variable.from_numpy_array(a)


def first_row(x: Any) -> Any:
    """Adds the first row to half of each row."""
    return F.embed(constant(np.zeros(x.shape[0], np.int32)), x) + x * 0.5


def first_row_backward(gy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the gradient of `first_row`."""
    gx = gy * 0.5
    gx[0] += gy.sum(0)
    return (gx,)


def picked_backward(gy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the gradient of `picked`, which selects columns 2, 0 and 2."""
    gx = np.zeros_like(x)
    np.add.at(gx, (slice(None), [2, 0, 2]), gy)
    return (gx,)


def correlated_backward(gy: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the gradients of `correlated`."""
    g = (gy * ROW).sum() / x.size
    return g * y, g * x + gy * np.cos(y)


FORMULAS = OPS | {
    "affine": Op(lambda x: F.affine(x, constant(GRID)), lambda x: x @ GRID, lambda gy, x: (gy @ GRID.T,)),
    "weighed": Op(
        lambda x, w, b: F.affine(x, w, b),
        lambda x, w, b: x @ w + b,
        lambda gy, x, w, b: (gy @ w.T, x.T @ gy, gy.sum(0)),
        3,
    ),
    "scaled": Op(lambda x: F.tanh(x * 3.0 + constant(ROW[None])), lambda x: np.tanh(x * 3 + ROW), lambda gy, x: (
        gy * 3 * (1 - np.tanh(x * 3 + ROW) ** 2),
    )),
    "normalized": Op(normalization, normalized, normalized_backward),
    "replaced": Op(replaced, replaced_plain, replaced_backward, 2),
    "first_row": Op(first_row, lambda x: x[:1] + x * 0.5, first_row_backward),
    "picked": Op(
        lambda x: F.transpose(F.gather(F.transpose(x, (1, 0)), constant(np.array([2, 0, 2])), axis=0), (1, 0)),
        lambda x: x[:, [2, 0, 2]],
        picked_backward,
    ),
    "correlated": Op(
        lambda x, y: F.broadcast(F.reshape(F.mean(x * y), (1, 1)), x.shape) * constant(ROW[None]) + F.sin(y),
        lambda x, y: (x * y).mean() * ROW + np.sin(y),
        correlated_backward,
        2,
    ),
    "forgotten": Op(
        lambda x: F.forget(lambda h: F.tanh(h * 0.5) * F.sigmoid(h), x),
        lambda x: np.tanh(x * 0.5) * sigmoid(x),
        lambda gy, x: (
            gy
            * sigmoid(x)
            * (0.5 * (1 - np.tanh(x * 0.5) ** 2) + np.tanh(x * 0.5) * (1 - sigmoid(x))),
        ),
    ),
    "overwritten": Op(overwritten, overwritten_plain, overwritten_backward, 2),
    "forgotten_twice": Op(
        forgotten_twice,
        lambda x, y: np.tanh(x * 0.5) * sigmoid(x) + y * 0.5,
        lambda gy, x, y: (*FORMULAS["forgotten"].backward(gy, x), gy * 0.5),
        2,
    ),
    "users": Op(lambda x: ShiftedSquare()(x), squared, lambda gy, x: (gy * (x - 0.5),)),
    "joined": Op(
        lambda x, y: F.softmax(x * y) - F.sigmoid(x),
        lambda x, y: softmax(x * y) - sigmoid(x),
        lambda gy, x, y: joined_backward(gy, x, y),
        2,
    ),
}  # fmt: skip
"""Operations of programs: `OPS`, and more that need constants or several inputs."""
SHARED = ("reshape", "unlink")
"""Operations whose output aliases their input after the next run."""
FORGETS = ("forgotten", "forgotten_twice")
"""Operations that are always recomputed for a backward run."""
UNARY = tuple(name for name, op in FORMULAS.items() if op.n_inputs == 1)
"""Names of the operations with one input."""
NAMES = tuple(name for name in FORMULAS if name not in ("relu", "weighed"))
"""Operations that programs choose from. `relu` is left out, since rounding may cross its kink."""


def joined_backward(gy: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the gradients of `joined`."""
    p, s = softmax(x * y), sigmoid(x)
    g = p * (gy - (gy * p).sum(-1, keepdims=True))
    return g * y - gy * s * (1 - s), g * x


BEGINNINGS = itertools.count(0, 1_000_000)
"""Initial versions. No two arrays start with the same one."""


class Memory:
    """The record of an array. `known`: the values are known. `sure`: reading them must succeed."""

    def __init__(self, value: np.ndarray, known: bool = True, part_of: Memory | None = None) -> None:
        """Begins a record of `value`, or of a part of the array `part_of`."""
        self.value = value if part_of is not None else np.array(value, np.float64)
        self.known = self.sure = known
        self.root = self if part_of is None else part_of.root
        self.version = next(BEGINNINGS)
        self.epoch = 0
        """Counts replacements of the memory."""
        self.largest = 0.0
        """Largest magnitude since the last lazy zeroing. Rounding errors of sums are proportional to it."""

    def write(self, value: Any) -> None:
        """Writes new values. The version counts changes of values only."""
        if not self.known or not np.array_equal(self.value, np.broadcast_to(value, self.value.shape), equal_nan=True):
            self.root.version += 1
        self.value[...] = value
        self.known = self.sure = True
        self.largest = max(self.largest, np.abs(self.value).max(initial=0.0))

    def zero(self) -> None:
        """Records a lazy zeroing: NumPy views made before it may not show the zeros."""
        self.write(0)
        self.epoch += 1
        self.largest = 0.0

    def forget(self) -> None:
        """Marks the values as unknown."""
        self.root.version += 1
        self.known = self.sure = False


class Pair:
    """The records of an array and of its gradient, which several variables may share."""

    def __init__(self, value: np.ndarray, known: bool = True) -> None:
        """Begins the records of an array with this value and of its gradient, which is zero."""
        self.data = Memory(value, known)
        self.grad = Memory(np.zeros_like(self.data.value))


class Node(GraphNode):
    """A variable with its inputs and its arrays."""

    def __init__(self, variable: nn.Variable | None, pair: Pair, op: str | None = None, inputs: Sequence[Node] = ()):
        """Makes the node of a leaf, or of the result of the operation `op` on `inputs`."""
        self.variable, self.pair, self.op, self.inputs = variable, pair, op, tuple(inputs)
        self.need_grad: bool | None = None
        self.persistent = self.recompute = self.is_weight = False
        self.seen: tuple[tuple[Memory, int], ...] | None = None
        """Versions of the inputs and of this node at the last run. None if it must be computed again."""
        self.read: tuple[tuple[Memory, int], ...] = ()
        """Versions of the inputs at the last computation."""
        self.kept: frozenset[Node] | None = frozenset()
        """Nodes from which a backward run still finds the values of this node. None for all nodes."""
        self.budgeted = False
        """True if the last run had a memory budget. `autodiff` may then clear values that it has read."""
        self.hooks: list[tuple[Any, float]] = []
        """Hooks on the gradient: handle and factor."""

    def functions(self) -> Iterator[Node]:
        """Yields the computed nodes among this node and all that it depends on."""
        return (node for node in self.above() if node.op is not None)

    def leaves(self) -> Iterator[Node]:
        """Yields the leaves that this node depends on."""
        return (node for node in self.above() if node.op is None)

    def versions(self) -> tuple[tuple[Memory, int], ...]:
        """Returns the memory of the inputs and of this node, and how often its values have changed."""
        return tuple((x.pair.data, x.pair.data.root.version) for x in (*self.inputs, self))

    def formula(self) -> Callable[..., Any]:
        """Returns the NumPy version of the operation."""
        return FORMULAS[self.op or ""].forward

    def compute(self) -> None:
        """Computes the value from the inputs."""
        if self.op in SHARED:
            self.pair.data = self.inputs[0].pair.data
            self.seen = self.versions()
            return
        value = self.formula()(*(x.pair.data.value for x in self.inputs))
        if value.shape != self.pair.data.value.shape:
            self.pair.data, self.pair.grad = Memory(value), Memory(np.zeros_like(value))
        elif self.read != self.versions()[:-1]:
            self.pair.data.root.version += 1  # its inputs may have changed unseen
        self.pair.data.write(value)
        self.seen = self.versions()
        self.read = self.seen[:-1]

    def is_fresh(self) -> bool:
        """True if no value that this node depends on has changed since the last run."""
        return all(n.seen == n.versions() for n in self.functions())

    def is_ready(self) -> bool:
        """True if a backward run from here must succeed: all values that it reads are computed and unchanged."""
        kept = all(n.kept is None or self in n.kept for n in self.functions())
        return self.is_fresh() and kept and all(x.pair.grad.sure for x in self.leaves())

    def gradients(self, start: np.ndarray, hooked: bool = True) -> dict[Node, np.ndarray]:
        """Returns the gradients of the nodes that take part, from the gradient `start` of this node. Applies hooks if
        `hooked`.
        """
        wanted = self.wanted()
        found = {self: start}
        for node in reversed(self.above()):
            if node not in found:
                continue
            for _, factor in node.hooks if hooked else ():
                found[node] = found[node] * factor
            if node.op is None or not any(wanted[x] for x in node.inputs):
                continue
            gx = FORMULAS[node.op].backward(found[node], *(x.pair.data.value for x in node.inputs))
            for x, g in zip(node.inputs, gx, strict=True):
                if wanted[x]:
                    found[x] = found.get(x, 0) + g
        return found


def tangled(inputs: Sequence[Node]) -> bool:
    """True if an array is both a leaf and written by a function, so that results depend on the order of functions."""
    above = {n for x in inputs for n in x.above()}
    written = [n.pair.data.root for n in above if n.op is not None and n.op not in SHARED]
    leaves = {n.pair.data.root for n in above if n.op is None}
    return len(written) != len(set(written)) or not leaves.isdisjoint(written)
