"""`detect_anomaly` names the first function with non-finite results, and where it was built."""

import re
from pathlib import Path

import numpy as np
import pytest
from support import leaf

import kinnor as nn
import kinnor.functions as F
from kinnor import autodiff

HERE = Path(__file__).name
"""The name of this file, which errors contain."""


def built_at(error):
    """Returns the source line and the function that an error reports."""
    found = re.findall(rf"built at \S*{re.escape(HERE)}:(\d+), in (\w+)", str(error.value))
    assert found, str(error.value)
    line, function = found[-1]
    return Path(__file__).read_text().splitlines()[int(line) - 1].strip(), function


@pytest.fixture(params=["static", "dynamic"])
def run(request):
    """Returns a function that runs a variable, in static and in eager mode."""
    with nn.auto_forward(request.param == "dynamic"):
        yield (lambda y: None) if request.param == "dynamic" else (lambda y: y.forward())


def test_forward(run):
    """In anomaly mode, a forward run raises at an infinity. The error names the line that built the function."""
    x = leaf(0, 1)
    with autodiff.detect_anomaly(), pytest.raises(RuntimeError, match=r"forward: .* got Inf in output 0 of log") as e:
        y = F.log(x) * 2
        run(y)
    assert built_at(e) == ("y = F.log(x) * 2", "test_forward")


def test_nan_inputs_are_reported(run):
    """The error says that the input of the function was NaN already."""
    x = leaf(np.nan, 1)
    with autodiff.detect_anomaly(), pytest.raises(RuntimeError, match=r"NaN.*its input 0 held NaN already"):
        run(x * 2)


@pytest.mark.parametrize(
    "differentiate",
    [
        lambda y, x: y.backward(),
        lambda y, x: autodiff.backward(y),
        lambda y, x: autodiff.grad(y, x),
        lambda y, x: autodiff.grad(y, x, create_graph=True),
    ],
)
def test_backward(run, differentiate):
    """Each way to differentiate names the function whose gradient is not finite, and the line that built it."""
    x = leaf(0, 1)
    with autodiff.detect_anomaly():
        h = x**0.5
        y = F.sum(h * 3)
        run(y)
        with pytest.raises(RuntimeError, match="expected finite numbers, got") as e:
            differentiate(y, x)
    assert built_at(e) == ("h = x**0.5", "test_backward")


def test_functions_that_were_built_before():
    """A function that was built outside of the mode is reported with advice to build it inside."""
    x = leaf(0, 1)
    y = F.log(x)
    with autodiff.detect_anomaly(), pytest.raises(RuntimeError, match="build the graph inside of detect_anomaly"):
        y.forward()


def test_without_a_graph():
    """Eager functions under `no_grad` are checked too."""
    x = leaf(0, 1)
    words = pytest.raises(RuntimeError, match="output 0 of log")
    with nn.auto_forward(), nn.no_grad(), autodiff.detect_anomaly(), words as e:
        F.log(x)
    assert built_at(e)[1] == "test_without_a_graph"


def test_the_mode_ends():
    """The mode applies only within its block or decorated function, and can be disabled inside."""
    x = leaf(0, 1)
    with autodiff.detect_anomaly():
        with autodiff.detect_anomaly(False):
            F.log(x).forward()
        with pytest.raises(RuntimeError):
            F.log(x).forward()
    y = F.log(x)
    y.forward()
    assert y.d[0] == -np.inf and not y.parent.tags

    @autodiff.detect_anomaly()
    def decorated():
        """Computes the logarithm of an invalid value."""
        F.log(x).forward()

    with pytest.raises(RuntimeError):
        decorated()
    F.log(x).forward()


def test_finite_numbers_pass(run):
    """With anomaly detection, a run with finite values and gradients raises no error."""
    x = leaf(1, 2)
    with autodiff.detect_anomaly():
        y = F.sum(F.tanh(x))
        run(y)
        autodiff.backward(y)
    assert np.isfinite(x.g).all()
