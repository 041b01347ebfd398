"""The models of `workloads` in PyTorch: eager, and compiled by `torch.compile`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from .workloads import RESIDUAL, SEPARABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from .workloads import Batch, Workload

Tensors = tuple[torch.Tensor, torch.Tensor]


def set_threads(n: int) -> None:
    """Sets the number of threads."""
    torch.set_num_threads(n)


class Norm(nn.Sequential):
    """A convolution without bias and batch normalization."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs)


def mlp(sizes: dict[str, int]) -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, sizes["first"]),
        nn.ReLU(),
        nn.Linear(sizes["first"], sizes["second"]),
        nn.ReLU(),
        nn.Linear(sizes["second"], 10),
    )


def tiny(sizes: dict[str, int]) -> nn.Module:
    hidden = [layer for _ in range(3) for layer in (nn.Linear(32, 32), nn.Tanh())]
    return nn.Sequential(*hidden, nn.Linear(32, 32))


class Chain(nn.Module):
    """A chain of elementwise functions."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(16))
        self.links = sizes["links"]

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        for _ in range(self.links // 4):
            h = h * 1.1
            h = h + self.w
            h = torch.tanh(h)
            h = h + 0.01
        return h


def lenet(sizes: dict[str, int]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 7 * 7, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def vgg(sizes: dict[str, int]) -> nn.Module:
    layers: list[nn.Module] = []
    inputs = 3
    for i, outputs in enumerate((64, 64, 128, 128, 256, 256)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] * (i % 2)
        inputs = outputs
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 4 * 4, 10))


class Residual(nn.Module):
    """Two convolutions with a skip connection."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.a = Norm(inputs, outputs, 3, stride)
        self.b = Norm(outputs, outputs, 3)
        self.skip = Norm(inputs, outputs, 1, stride) if stride > 1 else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.b(F.relu(self.a(x)))
        return F.relu(h + (x if self.skip is None else self.skip(x)))


def resnet(sizes: dict[str, int]) -> nn.Module:
    layers: list[nn.Module] = [Norm(3, 16, 3), nn.ReLU()]
    inputs = 16
    for outputs, stride in RESIDUAL:
        layers.append(Residual(inputs, outputs, stride))
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def separable(sizes: dict[str, int]) -> nn.Module:
    layers: list[nn.Module] = [Norm(3, 32, 3), nn.ReLU()]
    inputs = 32
    for outputs, stride in SEPARABLE:
        layers += [Norm(inputs, inputs, 3, stride, groups=inputs), nn.ReLU(), Norm(inputs, outputs, 1), nn.ReLU()]
        inputs = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


