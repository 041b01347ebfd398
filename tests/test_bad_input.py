"""Whatever is thrown at the package, it answers with an exception that a caller expects, and changes nothing."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.initializer as I
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.monitor import MonitorSeries
from kinnor.utils.data_iterator import data_iterator, data_iterator_simple

THROWING = Path(__file__).with_name("throwing.py")


@pytest.mark.parametrize(
    ("kind", "count"), [("functions", 8000), ("members", 8000), ("solvers", 3000), ("constructors", 3000)]
)
def test_wrong_arguments(kind, count, tmp_path):
    note = tmp_path / "throw"
    command = [sys.executable, str(THROWING), kind, "0", str(count), str(note)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    last = note.read_bytes().rstrip().decode(errors="replace")
    assert done.returncode == 0, f"ended with {done.returncode} at {last}\n{done.stderr[-4000:]}"


def test_shapes_beyond_all_counting():
    x = nn.Variable((2, 3))
    with pytest.raises(nn.ShapeError, match="reshape"):
        F.reshape(x, (2**62, 4))
    with pytest.raises(MemoryError):
        F.pad(x, (2**62, 2**62))


def test_backward_after_a_refused_forward():
    """What the mask chooses is counted again: it may have changed."""
    x = nn.Variable((2, 3), need_grad=True)
    y = F.bool_scatter(x, nn.Variable.from_numpy_array(np.ones(4, np.float32)))
    for run in (y.forward, y.backward):
        with pytest.raises(ValueError, match="bool_scatter: expected 2 elements"):
            run()


def test_function_called_with_another_number_of_inputs():
    x = nn.Variable((2, 3))
    with pytest.raises(TypeError, match="expected 2 inputs, got 1"):
        (x + x).parent(x)


def test_none_is_no_dtype():
    with pytest.raises(TypeError, match="expected a dtype"):
        nn.NdArray((2,)).cast(None)


def test_array_as_index_of_a_variable():
    """The result belongs to the graph, like any other function of a variable."""
    x = nn.Variable.from_numpy_array(np.arange(6, dtype=np.float32).reshape(3, 2), need_grad=True)
    rows = nn.NdArray.from_numpy_array(np.array([2, 0]))
    y = x[rows]
    y.forward()
    assert y.d.tolist() == [[4.0, 5.0], [0.0, 1.0]]
    h = x * 1
    h[rows] = nn.NdArray.from_numpy_array(np.array([[7.0, 7.0], [8.0, 8.0]], np.float32))
    h.forward()
    assert h.d.tolist() == [[8.0, 8.0], [2.0, 3.0], [7.0, 7.0]]


X = nn.Variable((2, 3))
TOLD = {
    "affine: expected `n_outmaps`": lambda: PF.affine(X, 0),
    "affine: expected a Variable": lambda: PF.affine(np.ones((2, 3)), 4),
    "affine: expected an axis of": lambda: PF.affine(X, 4, base_axis=5),
    "affine: expected `name`": lambda: PF.affine(X, 4, name=3),
    "UniformInitializer: expected `lim`": lambda: I.UniformInitializer(3),
    "MonitorSeries.add: expected a number": lambda: MonitorSeries("loss").add(0, "x"),
    "MonitorSeries.add: expected the number of an iteration": lambda: MonitorSeries("loss").add("0", 1.0),
    "monitor: expected a Monitor": lambda: MonitorSeries("loss", "here"),
    "data_iterator: expected a DataSource": lambda: data_iterator(3, 2),
    "expected `batch_size` to be a whole number": lambda: data_iterator_simple(lambda i: (i,), 10, 2.5),
    "expected `rng` to be a RandomState": lambda: data_iterator_simple(lambda i: (i,), 10, 2, True, 3),
    "set_states: expected a SolverState": lambda: S.Adam().set_states({"w": 3}),
    "set_parameter: expected a Variable": lambda: nn.parameter.set_parameter("w", 3),
    "seed: expected an int": lambda: nn.seed("x"),
    "context_scope: expected a Context": lambda: nn.context_scope(3).__enter__(),
    "forward_all: expected a list of Variables, got Variable": lambda: nn.forward_all(F.exp(X)),
    "forward_all: expected a list of Variables, got int": lambda: nn.forward_all([1]),
    "setup: expected a list of Variables": lambda: F.exp(X).parent.setup([1], [X]),
    "top_n_error: expected `n`": lambda: F.top_n_error(X, nn.Variable((2, 1)), n=0),
    "split: expected an array with axes for axis 0, got a scalar": lambda: F.split(nn.Variable()),
}


@pytest.mark.parametrize("said", TOLD)
def test_what_was_expected_and_what_came_is_told(said):
    with pytest.raises(nn.Error, match=said):
        TOLD[said]()


def test_none_stands_for_the_default_where_that_is_nnablas():
    x, index = nn.Variable((2, 3)), nn.Variable.from_numpy_array(np.array([1, 0]))
    for y, args in (
        (F.cumsum(x, axis=None), {"axis": 0, "exclusive": False, "reverse": False}),
        (F.cumprod(x, axis=None), {"axis": 0, "exclusive": False, "reverse": False}),
        (F.gather(x, index, axis=None, batch_dims=None), {"axis": 0, "batch_dims": 0}),
        (F.broadcast_to(x, nn.Variable((3,)), axis=None), {"axis": -1}),
    ):
        assert y.shape == (2, 3) and y.parent.info.args == args
