"""Whatever is thrown at the package, it answers with an exception that a caller expects, and changes nothing."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F

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
