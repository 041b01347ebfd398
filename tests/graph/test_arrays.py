"""Arrays: element types, zeroing, modification counts, the cleared state, parts."""

import gc
import pickle

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F

DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
]
"""Element types of arrays."""


def array(values, dtype=np.float32):
    """Returns an array with these values."""
    return nn.NdArray.from_numpy_array(np.asarray(values, dtype))


def variable(values, dtype=np.float32, need_grad=None):
    """Returns a variable with these values."""
    return nn.Variable.from_numpy_array(np.asarray(values, dtype), need_grad=need_grad)


# --- Element types.


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_takes_the_type_of_the_assigned_value(dtype):
    values = np.array([[0, 1], [2, 3]]).astype(dtype)
    a = nn.NdArray((2, 2))
    a.data = values
    assert a.dtype == a.data.dtype == values.dtype
    np.testing.assert_array_equal(a.data, values)
    v = nn.Variable.from_numpy_array(values)
    assert v.d.dtype == v.data.dtype == values.dtype
    for swapped in (values.astype(values.dtype.newbyteorder()), np.asfortranarray(values), values[:, ::-1][:, ::-1]):
        v.d = swapped
        assert v.d.dtype == values.dtype
        np.testing.assert_array_equal(v.d, values)


@pytest.mark.parametrize("to", DTYPES)
@pytest.mark.parametrize("of", DTYPES)
def test_cast_converts_as_numpy_does(of, to):
    """`NdArray.cast` gives the values of NumPy's `astype`."""
    values = np.array([0, 1, 5, 100]).astype(of)
    a = array(values, of)
    view = a.cast(to)
    assert view.dtype == a.dtype == np.dtype(to)
    np.testing.assert_array_equal(view, values.astype(to))
    assert a.cast(to, nn.Context()) is None


def test_whole_numbers_keep_every_bit():
    """Integers beyond 2^53 keep their value when they are stored and cast."""
    big = np.array([2**62 + 1, -(2**62) - 1])
    a = array(big, np.int64)
    np.testing.assert_array_equal(a.data, big)
    np.testing.assert_array_equal(a.cast(np.uint64), big.astype(np.uint64))
    a.data = 2**62 + 1
    assert a.dtype == np.int64
    assert a.data.tolist() == [2**62 + 1] * 2


