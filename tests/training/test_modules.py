"""Modules in the way that PyTorch has them: submodules in containers, modes, states, and what `repr` shows."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.layers as L
import kinnor.parametric_functions as PF
from kinnor import _core
from kinnor.experimental import parametric_function_class as PC


class Dense(nn.Module):
    """A module with one affine layer of `n` outputs."""

    def __init__(self, n):
        self.n = n

    def call(self, x):
        """Returns the output of the module."""
        return PF.affine(x, self.n)


class Stack(nn.Module):
    """Modules in a list, a dict and a nested tuple, between two attributes."""

    def __init__(self):
        self.stem = Dense(4)
        self.blocks = [Dense(4) for _ in range(2)]
        self.heads = {"a": Dense(2), "b": (Dense(3), Dense(2))}
        self.last = Dense(2)

    def call(self, x):
        """Returns the output of the module."""
        x = self.stem(x)
        for block in self.blocks:
            x = F.relu(block(x))
        x = self.heads["a"](x) + self.heads["b"][1](self.heads["b"][0](x))
        return self.last(x)


def ran(module, shape=(1, 3)):
    """Returns the module after a first call."""
    module(nn.Variable(shape))
    return module


NAMES = ["stem", "blocks.0", "blocks.1", "heads.a", "heads.b.0", "heads.b.1", "last"]
"""Names of all submodules of `Stack`, in order."""


def test_modules_in_containers_are_submodules():
    """Modules in lists and dicts are found as submodules with paths."""
    network = ran(Stack())
    assert list(network.submodules) == NAMES
    assert [name for name, _ in network.named_modules()] == ["", *NAMES]
    assert list(network.children()) == list(network.modules())[1:]
    assert list(network.get_parameters()) == [f"@{name}/affine/{v}" for name in NAMES for v in "Wb"]
    assert len(list(network.parameters())) == 14
    assert network.blocks[0].parent is network
    assert network.blocks[0].get_path_name() == "@stack/@blocks.0"


def test_containers_may_change():
    """Modules that are added to or removed from containers become or cease to be submodules."""
    network = Stack()
    network.blocks.append(Dense(4))
    assert "blocks.2" in network.submodules and list(network.submodules)[-1] == "last"
    network.blocks = network.blocks[:1]
    del network.heads
    assert list(network.submodules) == ["stem", "blocks.0", "last"]
    network.last = None
    del network.stem
    assert list(network.submodules) == ["blocks.0"]
    with pytest.raises(AttributeError, match="stem"):
        _ = network.stem


def test_keys_with_slashes_are_refused():
    """Keys of dicts of modules must not contain "/"."""
    network = Dense(2)
    network.parts = {"a/b": Dense(2)}
    with pytest.raises(nn.ParameterError, match=r"without '/', got 'parts.a/b'"):
        network.get_parameters()


def test_a_module_that_is_used_twice_is_listed_once():
    network = Dense(2)
    network.one = network.two = PC.Affine(3, 2)
    assert list(network.get_parameters()) == ["@one/W", "@one/b"]
    assert [name for name, _ in network.named_modules()] == ["", "one"]
    assert len(list(network.children())) == 1


def test_modes_reach_all_modules():
    """`train` and `eval` apply to all modules below."""
    network = Stack()
    assert network.eval() is network
    assert not any(module.training for module in network.modules())
    network.blocks[0].train()
    assert [module.training for module in network.blocks] == [True, False]
    assert all(module.training for module in network.train().modules())


def test_functions_are_applied_from_the_inside():
    """`apply` calls the function for submodules before their parent."""
    seen = []
    outer = nn.Sequential(Dense(1), nn.Sequential(Dense(2)))
    assert outer.apply(seen.append) is outer
    assert seen == [outer[1][0], outer[1], outer[0], outer]


def test_states_are_copied_from_module_to_module():
    one, other = ran(Stack()), ran(Stack())
    result = other.load_state_dict(one.state_dict())
    assert result == ([], []) and result.missing_keys == []
    for name, parameter in other.state_dict().items():
        np.testing.assert_array_equal(parameter.d, one.state_dict()[name].d)
    other.load_state_dict({name: np.zeros(v.shape) for name, v in one.state_dict().items()})
    assert not any(v.d.any() for v in other.parameters())


def test_states_that_do_not_fit_are_refused_and_change_nothing():
    network = ran(Dense(2))
    before = network.state_dict()["affine/W"].d.copy()
    wrong = {"affine/W": before + 1, "affine/c": before}
    with pytest.raises(nn.ParameterError, match=r"missing names \['affine/b'\]; unexpected names \['affine/c'\]"):
        network.load_state_dict(wrong)
    np.testing.assert_array_equal(network.state_dict()["affine/W"].d, before)
    assert network.load_state_dict(wrong, strict=False) == (["affine/b"], ["affine/c"])
    np.testing.assert_array_equal(network.state_dict()["affine/W"].d, before + 1)
    with pytest.raises(nn.ParameterError, match=r"'affine/W' of shape \(3, 2\), got \(2, 3\)"):
        network.load_state_dict({"affine/W": before.T}, strict=False)
    with pytest.raises(nn.ParameterError, match="call it once, or build it of layers"):
        Dense(2).load_state_dict(network.state_dict())
    with pytest.raises(TypeError, match="expected Variables or arrays by path, got list"):
        network.load_state_dict([before])


def test_state_of_other_names():
    """`names` maps paths to the names in the state, and errors have these names. Paths may share one."""
    pair = nn.Sequential(("a", L.Linear(3, 3, bias=False)), ("b", L.Linear(3, 3)))
    weight, bias = np.eye(3, dtype=np.float32), np.ones(3, np.float32)
    names = {"@a/W": "weight", "@b/W": "weight", "@b/b": "bias"}.__getitem__
    assert pair.load_state_dict({"weight": weight, "bias": bias}, names=names) == ([], [])
    for layer in pair:
        np.testing.assert_array_equal(layer.W.d, weight)
    np.testing.assert_array_equal(pair[1].b.d, bias)
    given = {"weight": 2 * weight, "@b/b": bias}
    with pytest.raises(nn.ParameterError, match=r"missing names \['bias'\]; unexpected names \['@b/b'\]"):
        pair.load_state_dict(given, names=names)
    with pytest.raises(nn.ParameterError, match=r"'weight' of shape \(3, 3\), got \(3,\)"):
        pair.load_state_dict({"weight": bias, "bias": bias}, names=names)
    np.testing.assert_array_equal(pair[0].W.d, weight)
    assert pair.load_state_dict(given, strict=False, names=names) == (["bias"], ["@b/b"])
    np.testing.assert_array_equal(pair[0].W.d, 2 * weight)


def test_variables_that_need_gradients_are_parameters():
    """Attributes that are variables with `need_grad` are parameters."""
    network = Dense(2)
    network.scale = nn.Variable((2,), need_grad=True)
    network.rows = [nn.Variable((1,), need_grad=True)]
    network.x = nn.Variable((2,))
    assert list(network.get_parameters()) == ["scale", "rows.0"]
    network.requires_grad_(False)
    assert list(network.get_parameters(grad_only=True)) == []
    assert [name for name, _ in network.named_parameters()] == ["scale", "rows.0"]
    network.requires_grad_()
    assert network.scale.need_grad and network.rows[0].need_grad


def test_frozen_parameters_stay_frozen_when_functions_run_again():
    network = ran(Dense(2))
    network.requires_grad_(False)
    y = network(nn.Variable((1, 3)))
    assert not y.need_grad and list(network.get_parameters(grad_only=True)) == []
    network.requires_grad_(True)
    assert network(nn.Variable((1, 3))).need_grad and len(network.get_parameters(grad_only=True)) == 2


def test_statistics_are_in_the_state_and_are_not_parameters():
    class Normalized(nn.Module):
        """Batch normalization alone."""

        def call(self, x):
            """Returns the output of the module."""
            return PF.batch_normalization(x)

    network = ran(Normalized())
    assert list(network.state_dict()) == ["bn/beta", "bn/gamma", "bn/mean", "bn/var"]
    assert [name for name, _ in network.named_parameters()] == ["bn/beta", "bn/gamma"]
    network.requires_grad_(False).requires_grad_()
    assert [v.need_grad for v in network.state_dict().values()] == [True, True, False, False]


def test_gradients_are_set_to_zero():
    """`zero_grad` zeroes the gradients of all parameters."""
    network = ran(Dense(2))
    weight = network.state_dict()["affine/W"]
    weight.g = 1
    network.zero_grad()
    assert not weight.g.any()


def test_both_kinds_of_modules_are_parts_of_each_other():
    class Outer(nn.Module):
        """A module with a layer of the second kind, which has one of the first kind."""

        def __init__(self):
            self.c = PC.Conv2d(1, 2, (3, 3))

        def call(self, x):
            """Returns the output of the module."""
            return self.c(x)

    class Inner(PC.Module):
        """A module of the second kind with a list and a module of the first kind."""

        def __init__(self):
            super().__init__()
            self.layers = [PC.Affine(3, 4), PC.Affine(4, 2)]
            self.last = Dense(2)

        def call(self, x):
            """Returns the output of the module."""
            for layer in self.layers:
                x = layer(x)
            return self.last(x)

    outer, inner = ran(Outer(), (1, 1, 4, 4)), ran(Inner())
    assert list(outer.get_parameters()) == ["@c/W", "@c/b"]
    names = ["layers/0/W", "layers/0/b", "layers/1/W", "layers/1/b", "last/affine/W", "last/affine/b"]
    assert list(inner.get_parameters()) == list(inner.state_dict()) == names
    assert [name for name, _ in inner.get_modules()] == ["", "layers/0", "layers/1", "last"]
    bn = PC.BatchNorm1d(3)
    assert bn.eval()(nn.Variable((2, 3, 4))).parent.info.args["batch_stat"] is False


def test_forward_is_taken_for_call():
    """A module that defines `forward` instead of `call` works."""

    class Forward(nn.Module):
        """A module with the name of PyTorch's method."""

        def forward(self, x, n):
            """Returns scores of `n` classes, under PyTorch's name of the method."""
            return PF.affine(x, n)

    network = Forward()
    assert network(nn.Variable((2, 3)), n=4).shape == (2, 4)
    assert list(network.get_parameters()) == ["affine/W", "affine/b"]


