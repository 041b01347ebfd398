"""A graph in plain NumPy, to compare the engine with. It has no memory management, ordering, clearing or plans.

All nodes of a graph have one shape, so that any operation can take any node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Arrays = Sequence[np.ndarray]


def near(got: Any, expected: Any) -> None:
    """Asserts that float64 numbers agree up to rounding."""
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-11)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Returns the logistic function of `x`, without an overflow for any `x`."""
    return np.exp(-np.logaddexp(0, -x))


def softmax(x: np.ndarray) -> np.ndarray:
    """Returns the softmax over the last axis."""
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def softmax_backward(gy: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the gradient of `softmax`."""
    y = softmax(x)
    return (y * (gy - (gy * y).sum(-1, keepdims=True)),)


def turned(x: Any) -> Any:
    """Splits an array into rows and stacks them in reverse order."""
    return F.stack(*reversed(F.split(x)))


def beside(x: Any, y: Any) -> Any:
    """Concatenates two arrays of n rows, and returns rows 1 to n of the result."""
    n = x.shape[0]
    return F.slice(F.concatenate(x, y, axis=0), (1, 0), (n + 1, 3))


def beside_plain(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The NumPy version of `beside`."""
    return np.concatenate((x, y))[1 : len(x) + 1]


def beside_backward(gy: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, ...]:
    """Returns the gradients by `x` and `y` of `beside`, which joins rows of two arrays."""
    gx, g = np.zeros_like(x), np.zeros_like(y)
    gx[1:], g[:1] = gy[:-1], gy[-1:]
    return gx, g


class Op:
    """An operation: the library's function, the NumPy version and the derivative."""

    def __init__(
        self, build: Callable[..., Any], forward: Callable[..., Any], backward: Callable[..., Any], n: int = 1
    ):
        """Makes an operation of `n` inputs. `backward` maps the output gradient and inputs to gradients."""
        self.build, self.forward, self.backward, self.n_inputs = build, forward, backward, n


OPS = {
    "tanh": Op(F.tanh, np.tanh, lambda gy, x: (gy * (1 - np.tanh(x) ** 2),)),
    "sigmoid": Op(F.sigmoid, sigmoid, lambda gy, x: (gy * sigmoid(x) * (1 - sigmoid(x)),)),
    "relu": Op(F.relu, lambda x: np.maximum(x, 0), lambda gy, x: (gy * (x > 0),)),
    "sin": Op(F.sin, np.sin, lambda gy, x: (gy * np.cos(x),)),
    "half": Op(lambda x: x * 0.5, lambda x: x * 0.5, lambda gy, x: (gy * 0.5,)),
    "one_minus": Op(lambda x: 1 - x, lambda x: 1 - x, lambda gy, x: (-gy,)),
    "identity": Op(F.identity, lambda x: x, lambda gy, x: (gy,)),
    "reshape": Op(lambda x: F.reshape(F.reshape(x, (3, -1)), x.shape), lambda x: x, lambda gy, x: (gy,)),
    "transpose": Op(
        lambda x: F.transpose(F.flip(F.transpose(x, (1, 0)), 0), (1, 0)),
        lambda x: x[:, ::-1],
        lambda gy, x: (gy[:, ::-1],),
    ),
    "softmax": Op(F.softmax, softmax, softmax_backward),
    "cumsum": Op(
        lambda x: F.cumsum(x, 1) * 0.3,
        lambda x: np.cumsum(x, 1) * 0.3,
        lambda gy, x: (np.cumsum(gy[:, ::-1], 1)[:, ::-1] * 0.3,),
    ),
    "turned": Op(turned, lambda x: x[::-1], lambda gy, x: (gy[::-1],)),
    "centred": Op(
        lambda x: x - F.broadcast(F.mean(x, 1, keepdims=True), x.shape),
        lambda x: x - x.mean(1, keepdims=True),
        lambda gy, x: (gy - gy.mean(1, keepdims=True),),
    ),
    "unlink": Op(F.unlink, lambda x: x, lambda gy, x: (np.zeros_like(x),)),
    "add": Op(lambda x, y: x + y, lambda x, y: x + y, lambda gy, x, y: (gy, gy), 2),
    "sub": Op(lambda x, y: x - y, lambda x, y: x - y, lambda gy, x, y: (gy, -gy), 2),
    "mul": Op(lambda x, y: x * y, lambda x, y: x * y, lambda gy, x, y: (gy * y, gy * x), 2),
    "beside": Op(beside, beside_plain, beside_backward, 2),
    "add_n": Op(lambda x, y, z: F.add_n(x, y, z), lambda x, y, z: x + y + z, lambda gy, x, y, z: (gy, gy, gy), 3),
}
"""Operations of random graphs, by name."""
OF_ONE_SHAPE = ("reshape", "turned", "centred", "beside")
"""Operations whose arguments fit only the shape that they were built for."""
SMALL = ("tanh", "sigmoid", "half", "sin")
"""Operations with small results, so that products of products stay finite."""


class GraphNode:
    """A variable of a graph: a leaf, or the result of the operation `op` on other nodes, the `inputs`."""

    op: str | None
    inputs: tuple[Any, ...]
    need_grad: bool | None
    """Whether gradients flow here; None if that follows from the inputs."""

    def above(self) -> list[Any]:
        """Returns this node and all nodes that it depends on, inputs first."""
        found: dict[Any, None] = {}
        stack: list[tuple[Any, bool]] = [(self, False)]
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

    def wanted(self) -> dict[Any, bool]:
        """Returns, for this node and all that it depends on, if a gradient flows to it."""
        takes_part: dict[Any, bool] = {}
        for node in self.above():
            follows = any(takes_part[x] for x in node.inputs)
            takes_part[node] = follows if node.need_grad is None else node.need_grad
        return takes_part


class Node(GraphNode):
    """A variable: a leaf with a value, or the result of an operation on other nodes."""

    def __init__(self, value: np.ndarray | None = None, op: str | None = None, inputs: Sequence[Node] = ()) -> None:
        """Makes a leaf with a value, or the result of the operation `op` on `inputs`."""
        self.value, self.op, self.inputs = value, op, tuple(inputs)
        self.need_grad: bool | None = None

    def __repr__(self) -> str:
        """Lists the nodes as text, inputs first, so that Hypothesis can print a failing graph."""
        numbers = {node: i for i, node in enumerate(self.above())}
        return "; ".join(
            f"{i} = {n.op or 'leaf'}{[numbers[x] for x in n.inputs] if n.op else n.need_grad}"
            for n, i in numbers.items()
        )

    def evaluate(self) -> dict[Node, np.ndarray]:
        """Returns the values of this node and of all nodes that it depends on."""
        values: dict[Node, Any] = {}
        for node in self.above():
            of_inputs = [values[x] for x in node.inputs]
            values[node] = node.value if node.op is None else OPS[node.op].forward(*of_inputs)
        return values

    def gradients(self, start: np.ndarray | None = None) -> dict[Node, np.ndarray]:
        """Returns the gradients of all nodes that take part. The gradient at this node is `start`, or ones."""
        values, wanted = self.evaluate(), self.wanted()
        found = {self: np.ones_like(values[self]) if start is None else start}
        for node in reversed(self.above()):
            if node.op is None or node not in found:
                continue
            if not any(wanted[x] for x in node.inputs):
                continue
            gx = OPS[node.op].backward(found[node], *(values[x] for x in node.inputs))
            for x, g in zip(node.inputs, gx, strict=True):
                if wanted[x]:
                    found[x] = found.get(x, 0) + g
        return found
