"""First obstacles for programs written for NNabla: integral floats, NNabla's keywords, recurrent states, mistakes."""

import importlib

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S


def variable(*shape, need_grad=False):
    """Returns a variable with random values."""
    x = np.random.RandomState(0).randn(*shape).astype(np.float32)
    return nn.Variable.from_numpy_array(x, need_grad=need_grad)


WHOLE = [
    (lambda: PF.convolution(variable(1, 4, 8, 8), 16 / 2, (6 / 2, 3.0), pad=(1.0, 1), stride=(2.0, 2.0)), (1, 8, 4, 4)),
    (lambda: PF.convolution(variable(1, 4, 8, 8), 8, (3, 3), group=4 / 2), (1, 8, 6, 6)),
    (lambda: PF.deconvolution(variable(1, 4, 8, 8), 16 / 4, (2, 2), stride=(2.0, 2)), (1, 4, 16, 16)),
    (lambda: PF.affine(variable(2, 4), 6 / 2), (2, 3)),
    (lambda: PF.affine(variable(2, 4), (6 / 2, 2.0), base_axis=1.0), (2, 3, 2)),
    (lambda: PF.embed(nn.Variable((2,)), 8 / 2, 3.0), (2, 3)),
    (lambda: PF.group_normalization(variable(1, 4, 2), 4 / 2), (1, 4, 2)),
    (lambda: F.reshape(variable(2, 6), (3, 8 / 2)), (3, 4)),
    (lambda: F.reshape(variable(2, 6), (2.0, -1.0)), (2, 6)),
    (lambda: F.max_pooling(variable(1, 1, 4, 4), (4 / 2, 2.0)), (1, 1, 2, 2)),
    (lambda: F.sum(variable(2, 3), axis=1.0), (2,)),
    (lambda: F.slice(variable(2, 6), (0, 0.0), (2.0, 3)), (2, 3)),
    (lambda: F.slice(variable(2, 6), (None, 1.0), (2.0, None)), (2, 5)),
    (lambda: F.one_hot(nn.Variable((2, 1)), (5.0,)), (2, 5)),
    (lambda: F.tile(variable(2, 3), (2.0, 1)), (4, 3)),
    (lambda: F.pad(variable(2, 3), (1.0, 1.0)), (2, 5)),
    (lambda: F.broadcast(variable(1, 3), (4.0, 3)), (4, 3)),
    (lambda: F.interpolate(variable(1, 4, 4), output_size=(8 / 2, 6.0)), (1, 4, 6)),
    (lambda: F.rand(shape=(2.0, 3)), (2, 3)),
    (lambda: nn.Variable((4 / 2, 3)), (2, 3)),
    (lambda: nn.NdArray((2, np.float32(3))), (2, 3)),
    (lambda: nn.parameter.get_parameter_or_create("w", (2.0, 3)), (2, 3)),
]
"""Calls with integral floats for integers, and the shape of each result."""


@pytest.mark.parametrize(("make", "shape"), WHOLE)
def test_integral_floats_are_integers(make, shape):
    """Floats with an integral value are accepted for integer arguments."""
    assert make().shape == shape


BROKEN = [
    lambda: PF.convolution(variable(1, 4, 8, 8), 2.5, (3, 3)),
    lambda: PF.convolution(variable(1, 4, 8, 8), 4, (3, 2.5)),
    lambda: PF.affine(variable(2, 4), 3, base_axis=0.5),
    lambda: F.reshape(variable(2, 6), (2.5, 4)),
    lambda: F.sum(variable(2, 3), axis=0.5),
    lambda: F.max_pooling(variable(1, 1, 4, 4), (2, float("nan"))),
    lambda: F.slice(variable(2, 6), (None, 1.5), (2, None)),
    lambda: nn.Variable((2.5, 3)),
    lambda: nn.Variable((float("inf"), 3)),
    lambda: nn.parameter.get_parameter_or_create("w", (2.5, 3)),
    lambda: nn.seed(2.5),
]
"""Calls with one float that is no integer. Each must raise."""


