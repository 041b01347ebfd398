"""Indexing of arrays and variables, compared with NumPy."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F

KINDS = pytest.mark.parametrize("kind", [nn.NdArray, nn.Variable])
"""Runs a test for both classes of arrays."""

BASIC = {
    "integer": np.s_[2],
    "from the end": np.s_[-1],
    "NumPy integer": np.s_[np.int32(1)],
    "integers": np.s_[1, 0, 1],
    "part": np.s_[1:3],
    "beyond the end": np.s_[1:99, -99:2],
    "steps": np.s_[::2, 1::2, ::3],
    "backward": np.s_[::-1],
    "backward part": np.s_[3:0:-2, ..., ::-1],
    "nothing": np.s_[2:1],
    "nothing backward": np.s_[1:3:-1],
    "new axes": np.s_[None, 1, None, :, None],
    "ellipsis": np.s_[..., 1],
    "ellipsis of no axes": np.s_[1, 2, ..., 0],
    "all": np.s_[...],
    "empty key": (),
    "many": np.s_[1, ..., None, 1:3],
}
"""Keys of integers, slices, `...` and new axes, which make views in NumPy."""
ADVANCED = {
    "list": np.s_[[3, 0, 0]],
    "negative": np.s_[[-1, 1]],
    "array": np.s_[np.array([[0, 1], [2, 3]])],
    "no index": np.s_[[]],
    "two": np.s_[[1, 2], [2, 0]],
    "tuple": np.s_[(1, 2),],
    "broadcast": np.s_[[[0], [3]], [2, 0, 1]],
    "with an integer": np.s_[[1, 2], 1],
    "integer first": np.s_[2, [1, 0]],
    "new axes before": np.s_[None, [1, 2], None],
    "new axes before two": np.s_[None, [1, 2], [0, 1]],
    "apart": np.s_[None, [1, 2], None, [2, 0]],
    "trailing slices": np.s_[[1, 2], :, :],
    "trailing ellipsis": np.s_[[1, 2], ..., None],
    "mask": np.s_[np.arange(24).reshape(4, 3, 2) % 5 > 2],
    "mask of leading axes": np.s_[np.arange(12).reshape(4, 3) % 2 == 0, None],
    "list of truth values": np.s_[[True, False, True, True]],
    "mask of nothing": np.s_[np.zeros((4, 3, 2), bool)],
    "mask and integer": np.s_[np.array([True, False, True, True]), 1],
    "two masks": np.s_[np.array([True, False, True, False]), np.array([False, True, True])],
}
"""Keys with arrays or masks, which copy in NumPy."""
KEYS = pytest.mark.parametrize("key", [*BASIC.values(), *ADVANCED.values()], ids=[*BASIC, *ADVANCED])
"""Runs a test for all keys."""


def example():
    """Returns an array of shape (4, 3, 2)."""
    return np.arange(24, dtype=np.float32).reshape(4, 3, 2)


def values(x):
    """Returns a copy of the values of an array or a variable."""
    return np.array(x.data if isinstance(x, nn.NdArray) else x.d)


@KINDS
@KEYS
def test_reading_matches_numpy(kind, key):
    """`x[key]` gives NumPy's elements for each kind of key, on arrays and variables."""
    with nn.auto_forward():
        part = kind.from_numpy_array(example())[key]
    assert isinstance(part, kind)
    np.testing.assert_array_equal(values(part), example()[key], strict=True)


@KINDS
@KEYS
@pytest.mark.parametrize("form", ["number", "array", "own"])
def test_writing_matches_numpy(kind, key, form):
    """`x[key] = value` gives NumPy's array for each kind of key and value."""
    expected = example()
    shape = expected[key].shape
    value = -7.0 if form == "number" else -1 - np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    expected[key] = value
    x = kind.from_numpy_array(example())
    with nn.auto_forward():
        x[key] = kind.from_numpy_array(value) if form == "own" else value
    np.testing.assert_array_equal(values(x), expected)


