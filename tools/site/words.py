"""Gradient and cost of functions in words, for the reference. Elementwise formulas are in `facts.py`."""

PICKED = "Each part of `gy` is added to the elements that it was read from."
NORMALIZED = (
    "With the statistics of each normalized part, `s = sqrt(variance + eps)`, `z = (x - mean) / s` and `g = gy * "
    "gamma`: `gx = (g - mean(g) - z * mean(g * z)) / s`; `ggamma` sums `gy * z`, `gbeta` sums `gy`."
)
BY_SIGNS = "By `x` with the binary weights; by `weight` straight through from them; none by written arrays."
BY_POWERS = "The gradient of the plain layer with the weights of that run; zero for `indicator_fixedweights`."
FRAMES = "About `5 n log2(n)` operations for each frame of n samples; backward the same."
AS_AFFINE = "`2 n k m` operations for (n, k) by (k, m), as `affine`, and a pass over the weights."
AS_CONVOLUTION = "As `convolution`, and a pass over the weights."
COPIED = "A copy of the input: bound by memory."

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
        "`gx` is the deconvolution of `gy` with the weights, `gw` sums `gy[k, o] x[c, o * stride + t * dilation"
        " - pad]` over batch and positions, `gb` sums `gy`.",
        "`2 * batch * maps * out * (channels / group) * kernel` operations, `out` and `kernel` being numbers of"
        " elements; backward twice as many.",
    ),
    "deconvolution": (
        "`gx` is the convolution of `gy` with the weights; `gw` is the weight gradient of a convolution of `gy`.",
        "`2 * batch * channels * in * (maps / group) * kernel` operations; backward twice as many.",
    ),
    "depthwise_convolution": (
        "The gradient of a convolution with one group for each channel.",
        "`2 * batch * maps * out * kernel` operations, bound by memory rather than arithmetic; backward twice as many.",
    ),
    "modulated_convolution": (
        "The gradient of `convolution` for `s * x`; `gs` sums the gradient of `s * x` times `x` over positions.",
        "As `convolution`, and a pass over the weights for each sample.",
    ),
    "max_pooling": (
        "Each element of `gy` goes to the largest element of its window, the first one if several are equal.",
        "`batch * channels * out * kernel` comparisons; backward reads the saved indices.",
    ),
    "average_pooling": (
        "Each element of `gy` is distributed over its window.",
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
        "As a softmax; the probabilities are not saved.",
    ),
    "sum": ("`gx` repeats `gy` along the axes that were summed.", "One addition for each element of `x`."),
    "mean": ("`gx` repeats `gy / n` along the axes, `n` elements each.", "One addition for each element of `x`."),
    "prod": ("`gx` is `gy` times the product of the others.", "One multiplication for each element; backward three."),
    "max": (
        "`gy` goes to the largest element, the first one if several are equal.",
        "One comparison for each element.",
    ),
    "min": (
        "`gy` goes to the smallest element, the first one if several are equal.",
        "One comparison for each element.",
    ),
    "batch_normalization": (
        "With the batch's statistics and `z = (x - mean) / s`: `gx = gamma / s * (gy - mean(gy) - z * mean(gy *"
        " z))`, `ggamma` sums `gy * z`, `gbeta` sums `gy`.",
        "Two passes over `x` forward, two over `x` and `gy` backward: bound by memory.",
    ),
    "dropout": ("`gx = gy * mask / (1 - p)`, with the mask of the forward run.", "One random number for each element."),
    "embed": (
        "`gw` adds each row of `gy` to the row that its index names; none by the indices.",
        "A copy of one row for each index.",
    ),
    "concatenate": ("Each input gets its part of `gy`.", "A copy of each input."),
    "concatenate_parts": ("Each input gets its slice of `gy`, zero elsewhere.", "A copy of each slice."),
    "split": ("The gradients of the parts, concatenated.", "A copy of the input."),
    "reshape": ("`gy` in the shape of `x`.", "None if the memory can be shared."),
    "transpose": ("`gy` with the inverse permutation of axes.", "A copy with another order: bound by memory."),
    "scaled_dot_product_attention": (
        "For query, key and value; the weights are recomputed from saved statistics of each row.",
        "`4 n m d` operations for n queries, m keys and width d; memory for a block of weights, not for all n by m.",
    ),
    "block_quantized_affine": (
        "",
        "`2 n k m` operations for n rows, k inputs and m outputs. With few rows bound by memory, of the levels.",
    ),
    "quantized_lstm": ("", "`8 h (i + h)` operations on 8-bit numbers for each step and example."),
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
    "sort": ("`gy` goes back to the original positions.", "`n log(n)` comparisons for each row of n elements."),
    "gather": (
        "Each element of `gy` is added to the element that it was read from.",
        "A copy of the selected elements.",
    ),
    "prelu": (
        "`gx0 = gy * where(x0 >= 0, 1, x1)`; `gx1` sums `gy * min(x0, 0)` over the elements that share a slope.",
        "",
    ),
    "crelu": ("With the halves `g` and `h` of `gy`: `gx = g * (x > 0) - h * (x <= 0)`.", ""),
    "celu": (
        "With the halves `g` and `h` of `gy`: `gx = g * elu'(x) - h * elu'(-x)`, where `elu'(x)` is 1 above "
        "zero, else `alpha * exp(x)`.",
        "",
    ),
    "add_n": ("`gy` for each input.", ""),
    "mul_n": ("`gy` times the product of the other inputs.", ""),
    "where": (
        "`gx_true = gy` where `condition` is not zero, `gx_false = gy` where it is zero; zero elsewhere, and by "
        "`condition`.",
        "",
    ),
    "clip_by_value": (
        "`gx = gy` where `x` is within the range. Beyond, it goes to `min` or `max` if these are variables.",
        "",
    ),
    "broadcast": ("`gy` summed over the axes along which `x` was repeated.", ""),
    "broadcast_to": ("`gy` summed over the axes along which `y` was repeated; zero by `x`.", ""),
    "stack": ("Each input gets its part of `gy`.", ""),
    "meshgrid": ("The gradient of each grid, summed over the axes along which its input was repeated.", ""),
    "matrix_diag": ("The diagonals of `gy`.", ""),
    "matrix_diag_part": ("Matrices with `gy` on their diagonals, zeros elsewhere.", ""),
    "trilu": ("The same triangle of `gy`, zeros elsewhere.", ""),
    "tile": ("The sum of `gy` over all repetitions.", ""),
    "slice": ("`gy` at the selected positions, zeros elsewhere.", ""),
    "pad": (
        "The part of `gy` inside of the frame; what the frame mirrors or repeats gets that part added, a "
        "constant frame nothing.",
        "",
    ),
    "flip": ("`gy` in reverse order along the same axes.", ""),
    "shift": ("`gy` shifted back; elements repeated at a border get the sum.", ""),
    "unique": ("`gy` goes to the first occurrence of each element.", "A sort: `n log(n)` comparisons for n elements."),
    "gather_nd": (PICKED, "A copy of the selected elements."),
    "scatter_nd": (
        "By `data`: the elements of `gy` at the indices. By `out`: `gy`, but zero where elements were written; all "
        "of it with `add`.",
        "",
    ),
    "scatter_add": (
        "By `x0`: `gy`. By `x1`: the elements of `gy` at the indices.",
        "A copy of `x0`, and one addition for each element of `x1`.",
    ),
    "bool_fill": ("`gy` where the mask is zero, zero elsewhere.", ""),
    "bool_gather": ("`gy` at the positions that the mask selects, zeros elsewhere.", ""),
    "bool_scatter": (
        "By `input`: the elements of `gy` that the mask selects. By `output`: `gy` elsewhere.",
        "",
    ),
    "cumsum": ("The running sum of `gy` in the other direction.", ""),
    "cumprod": (
        "`gx[i]` sums, over all `k` whose product has `x[i]` in it, `gy[k]` times the product of the other elements.",
        "One multiplication for each element.",
    ),
    "reduce_sum": ("`gy` for each element.", ""),
    "reduce_mean": ("`gy / n` for each of the n elements.", ""),
    "reduce": ("That of `sum` or `mean`.", ""),
    "searchsorted": ("", "About `log2(n)` comparisons for each value, in a sequence of n."),
    "top_k_data": (
        "With `reduce`, `gy` goes to the elements that were chosen; without, `gx = gy`.",
        "A choice among n elements for each sample.",
    ),
    "top_k_grad": (
        "The `k` largest elements of each sample of `gy`, zeros elsewhere.",
        "A copy; backward a choice among n elements for each sample.",
    ),
    "batch_cholesky": (
        "With the lower triangle `y`, `p` the lower triangle of `y^T gy` with its diagonal halved: `s = y^-T p "
        "y^-1`, and `gx = (s + s^T) / 2`.",
        "About `1/3 n^3` operations for each matrix of n rows; backward an inverse and three products.",
    ),
    "batch_logdet": (
        "`gx = gy * inverse(x)^T`.",
        "About `2/3 n^3` operations for each matrix of n rows; backward an inverse.",
    ),
    "dot": (
        "That of the product: `gy` times the other factor, transposed.",
        "2 operations for each pair of numbers that are multiplied; backward twice as many.",
    ),
    "einsum": (
        "By each input: the product of `gy` and the other inputs, summed over the labels that it lacks.",
        "Those of the products that it is made of; backward as many for each input.",
    ),
    "multi_head_attention": (
        "That of affine maps and of `scaled_dot_product_attention`.",
        "Those of the affine maps, and `4 n m d` operations for n queries, m keys and width d.",
    ),
    "adaptive_separable_convolution": (
        "With `y[c, h, w]` summing `v[j, h, w] u[i, h, w] x[c, h + j, w + i]`: each of the three factors gets "
        "`gy` times the other two, summed over what it does not depend on.",
        "3 operations for each channel, place and pair of taps; backward about three times as many.",
    ),
    "deformable_convolution": (
        "By `x` and `weight` as a convolution of the values that were looked up; by `offset` through the slopes"
        " between neighbours; by `mask` the values without it.",
        "As `convolution`, and a look-up among four neighbours for each tap; backward twice as many products.",
    ),
    "depthwise_deconvolution": (
        "`gx` is the depthwise convolution of `gy`; `gw` is that of a depthwise convolution with `x` and `gy` "
        "exchanged.",
        "`2 * batch * channels * in * kernel` operations, bound by memory rather than arithmetic; backward "
        "twice as many.",
    ),
    "interpolate": (
        "Each element of `gy` is shared out among the elements that it was made of, with the same weights.",
        "One multiplication and addition for each weight: 2 an axis for `linear`.",
    ),
    "max_pooling_backward": (
        "By `dy`: the elements of `gy` at the largest element of each window. Zero by `x`.",
        "`batch * channels * out * kernel` comparisons.",
    ),
    "nms_detection2d": ("", "`n log(n)` comparisons, and an overlap for each pair of n boxes at most."),
    "onnx_non_max_suppression": (
        "",
        "`n log(n)` comparisons, and an overlap for each pair of n boxes at most, for each class.",
    ),
    "patch_correlation": (
        "`gx1` sums `gy` times the elements of `x2` that were multiplied with it, `gx2` the elements of `x1`.",
        "2 operations for each output, element of a patch and channel; backward twice as many.",
    ),
    "unpooling": ("The sum of `gy` over each window.", COPIED),
    "roi_align": (
        "By `input`: each element of `gy` is shared out among the neighbours that were looked up. Zero by `boxes`.",
        "A look-up among four neighbours for each point and channel; backward the same.",
    ),
    "affine_grid": (
        "`gtheta` sums `gy` times the place of each element, and for the last column `gy` alone.",
        "6 operations for each element of a plane, 12 of a volume.",
    ),
    "warp_by_grid": (
        "By `x`: `gy` is shared out among the neighbours that were looked up. By `grid`: through the slopes "
        "between neighbours; none for `nearest`.",
        "A look-up among the neighbours (4, or 8 in volumes) for each element; backward the same.",
    ),
    "warp_by_flow": (
        "By `data`: `gy` is shared out among the four neighbours. By `flow`: through the slopes between them.",
        "A look-up among four neighbours for each element; backward the same.",
    ),
    "fused_convolution": (
        "That of the layers in a row. Without `batch_stat` the convolution runs again for the gradients of `gamma` and "
        "`variance`.",
        "As `convolution`; the layers after it run before the result is stored.",
    ),
    "onnx_resize": (
        "Each element of `gy` is shared out among the elements that it was made of, with the same weights.",
        "One multiplication and addition for each weight of each axis.",
    ),
    "pack_padded_sequence": ("`gy` goes back to the original positions, zeros elsewhere.", COPIED),
    "pad_packed_sequence": ("The parts of `gy` that are no padding, packed again.", COPIED),
    "tensor_normalization": (NORMALIZED, ""),
    "layer_normalization": (NORMALIZED, ""),
    "instance_normalization": (NORMALIZED, ""),
    "group_normalization": (NORMALIZED, ""),
    "weight_standardization": (
        "With the statistics of each map and `s = sqrt(variance + eps)`: `gw = (gy - mean(gy) - y * mean(gy * "
        "y)) / s`.",
        "",
    ),
    "sync_batch_normalization": (
        "That of `batch_normalization`, with means over the examples of all processes.",
        "As `batch_normalization`, and one sum over all processes forward, one backward.",
    ),
    "fused_batch_normalization": (
        "That of the functions in a row.",
        "As `batch_normalization`; the layers after it run in the same pass.",
    ),
    "clip_grad_by_value": (
        "`gx = min(max(gy, min), max)`; zero by `min` and `max`.",
        "None forward but a copy; backward one pass.",
    ),
    "clip_grad_by_norm": (
        "`gx = clip_norm * gy / norm(gy)`, and zero where the norm is zero.",
        "None forward but a copy; backward two passes.",
    ),
    "mean_subtraction": (
        "`gx = gy - sum(gy) / (t * n)`, the sum being over the n samples of the run; `gx = gy` without "
        "`update_running_mean`. Zero by `mean` and `t`.",
        "",
    ),
    "norm": (
        "`gx = gy * sign(x) * (|x| / y)^(p - 1)`, and zero where `y` is zero.",
        "One addition for each element, and a power if `p` is neither 1 nor 2.",
    ),
    "spectral_norm": (
        "With `s = u^T w v`: `gw = (gy - sum(gy * w) / s * u v^T) / s`.",
        "`4 n m` operations an iteration for a matrix of (n, m); backward three passes.",
    ),
    "weight_normalization": (
        "With `r = 1 / sqrt(sum(w^2) + eps)`: `gg = sum(gy * w * r)`, `gw = g * r * (gy - w * r * gg)`, the "
        "sums being those of each index of `dim`.",
        "",
    ),
    "norm_normalization": (
        "With `t = sum(|x|^p) + eps`: `gx = t^(-1 / p) * (gy - sign(x) * |x|^(p - 1) * sum(gy * x) / t)`.",
        "",
    ),
    "clip_by_norm": (
        "That of `clip_norm * x / max(norm(x), clip_norm)`: `gy` while the norm is below `clip_norm`, else that"
        " of a normalization.",
        "",
    ),
    "categorical_cross_entropy": (
        "`gx = -gy / x` at the labelled class, zero elsewhere; none by `target`.",
        "One logarithm for each sample; backward writes all of `gx`.",
    ),
    "top_n_error": ("", "One comparison for each score."),
    "confusion_matrix": ("", "One comparison for each score."),
    "kl_multinomial": (
        "`gp = gy * (log((p + e) / (q + e)) + p / (p + e))`, `gq = -gy * p / (q + e)`, with `e = 1e-8`.",
        "Two logarithms for each element.",
    ),
    "random_choice": (
        "`gy` goes to the elements that were drawn, and to their weights; elements drawn more than once get the sum.",
        "About `log2(n)` comparisons for each sample from n elements; without `replace` a pass over them.",
    ),
    "random_crop": ("`gy` at the position of the crop, zeros elsewhere.", COPIED),
    "random_flip": ("`gy` reversed like `x`.", COPIED),
    "random_shift": ("`gy` shifted back; elements repeated at a border get the sum.", COPIED),
    "random_erase": (
        "`gy`, but zero under patches; `gy` everywhere without `ste_fine_grained`.",
        "A copy, and random numbers for the patches.",
    ),
    "image_augmentation": ("", "A look-up among four neighbours for each element."),
    "vat_noise": ("Zero by `x` and `w`; a backward run writes `eps * gy` into `w`.", "Two passes over the elements."),
    "binary_connect_affine": (BY_SIGNS, AS_AFFINE),
    "binary_weight_affine": (BY_SIGNS, AS_AFFINE),
    "binary_connect_convolution": (BY_SIGNS, AS_CONVOLUTION),
    "binary_weight_convolution": (BY_SIGNS, AS_CONVOLUTION),
    "inq_affine": (BY_POWERS, AS_AFFINE),
    "inq_convolution": (BY_POWERS, AS_CONVOLUTION),
    "quantize_linear": ("`gx = gy / scale`, everywhere; zero by `scale` and `zero_point`.", ""),
    "dequantize_linear": ("`gx = gy * scale`; zero by `scale` and `zero_point`.", ""),
    "min_max_quantize": (
        "`gx = gy` within the range, zero beyond; `gy` everywhere without `ste_fine_grained`. With neither "
        "`x_min_max` nor `ema`, `qr_min` gets the sum of `gy` below and `qr_max` that above.",
        "",
    ),
    "prune": ("`gx = gy`.", "A choice among n absolute values."),
    "fixed_point_quantize": (
        "`gx = gy` within the range, zero beyond; `gy` everywhere without `ste_fine_grained`.",
        "",
    ),
    "pow2_quantize": (
        "`gx = gy` up to `2^(m + 1/2)` in size and, if not `sign`, from zero on, zero beyond; `gy` everywhere "
        "without `ste_fine_grained`.",
        "",
    ),
    "stft": (
        "The transposed transform: the frequencies of `gy` back to frames, each times the window, added where "
        "they overlap.",
        FRAMES,
    ),
    "istft": (
        "The transposed transform: `gy` is scaled as the signal was and cut into windowed frames, of which "
        "these are the frequencies.",
        FRAMES,
    ),
    "unlink": ("", "None: the memory is shared."),
    "sink": ("1 for each input; with `one_input_grad=False` the inputs keep their gradients.", "None."),
    "assign": ("`gy` goes to `dst`; zero by `src`.", COPIED),
    "PythonFunction": (
        "As its `backward` computes it.",
        "That of its methods, and about a microsecond of Python for each call.",
    ),
    "forget": (
        "The gradient of the wrapped function, which runs once more for it.",
        "The cost of the wrapped function, twice: it runs again before the backward run.",
    ),
    "identity": ("", "A copy, or none if the memory can be shared."),
}
"""Gradient and cost. A part is empty if `facts.py` has it."""