def test_representations_show_children_and_sizes():
    """`repr` of a module lists submodules, parameters and their total size."""

    class Sized(Dense):
        """A module that shows its argument."""

        def extra_repr(self):
            """Returns what `repr` shows in the brackets."""
            return f"{self.n}"

    network = ran(nn.Sequential(("first", Sized(4)), ("second", Dense(2))))
    assert repr(network).splitlines() == [
        "Sequential()",
        "  (first): Sized(4): affine/W (3, 4), affine/b (4,)",
        "  (second): Dense(): affine/W (4, 2), affine/b (2,)",
        "26 elements in 4 parameters",
    ]


def test_lists_and_dicts_of_modules():
    """`ModuleList` and `ModuleDict` behave like lists and dicts, and refuse other objects."""
    modules = nn.ModuleList([Dense(1), Dense(2)])
    modules.append(Dense(3))
    modules.insert(0, Dense(0))
    modules.extend([Dense(4)])
    modules[1] = Dense(7)
    assert [module.n for module in modules] == [0, 7, 2, 3, 4]
    del modules[0]
    assert ([module.n for module in modules[1:3]], modules[-1].n, len(modules)) == ([2, 3], 4, 4)
    assert list(modules.submodules) == ["0", "1", "2", "3"]
    with pytest.raises(IndexError, match="expected an index within 4 modules, got 4"):
        _ = modules[4]
    with pytest.raises(TypeError, match="ModuleList: expected Modules, got int"):
        modules.append(3)
    named = nn.ModuleDict({"a": Dense(1)})
    named["b"] = Dense(2)
    assert (list(named), list(named.keys()), "b" in named, len(named)) == (["a", "b"], ["a", "b"], True, 2)
    assert [module.n for _, module in named.items()] == [module.n for module in named.values()] == [1, 2]
    del named["a"]
    with pytest.raises(KeyError, match=r"expected one of the names \['b'\], got 'a'"):
        _ = named["a"]
    with pytest.raises(ValueError, match="without '/'"):
        named["a/b"] = Dense(1)
    network = nn.Sequential(Dense(1), Dense(2))
    assert (network[-1].n, [module.n for module in network]) == (2, [1, 2])
    with pytest.raises(IndexError, match="expected an index within 2 modules"):
        _ = network[2]


