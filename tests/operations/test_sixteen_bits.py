"""Functions of arrays of 16 bits equal functions of float32 on the same numbers, rounded once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Case = tuple[Callable[..., nn.Variable], list[tuple[int, ...]]]

TYPES = {"bfloat16": ml_dtypes.bfloat16, "half": np.float16}
"""The types of 16 bits, by their names in a context."""
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 6e-8, 3e-5, 65504.0, 3e38, -3e38]
"""Zeros, infinities, NaN, subnormal numbers of every type, and the largest numbers."""
ODD = (7, 13, 5)
"""A shape of odd lengths."""


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Restores the number of threads."""
    n = nn.get_num_threads()
    yield
    nn.set_num_threads(n)


def batch_normalization(x: nn.Variable, *parameters: nn.Variable, batch_stat: bool = True) -> nn.Variable:
    """Normalizes the channels of an array, with running statistics in float32."""
    shape = (1, x.shape[1], *(1 for _ in x.shape[2:]))
    mean, variance = (nn.Variable.from_numpy_array(np.full(shape, v, np.float32)) for v in (0.3, 1.7))
    return F.batch_normalization(x, *parameters, mean=mean, variance=variance, batch_stat=batch_stat)


def whole(shape: tuple[int, ...], n: int) -> nn.Variable:
    """Returns indices below `n`."""
    return nn.Variable.from_numpy_array(np.random.default_rng(1).integers(0, n, size=shape))


