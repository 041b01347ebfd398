"""Functions that move or select elements keep integer types. Index functions refuse indices that may be rounded."""

import numpy as np
import pytest
from cases import all_rows
from support import call

import kinnor as nn
import kinnor.functions as F
from kinnor import _core

CONTEXTS = ("float", "double", "half", "bfloat16")
"""Element types of contexts."""
LARGE = 2**53 + 1
"""An integer that no floating-point type represents exactly, nor its odd neighbours."""

MOVING = {
    "assign", "bool_fill", "bool_gather", "bool_scatter", "broadcast", "broadcast_to", "concatenate",
    "concatenate_parts", "embed", "flip", "gather", "gather_nd", "identity", "matrix_diag", "matrix_diag_part",
    "max", "meshgrid", "min", "onnx_resize", "pack_padded_sequence", "pad", "pad_packed_sequence", "random_choice",
    "random_crop", "random_flip", "random_shift", "reshape", "scatter_nd", "shift", "slice", "sort", "split",
    "stack", "tile", "top_k_data", "transpose", "trilu", "unique", "unlink", "unpooling", "where",
}  # fmt: skip
"""Functions of the table whose outputs are elements of their inputs and constants."""
SELECTING = {
    "abs", "ceil", "clip_grad_by_norm", "clip_grad_by_value", "crelu", "floor", "interpolate",
    "max_pooling", "maximum2", "maximum_scalar", "minimum2", "minimum_scalar", "prune", "relu", "reset_inf",
    "reset_nan", "round", "top_k_grad", "warp_by_grid",
}  # fmt: skip
"""Functions of the table that compute, but whose results for integers are elements of their inputs or constants."""
COMPUTING = {
    "add_n", "affine", "batch_det", "binary_connect_affine", "celu", "cumsum", "deformable_convolution", "dropout",
    "elu", "fft", "gelu", "global_average_pooling", "gru", "hard_swish", "ifft", "image_augmentation", "interpolate",
    "leaky_relu", "log_sigmoid", "lstm", "max_pooling_backward", "mean", "min_max_quantize", "mish", "mod2", "mul_n",
    "mul_scalar", "nms_detection2d", "norm", "onnx_resize", "pad", "pow_scalar", "prelu", "prod", "quantized_lstm",
    "random_erase", "reduce_mean", "reduce_sum", "scaled_dot_product_attention", "scatter_add", "scatter_nd",
    "softplus", "spectral_norm", "stft", "sum", "swish", "warp_by_flow", "warp_by_grid", "weight_normalization",
}  # fmt: skip
"""Functions of the table that compute real numbers. Most of these happen to be elements of large inputs."""


def integers(x):
    """Returns large odd integers, which float32 cannot hold, in the shape of a real input. Indices stay as they are."""
    if x is None or x.dtype.kind != "f":
        return x
    return LARGE + 2 * np.arange(x.size, dtype=np.int64).reshape(x.shape)


def outputs(row, inputs):
    """Returns the outputs of a row for integer inputs."""
    return [values(y) for y in call(row, [None if x is None else nn.NdArray.from_numpy_array(x) for x in inputs])]


def values(y):
    """Returns the values of an array, or of a variable after a run."""
    if isinstance(y, nn.NdArray):
        return y.data
    if y.parent is not None:
        y.forward()
    return y.d


@pytest.mark.parametrize("context", ["float", "bfloat16"])
def test_an_integer_result_holds_elements_of_the_inputs_only(context):
    """An operation declared as moving elements must not compute with them."""
    moving = set()
    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        for row in all_rows():
            given = [integers(x) for x in row.inputs]
            try:
                reals, got = outputs(row, row.inputs), outputs(row, given)
            except (nn.Error, ValueError, TypeError):  # the operation refuses integers, or takes variables only
                continue
            kept = [y for y, real in zip(got, reals, strict=True) if y.dtype != real.dtype]
            if not kept:
                continue
            moving.add(row.name)
            known = {int(v) for x in given if x is not None for v in np.ravel(x)}
            constants = {int(v) for v in row.args.values() if isinstance(v, (int, float))} | {0}
            for y in kept:
                assert y.dtype == np.int64, row
                assert {int(v) for v in y.ravel()} <= known | constants, row
    assert moving - SELECTING == MOVING


