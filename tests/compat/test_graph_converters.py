"""Graph converters: each modified graph is compared with the original."""

import numpy as np
import pytest

import kinnor as nn
import kinnor.experimental.graph_converters as GC
import kinnor.functions as F
import kinnor.parametric_functions as PF


def images(*shape):
    """Returns random images."""
    return nn.Variable.from_numpy_array(np.random.RandomState(0).randn(*shape).astype(np.float32))


def normalized(h, axes=(1,), name="bn", batch_stat=False):
    """Returns a batch normalization of `h` whose parameters and statistics have fixed values."""
    shape = [1] * h.ndim
    shape[axes[0]] = h.shape[axes[0]]
    rng = np.random.RandomState(5)
    init = {
        "mean": rng.randn(*shape),
        "var": rng.rand(*shape) + 0.5,
        "beta": rng.randn(*shape),
        "gamma": rng.rand(*shape),
    }
    return PF.batch_normalization(h, axes, param_init=init, batch_stat=batch_stat, name=name)


def types(y):
    """Returns the types of all functions above `y`."""
    found = []
    y.visit(lambda f: found.append(f.info.type_name))
    return found


def assert_equal_results(y, z, tolerance=1e-4):
    """Asserts that two graphs compute nearly the same values."""
    nn.forward_all([y, z])
    np.testing.assert_allclose(z.d, y.d, atol=tolerance, rtol=tolerance)


FOLDED = [
    lambda x: PF.convolution(x, 4, (3, 3)),
    lambda x: PF.convolution(x, 6, (3, 3), pad=(1, 1), group=3, with_bias=False),
    lambda x: PF.deconvolution(x, 4, (3, 3), stride=(2, 2)),
    lambda x: PF.deconvolution(x, 6, (2, 2), group=3),
    lambda x: PF.affine(x, 5),
    lambda x: PF.affine(x, (5, 2)),
]
"""Layers that absorb the batch normalization after them."""


@pytest.mark.parametrize("layer", FOLDED)
def test_batch_normalizations_go_into_the_layers_before_them(layer):
    x = images(2, 3, 6, 6)
    y = normalized(F.relu(normalized(layer(x), name="first")), name="second")
    z = GC.GraphConverter([GC.BatchNormalizationFoldingModifier()]).convert(y)
    assert types(z).count("BatchNormalization") == types(y).count("BatchNormalization") - 1
    assert_equal_results(y, z)


def test_channels_last_are_folded_too():
    """Batch normalization of channels-last images is folded into the convolution."""
    x = images(2, 6, 6, 3)
    y = normalized(PF.convolution(x, 4, (3, 3), channel_last=True), axes=(3,))
    z = GC.GraphConverter([GC.BatchNormalizationFoldingModifier(channel_last=True)]).convert(y)
    assert types(z) == ["Convolution"]
    assert_equal_results(y, z)


AFTER = [
    lambda h: PF.convolution(h, 4, (3, 3)),
    lambda h: PF.convolution(h, 6, (3, 3), group=3, with_bias=False),
    lambda h: PF.affine(h, 5),
]
"""Layers that absorb the batch normalization before them."""


@pytest.mark.parametrize("layer", AFTER)
def test_batch_normalizations_go_into_the_layers_after_them(layer):
    y = layer(normalized(images(2, 3, 6, 6)))
    z = GC.GraphConverter([GC.BatchNormalizationFoldingModifier(opposite=True)]).convert(y)
    assert "BatchNormalization" not in types(z)
    assert_equal_results(y, z)


def test_folding_respects_padding():
    """A batch normalization before a padded convolution is folded without changing the results."""
    y = PF.convolution(normalized(images(2, 3, 6, 6)), 4, (3, 3), pad=(1, 1))
    z = GC.GraphConverter([GC.BatchNormalizationFoldingModifier(opposite=True)]).convert(y)
    assert_equal_results(y, z)


def test_layers_with_other_consumers_are_not_folded():
    h = PF.convolution(images(2, 3, 6, 6), 4, (3, 3))
    y = normalized(h) + h
    z = GC.GraphConverter([GC.BatchNormalizationFoldingModifier()]).convert(y)
    assert "BatchNormalization" in types(z)
    assert_equal_results(y, z)


def test_batch_normalizations_become_a_product_and_a_sum():
    y = normalized(images(2, 3, 6, 6))
    z = GC.GraphConverter([GC.BatchNormalizationSelfFoldingModifier()]).convert(y)
    assert types(z) == ["Mul2", "Add2"]
    assert_equal_results(y, z)


def test_folded_parameters_have_single_precision():
    """Folding computes new parameters in float32."""
    y = normalized(F.relu(normalized(PF.convolution(images(2, 3, 6, 6), 4, (3, 3)))), name="second")
    known = set(nn.get_parameters())
    for modifier in (GC.BatchNormalizationFoldingModifier(), GC.BatchNormalizationSelfFoldingModifier()):
        GC.GraphConverter([modifier]).convert(y)
    made = {name: np.dtype(v.data.dtype) for name, v in nn.get_parameters().items() if name not in known}
    assert len(made) == 6
    assert set(made.values()) == {np.dtype(np.float32)}


