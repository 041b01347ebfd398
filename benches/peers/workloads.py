"""The workloads: names, sizes, data and initial weights, all in NumPy and independent of frameworks.

A weight is called `layer.part`. Running statistics of batch normalizations are the parts `mean` and `var`, and only
exist for prediction. The layouts are NNabla's: affine `w` is (inputs, outputs), convolution (outputs,
inputs, height, width), depthwise convolution (channels, height, width), deconvolution (inputs, outputs, height,
width). Images are (batch, channels, height, width). `channels_last` converts to the other order of axes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Arrays = dict[str, np.ndarray]
Batch = tuple[np.ndarray, np.ndarray]

N_BATCHES = 4
"""Number of batches. Steps use them in turn, so that no framework can profit from constant input."""


@dataclass(frozen=True)
class Workload:
    """A network, its data and its solver.

    Attributes:
        model: Name of the function that builds the network in each framework.
        solver: "adam", "momentum" (0.9) or "sgd".
        rate: Learning rate.
        is_classifier: True if the loss is softmax cross entropy with labels, false for the mean squared error.
        weights: Initial weights.
        batches: Inputs and targets.
        flattened: (channels, height, width) of images that are flattened before the layer of that name.
        sizes: Sizes that the model needs besides the shapes of its weights.
        is_small_work: True if calls cost more than arithmetic. Dynamic mode is then a target of its own.
        dtype: "float32", or "bfloat16" for mixed precision: parameters and sums stay in float32.
        file: ONNX file of the network, for frameworks that only predict.
    """

    model: str
    solver: str
    rate: float
    is_classifier: bool
    weights: Arrays
    batches: list[Batch]
    flattened: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    is_small_work: bool = False
    dtype: str = "float32"
    file: Path | None = None

    def for_prediction(self) -> Workload:
        """Returns the workload with running statistics for its batch normalizations."""
        rng = np.random.default_rng(17)
        weights = dict(self.weights)
        for name, gamma in self.weights.items():
            if name.endswith("_norm.gamma"):
                layer = name.partition(".")[0]
                weights[f"{layer}.mean"] = rng.normal(0, 0.1, gamma.shape).astype(np.float32)
                weights[f"{layer}.var"] = rng.uniform(0.5, 1.5, gamma.shape).astype(np.float32)
        return replace(self, weights=weights)

    def channels_last(self) -> Workload:
        """Returns the workload with the channel axis last.

        Images are then (batch, height, width, channels), and filters (height, width, inputs, outputs).
        """

        def turned(name: str, w: np.ndarray) -> np.ndarray:
            """Converts a weight."""
            layer = name.partition(".")[0]
            if layer in self.flattened:
                c, height, width = self.flattened[layer]
                return w if w.ndim == 1 else w.reshape(c, height, width, -1).transpose(1, 2, 0, 3).reshape(w.shape)
            return {4: lambda: w.transpose(2, 3, 1, 0), 3: lambda: w.transpose(1, 2, 0)}.get(w.ndim, lambda: w)().copy()

        def image(x: np.ndarray) -> np.ndarray:
            """Converts a batch of images."""
            return np.ascontiguousarray(x.transpose(0, 2, 3, 1)) if x.ndim == 4 else x

        weights = {name: turned(name, w) for name, w in self.weights.items()}
        return replace(self, weights=weights, batches=[(image(x), image(t)) for x, t in self.batches])


class _Weights:
    """Random initial weights, scaled to keep the variance of a signal through rectified layers."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(7)
        self.arrays: Arrays = {}

    def normal(self, name: str, shape: tuple[int, ...], inputs: int, gain: float = 2.0) -> None:
        """Adds a normal weight."""
        deviation = (gain / inputs) ** 0.5
        self.arrays[f"{name}.w"] = self.rng.normal(0, deviation, shape).astype(np.float32)

    def zeros(self, name: str, part: str, size: int) -> None:
        """Adds a part of zeros."""
        self.arrays[f"{name}.{part}"] = np.zeros(size, np.float32)

    def affine(self, name: str, inputs: int, outputs: int, gain: float = 2.0) -> None:
        """Adds the weights of an affine layer."""
        self.normal(name, (inputs, outputs), inputs, gain)
        self.zeros(name, "b", outputs)

    def convolution(self, name: str, inputs: int, outputs: int, kernel: int, with_bias: bool = True) -> None:
        """Adds the weights of a convolution."""
        self.normal(name, (outputs, inputs, kernel, kernel), inputs * kernel**2)
        if with_bias:
            self.zeros(name, "b", outputs)

    def normalization(self, name: str, size: int) -> None:
        """Adds a shift and a scale."""
        self.zeros(name, "beta", size)
        self.arrays[f"{name}.gamma"] = np.ones(size, np.float32)

    def convolution_and_norm(self, name: str, inputs: int, outputs: int, kernel: int) -> None:
        """Adds the weights of a convolution without bias and its normalization."""
        self.convolution(f"{name}_conv", inputs, outputs, kernel, with_bias=False)
        self.normalization(f"{name}_norm", outputs)