MOVES: dict[str, Case] = {
    "concatenate": (lambda *x: F.concatenate(*x, axis=1), [ODD, (7, 1, 5), (7, 4, 5)]),
    "concatenate twice": (lambda x: F.concatenate(x, x, axis=0), [ODD]),
    "stack": (lambda *x: F.stack(*x, axis=2), [ODD, ODD, ODD]),
    "split": (lambda x: F.stack(*F.split(x, axis=1)[::-2]), [ODD]),
    "transpose": (lambda x: F.transpose(x, (2, 0, 1)), [ODD]),
    "transpose of few columns": (lambda x: F.transpose(x, (1, 0)), [(3, 65)]),
    "reshape": (lambda x: F.reshape(x, (13, 35), inplace=False), [ODD]),
    "slice": (lambda x: F.slice(x, (0, 1, 4), (7, 12, 0), (2, 3, -2)), [ODD]),
    "slice of short rows": (lambda x: F.slice(x, (0, 2), (65, 5), (1, 1)), [(65, 9)]),
    "slice without elements": (lambda x: F.slice(x, (0, 5, 0), (7, 5, 5), (1, 1, 1)), [ODD]),
    "index": (lambda x: x[1:5, ::-2, None, 3], [ODD]),
    "pad": (lambda x: F.pad(x, (1, 2, 3, 0), constant_value=0.3), [ODD]),
    "pad with a number that overflows": (lambda x: F.pad(x, (1, 2), constant_value=1e39), [ODD]),
    "pad with a mirror image": (lambda x: F.pad(x, (1, 2, 3, 0), mode="reflect"), [ODD]),
    "flip": (lambda x: F.flip(x, axes=(0, 2)), [ODD]),
    "shift": (lambda x: F.shift(x, (2, -1)), [ODD]),
    "broadcast": (lambda x: F.broadcast(x, (3, 7, 13, 5)), [(7, 1, 5)]),
    "broadcast_to": (lambda a, b: F.broadcast_to(a, b), [(2, 7, 5), (7, 5)]),
    "tile": (lambda x: F.tile(x, (2, 1, 3)), [ODD]),
    "meshgrid": (lambda a, b: F.add2(*F.meshgrid(a, b)), [(5,), (7,)]),
    "unpooling": (lambda x: F.unpooling(x, (2, 3)), [(2, 3, 5, 7)]),
    "embed": (lambda w: F.embed(whole((9, 4), 7), w), [(7, 13)]),
    "gather": (lambda x: F.gather(x, whole((9,), 13), axis=1), [ODD]),
    "gather_nd": (lambda x: F.gather_nd(x, whole((2, 9), 7)), [ODD]),
    "where": (lambda c, a, b: F.where(c, a, b), [ODD, ODD, ODD]),
    "where of rows": (lambda c, a, b: F.where(c, a, b), [(7,), ODD, ODD]),
    "bool_fill": (lambda x, mask: F.bool_fill(x, mask, 0.7), [ODD, (13, 1)]),
    "matrix_diag": (F.matrix_diag, [ODD]),
    "matrix_diag_part": (F.matrix_diag_part, [(3, 5, 5)]),
    "identity": (F.identity, [ODD]),
}
"""Functions that move elements."""
UNARY = ("relu", "sigmoid", "tanh", "gelu", "exp", "swish", "abs", "elu", "softplus", "sin", "tan", "log", "round")
"""Elementwise functions of one array without further arguments."""
ELEMENTWISE: dict[str, Case] = {
    **{name: (getattr(F, name), [ODD]) for name in UNARY},
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.1), [ODD]),
    "mul_scalar": (lambda x: F.mul_scalar(x, 1.7), [ODD]),
    "pow_scalar": (lambda x: F.pow_scalar(x, 3.0), [ODD]),
    "greater_scalar": (lambda x: F.greater_scalar(x, 0.2), [ODD]),
    "add2": (F.add2, [ODD, ODD]),
    "mul2": (F.mul2, [(33, 65), (33, 65)]),
    "div2": (F.div2, [(1, 33), (1, 33)]),
    "maximum2": (F.maximum2, [ODD, ODD]),
    "squared_error": (F.squared_error, [ODD, ODD]),
    "huber_loss": (F.huber_loss, [ODD, ODD]),
    "sigmoid_cross_entropy": (F.sigmoid_cross_entropy, [ODD, ODD]),
    "add2 of a row": (F.add2, [(33, 65), (1, 65)]),
    "mul2 of a column": (F.mul2, [(33, 65), (33, 1)]),
    "sub2 of a row and a column": (F.sub2, [(33, 1), (1, 700)]),
    "sub2 of a channel": (F.sub2, [(3, 5, 7, 9), (1, 5, 1, 1)]),
    "div2 of a number": (F.div2, [ODD, (1, 1, 1)]),
    "minimum2 of two axes": (F.minimum2, [(7, 1, 5), (1, 13, 5)]),
}
"""Elementwise functions, with broadcasting."""
OTHERS: dict[str, Case] = {
    **{f"sum {axis}": (lambda x, axis=axis: F.sum(x, axis=axis), [ODD]) for axis in (0, 1, 2, (0, 2), None)},
    **{f"mean {axis}": (lambda x, axis=axis: F.mean(x, axis=axis), [ODD]) for axis in (0, 2, None)},
    **{f"max {axis}": (lambda x, axis=axis: F.max(x, axis=axis), [ODD]) for axis in (0, 2, (0, 2), None)},
    "min of rows": (lambda x: F.min(x, axis=1), [(9, 77)]),
    "min of columns": (lambda x: F.min(x, axis=0), [(9, 77)]),
    "max of a long row": (lambda x: F.max(x, axis=1), [(2, 70_001)]),
    **{f"softmax {axis}": (lambda x, axis=axis: F.softmax(x, axis=axis), [ODD]) for axis in (0, 1, 2)},
    "softmax of long rows": (F.softmax, [(3, 1031)]),
    "softmax of many columns": (lambda x: F.softmax(x, axis=0), [(13, 65)]),
    "log_softmax": (lambda x: F.log_softmax(x, axis=1), [ODD]),
    "log_softmax of rows": (F.log_softmax, [(33, 65)]),
    "softmax_cross_entropy": (lambda x: F.softmax_cross_entropy(x, whole((7, 1, 5), 13), axis=1), [ODD]),
    "max_pooling": (lambda x: F.max_pooling(x, (3, 2), (2, 2), pad=(1, 0)), [(2, 3, 9, 7)]),
    "max_pooling of windows apart": (lambda x: F.max_pooling(x, (2, 3), (2, 4), pad=(1, 0)), [(2, 3, 9, 11)]),
    "max_pooling of many planes": (lambda x: F.max_pooling(x, (2, 2)), [(5, 7, 9, 13)]),
    "max_pooling of padded planes": (lambda x: F.max_pooling(x, (3, 3), (1, 1), pad=(1, 1)), [(5, 7, 9, 13)]),
    "max_pooling of channels at the end": (lambda x: F.max_pooling(x, (2, 2), channel_last=True), [(3, 9, 7, 5)]),
    "max_pooling in three dimensions": (lambda x: F.max_pooling(x, (2, 2, 2), (1, 2, 3)), [(2, 5, 7, 9)]),
    "global_average_pooling": (F.global_average_pooling, [(3, 5, 7, 9)]),
    "global_average_pooling of long rows": (F.global_average_pooling, [(2, 1, 65, 67)]),
    "average_pooling": (lambda x: F.average_pooling(x, (3, 2), (2, 2), pad=(1, 0)), [(2, 3, 9, 7)]),
    "average_pooling of many planes": (lambda x: F.average_pooling(x, (2, 2)), [(5, 7, 9, 13)]),
    "average_pooling of wide windows": (lambda x: F.average_pooling(x, (3, 17), (1, 17)), [(5, 7, 9, 34)]),
    "average_pooling of channels at the end": (
        lambda x: F.average_pooling(x, (3, 3), (2, 2), pad=(1, 1), including_pad=False, channel_last=True),
        [(3, 9, 7, 5)],
    ),
    "sum_pooling": (lambda x: F.sum_pooling(x, (2, 3), (2, 2)), [(2, 3, 9, 7)]),
    "prelu": (F.prelu, [(3, 5, 7, 9), (5,)]),
    "prelu of one slope": (F.prelu, [ODD, ()]),
    "prelu of columns": (lambda x, w: F.prelu(x, w, base_axis=-1), [(9, 77), (77,)]),
    "depthwise_convolution": (
        lambda x, w, b: F.depthwise_convolution(x, w, b, pad=(1, 1), stride=(2, 1), multiplier=2),
        [(3, 5, 7, 21), (10, 3, 3), (10,)],
    ),
    "depthwise_convolution of short rows": (
        lambda x, w: F.depthwise_convolution(x, w, pad=(1, 1)),
        [(2, 33, 5, 6), (33, 3, 3)],
    ),
    "depthwise_convolution of one axis": (lambda x, w: F.depthwise_convolution(x, w), [(3, 5, 130), (5, 3)]),
    "batch_normalization": (batch_normalization, [(3, 5, 7, 9), (1, 5, 1, 1), (1, 5, 1, 1)]),
    "batch_normalization of columns": (batch_normalization, [(33, 65), (1, 65), (1, 65)]),
    "batch_normalization by running statistics": (
        lambda *x: batch_normalization(*x, batch_stat=False),
        [(3, 5, 7, 9), (1, 5, 1, 1), (1, 5, 1, 1)],
    ),
    "statistics": (
        lambda x: F.concatenate(*map(F.reshape, F.tensor_normalization(x, axes=0, output_stat=True), [(-1,)] * 3)),
        [(7, 130)],
    ),
    "instance_normalization": (F.instance_normalization, [(3, 5, 7, 9)]),
    "layer_normalization of rows": (
        lambda x, b, g: F.layer_normalization(x, b, g, batch_axis=0),
        [(33, 65), (1, 65), (1, 65)],
    ),
    "layer_normalization": (
        lambda x, b, g: F.layer_normalization(x, b, g, batch_axis=(0, 1)),
        [ODD, (1, 1, 5), (1, 1, 5)],
    ),
    "group_normalization": (
        lambda x, b, g: F.group_normalization(x, b, g, num_groups=3),
        [(3, 6, 5, 3), (1, 6, 1, 1), (1, 6, 1, 1)],
    ),
}
"""Reductions, normalizations, losses and pooling."""
ADDED_ONCE = [
    *("concatenate", "stack", "transpose", "transpose of few columns", "reshape", "slice", "index", "pad", "flip"),
    *("where", "bool_fill", "matrix_diag_part", "relu", "mul_scalar", "leaky_relu", "mul2", "squared_error"),
]
"""Functions that add one number to each element of a gradient."""
CASES = MOVES | ELEMENTWISE | OTHERS
"""All functions of this module."""


