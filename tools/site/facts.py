"""Gradient and cost of functions, for the reference.

Formulas of elementwise functions are in NumPy. They use the names of inputs and arguments, `y` for the output and
`gy` for its gradient. Abbreviations are defined after `where`. The tests compare the formulas with the library.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from words import FACTS

ELEMENTWISE: dict[str, str | tuple[str, ...]] = {
    "abs": "gy * np.sign(x)",
    "absolute_error": ("gy * np.sign(x0 - x1)", "-gy * np.sign(x0 - x1)"),
    "acos": "-gy / np.sqrt(1 - x**2)",
    "acosh": "gy / np.sqrt(x**2 - 1)",
    "add2": ("gy", "gy"),
    "add_scalar": "gy",
    "asin": "gy / np.sqrt(1 - x**2)",
    "asinh": "gy / np.sqrt(x**2 + 1)",
    "atan": "gy / (1 + x**2)",
    "atan2": ("gy * x1 / (x0**2 + x1**2)", "-gy * x0 / (x0**2 + x1**2)"),
    "atanh": "gy / (1 - x**2)",
    "bc_add2": ("gy", "gy"),
    "binary_cross_entropy": ("gy * (x - target) / (x * (1 - x))", "gy * (np.log(1 - x) - np.log(x))"),
    "binary_sigmoid": "gy * (np.abs(x) < 1) / 2",
    "binary_tanh": "gy * (np.abs(x) < 1)",
    "ceil": "gy",
    "cos": "-gy * np.sin(x)",
    "cosh": "gy * np.sinh(x)",
    "div2": ("gy / x1", "-gy * x0 / x1**2"),
    "elu": "gy * np.where(x > 0, 1, alpha * np.exp(x))",
    "epsilon_insensitive_loss": (
        "gy * np.sign(x0 - x1) * (abs(x0 - x1) > epsilon)",
        "-gy * np.sign(x0 - x1) * (abs(x0 - x1) > epsilon)",
    ),
    "erf": "gy * 2 / np.sqrt(np.pi) * np.exp(-(x**2))",
    "exp": "gy * y",
    "floor": "gy",
    "gelu": "gy / 2 * (1 + t + x * (1 - t**2) * c * (1 + 0.134145 * x**2))"
    " where t = np.tanh(c * (x + 0.044715 * x**3)) where c = np.sqrt(2 / np.pi)",
    "hard_sigmoid": "gy * (np.abs(x) < 2.5) / 5",
    "hard_swish": "gy * np.where(np.abs(x) < 3, x / 3 + 0.5, x > 0)",
    "hard_tanh": "gy * (np.abs(x) < 1)",
    "huber_loss": ("2 * gy * np.clip(x0 - x1, -delta, delta)", "-2 * gy * np.clip(x0 - x1, -delta, delta)"),
    "identity": "gy",
    "leaky_relu": "gy * np.where(x > 0, 1, alpha)",
    "log": "gy / x",
    "log_sigmoid": "gy / (1 + np.exp(x))",
    "maximum2": ("gy * (x0 > x1)", "gy * (x0 <= x1)"),
    "maximum_scalar": "gy * (x >= val)",
    "minimum2": ("gy * (x0 < x1)", "gy * (x0 >= x1)"),
    "minimum_scalar": "gy * (x <= val)",
    "mish": "gy * (t + x * (1 - t**2) / (1 + np.exp(-x))) where t = np.tanh(np.log(1 + np.exp(x)))",
    "mod2": ("gy", "-gy * (x0 - y) / x1"),
    "mul2": ("gy * x1", "gy * x0"),
    "mul_scalar": "gy * val",
    "pow2": ("gy * x1 * x0 ** (x1 - 1)", "gy * y * np.log(x0)"),
    "pow_scalar": "gy * val * x ** (val - 1)",
    "r_div_scalar": "-gy * val / x**2",
    "r_pow_scalar": "gy * y * np.log(val)",
    "r_sub_scalar": "-gy",
    "relu": "gy * (x > 0)",
    "relu6": "gy * ((x > 0) & (x < 6))",
    "reset_inf": "gy * ~np.isinf(x0)",
    "reset_nan": "gy * ~np.isnan(x0)",
    "round": "gy",
    "selu": "gy * scale * np.where(x > 0, 1, alpha * np.exp(x))",
    "sigmoid": "gy * y * (1 - y)",
    "sigmoid_cross_entropy": ("gy * (1 / (1 + np.exp(-x)) - target)", "-gy * x"),
    "sign": "gy",
    "sin": "gy * np.cos(x)",
    "sinc": "gy * (np.cos(x) - y) / np.where(x == 0, 1, x)",
    "sinh": "gy * np.cosh(x)",
    "softplus": "gy / (1 + np.exp(-beta * x))",
    "softsign": "gy / (1 + np.abs(x)) ** 2",
    "squared_error": ("2 * gy * (x0 - x1)", "-2 * gy * (x0 - x1)"),
    "sub2": ("gy", "-gy"),
    "swish": "gy * (y + (1 - y) / (1 + np.exp(-x)))",
    "tan": "gy * (1 + y**2)",
    "tanh": "gy * (1 - y**2)",
    "tanh_shrink": "gy * np.tanh(x) ** 2",
}
"""Gradients by the inputs. If an input was broadcast, its gradient is summed over the added elements."""

CONSTANT = frozenset(
    (
        *("arange", "binary_error", "bit_shift", "confusion_matrix", "constant", "equal", "equal_scalar", "eye_like"),
        *("concatenate_uint8", "dequantize_uint8", "dynamic_quantize_uint8", "lookup_uint8", "max_pooling_uint8"),
        *("quantize_uint8", "quantized_add2", "quantized_affine", "quantized_average_pooling"),
        *("quantized_batch_matmul", "quantized_convolution", "quantized_mul2", "rescale_uint8", "slice_uint8"),
        *("block_quantized_affine", "pad_uint8", "quantized_lstm", "transpose_uint8"),
        *("greater", "greater_equal", "greater_equal_scalar", "greater_scalar", "image_augmentation", "isinf", "isnan"),
        *("less", "less_equal", "less_equal_scalar", "less_scalar", "linspace", "logical_and", "logical_and_scalar"),
        *("logical_not", "logical_or", "logical_or_scalar", "logical_xor", "logical_xor_scalar", "nms_detection2d"),
        *("nonzero", "not_equal", "not_equal_scalar", "one_hot", "onnx_non_max_suppression", "rand", "rand_beta"),
        *("rand_binomial", "rand_gamma", "randint", "randn", "searchsorted", "shape", "top_n_error", "unlink"),
    )
)
"""Functions whose gradient is zero, or which read no array."""

ONE_PASS = "one pass over the elements"
COPY = "a copy of the input: bound by memory"
FAMILIES = {
    "Activations": f"{ONE_PASS}, shared with neighbouring functions of a step",
    "Arithmetic": f"{ONE_PASS}, shared with neighbouring functions of a step",
    "Mathematics": f"{ONE_PASS}, shared with neighbouring functions of a step",
    "Comparison and logic": f"{ONE_PASS}, shared with neighbouring functions of a step",
    "Shapes and parts of arrays": COPY,
    "Reductions and sorting": "one addition for each element of `x`",
    "Losses": ONE_PASS,
    "Normalization": "two passes over the elements forward, two backward: bound by memory",
    "Random numbers": "one random number for each element, or more for some distributions",
    "Quantization": ONE_PASS,
}
"""Cost of functions by page, for functions without an entry of their own."""


def gradient(name: str, inputs: list[str]) -> str:
    """Returns the text about the gradient of a function with these inputs."""
    if name in CONSTANT:
        return "Zero." if inputs else "None, as it reads no array."
    if name not in ELEMENTWISE:
        return FACTS.get(name, ("", ""))[0]
    formulas = ELEMENTWISE[name]
    pairs = zip(inputs, (formulas,) if isinstance(formulas, str) else formulas, strict=False)
    told = []
    for given, formula in pairs:
        first, *bound = formula.replace("np.", "").split(" where ")
        told.append(", where ".join([f"`g{given} = {first}`", *(f"`{each}`" for each in bound)]))
    return ", ".join(told) + "."


def cost(name: str, page: str) -> str:
    """Returns the text about the cost of a function on one of its pages."""
    said = FACTS.get(name, ("", ""))[1] or FAMILIES.get(page, "")
    return f"{said[:1].upper()}{said[1:].rstrip('.')}." if said else ""
