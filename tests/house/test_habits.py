"""Names of other libraries raise errors that say what to write, and what they say runs."""

import ast
import copy
import importlib
import json
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

import kinnor as nn
import kinnor.layers as L
import kinnor.onnx
import kinnor.solvers as S
from kinnor import _foreign_attributes
from kinnor.compat import foreign_names
from kinnor.data.data_iterator import data_iterator_simple
from kinnor.learning_rate_scheduler import CosineScheduler

ROOT = Path(__file__).parents[2]

pytest.importorskip("onnx")


@pytest.fixture(autouse=True)
def dynamic(tmp_path, monkeypatch):
    """Functions run as they are built, in a folder of the test."""
    monkeypatch.chdir(tmp_path)
    nn.Sequential(L.Linear(3, 2)).save_parameters("model.safetensors")
    with nn.auto_forward():
        yield


OF_OBJECTS = ["VARIABLE", "ARRAY", "SOLVER", "MODULE", "SCHEDULE", "HISTORY", "ITERATOR"]
"""The tables of attributes that `holders` has an object for."""


def names():
    """The names that the suggestions use."""
    rng = np.random.default_rng(0)
    values = rng.random((2, 3), np.float32)
    x, y = (nn.Variable.from_numpy_array(each, need_grad=True) for each in (values, values + 1))
    model = nn.Sequential(L.Linear(3, 2))
    solver = S.Adam()
    solver.set_parameters(model)
    data = (values, values[:, :2])
    history = nn.fit(model, data, "mse", validation=data, epochs=1, verbose=False)
    loss = model(x).sum()
    return {
        "kinnor": nn,
        "numpy": np,
        "onnx": pytest.importorskip("onnx"),
        "schedule": CosineScheduler(1e-3, 10),
        "history": history,
        "iterator": data_iterator_simple(lambda i: (values[i],), 2, 1, use_thread=False),
        "x": x,
        "y": y,
        "w": nn.Variable.from_numpy_array(values.T),
        "b": nn.Variable.from_numpy_array(values[:, :2]),
        "values": values,
        "index": nn.Variable.from_numpy_array(np.array([[0], [1]])),
        "mask": nn.Variable.from_numpy_array(np.ones((2, 3))),
        "model": model,
        "layer": L.Linear(2, 2),
        "solver": solver,
        "parameters": model[0],
        "variable": nn.Variable((2,)),
        "inputs": values,
        "targets": values[:, :2],
        "loss": loss,
    }


def holders():
    """The object that lacks the attributes of each table, and the names that its suggestions use."""
    there = names()
    of_module = {**there, "loss": "mse"}
    of_array = {**there, "x": there["x"].data, "other": there["y"].data}
    return {
        "VARIABLE": (there["x"], there),
        "ARRAY": (of_array["x"], of_array),
        "SOLVER": (there["solver"], there),
        "MODULE": (there["model"], of_module),
        "SCHEDULE": (there["schedule"], there),
        "HISTORY": (there["history"], there),
        "ITERATOR": (there["iterator"], there),
    }


@pytest.mark.parametrize(
    ("table", "name", "text"),
    [(table, name, text) for table in OF_OBJECTS for name, text in getattr(foreign_names, table).items()],
)
def test_suggestions_are_in_the_error_and_run(table, name, text, capsys):
    holder, there = holders()[table]
    with pytest.raises(AttributeError) as raised:
        getattr(holder, name)
    assert str(raised.value).endswith(f"has no attribute {name!r}; write {text}")
    assert not hasattr(holder, name)
    exec(text, there)


def test_absent_attributes_hide_no_attribute_of_the_core():
    tree = ast.parse((ROOT / "python/kinnor/_core.pyi").read_text())
    for name, table in (("Variable", foreign_names.VARIABLE), ("NdArray", foreign_names.ARRAY)):
        (stub,) = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name]
        own = {getattr(node, "name", None) or ast.unparse(getattr(node, "target", node)) for node in stub.body}
        assert len(own) > 40 and own.isdisjoint(table)


