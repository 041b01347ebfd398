"""Quantization and pruning beyond the table of cases: written values, and the times when weights become fixed."""

import re

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F


def variable(values, need_grad=False):
    """Returns a variable with these values."""
    return nn.Variable.from_numpy_array(np.array(values, np.float32), need_grad=need_grad)


def test_without_quantization_the_input_is_returned():
    """With `quantize=False`, quantizing functions return their input object."""
    x = variable([1.0, 2.0])
    bounds = [variable([v]) for v in (-1, 1, 0, 255)]
    assert F.fixed_point_quantize(x, quantize=False) is x
    assert F.pow2_quantize(x, quantize=False) is x
    assert F.min_max_quantize(x, *bounds, quantize=False) is x


@pytest.mark.parametrize("dtype", [np.int16, "complex", object()])
def test_levels_have_one_of_two_types(dtype):
    """`quantize_linear` returns int8 or uint8 levels, and refuses other types."""
    with pytest.raises(nn.ArgumentError, match="dtype"):
        F.quantize_linear(variable([1.0]), variable([1.0]), variable([0.0]), dtype=dtype)
    y = F.quantize_linear(variable([1000.0]), variable([1.0]), variable([0.0]), dtype=np.uint8)
    y.forward()
    assert y.d.tolist() == [255.0]


def test_ranges_are_followed():
    """`min_max_quantize` follows the range of its input, directly or by a moving average."""
    x = variable([[-1.0, 3.0], [2.0, 5.0]])
    low, high = variable([[0.0]]), variable([[10.0]])
    levels = variable([[0.0]]), variable([[255.0]])
    y = F.min_max_quantize(x, low, high, *levels, x_min_max=True, ema=True, decay=0.75)
    y.forward()
    assert (low.d.item(), high.d.item()) == (-0.25, 8.75)
    y.forward()
    assert (low.d.item(), high.d.item()) == (-0.4375, 7.8125)
    F.min_max_quantize(x, low, high, *levels, x_min_max=True).forward()
    assert (low.d.item(), high.d.item()) == (-1.0, 5.0)
    before = y.d.copy()
    F.min_max_quantize(x, low, high, *levels, ema=True).forward()
    assert (low.d.item(), high.d.item()) == (-1.0, 5.0)
    np.testing.assert_array_equal(before, y.d)


def test_recomputed_ranges_do_not_move_again():
    """Recomputing `min_max_quantize` does not update the moving range twice."""
    x = variable([[-1.0, 3.0]], need_grad=True)
    low, high = variable([[0.0]]), variable([[10.0]])
    levels = variable([[0.0]]), variable([[255.0]])
    with nn.recompute(True):
        h = F.min_max_quantize(F.mul_scalar(x, 1.0), low, high, *levels, x_min_max=True, ema=True, decay=0.5)
    y = F.sum(h**2)
    y.forward(clear_no_need_grad=True)
    followed = low.d.item(), high.d.item()
    y.backward(clear_buffer=True)
    assert (low.d.item(), high.d.item()) == followed == (-0.5, 6.5)


def test_binary_weights_are_written():
    """A layer with binary weights writes the signs and scales to its inputs."""
    x, w = variable([[1.0, 2.0, 3.0]]), variable([[1.0, -2.0], [0.0, 3.0], [-0.5, 0.0]])
    signs, alpha = variable(np.zeros((3, 2))), variable(np.zeros(2))
    F.binary_weight_affine(x, w, signs, alpha, quantize_zero_to=0.5).forward()
    assert signs.d.tolist() == [[1, -1], [0.5, 1], [-1, 0.5]]
    np.testing.assert_allclose(alpha.d, [0.5, 5 / 3], rtol=1e-6)


def test_weights_are_fixed_one_half_after_the_other():
    """INQ layers fix half of the free weights at each listed iteration, and the rest at the last one."""
    x, w = variable(np.ones((1, 4))), variable([[1.0, -2.0], [0.3, 3.1], [-0.5, 0.05], [0.7, 0.2]], need_grad=True)
    fixed = variable(np.zeros((4, 2)))
    y = F.inq_affine(x, w, fixed, inq_iterations=(1, 3))
    y.forward()
    assert not fixed.d.any()
    y.forward()
    assert fixed.d.tolist() == [[1, 1], [0, 1], [0, 0], [1, 0]]
    assert w.d[fixed.d == 1].tolist() == [1.0, -2.0, 4.0, 0.5]
    w.d = w.d + 0.125  # stands for an update
    y.forward()
    assert w.d[fixed.d == 1].tolist() == [1.0, -2.0, 4.0, 0.5]
    np.testing.assert_allclose(w.d[fixed.d == 0], [0.425, -0.375, 0.175, 0.325], rtol=1e-6)
    np.testing.assert_allclose(y.d, w.d.sum(0, keepdims=True), rtol=1e-6)
    y.forward()
    assert fixed.d.all()
    assert set(np.log2(np.abs(w.d[w.d != 0])) % 1) == {0.0}


