"""Gradient and cost of functions, as the reference shows them.

Formulas of functions that take arrays element by element are in NumPy, of the inputs and arguments by their names, the
output `y` and the gradient `gy` of the output. The tests compare them with what the library computes.
"""

from __future__ import annotations

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
    "binary_sigmoid": "gy * (np.abs(x) < 1) / 2",
    "binary_tanh": "gy * (np.abs(x) < 1)",
    "cos": "-gy * np.sin(x)",
    "cosh": "gy * np.sinh(x)",
    "div2": ("gy / x1", "-gy * x0 / x1**2"),
    "elu": "gy * np.where(x > 0, 1, alpha * np.exp(x))",
    "erf": "gy * 2 / np.sqrt(np.pi) * np.exp(-(x**2))",
    "exp": "gy * y",
    "hard_sigmoid": "gy * (np.abs(x) < 2.5) / 5",
    "hard_tanh": "gy * (np.abs(x) < 1)",
    "identity": "gy",
    "leaky_relu": "gy * np.where(x > 0, 1, alpha)",
    "log": "gy / x",
    "log_sigmoid": "gy / (1 + np.exp(x))",
    "maximum_scalar": "gy * (x >= val)",
    "minimum_scalar": "gy * (x <= val)",
    "mul2": ("gy * x1", "gy * x0"),
    "mul_scalar": "gy * val",
    "pow2": ("gy * x1 * x0 ** (x1 - 1)", "gy * y * np.log(x0)"),
    "pow_scalar": "gy * val * x ** (val - 1)",
    "r_div_scalar": "-gy * val / x**2",
    "r_pow_scalar": "gy * y * np.log(val)",
    "r_sub_scalar": "-gy",
    "relu": "gy * (x > 0)",
    "relu6": "gy * ((x > 0) & (x < 6))",
    "selu": "gy * scale * np.where(x > 0, 1, alpha * np.exp(x))",
    "sigmoid": "gy * y * (1 - y)",
    "sigmoid_cross_entropy": ("gy * (1 / (1 + np.exp(-x)) - target)",),
    "sin": "gy * np.cos(x)",
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
"""The gradients by the inputs. Where the output was made larger than an input, they are summed up again."""

FAMILIES = {
    "Activations": "one pass over the elements, shared with neighbouring functions of a step",
    "Arithmetic": "one pass over the elements, shared with neighbouring functions of a step",
    "Mathematics": "one pass over the elements, shared with neighbouring functions of a step",
    "Comparison and logic": "one pass over the elements, shared with neighbouring functions of a step",
}
"""Cost of a page's functions that have none of their own."""

