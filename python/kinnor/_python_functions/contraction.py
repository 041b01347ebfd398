"""`einsum`: Einstein summation, by products of two arrays at a time."""

from __future__ import annotations

import functools
import re
import string
from typing import Any, TypeVar

import numpy as np

from .. import _core
from .._core import ArgumentError, CallError, NdArray, ShapeError, Variable

__all__ = ["einsum"]

T = TypeVar("T", Variable, NdArray)

f = _core.functions

OPTIMAL = 5
"""Up to this many arrays the optimal order is searched; for more arrays a greedy one."""


def einsum(*x: T, equation: str = "") -> T:
    """Einstein summation, like `numpy.einsum`: products of arrays, summed over labels that the result lacks.

    Arrays are multiplied two at a time by matrix products, in an order that keeps the work small. The same holds for
    gradients of any order.

    Args:
        x: Arrays. Axes with the same label have equal lengths, or broadcast from length 1.
        equation: A letter for each axis of each array, separated by commas, then `->` and the letters of the result.
            A repeated letter within an array takes its diagonal. Without `->` the result has the letters that occur
            once, in alphabetical order. `...` means any number of axes, which broadcast.

    Returns:
        The sum.

    Raises:
        ArgumentError: If `equation` is malformed.
        ShapeError: If the shapes do not fit `equation`.
        TypeError: If there is no array, or an argument is not a Variable or NdArray.

        >>> import numpy as np, kinnor as nn, kinnor.functions as F
        >>> x = nn.NdArray.from_numpy_array(np.arange(6.0).reshape(2, 3))
        >>> F.einsum(x, x, equation="ij,kj->ik").data.tolist()
        [[5.0, 14.0], [14.0, 50.0]]
    """
    for each in x:
        if not isinstance(each, (Variable, NdArray)):
            hint = f"; write equation={each!r}" if isinstance(each, str) else ""
            raise CallError(f"einsum: expected Variables or NdArrays, got {type(each).__name__}{hint}")
    if not x:
        raise CallError("einsum: expected one array at least, got none")
    shapes = tuple(tuple(each.shape) for each in x)
    terms, result, sizes, order = plan(equation, shapes)
    operands = [prepared(each, term, sizes) for each, term in zip(x, terms, strict=True)]
    for pair in order:
        taken = [operands.pop(i) for i in sorted(pair, reverse=True)][::-1]
        joined = taken[0]
        for i, other in enumerate(taken[1:], 2):
            needed = set(result).union(*(labels for _, labels in operands), *(labels for _, labels in taken[i:]))
            joined = product(joined, other, needed, sizes)
        operands.append(joined)
    array, labels = summed(*operands[0], set(result))
    at = tuple(labels.index(label) for label in result)
    if at != tuple(range(len(at))):
        array = f.transpose(array, at)
    found: T = f.identity(array) if array is x[0] else array
    return found


Labels = tuple[str, ...]


@functools.lru_cache(256)
def plan(
    equation: str, shapes: tuple[tuple[int, ...], ...]
) -> tuple[tuple[Labels, ...], Labels, dict[str, int], tuple[tuple[int, ...], ...]]:
    """The plan of an einsum: labels of each array, labels of the result, lengths by label, and order of products."""
    text = re.sub(r"\s", "", equation)

    def refuse(expected: str) -> ArgumentError:
        """The error for a malformed equation."""
        return ArgumentError(f"einsum: expected `equation` to {expected}, got {equation!r}")

    if not re.fullmatch(r"[A-Za-z.,]*(->[A-Za-z.]*)?", text) or "." in text.replace("...", ""):
        raise refuse("have letters, commas, `...` and one `->`")
    left, arrow, right = text.partition("->")
    given = left.split(",")
    if len(given) != len(shapes):
        raise refuse(f"name {len(shapes)} arrays")
    if any(term.count("...") > 1 for term in (*given, right)):
        raise refuse("have `...` once for each array")
    free = [letter for letter in string.ascii_letters if letter not in text]
    rest = [len(shape) - len(term.replace("...", "")) for term, shape in zip(given, shapes, strict=True)]
    for term, shape, n in zip(given, shapes, rest, strict=True):
        if n < 0 or (n > 0 and "..." not in term):
            raise ShapeError(f"einsum: expected an array with the axes {term!r}, got shape {shape}")
    most = max([n for term, n in zip(given, rest, strict=True) if "..." in term], default=0)
    if most > len(free):
        raise refuse("leave letters for the axes of `...`")
    dots = free[:most]
    terms = tuple(tuple(term.replace("...", "".join(dots[most - n :]))) for term, n in zip(given, rest, strict=True))
    found = [label for term in terms for label in term]
    if arrow:
        result = tuple(right.replace("...", "".join(dots)))
    else:
        once = sorted(label for label in set(found) - set(dots) if found.count(label) == 1)
        result = (*dots, *once)
    if len(set(result)) != len(result) or not set(result) <= set(found):
        raise refuse("give the result letters that the arrays have, each once")
    sizes: dict[str, int] = {}
    for labels, shape in zip(terms, shapes, strict=True):
        for label, n in zip(labels, shape, strict=True):
            if sizes.setdefault(label, n) != n and 1 not in (sizes[label], n):
                got = ", ".join(map(str, shapes))
                raise ShapeError(f"einsum: expected axes of one length for the letter {label!r}, got shapes {got}")
            sizes[label] = n if sizes[label] == 1 else sizes[label]
    return terms, result, sizes, order_of(terms, result, sizes)