@pytest.mark.parametrize("call", BROKEN)
def test_other_floats_are_refused(call):
    """Floats that are not integral are refused for integer arguments, before anything is registered."""
    with pytest.raises((nn.CallError, nn.ArgumentError, nn.RangeError), match=r"2\.5|0\.5|1\.5|NaN|inf"):
        call()
    assert nn.get_parameters(grad_only=False) == {}


def test_arrays_of_one_element_are_numbers():
    """An array of one element is accepted where a number is expected."""
    x = variable(2, 3)
    for y in (x * np.array([2.0]), np.array([[2.0]]) * x, F.mul_scalar(x, np.array([2.0], np.float32))):
        y.forward()
        np.testing.assert_array_equal(y.d, x.d * 2)
    assert F.sum(x, axis=np.array([1])).shape == (2,)
    with pytest.raises(nn.ShapeError):
        x * np.array([2.0, 3.0])


def test_labels_out_of_range_give_zeros():
    """`one_hot` gives a row of zeros for a label out of range."""
    t = nn.Variable.from_numpy_array(np.array([[5], [1], [-1], [-5]]))
    y = F.one_hot(t, (3,))
    y.forward()
    np.testing.assert_array_equal(y.d, [[0, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]])


@pytest.mark.parametrize("mode", ["linear", "nearest"])
def test_interpolation_to_one_element_takes_the_first(mode):
    x = nn.Variable.from_numpy_array(np.arange(12, dtype=np.float32).reshape(1, 3, 4))
    for size, expected in (((1, 1), [[0]]), ((1, 4), [[0, 1, 2, 3]])):
        y = F.interpolate(x, output_size=size, mode=mode, half_pixel=True)
        y.forward()
        np.testing.assert_array_equal(y.d[0], expected)


def test_keywords_match_nnabla():
    """Functions of the package accept NNabla's keyword names."""
    nn.seed(seed_value=3)
    nn.random.set_function_seed(seed_value=3)
    nn.random.set_parameter_seed(seed_value=3)
    nn.set_default_context(ctx=nn.Context())
    with nn.context_scope(ctx=nn.Context(["cpu:double"])) as ctx:
        assert nn.get_current_context() is ctx
    seen = []
    nn.set_function_pre_hook("k", function_pre_hook=seen.append)
    nn.set_function_post_hook("k", function_post_hook=seen.append)
    nn.set_solver_pre_hook("k", solver_pre_hook=lambda: seen.append("pre"))
    nn.set_solver_post_hook("k", solver_post_hook=lambda: seen.append("post"))
    F.relu(variable(2)).forward()
    for unset in (nn.unset_function_pre_hook, nn.unset_function_post_hook):
        unset("k")
    for unset in (nn.unset_solver_pre_hook, nn.unset_solver_post_hook):
        unset("k")
    assert len(seen) == 2


def test_a_function_prints_as_its_type():
    """`str` of a function is its type; `repr` also shows its arguments."""
    f = PF.affine(variable(2, 3), 4).parent
    assert (str(f), f"{f}") == ("Affine", "Affine")
    assert repr(f) == "<Function Affine(base_axis=1)>"


def test_h5_files_without_attributes(tmp_path):
    """HDF5 files without `index` and `need_grad` attributes are read in the order of names."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "old.h5"
    with h5py.File(path, "w") as file:
        file["b/W"] = np.ones((2, 3), np.float32)
        file["a"] = np.zeros(2, np.float32)
        file["a"].attrs["need_grad"] = False
    nn.load_parameters(path)
    found = nn.get_parameters(grad_only=False)
    assert [(key, v.need_grad) for key, v in found.items()] == [("a", False), ("b/W", True)]


def test_names_are_where_programs_import_them():
    """NNabla's alternative import paths lead to the same objects."""
    import kinnor.initializer as I
    import kinnor.solver

    assert PF.get_parameter_or_create is nn.parameter.get_parameter_or_create
    assert PF.get_parameter is nn.parameter.get_parameter
    assert PF.NormalInitializer is I.NormalInitializer
    assert kinnor.solver.Adam is S.Adam
    assert S.SolverState is kinnor.solver.SolverState