def large(x, salt):
    """Returns integers that float32 rounds, with the signs of a real input. Indices stay as they are."""
    if x is None or x.dtype.kind != "f":
        return x
    sizes = 2**30 + 1 + 2 * np.random.default_rng(salt).permutation(3 * x.size + 1)[: x.size]
    return np.where(np.ravel(x) < 0, -sizes, sizes).reshape(x.shape)


def are_elements(arrays, inputs):
    """Returns whether most large numbers of arrays are elements of the inputs, or their negatives."""
    known = np.abs(np.concatenate([np.ravel(x).astype(np.float64) for x in inputs if x is not None]))
    found = np.abs(np.concatenate([np.ravel(y) for y in arrays]).astype(np.float64))
    found = found[(found > 2**24) & np.isfinite(found)]
    return found.size > 0 and np.isin(found, known).mean() > 0.5


@pytest.mark.parametrize("context", ["float", "half", "bfloat16"])
def test_functions_that_select_elements_keep_integers_exact(context):
    """Finds functions whose results are elements of their inputs. Such functions must keep integers."""
    exact, rounded = set(), set()
    for row in all_rows():
        given = [large(x, salt) for salt, x in enumerate(row.inputs)]
        reals = [
            x if x is row_x or x is None else x.astype(np.float64) for x, row_x in zip(given, row.inputs, strict=True)
        ]
        state = _core.random_state()
        try:
            with nn.context_scope(nn.Context(["cpu:double"])):
                expected = outputs(row, reals)
            if not are_elements(expected, given):
                continue
            _core.restore_random(*state)
            with nn.context_scope(nn.Context([f"cpu:{context}"])):
                got = outputs(row, given)
        except (nn.Error, ValueError, TypeError):
            continue  # It refuses such numbers.
        whole = [
            (y, e) for y, e in zip(got, expected, strict=True) if y.dtype.kind in "iu" and are_elements([e], given)
        ]
        if not whole:
            rounded.add(row.name)
            continue
        exact.add(row.name)
        known = {abs(int(v)) for x in given if x is not None for v in np.ravel(x)}
        constants = {int(v) for v in np.ravel([v for v in row.args.values() if isinstance(v, (int, float))])} | {0, 1}
        for y, e in whole:
            assert {abs(int(v)) for v in y.ravel()} <= known | {abs(v) for v in constants}, row
            assert row.random or np.array_equal(y, e), row
    assert exact - MOVING == SELECTING
    assert rounded - {"maximum_scalar", "minimum_scalar", "clip_by_value"} <= COMPUTING | MOVING


BOUNDS = {
    "maximum_scalar": (F.maximum_scalar, np.maximum),
    "minimum_scalar": (F.minimum_scalar, np.minimum),
    "pad": (lambda x, v: F.pad(x, (0, 1), constant_value=v), lambda x, v: np.append(x, np.int64(v))),
    "bool_fill": (
        lambda x, v: F.bool_fill(x, nn.Variable.from_numpy_array(np.array([1, 0, 0])), v),
        lambda x, v: np.append(v, x[1:]),
    ),
    "abs": (lambda x, _: F.abs(x), lambda x, _: np.abs(x)),
    "crelu": (lambda x, _: F.crelu(x, axis=0), lambda x, _: np.append(np.maximum(x, 0), np.maximum(-x, 0))),
}
"""Functions with a number among their results that the type of the input may not hold, and NumPy's in int64."""


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64])
@pytest.mark.parametrize("bound", [0, 5, -5, 300, -70000, 2**40 + 1])
@pytest.mark.parametrize("name", BOUNDS)
def test_results_that_the_type_of_the_input_does_not_hold_are_exact(mode, name, bound, dtype):
    """A bound or an absolute value beyond the type of the input does not wrap around and is not cut off."""
    ours, numpys = BOUNDS[name]
    x = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 3], dtype)
    if np.iinfo(dtype).bits == 64:
        x = np.array([-(2**53), 2**53, 3])
    y = ours(nn.Variable.from_numpy_array(x), bound)
    if mode == "static":
        y.forward()
    assert y.d.tolist() == numpys(x.astype(np.int64), bound).tolist()
    assert y.d.dtype.kind in "iu"