@KINDS
def test_values_broadcast_to_the_part(kind):
    """An assigned value broadcasts to the selected part."""
    expected = example()
    expected[1:3] = [[1.0], [2.0], [3.0]]
    expected[:, 0] = np.array([[5.0, 6.0]])
    x = kind.from_numpy_array(example())
    with nn.auto_forward():
        x[1:3] = kind.from_numpy_array(np.array([[1.0], [2.0], [3.0]], np.float32))
        x[:, 0] = [[5.0, 6.0]]
    np.testing.assert_array_equal(values(x), expected)


@KINDS
def test_scalars_and_empty_arrays(kind):
    """Arrays without axes and without elements are indexed and assigned as in NumPy."""
    with nn.auto_forward():
        scalar = kind.from_numpy_array(np.float32(3.0))
        assert values(scalar[()]) == 3.0
        assert values(scalar[None]).tolist() == [3.0]
        scalar[...] = 4.0
        assert values(scalar) == 4.0
        empty = kind.from_numpy_array(np.zeros((0, 3), np.float32))
        assert empty[::-1, 1].shape == (0,)
        assert empty[[]].shape == (0, 3)


@KINDS
@pytest.mark.parametrize(
    ("key", "error"),
    [
        (np.s_[4], IndexError),
        (np.s_[0, -4], IndexError),
        (np.s_[[0, 4]], IndexError),
        (np.s_[0, 0, 0, 0], IndexError),
        (np.s_[..., 0, ...], IndexError),
        (np.s_[[0.5]], IndexError),
        (np.s_[[0, 1], [0, 1, 2]], IndexError),
        (np.s_[np.ones(3, bool)], IndexError),
        (np.s_["a"], TypeError),
        (np.s_[True], TypeError),
        (np.s_[1.0], TypeError),
        (np.s_[::0], ValueError),
        (np.s_[1:, [0, 1]], NotImplementedError),
        (np.s_[[0, 1], 1:], NotImplementedError),
    ],
)
def test_wrong_keys_are_refused_and_change_nothing(kind, key, error):
    x = kind.from_numpy_array(example())
    with nn.auto_forward():
        with pytest.raises(error):
            x[key]
        with pytest.raises(error):
            x[key] = 0.0
    np.testing.assert_array_equal(values(x), example())


@KINDS
def test_values_of_another_shape_are_refused_and_change_nothing(kind):
    x = kind.from_numpy_array(example())
    for value in (np.zeros(5, np.float32), kind.from_numpy_array(np.zeros(5, np.float32))):
        with pytest.raises(nn.ShapeError):
            x[1] = value
    np.testing.assert_array_equal(values(x), example())


def test_index_variables_are_inputs_of_the_graph():
    x, i, j = nn.Variable.from_numpy_array(example()), nn.Variable((2,)), nn.Variable((2,))
    one, both = x[i], x[i, j]
    for rows, columns in (([0, 3], [1, 2]), ([2, 1], [0, 0])):
        i.d, j.d = rows, columns
        one.forward()
        both.forward()
        np.testing.assert_array_equal(one.d, example()[rows])
        np.testing.assert_array_equal(both.d, example()[rows, columns])


def test_arrays_index_variables_within_the_graph():
    """A variable indexed by an array gives a function of the graph."""
    x = nn.Variable.from_numpy_array(example())
    part = x[nn.NdArray.from_numpy_array(np.array([2, 0]))]
    assert part.parent is not None
    part.forward()
    np.testing.assert_array_equal(part.d, example()[[2, 0]])


def test_masks_may_be_arrays_of_the_library():
    x = nn.Variable.from_numpy_array(example())
    mask = nn.Variable.from_numpy_array(example() > 9)
    with nn.auto_forward():
        np.testing.assert_array_equal(x[mask].d, example()[example() > 9])
        np.testing.assert_array_equal(x.data[mask.data].data, example()[example() > 9])


@pytest.mark.parametrize("key", [np.s_[1:3, 0], np.s_[[1, 2], [0, 0]], np.s_[..., ::-1], np.s_[[0, 2, 0]]])
def test_gradients_of_parts(key):
    """The gradient of a part of an array equals the gradient of NumPy's indexing."""
    x = nn.Variable.from_numpy_array(example(), need_grad=True)
    y = x[key]
    gy = np.arange(1, y.size + 1, dtype=np.float32).reshape(y.shape)
    y.forward()
    x.grad.zero()
    y.backward(gy)
    expected = np.zeros_like(example())
    np.add.at(expected, key, gy)
    np.testing.assert_array_equal(x.g, expected)