@pytest.mark.parametrize(
    ("module", "name", "text"),
    [(module, name, text) for module, table in foreign_names.TABLES.items() for name, text in table.items()],
)
def test_suggestions_of_modules_are_in_the_error_and_run(module, name, text, capsys, monkeypatch):
    owner = importlib.import_module(f"kinnor.{module}".strip("."))
    if hasattr(owner, name.title()):
        monkeypatch.delattr(owner, name, raising=False)  # Another test may have imported this older path.
    name = name.title() if hasattr(owner, name) else name  # `layers.dense` is a module, `layers.Dense` a habit.
    with pytest.raises(AttributeError) as raised:
        getattr(owner, name)
    (suggestion,) = str(raised.value).split("; ", 1)[1:]
    suggestion = suggestion.removeprefix("write ").removeprefix("did you mean ").strip("'?")
    assert suggestion == text
    code = suggestion.partition("#")[0].strip()
    there = {**vars(owner), **names(), "loss": "mse"}
    for part in (code.split(".")[1:2], code.split(".")[1:3]) if code.startswith("kinnor.") else ():
        try:
            importlib.import_module(f"kinnor.{'.'.join(part)}")
        except ImportError:
            break
    if code.isidentifier():
        assert hasattr(owner, code) or code in there
    else:
        exec(code, there)


@pytest.mark.parametrize("table", ["VARIABLE", "ARRAY"])
def test_all_suggestions_for_arrays_are_attached(table):
    """The attributes with suggestions are the ones listed in `foreign_names`."""
    assert getattr(_foreign_attributes, table) == list(getattr(foreign_names, table))


@pytest.mark.parametrize("kind", [nn.Variable, nn.NdArray])
def test_absent_attributes_are_not_listed(kind):
    """`dir` hides attributes that only raise a suggestion; subclasses may define them."""

    class Derived(kind):
        """Defines one of the absent attributes."""

        def cuda(self):
            """Returns the object."""
            return self

    assert "cuda" not in dir(kind((2,))) and "tolist" not in dir(kind((2,)))
    assert Derived((2,)).cuda() is not None and "cuda" in dir(Derived((2,)))


@pytest.mark.parametrize("kind", [nn.Variable, nn.NdArray])
@pytest.mark.parametrize("sign", ["<", "<=", ">", ">="])
@pytest.mark.parametrize("other", ["0.5", "y", "values"])
def test_comparisons_name_the_function(kind, sign, other):
    """The error of `x < y` suggests an expression that compares the elements."""
    there = names()
    if kind is nn.NdArray:
        there.update(x=there["x"].data, y=there["y"].data)
    for left, right in (("x", other), (other, "x")):
        with pytest.raises(TypeError, match=f"{kind.__name__}: expected a function to compare elements, got") as raised:
            eval(f"{left} {sign} {right}", there)
        suggestion = str(raised.value).partition("write ")[2]
        result = eval(suggestion, {**there, "y": there["y"]})
        array = result.d if kind is nn.Variable else result.data
        if left == "x":
            values = {"x": there["values"], "y": there["values"] + 1, "values": there["values"]}
            expected = eval(f"x {sign} {other if other != 'values' else 'y'}", values)
            np.testing.assert_array_equal(array, expected)


@pytest.mark.parametrize("kind", [nn.Variable, nn.NdArray])
def test_comparisons_of_identity(kind):
    """`==` and `!=` compare identity, so variables can be keys of dicts."""
    x, y = kind((2,)), kind((2,))
    assert (x == x, x == y, x != x, x != y, x != 3, x != "x") == (True, False, False, True, True, True)
    assert {x: 1}[x] == 1 and x in [y, x]
    with pytest.raises(TypeError, match="not supported between instances"):
        assert x < "text"


@pytest.mark.parametrize("lengths", [(2, 3), (2, 1), (2, 3, 4), (2, 3, 4, 5)])
def test_lengths_as_arguments_of_a_variable(lengths):
    """`Variable(2, 3)` raises an error that suggests `Variable((2, 3))`."""
    with pytest.raises(TypeError, match="expected one shape, such as Variable") as raised:
        nn.Variable(*lengths)
    suggestion = str(raised.value).partition("such as ")[2].partition(", got")[0]
    assert eval(suggestion, {"Variable": nn.Variable}).shape == lengths
    assert nn.Variable(2, True).need_grad and nn.Variable((2,), 1).need_grad


def of_kind(kind):
    """The names of suggestions, with `x`, `y` and `mask` as variables or as arrays."""
    there = names()
    return there if kind is nn.Variable else {**there, **{name: there[name].data for name in ("x", "y", "mask")}}


def computed(value):
    """The values of a variable or an array."""
    return value.d if isinstance(value, nn.Variable) else value.data


