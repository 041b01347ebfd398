"""Exchange of arrays: copies, pickles, NumPy's protocols, DLPack."""

import copy
import gc
import pickle

import numpy as np
import pytest
from test_arrays import DTYPES, array, variable

import kinnor as nn
import kinnor.functions as F
from kinnor.utils.dlpack import from_dlpack, to_dlpack

# --- Copies, reshaped views, pickles.


def test_copy_from_takes_the_type_of_the_context_or_of_the_source():
    a = nn.NdArray((2,))
    source = array([1, 2], np.float64)
    assert a.copy_from(source) is a
    assert a.dtype == np.float32
    assert a.copy_from(source, use_current_context=False).dtype == np.float64
    a.data[0] = 5
    assert source.data.tolist() == [1, 2]
    a.copy_from(a)
    assert a.data.tolist() == [5, 2]
    with pytest.raises(RuntimeError):
        a.copy_from(nn.NdArray((3,)))


def test_copy_from_itself_in_another_type_reads_the_old_values():
    n = 1 << 16
    a = array(np.arange(n), np.int64)
    a.copy_from(a)
    assert a.dtype == np.float32 and np.array_equal(a.data, np.arange(n, dtype=np.float32))
    a.copy_from(a.view((n // 2, 2)).view((n,)), use_current_context=False)
    assert np.array_equal(a.data, np.arange(n))


def test_any_byte_but_zero_is_true():
    """In a boolean array of NumPy, any byte except zero counts as true."""
    given = np.array([2, 3, 255, 0, 1], np.uint8).view(bool)
    x = nn.NdArray.from_numpy_array(given)
    assert F.sum(x).data == 4
    assert x.cast(np.int64).tolist() == [1, 1, 1, 0, 1]
    assert nn.NdArray.from_numpy_array(given).get_data("r", np.float16).tolist() == [1, 1, 1, 0, 1]
    w = nn.NdArray.from_numpy_array(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert F.embed(nn.NdArray.from_numpy_array(given[1:2]), w).data.tolist() == [[3, 4, 5]]


def test_read_only_memory_is_copied():
    """An array that borrows read-only memory works on a copy."""
    immutable = bytes(32)
    x = nn.NdArray((8,))
    x._borrow(np.frombuffer(immutable, np.float32))
    x.data[:] = 1.5
    x += x
    assert immutable == bytes(32) and x.data.tolist() == [3] * 8


def test_view_shares_elements_under_another_shape():
    """`NdArray.view` shares the elements, and refuses another number of elements."""
    a = array(np.arange(6))
    b = a.view((2, 3))
    b.data[1, 2] = 9
    assert a.data[5] == 9
    with pytest.raises(nn.ShapeError):
        a.view((4,))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_make_a_round_trip(protocol):
    """Arrays and variables are pickled with values, type, name and flags, and without the graph."""
    a = array([[1, 2], [3, 4]], np.int16)
    b = pickle.loads(pickle.dumps(a, protocol))
    assert b.dtype == np.int16
    np.testing.assert_array_equal(a.data, b.data)
    v = variable([1, 2], np.float64, need_grad=True)
    v.name, v.persistent, v.recompute = "w", True, True
    w = pickle.loads(pickle.dumps(v, protocol))
    assert (w.name, w.persistent, w.recompute, w.need_grad, w.d.dtype) == ("w", True, True, True, np.float64)
    assert w != v
    assert w.d.tolist() == [1, 2]
    w.d[0] = 5
    assert v.d.tolist() == [1, 2]
    assert pickle.loads(pickle.dumps(nn.Variable(), protocol)).shape == ()
    result = v * 2
    result.forward()
    assert pickle.loads(pickle.dumps(result, protocol)).d.tolist() == [2, 4]


def test_copies_share_memory_and_deep_copies_do_not():
    v = variable([1, 2], need_grad=True)
    v.g = 3
    v.name = "w"
    v.persistent = v.recompute = True
    assert copy.copy(v) == v
    deep = copy.deepcopy({"w": v, "again": v})
    assert deep["w"] == deep["again"] != v
    assert (deep["w"].name, deep["w"].need_grad, deep["w"].g.tolist()) == ("w", True, [3, 3])
    assert deep["w"].persistent and deep["w"].recompute
    deep["w"].d = [5, 6]
    assert v.d.tolist() == [1, 2]
    y = v * 2
    with pytest.raises(RuntimeError, match="get_unlinked_variable"):
        copy.deepcopy(y)
    assert copy.deepcopy(y.get_unlinked_variable()).parent is None
    for copied in (copy.copy(v.data), copy.deepcopy(v.data)):
        copied.data[...] = 9
        assert v.d.tolist() == [1, 2]


# --- NumPy's protocols.


def test_numpy_takes_arrays_and_variables():
    """`np.asarray` shares memory with arrays and variables; `np.array` copies."""
    v = variable([1, 2])
    for x in (v, v.data):
        assert np.shares_memory(np.asarray(x), v.d)
        assert not np.shares_memory(np.array(x), v.d)
        assert np.asarray(x, np.float64).dtype == np.float64
        assert np.array(x, np.float32).tolist() == [1, 2]
        assert np.sum(np.asarray(x)) == 3
    assert v.__array__(np.float32, copy=True) is not None
    assert not np.shares_memory(v.__array__(np.float32, copy=True), v.d)
    assert np.shares_memory(v.__array__(np.float32, copy=False), v.d)
    with pytest.raises(ValueError, match="copy"):
        v.__array__(np.float64, copy=False)


@pytest.mark.parametrize("number", [2, 2.0, np.float64(2), np.float32(2), np.int64(2), np.array(2.0)])
def test_numpy_numbers_on_the_left_use_our_operator(number):
    v, a = variable([1, 2]), array([1, 2])
    for operate, expected in (
        (lambda x: number * x, [2, 4]),
        (lambda x: number + x, [3, 4]),
        (lambda x: number - x, [1, 0]),
        (lambda x: number / x, [2, 1]),
        (lambda x: number**x, [2, 4]),
    ):
        y = operate(v)
        assert type(y) is nn.Variable
        y.forward()
        np.testing.assert_allclose(y.d, expected, rtol=1e-6)
        z = operate(a)
        assert type(z) is nn.NdArray
        np.testing.assert_allclose(z.data, expected, rtol=1e-6)


def test_reading_is_not_a_write():
    """Reading an array that was set to zeros lazily keeps it lazy."""
    v = variable([1])
    v.data.zero()
    for look in (float, repr, pickle.dumps, lambda x: x.item()):
        look(v)
        look(v.data)
        assert v.data.zeroing


def test_one_element_is_a_number():
    """`item` and `float` return the number of an array of one element, and refuse others."""
    for x in (variable(2.5), variable([[2.5]]), array(2.5), array([2.5])):
        assert x.item() == 2.5
        assert float(x) == 2.5
    assert type(variable(3, np.int32).item()) is int
    assert float(variable(3, np.int32)) == 3.0
    for x in (variable([1, 2]), array([])):
        with pytest.raises(ValueError, match="an array of one element"):
            x.item()
        with pytest.raises(ValueError, match="an array of one element"):
            float(x)


# --- DLPack.


# NumPy supports bool in DLPack since 1.25.
LENT = [d for d in DTYPES if d != "bool" or np.lib.NumpyVersion(np.__version__) >= "1.25.0"]


@pytest.mark.parametrize("dtype", LENT)
def test_numpy_imports_arrays_without_a_copy(dtype):
    """`np.from_dlpack` shares memory with arrays and variables."""
    v = variable([0, 1], dtype)
    for x in (v, v.data):
        theirs = np.from_dlpack(x)
        assert theirs.dtype == np.dtype(dtype)
        v.d[0] = 1
        assert theirs.tolist() == [1, 1]
        v.d[0] = 0
    assert v.__dlpack_device__() == (1, 0)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bool"])
@pytest.mark.parametrize("bare", [False, True])
def test_foreign_arrays_are_imported_without_a_copy(dtype, bare):
    theirs = np.arange(6).reshape(2, 3).astype(dtype)
    ours = from_dlpack(theirs.__dlpack__() if bare else theirs)
    assert ours.dtype == theirs.dtype
    theirs[0, 0] = 9
    assert ours.data[0, 0] == 9
    ours.data[0, 1] = 8
    assert theirs[0].tolist() == [9, 8, 2]
    v = nn.Variable((2, 3))
    v.data = ours
    y = v * 2
    y.forward()
    assert y.d[0].tolist() == [18, 16, 4]
    v.d = np.ones((2, 3), dtype)
    assert theirs.tolist() == [[1] * 3] * 2


def test_arithmetic_in_place_and_runs_write_to_borrowed_memory():
    theirs = np.array([1, 2], np.float32)
    ours = from_dlpack(theirs)
    ours += 1
    assert theirs.tolist() == [2, 3]
    y = F.mul_scalar(variable([5, 6]), 2, outputs=[ours])
    y.forward()
    assert theirs.tolist() == [10, 12]


def test_borrowed_memory_lives_as_long_as_it_is_used():
    returned = []

    class Owner:
        """An owner of memory that exports DLPack capsules."""

        def __init__(self):
            self.values = np.arange(3, dtype=np.float32)

        def __dlpack__(self):
            """Exports the memory as a capsule that records when it is freed."""
            return self.values.view(Lent).__dlpack__()

        def __dlpack_device__(self):
            """Returns the device: the CPU."""
            return (1, 0)

    class Lent(np.ndarray):
        """An array that records its deletion."""

        def __del__(self):
            """Records the deletion."""
            returned.append(True)

    a = from_dlpack(Owner())
    gc.collect()
    view = a.data
    assert (a.data.tolist(), returned) == ([0, 1, 2], [])
    a.fill(5)  # has memory of its own now
    gc.collect()
    assert (view.tolist(), returned) == ([0, 1, 2], [])
    del view
    for _ in range(1000):
        if returned:
            break
    assert returned == [True]
    assert a.data.tolist() == [5, 5, 5]


def test_many_borrowed_arrays_are_returned():
    """A thousand arrays of borrowed memory are dropped without an error."""
    arrays = [from_dlpack(np.ones(5, np.float32)) for _ in range(1000)]
    total = sum(arrays[1:], arrays[0])
    del arrays
    gc.collect()
    assert total.data.tolist() == [1000] * 5


def test_memory_that_cannot_be_shared_is_copied():
    frozen = np.arange(3, dtype=np.float32)
    frozen.flags.writeable = False
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        a = from_dlpack(frozen)
        a += 1
        assert (frozen.tolist(), a.data.tolist()) == ([0, 1, 2], [1, 2, 3])
    strided = np.arange(6, dtype=np.float32)[::2]
    b = from_dlpack(strided)
    b += 1
    assert (strided.tolist(), b.data.tolist()) == ([0, 2, 4], [1, 3, 5])
    assert from_dlpack(np.zeros((0, 3))).shape == (0, 3)


def test_dlpack_in_the_form_of_nnabla():
    """NNabla's `to_dlpack` and `from_dlpack` share memory. A capsule can be used once."""
    a = array([1, 2], np.float64)
    capsule = to_dlpack(a, np.float32)
    assert a.dtype == np.float32
    target = nn.NdArray((2,))
    assert from_dlpack(capsule, target) is target
    target.data[0] = 7
    assert a.data.tolist() == [7, 2]
    with pytest.raises(ValueError, match="not used yet, got <capsule"):
        from_dlpack(capsule)
    with pytest.raises(nn.ShapeError):
        from_dlpack(to_dlpack(a), nn.NdArray((3,)))
    part = array([[1, 2], [3, 4]]).narrow(0, 0, 1)
    from_dlpack(np.array([[5, 6]], np.float32), part)
    assert part.data.tolist() == [[5, 6]]
    with pytest.raises((TypeError, ValueError)):
        from_dlpack(3)


def test_dlpack_has_no_bfloat16():
    """Exporting bfloat16 by DLPack is refused."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(BufferError):
        to_dlpack(nn.NdArray.from_numpy_array(np.zeros(2, ml_dtypes.bfloat16)))
