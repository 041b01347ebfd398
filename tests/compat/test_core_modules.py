"""Modules: networks as objects, sequences of modules, and layers as classes."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor.core.module import called
from kinnor.core.modules import ConvBn, ResUnit, complete_dims
from kinnor.experimental import parametric_function_class as PC


class Dense(nn.Module):
    """A module with one affine layer of `n` outputs."""

    def __init__(self, n):
        self.n = n

    def call(self, x):
        """Returns the output of the module."""
        return PF.affine(x, self.n)


class Network(nn.Module):
    """A module with two submodules and a parameter of its own."""

    def __init__(self):
        self.first = Dense(4)
        self.second = Dense(2)
        self.scale = PF.get_parameter_or_create("scale", (2,))

    def call(self, x):
        """Returns the output of the module."""
        return self.second(F.relu(self.first(x))) * self.scale


def test_parameters_belong_to_modules():
    """Parameters are stored in their module, not in the global tree."""
    network, other = Network(), Network()
    y = network(nn.Variable((5, 3)))
    assert y.shape == (5, 2)
    names = ["@first/affine/W", "@first/affine/b", "@second/affine/W", "@second/affine/b", "scale"]
    assert list(network.get_parameters()) == names
    assert list(network.get_parameters(recursive=False)) == ["scale"]
    assert list(other.get_parameters()) == ["scale"]
    assert nn.get_parameters(grad_only=False) == {}
    network(nn.Variable((1, 3)))
    assert list(network.get_parameters()) == names
    with pytest.raises(ValueError, match="existing parameter"):
        network(nn.Variable((1, 7)))


def test_paths_and_attributes():
    """Modules know their name, parent, path and mode, and report unknown attributes."""
    network = Network()
    assert (network.name, network.first.name, network.first.parent is network) == ("network", "first", True)
    assert network.first.get_path_name() == "@network/@first"
    assert network.is_root() and not network.first.is_root()
    assert len(network) == 2
    assert network.training and network.first.training
    network.training = False
    assert not network.second.training
    with pytest.raises(AttributeError, match="'Network' has no attribute 'third'"):
        _ = network.third
    with pytest.raises(NotImplementedError, match="expected a method call"):
        nn.Module()()


def test_the_modules_that_are_called():
    """`called` returns the modules whose calls are active, outermost first."""
    seen = []

    class Looks(nn.Module):
        """Records the names of the modules whose calls are active."""

        def call(self, x):
            """Returns the output of the module."""
            seen.append([module.name for module in called()])
            return x

    nn.Sequential(("a", Looks()))(nn.Variable((1,)))
    assert seen and seen[0][-1] == "looks"
    assert called() == ()


def test_files(tmp_path):
    """Saved parameters give another module the same output, and wrong paths are refused."""
    network, other = Network(), Network()
    x = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32))
    y = network(x)
    network.get_parameters()["scale"].d = 2.0
    for path in (tmp_path / "a.h5", tmp_path / "a.protobuf"):
        network.save_parameters(path)
        other.load_parameters(path)
        z = other(x)
        nn.forward_all([y, z])
        np.testing.assert_array_equal(z.d, y.d)
    network.zero_grad()
    with pytest.raises(ValueError, match="expected a submodule of Dense, got the name 'first'"):
        Dense(2).load_parameters(tmp_path / "a.h5")
    with pytest.raises(ValueError, match="expected a path within the module"):
        network.set_parameter("@first", x)


def test_sequences():
    """`Sequential` names its modules, and refuses what is none."""
    network = nn.Sequential(Dense(4), ("out", Dense(2)))
    assert network(nn.Variable((5, 3))).shape == (5, 2)
    assert list(network.submodules) == ["dense_0", "out"]
    with pytest.raises(TypeError, match="Sequential: expected Modules, got int"):
        nn.Sequential(Dense(4), 3)


def test_units_of_residual_networks():
    """`ConvBn` and `ResUnit` build their layers with the right shapes and parameters."""
    x = nn.Variable((2, 8, 8, 8))
    assert ConvBn(4, kernel=3, stride=2, act=F.relu)(x).shape == (2, 4, 4, 4)
    unit = ResUnit(16, stride=2)
    assert unit(x).shape == unit(x, training=False).shape == (2, 16, 4, 4)
    assert len(unit.get_parameters()) == 4 * 5


def test_layers_as_classes():
    """Layer classes draw the same initial values as parametric functions."""
    nn.seed(3)
    ours = PC.Affine(3, 4), PC.Conv2d(3, 4, (3, 3), group=1), PC.Deconv2d(3, 4, (3, 3))
    nn.seed(3)
    x, image = nn.Variable((2, 3)), nn.Variable((2, 3, 8, 8))
    x.d, image.d = 1.0, np.random.RandomState(0).rand(*image.shape)
    theirs = PF.affine(x, 4), PF.convolution(image, 4, (3, 3)), PF.deconvolution(image, 4, (3, 3))
    for layer, inp, y in zip(ours, (x, image, image), theirs, strict=True):
        z = layer(inp)
        nn.forward_all([y, z])
        np.testing.assert_array_equal(z.d, y.d)


def test_normalizations_and_embeddings_as_classes():
    """Batch normalization and embedding as classes have the right parameters, shapes and modes."""
    bn = PC.BatchNorm2d(3)
    assert list(bn.get_parameters()) == ["beta", "gamma"]
    assert list(bn.get_parameters(grad_only=False)) == ["beta", "gamma", "mean", "var"]
    assert bn(nn.Variable((2, 3, 4, 4))).shape == (2, 3, 4, 4)
    assert bn(nn.Variable((2, 3, 4, 4)), test=True).parent.info.args["batch_stat"] is False
    assert PC.BatchNorm1d(3)(nn.Variable((2, 3, 4))).shape == (2, 3, 4)
    assert PC.BatchNorm3d(3)(nn.Variable((2, 3, 4, 2, 2))).shape == (2, 3, 4, 2, 2)
    embed = PC.Embed(7, 3)
    assert embed(nn.Variable((2, 5))).shape == (2, 5, 3)
    with pytest.raises(ValueError, match="expected one of `axes`"):
        PC.BatchNormalization(3, 4, axes=[1, 2])


def test_classes_are_saved_and_loaded(tmp_path):
    """A module with one layer under two names saves that layer once."""

    class Twice(PC.Module):
        """A module that holds one layer under two names."""

        def __init__(self):
            self.a, self.b = PC.Affine(2, 2), PC.Affine(2, 2, with_bias=False)
            self.again = self.a

    one, other = Twice(), Twice()
    assert list(one.get_parameters()) == ["a/W", "a/b", "b/W"]
    one.save_parameters(tmp_path / "p.h5")
    other.load_parameters(tmp_path / "p.h5")
    for name, parameter in other.get_parameters().items():
        np.testing.assert_array_equal(parameter.d, one.get_parameters()[name].d)
    assert nn.get_parameters() == {}
    with pytest.raises(ValueError, match=r"expected a parameter 'W' of shape \(3, 2\)"):
        PC.Affine(3, 2).load_parameters(tmp_path / "p.h5")


def test_sizes_for_each_axis():
    """Kernel sizes may be one number or one for each axis."""
    assert ConvBn(4, kernel=(3, 5))(nn.Variable((1, 2, 8, 8))).shape == (1, 4, 8, 8)
    with pytest.raises(nn.ShapeError, match=r"complete_dims: expected one size or 2, got \(1, 2, 3\)"):
        complete_dims((1, 2, 3), 2)
    with pytest.raises(nn.ShapeError, match="expected one size or 2"):
        ConvBn(4, kernel=(3,))(nn.Variable((1, 2, 8, 8)))
