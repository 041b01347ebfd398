"""The models of `workloads` in JAX: a jitted step, solvers from Optax, images with channels last."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import optax

from .workloads import RESIDUAL, SEPARABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from .workloads import Batch, Workload

Weights = dict[str, jax.Array]
Sizes = dict[str, int]
Arrays = tuple[jax.Array, jax.Array]


def set_threads(n: int) -> None:
    """Does nothing: XLA uses all processors of the process, and `worker` has limited those."""


def affine(w: Weights, name: str, x: jax.Array) -> jax.Array:
    """Affine layer with the weights called `name`."""
    return x @ w[f"{name}.w"] + w[f"{name}.b"]


def convolution(w: Weights, name: str, x: jax.Array, pad: int, stride: int = 1, groups: int = 1) -> jax.Array:
    """Convolution with the weights called `name`."""
    filters = w[f"{name}.w"]
    if groups > 1:
        filters = filters[:, :, None, :]
    h = jax.lax.conv_general_dilated(
        x,
        filters,
        (stride, stride),
        [(pad, pad)] * 2,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=groups,
    )
    bias = w.get(f"{name}.b")
    return h if bias is None else h + bias


def deconvolution(w: Weights, name: str, x: jax.Array) -> jax.Array:
    """Deconvolution with stride 2 and the weights called `name`."""
    h = jax.lax.conv_transpose(
        x, w[f"{name}.w"], (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), transpose_kernel=True
    )
    return h + w[f"{name}.b"]


def normalization(w: Weights, name: str, x: jax.Array, axes: tuple[int, ...]) -> jax.Array:
    """Batch or layer normalization, without the cost of running statistics, in JAX's favour."""
    if f"{name}.mean" in w:
        mean, variance = w[f"{name}.mean"], w[f"{name}.var"]
    else:
        mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * w[f"{name}.gamma"] + w[f"{name}.beta"]


def convolution_and_norm(w: Weights, name: str, x: jax.Array, pad: int, stride: int = 1, groups: int = 1) -> jax.Array:
    """Convolution and batch normalization."""
    h = convolution(w, f"{name}_conv", x, pad, stride, groups)
    return normalization(w, f"{name}_norm", h, (0, 1, 2))


def max_pool(x: jax.Array) -> jax.Array:
    """Max pooling over 2x2 windows."""
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def mlp(w: Weights, x: jax.Array, sizes: Sizes) -> jax.Array:
    h = jax.nn.relu(affine(w, "affine0", x))
    h = jax.nn.relu(affine(w, "affine1", h))
    return affine(w, "affine2", h)


def tiny(w: Weights, x: jax.Array, sizes: Sizes) -> jax.Array:
    for i in range(3):
        x = jnp.tanh(affine(w, f"affine{i}", x))
    return affine(w, "affine3", x)