def order_of(terms: tuple[Labels, ...], result: Labels, sizes: dict[str, int]) -> tuple[tuple[int, ...], ...]:
    """The order of products, as indices of the operands. Each product is appended to the remaining operands."""
    if len(terms) < 3:
        return ((0, 1),) if len(terms) == 2 else ()
    distinct = [tuple(dict.fromkeys(term)) for term in terms]
    text = ",".join("".join(term) for term in distinct) + "->" + "".join(result)
    shapes = [np.broadcast_to(np.float32(0), tuple(max(sizes[label], 1) for label in term)) for term in distinct]
    how = "optimal" if len(terms) <= OPTIMAL else "greedy"
    path, _ = np.einsum_path(text, *shapes, optimize=how)
    return tuple(tuple(pair) for pair in path[1:])


def prepared(x: Any, labels: Labels, sizes: dict[str, int]) -> tuple[Any, Labels]:
    """An array with each label once, by taking diagonals, and without axes of length 1 that broadcast."""
    kept = [i for i, label in enumerate(labels) if not (x.shape[i] == 1 and sizes[label] != 1)]
    if len(kept) < len(labels):
        labels = tuple(labels[i] for i in kept)
        x = f.reshape(x, tuple(x.shape[i] for i in kept))
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            others = [i for i in range(len(labels)) if i not in (first, second)]
            n = x.shape[first]
            x = f.transpose(x, (*others, first, second))
            lengths = tuple(x.shape[:-2])
            x = f.reshape(x, (*lengths, n * n))
            x = f.slice(x, None, None, (*(1 for _ in lengths), n + 1))
            labels = (*(labels[i] for i in others), label)
    return x, labels


def summed(x: Any, labels: Labels, needed: set[str]) -> tuple[Any, Labels]:
    """An array summed over all labels that are not needed any more."""
    axes = tuple(i for i, label in enumerate(labels) if label not in needed)
    if not axes:
        return x, labels
    return f.sum(x, axes), tuple(label for label in labels if label in needed)


def product(
    left: tuple[Any, Labels], right: tuple[Any, Labels], needed: set[str], sizes: dict[str, int]
) -> tuple[Any, Labels]:
    """The product of two arrays, summed over all labels that are not needed any more."""
    a, of_a = summed(*left, needed | set(right[1]))
    b, of_b = summed(*right, needed | set(of_a))
    both = [label for label in of_a if label in of_b]
    batch = [label for label in both if label in needed]
    inner = [label for label in both if label not in needed]
    rows = [label for label in of_a if label not in of_b]
    columns = [label for label in of_b if label not in of_a]
    labels = (*batch, *rows, *columns)
    if not inner:
        a = ordered(a, of_a, (*batch, *rows))
        b = ordered(b, of_b, (*batch, *columns))
        a = f.reshape(a, (*(sizes[label] for label in (*batch, *rows)), *(1 for _ in columns))) if columns else a
        if rows:
            lengths = (sizes[label] for label in batch)
            b = f.reshape(b, (*lengths, *(1 for _ in rows), *(sizes[label] for label in columns)))
        return f.mul2(a, b), labels
    count = [int(np.prod([sizes[label] for label in some], dtype=np.int64)) for some in (batch, rows, inner, columns)]
    n, m, k, p = count
    x, flip_a = matrices(a, of_a, batch, rows, inner, (n, m, k))
    y, flip_b = matrices(b, of_b, batch, columns, inner, (n, p, k))
    y = f.batch_matmul(x, y, flip_a, not flip_b)
    shape = tuple(sizes[label] for label in labels)
    return (y if tuple(y.shape) == shape else f.reshape(y, shape)), labels


def matrices(
    x: Any, labels: Labels, batch: list[str], free: list[str], inner: list[str], sizes: tuple[int, int, int]
) -> tuple[Any, bool]:
    """An array as a batch of matrices (free, inner), or transposed if it is in that order. True if transposed."""
    n, m, k = sizes
    flipped = labels == (*batch, *inner, *free)
    x = x if flipped else ordered(x, labels, (*batch, *free, *inner))
    shape = ((n,) if batch else ()) + ((k, m) if flipped else (m, k))
    return (x if tuple(x.shape) == shape else f.reshape(x, shape)), flipped


def ordered(x: Any, labels: Labels, to: Labels) -> Any:
    """An array with its axes permuted from the order `labels` to the order `to`."""
    return x if labels == to else f.transpose(x, tuple(labels.index(label) for label in to))
