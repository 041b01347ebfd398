"""NNabla's low-level functions, which differ from `nnabla.functions` in names and defaults of arguments."""

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
"""Argument names of NNabla's low-level reductions, and Kinnor's names for them."""


def reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    """A reduction with NNabla's argument names `axes` and `keep_dims`.

    Args:
        function: The reduction, with arguments `axis` and `keepdims`.
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
    """Resize images: `kinnor.functions.interpolate` without `scale`, and with `align_corners=True` by default.

    Args:
        x: Images. Their last axes are resized.
        output_size: New lengths of the resized axes.
        mode: `nearest` or `linear`.
        align_corners: Whether the first and last elements keep their positions.
        half_pixel: Whether positions are pixel centers.
        half_pixel_for_nn: `half_pixel` for the mode `nearest`.
        channel_last: Whether the channels are the last axis.
        n_outputs: Without effect.
        outputs: An array to write into, in a list.

    Returns:
        The images.

    Raises:
        ArgumentError: If an argument is out of range.
    """
    return functions.interpolate(
        x,
        None,
        output_size,
        mode,
        align_corners,
        half_pixel,
        half_pixel_for_nn,
        channel_last,
        n_outputs=n_outputs,
        outputs=outputs,
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
    """Patch correlation: `kinnor.functions.patch_correlation` for images with channels last.

    Args:
        x1: Images, shape (n, height, width, channels).
        x2: Images of the same shape.
        patch: Height and width of a patch.
        shift: Largest shift along height and width, in both directions.
        patch_step: Distance of neighbouring patches.
        shift_step: Distance of neighbouring shifts.
        padding: Zeros above, below, left and right of the images.

    Returns:
        Array of shape (n, rows, columns, shifts along height, shifts along width).

    Raises:
        ShapeError: If the images differ in shape, do not have four axes, or are smaller than a patch.
        ArgumentError: If an argument has another number of values, or a value out of range.
    """
    return ours.patch_correlation(x1, x2, patch, shift, patch_step, shift_step, padding, channel_last=True)