@pytest.mark.parametrize("kind", [nn.Variable, nn.NdArray])
@pytest.mark.parametrize("table", ["UFUNCS", "REDUCTIONS"])
def test_functions_of_numpy_name_the_function(kind, table):
    """The error of `numpy.exp(x)` suggests an expression with the values that NumPy computes."""
    for name, text in getattr(foreign_names, table).items():
        there, function = of_kind(kind), getattr(np, name)
        operands = [there["x"], there["y"]][: getattr(function, "nin", 1)]
        arrays = [computed(each) for each in operands]
        more = {"axis": 1} if table == "REDUCTIONS" else {}
        with pytest.raises(TypeError) as raised:
            function(*operands, **more)
        values = f"numpy.{name}(x.{'d' if kind is nn.Variable else 'data'})"
        assert str(raised.value) == (
            f"numpy.{name}: expected an array of NumPy, got {kind.__name__}; write {text}, or {values} for an array"
        )
        np.testing.assert_allclose(computed(eval(text, there)), function(*arrays, **more), 1e-5)
    for call in (lambda x: np.add.reduce(x), lambda x: np.hypot(x, x), lambda x: np.exp(x, out=np.zeros((2, 3)))):
        with pytest.raises(TypeError, match=r"numpy\.\w+: expected an array of NumPy, got"):
            call(there["x"])


@pytest.mark.parametrize("kind", [nn.Variable, nn.NdArray])
def test_operators_of_numpy_arrays_are_those_of_variables(kind):
    """An array of NumPy, or one of its numbers, on the left of a variable; comparisons ask for the same object."""
    there = of_kind(kind)
    x = there["x"]
    for left in (there["values"].astype(np.float32), np.float32(2), np.float64(3)):
        for text in ("left + x", "left - x", "left * x", "left / x", "left ** x", "numpy.add(left, x)"):
            found = eval(text, {**there, "left": left})
            assert type(found) is kind
            wanted = eval(text, {**there, "left": left, "x": computed(x)})
            np.testing.assert_allclose(computed(found), wanted, 1e-5)
        assert (left == x, left != x) == (False, True)
    array = there["values"].copy()
    array += x
    assert type(array) is kind
    np.testing.assert_allclose(
        computed(there["values"] @ nn.functions.transpose(x, (1, 0))), there["values"] @ computed(x).T, 1e-5
    )
    for function in (np.concatenate, np.stack):
        np.testing.assert_array_equal(function([x, x]), function([computed(x)] * 2))
    np.testing.assert_array_equal(np.transpose(x), computed(x).T)


@pytest.mark.parametrize("kind", [nn.Variable, nn.NdArray])
def test_operators_that_are_absent_name_the_function(kind):
    """The error of `x // y` suggests an expression."""
    for method, text in foreign_names.OPERATORS.items():
        sign = _foreign_attributes.ABSENT_OPERATORS[method]
        for code in ("~x",) if sign == "~" else (f"x {sign} y", f"x {sign} 2", f"2 {sign} x"):
            with pytest.raises(TypeError) as raised:
                eval(code, of_kind(kind))
            assert str(raised.value).endswith(f"got {sign!r}; write {text}"), code
        assert type(eval(text, of_kind(kind))) is kind


SCOPES = {
    "no_grad": nn.no_grad,
    "enable_grad": nn.autodiff.enable_grad,
    "detect_anomaly": nn.autodiff.detect_anomaly,
    "auto_forward": nn.auto_forward,
    "recompute": nn.recompute,
    "autocast": nn.autocast,
    "memory_budget": nn.memory_budget,
    "context_scope": nn.context_scope,
    "parameter_scope": nn.parameter_scope,
}


@pytest.mark.parametrize("name", SCOPES)
def test_a_scope_without_parentheses_says_so(name):
    """The error of `with nn.no_grad:` says how to write the block, which runs."""
    with pytest.raises(TypeError, match=f"{name}: expected a call, write `with {name}") as raised, SCOPES[name]:
        pass
    code = str(raised.value).partition("`")[2].rstrip("`")
    there = {**SCOPES, "name": "a", "bytes": "1G", "ctx": nn.get_current_context()}
    exec(f"{code} pass", there)


def test_attributes_that_layers_would_ignore_are_not_set():
    """`layer.weight = w` and `layer.trainable = False` of other libraries raise an error. Own modules have any name."""
    layer = L.Linear(3, 2)
    with pytest.raises(AttributeError, match="'Linear' has no attribute 'weight' to set; did you mean 'W'"):
        layer.weight = nn.Variable((3, 2))
    with pytest.raises(AttributeError, match=r"'trainable' to set; write model.requires_grad_\(False\)"):
        nn.Sequential(layer).trainable = False
    with pytest.raises(AttributeError, match="no attribute 'kernel'; did you mean 'W'"):
        assert layer.kernel

    class Own(nn.Module):
        """A module with attributes of these names."""

        def __init__(self):
            self.trainable, self.weight, self.bias = True, 1, 2

    assert (Own().trainable, Own().weight, Own().bias) == (True, 1, 2)


