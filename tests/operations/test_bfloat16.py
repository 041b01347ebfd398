"""Mixed precision: products in bfloat16 with sums in float32, and functions of values of 16 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.datasets import digits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BFLOAT16 = ml_dtypes.bfloat16
SIZES = [(1, 1, 1), (3, 17, 65), (17, 65, 3), (65, 1, 17), (1, 65, 130), (33, 70, 2100), (130, 131, 129)]
"""Sizes of products: rows, columns and terms."""


@pytest.fixture(autouse=True)
def empty() -> Iterator[None]:
    """Starts without parameters, and restores the number of threads and the way plans run."""
    nn.clear_parameters()
    threads, plan = nn.get_num_threads(), nn.config.plan
    yield
    nn.set_num_threads(threads)
    nn.config.plan = plan
    nn.clear_parameters()


def wide(array: Any) -> np.ndarray:
    """Returns an array in float64."""
    return np.asarray(array).astype(np.float64)


def rounded(array: np.ndarray) -> np.ndarray:
    """Returns an array rounded to bfloat16, in float64."""
    return wide(array.astype(np.float32).astype(BFLOAT16))


def stored(array: np.ndarray, kind: str) -> nn.Variable:
    """Returns a leaf that needs a gradient and whose values are stored as `kind`, float32 or bfloat16."""
    v = nn.Variable(array.shape, need_grad=True)
    v.data.cast(BFLOAT16 if kind == "bfloat16" else np.float32)[...] = array
    return v


def bits(v: Any) -> bytes:
    """Returns the bytes of an array."""
    return np.ascontiguousarray(v).tobytes()


def products(rng: np.random.Generator, values: Callable[..., np.ndarray]) -> Iterator[tuple[Any, ...]]:
    """Yields operands of products in every size and layout: left, right, output gradient, and what is transposed."""
    for m, n, k in SIZES:
        for ta, tb in [(False, False), (False, True), (True, False), (True, True)]:
            a = values(rng, (k, m) if ta else (m, k))
            b = values(rng, (n, k) if tb else (k, n))
            yield a, b, values(rng, (m, n)), ta, tb


def whole(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns random whole numbers from -3 to 3, whose sums of products are exact in float32."""
    return rng.integers(-3, 4, shape).astype(np.float32)


