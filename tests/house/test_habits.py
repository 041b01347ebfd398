"""Names of other libraries raise errors that say what to write, and what they say runs."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.layers as L
import kinnor.onnx
import kinnor.solvers as S
from kinnor import _foreign_attributes, _foreign_names

pytest.importorskip("onnx")


@pytest.fixture(autouse=True)
def dynamic(tmp_path, monkeypatch):
    """Functions run as they are built, in a folder of the test."""
    monkeypatch.chdir(tmp_path)
    with nn.auto_forward():
        yield


def names():
    """The names that the suggestions use."""
    rng = np.random.default_rng(0)
    values = rng.random((2, 3), np.float32)
    x, y = (nn.Variable.from_numpy_array(each, need_grad=True) for each in (values, values + 1))
    model = nn.Sequential(L.Linear(3, 2))
    solver = S.Adam()
    solver.set_parameters(model)
    loss = model(x).sum()
    model.save_parameters("model.safetensors")
    return {
        "kinnor": nn,
        "x": x,
        "y": y,
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
    }


@pytest.mark.parametrize(
    ("table", "name", "text"),
    [(table, name, text) for table in holders() for name, text in getattr(_foreign_names, table).items()],
)
def test_suggestions_are_in_the_error_and_run(table, name, text, capsys):
    holder, there = holders()[table]
    with pytest.raises(AttributeError) as raised:
        getattr(holder, name)
    assert str(raised.value).endswith(f"has no attribute {name!r}; write {text}")
    assert not hasattr(holder, name)
    exec(text, there)


@pytest.mark.parametrize("table", ["VARIABLE", "ARRAY"])
def test_all_suggestions_for_arrays_are_attached(table):
    """The attributes with suggestions are the ones listed in `_foreign_names`."""
    assert getattr(_foreign_attributes, table) == list(getattr(_foreign_names, table))


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
    for name, text in _foreign_names.PROFILE.items():
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'; write ") as raised:
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
        ("Tensor", "Variable.from_numpy_array(values)"),
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
