"""Products with weights of 4 and 8 bits that have a scale for each block: `block_quantized_affine`."""

from __future__ import annotations

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F

from .cases.integer import block_quantized_affine

RNG = np.random.default_rng(5)


def made(n_in, n_out, bits, block, has_zero):
    """Returns random levels, scales and, if wanted, zero points."""
    n_blocks = -(-n_in // block)
    levels = RNG.integers(0, 256, (n_out, n_blocks, block * bits // 8), dtype=np.uint8)
    scale = RNG.uniform(0.001, 0.01, (n_out, n_blocks)).astype(np.float32)
    zero = RNG.integers(0, 1 << bits, (n_out, n_blocks)).astype(np.float32)
    return [levels, scale, zero][: 3 if has_zero else 2]


def product(x, weights, **args):
    """Returns the product as an array."""
    with nn.auto_forward():
        return F.block_quantized_affine(*map(nn.Variable.from_numpy_array, (x, *weights)), **args).numpy().copy()


@pytest.mark.parametrize("has_zero", [False, True])
@pytest.mark.parametrize("block", [16, 32, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_products_agree_with_numpy(bits, block, has_zero):
    """Both ways agree with NumPy, for few and many rows and columns, and on each number of threads."""
    threads = nn.get_num_threads()
    try:
        for n_in, n_out in ((16, 1), (block * 3 - 5, 17), (300, 100)):
            weights = made(n_in, n_out, bits, block, has_zero)
            widths = block_quantized_affine(np.eye(n_in), *map(np.asarray, weights), bits=bits, block_size=block)
            for rows in (1, 3, 9, 70):
                x = RNG.standard_normal((rows, n_in)).astype(np.float32)
                # Rounding of sums of levels, which are larger than the weights.
                size = np.abs(x) @ (np.abs(widths) + weights[1].max() * (1 << bits))
                for quantizes in (False, True):
                    args = {"bits": bits, "block_size": block, "quantize_inputs": quantizes}
                    found = []
                    for n in (1, 2):
                        nn.set_num_threads(n)
                        found.append(product(x, weights, **args))
                    wanted = block_quantized_affine(x.astype(float), *weights, **args)
                    assert found[0].tobytes() == found[1].tobytes()
                    # A number near the middle of two levels may be rounded to the other one.
                    ties = np.abs(x).max() / 127 * np.abs(widths).max() if quantizes else 0
                    apart = np.abs(found[0] - wanted)
                    assert (apart <= 2e-6 * size + ties * 1.01).all()
                    assert np.median(apart / size) < 1e-6
    finally:
        nn.set_num_threads(threads)


@pytest.mark.parametrize("quantizes", [False, True])
@pytest.mark.parametrize("bits", [4, 8])
def test_special_numbers(bits, quantizes):
    """Infinite, undefined and huge numbers have the result of the weight in float32, and other rows stay."""
    weights = made(70, 20, bits, 32, True)
    weights[2][:] += 0.5  # no weight is zero
    args = {"bits": bits, "block_size": 32, "quantize_inputs": quantizes}
    x = RNG.standard_normal((6, 70)).astype(np.float32)
    plain = product(x, weights, **args)
    x[1, 3], x[2, 69], x[4, 40], x[5] = np.inf, np.nan, 1e38, 0
    found = product(x, weights, **args)
    weight = block_quantized_affine(np.eye(70), *weights, bits=bits, block_size=32)
    np.testing.assert_allclose(found[4], x[4].astype(float) @ weight, rtol=1e-5)
    np.testing.assert_array_equal(found[1], np.inf * np.sign(weight[3]))
    assert np.isnan(found[2]).all() and (found[5] == 0).all()
    np.testing.assert_allclose(found[[0, 3]], plain[[0, 3]], rtol=1e-5, atol=1e-5)


def test_levels_are_packed_again_after_a_change():
    """A run after the levels changed uses the new ones."""
    weights = made(64, 18, 4, 32, False)
    x = RNG.standard_normal((2, 64)).astype(np.float32)
    inputs = [nn.Variable.from_numpy_array(a) for a in (x, *weights)]
    y = F.block_quantized_affine(*inputs)
    for _ in range(2):
        for _ in range(3):
            y.forward()
            wanted = block_quantized_affine(x.astype(float), *weights)
            np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-4, atol=1e-4)
        weights[0] = 255 - weights[0]
        inputs[1].data.data[...] = weights[0]


@pytest.mark.parametrize("has_zero", [False, True])
def test_parameters_are_read_again_after_a_change(has_zero):
    """A run after the scales or zero points changed uses the new ones, in static and dynamic graphs."""
    weights = made(64, 18, 4, 32, has_zero)
    x = RNG.standard_normal((2, 64)).astype(np.float32)
    inputs = [nn.Variable.from_numpy_array(a) for a in (x, *weights)]
    y = F.block_quantized_affine(*inputs)

    def check():
        wanted = block_quantized_affine(x.astype(float), *weights)
        for _ in range(3):
            y.forward()
            np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-4, atol=1e-4)
            with nn.auto_forward():
                found = F.block_quantized_affine(*inputs).numpy()
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)

    check()
    for i in range(1, len(weights)):
        weights[i] = weights[i] * np.float32(0.5)
        inputs[i + 1].data.data[...] = weights[i]
        check()
    # A write through a view that is held is seen at the next run.
    view = inputs[2].data.data
    for _ in range(3):
        weights[1] = weights[1] * np.float32(2)
        view[...] = weights[1]
        check()


@pytest.mark.parametrize("bits", [2, 5, 16, 0, -4])
def test_other_bits_are_refused(bits):
    """The levels have 4 or 8 bits."""
    with pytest.raises(nn.ArgumentError, match="bits"):
        product(np.zeros((1, 32), np.float32), made(32, 2, 4, 32, False), bits=bits)


@pytest.mark.parametrize("block", [0, -16, 8, 24, 1 << 17])
def test_other_blocks_are_refused(block):
    """A block has a multiple of 16 terms."""
    with pytest.raises(nn.ArgumentError, match="block_size"):
        product(np.zeros((1, 32), np.float32), made(32, 2, 4, 32, False), block_size=block)


def test_shapes_that_do_not_fit_are_refused():
    """Levels, scales and zero points have shapes that fit the input."""
    x, (levels, scale, zero) = np.zeros((1, 40), np.float32), made(40, 3, 4, 32, True)
    for wrong in (
        (x[:, :32], levels, scale, zero),
        (np.float32(1), levels, scale, zero),
        (x, levels[:, :, :8], scale, zero),
        (x, levels[0], scale, zero),
        (x, levels, scale[:2], zero),
        (x, levels, scale, zero.T.copy()),
    ):
        with pytest.raises(nn.ShapeError):
            product(np.asarray(wrong[0]), wrong[1:])
