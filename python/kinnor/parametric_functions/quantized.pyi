"""Layers whose weights are binary, rounded or pruned."""

# Written by `make stubs` from families.py; do not edit.

from collections.abc import Sequence

from numpy.random import RandomState

from .._core import Variable
from ..initializer import Initializer

__all__ = [
    "binary_connect_affine",
    "binary_connect_convolution",
    "binary_weight_affine",
    "binary_weight_convolution",
    "inq_affine",
    "inq_convolution",
    "fixed_point_quantized_affine",
    "fixed_point_quantized_convolution",
    "min_max_quantized_affine",
    "min_max_quantized_convolution",
    "pow2_quantized_affine",
    "pow2_quantized_convolution",
    "pruned_affine",
    "pruned_convolution",
]

def binary_connect_affine(
    inp: Variable, n_outmaps: int | Sequence[int], base_axis: int = 1, quantize_zero_to: float = 1.0,
    w_init: Initializer | None = None, wb_init: Initializer | None = None, b_init: Initializer | None = None,
    fix_parameters: bool = False, rng: RandomState | None = None, with_bias: bool = True, name: str | None = None
) -> Variable: ...

def binary_connect_convolution(
    inp: Variable, outmaps: int, kernel: int | Sequence[int], pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None, dilation: int | Sequence[int] | None = None, group: int = 1,
    quantize_zero_to: float = 1.0, w_init: Initializer | None = None, wb_init: Initializer | None = None,
    b_init: Initializer | None = None, base_axis: int = 1, fix_parameters: bool = False, rng: RandomState | None = None,
    with_bias: bool = True, name: str | None = None
) -> Variable: ...

def binary_weight_affine(
    inp: Variable, n_outmaps: int | Sequence[int], base_axis: int = 1, quantize_zero_to: float = 1.0,
    w_init: Initializer | None = None, wb_init: Initializer | None = None, b_init: Initializer | None = None,
    fix_parameters: bool = False, rng: RandomState | None = None, with_bias: bool = True, name: str | None = None
) -> Variable: ...

def binary_weight_convolution(
    inp: Variable, outmaps: int, kernel: int | Sequence[int], pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None, dilation: int | Sequence[int] | None = None, group: int = 1,
    quantize_zero_to: float = 1.0, w_init: Initializer | None = None, wb_init: Initializer | None = None,
    b_init: Initializer | None = None, base_axis: int = 1, fix_parameters: bool = False, rng: RandomState | None = None,
    with_bias: bool = True, name: str | None = None
) -> Variable: ...

def inq_affine(
    inp: Variable, n_outmaps: int | Sequence[int], base_axis: int = 1, num_bits: int = 4,
    inq_iterations: Sequence[int] = (), selection_algorithm: str = "random", seed: int = -1,
    w_init: Initializer | None = None, i_init: Initializer | None = None, b_init: Initializer | None = None,
    fix_parameters: bool = False, rng: RandomState | None = None, with_bias: bool = True, name: str | None = None
) -> Variable: ...

def inq_convolution(
    inp: Variable, outmaps: int, kernel: int | Sequence[int], pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None, dilation: int | Sequence[int] | None = None, group: int = 1,
    num_bits: int = 4, inq_iterations: Sequence[int] = (), selection_algorithm: str = "random", seed: int = -1,
    w_init: Initializer | None = None, i_init: Initializer | None = None, b_init: Initializer | None = None,
    base_axis: int = 1, fix_parameters: bool = False, rng: RandomState | None = None, with_bias: bool = True,
    name: str | None = None
) -> Variable: ...

def fixed_point_quantized_affine(
    inp: Variable, n_outmaps: int | Sequence[int], base_axis: int = 1, w_init: Initializer | None = None,
    b_init: Initializer | None = None, fix_parameters: bool = False, rng: RandomState | None = None,
    with_bias: bool = True, quantize_w: bool = True, sign_w: bool = True, n_w: int = 8, delta_w: float = 2**-4,
    ste_fine_grained_w: bool = True, quantize_b: bool = True, sign_b: bool = True, n_b: int = 8, delta_b: float = 2**-4,
    ste_fine_grained_b: bool = True, name: str | None = None
) -> Variable: ...

def fixed_point_quantized_convolution(
    inp: Variable, outmaps: int, kernel: int | Sequence[int], pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None, dilation: int | Sequence[int] | None = None, group: int = 1,
    channel_last: bool = False, w_init: Initializer | None = None, b_init: Initializer | None = None,
    base_axis: int = 1, fix_parameters: bool = False, rng: RandomState | None = None, with_bias: bool = True,
    quantize_w: bool = True, sign_w: bool = True, n_w: int = 8, delta_w: float = 2**-4, ste_fine_grained_w: bool = True,
    quantize_b: bool = True, sign_b: bool = True, n_b: int = 8, delta_b: float = 2**-4, ste_fine_grained_b: bool = True,
    name: str | None = None
) -> Variable: ...