def test_other_calls_say_what_to_write():
    """Arrays as inputs of parametric functions, names of initializers, paths of parameters, arguments of Keras."""
    values = np.ones((2, 3), np.float32)
    x = nn.Variable.from_numpy_array(values)
    PF = nn.parametric_functions
    with pytest.raises(TypeError, match=r"affine: .* got ndarray; wrap it: kinnor.Variable.from_numpy_array\(x\)"):
        PF.affine(values, 2)
    with pytest.raises(ValueError, match=r"got 'he'; kinnor.initializer has them, such as UniformInitializer"):
        PF.affine(x, 2, w_init="he", name="initializers")
    with pytest.raises(TypeError, match="got an argument 'use_bias'; did you mean 'with_bias'"):
        PF.affine(x, 2, use_bias=False)
    with pytest.raises(TypeError, match=r"got an argument 'activation'; call it with the result"):
        PF.affine(x, 2, activation=nn.functions.relu)
    with pytest.raises(TypeError, match=r"RandomState or None, got 1; the arguments are \(sigma, rng\)"):
        nn.initializer.NormalInitializer(0, 1)
    with nn.parameter_scope("habits"):
        PF.affine(x, 2, name="first")
        found = nn.get_parameters()
    with pytest.raises(KeyError, match="did you mean 'first/affine/W'"):
        assert found["W"]
    with pytest.raises(KeyError, match="did you mean 'first/affine/b'"):
        assert found["frist/affine/b"]
    assert found.get("W") is None and "W" not in found


@pytest.mark.parametrize("name", ["sum", "mean", "max", "min"])
def test_methods_know_arguments_of_other_libraries(name):
    """A method called with `dim` suggests `axis`."""
    for x in (nn.Variable((2, 3)), nn.NdArray((2, 3))):
        with pytest.raises(TypeError, match=f"{name}: expected .*, got an argument 'dim'; did you mean 'axis'"):
            getattr(x, name)(dim=1)


def test_backward_of_a_graph_that_has_not_run():
    with nn.auto_forward(False):
        loss = nn.Variable((2,), need_grad=True).sum()
    with pytest.raises(nn.GraphError, match=r"call forward\(\) first, or build it under nn\.auto_forward"):
        loss.backward()


def test_a_profile_knows_names_of_pytorch(tmp_path):
    """Names of PyTorch's profiler suggest expressions that work."""
    with nn.profile() as p:
        nn.functions.relu(nn.Variable((2, 2)))
    for name, text in foreign_names.PROFILE.items():
        with pytest.raises(AttributeError, match=f"^'Profile' object has no attribute '{name}'; write ") as raised:
            getattr(p, name)
        assert str(raised.value).endswith(text)
        exec(text, {"p": p})
    with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
        _ = p.nothing
    with pytest.raises(TypeError, match="got an argument 'sort_by'; rows are in the order of their time"):
        p.table(sort_by="time")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: L.BatchNorm2d(3, momentum=0.1), "'momentum'; decay_rate is 1 minus PyTorch's momentum"),
        (lambda: L.Embedding(3, 4, padding_idx=0), "Embedding: expected (num_embeddings, embedding_dim, "),
        (lambda: L.Linear(3, units=2), "'units'; did you mean 'out_features'"),
        (lambda: L.Linear(3, 2)(nn.Variable((1, 3)), inplace=True), "Linear: expected (x), got an argument 'inplace'"),
        (lambda: L.MultiHeadAttention(4, 2)(nn.Variable((1, 3, 4)), is_causal=True), "did you mean 'causal'"),
    ],
)
def test_layers_know_arguments_of_other_libraries(call, told):
    with pytest.raises(nn.CallError) as raised:
        call()
    assert told in str(raised.value)


def test_groups_of_pytorch_are_explained():
    """Parameter groups written as in PyTorch raise an error that suggests `add_group`."""
    solver, layer = S.Adam(), L.Linear(3, 2)
    group = {"params": layer.parameters(), "lr": 1e-3}
    for call in (lambda: solver.set_parameters([group]), lambda: solver.add_group(group)):
        with pytest.raises(TypeError, match=r"a group is a call: solver\.add_group\(parameters, alpha=1e-4\)"):
            call()