@pytest.mark.parametrize("key", [np.s_[1:3, 0], np.s_[[1, 2], [0, 1]], np.s_[2], np.s_[..., ::-1]])
def test_gradients_of_assignments(key):
    """Assignment to a part has the right value, and the right gradients of the array and the assigned value."""
    x = nn.Variable.from_numpy_array(example(), need_grad=True)
    value = nn.Variable.from_numpy_array(-1 - example()[key], need_grad=True)
    y = F.mul_scalar(x, 1.0)
    y[key] = value
    z = F.add_scalar(y, 0.0)
    z.forward()
    expected = example()
    expected[key] = -1 - example()[key]
    np.testing.assert_array_equal(z.d, expected)
    x.grad.zero()
    value.grad.zero()
    z.backward(1 + example())
    kept = 1 + example()
    kept[key] = 0
    np.testing.assert_array_equal(x.g, kept)
    np.testing.assert_array_equal(value.g, (1 + example())[key])


def test_double_precision_is_kept():
    """Assignments in a double-precision context do not round to float32."""
    with nn.context_scope(nn.Context(["cpu:double"])), nn.auto_forward():
        x = nn.Variable.from_numpy_array(np.zeros(3))
        x[1] = 0.1
        assert x.d.tolist() == [0.0, 0.1, 0.0]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    ("assign", "slope"),
    [
        (lambda h: h.__setitem__(0, F.sin(h)[1]), lambda x: [0, np.sin(2 * x[1]) + 2 * x[1], 2 * x[2]]),
        (lambda h: [h.__setitem__(0, h[1] * 2), h.__setitem__(1, h[0] + 1)], None),
        (lambda h: h.__setitem__(slice(None), h), lambda x: 2 * x),
        (lambda h: h.__setitem__(slice(None, None, -1), h), lambda x: 2 * x),
        (
            lambda h: h.__setitem__(F.max(h, axis=0, only_index=True, keepdims=True), h[0]),
            lambda x: [4 * x[0], 2 * x[1], 0],
        ),
    ],
    ids=["function", "twice", "itself", "itself reversed", "index"],
)
def test_assigned_values_are_read_before_the_write(dynamic, assign, slope):
    x = nn.Variable.from_numpy_array(np.array([1.0, 2.0, 3.0]), need_grad=True)
    with nn.auto_forward(dynamic), nn.context_scope(nn.Context(["cpu:double"])):
        h = x * 1
        held = F.exp(h)
        assign(h)
        y = F.sum(h * h)
    if not dynamic:
        nn.forward_all([y, held])
    plain = x.d.copy()
    numbers = [4.0, 5.0, 3.0] if slope is None else None
    if numbers is None:
        same = nn.NdArray.from_numpy_array(plain)
        with nn.context_scope(nn.Context(["cpu:double"])):
            assign(same)
        numbers = same.data
    np.testing.assert_allclose(h.d, numbers)
    x.grad.zero()
    y.backward()
    # Both reads: h0 = 2 x1, h1 = 2 x1 + 1.
    expected = [0, 2 * (2 * 2 * plain[1] + 2 * (2 * plain[1] + 1)), 2 * plain[2]] if slope is None else slope(plain)
    np.testing.assert_allclose(x.g, expected)


@pytest.mark.parametrize("value", [lambda a: a, lambda a: a.view((3,)), lambda a: a.data, lambda a: a.narrow(0, 0, 3)])
def test_values_that_share_the_memory_of_an_array(value):
    """An array can be reversed by assigning it to itself."""
    a = nn.NdArray.from_numpy_array(np.array([1.0, 2.0, 3.0]))
    a[::-1] = value(a)
    assert a.data.tolist() == [3.0, 2.0, 1.0]


def test_values_that_share_the_memory_of_a_variable():
    """A variable can be reversed by assigning an unlinked copy of it."""
    x = nn.Variable.from_numpy_array(np.array([1.0, 2.0, 3.0], np.float32))
    h = x * 1
    h[::-1] = h.get_unlinked_variable()
    h.forward()
    assert h.d.tolist() == [3.0, 2.0, 1.0]