def min_max_quantized_affine(
    inp: Variable, n_outmaps: int | Sequence[int], base_axis: int = 1, w_init: Initializer | None = None,
    b_init: Initializer | None = None, fix_parameters: bool = False, rng: RandomState | None = None,
    with_bias: bool = True, quantize_w: bool = True, ql_min_w: int = 0, ql_max_w: int = 255, w_min_max: bool = False,
    qr_min_w_init: Initializer | None = None, qr_max_w_init: Initializer | None = None, ste_fine_grained_w: bool = True,
    quantize_b: bool = True, ql_min_b: int = 0, ql_max_b: int = 255, b_min_max: bool = False,
    qr_min_b_init: Initializer | None = None, qr_max_b_init: Initializer | None = None, ste_fine_grained_b: bool = True,
    eps: float = 0.01, name: str | None = None
) -> Variable: ...

def min_max_quantized_convolution(
    inp: Variable, outmaps: int, kernel: int | Sequence[int], pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None, dilation: int | Sequence[int] | None = None, group: int = 1,
    channel_last: bool = False, w_init: Initializer | None = None, b_init: Initializer | None = None,
    base_axis: int = 1, fix_parameters: bool = False, rng: RandomState | None = None, with_bias: bool = True,
    quantize_w: bool = True, ql_min_w: int = 0, ql_max_w: int = 255, w_min_max: bool = False,
    qr_min_w_init: Initializer | None = None, qr_max_w_init: Initializer | None = None, ste_fine_grained_w: bool = True,
    quantize_b: bool = True, ql_min_b: int = 0, ql_max_b: int = 255, b_min_max: bool = False,
    qr_min_b_init: Initializer | None = None, qr_max_b_init: Initializer | None = None, ste_fine_grained_b: bool = True,
    eps: float = 0.01, name: str | None = None
) -> Variable: ...

def pow2_quantized_affine(
    inp: Variable, n_outmaps: int | Sequence[int], base_axis: int = 1, w_init: Initializer | None = None,
    b_init: Initializer | None = None, fix_parameters: bool = False, rng: RandomState | None = None,
    with_bias: bool = True, quantize_w: bool = True, sign_w: bool = True, with_zero_w: bool = False, n_w: int = 8,
    m_w: int = 2, ste_fine_grained_w: bool = True, quantize_b: bool = True, sign_b: bool = True,
    with_zero_b: bool = False, n_b: int = 8, m_b: int = 2, ste_fine_grained_b: bool = True, name: str | None = None
) -> Variable: ...

def pow2_quantized_convolution(
    inp: Variable, outmaps: int, kernel: int | Sequence[int], pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None, dilation: int | Sequence[int] | None = None, group: int = 1,
    w_init: Initializer | None = None, b_init: Initializer | None = None, base_axis: int = 1,
    fix_parameters: bool = False, rng: RandomState | None = None, with_bias: bool = True, quantize_w: bool = True,
    with_zero_w: bool = False, sign_w: bool = True, n_w: int = 8, m_w: int = 2, ste_fine_grained_w: bool = True,
    quantize_b: bool = True, with_zero_b: bool = False, sign_b: bool = True, n_b: int = 8, m_b: int = 2,
    ste_fine_grained_b: bool = True, name: str | None = None
) -> Variable: ...

def pruned_affine(
    inp: Variable, n_outmaps: int | Sequence[int], base_axis: int = 1, w_init: Initializer | None = None,
    b_init: Initializer | None = None, fix_parameters: bool = False, rng: RandomState | None = None,
    with_bias: bool = True, prune_w: bool = True, rate_w: float = 0.9, prune_b: bool = True, rate_b: float = 0.9,
    name: str | None = None
) -> Variable: ...

def pruned_convolution(
    inp: Variable, outmaps: int, kernel: int | Sequence[int], pad: int | Sequence[int] | None = None,
    stride: int | Sequence[int] | None = None, dilation: int | Sequence[int] | None = None, group: int = 1,
    channel_last: bool = False, w_init: Initializer | None = None, b_init: Initializer | None = None,
    base_axis: int = 1, fix_parameters: bool = False, rng: RandomState | None = None, with_bias: bool = True,
    prune_w: bool = True, rate_w: float = 0.9, prune_b: bool = True, rate_b: float = 0.9, name: str | None = None
) -> Variable: ...