def test_a_data_iterator_can_be_reset():
    """`_reset`, which NNabla's programs call, returns an iterator to the first example."""
    from kinnor.utils.data_iterator import data_iterator_simple

    with data_iterator_simple(lambda i: (i,), 6, 4, shuffle=False) as batches:
        batches.next()
        batches._reset()
        assert [batches.next()[0].tolist() for _ in range(2)] == [[0, 1, 2, 3], [4, 5, 0, 1]]
        assert batches.epoch == 1


# --- Spellings of other libraries


def test_numbers_stand_for_that_number_along_each_axis():
    """`kernel`, `pad` and `stride` may be one number for all axes."""
    x = variable(1, 4, 8, 8)
    y = PF.convolution(x, 4, 3, pad=1, stride=2)
    assert y.shape == (1, 4, 4, 4)
    assert nn.get_parameters()["conv/W"].shape == (4, 4, 3, 3)
    assert y.parent.info.args["pad"] == [1, 1]
    assert PF.convolution(variable(1, 4, 8), 4, 3, pad=1, name="line").shape == (1, 4, 8)
    assert PF.convolution(variable(2, 1, 4, 8, 8), 4, 3, pad=1, base_axis=-3, name="deep").shape == (2, 1, 4, 8, 8)
    assert PF.deconvolution(x, 2, 2, stride=2).shape == (1, 2, 16, 16)
    assert PF.depthwise_convolution(x, 3, pad=1).shape == (1, 4, 8, 8)
    assert PF.svd_convolution(x, 4, 3, 2, pad=1).shape == (1, 4, 8, 8)
    last = PF.convolution(variable(1, 8, 8, 4), 2, 3, pad=1, channel_last=True, name="last")
    assert last.shape == (1, 8, 8, 2)
    assert F.max_pooling(x, 2).shape == (1, 4, 4, 4)
    assert F.average_pooling(x, (2, 2), stride=1, pad=1).shape == (1, 4, 9, 9)
    with pytest.raises(nn.ShapeError, match="convolution: expected an input with spatial axes"):
        PF.convolution(variable(2, 3), 4, 3, name="none")
    for wrong in (0, -1, 2.5):
        with pytest.raises((nn.RangeError, nn.CallError), match="convolution: expected `kernel`"):
            PF.convolution(x, 4, wrong, name="wrong")


def test_inputs_of_any_number_are_taken_as_one_list():
    """Functions of any number of inputs accept one list of them."""
    x, y = variable(2, 3), variable(2, 3)
    assert F.concatenate([x, y]).shape == (2, 6)
    assert F.concatenate((x, y), axis=0).shape == (4, 3)
    assert F.concatenate([x, y], 0).shape == (4, 3)
    assert F.stack([x, y], axis=1).shape == (2, 2, 3)
    assert F.concatenate([x.data, y.data]).shape == (2, 6)
    for wrong in ([], [x, 3], [[x], [y]]):
        with pytest.raises(nn.CallError, match="concatenate: expected"):
            F.concatenate(wrong)


def test_shapes_are_taken_as_several_integers():
    """`reshape` accepts one shape or several lengths, and NNabla's argument `unlink`."""
    x = variable(2, 3)
    assert x.reshape(3, 2).shape == x.reshape((3, 2)).shape == x.reshape(-1, 2).shape == (3, 2)
    assert x.reshape(-1).shape == x.reshape(6).shape == (6,)
    for y in (x.reshape((3, 2), True), x.reshape(3, 2, unlink=True), x.reshape(shape=(3, 2), unlink=1)):
        assert y.shape == (3, 2)
        assert y.parent is None
    assert x.reshape(6, True).parent is None
    for wrong in (lambda: x.reshape(), lambda: x.reshape(3, 2.5), lambda: x.reshape((3, 2), (1,)), lambda: x.reshape(
        3, 2, size=1)):  # fmt: skip
        with pytest.raises(nn.CallError, match="expected"):
            wrong()