class Transformer(nn.Module):
    """Transformer encoder block with normalization first."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        width = sizes["width"]
        self.heads = sizes["heads"]
        self.norm0 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, width = x.shape
        h = self.qkv(self.norm0(x)).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = h.permute(2, 0, 3, 1, 4)
        h = F.scaled_dot_product_attention(q, k, v)
        x = x + self.merge(h.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.norm1(x)), approximate="tanh"))


class Lstm(nn.Module):
    """The fused `nn.LSTM`, and a classifier."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        self.cell = nn.LSTM(sizes["inputs"], sizes["units"], bias=False, batch_first=True)
        self.affine = nn.Linear(sizes["units"], 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.affine(self.cell(x)[0][:, -1])


class Text(nn.Module):
    """The mean of word vectors, and two layers."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        self.embed = nn.Embedding(sizes["words"], 64)
        self.affine0 = nn.Linear(64, 128)
        self.affine1 = nn.Linear(128, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.affine1(F.relu(self.affine0(self.embed(x).mean(1))))


def autoencoder(sizes: dict[str, int]) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, 2, 1),
        nn.Sigmoid(),
    )


MODELS: dict[str, Callable[[dict[str, int]], nn.Module]] = {
    "mlp": mlp,
    "tiny": tiny,
    "chain": Chain,
    "lenet": lenet,
    "vgg": vgg,
    "resnet": resnet,
    "separable": separable,
    "transformer": Transformer,
    "lstm": Lstm,
    "text": Text,
    "autoencoder": autoencoder,
}


def set_weights(model: nn.Module, workload: Workload) -> None:
    """Copies the weights of the workload to the modules, in the order of both."""
    layers: dict[str, dict[str, np.ndarray]] = {}
    for name, array in workload.weights.items():
        layer, part = name.split(".")
        layers.setdefault(layer, {})[part] = array
    owners = [module for module in model.modules() if next(module.parameters(recurse=False), None) is not None]
    for module, layer in zip(owners, layers.values(), strict=True):
        w = layer.get("w")
        if isinstance(module, nn.LSTM):
            inputs = module.input_size
            arrays = {"weight_ih_l0": w[:inputs].T, "weight_hh_l0": w[inputs:].T}
        elif isinstance(module, nn.Linear):
            arrays = {"weight": w.T, "bias": layer["b"]}
        elif "gamma" in layer:
            arrays = {"weight": layer["gamma"], "bias": layer["beta"]}
            if "mean" in layer:
                arrays |= {"running_mean": layer["mean"], "running_var": layer["var"]}
        elif isinstance(module, Chain):
            arrays = {"w": w}
        else:
            arrays = {"weight": w} | ({"bias": layer["b"]} if "b" in layer else {})
        with torch.no_grad():
            for name, array in arrays.items():
                tensor = getattr(module, name)
                tensor.copy_(torch.from_numpy(array.copy()).reshape(tensor.shape))


def optimizer(workload: Workload, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    """Returns the solver of the workload, in PyTorch's fastest form for CPUs."""
    if workload.solver == "adam":
        return torch.optim.Adam(parameters, lr=workload.rate, fused=True)
    return torch.optim.SGD(parameters, lr=workload.rate, momentum=0.9 * (workload.solver == "momentum"), fused=True)


def tensors(batch: Batch) -> Tensors:
    """Returns tensors that share the memory of the batch, with labels in the form that PyTorch expects."""
    x, t = (torch.from_numpy(array) for array in batch)
    return x, t[:, 0].long() if t.dtype == torch.int32 else t


def start(workload: Workload, form: str) -> tuple[nn.Module, Callable[[torch.Tensor], torch.Tensor], list[Tensors]]:
    """Returns the network, the function that runs it, and the batches."""
    model = MODELS[workload.model](workload.sizes)
    set_weights(model, workload)
    batches = [tensors(batch) for batch in workload.batches]
    if form == "channels last":
        model = model.to(memory_format=torch.channels_last)
        batches = [(x.to(memory_format=torch.channels_last), t) for x, t in batches]
    return model, torch.compile(model) if form == "compile" else model, batches


def prediction(workload: Workload, form: str) -> tuple[Callable[[Tensors], torch.Tensor], list[Tensors]]:
    """Returns a function that computes the output of one batch, and its batches."""
    model, run, batches = start(workload, form)
    model.eval()
    is_mixed = workload.dtype != "float32"

    def predict(batch: Tensors) -> torch.Tensor:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
            y = run(batch[0])
        return y.float()  # NumPy has no bfloat16

    return predict, batches


def training(workload: Workload, form: str) -> tuple[Callable[[Tensors], torch.Tensor], list[Tensors]]:
    """Returns a function that runs one step and returns the loss before it, and its batches."""
    model, run, batches = start(workload, form)
    solver = optimizer(workload, list(model.parameters()))
    criterion = F.cross_entropy if workload.is_classifier else F.mse_loss

    is_mixed = workload.dtype != "float32"

    def step(batch: Tensors) -> torch.Tensor:
        x, t = batch
        with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
            loss = criterion(run(x), t)
        solver.zero_grad()
        loss.backward()
        solver.step()
        return loss.detach()

    return step, batches