def _data(x: tuple[int, ...], target: tuple[int, ...] | int) -> list[Batch]:
    """Returns batches of random inputs of shape `x`. Targets have a shape, or are labels below a number."""
    rng = np.random.default_rng(11)

    def one() -> Batch:
        """Returns one batch."""
        inputs = rng.normal(size=x).astype(np.float32)
        if isinstance(target, int):
            return inputs, rng.integers(0, target, (x[0], 1)).astype(np.int32)
        return inputs, rng.normal(size=target).astype(np.float32)

    return [one() for _ in range(N_BATCHES)]


def mlp(batch: int, is_small: bool) -> Workload:
    """784-512-256-10 with ReLU, Adam."""
    weights = _Weights()
    sizes = (784, 32, 16, 10) if is_small else (784, 512, 256, 10)
    for i, (inputs, outputs) in enumerate(pairwise(sizes)):
        weights.affine(f"affine{i}", inputs, outputs)
    data = _data((4 if is_small else batch, 784), 10)
    return Workload("mlp", "adam", 1e-3, True, weights.arrays, data, sizes={"first": sizes[1], "second": sizes[2]})


def tiny(is_small: bool) -> Workload:
    """Four affine layers of 32 with tanh, batch 8, plain SGD."""
    weights = _Weights()
    for i in range(4):
        weights.affine(f"affine{i}", 32, 32, gain=1.0)
    return Workload("tiny", "sgd", 0.1, False, weights.arrays, _data((8, 32), (8, 32)), is_small_work=True)


def chain(is_small: bool) -> Workload:
    """A thousand elementwise functions of 16 elements, one after the other."""
    weights = {"chain.w": np.linspace(-1, 1, 16, dtype=np.float32)}
    sizes = {"links": 20 if is_small else 1000}
    return Workload("chain", "sgd", 0.01, False, weights, _data((16,), (16,)), sizes=sizes, is_small_work=True)


def lenet(is_small: bool) -> Workload:
    """The network of `examples/lenet.py` on 28x28, batch 64, Adam."""
    weights = _Weights()
    weights.convolution("conv0", 1, 32, 3)
    weights.convolution("conv1", 32, 64, 3)
    weights.affine("affine0", 64 * 7 * 7, 128)
    weights.affine("affine1", 128, 10, gain=0.1)
    data = _data((2 if is_small else 64, 1, 28, 28), 10)
    return Workload("lenet", "adam", 1e-3, True, weights.arrays, data, {"affine0": (64, 7, 7)})


def vgg(is_small: bool) -> Workload:
    """Pairs of 3x3 convolutions with 64, 128 and 256 channels on 32x32 images, batch 16, momentum."""
    weights = _Weights()
    inputs = 3
    for i, outputs in enumerate((64, 64, 128, 128, 256, 256)):
        weights.convolution(f"conv{i}", inputs, outputs, 3)
        inputs = outputs
    weights.affine("affine0", 256 * 4 * 4, 10, gain=0.1)
    data = _data((1 if is_small else 16, 3, 32, 32), 10)
    return Workload("vgg", "momentum", 1e-3, True, weights.arrays, data, {"affine0": (256, 4, 4)})


RESIDUAL = tuple((16 << stage, 2 if stage and not block else 1) for stage in range(3) for block in range(3))
"""Channels and stride of each residual block of ResNet-20."""


def resnet(is_small: bool) -> Workload:
    """ResNet-20 on 32x32, batch 32, momentum."""
    weights = _Weights()
    weights.convolution_and_norm("stem", 3, 16, 3)
    inputs = 16
    for i, (outputs, stride) in enumerate(RESIDUAL):
        weights.convolution_and_norm(f"block{i}_a", inputs, outputs, 3)
        weights.convolution_and_norm(f"block{i}_b", outputs, outputs, 3)
        if stride > 1:
            weights.convolution_and_norm(f"block{i}_skip", inputs, outputs, 1)
        inputs = outputs
    weights.affine("affine", 64, 10)
    return Workload("resnet", "momentum", 0.05, True, weights.arrays, _data((2 if is_small else 32, 3, 32, 32), 10))