def test_autocast_takes_types_of_numpy():
    """`autocast` accepts a NumPy type."""
    with nn.autocast(np.float16):
        assert nn.functions.exp(nn.Variable.from_numpy_array([1.0])).dtype == np.float16


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("Tensor", "kinnor.Variable.from_numpy_array(values)"),
        ("tensor", "Variable.from_numpy_array(values)"),
        ("Parameter", "Variable.from_numpy_array(values, need_grad=True)"),
        ("manual_seed", "'seed'"),
        ("random.manual_seed", "'seed'"),
        ("nn", "'layers'"),
        ("autograd", "'autodiff'"),
        ("exp", "kinnor.functions.exp"),
        ("max_pool2d", "kinnor.functions.max_pooling"),
        ("compile", "a static graph is the compiled form"),
        ("layers.CrossEntropyLoss", "kinnor.functions.softmax_cross_entropy"),
        ("layers.Dense", "'Linear'"),
        ("utils.data", "kinnor.data"),
        ("utils.clip_grad_norm_", "solver.clip_grad_by_global_norm"),
    ],
)
def test_names_of_modules_lead_to_names_of_kinnor(path, told):
    holder = nn
    for name in path.split(".")[:-1]:
        holder = getattr(holder, name)
    with pytest.raises(AttributeError) as raised:
        getattr(holder, path.rpartition(".")[2])
    assert told in str(raised.value)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("from kinnor import optim", "cannot import name 'optim' from 'kinnor'; did you mean 'solvers'?"),
        ("from kinnor import Tensor", "cannot import name 'Tensor' from 'kinnor'; write kinnor.Variable.from_numpy_"),
        ("from kinnor.layers import Dense", "cannot import name 'Dense' from 'kinnor.layers'; did you mean 'Linear'?"),
        ("from kinnor.solvers import SGD", "cannot import name 'SGD' from 'kinnor.solvers'; did you mean 'Sgd'?"),
        ("from kinnor.functions import cross_entropy", "did you mean 'softmax_cross_entropy'?"),
        ("from kinnor.data import DataLoader", "; write kinnor.data.data_iterator.data_iterator_simple"),
        ("from kinnor.layers import Linear, Nothing", "cannot import name 'Nothing' from 'kinnor.layers'"),
        ("import kinnor.optim", "No module named 'kinnor.optim'; write kinnor.solvers"),
        ("import kinnor.nn.functional as F", "No module named 'kinnor.nn'; write kinnor.layers"),
        ("from kinnor.utils.data import DataLoader", "No module named 'kinnor.utils.data'; write kinnor.data"),
        ("import kinnor.nowhere", "No module named 'kinnor.nowhere'"),
    ],
)
def test_imports_of_other_libraries_lead_to_names_of_kinnor(statement, told):
    with pytest.raises(ImportError) as raised:
        exec(statement, {})
    assert told in str(raised.value)


def test_searches_for_modules_raise_nothing():
    assert importlib.util.find_spec("kinnor.optim") is None
    assert not hasattr(nn, "optim") and getattr(nn, "optim", 3) == 3
    assert importlib.util.find_spec("kinnor.solvers") is not None


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("loss.backward(retain_graph=True)", "got an argument 'retain_graph'; leave it out"),
        ("loss.backward(create_graph=True)", "kinnor.autodiff.backward(loss, create_graph=True)"),
        ("loss.backward(gradient=values)", "write `grad`"),
        ("solver.zero_grad(set_to_none=True)", "zero_grad: got an argument 'set_to_none'; leave it out"),
        ("kinnor.Variable.from_numpy_array(values, requires_grad=True)", "did you mean 'need_grad'?"),
        ("kinnor.Variable.from_numpy_array(values, dtype='float16')", "numpy.asarray(values, dtype) has the type"),
        ("kinnor.autocast(device_type='cpu')", "'device_type'; leave it out: there is one device, the CPU"),
        ("len(iterator)", "iterator.size // iterator.batch_size is the number of whole batches"),
        ("kinnor.functions.dropout(x, 0.5, training=False)", "leave the call out in evaluation"),
        ("kinnor.functions.squared_error(x, y, reduction='mean')", "kinnor.functions.mean gives the mean"),
        ("kinnor.functions.softmax_cross_entropy(x, x, ignore_index=-1)", "a negative label gives no loss"),
        ("kinnor.functions.interpolate(x, scale_factor=2)", "did you mean 'scale'?"),
        ("kinnor.functions.interpolate(x, size=(4, 4))", "did you mean 'output_size'?"),
        ("kinnor.functions.pad(x, (1, 1), value=1)", "did you mean 'constant_value'?"),
        ("kinnor.functions.one_hot(x, num_classes=3)", "did you mean 'shape'?"),
        ("kinnor.functions.gelu(x, approximate='tanh')", "gelu is the approximation by tanh"),
        ("kinnor.learning_rate_scheduler.CosineScheduler(1e-3, T_max=3)", "did you mean 'max_iter'?"),
        ("kinnor.learning_rate_scheduler.CosineScheduler(solver, 3)", "solver.set_learning_rate(schedule."),
        ("kinnor.learning_rate_scheduler.StepScheduler(0.1, gamma=0.1, step_size=3)", "`iter_steps` lists the updates"),
        ("kinnor.solvers.Adam(learning_rate=1e-3)", "did you mean 'alpha'?"),
        ("kinnor.solvers.Sgd(learning_rate=1e-3)", "did you mean 'lr'?"),
        ("kinnor.solvers.Adam(params=model.parameters())", "set_parameters of the solver takes parameters"),
        ("kinnor.solvers.Adam(epsilon=1e-7)", "did you mean 'eps'?"),
        ("kinnor.solvers.Adam(amsgrad=True)", "AMSGRAD is a solver of its own"),
    ],
)
def test_arguments_of_other_libraries_lead_to_arguments_of_kinnor(call, told):
    with pytest.raises(TypeError) as raised:
        eval(call, names())
    assert told in str(raised.value)


