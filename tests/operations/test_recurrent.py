"""Recurrent networks with many units and dropout, round trips of signals, large matrices, and errors."""

import numpy as np
import pytest
from cases.recurrent import network, recurrent
from support import DOUBLE, assert_rule_agrees

import kinnor as nn
import kinnor.functions as F


def made(row, need_grad=True):
    """Returns the inputs of a row as variables."""
    return [x if x is None else nn.Variable.from_numpy_array(x, need_grad=need_grad) for x in row.inputs]


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_many_units_are_computed_in_parts(kind):
    """More units than one thread handles at a time, and more samples than a tile has rows."""
    row = recurrent(kind, size=(4, 33, 20, 70), layers=2, directions=2)
    with nn.context_scope(DOUBLE):
        xs = made(row)
        ys = getattr(F, kind)(*xs, **row.args)
        loss = F.add_n(*(F.sum(F.sin(y)) for y in ys))
        loss.forward()
        for y, expected in zip(ys, network(kind)(*row.inputs, **row.args), strict=True):
            np.testing.assert_allclose(y.d, expected, 1e-9, 1e-11)
        assert_rule_agrees(loss, xs)


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru"])
def test_dropout_is_between_layers_and_the_same_backward(kind):
    """Eagerly, so that the graph rule belongs to the same run as the kernel."""
    row = recurrent(kind, layers=3, directions=2, dropout=0.5)
    with nn.context_scope(DOUBLE), nn.auto_forward():
        nn.seed(5)
        xs = made(row)
        ys = getattr(F, kind)(*xs, **row.args)
        loss = F.add_n(*(F.sum(F.sin(y)) for y in ys))
        rule = nn.grad([loss], xs)
        for x in xs:
            x.grad.zero()
        loss.backward()
        for x, expected in zip(xs, rule, strict=True):
            np.testing.assert_allclose(x.g, expected.d, 1e-8, 1e-10)
        nn.seed(5)
        np.testing.assert_array_equal(getattr(F, kind)(*xs, **row.args)[0].d, ys[0].d)
        assert not np.array_equal(getattr(F, kind)(*xs, **row.args)[0].d, ys[0].d)
        still = getattr(F, kind)(*xs, **{**row.args, "training": False})
        np.testing.assert_allclose(still[0].d, network(kind)(*row.inputs, **row.args)[0], 1e-9, 1e-11)
        with pytest.raises(nn.GraphError, match="expected `training`"):
            still[0].backward(1.0)


def test_gradients_with_dropout_are_derivatives():
    """A fixed seed draws the same mask in each run."""
    row = recurrent("lstm", layers=2, dropout=0.4)
    direction = np.random.RandomState(1).randn(*row.inputs[0].shape)

    def loss(step):
        """Returns the variables and the loss after a step along the direction."""
        nn.seed(9)
        xs = made(row)
        xs[0].d = row.inputs[0] + step * direction
        y = F.sum(F.sin(F.lstm(*xs, **row.args)[0]))
        y.forward()
        return xs, y

    with nn.context_scope(DOUBLE):
        xs, y = loss(0.0)
        xs[0].grad.zero()
        y.backward()
        slope = (loss(1e-6)[1].d - loss(-1e-6)[1].d) / 2e-6
    np.testing.assert_allclose((xs[0].g * direction).sum(), slope, 1e-5)


def test_invalid_arguments_are_refused():
    """Recurrent networks refuse weights and states of wrong shapes."""
    x, h, w = nn.Variable((5, 3, 4)), nn.Variable((1, 1, 3, 6)), nn.Variable((1, 4, 6, 10))
    with pytest.raises(nn.ShapeError, match=r"`c` of shape \(1, 1, 3, hidden\)"):
        F.lstm(x, h, nn.Variable((1, 1, 3, 5)), w)
    with pytest.raises(nn.ShapeError, match=r"`weight_l0` of shape \(1, 4, 6, 10\)"):
        F.lstm(x, h, h, nn.Variable((1, 3, 6, 10)))
    with pytest.raises(nn.ShapeError, match=r"`h` of shape \(2, 1, 3, hidden\)"):
        F.lstm(x, h, h, w, num_layers=2)
    with pytest.raises(nn.ShapeError, match="`weight` of shape that is left out"):
        F.lstm(x, h, h, w, w)
    with pytest.raises(nn.ArgumentError, match="num_layers"):
        F.lstm(x, h, h, w, num_layers=0)
    with pytest.raises(nn.ArgumentError, match="tanh or relu"):
        F.rnn(x, h, nn.Variable((1, 6, 10)), nonlinearity="sin")
    with pytest.raises(nn.ArgumentError, match="dropout"):
        F.lstm(x, h, h, w, dropout=1.0)


def test_lengths_must_not_increase():
    """Packing refuses rising lengths and lengths beyond the sequences."""
    v = nn.Variable.from_numpy_array
    with pytest.raises(nn.RangeError, match="not to rise"):
        F.pack_padded_sequence(v(np.zeros((4, 2))), v(np.array([2, 3])))
    with pytest.raises(nn.RangeError, match="at most 4"):
        F.pack_padded_sequence(v(np.zeros((4, 2))), v(np.array([5, 3])))
    with pytest.raises(nn.ArgumentError, match="total_length"):
        F.pad_packed_sequence(v(np.zeros((3, 2))), v(np.array([2, 1])), total_length=1)