def test_assigned_values_are_read_before_the_write_without_a_graph():
    x = nn.Variable.from_numpy_array(np.array([1.0, 2.0], np.float32), need_grad=True)
    with nn.auto_forward():
        h = x * 1
        y = h * 3
        with nn.no_grad():
            h[0] = y[1]
        assert h.d.tolist() == [6.0, 2.0]
        F.sum(y).backward()
    assert x.g.tolist() == [3.0, 3.0]


def test_a_leaf_with_gradient_refuses_assignments_from_itself():
    x = nn.Variable.from_numpy_array(np.array([1.0, 2.0], np.float32), need_grad=True)
    with pytest.raises(nn.GraphError, match="got a leaf that requires grad"):
        x[0] = x[1] * 2
    assert x.parent is None and x.need_grad and x.d.tolist() == [1.0, 2.0]


def test_a_leaf_is_assigned_to_from_itself():
    x = nn.Variable.from_numpy_array(np.array([1.0, 2.0], np.float32))
    x[0] = x[1] * 2
    for _ in range(2):
        x.forward()
        assert x.d.tolist() == [4.0, 2.0]


def test_invalid_slices_raise_typed_errors():
    """A step of zero and a slice of text raise typed errors."""
    with pytest.raises(nn.RangeError, match="expected a slice with another step than zero, got slice"):
        nn.Variable((3,))[::0]
    with pytest.raises(nn.CallError, match="expected a slice of whole numbers, got slice"):
        nn.Variable((3,))["a":]


OPEN = {
    "part of another axis": np.s_[:, 1:3],
    "from one on": np.s_[1:],
    "up to the last": np.s_[:-1],
    "backward": np.s_[::-1],
    "backward from one on": np.s_[2::-1, ::-2],
    "every second": np.s_[::2],
    "last": np.s_[-1],
    "last two": np.s_[-2:],
    "an axis dropped": np.s_[:, 0],
    "an axis dropped between": np.s_[:, -1, :],
    "a new axis": np.s_[:, None, :2],
    "ellipsis": np.s_[..., 1:],
    "all": np.s_[:],
    "beyond the end": np.s_[1:99],
    "nothing": np.s_[3:1],
    "integers": np.s_[1, -1],
    "array and new axis": np.s_[[2, 0], None],
}
"""Keys that must follow the current shape of the input, not its shape when the graph was built."""
OPEN_KEYS = pytest.mark.parametrize("key", OPEN.values(), ids=OPEN)
"""Runs a test for each open key."""
LENGTHS = (4, 7, 3, 5)
"""Lengths of axis 0 to run a graph with after it was built for 4."""


def rows(n, width=3):
    """Returns an array with `n` rows."""
    return np.arange(n * width * 2, dtype=np.float32).reshape(n, width, 2) + 1


@OPEN_KEYS
def test_open_slices_follow_the_shape(key):
    """Built for 4 rows. Values and gradients are checked for more rows, fewer rows and another width."""
    x = nn.Variable((4, 3, 2), need_grad=True)
    y = x[key]
    for n, width in [(n, 3) for n in LENGTHS] + [(6, 5)]:
        x.reset_shape((n, width, 2), True)
        x.d = rows(n, width)
        y.forward()
        np.testing.assert_array_equal(y.d, rows(n, width)[key], strict=True)
        gy = 1 + np.arange(y.size, dtype=np.float32).reshape(y.shape)
        x.grad.zero()
        y.backward(gy)
        expected = np.zeros_like(x.d)
        np.add.at(expected, key, gy)
        np.testing.assert_array_equal(x.g, expected)


@OPEN_KEYS
@pytest.mark.parametrize("taken", [False, True])
def test_open_slices_in_assignments_follow_the_shape(key, taken):
    x = nn.Variable((4, 3, 2), need_grad=True)
    value = nn.Variable.from_numpy_array(np.float32(-2), need_grad=True)
    h = x * 1
    before = F.sin(h) if taken else None
    h[key] = value
    y = h * 3
    for n in LENGTHS:
        width = 3
        x.reset_shape((n, width, 2), True)
        x.d = rows(n, width)
        nn.forward_all([y] if before is None else [y, before])
        expected = rows(n, width)
        expected[key] = -2
        np.testing.assert_array_equal(y.d, 3 * expected, strict=True)
        for v in (x, value):
            v.grad.zero()
        y.backward(1)
        np.testing.assert_array_equal(x.g, np.where(expected == -2, 0, 3))
        assert value.g == 3 * (expected == -2).sum()


