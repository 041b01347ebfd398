"""Recurrent layers, attention, transformers and other layers with several inputs, compared with NNabla 1.39.

For the same seed: names, shapes, initial values bit by bit, outputs and gradients.
"""

import json
import zlib
from pathlib import Path

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF

# Values from NNabla: for each parameter its shape, the checksum of its initial values, and if it is trained. Then the
# mean magnitudes of the outputs, and of the gradients of the inputs for the sum of the sines of the outputs.
ROWS = json.loads(Path(__file__).with_name("sequence_layers_of_nnabla.json").read_text())


def random(place, shape):
    """Returns a leaf of normal numbers, drawn with the seed `place`."""
    return nn.Variable.from_numpy_array(np.random.RandomState(place).randn(*shape).astype("f"), need_grad=True)


def uniform(place, low, shape):
    """Returns a variable of uniform numbers from `low` to 1, drawn with the seed `place`."""
    return nn.Variable.from_numpy_array(np.random.RandomState(place).uniform(low, 1, shape).astype("f"))


def built(row):
    """Builds the layer of a row of NNabla's results. Returns its inputs and its outputs."""
    args = {key: tuple(value) if isinstance(value, list) else value for key, value in row["args"].items()}
    if row["layer"] == "deformable_convolution":
        taps = 9 * args.get("deformable_group", 1)
        args["offset"] = uniform(5, -1, (2, 2 * taps, 6, 6))
        args["mask"] = uniform(6, 0, (2, taps, 6, 6))
    xs = [random(place, shape) for place, shape in enumerate(row["inputs"])]
    made = getattr(PF, row["layer"])(*xs, **args)
    ys = made if isinstance(made, tuple) else (made,)
    return xs, ys[:1] if row["layer"] == "multi_head_attention" else ys


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["layer"])
def test_layers_match_nnabla(row):
    """Recurrent layers and attention give the parameters and values recorded from NNabla."""
    nn.seed(11)
    with nn.parameter_scope("", {}):
        xs, ys = built(row)
        own = nn.get_parameters(grad_only=False)
        found = {key: [list(p.shape), zlib.crc32(p.d.tobytes()), p.need_grad] for key, p in own.items()}
        assert found == row["parameters"]
        assert list(own) == list(row["parameters"])
        loss = F.add_n(*(F.sum(F.sin(y)) for y in ys))
        for y in ys:
            y.persistent = True
        loss.forward()
        for x in xs:
            x.grad.zero()
        loss.backward()
        np.testing.assert_allclose([np.abs(y.d).mean() for y in ys], row["outputs"], rtol=1e-4)
        if row["gradients"] is not None:  # NNabla's gradient of a running mean is wrong, see the page of differences.
            np.testing.assert_allclose([np.abs(x.g).mean() for x in xs], row["gradients"], rtol=1e-4)


@pytest.mark.parametrize("layer", [PF.rnn, PF.lstm, PF.gru], ids=["rnn", "lstm", "gru"])
def test_a_second_call_takes_the_parameters_and_draws_nothing(layer):
    xs = [nn.Variable(shape) for shape in ((5, 2, 3), (2, 1, 2, 4), (2, 1, 2, 4))][: 3 if layer is PF.lstm else 2]
    with nn.parameter_scope("", {}):
        layer(*xs)
        first = {key: p.d.copy() for key, p in nn.get_parameters().items()}
        nn.seed(3)
        layer(*xs, fix_parameters=True)
        assert nn.random.prng.randint(1000) == np.random.RandomState(3).randint(1000)
        again = nn.get_parameters()
        assert list(again) == list(first)
        assert all(np.array_equal(again[key].d, first[key]) for key in first)


def test_recurrent_layers_refuse_states_that_do_not_fit():
    with nn.parameter_scope("", {}):
        x, h = nn.Variable((5, 2, 3)), nn.Variable((2, 1, 2, 4))
        with pytest.raises(ValueError, match=r"rnn: expected `h` of shape \(layers, 2, batch, size\)"):
            PF.rnn(x, h, bidirectional=True)
        with pytest.raises(ValueError, match="gru: expected an input of at least 3 axes"):
            PF.gru(nn.Variable((5, 2)), h)
        with pytest.raises(ValueError, match="lstm: expected `c` of the shape"):
            PF.lstm(x, h, nn.Variable((1, 1, 2, 4)))
        with pytest.raises(ValueError, match="lstm"):
            PF.lstm(x, nn.Variable((2, 1, 9, 4)), nn.Variable((2, 1, 9, 4)))
        assert nn.get_parameters() == {}


