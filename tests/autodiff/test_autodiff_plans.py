"""Cached plans of differentiation of static graphs: in-place gradients of leaves, failures, and fusion."""

from __future__ import annotations

import numpy as np
import pytest
from support import same

import kinnor as nn
import kinnor.functions as F
from kinnor import _core, autodiff


def layers(width: int = 64, n: int = 3) -> tuple[nn.Variable, list[nn.Variable]]:
    """Returns the loss of tanh layers, and their weights and biases."""
    rng = np.random.default_rng(5)

    def parameter(*shape: int) -> nn.Variable:
        """Returns a variable of normal values that requires a gradient."""
        return nn.Variable.from_numpy_array(rng.normal(size=shape).astype(np.float32) * 0.2, need_grad=True)

    h, parameters = nn.Variable.from_numpy_array(rng.normal(size=(8, width)).astype(np.float32)), []
    for _ in range(n):
        w, b = parameter(width, width), parameter(width)
        h = F.tanh(F.affine(h, w, b) * 0.9) + h * 0.5
        parameters += [w, b]
    return F.mean(h), parameters


def forward(loss: nn.Variable, parameters: list[nn.Variable]) -> None:
    """Runs forward and zeroes the gradients."""
    loss.forward(clear_no_need_grad=True)
    for p in parameters:
        p.grad.zero()


def gradients(parameters: list[nn.Variable]) -> list[np.ndarray]:
    """Returns copies of the gradients."""
    return [p.g.copy() for p in parameters]


def expected() -> list[np.ndarray]:
    """Returns the gradients by `Variable.backward`."""
    loss, parameters = layers()
    loss.forward()
    loss.backward()
    return gradients(parameters)


@pytest.mark.parametrize("retain", [None, True])
def test_repeated_steps_equal_a_backward_run_bit_by_bit(retain: bool | None) -> None:
    loss, parameters = layers()
    for _ in range(4):
        forward(loss, parameters)
        autodiff.backward(loss, retain_graph=retain)
        same(gradients(parameters), expected())


def test_a_graph_that_was_freed_is_refused_until_it_runs_again() -> None:
    loss, parameters = layers()
    for _ in range(3):
        forward(loss, parameters)
        autodiff.backward(loss)
        before = gradients(parameters)
        for again in autodiff.backward, nn.Variable.backward:
            with pytest.raises(autodiff.GraphFreedError):
                again(loss)
        same(gradients(parameters), before)


def test_existing_gradients_are_added_to() -> None:
    """A cached plan adds to gradients of leaves that are not zero."""
    loss, parameters = layers()
    once = expected()
    for n in range(6):
        if n % 3 == 0:
            forward(loss, parameters)
        else:
            loss.forward(clear_no_need_grad=True)
        autodiff.backward(loss)
        for p, g in zip(parameters, once, strict=True):
            np.testing.assert_allclose(p.g, (n % 3 + 1) * g, rtol=1e-5)


def test_arrays_held_by_the_caller_are_written_too() -> None:
    loss, parameters = layers()
    views = [p.g for p in parameters]
    for _ in range(3):
        forward(loss, parameters)
        autodiff.backward(loss)
        same(gradients(parameters), expected())
    del views


def test_a_gradient_that_aliases_a_value_is_written_after_the_value_is_read() -> None:
    loss, parameters = layers()
    w, b = parameters[-2:]
    other, others = layers()
    others[-1].d = 0
    for _ in range(4):
        b.d = 0
        b.grad = b.data
        forward(loss, parameters)
        autodiff.backward(loss)
        forward(other, others)
        autodiff.backward(other)
        np.testing.assert_array_equal(w.g, others[-2].g)
        np.testing.assert_array_equal(parameters[0].g, others[0].g)


def test_a_failed_run_does_not_change_gradients() -> None:
    loss, parameters = layers()
    for _ in range(3):
        forward(loss, parameters)
        autodiff.backward(loss)
    failed = 0
    for first in range(0, 40, 3):
        forward(loss, parameters)
        _core.clear_memory_cache()
        _core.fail_allocations(first, 1000)
        try:
            autodiff.backward(loss)
        except MemoryError:
            failed += 1
            assert not any(p.has_grad for p in parameters)
            assert not any(p.g.any() for p in parameters)
        finally:
            _core.fail_allocations()
        forward(loss, parameters)
        autodiff.backward(loss)
        same(gradients(parameters), expected())
    assert failed > 1


def test_a_long_chain_takes_no_more_memory_than_a_backward_run() -> None:
    x = nn.Variable.from_numpy_array(np.ones((100, 1000), np.float32), need_grad=True)
    y = x
    for _ in range(40):
        y = F.sort(F.sin(y))
    loss = F.sum(y)
    peaks = []
    for run in lambda: loss.backward(clear_buffer=True), lambda: autodiff.backward(loss):
        for _ in range(3):
            loss.forward(clear_no_need_grad=True)
            x.grad.zero()
            _core.clear_memory_cache()
            _core.reset_peak_memory()
            run()
        peaks.append(_core.memory_stats()["peak"])
    assert peaks[1] <= 1.02 * peaks[0]
