"""Series of networks of growing size, and the models whose first steps are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .networks import Network, attention, bert, embedding, lstm, mlp, residual, resnet

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Series(NamedTuple):
    """Networks of growing size."""

    network: Callable[[int], Network]
    sizes: Sequence[int]
    work: Callable[[int], float]
    """The work of a step of this size."""
    unit: str
    """The unit of work."""
    about: str
    """A description of the networks."""
    values: Callable[[int], float] | None = None
    """Number of values that memory should follow, if it is not the work."""
    value: str = ""
    """The unit of `values`."""


def attention_work(tokens: int) -> float:
    """Returns millions of multiplications of a step of `attention`: each product has two more in backward."""
    return 3 * (4 * tokens * 128**2 + 2 * tokens**2 * 128) / 1e6


def width_of(parameters: int) -> int:
    """Returns the width of four square layers with this number of parameters."""
    return round((parameters / 4) ** 0.5)


SERIES = {
    "batch, affine": Series(
        lambda n: mlp(n, 512, 3), (1, 4, 16, 64, 256, 1024, 4096), float, "sample", "three affine layers of 512"
    ),
    "batch, convolutions": Series(
        lambda n: residual(n, 2),
        (1, 2, 4, 8, 16, 32, 64, 128),
        float,
        "image",
        "two residual blocks, 32 maps of 16 x 16",
    ),
    "width": Series(
        lambda n: mlp(128, n, 3),
        (32, 64, 128, 256, 512, 1024, 2048, 4096),
        lambda n: 3 * 3 * 128 * n**2 / 1e6,
        "10^6 multiplications",
        "three affine layers, batch 128",
        lambda n: n**2,
        "weight",
    ),
    "depth, affine": Series(
        lambda n: mlp(32, 64, n),
        (4, 16, 64, 256, 1024, 4096),
        float,
        "layer",
        "affine layers of 64 with tanh, batch 32",
    ),
    "depth, residual": Series(
        lambda n: residual(2, n, 16, 8),
        (2, 8, 32, 128, 512),
        float,
        "block",
        "blocks of two convolutions, 16 maps of 8 x 8, batch 2",
    ),
    "sequence, attention": Series(
        lambda n: attention(1, n, 128, 4),
        (64, 128, 256, 512, 1024, 2048, 4096),
        attention_work,
        "10^6 multiplications",
        "self-attention, width 128, 4 heads",
        float,
        "token",
    ),
    "sequence, LSTM": Series(
        lambda n: lstm(8, n, 64), (8, 32, 128, 512, 2048), float, "token", "LSTM of 64 units, batch 8"
    ),
    "parameters, affine": Series(
        lambda n: mlp(8, width_of(n), 4),
        (10**4, 10**5, 10**6, 10**7, 10**8),
        float,
        "parameter",
        "four square affine layers, batch 8",
    ),
    "parameters, table": Series(
        lambda n: embedding(n // 64),
        (10**4, 10**5, 10**6, 10**7, 10**8),
        float,
        "parameter",
        "a table of words of 64 numbers, 512 words in a batch",
    ),
}
"""Series by name. Quick runs use the first two sizes."""

MODELS: dict[str, tuple[Callable[[int], Network], Callable[[int], Network], int]] = {
    "ResNet-50": (
        lambda n: resnet(n, 224, (64, 128, 256, 512), (3, 4, 6, 3)),
        lambda n: resnet(n, 32, (4, 8), (1, 1)),
        4,
    ),
    "BERT-base": (lambda n: bert(n, 128, 30522, 768, 12), lambda n: bert(n, 8, 50, 64, 2), 2),
}
"""Networks for first steps: real and tiny sizes, and the batch."""