def test_a_device_in_place_of_a_type():
    with pytest.raises(nn.RangeError, match="leave out the device, which is the CPU"):
        nn.autocast("cuda")


def test_retained_gradients_of_two_backward_runs():
    loss = names()["loss"]
    loss.backward()
    loss.backward()  # The graph is kept, as the error about `retain_graph` says.


def test_negative_labels_give_no_loss_and_no_gradient():
    x = nn.Variable.from_numpy_array(np.eye(3, dtype=np.float32), need_grad=True)
    labels = nn.Variable.from_numpy_array(np.array([[0], [-1], [2]]))
    losses = nn.functions.softmax_cross_entropy(x, labels)
    x.grad.zero()
    losses.backward()
    assert losses.d[1, 0] == 0 and not x.g[1].any() and x.g[0].any()


def test_scalars_are_numbers():
    for x in (nn.Variable.from_numpy_array(np.float32(-2.6)), nn.NdArray.from_numpy_array(np.float32(-2.6))):
        assert (int(x), round(x), f"{x:.2f}", format(x, "+.1e")) == (-2, -3, "-2.60", "-2.6e+00")
        assert round(x, 1) == pytest.approx(-2.6) and f"{x}" == str(x)
        assert float(abs(x)) == np.float32(2.6)
    with pytest.raises(nn.ShapeError, match="expected an array of one element"):
        f"{nn.Variable((2,)):.2f}"