def test_values_in_the_place_of_lengths_are_refused():
    """A constructor that gets values instead of a shape suggests `from_numpy_array`."""
    for wrong in ([1.0, 2.0], (1.0, 2.0), [[1.0, 2.0]], np.ones(2), 2.0, np.float32(2)):
        for make in (nn.Variable, nn.NdArray):
            with pytest.raises(nn.RangeError, match=f"values call {make.__name__}.from_numpy_array"):
                make(wrong)
    assert nn.Variable(np.array([2, 3])).shape == nn.Variable((2, 6 / 2)).shape == (2, 3)
    assert nn.Variable([]).shape == nn.Variable(()).shape == ()


def test_numpy_arrays_beside_operators_are_constants():
    """Operators of a variable and a NumPy array treat the array as a constant."""
    x, a = variable(2, 3, need_grad=True), np.arange(1.0, 4.0)
    for y, expected in (
        (x + a, x.d + a), (a + x, x.d + a), (x - a, x.d - a), (a - x, a - x.d), (x * a, x.d * a), (a * x, x.d * a),
        (x / a, x.d / a), (a / (x + 9), a / (x.d + 9)), (x**a, x.d**a), (a**x, a**x.d), (x @ np.eye(3), x.d),
        (np.ones((4, 2)) @ x, np.ones((4, 2)) @ x.d),
    ):  # fmt: skip
        y.forward()
        np.testing.assert_allclose(y.d, expected, rtol=1e-4, atol=1e-6)
        assert not any(v.need_grad for v in y.parent.inputs if v.parent is None and v != x)
    loss = F.sum(a * x)
    loss.forward()
    x.grad.zero()
    loss.backward()
    np.testing.assert_array_equal(x.g, np.broadcast_to(a, (2, 3)))
    assert isinstance(x.data + a, nn.NdArray)
    array = nn.NdArray.from_numpy_array(np.ones(3, np.float32))
    array += a
    assert array.data.tolist() == [2.0, 3.0, 4.0]


def test_variables_have_methods_of_arrays():
    """Variables and arrays have NumPy's methods `sum`, `mean`, `max`, `T` and `astype`."""
    x = variable(2, 3)
    for y, expected in (
        (x.sum(), x.d.sum()), (x.mean(0), x.d.mean(0)), (x.max(axis=1, keepdims=True), x.d.max(1, keepdims=True)),
        (x.min((0, 1)), x.d.min()), (x.T, x.d.T), (x.astype("float64"), x.d), (x.data.sum(), x.d.sum()),
        (x.data.T, x.d.T),
    ):  # fmt: skip
        if isinstance(y, nn.Variable):
            y.forward()
        np.testing.assert_allclose(y.numpy(), expected, rtol=1e-6)
    assert len(x) == len(x.data) == 2
    assert x.dtype == np.float32
    assert np.shares_memory(x.numpy(), x.d)
    with pytest.raises(nn.CallError, match="len: expected an array with axes, got a scalar"):
        len(nn.Variable())


def test_astype_keeps_gradients_of_floating_point_types():
    w = variable(2, 3, need_grad=True)
    with nn.auto_forward():
        half = w.astype(np.float16)
    assert half.dtype == np.float16
    F.sum(half * 2).forward()
    assert half.need_grad
    labels = nn.Variable.from_numpy_array(np.array([0.0, 1.0])).astype(int)
    assert labels.d.tolist() == [0, 1]
    assert labels.dtype == int
    assert w.data.astype("int32").dtype == np.int32
    with pytest.raises(nn.CallError, match=r"astype: expected float16, .* got int32; x\.d\.astype\('int32'\)"):
        w.astype("int32")


def test_numpys_names_of_types_are_taken_by_contexts():
    from kinnor.ext_utils import get_extension_context

    for name, own in (("float16", "half"), ("float32", "float"), ("float64", "double")):
        assert get_extension_context("cpu", type_config=name).backend[0] == f"cpu:{own}"
        assert nn.Context([f"cpu:{name}"]).compute_type == own
    with nn.context_scope(nn.Context(["cpu:float16"])), nn.auto_forward():
        assert F.exp(variable(2)).dtype == np.float16