def numbers(shapes: list[tuple[int, ...]], kind: str, special: bool) -> list[np.ndarray]:
    """Returns arrays of a type of 16 bits. If `special`, one in five elements is zero, infinite, NaN or extreme."""
    rng = np.random.default_rng(3)
    arrays = []
    for shape in shapes:
        x = rng.normal(size=shape)
        chosen = rng.choice(SPECIAL, size=shape)
        with np.errstate(over="ignore"):
            arrays.append(np.where(special & (rng.random(shape) < 0.2), chosen, x).astype(TYPES[kind]))
    return arrays


def leaf(array: np.ndarray, dtype: Any) -> nn.Variable:
    """Returns a leaf with these numbers in a type."""
    v = nn.Variable(array.shape, need_grad=True)
    v.data.cast(dtype)[...] = array
    return v


def run(case: Case, arrays: list[np.ndarray], kind: str, n_threads: int = 1, dynamic: bool = False) -> list[np.ndarray]:
    """Returns the output and the gradients of a function, then the gradients after they were added to once more.

    With `kind` "float", gradients read the output rounded to the type of `arrays`, which has 16 bits.
    """
    f, _ = case
    dtype = TYPES.get(kind, np.float32)
    nn.set_num_threads(n_threads)
    with nn.context_scope(nn.Context([f"cpu:{kind}"])), nn.auto_forward(dynamic):
        x = [leaf(a, dtype) for a in arrays]
        y = f(*x)
        y.persistent = True
        gy = nn.NdArray(y.shape)
        of_all = np.random.default_rng(4).normal(size=y.shape).astype(TYPES["bfloat16"]).astype(TYPES["half"])
        gy.cast(dtype)[...] = of_all.astype(dtype)
        y.forward()
        found = [np.array(y.data.data)]
        if kind == "float":
            with np.errstate(over="ignore"):
                y.data.data[...] = found[0].astype(arrays[0].dtype).astype(np.float32)
        for v in x:
            v.grad.zero()
        y.backward(gy)
        found += [np.array(v.grad.data) for v in x]
        y.backward(gy)
        return found + [np.array(v.grad.data) for v in x]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Returns true if two arrays have the same bits, except in NaN."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    equal = (a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))
    return bool(equal.all())


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", CASES)
def test_functions_round_the_results_of_float32(name: str, kind: str, special: bool) -> None:
    """Outputs and gradients equal float32's on the widened inputs, rounded to the nearest even number."""
    case = CASES[name]
    arrays = numbers(case[1], kind, special)
    found, wide = run(case, arrays, kind), run(case, arrays, "float")
    n = len(arrays)
    with np.errstate(over="ignore", invalid="ignore"):
        for i, (a, b) in enumerate(zip(found[: 1 + n], wide, strict=False)):
            assert a.dtype == TYPES[kind]
            assert same(a, b.astype(TYPES[kind])), (name, i)
        if name in ADDED_ONCE:
            for first, second, once in zip(found[1 : 1 + n], found[1 + n :], wide[1 : 1 + n], strict=True):
                assert same(second, (first.astype(np.float32) + once).astype(TYPES[kind])), name


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", CASES)
def test_each_way_to_run_gives_the_same_bits(name: str, kind: str) -> None:
    """Threads and the kind of graph do not change bits."""
    case = CASES[name]
    arrays = numbers(case[1], kind, True)
    expected = run(case, arrays, kind)
    for n_threads, dynamic in ((2, False), (1, True)):
        assert all(map(same, run(case, arrays, kind, n_threads, dynamic), expected)), (n_threads, dynamic)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    "name",
    [
        *("concatenate", "transpose of few columns", "where", "relu", "mul2", "mul2 of a column", "add2 of a row"),
        *("min of rows", "min of columns", "softmax of many columns", "log_softmax of rows"),
        *("max_pooling of many planes", "max_pooling of padded planes", "average_pooling of many planes", "prelu"),
        *("layer_normalization of rows", "batch_normalization of columns", "mean 0", "mean 2"),
    ],
)
def test_two_threads_give_the_same_bits_on_large_arrays(name: str, kind: str) -> None:
    """Arrays that threads divide give the bits of one thread."""
    f, shapes = CASES[name]
    large = [tuple(n if n < 5 else 9 * n for n in shape) for shape in shapes]
    arrays = numbers(large, kind, True)
    assert all(map(same, run((f, large), arrays, kind, 2), run((f, large), arrays, kind)))


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", ["concatenate", "add2", "add2 of a row", "where"])
def test_inputs_of_several_types_are_computed_in_float32(name: str, kind: str) -> None:
    """An input in float32 beside others of 16 bits is not rounded before it is used."""
    f, shapes = CASES[name]
    arrays = [a.astype(np.float32) for a in numbers(shapes, kind, False)]
    arrays[-1] = arrays[-1] * np.float32(1.001)
    results = []
    for context in (kind, "float"):
        with nn.context_scope(nn.Context([f"cpu:{context}"])):
            x = [leaf(a, TYPES[kind] if i == 0 else np.float32) for i, a in enumerate(arrays)]
            y = f(*x)
            y.forward()
            results.append(np.array(y.data.data).astype(TYPES[kind]))
    assert same(*results)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("name", ["prelu", "depthwise_convolution"])