@pytest.mark.parametrize("context", CONTEXTS)
def test_bounds_that_no_integer_has(mode, context):
    """An infinite bound changes nothing. A fraction makes real numbers, and numbers beyond it may be any."""
    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        ids = nn.Variable.from_numpy_array(np.array([2**24 + 1, -7, 257]))
        same = F.minimum_scalar(F.maximum_scalar(ids, -np.inf), np.inf)
        real = F.clip_by_value(ids, -5, 100.5)
        least = F.maximum_scalar(F.minimum_scalar(ids, -5), -6.5)
        if mode == "static":
            nn.forward_all([same, real, least])
        assert same.d.tolist() == ids.d.tolist()
        assert real.d.dtype.kind != "i" and real.d.tolist() == [100.5, -5, 100.5]
        assert least.d.dtype.kind != "i" and least.d.tolist() == [-5, -6.5, -5]


LIMITS = {"float": 2**24, "double": 2**53, "half": 2**11, "bfloat16": 2**8}
"""The number up to which the type of each context holds all integers."""


def variable(x):
    """Returns a variable of a list or an array."""
    return nn.Variable.from_numpy_array(np.asarray(x))


HALVES = [0.5, 0.5]
"""Real numbers that every context holds."""
MIXED = {
    "concatenate": lambda i: F.concatenate(i, variable(HALVES), axis=0),
    "concatenate, the other way": lambda i: F.concatenate(variable(HALVES), i, axis=0),
    "stack": lambda i: F.stack(i, variable(HALVES)),
    "where": lambda i: F.where(variable([1, 1]), i, variable(HALVES)),
    "maximum2": lambda i: F.maximum2(i, variable(HALVES)),
    "minimum2": lambda i: F.minimum2(variable([np.inf, np.inf]), i),
    "maximum_scalar": lambda i: F.maximum_scalar(i, 0.5),
    "minimum_scalar": lambda i: F.minimum_scalar(i, 1e300),
    "pad": lambda i: F.pad(i, (0, 1), constant_value=0.5),
    "random_shift": lambda i: F.random_shift(F.reshape(i, (1, 2)), (0,), border_mode="constant", constant_value=0.5),
    "bool_fill": lambda i: F.bool_fill(i, variable([0, 0]), 0.5),
    "pad_packed_sequence": lambda i: F.pad_packed_sequence(
        F.reshape(i, (2, 1)), variable([2]), padding_value=0.5, total_length=3
    )[0],
    "random_erase": lambda i: F.random_erase(F.reshape(i, (1, 1, 1, 2)), prob=0.0),
    "nms_detection2d": lambda i: F.nms_detection2d(F.pad(F.reshape(i, (1, 1, 2)), (0, 4))),
    "a part of an array": lambda i: F.concatenate(F.mul_scalar(variable(HALVES), 1), i[1:], i[:1], axis=0),
}
"""Functions that move integers among real numbers, whose type the results have."""