@pytest.mark.parametrize("values", [2.0, np.float32([5, 6]), np.float32([[5], [6], [7]]), np.ones((1, 1, 3, 2))])
def test_values_broadcast_over_open_slices(values):
    """A value assigned to `h[1:]` broadcasts again after `h` changed its length."""
    x = nn.Variable((4, 3, 2), need_grad=True)
    h = x * 1
    h[1:] = values
    for n in LENGTHS:
        x.reset_shape((n, 3, 2), True)
        x.d = rows(n)
        h.forward()
        expected = rows(n)
        expected[1:] = values
        np.testing.assert_array_equal(h.d, expected)


def test_slices_with_none_stay_open():
    """A slice without an end follows later changes of the input's shape."""
    x = nn.Variable((4, 6))
    parts = [
        (np.s_[:, 1:3], F.slice(x, (None, 1), (None, 3), (None, None))),
        (np.s_[::-1], F.slice(x, step=(-1, None))),
        (np.s_[1:, ::-2], F.slice(x, start=(1, None), step=(1, -2))),
        (np.s_[:, -2:], F.slice(x, (0, -2))),
    ]
    args = parts[2][1].parent.info.args
    assert args == {"start": [1, -1], "stop": [4, -7], "step": [1, -2]}
    for n in LENGTHS:
        x.reset_shape((n, 6), True)
        x.d = np.arange(n * 6).reshape(n, 6)
        for key, y in parts:
            y.forward()
            np.testing.assert_array_equal(y.d, x.d[key])


def test_an_index_that_is_beyond_the_new_shape_is_refused():
    x = nn.Variable((4, 2))
    h, y = x * 1, x[3]
    h[3] = 1
    x.reset_shape((3, 2), True)
    for v in (h, y):
        with pytest.raises(nn.IndexRangeError, match="expected an index from -3 to 2 on axis 0, got 3"):
            v.forward()


def test_gradients_as_graphs_of_parts():
    """Parts and assignments to parts can be differentiated twice."""
    for key in (np.s_[1:3, 0], np.s_[:, None, ::-1], np.s_[-1], np.s_[::2, 1, 0]):
        with nn.context_scope(nn.Context(["cpu:double"])):
            x = nn.Variable.from_numpy_array(rows(4), need_grad=True)
            value = nn.Variable.from_numpy_array(np.float64([[3.0]]) if rows(4)[key].ndim > 1 else 3.0, need_grad=True)
            h = x * x
            h[key] = value * value
            loss = F.sum((h * h)[key] * 2) + F.sum(h * h * h)
            g = nn.grad([loss], [x, value])
            gg = nn.grad([F.sum(g[0] * g[0]) + F.sum(g[1] * g[1])], [x, value])
            nn.forward_all([*g, *gg])
        inside = np.zeros((4, 3, 2))
        inside[key] = 1
        n, v, r = inside.sum(), 3.0, rows(4).astype(float)
        # loss = n (2 v^4 + v^6) + the sum of x^6 elsewhere
        np.testing.assert_allclose(g[0].d, np.where(inside, 0, 6 * r**5))
        np.testing.assert_allclose(g[1].d.sum(), n * (8 * v**3 + 6 * v**5))
        np.testing.assert_allclose(gg[0].d, np.where(inside, 0, 2 * 6 * r**5 * 30 * r**4))
        slope = n * (8 * v**3 + 6 * v**5)
        np.testing.assert_allclose(gg[1].d.sum(), 2 * slope * n * (24 * v**2 + 30 * v**4))


def test_an_assignment_from_itself_without_a_graph():
    """`x[::-1] = x` without a graph reads the old values."""
    x = nn.Variable.from_numpy_array(np.array([1.0, 2.0, 3.0], np.float32))
    with nn.auto_forward(), nn.no_grad():
        x[::-1] = x
        assert x.d.tolist() == [3.0, 2.0, 1.0]