def test_names_of_pytorch_are_explained():
    """Attributes of PyTorch's modules suggest Kinnor's."""
    module = PC.Affine(3, 2)
    with pytest.raises(AttributeError, match="has no attribute 'weight'; did you mean 'W'"):
        _ = module.weight
    with pytest.raises(AttributeError, match="'Dense' has no attribute 'cuda'; write model  # Kinnor computes on CPUs"):
        Dense(2).cuda()
    with pytest.raises(AttributeError, match=r"'Dense' has no attribute 'weight'$"):
        _ = Dense(2).weight
    for name, told in (
        ("forward", "; write model(x)  # a subclass defines `call`"),
        ("register_buffer", "; write model.set_parameter('name', variable)"),
        ("fit", "; write kinnor.fit(model, (inputs, targets), loss)"),
        ("freeze", "; write model.requires_grad_(False)"),
        ("half", "; write with kinnor.autocast('half'): y = model(x)"),
    ):
        with pytest.raises(AttributeError) as raised:
            getattr(module, name)
        assert told in str(raised.value)
    with pytest.raises(TypeError, match=r"got builtin_function_or_method: kinnor\.layers\.Activation"):
        nn.Sequential(F.relu)


def test_a_registered_variable_without_gradient_is_no_parameter():
    module, buffer = Dense(2), nn.Variable.from_numpy_array(np.ones(2, np.float32))
    module.set_parameter("mean", buffer)
    buffer.need_grad = False
    assert list(module.state_dict()) == ["mean"] and list(module.named_parameters()) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Dense", "dense"), ("ResUnit", "res_unit"), ("GELU", "gelu"), ("LeakyReLU", "leaky_relu"),
        ("BlockA", "block_a"), ("LSTMCell", "lstm_cell"), ("BatchNorm1d", "batch_norm1d"), ("ResNetV2", "res_net_v2"),
    ],
)  # fmt: skip
def test_names_of_classes_are_split_into_words(name, expected):
    assert type(name, (nn.Module,), {})().name == expected


