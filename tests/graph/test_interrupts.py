"""Ctrl-C stops a kernel in the middle. Its partial output cannot be read."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

rng = np.random.RandomState(0)


def real(*shape: int) -> nn.Variable:
    """Returns a leaf of random numbers."""
    values = np.resize(rng.standard_normal(100_003).astype(np.float32), shape)
    return nn.Variable.from_numpy_array(values, need_grad=True)


KERNELS: dict[str, Callable[[int], nn.Variable]] = {
    "sort of one line": lambda n: F.sort(real(n << 19), axis=0),
    "sort of lines": lambda n: F.sort(real(n << 9, 1 << 10), axis=1),
    "gamma": lambda n: F.rand_gamma(2.0, 1.0, (n << 17,)),
    "product": lambda n: F.affine(real(n << 9, 1 << 10), real(1 << 10, 1 << 10)),
    "convolution": lambda n: F.convolution(real(n, 32, 64, 64), real(32, 32, 5, 5), pad=(2, 2)),
}
"""By name: one function whose time grows with `n`. An interrupt must stop it midway."""
LEAST = 0.25
"""The least run time of a kernel, in seconds."""


@pytest.fixture(autouse=True)
def _interrupts() -> Iterator[None]:
    """Sets Python's own handler of interrupts during the test."""
    # A shell makes programs in the background ignore interrupts, and Python keeps that setting.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupted(run: Callable[[], None], after: float) -> float:
    """Sends an interrupt `after` seconds into a run. Returns the seconds from the interrupt to the end of the run."""
    sent = [0.0]

    def send() -> None:
        """Sends the interrupt and records the time."""
        sent[0] = time.perf_counter()
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(after, send)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run()
        timer.join()
        time.sleep(1)  # the interrupt is raised once the kernel is over
    took = time.perf_counter() - sent[0]
    timer.join()
    return took


def timed(run: Callable[[], None]) -> float:
    """Returns the seconds of a run."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def long(make: Callable[[int], nn.Variable]) -> tuple[nn.Variable, float]:
    """Makes a function with more and more elements until a run takes `LEAST` seconds.

    Returns its output and that time.
    """
    n = 1
    while True:
        y = make(n)
        y.forward()
        took = min(timed(y.forward) for _ in range(3))  # best of three, since the machine may be busy
        if took > LEAST:
            return y, took
        n *= max(2, min(8, int(1.5 * LEAST / took)))


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_interrupt_stops_a_kernel(kernel: str) -> None:
    """SIGINT stops each kind of long kernel, clears its output, and the next run is right."""
    y, whole = long(KERNELS[kernel])
    assert interrupted(y.forward, whole / 10) < whole / 2
    with pytest.raises(nn.ClearedError):
        _ = y.d
    y.forward()
    assert np.isfinite(y.d).all()


def test_an_interrupt_stops_the_construction_of_a_value_dependent_shape() -> None:
    x = nn.Variable.from_numpy_array(np.resize(np.array([0, 1, 1], np.float32), (1 << 24,)))
    with nn.auto_forward():
        start = time.perf_counter()
        F.nonzero(x)
        whole = time.perf_counter() - start
        for part in (0.1, 0.4):
            assert interrupted(lambda: F.nonzero(x), whole * part) < max(0.1, whole / 2)


def test_a_partially_written_gradient_is_cleared() -> None:
    """After an interrupted backward run, no partial gradient can be read."""
    y, _ = long(KERNELS["convolution"])
    w = y.parent.inputs[1]
    y.backward(1.0)
    w.grad.zero()
    start = time.perf_counter()
    y.backward(1.0)
    whole = time.perf_counter() - start
    expected = w.g.copy()
    is_cleared = False
    for part in (0.5, 0.3, 0.2, 0.1):  # a run may end before its interrupt if the measured one was slower
        w.grad.zero()
        assert interrupted(lambda: y.backward(1.0), whole * part) < whole
        try:
            np.testing.assert_array_equal(w.g, expected)
        except nn.ClearedError:
            is_cleared = True
            break
    assert is_cleared
    for v in y.parent.inputs:
        v.grad.zero()
    y.backward(1.0)
    np.testing.assert_array_equal(w.g, expected)


def test_a_handler_that_returns_changes_nothing() -> None:
    """A signal handler that returns, and runs a kernel itself, does not change the result."""
    y, whole = long(KERNELS["product"])
    expected = y.d.copy()
    inner = nn.NdArray.from_numpy_array(np.ones((64, 64), np.float32))
    seen: list[float] = []
    signal.signal(signal.SIGINT, lambda *_: seen.append(F.sum(F.affine(inner, inner)).data.item()))
    timers = [threading.Timer(whole * part, os.kill, (os.getpid(), signal.SIGINT)) for part in (0.2, 0.6)]
    for timer in timers:
        timer.start()
    y.forward()
    for timer in timers:
        timer.join()
    assert seen == [64.0**3] * 2
    np.testing.assert_array_equal(y.d, expected)


def test_an_update_moves_all_parameters_or_none() -> None:
    """An interrupt never leaves some parameters updated and others not."""
    parameters = {str(i): real(1 << 20) for i in range(8)}
    solver = S.Sgd(lr=1.0)
    solver.set_parameters(parameters)
    for p in parameters.values():
        p.d = 0.0
        p.g = 1.0

    def updates() -> None:
        """Updates parameters until interrupted."""
        while True:
            solver.update()

    for tries in range(5):
        interrupted(updates, 0.01 + 0.007 * tries)
        assert len({p.d[0] for p in parameters.values()}) == 1
