"""NNabla's functions without what it does around them: reductions have other names of arguments here, and so on."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from kinnor import functions as ours

from . import functions
from .functions import *  # noqa: F403
from .functions import __all__ as names
from .functions import function_api

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kinnor import Variable

__all__ = [*names, "function_api"]

RENAMED = {"axis": "axes", "keepdims": "keep_dims"}
"""Arguments of reductions, and what they are called here."""


def reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction whose arguments are called as in NNabla's files.

    Args:
        function: The reduction, of `axis` and `keepdims`.
    """
    given = {here: there for there, here in RENAMED.items()}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **{given.get(name, name): value for name, value in kwargs.items()})

    signature = inspect.signature(function)
    called = [p.replace(name=RENAMED.get(p.name, p.name)) for p in signature.parameters.values()]
    call.__dict__["__signature__"] = signature.replace(parameters=called)
    return call


globals().update({name: reduction(getattr(functions, name)) for name in ("max", "mean", "min", "norm", "prod", "sum")})


def interpolate(
    x: Variable,
    output_size: Sequence[int],
    mode: str,
    align_corners: bool = True,
    half_pixel: bool = False,
    half_pixel_for_nn: bool = False,
    channel_last: bool = False,
    n_outputs: int = -1,
    outputs: Any = None,
) -> Variable:
    """Images of another size: `kinnor.functions.interpolate` without `scale`, with corners that meet by default.

    Args:
        x: Images, whose last axes are those of `output_size`.
        output_size: Lengths of the axes.
        mode: `nearest` or `linear`.
        align_corners: Whether the first and last elements are at the same places.
        half_pixel: Whether elements have their places in their middles.
        half_pixel_for_nn: The same for `nearest`.
        channel_last: Whether the last axis is that of channels.
        n_outputs: Without effect.
        outputs: An array to write into, in a list.

    Returns:
        The images.

    Raises:
        ArgumentError: If an argument is out of range.
    """
    return functions.interpolate(
        x, None, output_size, mode, align_corners, half_pixel, half_pixel_for_nn, channel_last, n_outputs, outputs
    )


def patch_correlation(
    x1: Variable,
    x2: Variable,
    patch: Sequence[int] = (1, 1),
    shift: Sequence[int] = (0, 0),
    patch_step: Sequence[int] = (1, 1),
    shift_step: Sequence[int] = (1, 1),
    padding: Sequence[int] = (0, 0, 0, 0),
) -> Variable:
    """Sums of products of patches: `kinnor.functions.patch_correlation` of images whose channels are last.

    Args:
        x1: Images, shape (n, height, width, channels).
        x2: Images of the same shape.
        patch: Height and width of a patch.
        shift: Largest shift, in either direction, along height and width.
        patch_step: Distance of neighbouring patches.
        shift_step: Distance of neighbouring shifts.
        padding: Zeros above, below, left and right of the images.

    Returns:
        Array of shape (n, rows, columns, shifts along height, shifts along width).

    Raises:
        ShapeError: If the images differ in shape, have not four axes, or are smaller than a patch.
        ArgumentError: If an argument has not as many numbers, or one out of range.
    """
    return ours.patch_correlation(x1, x2, patch, shift, patch_step, shift_step, padding, channel_last=True)