def test_budgets_are_taken_as_text():
    """Memory budgets may be text with a unit, such as "1M"."""
    x = variable(64, 64, need_grad=True)
    y = F.sum(F.tanh(F.tanh(x)))
    with nn.memory_budget("1M"):
        y.forward()
        y.backward()
    y.forward(memory_budget="1g")
    with pytest.raises(nn.BudgetError), nn.memory_budget("1K"):
        y.forward()
    assert "MiB" in str(nn.plan_report(y, memory_budget="4M"))


# --- Mistakes


def test_errors_for_misspelt_names_suggest_the_nearest():
    x = variable(2, 3)
    for call, told in (
        (lambda: F.sofmax, "module 'kinnor.functions' has no attribute 'sofmax'; did you mean 'softmax'?"),
        (lambda: PF.convolutoin, "did you mean 'convolution'?"),
        (lambda: nn.Variabel, "did you mean 'Variable'?"),
        (lambda: S.adam, "did you mean 'Adam'?"),
        (lambda: F.cross_entropy, "did you mean 'softmax_cross_entropy'?"),
        (lambda: F.silu, "did you mean 'swish'?"),
        (lambda: F.linear, "did you mean 'affine'?"),
        (lambda: F.conv2d, "did you mean 'convolution'?"),
        (lambda: F.batch_norm, "did you mean 'batch_normalization'?"),
        (lambda: F.argmax, "write kinnor.functions.max(x, axis=1, only_index=True)"),
        (lambda: F.matmul, "write x @ w"),
        (lambda: PF.Dense, "did you mean 'affine'?"),
        (lambda: nn.functional, "did you mean 'functions'?"),
        (lambda: nn.Linear, "write kinnor."),
        (lambda: nn.tensor, "write kinnor.Variable.from_numpy_array(values)"),
        (lambda: S.SGD, "did you mean 'Sgd'?"),
        (lambda: nn.DataLoader, "write kinnor.data.data_iterator.data_iterator_simple"),
        (lambda: nn.amp, "write kinnor.autocast"),
        (lambda: nn.learning_rate_scheduler.CosineAnnealingLR, "did you mean 'CosineScheduler'?"),
        (lambda: nn.learning_rate_scheduler.StepLr, "did you mean 'StepScheduler'?"),
        (lambda: nn.training.ModelCheckpoint, "has the argument `checkpoint`"),
        (lambda: nn.training.EarlyStoping, "did you mean 'EarlyStopping'?"),
        (lambda: importlib.import_module("kinnor.onnx").export, "did you mean 'save'?"),
        (lambda: importlib.import_module("kinnor.data.data_iterator").ImageFolder, "data_iterator_image_folder"),
    ):
        with pytest.raises(AttributeError) as raised:
            call()
        assert told in str(raised.value)
    for call, told in (
        (lambda: F.softmax(x, dim=1), "got an argument 'dim'; did you mean 'axis'?"),
        (lambda: F.dropout(x, prob=0.5), "got an argument 'prob'"),
        (lambda: PF.affine(x, out_features=3), "got an argument 'out_features'; did you mean 'n_outmaps'?"),
        (lambda: PF.affine(x, 3, with_bais=False), "did you mean 'with_bias'?"),
        (lambda: S.Adam(lr=0.1), "got an argument 'lr'; did you mean 'alpha'?"),
    ):
        with pytest.raises(TypeError) as raised:
            call()
        assert told in str(raised.value)


def test_names_of_other_libraries_lead_to_names_that_are_there():
    """Each suggestion for a name of another library names something that exists."""
    from kinnor.compat import foreign_names

    for path, table in foreign_names.TABLES.items():
        module_of_table = importlib.import_module(f"kinnor.{path}".rstrip("."))
        assert list(table) == [name.replace("_", "").lower() for name in table]
        for text in table.values():
            if text.isidentifier():
                assert hasattr(module_of_table, text), text
            elif text.startswith("kinnor.") and text.replace(".", "").replace("_", "").isalnum():
                module, _, last = text.rpartition(".")
                assert hasattr(importlib.import_module(module), last), text