@pytest.mark.parametrize("fft_size", [8, 9, 12])
def test_stft_and_istft_make_a_round_trip(fft_size):
    x = np.random.RandomState(0).randn(3, 60)
    args = (fft_size, fft_size // 4 if fft_size != 9 else 3, fft_size)
    with nn.context_scope(DOUBLE):
        v = nn.Variable.from_numpy_array(x)
        y = F.istft(*F.stft(v, *args), *args)
        y.forward()
    np.testing.assert_allclose(y.d, x[:, : y.shape[1]], 1e-10, 1e-12)


def test_windows_must_overlap():
    """`stft` and `istft` refuse windows and shapes that cannot be inverted."""
    re = im = nn.Variable((1, 3, 4))
    with pytest.raises(nn.RangeError, match="Expected windows whose squares add up"):
        F.istft(re, im, 4, 4, 4)
    with pytest.raises(nn.ArgumentError, match="fft_size"):
        F.stft(nn.Variable((1, 20)), 8, 2, 4)
    with pytest.raises(nn.ShapeError, match="signals of shape"):
        F.stft(nn.Variable((1, 2)), 8, 2, 8)
    with pytest.raises(nn.ArgumentError, match="window_type"):
        F.stft(nn.Variable((1, 20)), 8, 2, 8, window_type="round")
    with pytest.raises(nn.ShapeError, match="axes of signals"):
        F.fft(nn.Variable((4, 3)), 1)


def test_large_matrices_are_processed_in_blocks():
    """Inverse, Cholesky factor and log-determinant are right for 70 x 70 matrices."""
    r = np.random.RandomState(0)
    x = r.randn(2, 70, 70)
    with nn.context_scope(DOUBLE):
        v = nn.Variable.from_numpy_array
        inverse, root = F.batch_inv(v(x)), F.batch_cholesky(v(x @ x.swapaxes(1, 2) + np.eye(70)))
        log = F.batch_logdet(v(x))
        nn.forward_all([inverse, root, log])
    np.testing.assert_allclose(inverse.d, np.linalg.inv(x), 1e-7, 1e-8)
    np.testing.assert_allclose(root.d, np.linalg.cholesky(x @ x.swapaxes(1, 2) + np.eye(70)), 1e-9, 1e-10)
    np.testing.assert_allclose(log.d, np.linalg.slogdet(x)[1], 1e-10)


def test_remainders_and_shifts_follow_the_type():
    """The sign of `mod2` and `bit_shift` follow the element type, as in ONNX."""
    v = nn.Variable.from_numpy_array
    a, b = np.array([5, -5, 5, -5]), np.array([3, 3, -3, -3])
    for kind, expected in ((np.int32, [2, 1, -1, -2]), (np.float32, [2, -2, 2, -2])):
        y = F.mod2(v(a.astype(kind)), v(b.astype(kind)))
        y.forward()
        assert y.d.tolist() == expected
    a, b = np.random.RandomState(0).randint(-(2**31), 2**31 - 1, (2, 1000)).astype(np.int32)
    for fmod, expected in ((False, np.mod(a, b)), (True, np.fmod(a, b))):
        y = F.mod2(v(a), v(b), fmod=fmod)
        y.forward()
        np.testing.assert_array_equal(y.d, expected)
    y = F.mod2(v(np.float32([5, -5])) + 1, v(np.float32([4, 4])))  # of values that are computed later
    y.forward()
    assert y.d.tolist() == [2, 0]
    y = F.bit_shift(v(np.array([1, 2, 255], np.uint8)), v(np.array([1, 2, 3], np.uint8)))
    y.forward()
    assert y.d.tolist() == [2, 8, 248]
    y = F.bit_shift(v(np.array([-1])), v(np.array([1])))
    with pytest.raises(nn.RangeError, match="whole numbers from 0"):
        y.forward()


def test_remainders_are_exact():
    """`mod2` has no rounding error for any pair of floats."""
    bits = np.random.RandomState(0).randint(0, 2**32, (2, 30_000), dtype=np.uint64).astype(np.uint32)
    near = (bits & 0x87FFFFFF) | 0x38000000  # exponents for which the quotient is found by one division
    odd = np.array([[7, -0.0, 1, np.inf], [np.inf, 2, 0, 3]], np.float32)
    for pair in (bits.view(np.float32), near.view(np.float32), odd):
        y, z = (nn._core.functions.mod2(*map(nn.Variable.from_numpy_array, pair), fmod=fmod) for fmod in (True, False))
        nn.forward_all([y, z])
        with np.errstate(all="ignore"):
            a, b = pair.astype(np.float64)
            rest = np.fmod(a, b)
            down = np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
            np.testing.assert_array_equal(y.d, rest.astype(np.float32))
            np.testing.assert_array_equal(z.d, down.astype(np.float32))


def test_running_means_and_singular_vectors_are_updated():
    r = np.random.RandomState(0)
    x, mean, t = r.randn(4, 3), nn.Variable((3,)), nn.Variable((1,))
    mean.d, t.d = 0, 0
    v = nn.Variable.from_numpy_array(x)
    y = F.mean_subtraction(v, mean, t)
    for i in range(1, 3):
        y.forward()
        np.testing.assert_allclose(mean.d, x.mean(0), 1e-5)
        assert t.d.tolist() == [i]
    w, u = r.randn(3, 4), r.randn(3)
    kept, old = nn.Variable.from_numpy_array(u), nn.Variable.from_numpy_array(u)
    y = F.spectral_norm(nn.Variable.from_numpy_array(w), kept, itr=50)
    y.forward()
    np.testing.assert_allclose(np.linalg.norm(y.d, 2), 1, 1e-5)
    assert abs(np.linalg.norm(kept.d) - 1) < 1e-5
    F.spectral_norm(nn.Variable.from_numpy_array(w), old, test=True).forward()
    np.testing.assert_array_equal(old.d, u)