def test_under_nnablas_names_lists_and_variables_are_no_parameters():
    """Under NNabla's names only direct attributes that are modules count."""
    _core.set_dialect("nnabla")
    try:
        network = ran(Stack())
        network.scale = nn.Variable((2,), need_grad=True)
        assert list(network.submodules) == ["stem", "last"]
        assert list(network.get_parameters()) == [f"@{name}/affine/{v}" for name in ("stem", "last") for v in "Wb"]
        assert type("GELU", (nn.Module,), {})().name == "g_e_l_u"
    finally:
        _core.set_dialect("native")
    assert len(network.get_parameters()) == 15


def test_names_of_attributes_are_the_users():
    """A user's attributes may have any name, also names that modules use inside."""
    network = Dense(2)
    network._order, network._parameters, network.parameters = [1], {"a": 3}, None
    network.part = Dense(3)
    assert ran(network.part).name == "part" and list(network.state_dict()) == ["@part/affine/W", "@part/affine/b"]


@pytest.mark.parametrize("ending", ["nnp", "onnx"])
@pytest.mark.parametrize("nested", [False, True])
def test_models_of_files_are_parts_of_a_module(tmp_path, ending, nested):
    pytest.importorskip("onnx")
    body = nn.Sequential(L.Linear(3, 4), L.BatchNorm1d(4)).eval()
    x = nn.Variable((2, 3))
    path = tmp_path / f"body.{ending}"
    if ending == "nnp":
        nn.save(path, {"y": body(x)}, inputs={"x": x}, parameters=body)
        model = nn.load(path)
    else:
        nn.onnx.save({"y": body(x)}, path, inputs={"x": x})
        model = nn.onnx.load(path)

    class Extended(nn.Module):
        """A model with a new last layer."""

        def __init__(self):
            self.models = [model] if nested else model
            self.head = L.Linear(4, 2)

        def call(self, x):
            """Returns scores."""
            return self.head((self.models[0] if nested else self.models)(x))

    module = Extended()
    learned = [v for v in model.get_parameters().values() if v.need_grad]
    assert len(list(module.parameters())) == 2 + len(learned) and len(learned) >= 4
    before = {name: v.d.copy() for name, v in module.state_dict().items()}
    data = np.random.RandomState(0).rand(8, 3).astype(np.float32), np.ones((8, 2), np.float32)
    nn.fit(module, data, "mse", epochs=1, batch_size=8, verbose=False)
    changed = {name for name, v in module.state_dict().items() if not np.array_equal(v.d, before[name])}
    assert changed == {name for name, _ in module.named_parameters()}
    module.save_parameters(tmp_path / "all.safetensors")
    expected = module(nn.Variable.from_numpy_array(data[0]))
    expected.forward()
    module.load_state_dict(before)
    module.load_parameters(tmp_path / "all.safetensors")
    y = module(nn.Variable.from_numpy_array(data[0]))
    y.forward()
    np.testing.assert_array_equal(y.d, expected.d)
    module.requires_grad_(False)
    assert not any(v.need_grad for v in module.parameters())
