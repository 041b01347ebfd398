"""What arrays of a program should hold, written down by NumPy as the program goes: the truth for `programs.py`.

It knows memory (what shares an array, what may have been cleared, what nobody can know any more) and how a value comes
about; it knows no plans, no fusion, no order of runs, and of the library only the calls that build functions.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import numpy as np
from plain_graph import OPS, Op, softmax

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

GRID = np.random.RandomState(1).uniform(-0.5, 0.5, (3, 3))
ROW = np.array([0.5, -1.0, 0.25])


class ShiftedSquare(F.PythonFunction):
    """A function of the user's."""

    def min_outputs(self) -> int:
        return 1

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        return False

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        return True

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        outputs[0].reset_shape(inputs[0].shape, True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        outputs[0].d = squared(inputs[0].d.astype(np.float64))

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        if propagate_down[0]:
            g = outputs[0].g * (inputs[0].d - 0.5)
            inputs[0].g = inputs[0].g + g if accum[0] else g


def squared(x: Any) -> Any:
    return (x - 0.5) ** 2 * 0.5


def normalized(x: np.ndarray) -> np.ndarray:
    c = x - x.mean(1, keepdims=True)
    return c / np.sqrt((c * c).mean(1, keepdims=True) + 0.5)


def normalized_backward(gy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    c = x - x.mean(1, keepdims=True)
    s = np.sqrt((c * c).mean(1, keepdims=True) + 0.5)
    y = c / s
    return ((gy - gy.mean(1, keepdims=True) - y * (gy * y).mean(1, keepdims=True)) / s,)


def normalization(x: Any) -> Any:
    one, zero = nn.Variable((1, 3)), nn.Variable((1, 3))
    one.d, zero.d = 1, 0
    return F.layer_normalization(x, zero, one, batch_axis=0, eps=0.5)


def replaced(x: Any, y: Any) -> Any:
    """A copy of the first with a column of the second, written in place."""
    h = x * 1.0
    h[:, 1] = y[:, 2] * 2.0
    return h


def replaced_plain(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    h = x.copy()
    h[:, 1] = y[:, 2] * 2
    return h


def replaced_backward(gy: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    gx, g = gy.copy(), np.zeros_like(gy)
    gx[:, 1], g[:, 2] = 0, gy[:, 1] * 2
    return gx, g


def overwritten(x: Any, y: Any) -> Any:
    """As `replaced`, where the gradient of the function that is written to reads what that gave."""
    h = F.tanh(x)
    h[:, 1] = y[:, 2] * 2.0
    return h


def overwritten_plain(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return replaced_plain(np.tanh(x), y)


def overwritten_backward(gy: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    gx, g = replaced_backward(gy, x, y)
    return gx * (1 - np.tanh(x) ** 2), g


def forgotten_twice(x: Any, y: Any) -> Any:
    """A segment within a segment, both of which leave one of their inputs alone."""

    def segment(u: Any, unused: Any, v: Any) -> Any:
        return F.forget(lambda a, _: F.tanh(a * 0.5), u, unused) * F.sigmoid(u) + v * 0.5

    return F.forget(segment, x, y, y)


def constant(a: np.ndarray) -> nn.Variable:
    return nn.Variable.from_numpy_array(a)


def first_row(x: Any) -> Any:
    """The first row added to half of each."""
    return F.embed(constant(np.zeros(x.shape[0], np.int32)), x) + x * 0.5


def first_row_backward(gy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    gx = gy * 0.5
    gx[0] += gy.sum(0)
    return (gx,)


def picked_backward(gy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    gx = np.zeros_like(x)
    np.add.at(gx, (slice(None), [2, 0, 2]), gy)
    return (gx,)


def correlated_backward(gy: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
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
        lambda x: np.tanh(x * 0.5) / (1 + np.exp(-x)),
        lambda gy, x: (
            gy
            / (1 + np.exp(-x))
            * (0.5 * (1 - np.tanh(x * 0.5) ** 2) + np.tanh(x * 0.5) * (1 - 1 / (1 + np.exp(-x)))),
        ),
    ),
    "overwritten": Op(overwritten, overwritten_plain, overwritten_backward, 2),
    "forgotten_twice": Op(
        forgotten_twice,
        lambda x, y: np.tanh(x * 0.5) / (1 + np.exp(-x)) + y * 0.5,
        lambda gy, x, y: (*FORMULAS["forgotten"].backward(gy, x), gy * 0.5),
        2,
    ),
    "users": Op(lambda x: ShiftedSquare()(x), squared, lambda gy, x: (gy * (x - 0.5),)),
    "joined": Op(
        lambda x, y: F.softmax(x * y) - F.sigmoid(x),
        lambda x, y: softmax(x * y) - 1 / (1 + np.exp(-x)),
        lambda gy, x, y: joined_backward(gy, x, y),
        2,
    ),
}  # fmt: skip
SHARED = ("reshape", "unlink")
"""What gives the memory of its input another name, with the next run."""
FORGETS = ("forgotten", "forgotten_twice")
"""What is computed again for the backward run, whatever the program says."""
UNARY = tuple(name for name, op in FORMULAS.items() if op.n_inputs == 1)
NAMES = tuple(name for name in FORMULAS if name not in ("relu", "weighed"))
"""Those that a program draws from. A relu has a kink, which rounding may cross."""


def joined_backward(gy: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    p, s = softmax(x * y), 1 / (1 + np.exp(-x))
    g = p * (gy - (gy * p).sum(-1, keepdims=True))
    return g * y - gy * s * (1 - s), g * x


BEGINNINGS = itertools.count(0, 1_000_000)
"""First versions: no two arrays share one."""


class Memory:
    """An array: its numbers if anybody can know them, and whether reading it has to succeed."""

    def __init__(self, value: np.ndarray, known: bool = True, part_of: Memory | None = None) -> None:
        self.value = value if part_of is not None else np.array(value, np.float64)
        self.known = self.sure = known
        self.root = self if part_of is None else part_of.root
        self.version = next(BEGINNINGS)
        self.epoch = 0
        """Counts what may have put other memory in the place of this."""

    def write(self, value: Any) -> None:
        """New numbers. The version counts changes of numbers only."""
        if not self.known or not np.array_equal(self.value, np.broadcast_to(value, self.value.shape), equal_nan=True):
            self.root.version += 1
        self.value[...] = value
        self.known = self.sure = True

    def zero(self) -> None:
        """Zeros that are written when somebody looks: views of before may not see them."""
        self.write(0)
        self.epoch += 1

    def forget(self) -> None:
        """Nobody knows what it holds from here on."""
        self.root.version += 1
        self.known = self.sure = False


class Pair:
    """Values and gradient, which several variables may share."""

    def __init__(self, value: np.ndarray, known: bool = True) -> None:
        self.data = Memory(value, known)
        self.grad = Memory(np.zeros_like(self.data.value))


class Node:
    """A variable: what it is computed from, and where."""

    def __init__(self, variable: nn.Variable | None, pair: Pair, op: str | None = None, inputs: Sequence[Node] = ()):
        self.variable, self.pair, self.op, self.inputs = variable, pair, op, tuple(inputs)
        self.need_grad: bool | None = None
        self.persistent = self.recompute = self.is_weight = False
        self.seen: tuple[int, ...] | None = None
        """Versions of the inputs and of itself when it was computed; None: it has to be computed again."""
        self.read: tuple[int, ...] = ()
        """Versions of the inputs when it was computed last."""
        self.kept: frozenset[Node] | None = frozenset()
        """For gradients of which nodes its values were kept; None: for all."""
        self.hooks: list[tuple[Any, float]] = []
        """Handles of hooks on its gradient, and by what they multiply it."""

    def above(self) -> list[Node]:
        """Itself and all that it depends on, each after its inputs."""
        found: dict[Node, None] = {}
        stack: list[tuple[Node, bool]] = [(self, False)]
        while stack:
            node, ready = stack.pop()
            if node in found:
                continue
            if ready:
                found[node] = None
            else:
                stack.append((node, True))
                stack.extend((x, False) for x in node.inputs if x not in found)
        return list(found)

    def functions(self) -> Iterator[Node]:
        """Those above that are computed, itself among them."""
        return (node for node in self.above() if node.op is not None)

    def leaves(self) -> Iterator[Node]:
        """Those above that are not."""
        return (node for node in self.above() if node.op is None)

    def versions(self) -> tuple[int, ...]:
        return tuple(x.pair.data.root.version for x in (*self.inputs, self))

    def wanted(self) -> dict[Node, bool]:
        """Which of those above take part in differentiation."""
        takes_part: dict[Node, bool] = {}
        for node in self.above():
            follows = any(takes_part[x] for x in node.inputs)
            takes_part[node] = follows if node.need_grad is None else node.need_grad
        return takes_part

    def formula(self) -> Callable[..., Any]:
        return FORMULAS[self.op or ""].forward

    def compute(self) -> None:
        """Writes its value from those of its inputs."""
        if self.op in SHARED:
            self.pair.data = self.inputs[0].pair.data
            self.seen = self.versions()
            return
        value = self.formula()(*(x.pair.data.value for x in self.inputs))
        if value.shape != self.pair.data.value.shape:
            self.pair.data, self.pair.grad = Memory(value), Memory(np.zeros_like(value))
        elif self.read != self.versions()[:-1]:
            self.pair.data.root.version += 1  # what it is computed from may have changed, for all that is known
        self.pair.data.write(value)
        self.seen = self.versions()
        self.read = self.seen[:-1]

    def is_fresh(self) -> bool:
        """Whether all above is as the last runs left it, so that a gradient is that of the values."""
        return all(n.seen == n.versions() for n in self.functions())

    def is_ready(self) -> bool:
        """Whether a backward run has to find all that it reads."""
        kept = all(n.kept is None or self in n.kept for n in self.functions())
        return self.is_fresh() and kept and all(x.pair.grad.sure for x in self.leaves())

    def gradients(self, start: np.ndarray, hooked: bool = True) -> dict[Node, np.ndarray]:
        """The gradients of those that take part. `nn.grad` calls no hooks."""
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
    """Whether something above would be written by a function and be a leaf too, so that numbers depend on the order."""
    above = {n for x in inputs for n in x.above()}
    written = [n.pair.data.root for n in above if n.op is not None and n.op not in SHARED]
    leaves = {n.pair.data.root for n in above if n.op is None}
    return len(written) != len(set(written)) or not leaves.isdisjoint(written)
