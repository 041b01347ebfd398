"""Arrays and NumPy: types, views of live memory, parts, the cleared state, copies, pickles, DLPack."""

import copy
import gc
import pickle
import threading

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
from kinnor.utils.dlpack import from_dlpack, to_dlpack

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


def array(values, dtype=np.float32):
    return nn.NdArray.from_numpy_array(np.asarray(values, dtype))


def variable(values, dtype=np.float32, need_grad=None):
    return nn.Variable.from_numpy_array(np.asarray(values, dtype), need_grad=need_grad)


# --- Types of elements.


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_array_takes_the_type_of_what_is_assigned(dtype):
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
    values = np.array([0, 1, 5, 100]).astype(of)
    a = array(values, of)
    view = a.cast(to)
    assert view.dtype == a.dtype == np.dtype(to)
    np.testing.assert_array_equal(view, values.astype(to))
    assert a.cast(to, nn.Context()) is None


def test_whole_numbers_keep_every_bit():
    big = np.array([2**62 + 1, -(2**62) - 1])
    a = array(big, np.int64)
    np.testing.assert_array_equal(a.data, big)
    np.testing.assert_array_equal(a.cast(np.uint64), big.astype(np.uint64))
    a.data = 2**62 + 1
    assert a.dtype == np.int64
    assert a.data.tolist() == [2**62 + 1] * 2


def test_bfloat16_comes_with_ml_dtypes():
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


def test_assignment_broadcasts_and_refuses_what_does_not_fit():
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
    v.d = v.d[:, ::-1] * 1  # of itself
    v.d = v.d[::-1]
    assert v.d.tolist() == [[2] * 3, [1.5] * 3]


# --- Views of live memory.


def test_a_view_reads_and_writes_the_variable():
    v = variable([1, 2, 3])
    view = v.d
    view[0] = 10
    v.d[1] += 5
    assert v.d.tolist() == view.tolist() == [10, 7, 3]
    v.d = np.array([4, 5, 6], np.float32)
    assert view.tolist() == [4, 5, 6]
    v.g = 7
    v.g[...] += 1
    assert v.g.tolist() == [8, 8, 8]


def test_a_forward_run_writes_through_a_view():
    x = variable([1, 2])
    y = x * 2
    y.forward()
    view = y.d
    x.d = [5, 6]
    y.forward()
    assert view.tolist() == [10, 12]


def test_a_write_through_a_view_is_seen_by_the_next_run():
    x = variable([1, 2])
    y = F.exp(x)
    view = x.d
    for value in (0, 1, 2):
        view[...] = value
        y.forward()
        np.testing.assert_allclose(y.d, np.exp([value] * 2), rtol=1e-6)


def test_a_write_through_a_view_of_another_type_is_seen_too():
    w = variable([1, 2], np.float64)
    view = w.d
    y = w * 3
    y.forward()
    view[0] = 4  # the run keeps a copy as float32, which must not be used again
    y.forward()
    assert y.d.tolist() == [12, 6]


@pytest.mark.parametrize(
    "end",
    [
        lambda v: v.data.clear(),
        lambda v: v.data.zero(),
        lambda v: v.data.fill(9),
        lambda v: setattr(v, "d", 0),
        lambda v: setattr(v, "data", array([7, 8])),
        lambda v: setattr(v, "d", np.array([7, 8], np.float64)),
        lambda v: v.data.cast(np.int32),
        lambda v: v.reset_shape((3,), force=True),
    ],
)
def test_a_view_keeps_its_values_when_the_memory_goes(end):
    v = variable([1, 2])
    view = v.d
    end(v)
    assert view.tolist() == [1, 2]
    v.data.data[...] = 5
    assert view.tolist() == [1, 2]
    view[...] = 3
    assert set(v.d.flat) == {5}


def test_a_view_outlives_its_variable():
    view = (variable([1, 2, 3]) * 1).d
    part = array([[1, 2], [3, 4]]).narrow(0, 1, 1).data
    gc.collect()
    nn.clear_memory_cache()
    others = [nn.Variable((3,)) for _ in range(100)]
    for v in others:
        v.d[...] = 7
    assert view.tolist() == [0, 0, 0]
    assert part.tolist() == [[3, 4]]


def test_a_view_survives_runs_that_clear():
    x = variable([1, 2], need_grad=True)
    h = x * 2
    y = F.sum(h * h)
    y.forward()
    view = h.d
    y.forward(clear_buffer=True)
    assert view.tolist() == [2, 4]


def test_reading_only_gives_a_view_that_cannot_write():
    a = array([1, 2])
    count = a.modification_count
    view = a.get_data("r")
    assert not view.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1
    assert a.get_data("r", np.int32).dtype == np.int32
    assert a.dtype == np.float32
    assert a.modification_count == count
    assert a.get_data("w", np.int32).dtype == a.dtype == np.int32
    with pytest.raises(ValueError, match="mode"):
        a.get_data("x")


def test_threads_may_make_and_drop_views():
    v = nn.Variable((1000,))

    def work(n):
        for _ in range(200):
            view = v.d
            view[n] += 1
            if n == 0:
                v.data.cast(np.float32)
            del view

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert v.d[:4].tolist() == [200] * 4