def chain(w: Weights, h: jax.Array, sizes: Sizes) -> jax.Array:
    for _ in range(sizes["links"] // 4):
        h = h * 1.1
        h = h + w["chain.w"]
        h = jnp.tanh(h)
        h = h + 0.01
    return h


def lenet(w: Weights, x: jax.Array, sizes: Sizes) -> jax.Array:
    h = max_pool(jax.nn.relu(convolution(w, "conv0", x, 1)))
    h = max_pool(jax.nn.relu(convolution(w, "conv1", h, 1)))
    h = jax.nn.relu(affine(w, "affine0", h.reshape(len(h), -1)))
    return affine(w, "affine1", h)


def vgg(w: Weights, h: jax.Array, sizes: Sizes) -> jax.Array:
    for i in range(6):
        h = jax.nn.relu(convolution(w, f"conv{i}", h, 1))
        if i % 2:
            h = max_pool(h)
    return affine(w, "affine0", h.reshape(len(h), -1))


def resnet(w: Weights, x: jax.Array, sizes: Sizes) -> jax.Array:
    h = jax.nn.relu(convolution_and_norm(w, "stem", x, 1))
    for i, (_, stride) in enumerate(RESIDUAL):
        a = jax.nn.relu(convolution_and_norm(w, f"block{i}_a", h, 1, stride))
        b = convolution_and_norm(w, f"block{i}_b", a, 1)
        h = jax.nn.relu(b + (h if stride == 1 else convolution_and_norm(w, f"block{i}_skip", h, 0, stride)))
    return affine(w, "affine", h.mean((1, 2)))


def separable(w: Weights, x: jax.Array, sizes: Sizes) -> jax.Array:
    h = jax.nn.relu(convolution_and_norm(w, "stem", x, 1))
    for i, (_, stride) in enumerate(SEPARABLE):
        h = jax.nn.relu(convolution_and_norm(w, f"depth{i}", h, 1, stride, groups=h.shape[-1]))
        h = jax.nn.relu(convolution_and_norm(w, f"point{i}", h, 0))
    return affine(w, "affine", h.mean((1, 2)))


def transformer(w: Weights, x: jax.Array, sizes: Sizes) -> jax.Array:
    batch, tokens, _ = x.shape
    h = affine(w, "qkv", normalization(w, "norm0", x, (2,)))
    q, k, v = jnp.moveaxis(h.reshape(batch, tokens, 3, sizes["heads"], -1), 2, 0)
    h = jax.nn.dot_product_attention(q, k, v)
    x = x + affine(w, "merge", h.reshape(x.shape))
    h = jax.nn.gelu(affine(w, "up", normalization(w, "norm1", x, (2,))))
    return x + affine(w, "down", h)


def lstm(w: Weights, x: jax.Array, sizes: Sizes) -> jax.Array:
    def cell(state: tuple[jax.Array, jax.Array], part: jax.Array) -> tuple[tuple[jax.Array, jax.Array], None]:
        h, c = state
        i, f, g, o = jnp.split(jnp.concatenate([part, h], 1) @ w["cell.w"], 4, axis=1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        return (jax.nn.sigmoid(o) * jnp.tanh(c), c), None

    zeros = jnp.zeros((len(x), sizes["units"]))
    (h, _), _ = jax.lax.scan(cell, (zeros, zeros), x.swapaxes(0, 1))
    return affine(w, "affine", h)


def text(w: Weights, x: jax.Array, sizes: Sizes) -> jax.Array:
    h = w["embed.w"][x].mean(1)
    return affine(w, "affine1", jax.nn.relu(affine(w, "affine0", h)))


def autoencoder(w: Weights, h: jax.Array, sizes: Sizes) -> jax.Array:
    for i in range(2):
        h = jax.nn.relu(convolution(w, f"conv{i}", h, 1, 2))
    h = jax.nn.relu(deconvolution(w, "deconv0", h))
    return jax.nn.sigmoid(deconvolution(w, "deconv1", h))


MODELS: dict[str, Callable[[Weights, jax.Array, Sizes], jax.Array]] = {
    f.__name__: f for f in (mlp, tiny, chain, lenet, vgg, resnet, separable, transformer, lstm, text, autoencoder)
}


def solver_of(workload: Workload) -> optax.GradientTransformation:
    """Returns the solver of the workload."""
    if workload.solver == "adam":
        return optax.adam(workload.rate)
    return optax.sgd(workload.rate, momentum=0.9 if workload.solver == "momentum" else None)


def arrays(batch: Batch) -> Arrays:
    """Returns arrays on the device, with labels in the form that Optax expects."""
    x, t = (jnp.asarray(array) for array in batch)
    return x, t[:, 0] if t.dtype == jnp.int32 else t


def prediction(workload: Workload, form: str) -> tuple[Callable[[Arrays], jax.Array], list[Arrays]]:
    """Returns a function that computes the output of one batch, and its batches."""
    workload = workload.channels_last()
    run = jax.jit(partial(MODELS[workload.model], sizes=workload.sizes))
    weights = {name: jnp.asarray(w) for name, w in workload.weights.items()}
    return lambda batch: run(weights, batch[0]), [arrays(batch) for batch in workload.batches]


def training(workload: Workload, form: str) -> tuple[Callable[[Arrays], jax.Array], list[Arrays]]:
    """Returns a function that runs one step and returns the loss before it, and its batches."""
    workload = workload.channels_last()
    model = partial(MODELS[workload.model], sizes=workload.sizes)
    solver = solver_of(workload)
    weights = {name: jnp.asarray(w) for name, w in workload.weights.items()}
    state = solver.init(weights)

    def loss_of(weights: Weights, x: jax.Array, t: jax.Array) -> jax.Array:
        y = model(weights, x)
        if workload.is_classifier:
            return optax.softmax_cross_entropy_with_integer_labels(y, t).mean()
        return jnp.mean((y - t) ** 2)

    @partial(jax.jit, donate_argnums=(0, 1))
    def update(weights: Weights, state: Any, x: jax.Array, t: jax.Array) -> tuple[Weights, Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(weights, x, t)
        updates, state = solver.update(gradients, state)
        return optax.apply_updates(weights, updates), state, loss

    def step(batch: Arrays) -> jax.Array:
        nonlocal weights, state
        weights, state, loss = update(weights, state, *batch)
        return loss

    return step, [arrays(batch) for batch in workload.batches]