FACTS = {
    "affine": (
        "`gx = gy w^T`, `gw = x^T gy`, `gb` is the sum of `gy` over the rows.",
        "`2 n k m` operations for (n, k) by (k, m); backward twice as many.",
    ),
    "batch_matmul": (
        "`ga = gy b^T`, `gb = a^T gy` for each matrix.",
        "`2 n k m` operations for each product of (n, k) by (k, m); backward twice as many.",
    ),
    "convolution": (
        "`gx` is the deconvolution of `gy` with the weights, `gw` sums "
        "`gy[k, o] x[c, o * stride + t * dilation - pad]` over batch and places, `gb` sums `gy`.",
        "`2 * batch * maps * out * (channels / group) * kernel` operations, `out` and `kernel` being numbers of "
        "elements; backward twice as many.",
    ),
    "deconvolution": (
        "`gx` is the convolution of `gy` with the weights; `gw` is that of a convolution with `x` and `gy` exchanged.",
        "`2 * batch * channels * in * (maps / group) * kernel` operations; backward twice as many.",
    ),
    "depthwise_convolution": (
        "That of a convolution with as many groups as channels.",
        "`2 * batch * maps * out * kernel` operations, bound by memory rather than arithmetic; backward twice as many.",
    ),
    "max_pooling": (
        "Each element of `gy` goes to the place of the largest value of its window, the first of several.",
        "`batch * channels * out * kernel` comparisons; backward reads the places again.",
    ),
    "average_pooling": (
        "Each element of `gy` is shared out over its window.",
        "`batch * channels * out * kernel` additions; backward the same.",
    ),
    "sum_pooling": (
        "Each element of `gy` goes to all elements of its window.",
        "`batch * channels * out * kernel` additions; backward the same.",
    ),
    "global_average_pooling": ("`gx = gy / (height * width)`.", "One addition for each element."),
    "softmax": (
        "`gx = y * (gy - sum(gy * y))` along the axis.",
        "Three passes over each row; one exponential for each element.",
    ),
    "log_softmax": (
        "`gx = gy - exp(y) * sum(gy)` along the axis.",
        "Three passes over each row; one exponential for each element.",
    ),
    "softmax_cross_entropy": (
        "`gx = gy * (softmax(x) - onehot(t))`; none by `t`.",
        "As a softmax; the probabilities are not kept.",
    ),
    "sum": ("`gx` repeats `gy` along the axes that were summed.", "One addition for each element of `x`."),
    "mean": ("`gx` repeats `gy / n` along the axes, `n` elements each.", "One addition for each element of `x`."),
    "prod": ("`gx` is `gy` times the product of the others.", "One multiplication for each element; backward three."),
    "max": ("`gy` goes to the place of the largest element, the first of several.", "One comparison for each element."),
    "min": (
        "`gy` goes to the place of the smallest element, the first of several.",
        "One comparison for each element.",
    ),
    "batch_normalization": (
        "With the batch's statistics and `z = (x - mean) / s`: "
        "`gx = gamma / s * (gy - mean(gy) - z * mean(gy * z))`, `ggamma` sums `gy * z`, `gbeta` sums `gy`.",
        "Two passes over `x` forward, two over `x` and `gy` backward: bound by memory.",
    ),
    "dropout": ("`gx = gy * mask / (1 - p)`, with the mask of the forward run.", "One random number for each element."),
    "embed": (
        "`gw` adds each row of `gy` to the row that its index names; none by the indices.",
        "A copy of one row for each index.",
    ),
    "concatenate": ("Each input gets its part of `gy`.", "A copy of each input."),
    "split": ("The gradients of the parts, put together.", "A copy of the input."),
    "reshape": ("`gy` in the shape of `x`.", "None: the memory is shared where nobody can tell."),
    "transpose": ("`gy` with its axes put back.", "A copy with another order: bound by memory."),
    "scaled_dot_product_attention": (
        "By query, key and value; the weights are computed again from what was kept of each row.",
        "`4 n m d` operations for n queries, m keys and width d; memory for a block of weights, not for all n by m.",
    ),
    "lstm": (
        "Back through time, by inputs, states and weights.",
        "`8 h (i + h)` operations for each step and example.",
    ),
    "gru": ("Back through time, by inputs, states and weights.", "`6 h (i + h)` operations for each step and example."),
    "rnn": ("Back through time, by inputs, states and weights.", "`2 h (i + h)` operations for each step and example."),
    "fft": (
        "The conjugate transform of `gy`, scaled.",
        "About `5 n log2(n)` operations for each transform of length n.",
    ),
    "ifft": (
        "The conjugate transform of `gy`, scaled.",
        "About `5 n log2(n)` operations for each transform of length n.",
    ),
    "batch_inv": ("`gx = -y^T gy y^T`.", "About `2 n^3` operations for each matrix of n rows."),
    "batch_det": (
        "`gx = gy * y * inverse(x)^T`.",
        "About `2/3 n^3` operations for each matrix of n rows; backward an inverse.",
    ),
    "sort": ("`gy` goes back to where its elements came from.", "`n log(n)` comparisons for each row of n elements."),
    "gather": ("Each element of `gy` is added to where it was taken from.", "A copy of what is taken."),
}
"""Gradient and cost of others."""


def gradient(name: str, inputs: list[str]) -> str:
    """What the reference says of the gradient of a function with these inputs, if anything."""
    if name not in ELEMENTWISE:
        return FACTS.get(name, ("", ""))[0]
    formulas = ELEMENTWISE[name]
    pairs = zip(inputs, (formulas,) if isinstance(formulas, str) else formulas, strict=False)
    return ", ".join(f"`g{given} = {formula.replace('np.', '')}`" for given, formula in pairs) + "."


def cost(name: str, page: str) -> str:
    """What the reference says of the cost of a function on one of its pages."""
    said = FACTS[name][1] if name in FACTS else FAMILIES.get(page, "")
    return f"{said[:1].upper()}{said[1:].rstrip('.')}." if said else ""