def test_the_length_of_an_iterator_over_one_epoch():
    with data_iterator_simple(lambda i: (i,), 7, 2, stop_exhausted=True) as batches:
        assert len(batches) == 3 == len(list(batches)) and batches
    with data_iterator_simple(lambda i: (i,), 7, 2) as batches:
        assert batches


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ("data_iterator_simple((inputs, targets), 64)", "write data_iterator_simple(lambda i: (x[i], t[i]), len(x), "),
        ("data_iterator_simple(range(3), 64)", "write data_iterator_simple(lambda i: dataset[i], len(dataset), "),
        ("kinnor.solvers.Adam([{'params': []}], lr=1e-3)", "add_group those with arguments of their own"),
        ("data_iterator_simple(dataset=inputs, batch_size=2)", "expected `load_func` to be a function of the number"),
        ("data_iterator_simple(lambda i: (i,), 3, batch_size=2, transform=print)", "`load_func` may change what it re"),
        ("kinnor.fit(model, inputs, targets)", "inputs and targets are one tuple: (inputs, targets)"),
        ("kinnor.fit(model, {'x': inputs, 'y': targets}, 'mse')", "tuple(data.values()) has its arrays"),
        ("kinnor.fit(model, ([1.0, 2.0], [1.0, 2.0]), 'mse')", "numpy.asarray makes an array of each"),
        ("kinnor.save_parameters('m.safetensors', model)", "got Sequential; state_dict() of a module has them"),
        ("kinnor.save_parameters(model.state_dict(), 'm.safetensors')", "; the path is the first argument"),
        ("kinnor.save_parameters('m.pt', model.state_dict())", "safetensors.torch.save_file(model.state_dict(), path)"),
        ("kinnor.load_parameters('m.pth')", "safetensors.torch.save_file(model.state_dict(), path)"),
        ("kinnor.load_parameters('model.safetensors', model)", "module.load_parameters(path) loads the parameters of"),
        ("model.load_state_dict('model.safetensors')", "load_parameters(path) of the module reads a file"),
        ("model.load_state_dict(kinnor.load_parameters('model.safetensors'))", "load_parameters(path) of the module"),
        ("open('m.pt', 'w').close() or kinnor.load('m.pt')", "; torch.onnx.export writes a file that kinnor.onnx.load"),
        ("kinnor.load('model.safetensors')", "; load_parameters reads files of parameters"),
        ("kinnor.save({'y': x + 1}, 'model.nnp')", "; the order is path, outputs"),
        ("kinnor.onnx.save('model.onnx', {'y': x + 1})", "; the order is outputs, path"),
        ("kinnor.save_checkpoint('c', model=model)", "'model'; write parameters=model.state_dict()"),
        ("kinnor.save_checkpoint('c', model, solver)", "expected the path, then arguments by name"),
        ("kinnor.save_checkpoint('c', parameters=model)", "got Sequential; state_dict() of the module has them"),
        ("kinnor.load_checkpoint('c', solvers=solver)", 'got Adam; {"main": solver} names one'),
        ("kinnor.Sequential([layer, layer])", "expected Modules, got list: write Sequential(*modules)"),
        ("kinnor.Sequential({'a': layer})", "got dict: write Sequential(*modules.items())"),
        ("kinnor.Sequential(layers.ReLU)", "got ReLU: ReLU() makes a module of the class"),
        ("kinnor.show(model)", "print(module) shows its layers"),
        ("layers.Conv2d(3, 4, 3, padding_mode='reflect')", "Conv2d: expected (in_channels"),
        ("layers.LSTM(3, 4, proj_size=2)", "a Linear after the layer is the projection"),
        ("layers.Linear(3, 4, activation='relu')", "the activation is a layer of its own"),
        ("layers.ReLU(inplace=True)", "ReLU: expected (), got an argument 'inplace'; leave it out"),
        (
            "layers.GELU(approximate='tanh')",
            "GELU: expected (), got an argument 'approximate'; gelu is the approximation",
        ),
        ("layers.Dropout(rate=0.5)", "did you mean 'p'?"),
        ("layers.BatchNorm2d(3, 1e-5, 0.1)", "got more arguments without a name; decay_rate, affine need their names"),
        ("layers.Linear(3, 2)(x, y)", "Linear: expected (x), got more arguments without a name"),
    ],
)
def test_calls_of_other_libraries_lead_to_calls_of_kinnor(call, told):
    there = {**names(), "layers": L, "data_iterator_simple": data_iterator_simple}
    with pytest.raises((TypeError, ValueError)) as raised:
        eval(call, there)
    assert told in str(raised.value) and len(str(raised.value).splitlines()) == 1


def test_parts_of_a_sequence():
    model = names()["model"]
    chain = nn.Sequential(model[0], L.ReLU(), L.Linear(2, 2))
    part = chain[:2]
    assert list(part) == list(chain)[:2] and list(part.state_dict()) == list(chain.state_dict())[:2]


def test_the_list_for_stubtest_has_the_absent_attributes():
    lines = (ROOT / "tools/stubtest-allowlist").read_text().splitlines()
    for name, table in (("Variable", foreign_names.VARIABLE), ("NdArray", foreign_names.ARRAY)):
        (listed,) = [line for line in lines if line.startswith(rf"kinnor\._core\.{name}\.(")]
        assert listed.partition("(")[2].rstrip(")").split("|") == sorted(table)


def registry():
    """The functions of the core whose inputs are no list, with the names of their inputs and their arguments."""
    for name, _, inputs, arguments, _ in nn._core.declarations():
        if all(kind != "list" for _, kind in inputs):
            yield name, [given for given, _ in inputs], arguments


X = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32))


@pytest.mark.parametrize(("name", "inputs", "arguments"), list(registry()))
def test_values_in_the_place_of_others_raise_an_error(name, inputs, arguments):
    """A value without a name after all arguments, a truth value for a number, and a number for a truth value."""
    function, xs = getattr(nn._core.functions, name), [X] * len(inputs)
    many = [*xs, *[1] * len(arguments), 1]
    with pytest.raises(TypeError, match=rf"^{name}: expected \(.*\), got {len(many)} arguments without a name"):
        function(*many)
    for at, (_, _, kind, _) in enumerate(arguments):
        value = 1 if kind.startswith("bool") else True
        if "bool" in kind and value is True:
            continue
        before = [0.5 if "float" in each else False if "bool" in each else 1 for _, _, each, _ in arguments[:at]]
        with pytest.raises((TypeError, ValueError)) as raised:
            function(*xs, *before, value)
        told = str(raised.value)
        assert "without a name" in told, told


