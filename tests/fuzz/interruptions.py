"""Interrupts runs: a hook or a user's function raises at each place, or Ctrl-C arrives at any moment.

Afterwards the graph must give the same bits as a fresh graph on the same values.
"""

from __future__ import annotations

import contextlib
import random
import signal
from typing import TYPE_CHECKING, Any

import numpy as np
from support import UnaryFunction, same

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

R = np.random.RandomState(0)
IMAGES = R.randn(4, 2, 8, 8).astype(np.float32)
"""Input of the convolutional network."""
ROWS = R.randn(6, 5).astype(np.float32)
"""Input of the network of layers."""


class Stop(Exception):
    """Raised to interrupt a run."""


class Doubled(UnaryFunction):
    """A user's function that doubles its input. It raises in the method `where`, after `left` successful calls."""

    where = ""
    """The method that raises, or empty for none."""
    left = 0
    """Number of calls of that method that still succeed."""

    def meet(self, method: str) -> None:
        """Raises `Stop` if `method` is the one to fail and all its `left` calls are used. Each method calls this."""
        if Doubled.where == method:
            Doubled.left -= 1
            if Doubled.left < 0:
                raise Stop(method)

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        """Gives the output the shape of the input. May raise."""
        self.meet("setup")
        outputs[0].reset_shape(inputs[0].shape, True)

    def forward_impl(self, inputs: Any, outputs: Any) -> None:
        """Doubles the input. May raise."""
        outputs[0].d = inputs[0].d * 2
        self.meet("forward")

    def backward_impl(self, inputs: Any, outputs: Any, propagate_down: Any, accum: Any) -> None:
        """Computes the gradient of the input, and adds it to the old one if `accum` is set."""
        self.meet("backward")
        g = outputs[0].g * 2
        inputs[0].g = inputs[0].g + g if accum[0] else g


def layers() -> nn.Variable:
    """Returns the loss of a network of affine layers with three of the user's functions."""
    x = nn.Variable.from_numpy_array(ROWS)
    h = F.tanh(PF.affine(x, 7, name="a"))
    h = F.layer_normalization(h, *ones(7)) + F.sigmoid(PF.affine(h, 7, name="b"))
    return F.mean(F.softmax(Doubled()(h)) * Doubled()(F.sin(Doubled()(h)) * h))


def ones(n: int) -> tuple[nn.Variable, nn.Variable]:
    """Returns a shift and a scale for `n` features."""
    beta, gamma = nn.Variable((1, n)), nn.Variable((1, n))
    beta.d, gamma.d = 0.1, 1.0
    return beta, gamma


def images() -> nn.Variable:
    """Returns the loss of a convolutional network."""
    h = PF.convolution(nn.Variable.from_numpy_array(IMAGES), 4, (3, 3), pad=(1, 1), name="c")
    h = F.max_pooling(F.relu(PF.batch_normalization(h, name="n")), (2, 2))
    return F.mean(F.forget(lambda v: F.exp(F.tanh(v)), h) + F.reshape(h, h.shape))


def branches() -> nn.Variable:
    """Returns the loss of a network that splits, concatenates, recomputes and assigns in place."""
    x = PF.affine(nn.Variable.from_numpy_array(ROWS), 4, name="d")
    with nn.recompute():
        h = F.concatenate(*(F.sin(F.split(x, axis=1)[i] * (i + 1.0)) for i in range(4)), axis=0)
    h[0] = 0.5
    return F.sum(F.sort(h, axis=0) * F.cumsum(h, axis=0))


NETWORKS: dict[str, Callable[[], nn.Variable]] = {"layers": layers, "images": images, "branches": branches}
"""Builds the loss of a network, by name."""


@contextlib.contextmanager
def network(name: str) -> Iterator[nn.Variable]:
    """Builds a network by name with fresh parameters, always the same values."""
    nn.clear_parameters()
    nn.random.set_parameter_seed(7)
    try:
        yield NETWORKS[name]()
    finally:
        nn.clear_parameters()


def values() -> dict[str, np.ndarray]:
    """Returns copies of all parameters by path."""
    return {n: v.d.copy() for n, v in nn.get_parameters(grad_only=False).items()}


def put(saved: dict[str, np.ndarray]) -> None:
    """Writes the parameters `saved` back, and zeroes their gradients."""
    for n, v in nn.get_parameters(grad_only=False).items():
        v.d = saved[n]
        v.grad.zero()


def step(loss: nn.Variable, **hooks: Any) -> None:
    """Runs forward and backward, with memory freed on the way."""
    loss.forward(clear_no_need_grad=True, **hooks)
    loss.backward(clear_buffer=True, **hooks)


def outcome(loss: nn.Variable, saved: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Returns losses, gradients and parameters of two steps from the saved parameters."""
    put(saved)
    found = []
    for _ in range(2):
        step(loss)
        found += [loss.d.copy(), *(v.g.copy() for v in nn.get_parameters().values()), *values().values()]
    return found


def thrown(name: str) -> int:
    """Interrupts network `name` by a hook before and after each function. Returns the number of interruptions."""
    with network(name) as fresh:
        saved = values()
        expected = outcome(fresh, saved)
    count = 0
    with network(name) as loss:
        for when in ("pre", "post"):
            for at in range(1000):
                left = [at]

                def hook(f: Any, left: list[int] = left) -> None:
                    """A hook that raises after a number of calls."""
                    left[0] -= 1
                    if left[0] < 0:
                        raise Stop(f.info.type_name)

                try:
                    step(loss, **{f"function_{when}_hook": hook})
                    break
                except Stop:
                    count += 1
                same(outcome(loss, saved), expected, f"{name}, thrown {when} function {at}")
    return count


def thrown_by_users() -> int:
    """Interrupts a network by errors in each method of the user's functions. Returns the number of interruptions."""
    with network("layers") as fresh:
        saved = values()
        expected = outcome(fresh, saved)
    count = 0
    with network("layers") as loss:
        for where in ("forward", "backward", "setup"):
            for at in range(100):
                Doubled.where, Doubled.left = where, at
                try:
                    layers() if where == "setup" else step(loss)
                    break
                except Stop:
                    count += 1
                finally:
                    Doubled.where = ""
                same(outcome(loss, saved), expected, f"{where}, call {at}")
    return count


def interrupted(name: str, seed: int, times: int) -> int:
    """Sends Ctrl-C at random moments of training. Returns how many times it arrived within a run."""
    choose = random.Random(seed)
    with network(name) as fresh:
        first = values()
        outcome(fresh, first)
    count = 0
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(times):
            with network(name) as loss:
                solver = S.Adam(1e-3)
                solver.set_parameters(nn.get_parameters())
                try:
                    signal.setitimer(signal.ITIMER_REAL, choose.random() * 0.01 + 1e-6)
                    for _ in range(500):
                        solver.zero_grad()
                        step(loss)
                        solver.update()
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except KeyboardInterrupt:
                    count += 1
                reached = values()
                got = outcome(loss, reached)
            with network(name) as fresh:
                same(got, outcome(fresh, reached), f"{name} after an interruption")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    return count