def test_bfloat16_comes_with_ml_dtypes():
    """Arrays of bfloat16 are read, written, cast and pickled with the package `ml_dtypes`."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.array([1.0, 2.5, -0.125], ml_dtypes.bfloat16)
    v = nn.Variable.from_numpy_array(values)
    assert v.d.dtype == v.data.dtype == ml_dtypes.bfloat16
    v.d[0] = 3
    assert v.data.cast(np.float32).tolist() == [3.0, 2.5, -0.125]
    v.data.cast(ml_dtypes.bfloat16)
    assert pickle.loads(pickle.dumps(v)).d.dtype == ml_dtypes.bfloat16
    y = v * 2
    y.forward()
    assert y.d.astype(np.float32).tolist() == [6.0, 5.0, -0.25]


def test_wider_numbers_are_rounded_and_others_refused():
    a = nn.NdArray((2,))
    a.data = np.array([1, 2], np.longdouble)
    assert a.dtype == np.float64
    for bad in (np.array([1j, 2]), np.array(["a", "b"]), np.array([None, 1]), np.array(["2020", "2021"], "M8[Y]")):
        with pytest.raises(TypeError):
            a.data = bad
        with pytest.raises(TypeError):
            nn.NdArray.from_numpy_array(bad)
    with pytest.raises(TypeError):
        a.cast(np.complex64)
    for no_type in ("no type", None):
        with pytest.raises(TypeError):
            a.cast(no_type)
    assert a.data.tolist() == [1, 2]


def test_numbers_fill_without_a_change_of_type():
    """A number assigned to `data` fills the array, which keeps its type."""
    a = array([1, 2], np.float64)
    for number in (3, 2.5, np.float32(1.5), np.float64(0.5), np.int8(-1), np.uint64(7)):
        a.data = number
        assert a.dtype == np.float64
        assert a.data.tolist() == [number] * 2
    fresh = nn.NdArray((2,))
    fresh.data = 3
    assert fresh.data.dtype == np.float32


def test_an_array_that_was_never_written_has_no_type_and_reads_as_zeros():
    a = nn.NdArray((2,))
    with pytest.raises(RuntimeError, match="dtype"):
        _ = a.dtype
    assert a.data.tolist() == [0, 0]
    assert a.dtype == np.float32


def test_assignment_broadcasts_or_refuses_shapes():
    """Assignments broadcast values as NumPy does, and refuse other shapes and types."""
    v = nn.Variable((2, 3))
    v.d = np.arange(3)
    assert v.d.tolist() == [[0, 1, 2]] * 2
    v.d = [[1.5], [2]]
    assert v.d.tolist() == [[1.5] * 3, [2] * 3]
    for bad in (np.zeros(2), np.zeros((3, 2)), np.zeros((1, 2, 3, 1))):
        with pytest.raises(nn.ShapeError):
            v.d = bad
    for bad in ("abc", None, object(), [[1], [2, 3]]):
        with pytest.raises((TypeError, ValueError)):
            v.d = bad
    assert v.d.tolist() == [[1.5] * 3, [2] * 3]
    v.d = v.d[:, ::-1] * 1  # from its own values
    v.d = v.d[::-1]
    assert v.d.tolist() == [[2] * 3, [1.5] * 3]


# --- Zeroing, modification counts, the cleared state.


def test_zeroing_says_that_zero_was_the_last_write():
    """`zeroing` is True after `zero()` or an assignment of 0, until the next write or writable view."""
    a = array([1, 2])
    assert not a.zeroing
    a.zero()
    assert a.zeroing
    assert a.get_data("r").tolist() == [0, 0]
    _ = a.data
    assert not a.zeroing
    a.data = 0
    assert a.zeroing
    a.fill(0)
    assert not a.zeroing


def test_modifications_are_counted_as_nnabla_counts_them():
    a = nn.NdArray((4,))
    assert a.modification_count == 0
    a.zero()
    assert a.modification_count == 1
    a.data = [1, 2, 3, 4]
    assert a.modification_count == 1
    part = a.narrow(0, 0, 2)
    assert part.modification_count == 0
    _ = part.data
    part.fill(2)
    assert (a.modification_count, part.modification_count) == (1, 2)
    a.fill(2)
    assert (a.modification_count, part.modification_count) == (1, 0)
    del part
    a.clear()
    assert a.modification_count == 0
    a.fill(1)
    assert a.modification_count == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_a_user_cleared_reads_as_nothing(dtype):
    """An array cleared by the user reads as NaN; reading or writing ends the cleared state."""
    a = array([1, 2], dtype)
    a.clear()
    assert a.clear_called
    assert str(a.data.tolist()) == "[nan, nan]"
    assert not a.clear_called
    a.clear()
    a.data = [3, 4]
    assert not a.clear_called
    assert a.data.tolist() == [3, 4]
    v = variable([1, 2])
    v.grad = None
    assert v.g.tolist() == [0, 0]


def test_reading_an_array_cleared_by_the_engine_raises():
    x = variable([1.0, 2.0])
    h = x * 2
    h.name = "hidden"
    y = F.sum(F.exp(h))
    y.forward(clear_buffer=True)
    if h.data.clear_called:
        for read in (lambda: h.d, lambda: np.asarray(h), h.item):
            with pytest.raises(nn.ClearedError):
                read()
    h.persistent = True
    y.forward(clear_buffer=True)
    assert h.d.tolist() == [2, 4]


# --- Parts.


def test_parts_share_memory_and_type():
    """`narrow` returns a part that shares memory and element type with the array."""
    a = array(np.arange(12).reshape(4, 3))
    part = a.narrow(0, 1, 2)
    assert part.shape == (2, 3)
    assert part.dtype == np.float32
    part.data = np.array([7, 8, 9], np.float32)
    assert a.data[1:3].tolist() == [[7, 8, 9]] * 2
    a.data[2] = 1
    assert part.data[1].tolist() == [1, 1, 1]
    a.fill(4)
    assert part.data.tolist() == [[4] * 3] * 2
    inner = part.narrow(0, 1, 1)
    inner.zero()
    assert a.data.tolist() == [[4] * 3, [4] * 3, [0] * 3, [4] * 3]
    part += 1
    assert a.data[2].tolist() == [1] * 3
    a.cast(np.float64)
    assert part.dtype == np.float64


@pytest.mark.parametrize(
    "args", [(1, 0, 1), (-1, 0, 1), (0, -1, 1), (0, 0, 5), (0, 4, 1), (0, 2**62, 2**62), (0, 0, -1)]
)
def test_parts_out_of_range_are_refused(args):
    a = array(np.zeros((4, 2)))
    with pytest.raises(RuntimeError):
        a.narrow(*args)
    with pytest.raises(RuntimeError):
        nn.NdArray().narrow(0, 0, 1)


def test_parts_do_not_overlap_are_not_cleared_and_keep_the_type():
    """Overlapping parts, and `clear` and `cast` of a part, are refused."""
    a = array(np.zeros((4, 2)))
    part = a.narrow(0, 1, 2)
    with pytest.raises(RuntimeError):
        a.narrow(0, 2, 2)
    with pytest.raises(RuntimeError):
        part.clear()
    with pytest.raises(RuntimeError):
        part.cast(np.float16)
    assert part.get_data("r", np.float16).dtype == np.float16
    del part
    a.narrow(0, 2, 2)
    a.clear()


def test_a_part_keeps_the_whole_alive():
    """A part is valid after the array that it belongs to was dropped."""
    part = array([[1, 2], [3, 4]]).narrow(0, 1, 1)
    gc.collect()
    assert part.data.tolist() == [[3, 4]]
    assert part.narrow(0, 0, 0).data.shape == (0, 2)
