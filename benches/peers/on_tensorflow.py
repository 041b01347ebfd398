"""The models of `workloads` in TensorFlow: `tf.function` over variables, solvers from Keras, channels last."""

from __future__ import annotations

from typing import TYPE_CHECKING

import tensorflow as tf

from .workloads import RESIDUAL, SEPARABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from .workloads import Batch, Workload

Weights = dict[str, tf.Variable]
Sizes = dict[str, int]
Tensors = tuple[tf.Tensor, tf.Tensor]


def set_threads(n: int) -> None:
    """Sets the number of threads."""
    tf.config.threading.set_intra_op_parallelism_threads(n)
    tf.config.threading.set_inter_op_parallelism_threads(n)


def affine(w: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
    """Affine layer with the weights called `name`."""
    return tf.matmul(x, w[f"{name}.w"]) + w[f"{name}.b"]


def padded(x: tf.Tensor, pad: int) -> tf.Tensor:
    """Pads height and width with zeros."""
    return tf.pad(x, [[0, 0], [pad, pad], [pad, pad], [0, 0]])


def convolution(w: Weights, name: str, x: tf.Tensor, pad: int, stride: int = 1) -> tf.Tensor:
    """Convolution with explicit padding, since TensorFlow's "SAME" differs if the stride is 2 and the kernel odd."""
    filters = w[f"{name}.w"]
    if stride == 1 or filters.shape[0] % 2 == 0:
        h = tf.nn.conv2d(x, filters, stride, "SAME")
    else:
        h = tf.nn.conv2d(padded(x, pad) if pad else x, filters, stride, "VALID")
    bias = w.get(f"{name}.b")
    return h if bias is None else tf.nn.bias_add(h, bias)


def deconvolution(w: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
    """Deconvolution with stride 2 and the weights called `name`."""
    filters = w[f"{name}.w"]
    n, height, width, _ = x.shape
    h = tf.nn.conv2d_transpose(x, filters, (n, 2 * height, 2 * width, filters.shape[2]), 2, "SAME")
    return tf.nn.bias_add(h, w[f"{name}.b"])


def batch_norm(w: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
    """Fused batch normalization, without the cost of running statistics, in TensorFlow's favour."""
    statistics = {}
    if f"{name}.mean" in w:
        statistics = {"mean": w[f"{name}.mean"], "variance": w[f"{name}.var"], "is_training": False}
    return tf.compat.v1.nn.fused_batch_norm(x, w[f"{name}.gamma"], w[f"{name}.beta"], epsilon=1e-5, **statistics)[0]


def layer_norm(w: Weights, name: str, x: tf.Tensor) -> tf.Tensor:
    """Layer normalization over the last axis."""
    mean, variance = tf.nn.moments(x, [2], keepdims=True)
    return tf.nn.batch_normalization(x, mean, variance, w[f"{name}.beta"], w[f"{name}.gamma"], 1e-5)


def convolution_and_norm(w: Weights, name: str, x: tf.Tensor, pad: int, stride: int = 1) -> tf.Tensor:
    """Convolution and batch normalization."""
    return batch_norm(w, f"{name}_norm", convolution(w, f"{name}_conv", x, pad, stride))


def depthwise_and_norm(w: Weights, name: str, x: tf.Tensor, stride: int) -> tf.Tensor:
    """Depthwise convolution and batch normalization."""
    filters = w[f"{name}_conv.w"][..., None]
    if stride == 1:
        h = tf.nn.depthwise_conv2d(x, filters, [1, 1, 1, 1], "SAME")
    else:
        h = tf.nn.depthwise_conv2d(padded(x, 1), filters, [1, stride, stride, 1], "VALID")
    return batch_norm(w, f"{name}_norm", h)


def mlp(w: Weights, x: tf.Tensor, sizes: Sizes) -> tf.Tensor:
    h = tf.nn.relu(affine(w, "affine0", x))
    h = tf.nn.relu(affine(w, "affine1", h))
    return affine(w, "affine2", h)


def tiny(w: Weights, x: tf.Tensor, sizes: Sizes) -> tf.Tensor:
    for i in range(3):
        x = tf.tanh(affine(w, f"affine{i}", x))
    return affine(w, "affine3", x)


def chain(w: Weights, h: tf.Tensor, sizes: Sizes) -> tf.Tensor:
    for _ in range(sizes["links"] // 4):
        h = h * 1.1
        h = h + w["chain.w"]
        h = tf.tanh(h)
        h = h + 0.01
    return h


def lenet(w: Weights, x: tf.Tensor, sizes: Sizes) -> tf.Tensor:
    h = tf.nn.max_pool2d(tf.nn.relu(convolution(w, "conv0", x, 1)), 2, 2, "VALID")
    h = tf.nn.max_pool2d(tf.nn.relu(convolution(w, "conv1", h, 1)), 2, 2, "VALID")
    h = tf.nn.relu(affine(w, "affine0", tf.reshape(h, (len(h), -1))))
    return affine(w, "affine1", h)


def vgg(w: Weights, h: tf.Tensor, sizes: Sizes) -> tf.Tensor:
    for i in range(6):
        h = tf.nn.relu(convolution(w, f"conv{i}", h, 1))
        if i % 2:
            h = tf.nn.max_pool2d(h, 2, 2, "VALID")
    return affine(w, "affine0", tf.reshape(h, (len(h), -1)))


def resnet(w: Weights, x: tf.Tensor, sizes: Sizes) -> tf.Tensor:
    h = tf.nn.relu(convolution_and_norm(w, "stem", x, 1))
    for i, (_, stride) in enumerate(RESIDUAL):
        a = tf.nn.relu(convolution_and_norm(w, f"block{i}_a", h, 1, stride))
        b = convolution_and_norm(w, f"block{i}_b", a, 1)
        h = tf.nn.relu(b + (h if stride == 1 else convolution_and_norm(w, f"block{i}_skip", h, 0, stride)))
    return affine(w, "affine", tf.reduce_mean(h, (1, 2)))


def separable(w: Weights, x: tf.Tensor, sizes: Sizes) -> tf.Tensor:
    h = tf.nn.relu(convolution_and_norm(w, "stem", x, 1))
    for i, (_, stride) in enumerate(SEPARABLE):
        h = tf.nn.relu(depthwise_and_norm(w, f"depth{i}", h, stride))
        h = tf.nn.relu(convolution_and_norm(w, f"point{i}", h, 0))
    return affine(w, "affine", tf.reduce_mean(h, (1, 2)))


def transformer(w: Weights, x: tf.Tensor, sizes: Sizes) -> tf.Tensor:
    batch, tokens, width = x.shape
    heads = sizes["heads"]
    flat = (batch * tokens, width)
    h = affine(w, "qkv", tf.reshape(layer_norm(w, "norm0", x), flat))
    h = tf.transpose(tf.reshape(h, (batch, tokens, 3, heads, width // heads)), (2, 0, 3, 1, 4))
    q, k, v = tf.unstack(h)
    scores = tf.matmul(q, k, transpose_b=True) * (width // heads) ** -0.5
    h = tf.transpose(tf.matmul(tf.nn.softmax(scores), v), (0, 2, 1, 3))
    x = x + tf.reshape(affine(w, "merge", tf.reshape(h, flat)), x.shape)
    h = tf.nn.gelu(affine(w, "up", tf.reshape(layer_norm(w, "norm1", x), flat)), approximate=True)
    return x + tf.reshape(affine(w, "down", h), x.shape)


def lstm(w: Weights, x: tf.Tensor, sizes: Sizes) -> tf.Tensor:
    h = c = tf.zeros((len(x), sizes["units"]))
    for part in tf.unstack(x, axis=1):
        i, f, g, o = tf.split(tf.matmul(tf.concat([part, h], 1), w["cell.w"]), 4, axis=1)
        c = tf.sigmoid(f) * c + tf.sigmoid(i) * tf.tanh(g)
        h = tf.sigmoid(o) * tf.tanh(c)
    return affine(w, "affine", h)


def text(w: Weights, x: tf.Tensor, sizes: Sizes) -> tf.Tensor:
    h = tf.reduce_mean(tf.nn.embedding_lookup(w["embed.w"], x), 1)
    return affine(w, "affine1", tf.nn.relu(affine(w, "affine0", h)))


def autoencoder(w: Weights, h: tf.Tensor, sizes: Sizes) -> tf.Tensor:
    for i in range(2):
        h = tf.nn.relu(convolution(w, f"conv{i}", h, 1, 2))
    h = tf.nn.relu(deconvolution(w, "deconv0", h))
    return tf.sigmoid(deconvolution(w, "deconv1", h))


MODELS: dict[str, Callable[[Weights, tf.Tensor, Sizes], tf.Tensor]] = {
    f.__name__: f for f in (mlp, tiny, chain, lenet, vgg, resnet, separable, transformer, lstm, text, autoencoder)
}


def solver_of(workload: Workload) -> tf.keras.optimizers.Optimizer:
    """Returns the solver of the workload."""
    if workload.solver == "adam":
        return tf.keras.optimizers.Adam(workload.rate, epsilon=1e-8)
    return tf.keras.optimizers.SGD(workload.rate, momentum=0.9 * (workload.solver == "momentum"))


def tensors(batch: Batch) -> Tensors:
    """Returns tensors, with labels in the form that TensorFlow expects."""
    x, t = (tf.constant(array) for array in batch)
    return x, t[:, 0] if t.dtype == tf.int32 else t


def prediction(workload: Workload, form: str) -> tuple[Callable[[Tensors], tf.Tensor], list[Tensors]]:
    """Returns a function that computes the output of one batch, and its batches."""
    workload = workload.channels_last()
    weights = {name: tf.Variable(w) for name, w in workload.weights.items()}

    def predict(x: tf.Tensor) -> tf.Tensor:
        return MODELS[workload.model](weights, x, workload.sizes)

    run = predict if form == "eager" else tf.function(predict)
    return lambda batch: run(batch[0]), [tensors(batch) for batch in workload.batches]


def training(workload: Workload, form: str) -> tuple[Callable[[Tensors], tf.Tensor], list[Tensors]]:
    """Returns a function that runs one step and returns the loss before it, and its batches."""
    workload = workload.channels_last()
    model = MODELS[workload.model]
    weights = {name: tf.Variable(w) for name, w in workload.weights.items()}
    variables = list(weights.values())
    solver = solver_of(workload)
    solver.build(variables)

    def step(x: tf.Tensor, t: tf.Tensor) -> tf.Tensor:
        with tf.GradientTape() as tape:
            y = model(weights, x, workload.sizes)
            if workload.is_classifier:
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(t, y))
            else:
                loss = tf.reduce_mean(tf.math.squared_difference(y, t))
        solver.apply(tape.gradient(loss, variables), variables)
        return loss

    run = step if form == "eager" else tf.function(step)
    return lambda batch: run(*batch), [tensors(batch) for batch in workload.batches]
