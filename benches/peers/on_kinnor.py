"""The models of `workloads` in Kinnor: static and dynamic, each also with all intermediate variables held by names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.parameter import get_parameter_or_create

from .workloads import RESIDUAL, SEPARABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .workloads import Batch, Workload

SOLVERS = {"adam": S.Adam, "momentum": S.Momentum, "sgd": S.Sgd}


def set_threads(n: int) -> None:
    """Sets the number of threads."""
    nn.set_num_threads(n)


class Model:
    """A network. `keep` is called on each intermediate variable, and holds it if names are to be held.

    If `has_statistics` is true, batch normalizations use their running statistics.
    """

    def __init__(self, workload: Workload, holds_names: bool, has_statistics: bool = False) -> None:
        self.sizes = workload.sizes
        self.has_statistics = has_statistics
        self.build: Callable[[nn.Variable], nn.Variable] = getattr(self, workload.model)
        self.loss = self.cross_entropy if workload.is_classifier else self.squared_error
        self.holds_names = holds_names
        self.names: list[nn.Variable] = []

    def __call__(self, x: nn.Variable, t: nn.Variable) -> nn.Variable:
        y = self.output(x)
        return F.mean(self.keep(self.loss(y, self.keep(t))))

    def output(self, x: nn.Variable) -> nn.Variable:
        """Returns the output of the network."""
        self.names = []
        return self.keep(self.build(self.keep(x)))

    def keep(self, v: nn.Variable) -> nn.Variable:
        """Holds `v` until the network is built again, as a cell of a notebook does."""
        if self.holds_names:
            self.names.append(v)
        return v

    def cross_entropy(self, y: nn.Variable, t: nn.Variable) -> nn.Variable:
        return F.softmax_cross_entropy(y, t)

    def squared_error(self, y: nn.Variable, t: nn.Variable) -> nn.Variable:
        return F.squared_error(y, t)

    def mlp(self, x: nn.Variable) -> nn.Variable:
        keep = self.keep
        h = keep(PF.affine(x, self.sizes["first"], name="affine0"))
        h = keep(F.relu(h))
        h = keep(PF.affine(h, self.sizes["second"], name="affine1"))
        h = keep(F.relu(h))
        return PF.affine(h, 10, name="affine2")

    def tiny(self, x: nn.Variable) -> nn.Variable:
        keep = self.keep
        h = x
        for i in range(3):
            h = keep(PF.affine(h, 32, name=f"affine{i}"))
            h = keep(F.tanh(h))
        return PF.affine(h, 32, name="affine3")

    def chain(self, x: nn.Variable) -> nn.Variable:
        keep = self.keep
        with nn.parameter_scope("chain"):
            w = get_parameter_or_create("w", (16,))
        h = x
        for _ in range(self.sizes["links"] // 4):
            h = keep(h * 1.1)
            h = keep(h + w)
            h = keep(F.tanh(h))
            h = keep(h + 0.01)
        return h

    def lenet(self, x: nn.Variable) -> nn.Variable:
        keep = self.keep
        h = keep(PF.convolution(x, 32, (3, 3), pad=(1, 1), name="conv0"))
        h = keep(F.relu(h))
        h = keep(F.max_pooling(h, (2, 2)))
        h = keep(PF.convolution(h, 64, (3, 3), pad=(1, 1), name="conv1"))
        h = keep(F.relu(h))
        h = keep(F.max_pooling(h, (2, 2)))
        h = keep(PF.affine(h, 128, name="affine0"))
        h = keep(F.relu(h))
        return PF.affine(h, 10, name="affine1")

    def vgg(self, x: nn.Variable) -> nn.Variable:
        keep = self.keep
        h = x
        for i, outputs in enumerate((64, 64, 128, 128, 256, 256)):
            h = keep(PF.convolution(h, outputs, (3, 3), pad=(1, 1), name=f"conv{i}"))
            h = keep(F.relu(h))
            if i % 2:
                h = keep(F.max_pooling(h, (2, 2)))
        return PF.affine(h, 10, name="affine0")

    def convolution_and_norm(self, x: nn.Variable, outputs: int, kernel: int, stride: int, name: str) -> nn.Variable:
        """Convolution without bias and batch normalization."""
        h = PF.convolution(
            x,
            outputs,
            (kernel, kernel),
            pad=(kernel // 2, kernel // 2),
            stride=(stride, stride),
            with_bias=False,
            name=f"{name}_conv",
        )
        return self.normalization(self.keep(h), f"{name}_norm")

    def normalization(self, h: nn.Variable, name: str) -> nn.Variable:
        """Batch normalization."""
        return self.keep(PF.batch_normalization(h, batch_stat=not self.has_statistics, name=name))

    def resnet(self, x: nn.Variable) -> nn.Variable:
        keep = self.keep
        h = keep(F.relu(self.convolution_and_norm(x, 16, 3, 1, "stem")))
        for i, (outputs, stride) in enumerate(RESIDUAL):
            a = keep(F.relu(self.convolution_and_norm(h, outputs, 3, stride, f"block{i}_a")))
            b = self.convolution_and_norm(a, outputs, 3, 1, f"block{i}_b")
            skip = h if stride == 1 else self.convolution_and_norm(h, outputs, 1, stride, f"block{i}_skip")
            h = keep(b + skip)
            h = keep(F.relu(h))
        h = keep(F.global_average_pooling(h))
        return PF.affine(h, 10, name="affine")

    def separable(self, x: nn.Variable) -> nn.Variable:
        keep = self.keep
        h = keep(F.relu(self.convolution_and_norm(x, 32, 3, 1, "stem")))
        for i, (outputs, stride) in enumerate(SEPARABLE):
            strides = (stride, stride)
            h = PF.depthwise_convolution(h, (3, 3), pad=(1, 1), stride=strides, with_bias=False, name=f"depth{i}_conv")
            h = self.normalization(keep(h), f"depth{i}_norm")
            h = keep(F.relu(h))
            h = keep(F.relu(self.convolution_and_norm(h, outputs, 1, 1, f"point{i}")))
        h = keep(F.global_average_pooling(h))
        return PF.affine(h, 10, name="affine")

    def transformer(self, x: nn.Variable) -> nn.Variable:
        keep = self.keep
        heads, width = self.sizes["heads"], self.sizes["width"]
        batch, tokens, _ = x.shape
        per_head = (batch, tokens, 3, heads, width // heads)
        h = keep(PF.layer_normalization(x, batch_axis=(0, 1), name="norm0"))
        h = keep(PF.affine(h, 3 * width, base_axis=2, name="qkv"))
        h = keep(F.transpose(keep(F.reshape(h, per_head)), (2, 0, 3, 1, 4)))
        q, k, v = (keep(part) for part in F.split(h, axis=0))
        scores = keep(F.batch_matmul(q, k, transpose_b=True))
        scores = keep(scores * (width // heads) ** -0.5)
        h = keep(F.batch_matmul(keep(F.softmax(scores)), v))
        h = keep(F.reshape(keep(F.transpose(h, (0, 2, 1, 3))), x.shape))
        h = keep(PF.affine(h, width, base_axis=2, name="merge"))
        x = keep(x + h)
        h = keep(PF.layer_normalization(x, batch_axis=(0, 1), name="norm1"))
        h = keep(PF.affine(h, 4 * width, base_axis=2, name="up"))
        h = keep(F.gelu(h))
        h = keep(PF.affine(h, width, base_axis=2, name="down"))
        return x + h

    def lstm(self, x: nn.Variable) -> nn.Variable:
        keep = self.keep
        units = self.sizes["units"]
        h, c = F.constant(0, (x.shape[0], units)), F.constant(0, (x.shape[0], units))
        for part in F.split(x, axis=1):
            both = keep(F.concatenate(keep(part), h, axis=1))
            gates = keep(PF.affine(both, (4, units), with_bias=False, name="cell"))
            i, f, g, o = (keep(gate) for gate in F.split(gates, axis=1))
            i, f, g, o = keep(F.sigmoid(i)), keep(F.sigmoid(f)), keep(F.tanh(g)), keep(F.sigmoid(o))
            c = keep(keep(f * c) + keep(i * g))
            h = keep(o * keep(F.tanh(c)))
        return PF.affine(h, 10, name="affine")

    def text(self, x: nn.Variable) -> nn.Variable:
        keep = self.keep
        h = keep(PF.embed(x, self.sizes["words"], 64, name="embed"))
        h = keep(F.mean(h, axis=1))
        h = keep(PF.affine(h, 128, name="affine0"))
        h = keep(F.relu(h))
        return PF.affine(h, 4, name="affine1")

    def autoencoder(self, x: nn.Variable) -> nn.Variable:
        keep = self.keep
        h = x
        for i, outputs in enumerate((16, 32)):
            h = keep(PF.convolution(h, outputs, (4, 4), pad=(1, 1), stride=(2, 2), name=f"conv{i}"))
            h = keep(F.relu(h))
        h = keep(PF.deconvolution(h, 16, (4, 4), pad=(1, 1), stride=(2, 2), name="deconv0"))
        h = keep(F.relu(h))
        h = keep(PF.deconvolution(h, 1, (4, 4), pad=(1, 1), stride=(2, 2), name="deconv1"))
        return F.sigmoid(h)


def set_weights(workload: Workload, with_statistics: bool = False) -> None:
    """Sets the initial weights of each parameter. Raises KeyError if the network and the workload differ."""
    for path, parameter in nn.get_parameters(grad_only=not with_statistics).items():
        layer, *_, part = path.split("/")
        parameter.d = workload.weights[f"{layer}.{part.lower()}"].reshape(parameter.shape)


def start(workload: Workload) -> None:
    """Deletes all parameters, and sets the type of numbers."""
    nn.clear_parameters()
    nn.set_auto_forward(False)
    if workload.dtype != "float32":
        nn.set_default_context(nn.Context([f"cpu:{workload.dtype}"]))


def export(workload: Workload, path: Path) -> None:
    """Writes the network for prediction to an ONNX file. Its input is called `x`."""
    with nn.parameter_scope("", {}):
        x = nn.Variable.from_numpy_array(workload.batches[0][0])
        y = Model(workload, holds_names=False, has_statistics=True).output(x)
        set_weights(workload, with_statistics=True)
        kinnor.onnx.save([y], path, {"x": x}, free_batch=False)


def prediction(workload: Workload, form: str) -> tuple[Callable[[Batch], nn.Variable], list[Batch]]:
    """Returns a function that computes the output of one batch, and its batches, which stay in NumPy."""
    mode, _, naming = form.partition(", ")
    holds_names = bool(naming)
    start(workload)
    x = nn.Variable(workload.batches[0][0].shape)
    model = Model(workload, holds_names, has_statistics=True)
    y = model.output(x)
    set_weights(workload, with_statistics=True)

    def static(batch: Batch) -> nn.Variable:
        """Runs a static graph."""
        x.d = batch[0]
        y.forward(clear_buffer=not holds_names)
        return y

    def dynamic(batch: Batch) -> nn.Variable:
        """Runs the network in dynamic mode."""
        with nn.no_grad():
            return model.output(nn.Variable.from_numpy_array(batch[0]))

    if mode == "static":
        return static, workload.batches
    nn.set_auto_forward(True)
    return dynamic, workload.batches


def training(workload: Workload, form: str) -> tuple[Callable[[Batch], nn.Variable], list[Batch]]:
    """Returns a function that runs one step and returns the loss before it, and its batches.

    The batches stay in NumPy, because copying them in is part of a step.
    """
    mode, _, naming = form.partition(", ")
    holds_names = bool(naming)
    start(workload)
    x, t = (nn.Variable(array.shape) for array in workload.batches[0])
    model = Model(workload, holds_names)
    loss = model(x, t)
    set_weights(workload)
    solver = SOLVERS[workload.solver](workload.rate)
    solver.set_parameters(nn.get_parameters())
    # A notebook that reads its variables needs runs that do not clear them.
    clears = not holds_names

    def static(batch: Batch) -> nn.Variable:
        """A step of a static graph."""
        x.d, t.d = batch
        loss.forward(clear_no_need_grad=clears)
        solver.zero_grad()
        loss.backward(clear_buffer=clears)
        solver.update()
        return loss

    def dynamic(batch: Batch) -> nn.Variable:
        """A step in dynamic mode."""
        loss = model(*(nn.Variable.from_numpy_array(array) for array in batch))
        solver.zero_grad()
        loss.backward(clear_buffer=clears)
        solver.update()
        return loss

    if mode == "static":
        return static, workload.batches
    nn.set_auto_forward(True)
    return dynamic, workload.batches