# --- Zeroing, counts, the cleared state.


def test_zeroing_says_that_zero_was_the_last_write():
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


@pytest.mark.parametrize(
    ("dtype", "shown"), [(np.float32, "[nan, nan]"), (np.float64, "[nan, nan]"), (np.int32, "[0, 0]")]
)
def test_what_a_user_cleared_reads_as_nothing(dtype, shown):
    a = array([1, 2], dtype)
    a.clear()
    assert a.clear_called
    assert str(a.data.tolist()) == shown
    assert not a.clear_called
    a.clear()
    a.data = [3, 4]
    assert not a.clear_called
    assert a.data.tolist() == [3, 4]
    v = variable([1, 2])
    v.grad = None
    assert v.g.tolist() == [0, 0]


def test_what_the_engine_cleared_is_an_error():
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
def test_parts_that_are_not_there_are_refused(args):
    a = array(np.zeros((4, 2)))
    with pytest.raises(RuntimeError):
        a.narrow(*args)
    with pytest.raises(RuntimeError):
        nn.NdArray().narrow(0, 0, 1)


def test_parts_do_not_overlap_are_not_cleared_and_keep_the_type():
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
    part = array([[1, 2], [3, 4]]).narrow(0, 1, 1)
    gc.collect()
    assert part.data.tolist() == [[3, 4]]
    assert part.narrow(0, 0, 0).data.shape == (0, 2)


# --- Copies, views of other shapes, pickles.


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


def test_view_shares_elements_under_another_shape():
    a = array(np.arange(6))
    b = a.view((2, 3))
    b.data[1, 2] = 9
    assert a.data[5] == 9
    with pytest.raises(nn.ShapeError):
        a.view((4,))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_come_back(protocol):
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


def test_a_copy_is_the_same_variable_and_a_deep_copy_another():
    v = variable([1, 2], need_grad=True)
    v.g = 3
    v.name = "w"
    assert copy.copy(v) == v
    deep = copy.deepcopy({"w": v, "again": v})
    assert deep["w"] == deep["again"] != v
    assert (deep["w"].name, deep["w"].need_grad, deep["w"].g.tolist()) == ("w", True, [3, 3])
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
def test_a_number_on_the_left_leaves_the_operator_to_us(number):
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


def test_looking_is_not_writing():
    v = variable([1])
    v.data.zero()
    for look in (float, repr, pickle.dumps, lambda x: x.item()):
        look(v)
        look(v.data)
        assert v.data.zeroing


def test_one_element_is_a_number():
    for x in (variable(2.5), variable([[2.5]]), array(2.5), array([2.5])):
        assert x.item() == 2.5
        assert float(x) == 2.5
    assert type(variable(3, np.int32).item()) is int
    assert float(variable(3, np.int32)) == 3.0
    for x in (variable([1, 2]), array([])):
        with pytest.raises(ValueError, match="size 1"):
            x.item()
        with pytest.raises(ValueError, match="size 1"):
            float(x)


# --- DLPack.


@pytest.mark.parametrize("dtype", DTYPES)
def test_others_take_arrays_without_a_copy(dtype):
    if dtype == "bool" and np.lib.NumpyVersion(np.__version__) < "1.25.0":
        pytest.skip("NumPy before 1.25 has no bool in DLPack")
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
def test_arrays_of_others_come_without_a_copy(dtype, bare):
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
        def __init__(self):
            self.values = np.arange(3, dtype=np.float32)

        def __dlpack__(self):
            return self.values.view(Lent).__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    class Lent(np.ndarray):
        def __del__(self):
            returned.append(True)

    a = from_dlpack(Owner())
    gc.collect()
    view = a.data
    assert (a.data.tolist(), returned) == ([0, 1, 2], [])
    a.fill(5)  # of its own memory now
    gc.collect()
    assert (view.tolist(), returned) == ([0, 1, 2], [])
    del view
    for _ in range(1000):
        if returned:
            break
    assert returned == [True]
    assert a.data.tolist() == [5, 5, 5]


def test_many_borrowed_arrays_are_given_back():
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
    a = array([1, 2], np.float64)
    capsule = to_dlpack(a, np.float32)
    assert a.dtype == np.float32
    target = nn.NdArray((2,))
    assert from_dlpack(capsule, target) is target
    target.data[0] = 7
    assert a.data.tolist() == [7, 2]
    with pytest.raises(ValueError, match="Capsule"):
        from_dlpack(capsule)
    with pytest.raises(nn.ShapeError):
        from_dlpack(to_dlpack(a), nn.NdArray((3,)))
    part = array([[1, 2], [3, 4]]).narrow(0, 0, 1)
    from_dlpack(np.array([[5, 6]], np.float32), part)
    assert part.data.tolist() == [[5, 6]]
    with pytest.raises((TypeError, ValueError)):
        from_dlpack(3)


def test_dlpack_has_no_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(BufferError):
        to_dlpack(nn.NdArray.from_numpy_array(np.zeros(2, ml_dtypes.bfloat16)))
