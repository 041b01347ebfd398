"""Builds graphs from rows of the table of operations, runs them and differentiates them."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from cases import Row, all_rows

import kinnor as nn
import kinnor.functions as F
from kinnor import _core
from kinnor.function import PythonFunction

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import DTypeLike, NDArray

TABLE: dict[str, list[Row]] = {}
"""Rows of the table of operations, by the name of the function."""
for _row in all_rows():
    TABLE.setdefault(_row.name, []).append(_row)

DOUBLE = nn.Context(["cpu:double"])
"""A context that computes in float64."""


class UnaryFunction(PythonFunction):
    """A user's function of one input and one output of the same shape. Derived classes compute values and gradients.

    Declares that no gradient reads the output. The gradient may read the input if `reads_input` is set.
    """

    reads_input = False
    """True if the gradient reads the input."""

    def min_outputs(self) -> int:
        """Declares one output."""
        return 1

    def setup_impl(self, inputs: Any, outputs: Any) -> None:
        """Gives the output the shape of the input."""
        outputs[0].reset_shape(inputs[0].shape, True)

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """Declares that no gradient reads the output."""
        return False

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """Declares if the gradient reads the input."""
        return self.reads_input


def leaf(*values: float, need_grad: bool = True, name: str | None = None) -> nn.Variable:
    """Returns a vector variable of these values, with gradients unless `need_grad` is false."""
    v = nn.Variable.from_numpy_array(np.array(values, np.float32), need_grad=need_grad)
    v.name = name
    return v


def leaf_of(values: Any, dtype: DTypeLike = np.float32, need_grad: bool = True) -> nn.Variable:
    """Returns a variable of these values in their shape, with gradients unless `need_grad` is false."""
    return nn.Variable.from_numpy_array(np.asarray(values, dtype), need_grad=need_grad)


def random_leaf(*shape: int, seed: int = 0, need_grad: bool = True) -> nn.Variable:
    """Returns a variable of float32 values between -1 and 1, with gradients unless `need_grad` is false."""
    return leaf_of(np.random.RandomState(seed).uniform(-1, 1, shape), need_grad=need_grad)


def write_safetensors(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Path:
    """Writes arrays to a safetensors file as another program would. Returns the path."""
    codes = {"bool": "BOOL", "bfloat16": "BF16", "int": "I", "uint": "U", "float": "F"}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, array in arrays.items():
        start, end = end, end + array.nbytes
        kind = array.dtype.name
        code = codes.get(kind) or codes[kind.rstrip("0123456789")] + kind.lstrip("uintfloa")
        header[name] = {"dtype": code, "shape": array.shape, "data_offsets": (start, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    values = b"".join(array.tobytes() for array in arrays.values())
    path.write_bytes(len(text).to_bytes(8, "little") + text + values)
    return path


def chain(x: nn.Variable, n: int, f: Callable[[nn.Variable], nn.Variable] = F.tanh) -> nn.Variable:
    """Applies `f` to `x` `n` times in succession and returns the last result."""
    for _ in range(n):
        x = f(x)
    return x


def run(*variables: nn.Variable) -> Any:
    """Runs the graphs of these variables if needed. Returns its single argument, or all as a tuple."""
    if not nn.get_auto_forward():
        nn.forward_all(variables)
    return variables if len(variables) > 1 else variables[0]


def over(choose: Callable[[Row], bool]) -> Callable[[Callable[[Row], None]], Callable[[str], None]]:
    """Decorator: turns a check of one row into a test of each operation, over the rows that `choose` accepts."""

    def decorate(check: Callable[[Row], None]) -> Callable[[str], None]:
        """Returns a test of each operation with accepted rows."""
        names = [name for name, rows in TABLE.items() if any(map(choose, rows))]

        @pytest.mark.parametrize("name", names)
        def test(name: str) -> None:
            """Checks the accepted rows of an operation."""
            for row in filter(choose, TABLE[name]):
                check(row)

        test.check, test.choose = check, choose  # type: ignore[attr-defined]
        return test

    return decorate


def certain(row: Row) -> bool:
    """True if the inputs determine the outputs: the operation draws no random numbers."""
    return not row.random


def smooth(row: Row) -> bool:
    """True if the row has inputs to differentiate by."""
    return certain(row) and bool(row.wanted) and any(y.dtype.kind not in "iu" for y in row.expected)


def variables(row: Row, need_grad: bool = True) -> list[nn.Variable | None]:
    """Returns the inputs of the row as variables, None for omitted ones."""
    made = []
    for i, x in enumerate(row.inputs):
        made.append(x if x is None else nn.Variable.from_numpy_array(x, need_grad=need_grad and i in row.wanted))
    return made


def call(row: Row, xs: Sequence[Any]) -> tuple[Any, ...]:
    """Applies the operation of the row to variables or arrays. Returns its outputs."""
    # In-place operations may not write to leaves that require gradients.
    xs = [F.identity(x) if i in row.writes and getattr(x, "need_grad", False) else x for i, x in enumerate(xs)]
    y = getattr(_core.functions, row.name, getattr(F, row.name))(*xs, **row.args)
    return y if isinstance(y, tuple) else (y,)


def factors(row: Row, ys: Sequence[nn.Variable] = ()) -> list[np.ndarray | None]:
    """Returns random weights of the elements of each output, for `loss_of`. None for outputs of indices."""
    random = np.random.RandomState(zlib.crc32(str(row).encode()))
    expected = [np.zeros(y.shape) for y in ys] if row.random else row.expected
    return [None if y.dtype.kind in "iu" else np.asarray(random.uniform(0.5, 1.5, y.shape)) for y in expected]


def loss_of(row: Row, ys: Sequence[nn.Variable]) -> nn.Variable:
    """Returns a scalar loss that depends on every element of the outputs."""
    parts = []
    for y, c in zip(ys, factors(row, ys), strict=True):
        if c is not None:
            parts.append(F.sum(y * nn.Variable.from_numpy_array(c)))
    return F.add_n(*parts)


def put(xs: Sequence[nn.Variable | None], arrays: Sequence[np.ndarray | None]) -> None:
    """Writes the arrays into the input variables again, since some operations change their inputs."""
    for x, a in zip(xs, arrays, strict=True):
        if x is not None:
            x.d = a


def gradients(row: Row, xs: Sequence[nn.Variable | None]) -> list[np.ndarray]:
    """Returns copies of the gradients of the inputs that the row is differentiated by."""
    return [np.array(xs[i].g) for i in row.wanted]


def differentiate(row: Row) -> list[np.ndarray]:
    """Returns the gradients of the loss by a plain static forward and backward pass."""
    xs = variables(row)
    loss = loss_of(row, call(row, xs))
    loss.forward()
    clear_gradients(xs)
    loss.backward()
    return gradients(row, xs)


def clear_gradients(xs: Sequence[nn.Variable | None]) -> None:
    """Sets the gradients of the variables to zero."""
    for x in xs:
        if x is not None:
            x.grad.zero()


def assert_rule_agrees(loss: nn.Variable, xs: Sequence[nn.Variable]) -> None:
    """Asserts that kernels and graph rules compute the same gradients of a loss that has run in float64."""
    clear_gradients(xs)
    loss.backward()
    rule = nn.grad([loss], xs)
    nn.forward_all(rule)
    for x, expected in zip(xs, rule, strict=True):
        np.testing.assert_allclose(x.g, expected.d, 1e-8, 1e-10)


def differences(f: Callable[[list[np.ndarray | None]], float], row: Row, step: float = 1e-5) -> list[np.ndarray]:
    """Returns central differences of `f` by the inputs that the row is differentiated by."""
    found = []
    for i in row.wanted:
        arrays = [x if x is None else x.copy() for x in row.inputs]
        slope = np.zeros_like(row.inputs[i])
        for at in np.ndindex(slope.shape):
            here = arrays[i][at]
            arrays[i][at] = here + step
            above = f(arrays)
            arrays[i][at] = here - step
            slope[at] = (above - f(arrays)) / (2 * step)
            arrays[i][at] = here
        found.append(slope)
    return found


def close(got: Sequence[Any], expected: Sequence[Any], rtol: float, atol: float, row: Row) -> None:
    """Asserts that arrays have equal shapes and nearly equal values. NaN equals NaN."""
    assert len(got) == len(expected), row
    for a, b in zip(got, expected, strict=True):
        assert np.shape(a) == np.shape(b), row
        np.testing.assert_allclose(np.asarray(a, float), np.asarray(b, float), rtol, atol, err_msg=str(row))


def same(got: Sequence[Any], expected: Sequence[Any], note: object = "") -> None:
    """Asserts that two lists of arrays have equal elements; NaN equals NaN, and -0 equals 0. Errors show `note`."""
    assert len(got) == len(expected), note
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=str(note))


def values(ys: Sequence[Any]) -> list[np.ndarray]:
    """Returns copies of the values of the outputs."""
    return [np.array(y.d if isinstance(y, nn.Variable) else y.data) for y in ys]