@pytest.mark.parametrize("dtype", [np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", MIXED)
def test_integers_among_real_numbers_are_exact_or_refused(mode, name, context, dtype):
    """No integer is rounded to the type of the result."""
    limit = LIMITS[context]
    largest = {"half": 65504}.get(context, 2**62)

    def run(*integers):
        """Returns the numbers of the result that are larger than 1."""
        y = MIXED[name](variable(np.array(integers, dtype)))
        if mode == "static":
            y.forward()
        assert y.d.dtype.kind not in "iu"
        found = np.ravel(np.asarray(y.d, np.float64))
        return sorted(int(v) for v in found[found > 1])

    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        most = min(np.iinfo(dtype).max, largest)
        held = [
            v for v in (limit - 1, limit, limit + 2 if limit > 256 else limit + 4, 4 * limit, 12 * limit) if v <= most
        ]
        for v in held:
            assert run(v, 3) == sorted((v, 3))
        if dtype in (np.int16, np.int32, np.int64) and name not in ("maximum2", "maximum_scalar"):
            run(-min(most, limit), 3)
        for v in (limit + 1, 4 * limit - 1, most | 1):
            if limit < v <= np.iinfo(dtype).max:
                function = name.split(",")[0].replace("a part of an array", "concatenate")
                with pytest.raises(nn.IndexRangeError, match=rf"{function}: expected integers that .* real .*got {v}"):
                    run(3, v)


@pytest.mark.parametrize("context", CONTEXTS)
def test_parts_of_real_arrays_take_integers_exactly_or_not_at_all(mode, context):
    with nn.context_scope(nn.Context([f"cpu:{context}"])):

        def run(v):
            """Returns an array into which an integer was assigned."""
            x = nn.Variable.from_numpy_array(np.array([0.5, 0.5, 0.5], np.float32))
            x[1:2] = nn.Variable.from_numpy_array(np.array([v]))
            if mode == "static":
                x.forward()
            return x.d.tolist()

        assert run(LIMITS[context]) == [0.5, LIMITS[context], 0.5]
        with pytest.raises(nn.IndexRangeError, match="expected integers that"):
            run(LIMITS[context] + 1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
@pytest.mark.parametrize("context", CONTEXTS)
def test_truth_values_beside_integers_are_integers(mode, context, dtype):
    """As in NumPy and PyTorch. Truth values alone are real numbers, as in every function."""
    most = np.iinfo(dtype).max if dtype != np.int64 else 2**53 - 1
    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        a, b = variable([True, False, True]), variable(np.array([most, 0, 1], dtype))
        for y, expected in (
            (F.concatenate(a, b, axis=0), [1, 0, 1, most, 0, 1]),
            (F.where(a, b, a), [most, 0, 1]),
            (F.maximum2(a, b), [most, 0, 1]),
            (F.minimum2(b, a), [1, 0, 1]),
        ):
            if mode == "static":
                y.forward()
            assert y.d.dtype == dtype and y.d.tolist() == expected
        alone = F.concatenate(a, a, axis=0)
        if mode == "static":
            alone.forward()
        assert alone.d.dtype.kind not in "iu"


@pytest.mark.parametrize("context", CONTEXTS)
def test_a_static_graph_refuses_integers_among_reals_only_while_it_has_them(context):
    """A plan that was made for real numbers notices integers that it would round, in each later run."""
    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        x = nn.Variable((2,))
        y = F.mul_scalar(F.relu(F.maximum2(F.minimum_scalar(x, 1e300), variable(HALVES))), 1.0)
        z = F.sink(y, F.concatenate(x, variable(HALVES), axis=0))
        for _ in range(3):
            for _ in range(3):
                x.d = [2.25, 3.5]
                z.forward(clear_no_need_grad=True)
            x.d = np.array([3, LIMITS[context]])
            z.forward(clear_no_need_grad=True)
            x.d = np.array([3, LIMITS[context] + 1])
            with pytest.raises(nn.IndexRangeError, match="expected integers that"):
                z.forward(clear_no_need_grad=True)


CHOOSING = {
    "max_pooling_backward": (
        lambda x: F.max_pooling_backward(variable([[7.0, 5.0]]), x, (2,)), lambda x: [[0, 7, 5, 0]],
    ),
    "confusion_matrix": (
        lambda x: F.confusion_matrix(F.reshape(x, (2, 2)), variable([[1], [0]])), lambda x: [[1, 0], [0, 1]],
    ),
    "top_n_error": (lambda x: F.top_n_error(F.reshape(x, (2, 2)), variable([[1], [0]])), lambda x: [[0], [0]]),
}  # fmt: skip
"""Functions whose results are other numbers, by the largest of some integers, and the right results."""


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", CHOOSING)
def test_choices_by_integers_are_exact_or_refused(mode, name, context):
    """The largest of integers is found among the numbers themselves, not among rounded ones."""
    function, expected = CHOOSING[name]

    def run(x):
        """Returns the result for four integers."""
        y = function(variable([x]))
        if mode == "static":
            y.forward()
        return y.d.tolist()

    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        for a in (256, 2048, 2**24, 2**52):
            assert run([a, a + 1, a + 1, a]) == expected(None)
        with pytest.raises(nn.IndexRangeError, match=rf"{name}: expected integers from -2\^53 to 2\^53 in x"):
            run([1, 2**53 + 1, 3, 2])


@pytest.mark.parametrize("context", CONTEXTS)
def test_gradients_of_selected_integers_are_those_of_the_selection(context):
    """Kernel and rule give the gradient to the element that was selected, not to one that rounding made equal."""
    functions = {
        "max_pooling": lambda x: F.max_pooling(x, (2,)),
        "max": lambda x: F.max(x, axis=1),
        "sort": lambda x: F.sort(x, axis=1)[:, -1],
    }
    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        for name, function in functions.items():
            x = nn.Variable.from_numpy_array(np.array([[2**24, 2**24 + 1]]), need_grad=True)
            y = function(x)
            y.forward()
            x.grad.zero()
            y.backward()
            (by_rule,) = nn.grad([y], [x])
            by_rule.forward()
            assert x.g.tolist() == [[0, 1]], name
            assert by_rule.d.tolist() == [[0, 1]], name


@pytest.mark.parametrize("context", CONTEXTS)
def test_selections_of_integers_in_fused_plans(context):
    """A plan that was fused for real numbers keeps integers that a leaf holds later, and the other way round."""
    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        x, other = nn.Variable((4,)), nn.Variable((4,))
        other.d = 1.0
        # The first part of the chain selects, the rest computes.
        chosen = F.minimum2(F.maximum_scalar(F.relu(x), 2), F.abs(x))
        computed = F.relu(F.add_scalar(F.mul2(F.maximum2(F.exp(F.mul_scalar(other, 0.0)), other), other), 1.0))
        both = F.sink(chosen, computed)
        chosen.persistent = computed.persistent = True
        for values in (
            np.array([1.5, -2.25, 3.0, 4.0]),
            np.array([2**24 + 1, -(2**24) - 1, 257, 1]),
            np.array([1.5, -2.25, 3.0, 4.0]),
            np.array([2049, 5, -3, 2**40 + 1]),
        ):
            x.d = values
            expected = np.minimum(np.maximum(np.maximum(values, 0), 2), np.abs(values))
            for _ in range(3):
                both.forward(clear_buffer=True)
                assert chosen.d.tolist() == expected.tolist()
                assert (chosen.d.dtype.kind == "i") == (values.dtype.kind == "i")
                assert computed.d.tolist() == [2] * 4


MOVES = {
    "identity": F.identity,
    "reshape": lambda i: F.reshape(i, (4, 2)),
    "slice": lambda i: i[:, 1:],
    "indices": lambda i: i[[1, 0]],
    "mask": lambda i: F.bool_gather(i, nn.Variable.from_numpy_array(np.ones((2, 4)))),
    "concatenate": lambda i: F.concatenate(i, i, axis=1),
    "transpose": lambda i: F.transpose(i, (1, 0)),
    "stack": lambda i: F.stack(i, i),
    "split": lambda i: F.split(i, axis=1)[1],
    "where": lambda i: F.where(nn.Variable.from_numpy_array(np.eye(2, 4)), i, i),
    "pad": lambda i: F.pad(i, (0, 1), constant_value=7),
    "flip": F.flip,
    "tile": lambda i: F.tile(i, (2, 1)),
    "broadcast": lambda i: F.broadcast(F.reshape(i, (1, 2, 4)), (3, 2, 4)),
    "gather": lambda i: F.gather(i, nn.Variable.from_numpy_array(np.array([1, 0])), axis=0),
    "sort": lambda i: F.sort(i, axis=1, reverse=True),
    "max": lambda i: F.max(i, axis=0),
    "min": lambda i: F.min(i, axis=0),
    "top_k_data": lambda i: F.top_k_data(i, 2),
    "unique": F.unique,
    "assign": lambda i: F.assign(nn.Variable.from_numpy_array(np.zeros_like(i.d)), i),
    "relu": F.relu,
    "round": F.round,
    "maximum2": lambda i: F.maximum2(i, i),
    "minimum_scalar": lambda i: F.minimum_scalar(i, 28001),
    "clip_by_value": lambda i: F.clip_by_value(i, 0, 28000),
    "max_pooling": lambda i: F.max_pooling(i, (1, 2)),
    "interpolate": lambda i: F.interpolate(i, output_size=(3, 2), mode="nearest"),
    "chain": lambda i: F.concatenate(F.transpose(F.identity(i)[:, ::2], (1, 0)), F.pad(i, (0, 0))[:, :2], axis=1),
}
"""Functions that move integers. They must keep them exact in each context."""
IDS = np.array([[11, 2049, 28001, 257], [300, 12345, 20001, 4099]])
"""Row numbers. Half precision and bfloat16 would round most of them."""
TABLE = np.stack([np.arange(30000) // 128, np.arange(30000) % 128], 1).astype(np.float32)
"""A table whose row `i` identifies `i`, by numbers that each context holds exactly."""


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("move", MOVES)
def test_moved_ids_select_their_rows(mode, context, move):
    """Indices that were moved before `embed` select the right rows in every context."""
    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        for ids in (IDS, IDS.astype(np.int32), IDS.astype(np.uint16)):
            i = nn.Variable.from_numpy_array(ids)
            moved = MOVES[move](i)
            y = F.embed(moved, nn.Variable.from_numpy_array(TABLE))
            y.persistent = moved.persistent = True
            if mode == "static":
                y.forward(clear_buffer=True)
                y.forward(clear_no_need_grad=True)
            assert moved.d.dtype == ids.dtype
            assert np.array_equal(y.d[..., 0].astype(int) * 128 + y.d[..., 1].astype(int), moved.d)
        with nn.context_scope(nn.Context(["cpu:double"])):
            exact = MOVES[move](nn.Variable.from_numpy_array(IDS.astype(np.float64)))
            exact.forward()
        assert np.array_equal(moved.d, exact.d)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
def test_every_integer_type_keeps_its_extremes(mode, dtype):
    """The extreme values of each integer type pass through functions that move elements."""
    ends = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 1], dtype)
    y = F.concatenate(nn.Variable.from_numpy_array(ends)[::-1], nn.Variable.from_numpy_array(ends), axis=0)
    if mode == "static":
        y.forward()
    assert y.d.dtype == dtype and y.d.tolist() == [*ends[::-1].tolist(), *ends.tolist()]


def test_a_static_graph_follows_the_type_of_its_input():
    x = nn.Variable((3,))
    y = F.flip(F.identity(x))
    for values in (np.array([1.5, 2, 3], np.float32), np.array([1, 2**40, 3]), np.array([1.5, 2, 3], np.float64)):
        x.d = values
        y.forward()
        assert y.d.tolist() == values[::-1].tolist()
        assert (y.d.dtype.kind == "i") == (values.dtype.kind == "i")


def test_integers_beside_real_numbers_are_real_numbers(mode):
    y = F.concatenate(
        nn.Variable.from_numpy_array(np.array([1, 2])), nn.Variable.from_numpy_array(np.array([0.5])), axis=0
    )
    if mode == "static":
        y.forward()
    assert y.d.dtype == np.float32 and y.d.tolist() == [1, 2, 0.5]


def test_a_fraction_put_among_integers_makes_real_numbers(mode):
    y = F.pad(nn.Variable.from_numpy_array(np.array([1, 2])), (0, 1), constant_value=0.5)
    if mode == "static":
        y.forward()
    assert y.d.tolist() == [1, 2, 0.5]


def test_parts_of_an_array_of_integers_take_integers():
    """Integers assigned to a slice of a variable of integers stay exact."""
    x = nn.Variable.from_numpy_array(np.array([2**60 + 1, 2, 3]))
    x[1:] = nn.Variable.from_numpy_array(np.array([2**60 + 3, 5]))
    x.forward()
    assert x.d.tolist() == [2**60 + 1, 2**60 + 3, 5]


def test_gradients_go_through_moved_integers_as_through_numbers(mode):
    x = nn.Variable.from_numpy_array(np.array([1, 2, 3]), need_grad=True)
    y = F.sum(F.concatenate(x[1:], x, axis=0) * 2.0)
    if mode == "static":
        y.forward()
    x.grad.zero()
    y.backward()
    assert x.g.tolist() == [2, 4, 4]


@pytest.mark.parametrize(("context", "limit"), [("float", 2**24), ("half", 2**11), ("bfloat16", 2**8)])
def test_indices_that_may_be_rounded_are_refused(mode, context, limit):
    with nn.context_scope(nn.Context([f"cpu:{context}"])):

        def embed(index):
            """Looks up one row by an index that was converted to a float."""
            i = nn.Variable.from_numpy_array(np.array([index]))
            y = F.embed(F.mul_scalar(i, 1), nn.Variable.from_numpy_array(np.zeros((limit + 8, 1), np.float32)))
            if mode == "static":
                y.forward()
            return y

        assert embed(limit - 1).d.tolist() == [[0]]
        with pytest.raises(nn.IndexRangeError, match=f"embed: expected integers in x0, got {limit} .*rounded"):
            embed(limit + 1)


def test_a_label_keeps_its_class_in_sixteen_bits():
    with nn.context_scope(nn.Context(["cpu:bfloat16"])):
        scores = np.zeros((1, 512), np.float32)
        scores[0, 257] = 20
        labels = nn.Variable.from_numpy_array(np.array([[257, 0]]))
        loss = F.softmax_cross_entropy(nn.Variable.from_numpy_array(scores), labels[:, :1])
        loss.forward()
        assert loss.d.item() < 1e-4


COMPARING = {
    "sort": F.sort,
    "max": F.max,
    "min": F.min,
    "top_k_data": lambda x: F.top_k_data(F.reshape(x, (1, 4)), 2),
    "unique": F.unique,
    "relu": F.relu,
    "maximum_scalar": lambda x: F.maximum_scalar(x, 0),
    "max_pooling": lambda x: F.max_pooling(x, (1,)),
}
"""Functions that compare the elements that they move."""


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", COMPARING)
def test_integers_are_compared_exactly_or_refused(mode, context, name):
    """Sorting and selecting large integers is exact, or an error."""

    def run(ids):
        """Returns the values of the function."""
        y = COMPARING[name](nn.Variable.from_numpy_array(ids))
        if mode == "static":
            y.forward()
        return y.d

    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        ids = np.array([2**24 + 1, 2**24, 2**53 - 1, 257])
        expected = {"sort": np.sort(ids), "max": ids.max(), "min": ids.min(), "unique": np.unique(ids)}
        expected["top_k_data"] = [[2**53 - 1, 2**24 + 1]]
        expected |= dict.fromkeys(("relu", "maximum_scalar", "max_pooling"), ids)
        got = run(ids)
        assert got.dtype == np.int64
        assert sorted(np.ravel(got)) == sorted(np.ravel(expected[name]))
        with pytest.raises(nn.IndexRangeError, match=rf"{name}: expected integers from -2\^53 to 2\^53 in x"):
            run(np.array([1, 2, 3, 2**53 + 1]))


@pytest.mark.parametrize("context", CONTEXTS)
def test_shapes_count_the_values_that_kernels_read(mode, context):
    """Output shapes that depend on values use the values in the context's type."""
    values = np.array([1.0, 1 + 1e-10, 2.0, 1e-60, 0.0])
    read = values if context == "double" else values.astype(np.float32)
    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        x = nn.Variable.from_numpy_array(values)
        for y, expected in (
            (F.unique(x), np.unique(read)),
            (F.nonzero(x), np.array(np.nonzero(read))),
            (F.bool_gather(nn.Variable.from_numpy_array(np.arange(5.0)), x), np.flatnonzero(read)),
        ):
            if mode == "static":
                y.forward()
            assert y.d.tolist() == expected.tolist()


COMPARISONS = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
}
"""Functions of truth values, and NumPy's."""
NEIGHBOURS = np.array([256, 257, 2048, 2049, 2**24, 2**24 + 1, 2**53 - 1])
"""Pairs of adjacent integers. Each context except double rounds some of them to the other one of the pair."""


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("name", COMPARISONS)
def test_truth_values_are_of_integers_not_of_rounded_ones(mode, context, name):
    """Comparisons of large integers do not round them to the type of the context."""

    def run(function, *inputs):
        """Returns the values of a comparison alone, and between other elementwise functions that a plan may fuse."""
        variables = [nn.Variable.from_numpy_array(x) for x in inputs]
        y = function(*variables)
        z = F.mul_scalar(F.add_scalar(y, 1.0), 2.0)
        both = F.sink(y, z)
        y.persistent = z.persistent = True
        for _ in range(3 if mode == "static" else 0):
            both.forward(clear_buffer=True)
        assert np.array_equal(z.d, (y.d + 1) * 2)
        return y.d

    def compare(x):
        """Compares with the number that each context but double rounds."""
        return getattr(F, f"{name}_scalar")(x, 257)

    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        for a, b in ((NEIGHBOURS, NEIGHBOURS - 1), (NEIGHBOURS - 1, NEIGHBOURS), (NEIGHBOURS, NEIGHBOURS)):
            assert run(getattr(F, name), a, b).tolist() == COMPARISONS[name](a, b).tolist()
        assert run(compare, NEIGHBOURS).tolist() == COMPARISONS[name](NEIGHBOURS, 257).tolist()
        reals = np.arange(7, dtype=np.float32)
        assert (
            run(getattr(F, name), np.arange(7), reals + 0.5).tolist() == COMPARISONS[name](reals, reals + 0.5).tolist()
        )
        expected = run(getattr(F, name), reals, reals)
        assert run(getattr(F, name), np.arange(7), np.arange(7)).dtype == expected.dtype


def test_a_static_comparison_follows_the_type_of_its_input():
    """A plan that was fused for real numbers must notice that a leaf holds integers."""
    x, computed = nn.Variable((3,)), nn.Variable((3,))
    y = F.equal_scalar(F.mul_scalar(F.add_scalar(F.equal(x, F.exp(computed)), 1.0), 2.0), 4.0)
    z = F.greater(F.exp(computed), F.add_scalar(F.exp(computed), -1.0))
    both = F.sink(y, z)
    y.persistent = z.persistent = True
    computed.d = np.log(float(2**24))
    with nn.auto_forward():
        power = F.exp(computed).d[0]
    for _ in range(3):
        for values in (np.full(3, power), np.full(3, int(power)), np.full(3, int(power) + 1), np.full(3, power)):
            x.d = values
            for _ in range(2):
                both.forward(clear_buffer=True)
                assert y.d.tolist() == (values == power).tolist()
                assert z.d.tolist() == [1, 1, 1]


def test_a_comparison_after_a_product_follows_the_type_of_the_other_side():
    """A plan that compares in the epilogue of a product must notice that the other side holds integers."""
    x, other = nn.Variable((3, 1)), nn.Variable((3, 1))
    y = F.less(F.affine(x, nn.Variable.from_numpy_array(np.ones((1, 1)))), other)
    x.d = 2**24
    for values in (2.0**24, 2**24 + 1, 2**24, 2.0**25):
        other.d = np.full((3, 1), values)
        for _ in range(3):
            y.forward(clear_buffer=True)
            assert y.d.ravel().tolist() == [values > 2**24] * 3


def test_integers_that_a_comparison_may_round_are_refused_only_if_both_sides_are_large(mode):
    def run(function, *inputs):
        """Returns the values of a comparison."""
        y = function(*map(nn.Variable.from_numpy_array, inputs))
        if mode == "static":
            y.forward()
        return y.d.tolist()

    large = np.array([2**60 + 1, -(2**60) - 1, 5])
    assert run(F.greater, large, np.array([0, 0, 5])) == [1, 0, 0]
    assert run(lambda x: F.equal_scalar(x, -1), large) == [0, 0, 0]
    with pytest.raises(nn.IndexRangeError, match=r"equal: expected integers from -2\^53 to 2\^53 in x1"):
        run(F.equal, large, large)
    with pytest.raises(nn.IndexRangeError, match=r"equal_scalar: expected integers from -2\^53 to 2\^53 in x0"):
        run(lambda x: F.equal_scalar(x, 2.0**60), large)


@pytest.mark.parametrize("context", CONTEXTS)
def test_searches_compare_integers_exactly(mode, context):
    """`searchsorted` of large adjacent integers is exact."""
    with nn.context_scope(nn.Context([f"cpu:{context}"])):
        y = F.searchsorted(nn.Variable.from_numpy_array(NEIGHBOURS), nn.Variable.from_numpy_array(NEIGHBOURS + 1))
        if mode == "static":
            y.forward()
        assert y.d.tolist() == np.searchsorted(NEIGHBOURS, NEIGHBOURS + 1).tolist()