def network(x, last=False):
    """Returns a small convolutional network on `x`, with channels last if `last`."""
    axes, own = ((3,), {"channel_last": True}) if last else ((1,), {})
    h = F.relu(normalized(PF.convolution(x, 8, (3, 3), pad=(1, 1), **own), axes))
    h = F.concatenate(h, PF.convolution(h, 4, (1, 1), name="second", **own), axis=axes[0])
    h = F.average_pooling(F.max_pooling(h, (2, 2), **own), (2, 2), **own)
    return PF.affine(h, 5)


def test_channels_go_last_and_first():
    """The channel modifiers convert a network to channels last and back with equal results."""
    x = images(2, 3, 8, 8)
    y = network(x)
    to_last = GC.ChannelLastModifier([x])
    z = GC.GraphConverter([to_last]).convert(y)
    assert to_last.inputs_cl[0].shape == (2, 8, 8, 3)
    assert_equal_results(y, z)
    back = GC.GraphConverter([GC.ChannelFirstModifier(to_last.inputs_cl, [x])]).convert(z)
    assert_equal_results(y, back)
    with nn.parameter_scope("other"):
        x = images(2, 8, 8, 3)
        y = network(x, last=True)
        assert_equal_results(y, GC.GraphConverter([GC.ChannelFirstModifier([x])]).convert(y))


def test_a_graph_for_evaluation():
    """`TestModeModifier` removes dropout and uses running statistics."""
    x = images(2, 3, 6, 6)
    y = F.dropout(normalized(x, batch_stat=True), 0.5)
    z = GC.GraphConverter([GC.TestModeModifier(["Dropout"])]).convert(y)
    assert types(z) == ["BatchNormalization"]
    assert z.parent.info.args["batch_stat"] is False
    assert_equal_results(normalized(x), z)


def test_a_copy_on_other_inputs():
    """`IdentityModifier` copies a graph onto other inputs, of another batch size too."""
    x, other = images(2, 3), images(5, 3)
    y, z = PF.affine(F.relu(x), 4), F.tanh(x)
    copies = GC.GraphConverter([GC.IdentityModifier({x: other})]).convert([y, z])
    assert [copy.shape for copy in copies] == [(5, 4), (5, 3)]
    assert_equal_results(F.tanh(other), copies[1])
    with pytest.raises(nn.ShapeError, match="expected an input of shape"):
        GC.IdentityModifier({x: other}, copy_value=True)
    twin = nn.Variable((2, 3))
    assert_equal_results(y, GC.GraphConverter([GC.IdentityModifier({x: twin}, copy_value=True)]).convert(y))


def test_functions_of_several_outputs_are_copied():
    """`IdentityModifier` copies a function with several outputs."""
    x = images(4, 2, 3)
    y = F.add2(*F.split(x, axis=1))
    assert_equal_results(y, GC.GraphConverter([GC.IdentityModifier()]).convert(y))


def test_parameters_without_a_gradient():
    """`NoGradModifier` returns a copy of the graph that needs no gradient."""
    y = PF.affine(images(2, 3), 4)
    z = GC.GraphConverter([GC.NoGradModifier()]).convert(y)
    assert y.need_grad and not z.need_grad
    assert_equal_results(y, z)


def test_pruning():
    """A map whose weights are below the threshold becomes zero. Other maps do not change."""
    x = images(2, 3, 6, 6)
    y = PF.convolution(x, 4, (3, 3))
    w = nn.get_parameters()["conv/W"]
    w.d[1] *= 1e-3
    nn.get_parameters()["conv/b"].d = 1.0
    z = GC.GraphConverter([GC.PruningModifier(1e-2)]).convert(y)
    nn.forward_all([y, z])
    assert np.all(z.d[:, 1] == 0)
    np.testing.assert_array_equal(z.d[:, 0], y.d[:, 0])
    assert "conv/w-pruned" in nn.get_parameters()


def test_a_modifier_that_gives_no_variable_is_refused():
    class Wrong(GC.FunctionModifier):
        """A modifier that returns a number."""

        def modify(self, f, inputs):
            """Returns a number, which is no variable."""
            return 3

    with pytest.raises(TypeError, match="expected a Variable or None, got 3"):
        GC.GraphConverter([Wrong()]).convert(F.relu(images(2, 3)))


def test_batch_normalization_addition_and_activation_as_one():
    """Modifiers fuse batch normalization, addition and activation, and split them again."""
    x, z = images(2, 3, 6, 6), images(2, 3, 6, 6)
    y = F.relu(normalized(x) + F.tanh(z))
    fused = GC.GraphConverter([GC.FusedBatchNormalizationModifier()]).convert(y)
    assert_equal_results(y, fused)
    assert_equal_results(y, GC.GraphConverter([GC.UnfusedBatchNormalizationModifier()]).convert(fused))