def test_weights_in_float32_are_not_rounded(name: str, kind: str) -> None:
    """Weights in float32 and their gradients stay so, also where arrays of 16 bits are computed in parts."""
    f, shapes = CASES[name]
    shapes = [(3, shapes[0][1], 130, 131), *shapes[1:]]
    first, *others = numbers(shapes, kind, False)
    weights = [a.astype(np.float32) * np.float32(1.001) for a in others]
    results = []
    for context in (kind, "float"):
        with nn.context_scope(nn.Context([f"cpu:{context}"])):
            x = [leaf(first, TYPES.get(context, np.float32)), *(leaf(a, np.float32) for a in weights)]
            y = f(*x)
            y.forward()
            for v in x:
                v.grad.zero()
            y.backward(nn.NdArray.from_numpy_array(np.ones(y.shape, np.float32).astype(TYPES[kind])))
            assert all(v.grad.data.dtype == np.float32 for v in x[1:])
            results.append([np.array(a).astype(TYPES[kind]) for a in (y.data.data, x[0].grad.data)])
            results[-1] += [np.array(v.grad.data) for v in x[1:]]
    n = len(weights)
    assert all(map(same, *(found[:-n] for found in results)))
    for a, b in zip(*(found[-n:] for found in results), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("kind", TYPES)
def test_normalizations_do_not_round_parameters_in_float32(kind: str) -> None:
    """Scales, offsets and running statistics in float32 stay so beside arrays of 16 bits."""
    x = numbers([(5, 3, 7)], kind, False)[0]
    of_channels = [np.linspace(low, low + 1.001, 3, dtype=np.float32).reshape(1, 3, 1) for low in (0.1, 0.7, 0.3, 1.3)]
    results = []
    for context in (kind, "float"):
        with nn.context_scope(nn.Context([f"cpu:{context}"])):
            inputs = [leaf(x, TYPES[kind]), *(leaf(a, np.float32) for a in of_channels)]
            y = F.batch_normalization(*inputs)
            y.forward()
            for v in inputs[1:3]:
                v.grad.zero()
            y.backward(nn.NdArray.from_numpy_array(np.ones(y.shape, np.float32).astype(TYPES[kind])))
            found = [v.data.data for v in inputs[3:]] + [v.grad.data for v in inputs[1:3]]
            assert all(v.dtype == np.float32 for v in found)
            results.append([np.array(y.data.data).astype(TYPES[kind]), *map(np.array, found)])
    assert all(map(same, *results))