def real(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Returns random normal numbers in float32."""
    return rng.normal(size=shape).astype(np.float32)


def run(a: np.ndarray, b: np.ndarray, gy: np.ndarray, ta: bool, tb: bool, kinds: tuple[str, str]) -> list[np.ndarray]:
    """Returns the product of `a` and `b` under `autocast`, and both gradients.

    `kinds` are the types that they are stored in.
    """
    x, w = stored(a, kinds[0]), stored(b, kinds[1])
    with nn.autocast():
        y = F.batch_matmul(x, w, transpose_a=ta, transpose_b=tb)
    y.forward()
    y.backward(nn.NdArray.from_numpy_array(gy))
    return [np.array(v) for v in (y.d, x.g, w.g)]


def expected(a: np.ndarray, b: np.ndarray, gy: np.ndarray, ta: bool, tb: bool) -> list[np.ndarray]:
    """Returns the product and both gradients of the operands rounded to bfloat16, computed in float64."""
    a, b, gy = rounded(a), rounded(b), rounded(gy)
    left, right = a.T if ta else a, b.T if tb else b
    ga, gb = gy @ right.T, left.T @ gy
    return [left @ right, ga.T if ta else ga, gb.T if tb else gb]


@pytest.mark.parametrize("kinds", [("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float32", "float32")])
def test_products_of_whole_numbers_are_exact(kinds: tuple[str, str]) -> None:
    """Products of small integers in bfloat16 have no rounding error before the last one."""
    for case in products(np.random.default_rng(0), whole):
        for got, wanted in zip(run(*case, kinds=kinds), expected(*case), strict=True):
            assert np.array_equal(wide(got), wanted if got.dtype == np.float32 else rounded(wanted))


@pytest.mark.parametrize("kinds", [("bfloat16", "bfloat16"), ("bfloat16", "float32"), ("float32", "float32")])
def test_products_have_the_errors_of_their_operands_and_of_sums_in_float32(kinds: tuple[str, str]) -> None:
    for case in products(np.random.default_rng(1), real):
        magnitudes = expected(*(np.abs(v) for v in case[:3]), *case[3:])
        for got, wanted, size in zip(run(*case, kinds=kinds), expected(*case), magnitudes, strict=True):
            terms = max(max(v.shape) for v in case[:3])
            bound = size * terms * 2.0**-24 + (np.abs(wanted) * 2.0**-8 if got.dtype != np.float32 else 0)
            assert (np.abs(wide(got) - wanted) <= bound + 1e-30).all()


def layer(x: nn.Variable, kind: str) -> nn.Variable:
    """Applies the layer `kind`, with a weight and a bias as parameters."""
    if kind == "affine":
        return PF.affine(x, 21, name="w", b_init=nn.initializer.UniformInitializer((-1, 1)))
    kernel = (1, 1) if "pointwise" in kind else (3, 3)
    options = {"group": 2} if "group" in kind else {"stride": (2, 2)} if "stride" in kind else {}
    function = PF.deconvolution if "deconvolution" in kind else PF.convolution
    return function(x, 6, kernel, name="w", b_init=nn.initializer.UniformInitializer((-1, 1)), **options)


LAYERS = ["affine", "convolution", "pointwise", "pointwise stride", "group", "pointwise group", "stride"]
"""Kinds of layers that `layer` builds."""
LAYERS += ["deconvolution", "pointwise deconvolution", "stride deconvolution"]


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("batch", [1, 3, 20])
def test_layers_are_near_double_precision(kind: str, batch: int) -> None:
    """Layers in bfloat16 are near the same layers in float64, values and gradients."""
    rng = np.random.default_rng(2)
    x0 = rounded(real(rng, (batch, 4, 9, 7)))
    results = []
    for how in ("bfloat16", "double"):
        x = nn.Variable.from_numpy_array(x0, need_grad=True)
        if how == "double":
            for p in nn.get_parameters().values():
                p.d = rounded(np.asarray(p.d))
        with nn.context_scope(nn.Context([f"cpu:{how}"])):
            y = layer(x, kind)
        parameters = nn.get_parameters()
        for p in parameters.values():
            p.grad.zero()
        y.forward()
        gy = rounded(real(np.random.default_rng(3), y.shape))
        y.backward(nn.NdArray.from_numpy_array(gy))
        results.append([wide(v) for v in (y.d, x.g, *(p.g for p in parameters.values()))])
    for got, wanted in zip(*results, strict=True):
        assert np.abs(got - wanted).max() <= 2.0**-7 * np.abs(wanted).max()


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("batch", [1, 20])
def test_gradients_of_recurrent_layers_are_near_double_precision(kind: str, batch: int) -> None:
    rng = np.random.default_rng(8)
    x0, gy = rounded(real(rng, (3, batch, 17))), rounded(real(rng, (3, batch, 12)))
    function = {"rnn": PF.rnn, "gru": PF.gru, "lstm": PF.lstm}[kind]
    results = []
    for how in ("bfloat16", "double"):
        x = nn.Variable.from_numpy_array(x0, need_grad=True)
        state = nn.Variable.from_numpy_array(np.zeros((1, 1, batch, 12), np.float32))
        with nn.context_scope(nn.Context([f"cpu:{how}"])):
            y = function(x, *[state] * (2 if kind == "lstm" else 1), name="w")[0]
        parameters = nn.get_parameters()
        for p in parameters.values():
            p.d = rounded(np.asarray(p.d))
            p.grad.zero()
        y.forward()
        y.backward(nn.NdArray.from_numpy_array(gy))
        results.append([wide(v) for v in (y.d, x.g, *(p.g for p in parameters.values()))])
    for got, wanted in zip(*results, strict=True):
        assert np.abs(got - wanted).max() <= 2.0**-7 * np.abs(wanted).max()


def test_parameters_and_their_gradients_stay_in_float32() -> None:
    x = nn.Variable.from_numpy_array(real(np.random.default_rng(4), (5, 7)))
    with nn.autocast():
        loss = F.mean(F.relu(PF.affine(x, 3)))
    loss.forward()
    loss.backward()
    for p in nn.get_parameters().values():
        assert p.d.dtype == np.float32
        assert p.g.dtype == np.float32
    assert loss.data.dtype == BFLOAT16


def test_nan_and_infinity_stay_where_they_belong_and_subnormal_numbers_do_no_harm() -> None:
    a, b = np.ones((3, 40), np.float32), np.ones((40, 35), np.float32)
    a[0, 5], b[7, 2], a[2, :], b[:, 9] = np.nan, np.inf, 1e-39, 1e-39
    y = run(a, b, np.ones((3, 35), np.float32), False, False, ("float32", "float32"))[0].astype(np.float32)
    assert np.isnan(y[0]).all()
    assert y[1, 2] == np.inf
    assert (y[1, [0, 1, 3, 34]] == 40).all()
    assert abs(y[1, 9]) < 1e-36
    assert abs(y[2, 0]) < 1e-36


def network(x: nn.Variable) -> nn.Variable:
    """A network with products, elementwise functions of one and two inputs, broadcasting and normalizations."""
    h = F.relu(PF.convolution(x, 8, (3, 3), pad=(1, 1), name="c0"))
    h = PF.batch_normalization(h, name="n0")
    h = F.tanh(PF.convolution(h, 24, (1, 1), name="c1")) * 0.5 + h.shape[0]
    h = F.gelu(h * F.sigmoid(h) - F.exp(-h) + F.mean(h, axis=(2, 3), keepdims=True))
    h = F.max_pooling(h, (2, 2))
    h = F.relu(PF.affine(h, 33, name="a0"))
    return F.mean(F.softmax_cross_entropy(PF.affine(F.dropout(h, 0.0), 10, name="a1"), nn.Variable.from_numpy_array(T)))


T = np.arange(4).reshape(4, 1) % 10
"""Labels of a batch."""


def trained(kind: str, mode: str, threads: int, plan: str) -> list[bytes]:
    """Returns the bits of the loss and of all gradients after some steps."""
    nn.clear_parameters()
    nn.seed(5)
    nn.set_num_threads(threads)
    nn.config.plan = plan
    rng = np.random.default_rng(6)
    solver = S.Momentum(0.01)
    found = []
    x, loss = nn.Variable((4, 3, 12, 12)), None
    for _ in range(4):
        image = real(rng, x.shape)
        with nn.context_scope(nn.Context([f"cpu:{kind}"])):
            if mode == "dynamic":
                with nn.auto_forward():
                    loss = network(nn.Variable.from_numpy_array(image))
            elif loss is None:
                loss = network(x)
        if mode == "static":
            x.d = image
            loss.forward(clear_no_need_grad=True)
        solver.set_parameters(nn.get_parameters(), reset=False)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        found += [bits(loss.d), *(bits(p.g) for p in nn.get_parameters().values())]
        solver.update()
    return found


@pytest.mark.parametrize("kind", ["bfloat16", "half"])
def test_each_way_to_run_gives_the_same_bits(kind: str) -> None:
    """Training in bfloat16 gives the same bits, static or eager, with any threads and plans."""
    wanted = trained(kind, "static", 1, "plain")
    for mode, threads, plan in [("static", 2, "optimised"), ("static", 1, "optimised"), ("dynamic", 2, "optimised")]:
        assert trained(kind, mode, threads, plan) == wanted, (mode, threads, plan)


@pytest.mark.parametrize("kind", ["bfloat16", "half"])
@pytest.mark.parametrize("size", [1, 15, 1024, 1025, 40_000])
def test_elementwise_functions_round_the_results_of_float32(kind: str, size: int) -> None:
    dtype = BFLOAT16 if kind == "bfloat16" else np.float16
    rng = np.random.default_rng(7)
    a, b, g = (real(rng, (size,)).astype(dtype).astype(np.float32) for _ in range(3))
    for function in (F.tanh, F.exp, lambda x: F.mul2(x, x), lambda x: x * 0.3, F.relu):
        results = []
        for how in (kind, "float"):
            x = nn.Variable.from_numpy_array(a, need_grad=True)
            y0 = nn.Variable.from_numpy_array(b, need_grad=True)
            with nn.context_scope(nn.Context([f"cpu:{how}"])):
                y = F.add2(function(x), y0)
                h = function(x)
            h.forward()
            h.backward(nn.NdArray.from_numpy_array(g))
            y.forward()
            results.append([np.asarray(v).astype(np.float32) for v in (h.d, x.g, y.d)])
        (h16, g16, y16), (h32, g32, _) = results
        assert np.array_equal(h16, h32.astype(dtype).astype(np.float32))
        # Gradients that read the output read it rounded.
        assert (np.abs(g16 - g32) <= 2.0**-6 * np.abs(g32) + 2.0**-7 * np.abs(g)).all()
        assert np.array_equal(y16, (h16 + b).astype(dtype).astype(np.float32))


def test_autocast_refuses_other_types_and_can_be_disabled() -> None:
    expected = "autocast: expected `dtype` to be bfloat16 or half, got 'double'"
    with pytest.raises(ValueError, match=expected), nn.autocast("double"):
        pass
    with nn.context_scope(nn.Context(["cpu:double"])):
        with nn.autocast(enabled=False) as context:
            assert context.compute_type == "double"
        with nn.autocast("float16") as context:
            assert context.compute_type == "half"


def digits_error(kind: str, seed: int) -> float:
    """Trains a small network on the digits, and returns its error on every fifth image, which is held out."""
    nn.clear_parameters()
    nn.seed(seed)
    rng = np.random.default_rng(seed)
    images, labels = digits()
    is_held_out = np.arange(len(images)) % 5 == 4

    def scores(x: nn.Variable, batch_stat: bool) -> nn.Variable:
        """Returns the scores of ten classes."""
        h = PF.convolution(x, 16, (3, 3), pad=(1, 1), name="c0")
        h = F.max_pooling(F.relu(PF.batch_normalization(h, batch_stat=batch_stat, name="n0")), (2, 2))
        h = F.average_pooling(F.relu(PF.convolution(h, 32, (3, 3), pad=(1, 1), name="c1")), (2, 2))
        h = F.relu(PF.layer_normalization(PF.affine(h, 64, name="a0"), name="n1"))
        return PF.affine(h, 10, name="a1")

    x, t = nn.Variable((64, 1, 8, 8)), nn.Variable((64, 1))
    with nn.autocast(enabled=kind == "bfloat16"):
        loss = F.mean(F.softmax_cross_entropy(scores(x, batch_stat=True), t))
        y = scores(nn.Variable.from_numpy_array(images[is_held_out]), batch_stat=False)
    solver = S.Adam(3e-3)
    solver.set_parameters(nn.get_parameters())
    order = [rng.permutation(np.flatnonzero(~is_held_out))[:1408] for _ in range(5)]
    for chosen in np.concatenate(order).reshape(-1, 64):
        x.d, t.d = images[chosen], labels[chosen, None]
        loss.forward(clear_no_need_grad=True)
        solver.zero_grad()
        loss.backward(clear_buffer=True)
        solver.update()
    y.forward()
    assert y.data.dtype == (np.float32 if kind == "float32" else BFLOAT16)
    return float((wide(y.d).argmax(1) != labels[is_held_out]).mean())


def test_the_digits_are_learned_as_well_as_in_float32() -> None:
    # The mean errors of three runs differ by less than one percent of the images that are held out.
    means = {kind: np.mean([digits_error(kind, seed) for seed in range(3)]) for kind in ("float32", "bfloat16")}
    assert means["float32"] < 0.03
    assert means["bfloat16"] < means["float32"] + 0.01


@pytest.mark.parametrize("rows", [1, 2, 16])
def test_partial_sums_of_a_column_overflow_no_earlier_than_in_float32(rows: int) -> None:
    largest = np.float32(3.3895314e38)
    x = nn.Variable.from_numpy_array(np.full((rows, 3), largest))
    w = nn.Variable.from_numpy_array(np.array([[1.0], [1.0], [-1.0]]))
    with nn.context_scope(nn.Context(["cpu:bfloat16"])), nn.auto_forward():
        y = F.affine(x, w)
    assert np.array_equal(wide(y.d), np.full((rows, 1), wide(largest)))