def test_attention_refuses_unknown_arguments():
    """Unknown keys of `param_init` and shapes that do not fit are refused."""
    x = nn.Variable((5, 2, 8))
    with nn.parameter_scope("", {}):
        with pytest.raises(ValueError, match=r"expected `param_init` for q_weight, .* got one for 'weight'"):
            PF.multi_head_attention(x, x, x, 2, param_init={"weight": np.zeros((8, 8))})
        with pytest.raises(ValueError, match="a multiple of 3 heads"):
            PF.multi_head_attention(x, x, x, 3)
        with pytest.raises(ValueError, match=r"transformer: expected `tgt` of shape \(length, 2, 8\)"):
            PF.transformer(x, nn.Variable((4, 3, 8)), embed_dim=8)
        assert nn.get_parameters() == {}
        PF.multi_head_attention(x, x, x, 2, param_init={"q_bias": np.arange(8, dtype="f")})
        np.testing.assert_array_equal(nn.get_parameters()["multi_head_attention/q_bias"].d, np.arange(8))


@pytest.mark.parametrize("fixed", [False, True])
def test_a_transformer_of_fixed_parameters_trains_nothing(fixed):
    x = random(0, (3, 2, 8))
    with nn.parameter_scope("", {}):
        y = PF.transformer(
            x, x, 8, 2, 1, 1, dim_feedforward=4, rng=np.random.RandomState(0), fix_parameters=fixed, name="small"
        )
        y.forward()
        y.backward()
        own = nn.get_parameters(grad_only=False)
        assert y.shape == x.shape
        assert len(own) == 16 + 26
        assert all(key.startswith(("small/transformer/encoder00/", "small/transformer/decoder00/")) for key in own)
        trained = [p for p in own.values() if p.need_grad and np.abs(p.g).max() > 0]
        assert bool(trained) != fixed


def test_masked_positions_are_not_attended_to():
    """Attention weights of masked keys are zero."""
    x, padding, order = random(0, (4, 2, 8)), nn.Variable((2, 4)), nn.Variable((4, 4))
    padding.d = [[0, 0, 0, 1], [0, 0, 0, 0]]
    order.d = np.triu(np.full((4, 4), -np.inf), 1)
    with nn.parameter_scope("", {}):
        _, weights = PF.multi_head_attention(x, x, x, 2, additive_mask=order, key_padding_mask=padding)
        weights.forward()
        by_head = weights.d.reshape(2, 2, 4, 4)
        np.testing.assert_allclose(by_head.sum(-1), 1, rtol=1e-5)
        assert not np.triu(by_head, 1).any()
        assert not by_head[0, :, :, 3].any()
        assert by_head[1, :, 3, 3].all()


def test_spectral_normalization_makes_the_largest_singular_value_one():
    with nn.parameter_scope("", {}):
        x = nn.Variable((2, 12))
        y = PF.affine(x, 7, apply_w=lambda w: PF.spectral_norm(w, dim=1, itr=500))
        y.forward()
        own = nn.get_parameters(grad_only=False)
        u, w = own["affine/spectral-norm/u"], own["affine/W"]
        assert not u.need_grad
        scaled = F.spectral_norm(w, u, dim=1, test=True)
        scaled.forward()
        np.testing.assert_allclose(np.linalg.svd(scaled.d, compute_uv=False)[0], 1, rtol=1e-4)


def test_a_running_mean_covers_all_counted_batches():
    batches = np.random.RandomState(0).randn(3, 4, 5).astype("f")
    with nn.parameter_scope("", {}):
        x = nn.Variable((4, 5))
        train, test = PF.mean_subtraction(x), PF.mean_subtraction(x, update_running_mean=False)
        for batch in batches:
            x.d = batch
            train.forward()
        mean = batches.mean((0, 1))
        np.testing.assert_allclose(nn.get_parameters(grad_only=False)["mean_subtraction/mean"].d, mean, atol=1e-6)
        test.forward()
        np.testing.assert_allclose(test.d, batches[-1] - mean, atol=1e-6)
        assert nn.get_parameters(grad_only=False)["mean_subtraction/t"].d == 3
