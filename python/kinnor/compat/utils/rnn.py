"""Padding and packing of sequences with different lengths, for recurrent layers.

These functions read the lengths immediately: sequences must be leaves, or `kinnor.set_auto_forward(True)` must be set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ... import functions as F
from ..._core import ArgumentError, Variable

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence"]


class PackedSequence:
    """Packed sequences: the elements of all sequences at the first time step, then at the second, and so on.

    `data` has the elements, shape (sum of the lengths, ...). `batch_sizes` has the number of sequences at each time
    step. For sequences that were sorted, `sorted_indices` has the original position of each sorted sequence, and
    `unsorted_indices` the inverse. Otherwise both are None.
    """

    def __init__(self) -> None:
        self.data: Variable | None = None
        self.batch_sizes: Variable | None = None
        self.sorted_indices: Variable | None = None
        self.unsorted_indices: Variable | None = None

    def __repr__(self) -> str:
        names = ("data", "batch_sizes", "sorted_indices", "unsorted_indices")
        return f"PackedSequence({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"


def pad_sequence(sequences: Sequence[Variable], batch_first: bool = False, padding_value: float = 0.0) -> Variable:
    """Stack sequences. Sequences shorter than the longest are padded at the end.

    Args:
        sequences: Variables of shape (time, ...), which differ only in the length of the first axis.
        batch_first: Whether the batch is the first axis of the result.
        padding_value: Padding value after the end of a sequence.

    Returns:
        Shape (time, batch, ...), or (batch, time, ...) with `batch_first`.

    Raises:
        ArgumentError: If there are no sequences, or if a sequence has no axes.
        ShapeError: If the sequences differ in an axis other than time.

    Examples:
        >>> a, b = (Variable.from_numpy_array(np.ones(n, np.float32)) for n in (3, 1))
        >>> padded = pad_sequence([a, b], batch_first=True)
        >>> padded.forward()
        >>> padded.d.tolist()
        [[1.0, 1.0, 1.0], [1.0, 0.0, 0.0]]
    """
    if not sequences or any(x.ndim < 1 for x in sequences):
        raise ArgumentError(f"pad_sequence: expected sequences of at least one axis, got {list(sequences)}")
    longest = max(x.shape[0] for x in sequences)
    padded = [
        x
        if x.shape[0] == longest
        else F.pad(x, (0, longest - x.shape[0], *(0, 0) * (x.ndim - 1)), constant_value=padding_value)
        for x in sequences
    ]
    return F.stack(*padded, axis=0 if batch_first else 1)


def pack_padded_sequence(
    padded_sequence: Variable, lengths: Variable, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack padded sequences.

    Args:
        padded_sequence: Shape (time, batch, ...), or (batch, time, ...) with `batch_first`.
        lengths: Length of each sequence, shape (batch,).
        batch_first: Whether the batch is the first axis.
        enforce_sorted: Whether to require the longest sequences first; otherwise this function sorts them.

    Returns:
        The packed sequences.

    Raises:
        ShapeError: If the shapes of the inputs do not match.
        ValueError: If `enforce_sorted` is set and the lengths are not sorted, or if a length exceeds the time axis.
    """
    packed = PackedSequence()
    if not enforce_sorted:
        order = np.argsort(-lengths.d, kind="stable")
        packed.sorted_indices = Variable.from_numpy_array(order)
        packed.unsorted_indices = Variable.from_numpy_array(np.argsort(order))
        padded_sequence = F.gather(padded_sequence, packed.sorted_indices, axis=0 if batch_first else 1)
        lengths = Variable.from_numpy_array(lengths.d[order])
    packed.data, packed.batch_sizes = F.pack_padded_sequence(padded_sequence, lengths, batch_first)
    return packed


def pack_sequence(
    sequences: Sequence[Variable], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Pack sequences.

    Args:
        sequences: Variables of shape (time, ...), which differ only in the length of the first axis.
        batch_first: Layout of the padded sequences in between; without effect on the result.
        enforce_sorted: Whether to require the longest sequences first; otherwise this function sorts them.

    Returns:
        The packed sequences.

    Raises:
        ArgumentError: If there are no sequences, or if a sequence has no axes.
        ShapeError: If the sequences differ in an axis other than time.
        ValueError: If `enforce_sorted` is set and the lengths are not sorted.

    Examples:
        >>> a, b = (Variable.from_numpy_array(np.full(n, n, np.float32)) for n in (1, 3))
        >>> packed = pack_sequence([a, b], enforce_sorted=False)
        >>> packed.data.forward()
        >>> packed.data.d.tolist(), packed.batch_sizes.d.tolist(), packed.sorted_indices.d.tolist()
        ([3.0, 1.0, 3.0, 3.0], [2, 1, 1], [1, 0])
    """
    padded = pad_sequence(sequences, batch_first)
    lengths = Variable.from_numpy_array(np.array([x.shape[0] for x in sequences]))
    return pack_padded_sequence(padded, lengths, batch_first, enforce_sorted)


def pad_packed_sequence(
    sequence: PackedSequence,
    batch_first: bool = False,
    padding_value: float = 0.0,
    total_length: int | None = None,
) -> tuple[Variable, Variable]:
    """Pad packed sequences in their original order: the inverse of `pack_padded_sequence`.

    Args:
        sequence: The packed sequences.
        batch_first: Whether the batch is the first axis of the result.
        padding_value: Padding value after the end of a sequence.
        total_length: Length of the time axis; by default the length of the longest sequence.

    Returns:
        The sequences, shape (time, batch, ...), or (batch, time, ...) with `batch_first`, and the length of each.

    Raises:
        ArgumentError: If `sequence` is empty, or if `total_length` is too short.
    """
    if sequence.data is None or sequence.batch_sizes is None:
        raise ArgumentError("pad_packed_sequence: expected packed sequences, got none")
    padded, lengths = F.pad_packed_sequence(
        sequence.data, sequence.batch_sizes, batch_first, padding_value, total_length
    )
    if sequence.unsorted_indices is not None:
        padded = F.gather(padded, sequence.unsorted_indices, axis=0 if batch_first else 1)
        lengths = F.gather(lengths, sequence.unsorted_indices)
    return padded, lengths