def test_weights_that_are_fixed_at_random_are_half_of_them():
    def run(seed):
        """Returns the mask of fixed weights for a seed."""
        w, fixed = variable(np.linspace(0.1, 3, 1000).reshape(10, 100)), variable(np.zeros((10, 100)))
        F.inq_affine(
            variable(np.ones((1, 10))), w, fixed, inq_iterations=(0, 9), selection_algorithm="random", seed=seed
        ).forward()
        return fixed.d

    assert 400 < run(3).sum() < 600
    np.testing.assert_array_equal(run(3), run(3))
    assert (run(3) != run(4)).any()


def test_learned_ranges_get_gradients_of_elements_outside():
    """Gradients of clipped elements go to the bounds of the range."""
    x = variable([-3.0, -0.5, 0.25, 2.0, 4.0], need_grad=True)
    low, high = variable([-1.0], need_grad=True), variable([1.0], need_grad=True)
    y = F.min_max_quantize(x, low, high, variable([0.0]), variable([255.0]))
    y.forward()
    for v in (x, low, high):
        v.grad.zero()
    y.backward(np.array([1.0, 10.0, 100.0, 1000.0, 10000.0]))
    assert x.g.tolist() == [0, 10, 100, 0, 0]
    assert (low.g.item(), high.g.item()) == (1.0, 11000.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: F.prune(x, 1.5), "prune: expected `rate` to be from 0 to 1, got 1.5"),
        (lambda x: F.pow2_quantize(x, n=2), "pow2_quantize: expected `n` to be from 3 to 64, got 2"),
        (lambda x: F.fixed_point_quantize(x, delta=0.0), "fixed_point_quantize: expected `delta` to be a positive"),
        (lambda x: F.quantize_linear(x, x, x, "HALF_UP"), "`round_mode` to be HALF_AWAY_FROM_ZERO or HALF_TO_EVEN"),
        (lambda x: F.min_max_quantize(x, x, x, x, x, eps=0.0), "`eps` to be a positive number"),
        (lambda x: F.top_k_data(x, 9), "top_k_data: expected `k` to be from 1 to the size of a sample, which is 3"),
        (lambda x: F.random_crop(x, (9,)), "random_crop: expected `shape`"),
        (lambda x: F.random_shift(x, (-1,)), "random_shift: expected `shifts`"),
        (lambda x: F.random_flip(x, (2,)), "random_flip: expected an axis"),
        (lambda x: F.image_augmentation(x, contrast=0.0), "`contrast` to be a positive number"),
        (lambda x: F.random_choice(x, x, (9,), replace=False), "random_choice: expected `shape` to be at most 3"),
        (lambda x: F.warp_by_flow(x, x), "warp_by_flow: expected images"),
        (lambda x: F.fused_batch_normalization(x, nonlinearity="tanh"), '`nonlinearity` to be "relu"'),
        (
            lambda x: F.fused_convolution(x, x, beta=x),
            "`beta` to be given with gamma, mean and variance, or none of",
        ),
    ],
)
def test_errors_name_the_expected_value(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call(variable([[1.0, 2.0, 3.0]]))


def test_weights_of_populations_are_checked_when_they_are_drawn_from():
    """`random_choice` checks its weights when it runs."""
    x = variable([[1.0, 2.0, 3.0]])
    for w, options, message in (
        ([[1.0, -1.0, 2.0]], {}, "weights of zero or more, got -1"),
        ([[0.0, 0.0, 0.0]], {}, "at least one positive weight"),
        ([[1.0, 0.0, 0.0]], {"shape": (2,), "replace": False}, "at least 2 positive weights"),
    ):
        y = F.random_choice(x, variable(w), **options)
        with pytest.raises(ValueError, match=message):
            y.forward()


@pytest.mark.parametrize(
    "call",
    [
        lambda x, **how: F.random_choice(x, F.abs(x) + 1, shape=(50,), **how),
        lambda x, **how: F.random_crop(x, shape=(3, 3), **how),
        lambda x, **how: F.random_flip(x, axes=(1, 2), **how),
        lambda x, **how: F.random_shift(x, shifts=(3, 3), **how),
        lambda x, **how: F.image_augmentation(x, angle=1.0, noise=0.1, **how),
    ],
    ids=["choice", "crop", "flip", "shift", "augmentation"],
)
def test_a_seed_makes_a_sequence_of_its_own(call):
    x = variable(np.random.RandomState(0).rand(20, 8, 8))

    def sequence(**how):
        """Returns three results in a row."""
        y = call(x, **how)
        found = []
        for _ in range(3):
            y.forward()
            found.append(y.d.copy())
        return found

    first, again, other = sequence(seed=3), sequence(seed=3), sequence(seed=4)
    np.testing.assert_array_equal(first, again)
    assert (first[0] != first[1]).any()
    assert (first[0] != other[0]).any()


def test_augmented_images_do_not_depend_on_threads():
    x = variable(np.random.RandomState(0).rand(4, 3, 33, 47))
    found, before = [], nn.get_num_threads()
    for threads in (1, 3):
        nn.set_num_threads(threads)
        y = F.image_augmentation(x, shape=(3, 40, 29), angle=0.5, noise=0.2, distortion=0.1, flip_lr=True, seed=5)
        y.forward()
        found.append(y.d.copy())
    nn.set_num_threads(before)
    np.testing.assert_array_equal(*found)


def test_moves_are_differentiated_through():
    """The gradient of a random crop goes to the elements that it kept."""
    x = variable(np.arange(2 * 3 * 4).reshape(2, 3, 4), need_grad=True)
    y = F.random_crop(x, (2, 2), seed=3)
    (g,) = nn.grad([F.sum(y**2)], [x])
    nn.forward_all([y, g])
    kept = np.isin(x.d, y.d)
    np.testing.assert_array_equal(g.d, np.where(kept, 2 * x.d, 0))


def test_noise_of_virtual_adversarial_training():
    """`vat_noise` scales each sample, and stores the gradient in its second input."""
    x, w = variable([[3.0, 4.0], [0.0, 2.0]], need_grad=True), variable(np.zeros((2, 2)), need_grad=True)
    y = F.vat_noise(x, w, eps=2.0)
    assert y.parent.info.type_name == "VATNoise"
    y.forward()
    np.testing.assert_allclose(y.d, [[1.2, 1.6], [0.0, 2.0]], rtol=1e-6)
    x.grad.zero()
    y.backward(np.array([[1.0, 2.0], [3.0, 4.0]]))
    assert w.d.tolist() == [[2.0, 4.0], [6.0, 8.0]]
    assert not x.g.any()
    from_the_end = F.vat_noise(x, w, -1, eps=2.0)
    from_the_end.forward()
    np.testing.assert_array_equal(from_the_end.d, y.d)
    for base_axis in (0, 2, -2):
        with pytest.raises(nn.ArgumentError, match="vat_noise: expected `base_axis` to be from 1 to 1"):
            F.vat_noise(x, w, base_axis)


def test_a_missing_derivative_is_an_error():
    """Differentiating beyond the implemented order raises NotImplementedError."""
    x = variable(np.ones((1, 1, 3, 3)), need_grad=True)
    flow = variable(np.full((1, 2, 3, 3), 0.3), need_grad=True)
    (g,) = nn.grad([F.sum(F.warp_by_flow(x, flow) ** 2)], [flow])
    with pytest.raises(NotImplementedError, match="warp_by_flow: expected a derivative of lower order"):
        nn.grad([F.sum(g**2)], [flow])


@pytest.mark.parametrize("border_mode", ["nearest", "reflect", "constant"])
def test_shifts_along_axes_of_samples_take_other_samples(border_mode):
    """With `base_axis=2`, `random_shift` also moves along axis 0."""
    x = variable(np.arange(1.0, 61.0).reshape(3, 5, 4), True)
    y = F.random_shift(x, (1, 2, 0), border_mode, base_axis=2, seed=3)
    y.forward()
    x.grad.zero()
    y.backward()
    rows, taken = x.d.reshape(15, 4), np.zeros(15)
    for i, j in np.ndindex(3, 5):
        (at,) = np.flatnonzero((rows == y.d[i, j]).all(1)) if y.d[i, j].any() else (None,)
        if at is None:
            assert border_mode == "constant"
            continue
        taken[at] += 1
        assert abs(at // 5 - i) <= 1
        assert abs(at % 5 - j) <= 2
    assert len(set(taken)) > 1
    np.testing.assert_array_equal(x.g, np.repeat(taken, 4).reshape(3, 5, 4))