@pytest.mark.parametrize("name", foreign_names.MORE_ARGUMENTS)
def test_surplus_values_say_what_to_write(name):
    """`log(x, 2)` and other calls of PyTorch and NumPy suggest an expression that runs."""
    there = {**names(), "math": math}
    declared = {name: inputs + list(arguments) for name, inputs, arguments in registry()}
    with pytest.raises(TypeError) as raised:
        getattr(nn.functions, name)(*[X] * len(declared[name]), 2)
    text = foreign_names.MORE_ARGUMENTS[name]
    assert str(raised.value).endswith(f"; write {text}")
    exec(text, there)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("F.rand(3, 4)", r"^rand: .* write shape=\(3, 4\), or shape=\(\) for one number$"),
        ("F.randn(2, 3, 4)", r"^randn: .* write shape=\(2, 3, 4\)"),
        ("F.randn((3, 4))", r"write shape=\(3, 4\)"),
        ("F.reshape(x, 3, 2)", r"`inplace` .* got 2 without a name; .*; write shape=\(3, 2\)$"),
        ("F.mean(x, 0, 1)", r"write axis=\(0, 1\)$"),
        ("F.flip(x, 0, 1)", r"write axes=\(0, 1\)$"),
        ("F.dropout(x, 0.5, False)", "`seed` to be an integer, got False without a name"),
        ("F.softmax(x, True)", "`axis` to be an integer or None, got True without a name"),
        ("F.concatenate(x, y, 1)", "; write axis=1$"),
        ("F.relu([1.0, 2.0])", r"; wrap it: kinnor.Variable.from_numpy_array\(x\)$"),
        ("F.relu([x, y])", r"; kinnor.functions.stack\(\*x\) joins variables$"),
        ("F.layer_normalization(x, (3,))", "'beta' .* got tuple; the arguments are .* batch_axis"),
        ("F.einsum('ij,kj->ik', x, y)", r"; write equation='ij,kj->ik'$"),
        ("PF.affine([[1.0]], 2)", r"; wrap it: kinnor.Variable.from_numpy_array\(x\)$"),
        ("L.Linear(3, 2)([[1.0]])", r"; wrap it: kinnor.Variable.from_numpy_array\(x\)$"),
        ("x.sum(0, 1)", r"several axes are a tuple: axis=\(0, 1\)"),
        ("x.size(0)", r"write x\.shape\[0\]$"),
        ("x.size()", r"write x\.shape$"),
        ("nn.Variable((2,), requires_grad=True)", "did you mean 'need_grad'"),
    ],
)
def test_calls_of_pytorch_say_what_to_write(code, told):
    F, PF = nn.functions, nn.parametric_functions
    with pytest.raises((TypeError, ValueError), match=told):
        eval(code, {**names(), "F": F, "PF": PF, "L": L, "nn": nn})


def test_random_functions_with_a_shape():
    F = nn.functions
    for function in (F.rand, F.randn):
        shapes = [
            function(shape=(3, 4)),
            function(0, 1, (3, 4)),
            function(0, 1, [5]),
            function(0, 1, shape=()),
            function(),
        ]
        assert [each.shape for each in shapes] == [(3, 4), (3, 4), (5,), (), ()]


@pytest.mark.parametrize("kind", [nn.Variable, nn.NdArray])
@pytest.mark.parametrize("name", ["add2", "sub2", "div2", "pow2", "maximum2", "greater", "atan2", "squared_error"])
def test_numbers_are_constants_beside_an_array(kind, name):
    """A number is an operand of functions of two arrays, without a gradient."""
    function, there = getattr(nn.functions, name), of_kind(kind)
    for number in (2, 2.5, np.float32(2.5), np.int64(2)):
        like = kind.from_numpy_array(np.full((2, 3), number, np.float32))
        for found, wanted in (
            (function(there["x"], number), function(there["x"], like)),
            (function(number, there["x"]), function(like, there["x"])),
        ):
            assert type(found) is kind
            np.testing.assert_allclose(computed(found), computed(wanted), 1e-6)
    x = names()["x"]
    (gradient,) = nn.autodiff.grad(nn.functions.mul2(x, 3.0).sum(), [x])
    np.testing.assert_array_equal(gradient.d, np.full((2, 3), 3, np.float32))


@pytest.mark.parametrize("kind", [nn.Variable, nn.NdArray])
def test_the_number_of_elements_is_an_int(kind):
    size = kind((2, 3)).size
    assert (size, size + 1, str(size), json.dumps(size)) == (6, 7, "6", "6")
    assert type(copy.deepcopy(size)) is int and type(pickle.loads(pickle.dumps(size))) is int
    assert np.zeros(size).shape == (6,)
