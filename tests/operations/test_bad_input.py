"""Invalid input raises an exception of the expected type and changes nothing."""

import itertools
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
from kinnor import autodiff
from kinnor.monitor import Monitor, MonitorSeries
from kinnor.utils.data_iterator import data_iterator, data_iterator_simple
from kinnor.utils.dlpack import from_dlpack
from kinnor.utils.learning_rate_scheduler import (
    CosineScheduler,
    ExponentialScheduler,
    LinearWarmupScheduler,
    PolynomialScheduler,
    StepScheduler,
)

THROWING = Path(__file__).with_name("throwing.py")
"""The program that makes random calls."""


@pytest.mark.parametrize(
    ("kind", "count"),
    [("functions", 8000), ("members", 8000), ("solvers", 3000), ("constructors", 3000), ("names", 4000)],
)
def test_wrong_arguments(kind, count, tmp_path):
    """Random calls in another process raise only expected errors, and the process ends normally."""
    note = tmp_path / "throw"
    command = [sys.executable, str(THROWING), kind, "0", str(count), str(note)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    last = note.read_bytes().rstrip().decode(errors="replace")
    assert done.returncode == 0, f"ended with {done.returncode} at {last}\n{done.stderr[-4000:]}"


def test_iterables_without_end():
    """Endless iterables are refused as arguments, in every place that takes a sequence."""
    x = nn.Variable((2, 3))
    calls = {
        "axis": lambda endless: F.sum(x, axis=endless),
        "shape of an operation": lambda endless: F.reshape(x, endless),
        "number": lambda endless: F.mul_scalar(x, endless),
        "shape": lambda endless: nn.Variable(endless),
        "new shape": lambda endless: x.reset_shape(endless, True),
        "unlinked shape": lambda endless: x.reshape(endless, unlink=True),
        "shape of an array": lambda endless: nn.NdArray(endless),
        "view": lambda endless: nn.NdArray(6).view(endless),
        "outputs": lambda endless: F.sin(x, outputs=endless),
        "variables": lambda endless: nn.forward_all(endless),
        "inputs by hand": lambda endless: F.sin(x).parent.forward(endless, [x]),
        "flags": lambda endless: F.sin(x).parent.backward([x], [x], endless),
        "keys": lambda endless: S.Sgd().remove_parameters(endless),
        "seeds": lambda endless: autodiff.backward(F.sum(x), endless),
        "leaves": lambda endless: autodiff.backward(F.sum(x), inputs=endless),
        "grad": lambda endless: nn.grad(endless, [x]),
        "context": lambda endless: nn.Context(endless),
        "steps": lambda endless: StepScheduler(0.1, 0.5, endless),
    }
    x.need_grad = True
    for name, call in calls.items():
        items = [itertools.count, lambda: range(10**9), lambda: itertools.repeat(None), lambda: itertools.repeat(x)]
        for endless in (make() for make in items):
            try:
                call(endless)
            except (nn.Error, TypeError):
                continue
            pytest.fail(f"{name} takes {endless!r}")
    with pytest.raises(nn.ArgumentError, match=r"aaa\.\.\.") as caught:
        F.pad(x, "a" * 10**7)
    assert len(str(caught.value)) < 1000


def test_long_lists_are_taken():
    """Lists of 70,000 entries are processed."""
    many = 70_000
    assert nn.forward_all([nn.Variable(())] * many) is None
    with pytest.raises(nn.Error):
        F.sum(nn.Variable((2,)), axis=[0] * many)


def test_shapes_with_too_many_elements():
    """Shapes with more elements than any memory holds raise ShapeError or MemoryError."""
    x = nn.Variable((2, 3))
    with pytest.raises(nn.ShapeError, match="reshape"):
        F.reshape(x, (2**62, 4))
    with pytest.raises(MemoryError):
        F.pad(x, (2**62, 2**62))


def test_backward_after_a_refused_forward():
    """The mask may have changed, so its selected elements are counted again."""
    x = nn.Variable((2, 3), need_grad=True)
    y = F.bool_scatter(x, nn.Variable.from_numpy_array(np.ones(4, np.float32)))
    for run in (y.forward, y.backward):
        with pytest.raises(ValueError, match="bool_scatter: expected 2 elements"):
            run()


def test_function_called_with_another_number_of_inputs():
    """A handle on a function refuses another number of inputs."""
    x = nn.Variable((2, 3))
    with pytest.raises(TypeError, match="expected 2 inputs, got 1"):
        (x + x).parent(x)


def test_none_is_no_dtype():
    """`cast(None)` is refused."""
    with pytest.raises(TypeError, match="expected a dtype"):
        nn.NdArray((2,)).cast(None)


def test_array_as_index_of_a_variable():
    """The result belongs to the graph, like the result of any function of variables."""
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
"""A variable as an argument of calls."""
V = nn.Variable((2, 3), need_grad=True)
"""A variable that requires a gradient, as an argument of calls."""
TOLD = {
    "affine: expected `n_outmaps`": lambda: PF.affine(X, 0),
    "affine: expected a Variable": lambda: PF.affine(np.ones((2, 3)), 4),
    "affine: expected an axis of": lambda: PF.affine(X, 4, base_axis=5),
    "affine: expected `name`": lambda: PF.affine(X, 4, name=3),
    "UniformInitializer: expected `lim`": lambda: I.UniformInitializer(3),
    "UniformInitializer: expected `lim` to be a lower": lambda: I.UniformInitializer(("a", "b")),
    "UniformInitializer: expected the lower end": lambda: I.UniformInitializer((1, -1)),
    "NormalInitializer: expected `sigma` to be a number": lambda: I.NormalInitializer("x"),
    "NormalInitializer: expected `sigma` to be zero or more": lambda: I.NormalInitializer(-1),
    "ConstantInitializer: expected `value`": lambda: I.ConstantInitializer("x"),
    "get_parameters: expected `path`": lambda: nn.get_parameters(path=3),
    "get_parameters: expected `grad_only`": lambda: nn.get_parameters(grad_only="x"),
    "get_parameters: expected `params`": lambda: nn.get_parameters(params=3),
    "auto_forward: expected `auto`": lambda: nn.auto_forward("x").__enter__(),
    "set_auto_forward: expected `auto`": lambda: nn.set_auto_forward("x"),
    "no_grad: expected `no_grad_`": lambda: nn.no_grad("x"),
    "recompute: expected `recompute_`": lambda: nn.recompute("x").__enter__(),
    "grad: expected `create_graph`": lambda: nn.autodiff.grad(F.sum(V), V, create_graph="x"),
    "backward: expected `retain_graph`": lambda: nn.autodiff.backward(F.sum(V), retain_graph="x"),
    "MonitorSeries.add: expected a number": lambda: MonitorSeries("loss").add(0, "x"),
    "MonitorSeries.add: expected the number of an iteration": lambda: MonitorSeries("loss").add("0", 1.0),
    "monitor: expected a Monitor": lambda: MonitorSeries("loss", "here"),
    "data_iterator: expected a DataSource": lambda: data_iterator(3, 2),
    "expected `batch_size` to be a whole number": lambda: data_iterator_simple(lambda i: (i,), 10, 2.5),
    "expected `rng` to be a RandomState": lambda: data_iterator_simple(lambda i: (i,), 10, 2, True, 3),
    "set_states: expected a SolverState": lambda: S.Adam().set_states({"w": 3}),
    "set_parameter: expected a Variable": lambda: nn.parameter.set_parameter("w", 3),
    "seed: expected `seed_value` to be a whole number": lambda: nn.seed("x"),
    "context_scope: expected a Context": lambda: nn.context_scope(3).__enter__(),
    "forward_all: expected a list of Variables, got Variable": lambda: nn.forward_all(F.exp(X)),
    "forward_all: expected a list of Variables, got int": lambda: nn.forward_all([1]),
    "setup: expected a list of Variables": lambda: F.exp(X).parent.setup([1], [X]),
    "top_n_error: expected `n`": lambda: F.top_n_error(X, nn.Variable((2, 1)), n=0),
    "split: expected an array with axes for axis 0, got a scalar": lambda: F.split(nn.Variable()),
    "exp: expected `n_outputs` to be a whole number": lambda: F.exp(X, n_outputs=X),
    "exp: expected an array of 6 elements to write to": lambda: F.exp(X, outputs=[nn.NdArray((7,))]),
    r"exp: expected \(x\), got 5 arguments without a name": lambda: F.exp(X, -1, None, None, None),
    "expected a list of NdArrays for `outputs`, got 3": lambda: F.exp(X, outputs=3),
    "mul_scalar: expected `val` to be a number, got <Variable": lambda: F.mul_scalar(X, nn.Variable()),
    "matmul: expected arrays with axes": lambda: X @ nn.Variable(),
    "rewire_on: expected a variable that is not computed from this one": lambda: V.rewire_on(F.exp(V * 1)),
    "item: expected an array of one element": lambda: float(X),
    "array: expected numbers": lambda: X.apply(d=np.zeros((2, 3), np.complex64)),
    "size_from_axis: expected an axis": lambda: X.size_from_axis(3),
    "NdArray: expected the lengths of the axes": lambda: nn.NdArray((1.5,)),
    "Node: expected a Function, got list": lambda: nn.autodiff.graph.Node([]),
    "AccumulateGrad: expected a Variable, got int": lambda: nn.autodiff.graph.AccumulateGrad(3),
    "from_dlpack: expected a capsule": lambda: from_dlpack(3),
    "Exp: expected one of 1 inputs, got input 9": lambda: F.exp(X).parent.inplace_data(9),
    "Exp: expected one of 1 outputs, got output 1": lambda: F.exp(X).parent.grad_depends_output_data(0, 1),
    "communicator_callbacks: expected": lambda: F.exp(V).backward(communicator_callbacks=[3]),
    "function_pre_hook: expected": lambda: F.exp(V).forward(function_pre_hook=3),
    "update_pre_hook: expected": lambda: S.Sgd().update(update_pre_hook=3),
    "expected a list of strings, got 'w'": lambda: S.Sgd().remove_parameters("w"),
    "Adam.set_states: expected a SolverState": lambda: S.Adam().set_states(3),
    "save_parameters: expected `params`": lambda: nn.save_parameters("p.h5", {"w": 3}),
    "UniformInitializer: expected `rng`": lambda: PF.affine(X, 3, rng=3),
    "expected `apply_w` to be something to call": lambda: PF.affine(X, 3, apply_w=3),
    "lstm_cell: expected `h` of shape": lambda: PF.lstm_cell(X, nn.Variable((3, 4)), nn.Variable((2, 4)), 4),
    "MonitorSeries: expected `interval` to be at least 1": lambda: MonitorSeries("loss", interval=0),
    "MonitorSeries: expected `name` to be a string": lambda: MonitorSeries(3),
    "Monitor: expected `save_path` to be a path": lambda: Monitor(3),
    "data_iterator_simple: expected `load_func`": lambda: data_iterator_simple(3, 10, 2),
    "SimpleDataSource: expected `num_examples` to be a whole": lambda: data_iterator_simple(len, "x", 2),
}
"""Part of a message, and the call that must raise an error with it."""


@pytest.mark.parametrize("said", TOLD)
def test_messages_name_the_expected_and_the_received_value(said):
    with pytest.raises(nn.Error, match=said):
        TOLD[said]()


def test_none_means_the_default_as_in_nnabla():
    x, index = nn.Variable((2, 3)), nn.Variable.from_numpy_array(np.array([1, 0]))
    for y, args in (
        (F.cumsum(x, axis=None), {"axis": 0, "exclusive": False, "reverse": False}),
        (F.cumprod(x, axis=None), {"axis": 0, "exclusive": False, "reverse": False}),
        (F.gather(x, index, axis=None, batch_dims=None), {"axis": 0, "batch_dims": 0}),
        (F.broadcast_to(x, nn.Variable((3,)), axis=None), {"axis": -1}),
    ):
        assert y.shape == (2, 3) and y.parent.info.args == args


# Arguments refused before the method runs: the message says what was expected and received, a note names the method.
BEFORE = {
    "need_grad": ("True, False or None, got 'no'", lambda: nn.Variable((2, 3), need_grad="no")),
    "clear_buffer": ("True or False, got 'x'", lambda: (V * 1).forward(clear_buffer="x")),
    "clear_no_need_grad": ("True or False, got 2", lambda: nn.forward_all([V * 1], clear_no_need_grad=2)),
    "memory_budget": (
        "a number of bytes of zero or more, as 67108864 or '64M', or None, got -1",
        lambda: (V * 1).forward(memory_budget=-1),
    ),
    "recompute": ("True or False, got None", lambda: setattr(V, "recompute", None)),
    "name": ("a string or None, got 3", lambda: setattr(V, "name", 3)),
    "var": ("a Variable, got 3", lambda: V.rewire_on(3)),
    "f": ("something to call, got 3", lambda: V.visit(3)),
    "arr": ("a NdArray, got 3", lambda: V.data.copy_from(3)),
    "value": ("a number, got 'x'", lambda: V.data.fill("x")),
    "start": ("a whole number, got 1.5", lambda: V.data.narrow(0, 1.5, 1)),
    "decay_rate": ("a number, got 'x'", lambda: S.Sgd().weight_decay("x")),
    "n": ("a whole number, got 'x'", lambda: nn.set_num_threads("x")),
    "i": ("a whole number of zero or more, got -1", lambda: (V * 1).parent.inplace_data(-1)),
    "accum": ("a list of True and False, or None, got ['x']", lambda: F.exp(V).parent.backward([V], [X], ["x"])),
    "tags": ("a dict, got 3", lambda: setattr(F.exp(V).parent, "tags", 3)),
    "keys": ("a list of strings, got 3", lambda: S.Sgd().remove_parameters(3)),
}


@pytest.mark.parametrize("argument", BEFORE)
def test_refused_arguments_of_methods_have_a_note(argument):
    text, call = BEFORE[argument]
    with pytest.raises(nn.CallError) as caught:
        call()
    assert str(caught.value) == f"expected {text}"
    if sys.version_info >= (3, 11):
        assert caught.value.__notes__ == [f"while processing '{argument}'"]


@pytest.mark.parametrize("yes", [True, 1, np.True_, np.int64(1)])
def test_accepted_truth_values(yes):
    """Flags may be any value that means true or false, such as NumPy's."""
    assert nn.Variable((2,), need_grad=yes).need_grad
    with nn.auto_forward(yes):
        assert nn.get_auto_forward()


@pytest.mark.parametrize("wrong", [{"nope": 1}, {"recompute": "x"}, {"data": nn.NdArray((3, 3))}, {"parent": 3}])
def test_several_attributes_are_set_all_or_none(wrong):
    x = nn.Variable((2, 3))
    with pytest.raises((AttributeError, TypeError, ValueError)):
        x.apply(persistent=True, need_grad=True, name="x", d=1, **wrong)
    assert (x.persistent, x.need_grad, x.name, x.d.sum()) == (False, False, "", 0)


def test_a_parameter_of_another_shape_is_named_by_its_whole_path():
    with nn.parameter_scope("net"):
        PF.affine(X, 3, name="first")
        with pytest.raises(nn.ParameterError, match="existing parameter 'net/first/affine/W', got"):
            PF.affine(X, 4, name="first")


def test_a_variable_cannot_be_computed_from_itself():
    x = nn.Variable((2,))
    h = F.exp(x)
    y = F.sin(h)
    with pytest.raises(nn.GraphError, match="computed from itself"):
        x.rewire_on(y)
    assert y.parent is not None and x.parent is None
    with pytest.raises(nn.GraphError, match="computed from itself"):
        h.rewire_on(y)
    y.forward()
    assert y.d.tolist() == np.sin(np.exp(np.zeros(2, np.float32))).tolist()


def test_schedules():
    """The polynomial schedule stays at zero after its end, and wrong arguments of each schedule are refused."""
    polynomial = PolynomialScheduler(0.1, 10, 0.5)
    assert [polynomial.get_learning_rate(i) for i in (0, 10, 11, 1000)] == [0.1, 0.0, 0.0, 0.0]
    for refused in (
        lambda: PolynomialScheduler("0.1", 10, 1),
        lambda: PolynomialScheduler(0.1, "10", 1),
        lambda: PolynomialScheduler(0.1, 0, 1),
        lambda: PolynomialScheduler(0.1, 10, -1),
        lambda: CosineScheduler(0.1, "10"),
        lambda: CosineScheduler(0.1, 0),
        lambda: ExponentialScheduler("a", 2),
        lambda: ExponentialScheduler(1, 2, 0),
        lambda: StepScheduler(0.1, "a", [1]),
        lambda: StepScheduler(0.1, 0.5, "12"),
        lambda: LinearWarmupScheduler("a", 3),
        lambda: LinearWarmupScheduler(polynomial, "3"),
    ):
        with pytest.raises(nn.Error, match="Scheduler: expected"):
            refused()


def test_invalid_modes():
    """`enable_grad` takes no arguments but a function."""
    for refused in (-1, 0, "yes", False):
        with pytest.raises(nn.CallError, match="enable_grad"):
            autodiff.enable_grad(refused)


def test_invalid_initial_gradients():
    """Initial gradients of wrong types raise TypeError."""
    x = nn.Variable.from_numpy_array(np.ones(4, np.float32), need_grad=True)
    with nn.auto_forward():
        y = x * x
    for seed in ("grad", b"grad", {"a": 1}, {y: np.ones(4)}):
        with pytest.raises(TypeError):
            autodiff.backward(y, seed)
        with pytest.raises(TypeError):
            autodiff.grad(y, x, seed)
    for several in ("y", {y: 1}):
        with pytest.raises(TypeError):
            autodiff.grad(several, x, np.ones(4))
        with pytest.raises(TypeError):
            autodiff.grad(y, several, np.ones(4))


def test_bfloat16_starts_a_gradient():
    """An initial gradient may be an array of bfloat16."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = nn.Variable.from_numpy_array(np.full(2, 3.0, np.float32), need_grad=True)
    seed = np.array([1.0, 10.0], ml_dtypes.bfloat16)
    with nn.auto_forward():
        (g,) = autodiff.grad(x * x, x, seed)
    assert g.d.astype(np.float32).tolist() == [6.0, 60.0]


def test_contexts():
    """Thousands of contexts can be used, and the one before is current again."""
    before = nn.get_current_context()
    for n in range(3000):
        with nn.context_scope(nn.Context(["cpu:double"], device_id=n)):
            pass
    with nn.context_scope(nn.Context(["cpu:double"], device_id=2999)):
        y = F.sin(nn.Variable((2,)))
    y.forward()
    assert y.d.dtype == np.float64
    assert nn.get_current_context() is before