def test_the_truth_value_of_a_variable():
    """Only computed variables of one element have a truth value."""
    x, one = variable(2, 3), nn.Variable.from_numpy_array(np.array(2.0))
    assert bool(one)
    assert not bool(one.data * 0.0)
    with pytest.raises(nn.ShapeError, match="bool: expected one element"):
        bool(x)
    with pytest.raises(nn.ShapeError, match="bool: expected one element"):
        bool(x.data)
    y = F.sum(x)
    with pytest.raises(nn.NotComputedError, match="bool: expected computed values"):
        bool(y)
    y.forward()
    assert bool(y)


def test_backward_before_forward():
    """`backward` of a graph that has not run is refused."""
    w = variable(2, 3, need_grad=True)
    loss = F.sum(w * w)
    with pytest.raises(nn.GraphError, match="backward: expected a graph that has run, but sum has not"):
        loss.backward()
    loss.forward()
    loss.backward()
    np.testing.assert_allclose(w.g, 2 * w.d, rtol=1e-6)


def test_an_update_of_no_parameters():
    """`update` of a solver without parameters is refused."""
    solver = S.Sgd(0.1)
    with pytest.raises(nn.GraphError, match=r"expected parameters, got none; call set_parameters first"):
        solver.update()


@pytest.mark.parametrize("mask", [lambda x: F.greater_scalar(x, 0.0), lambda x: F.logical_not(F.less_scalar(x, 0.0))])
def test_a_mask_of_floats_is_refused_as_index(mask):
    x = variable(4)
    with pytest.raises(TypeError, match="index: expected positions, got the truth values of"):
        x[mask(x)]
    with pytest.raises(TypeError, match="bool_gather"):
        x[mask(x)] = 0.0


def sequence(clear_buffer, steps=3, share=True):
    """Returns the gradients of `steps` runs of an LSTM. With `share`, each run starts in the array of the last state
    before.
    """
    nn.seed(7)
    x = [variable(2, 3) for _ in range(2)]
    with nn.parameter_scope("", {}):
        cell = PF.LSTMCell(2, 4)
        h0, c0 = cell.h, cell.c
        for step in x:
            y = cell(step)
        loss = F.sum(y * y)
        if share:
            h0.data, c0.data = cell.h.data, cell.c.data
        found = []
        for _ in range(steps):
            loss.forward(clear_no_need_grad=True)
            for p in nn.get_parameters().values():
                p.grad.zero()
            loss.backward(clear_buffer=clear_buffer)
            found.append([p.g.copy() for p in nn.get_parameters().values()])
        return found


# Gradients of the next run read states of the last one. The program asks for that.
@pytest.mark.filterwarnings("ignore:backward of mul2")
def test_an_array_that_a_leaf_holds_too_is_not_cleared():
    for cleared, kept in zip(sequence(True), sequence(False), strict=True):
        for g, expected in zip(cleared, kept, strict=True):
            np.testing.assert_array_equal(g, expected)
    first = sequence(True, steps=1, share=False)[0]
    assert all(np.isfinite(g).all() for g in first)


def test_a_recurrent_state_is_kept_until_it_is_replaced():
    """A state that aliases an output is carried from run to run, also by clearing runs."""
    h = nn.Variable((1, 3))
    nxt = F.tanh(h * 2.0)
    out = F.sum(nxt + 1.0)
    h.data = nxt.data
    h.data.fill(1.0)
    expected = 1.0
    for _ in range(3):
        out.forward(clear_buffer=True)
        expected = np.tanh(2 * expected)
        np.testing.assert_allclose(out.d, 3 * expected + 3, rtol=1e-6)
    np.testing.assert_allclose(h.d, expected, rtol=1e-6)
    h.data = nn.NdArray.from_numpy_array(np.zeros((1, 3), np.float32))
    for _ in range(2):
        out.forward(clear_buffer=True)
        assert out.d == 3
        with pytest.raises(nn.ClearedError):
            _ = nxt.d