SEPARABLE = ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1))
"""Channels and stride of each block of the depthwise-separable network."""


def separable(is_small: bool) -> Workload:
    """Five depthwise-separable blocks with batch normalization on 32x32, batch 32, momentum."""
    weights = _Weights()
    weights.convolution_and_norm("stem", 3, 32, 3)
    inputs = 32
    for i, (outputs, _) in enumerate(SEPARABLE):
        weights.normal(f"depth{i}_conv", (inputs, 3, 3), 9)
        weights.normalization(f"depth{i}_norm", inputs)
        weights.convolution_and_norm(f"point{i}", inputs, outputs, 1)
        inputs = outputs
    weights.affine("affine", 256, 10)
    return Workload("separable", "momentum", 0.05, True, weights.arrays, _data((2 if is_small else 32, 3, 32, 32), 10))


def transformer(is_small: bool) -> Workload:
    """Encoder block: 8 x 128 tokens of width 256, 4 heads, layer normalization first, GELU, Adam."""
    width, heads, batch, tokens = (16, 2, 2, 8) if is_small else (256, 4, 8, 128)
    weights = _Weights()
    weights.normalization("norm0", width)
    weights.affine("qkv", width, 3 * width, gain=1.0)
    weights.affine("merge", width, width, gain=1.0)
    weights.normalization("norm1", width)
    weights.affine("up", width, 4 * width)
    weights.affine("down", 4 * width, width)
    shape = (batch, tokens, width)
    return Workload(
        "transformer", "adam", 1e-3, False, weights.arrays, _data(shape, shape), sizes={"width": width, "heads": heads}
    )


def lstm(is_small: bool) -> Workload:
    """LSTM of 128 units without biases over 20 steps of 64 inputs, batch 32, then a classifier, Adam."""
    batch, inputs, units = (2, 4, 8) if is_small else (32, 64, 128)
    weights = _Weights()
    weights.normal("cell", (inputs + units, 4 * units), inputs + units, gain=1.0)
    weights.affine("affine", units, 10)
    sizes = {"inputs": inputs, "units": units, "steps": 20}
    return Workload("lstm", "adam", 1e-3, True, weights.arrays, _data((batch, 20, inputs), 10), sizes=sizes)


def text(is_small: bool) -> Workload:
    """Mean of the vectors of 64 words out of 10,000, and an MLP with four classes, batch 64, Adam."""
    n_words, batch, length = (50, 4, 6) if is_small else (10_000, 64, 64)
    weights = _Weights()
    weights.normal("embed", (n_words, 64), 64, gain=64.0)
    weights.affine("affine0", 64, 128)
    weights.affine("affine1", 128, 4)
    rng = np.random.default_rng(13)
    batches = [(rng.integers(0, n_words, (batch, length)).astype(np.int32), t) for _, t in _data((batch, 1), 4)]
    return Workload("text", "adam", 1e-3, True, weights.arrays, batches, sizes={"words": n_words})


def autoencoder(is_small: bool) -> Workload:
    """Two strided 4x4 convolutions down and two deconvolutions up on 28x28, batch 64, Adam."""
    weights = _Weights()
    weights.convolution("conv0", 1, 16, 4)
    weights.convolution("conv1", 16, 32, 4)
    for i, (inputs, outputs) in enumerate(((32, 16), (16, 1))):
        weights.normal(f"deconv{i}", (inputs, outputs, 4, 4), inputs * 4)
        weights.zeros(f"deconv{i}", "b", outputs)
    images = [x for x, _ in _data((2 if is_small else 64, 1, 28, 28), 2)]
    return Workload("autoencoder", "adam", 1e-3, False, weights.arrays, [(x, x) for x in images])


WORKLOADS: dict[str, Callable[[bool], Workload]] = {
    "mlp 64": lambda is_small: mlp(64, is_small),
    "mlp 1024": lambda is_small: mlp(1024, is_small),
    "lenet": lenet,
    "resnet-20": resnet,
    "transformer": transformer,
    "chain": chain,
    "tiny mlp": tiny,
    "lstm": lstm,
    "separable": separable,
    "text": text,
    "autoencoder": autoencoder,
    "vgg": vgg,
}
"""Makers of the workloads. The argument selects the small form, which only tests that all works."""
