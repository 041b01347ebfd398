"""Tensor-parallel layers: the weight is divided over processes. Each process computes and updates its part.

By default input and output are the same on all processes, and so is the loss. Gradients need no callback: each process
has the gradient of its own part, and gradients of undivided parameters are equal on all processes.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from .. import functions as F
from ..initializer import ConstantInitializer, UniformInitializer, calc_uniform_lim_glorot
from ..parametric_functions.arguments import bias, check_input, index_of_axis, sizes, weight
from ..parametric_functions.decorator import parametric_function_api
from .communicator import members_of
from .functions import Copied, Joined, Part, Summed
from .spread import PartOf, mark
from .transport import CommunicatorError

if TYPE_CHECKING:
    from numpy.random import RandomState

    from .._core import Variable
    from ..initializer import Initializer
    from .communicator import Communicator
    from .transport import Transport

__all__ = ["affine_columns", "affine_rows"]


@parametric_function_api(
    "affine",
    [
        ("W", "This process's columns of the weight", "(inputs, n_outmaps / processes)", True),
        ("b", "This process's part of the bias", "(n_outmaps / processes,)", True),
    ],
)
def affine_columns(
    inp: Variable,
    n_outmaps: int,
    comm: Communicator,
    group: str = "world",
    base_axis: int = 1,
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    gather: bool = True,
    name: str | None = None,
) -> Variable:
    """`affine` with a weight divided by columns: each process computes its part of the outputs.

    If all processes have the same seed, initial values are the same as for `affine` in one process. Each process draws
    the whole weight and keeps its part.

    Args:
        inp: Input, shape (*batch, *inputs), the same on all processes.
        n_outmaps: Total number of outputs, a multiple of the number of processes.
        comm: The communicator.
        group: Name of the group of processes.
        base_axis: First axis of the inputs.
        w_init: Initial value of the whole weight; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial value of the whole bias; by default zeros.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default of `w_init`.
        with_bias: Whether to add a bias.
        gather: Whether each process gets all outputs; otherwise its own part, for `affine_rows` without `scatter`.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, n_outmaps), or (*batch, n_outmaps / processes) without `gather`.

    Raises:
        CommunicatorError: If `n_outmaps` is not a multiple of the processes, or they call different layers.

    Source:
        Shoeybi et al.: Megatron-LM, 2019.

    Examples:
        >>> import kinnor as nn
        >>> import kinnor.functions as F
        >>> from kinnor.distributed import MultiProcessDataParallelCommunicator
        >>> comm = MultiProcessDataParallelCommunicator()
        >>> comm.init()
        >>> h = affine_columns(nn.Variable((8, 16)), 32, comm, gather=False, name="up")
        >>> affine_rows(F.relu(h), 16, comm, scatter=False, name="down").shape
        (8, 16)
    """
    check_input("affine_columns", inp)
    members = members_of("affine_columns", comm, group)
    inputs = prod(inp.shape[index_of_axis("affine_columns", inp, base_axis) :])
    (outputs,) = _single("affine_columns", n_outmaps)
    comm._agree(members, f"affine_columns from {inp.shape} to {outputs}, gather {bool(gather)}")
    width = _divided("affine_columns", "n_outmaps", outputs, members)
    whole = UniformInitializer(calc_uniform_lim_glorot(inputs, outputs), rng) if w_init is None else w_init
    w_part = PartOf(whole, (inputs, outputs), 1, members)
    b_part = PartOf(ConstantInitializer() if b_init is None else b_init, (outputs,), 0, members)
    w = weight((inputs, width), w_part, (inputs, outputs, (1, 1)), rng, fix_parameters)
    mark("W", w_part)
    b = bias((width,), b_part, with_bias, fix_parameters)
    if b is not None:
        mark("b", b_part)
    y = F.affine(Copied(comm, group)(inp), w, b, base_axis)
    return Joined(comm, group)(y) if gather else y  # type: ignore[no-any-return]


@parametric_function_api(
    "affine",
    [
        ("W", "This process's rows of the weight", "(inputs / processes, n_outmaps)", True),
        ("b", "Bias, the same on all processes", "(n_outmaps,)", True),
    ],
)
def affine_rows(
    inp: Variable,
    n_outmaps: int,
    comm: Communicator,
    group: str = "world",
    w_init: Initializer | None = None,
    b_init: Initializer | None = None,
    fix_parameters: bool = False,
    rng: RandomState | None = None,
    with_bias: bool = True,
    scatter: bool = True,
    name: str | None = None,
) -> Variable:
    """`affine` with a weight divided by rows: each process multiplies its part of the inputs, and results are summed.

    If all processes have the same seed, initial values are the same as for `affine` in one process. Each process draws
    the whole weight and keeps its part.

    Args:
        inp: Input, shape (*batch, inputs); with `scatter` the same on all processes, otherwise this process's part.
        n_outmaps: Number of outputs.
        comm: The communicator.
        group: Name of the group of processes.
        w_init: Initial value of the whole weight; by default uniform, `calc_uniform_lim_glorot`.
        b_init: Initial bias; by default zeros.
        fix_parameters: Whether to use the parameters without a gradient.
        rng: Generator for the default of `w_init`.
        with_bias: Whether to add a bias.
        scatter: Whether each process slices its part of the last axis from a whole input.
        name: Name of an outer scope for the parameters.

    Returns:
        Output, shape (*batch, n_outmaps), the same on all processes.

    Raises:
        CommunicatorError: If the number of inputs is not a multiple of the processes, or they call different layers.

    Source:
        Shoeybi et al.: Megatron-LM, 2019.
    """
    check_input("affine_rows", inp, 2)
    members = members_of("affine_rows", comm, group)
    (outputs,) = _single("affine_rows", n_outmaps)
    comm._agree(members, f"affine_rows from {inp.shape} to {outputs}, scatter {bool(scatter)}")
    width = _divided("affine_rows", "the inputs", inp.shape[-1], members) if scatter else inp.shape[-1]
    inputs = width * members.size
    whole = UniformInitializer(calc_uniform_lim_glorot(inputs, outputs), rng) if w_init is None else w_init
    w_part = PartOf(whole, (inputs, outputs), 0, members)
    w = weight((width, outputs), w_part, (inputs, outputs, (1, 1)), rng, fix_parameters)
    mark("W", w_part)
    b = bias((outputs,), b_init, with_bias, fix_parameters)
    part = Part(comm, group)(inp) if scatter else inp
    y = Summed(comm, group)(F.affine(part, w, None, inp.ndim - 1))
    return y if b is None else y + F.reshape(b, (1,) * (inp.ndim - 1) + (outputs,))  # type: ignore[no-any-return]


def _single(op: str, n_outmaps: int) -> tuple[int, ...]:
    """The number of outputs, a number or a tuple of one, as a tuple of one. Raises CommunicatorError if longer."""
    found = sizes(op, "n_outmaps", n_outmaps, single=True)
    if len(found) != 1:
        raise CommunicatorError(f"{op}: expected `n_outmaps` to be one number, got {n_outmaps!r}")
    return found


def _divided(op: str, what: str, n: int, members: Transport) -> int:
    """The size of each process's part of `n`. Raises CommunicatorError if the division has a remainder."""
    if n % members.size:
        raise CommunicatorError(f"{op}: expected {what} to be a multiple of {members.size} processes, got {n}")
    return n // members.size
