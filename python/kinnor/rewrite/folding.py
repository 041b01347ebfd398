"""Optimises graphs for inference: folds constants, merges batch normalization into weights, and fuses functions.

A folded graph does not see later changes of its parameters.
"""

from __future__ import annotations

import operator
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import functions as F
from .._core import NdArray, forward_all
from ..modes import auto_forward
from ..nnp import messages
from .int8 import IntegerLayers
from .patterns import above, context_of, is_a, normalization, only_reader, scaled

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence

    from .._core import Function, Variable

__all__ = ["Folding"]

_FOLDABLE = frozenset(
    (
        *("ACos", "ASin", "ATan", "Abs", "Add2", "AddScalar", "BatchMatmul", "BoolFill", "Broadcast", "Ceil"),
        *("Concatenate", "Cos", "DequantizeLinear", "Div2", "DivScalar", "Equal", "EqualScalar", "Erf", "Exp"),
        *("Flip", "Floor"),
        *("Gather", "Greater", "GreaterEqual", "GreaterEqualScalar", "GreaterScalar", "Identity", "Less", "LessEqual"),
        *("LessEqualScalar", "LessScalar", "Log", "LogicalAnd", "LogicalNot", "LogicalOr", "LogicalXor", "Max"),
        *("Maximum2", "MaximumScalar", "Mean", "Min", "Minimum2", "MinimumScalar", "Mul2", "MulScalar", "NotEqual"),
        *("NotEqualScalar", "Pow2", "PowScalar", "Prod", "QuantizeLinear", "RDivScalar", "RPowScalar", "RSubScalar"),
        *("ReLU", "Reshape", "Round", "Sigmoid", "Sign", "Sin", "Slice", "Split", "Stack", "Sub2", "SubScalar", "Sum"),
        *("Tan", "Tanh", "Tile", "Transpose", "WeightNormalization", "Where"),
    )
)
"""Types of functions that are folded if all inputs are constant. They are deterministic and have no state."""

_REPEATING = ("Broadcast", "Tile")
"""Types of functions that repeat elements."""

_RECURRENT = ("GRU", "LSTM", "RNN")
"""Types of recurrent networks."""

_MUTATING = ("Assign", "MinMaxQuantize", "PythonFunction")
"""Types of functions that may write to their inputs. A graph with one of them is not folded."""

_WITH_STATISTICS = ("BatchNormalization", "FusedBatchNormalization", "FusedConvolution", "SyncBatchNormalization")
"""Types of functions that may normalize by statistics of the batch."""

_SCALAR_FORMS: dict[str, tuple[Callable[[Variable, float], Variable] | None, Callable[[Variable, float], Variable]]] = {
    "Add2": (F.add_scalar, F.add_scalar),
    "Div2": (None, F.r_div_scalar),
    "Maximum2": (F.maximum_scalar, F.maximum_scalar),
    "Minimum2": (F.minimum_scalar, F.minimum_scalar),
    "Mul2": (F.mul_scalar, F.mul_scalar),
    "Pow2": (F.pow_scalar, F.r_pow_scalar),
    "Sub2": (lambda x, number: F.add_scalar(x, -number), F.r_sub_scalar),
}
"""Scalar forms of binary functions: for a scalar as second input, and for a scalar as first input."""

_SCALAR_OPERATIONS: dict[str, Callable[[float, float], float]] = {
    "AddScalar": operator.add,
    "MaximumScalar": max,
    "MinimumScalar": min,
    "MulScalar": operator.mul,
}
"""Scalar functions with an argument `val` that may occur in a hard gate, as functions of Python numbers."""

_HARD_SWISH_GATE = {-1e6: 0.0, -3.0: 0.0, -1.5: 0.25, 0.0: 0.5, 1.5: 0.75, 3.0: 1.0, 1e6: 1.0}
"""Values of the gate of `hard_swish` at test points. They identify it among all lines clipped at two bounds."""

_MOST_GROWTH = 4
"""A folded constant may have at most this many times the elements of its inputs, unless it is small."""

_SMALL = 1 << 18
"""A folded constant of at most this many elements is small. Repeated constants are not, as all shapes repeat others."""

_MOST_NAMED = 64
"""A constant of at most this many elements is known by its numbers in the graphs of other shapes."""


class Folding:
    """Folds the graphs of one network. Graphs for several input shapes share the folded constants.

    Outputs change by rounding only, about 1e-5 relative: a normalization scales the weight before its products are
    summed.

    Args:
        parameters: The variables that never change and that all graphs share.
        restore: Called with variables before their values are read, if values may have been freed.
    """

    def __init__(
        self, parameters: Iterable[Variable], restore: Callable[[Iterable[Variable]], None] | None = None
    ) -> None:
        self._shared = set(parameters)
        self._restore = restore
        self._made: dict[Any, list[Variable]] = {}
        # Numbers of folded functions by their inputs, and folded constants by these numbers and the output's index.
        self._names: dict[Any, int] = {}
        self._computed: dict[tuple[int, int], Variable] = {}
        self._given: set[Variable] = set()
        self._kept: set[Variable] = set()
        self._first: dict[Variable, Variable] = {}
        self._integers = IntegerLayers()
        # Rewrites by the type of function, in their order. The second ones need the results of the first ones.
        self._first_rules: Mapping[str, tuple[Callable[[Function], None], ...]] = {
            "Add2": (self._add_bias_of_channels,),
            "BatchNormalization": (self._merge_normalization,),
            "Concatenate": (self._concatenate_slices,),
        }
        self._rules: Mapping[str, tuple[Callable[[Function], None], ...]] = {
            **dict.fromkeys(_SCALAR_FORMS, (self._use_scalar,)),
            **dict.fromkeys(_RECURRENT, (_disable_training,)),
            "Add2": (self._use_scalar, self._add_bias),
            "BatchMatmul": (_absorb_transpose,),
            "Mul2": (self._use_scalar, _fuse_swish, _fuse_hard_swish),
            "MulScalar": (_fuse_hard_swish,),
            "Reshape": (self._reshape_in_place,),
        }

    def share(self, variables: Iterable[Variable]) -> None:
        """Adds variables that never change and that all graphs share.

        Args:
            variables: The variables.
        """
        self._shared.update(variables)

    def fold(
        self, outputs: Sequence[Variable], inputs: Sequence[Variable], part: Sequence[Function] | None = None
    ) -> None:
        """Folds a static graph in place: its outputs stay the same variables.

        Args:
            outputs: Outputs of the graph.
            inputs: Inputs of the graph. All other variables without parent are constants.
            part: The functions to fold, inputs before outputs. By default all above the outputs.
        """
        order = above(outputs) if part is None else list(part)
        kinds = [f.name for f in order]
        types = set(kinds)
        if types.intersection(_MUTATING):
            return
        if types.intersection(_WITH_STATISTICS) and any(
            kind in _WITH_STATISTICS and f.args.get("batch_stat") for f, kind in zip(order, kinds, strict=True)
        ):
            return
        self._given, self._kept = set(inputs), set(outputs)
        with auto_forward(False):
            if "QuantizeLinear" in types:
                self._read(x for f in order for x in f.inputs)
                self._integers.convert(order, outputs, inputs)
                order = above(outputs)
                kinds = [f.name for f in order]
            left = self._fold_constants(order, kinds)
            for rules in (self._first_rules, self._rules):
                for f, kind in left:
                    for rule in rules.get(kind, ()):
                        rule(f)
            if "Convolution" in types and part is None:
                order = above(outputs)  # replaced functions are no longer readers
                for f in order:
                    _fuse_modulated_convolution(f, order, self._kept)
        self._given, self._kept, self._first = set(), set(), {}

    def _read(self, variables: Iterable[Variable]) -> None:
        """Makes sure that the values of variables are in memory."""
        if self._restore is not None:
            self._restore(variables)

    def _is_constant(self, x: Variable) -> bool:
        """True if no function computes a variable and it is not an input."""
        return x.parent is None and x not in self._given

    def _cached(self, key: Any, inputs: Sequence[Variable]) -> tuple[Any, list[Variable] | None]:
        """The cache key of constants, and the cached result for it. Both are None if graphs do not share the inputs."""
        first = tuple(self._first.get(x, x) for x in inputs)
        if not self._shared.issuperset(first):
            return None, None
        key = (*key, first)
        return key, self._made.get(key)

    def _fold_constants(self, order: Sequence[Function], kinds: Sequence[str]) -> list[tuple[Function, str]]:
        """Folds constants and frees the values between. Returns the functions that remain, with their types."""
        follows: dict[Variable, tuple[int, int] | None] = {}
        left = []
        for f, kind in zip(order, kinds, strict=True):
            if kind in _FOLDABLE and self._is_foldable(f, kind, follows):
                name = self._name(f, follows)
                follows.update((y, None if name is None else (name, i)) for i, y in enumerate(f.outputs))
            else:
                left.append((f, kind))
        taken = list(dict.fromkeys(x for f, _ in left for x in f.inputs if x in follows))
        new = [x for x in taken if follows[x] not in self._computed]
        self._read(x for f in above(new) for x in f.inputs)
        forward_all(new, clear_buffer=True)
        for x in new:
            if is_a(x.parent, "Reshape") and x.parent.args["inplace"]:
                held = NdArray(x.shape)  # a copy, so that the memory shared with the input can be freed
                held.copy_from(x.data, use_current_context=False)
                x.data = held
        for x in taken:
            x.parent = None
            place = follows[x]
            if place is not None:
                first = self._computed.setdefault(place, x)
                self._shared.add(first)
                self._first[x] = first
                x.data = first.data
        return left

    def _is_foldable(self, f: Function, kind: str, follows: Container[Variable]) -> bool:
        """True if a function depends on constants only, and its outputs are not too large to keep."""
        inputs = f.inputs
        for x in inputs:
            if x not in follows and not self._is_constant(x):
                return False
        outputs = f.outputs
        if not inputs or any(y in self._kept for y in outputs):
            return False
        small = 1 << 12 if kind in _REPEATING else _SMALL
        return sum(y.size for y in outputs) <= max(_MOST_GROWTH * sum(x.size for x in inputs), small)

    def _name(self, f: Function, follows: Mapping[Variable, tuple[int, int] | None]) -> int | None:
        """The number of a constant function, equal in all graphs. None if other graphs do not share its inputs."""
        inputs = [follows[x] if x in follows else self._name_of_constant(x) for x in f.inputs]
        if None in inputs:
            return None
        key = (f.name, repr(f.args), f.outputs[0].shape, *inputs)
        return self._names.setdefault(key, len(self._names))

    def _name_of_constant(self, x: Variable) -> Any:
        """A key of a constant, equal in all graphs: itself if they share it, its numbers if it has few, else None."""
        if x in self._shared:
            return x
        if x.size > _MOST_NAMED:
            return None
        numbers = np.ascontiguousarray(x.d)
        return tuple(x.shape), numbers.dtype.str, numbers.tobytes()

    def _merge_normalization(self, f: Function) -> None:
        """Merges a batch normalization by running statistics into the weight and bias of the layer before it."""
        layer = f.inputs[0].parent if f.inputs else None
        if layer is None or not _can_absorb(f, layer) or f.inputs[0] in self._kept:
            return
        held = [*layer.inputs[1:], *f.inputs[1:]]
        if not all(map(self._is_constant, held)) or layer.inputs[1].data.dtype != np.float32:
            return
        name, args = "affine" if is_a(layer, "Affine") else "convolution", layer.args
        key, found = self._cached((name, repr(args), repr(f.args)), held)
        if found is None:
            self._read(held)
            how = normalization(f)
            w = scaled(layer, how.scale, outputs=True)
            b = how.shift + (how.scale * layer.inputs[2].d.ravel() if len(layer.inputs) == 3 else 0)
            if not (np.isfinite(w).all() and np.isfinite(b).all()):
                return
            found = [type(f.inputs[0]).from_numpy_array(np.asarray(values, np.float32)) for values in (w, b)]
            if key is not None:
                self._made[key] = found
        with context_of(f):
            f.outputs[0].rewire_on(getattr(F, name)(layer.inputs[0], *found, **args))

    def _use_scalar(self, f: Function) -> None:
        """Replaces a binary function with a constant of one element by its scalar form, which reads one array less."""
        a, b = f.inputs
        for x, number, function in zip((a, b), (b, a), _SCALAR_FORMS[f.name], strict=True):
            fits = number.size == 1 and self._is_constant(number) and x.shape == f.outputs[0].shape
            if function is not None and fits and not self._is_constant(x):
                self._read([number])
                with context_of(f):
                    f.outputs[0].rewire_on(function(x, float(number.d.item())))
                return

    def _add_bias(self, f: Function) -> None:
        """Turns a constant that is added to the output of an affine layer into the layer's bias."""
        for y, b in (f.inputs, f.inputs[::-1]):
            layer = y.parent
            if not is_a(layer, "Affine") or len(layer.inputs) == 3 or only_reader(layer) != f or y in self._kept:
                continue
            if b.shape == layer.inputs[1].shape[1:] and self._is_constant(b):
                with context_of(f):
                    f.outputs[0].rewire_on(F.affine(layer.inputs[0], layer.inputs[1], b, **layer.args))
                return

    def _add_bias_of_channels(self, f: Function) -> None:
        """Adds a constant that is added to the channels of a convolution's output to its bias."""
        for y, b in (f.inputs, f.inputs[::-1]):
            layer = y.parent
            if not is_a(layer, "Convolution") or only_reader(layer) != f or y in self._kept:
                continue
            args, w = layer.args, layer.inputs[1]
            axis = y.ndim - 1 if args["channel_last"] else args["base_axis"] % y.ndim
            shape = (1,) * (y.ndim - b.ndim) + tuple(b.shape)
            if shape != tuple(n if k == axis else 1 for k, n in enumerate(y.shape)) or y.shape != f.outputs[0].shape:
                continue
            held = [b, *layer.inputs[2:]]
            if not all(map(self._is_constant, held)) or any(x.data.dtype != np.float32 for x in (w, *held)):
                continue
            key, found = self._cached(("bias",), held)
            if found is None:
                self._read(held)
                total = sum((x.d.ravel().astype(np.float64) for x in held), np.zeros(b.size))
                found = [type(b).from_numpy_array(total.astype(np.float32))]
                if key is not None:
                    self._made[key] = found
                    self._shared.update(found)
            with context_of(f):
                f.outputs[0].rewire_on(F.convolution(layer.inputs[0], w, found[0], **args))
            return

    def _concatenate_slices(self, f: Function) -> None:
        """Lets a concatenation read slices of length 1 directly from the sliced arrays, without copies."""
        if f.outputs[0] in self._kept:
            return
        parts = [_source_of_slice(x, f) for x in f.inputs]
        sizes = {part[1]: x.size for part, x in zip(parts, f.inputs, strict=True) if part is not None}
        axis, at = f.args["axis"] % f.outputs[0].ndim, max(sizes, key=sizes.__getitem__, default=None)
        if at is None or at > axis:
            return
        inputs, start = [], []
        for x, part in zip(f.inputs, parts, strict=True):
            if part is None or part[1] != at:
                is_shared = x.parent is not None and x not in self._kept
                with context_of(f):
                    part = F.reshape(x, (*x.shape[:at], 1, *x.shape[at:]), inplace=is_shared), at, 0
            inputs.append(part[0])
            start.append(part[2])
        stop = [first + 1 for first in start]
        with context_of(f):
            y = F.concatenate_parts(*inputs, axis=axis + 1, along=at, start=start, stop=stop)
            f.outputs[0].rewire_on(F.reshape(y, f.outputs[0].shape))

    def _reshape_in_place(self, f: Function) -> None:
        """Makes a reshape in place, unless its input or output is one of the graph."""
        (x,), (y,), args = f.inputs, f.outputs, f.args
        if x.parent is not None and y not in self._kept and not args["inplace"]:
            with context_of(f):
                y.rewire_on(F.reshape(x, args["shape"], axes=args["axes"]))


def _source_of_slice(x: Variable, f: Function) -> tuple[Variable, int, int] | None:
    """The array, axis and index if `x` is a slice of length 1 with that axis removed, else None.

    `f` must be the only reader.
    """
    cut: Function | None = x.parent
    reader = f
    while is_a(cut, "Reshape") and only_reader(cut) == reader:
        reader, cut = cut, cut.inputs[0].parent
    if not is_a(cut, "Slice") or only_reader(cut) != reader:
        return None
    whole, shape = cut.inputs[0], cut.outputs[0].shape
    names = ("start", "stop", "step")
    bounds = zip(*(cut.args[name] or [None] * whole.ndim for name in names), strict=True)
    ranges = [range(n)[slice(*bound)] for n, bound in zip(whole.shape, bounds, strict=True)]
    cuts = [k for k, (n, held) in enumerate(zip(whole.shape, ranges, strict=True)) if held != range(n)]
    if len(cuts) != 1 or shape[cuts[0]] != 1 or (*shape[: cuts[0]], *shape[cuts[0] + 1 :]) != tuple(x.shape):
        return None
    return whole, cuts[0], ranges[cuts[0]].start


def _fuse_swish(f: Function) -> None:
    """Replaces the product of an array and its sigmoid by `swish`, which is one pass and can fuse with a layer."""
    for x, gate in (f.inputs, f.inputs[::-1]):
        if gate.parent is not None and is_a(gate.parent, "Sigmoid") and gate.parent.inputs[0] == x:
            with context_of(f):
                f.outputs[0].rewire_on(F.swish(x))
            return


def _fuse_hard_swish(f: Function) -> None:
    """Replaces the product of an array and its hard gate, scaled or not, by `hard_swish`."""
    y, scale = f.outputs[0], 1.0
    product: Function | None = y.parent
    if product is not None and is_a(product, "MulScalar"):
        scale = product.args["val"]
        product = product.inputs[0].parent
    if product is None or not is_a(product, "Mul2"):
        return
    for x, gate in (product.inputs, product.inputs[::-1]):
        if _is_hard_swish_gate(x, gate, scale):
            with context_of(f):
                y.rewire_on(F.hard_swish(x))
            return


def _is_hard_swish_gate(x: Variable, gate: Variable, scale: float) -> bool:
    """True if `scale * gate` is the gate of `hard_swish` as a function of `x`."""
    steps: list[tuple[str, float]] = []
    while (f := gate.parent) is not None and f.name in _SCALAR_OPERATIONS and gate != x:
        steps.append((f.name, f.args["val"]))
        gate = f.inputs[0]
    bounds = sorted(name for name, _ in steps if name in ("MaximumScalar", "MinimumScalar"))
    if gate != x or bounds != ["MaximumScalar", "MinimumScalar"]:
        return False

    def at(number: float) -> float:
        """The value of the scaled gate at a number."""
        for name, val in reversed(steps):
            number = _SCALAR_OPERATIONS[name](number, val)
        return scale * number

    return all(abs(at(number) - wanted) < 1e-6 for number, wanted in _HARD_SWISH_GATE.items())


def _fuse_modulated_convolution(f: Function, left: Sequence[Function], kept: Container[Variable]) -> None:
    """Replaces a 1 x 1 convolution of channels scaled for each sample by `modulated_convolution`.

    It scales the weight instead of the input. This is done if the positions outnumber the output channels.
    """
    if not is_a(f, "Convolution"):
        return
    scaled, w, *rest = f.inputs
    product = scaled.parent
    if not is_a(product, "Mul2") or scaled in kept or w.size != prod(w.shape[:2]) or f.args["channel_last"]:
        return
    channels = f.args["base_axis"] + 1
    if set(scaled.function_references).intersection(left) != {f}:
        return
    for x, scale in (product.inputs, product.inputs[::-1]):
        is_by_channel = scale.shape == (*x.shape[:channels], *(1,) * (x.ndim - channels))
        if is_by_channel and w.shape[0] <= prod(x.shape[channels:]):
            # The first length is open, as graphs may get other batches.
            s = F.reshape(scale, (-1, *x.shape[1:channels]), inplace=scale.parent is not None)
            bias = rest[0] if rest else None
            f.outputs[0].rewire_on(F.modulated_convolution(x, w, s, bias, **f.args))
            return


def _absorb_transpose(f: Function) -> None:
    """Replaces transposed inputs of a matrix product by its arguments `transpose_a` and `transpose_b`."""
    (a, in_a), (b, in_b) = map(_source_of_transpose, f.inputs)
    if [a, b] != f.inputs:
        args = f.args
        with context_of(f):
            f.outputs[0].rewire_on(F.batch_matmul(a, b, args["transpose_a"] != in_a, args["transpose_b"] != in_b))


def _disable_training(f: Function) -> None:
    """Sets `training` of a recurrent network without dropout to False, so that it saves nothing for a gradient."""
    if f.args["training"] and not f.args["dropout"]:
        args = {**f.args, "training": False}
        with context_of(f):
            made = messages.call(f.name, f.inputs, args, len(f.outputs))
        for old, new in zip(f.outputs, made, strict=True):
            old.rewire_on(new)


def _source_of_transpose(x: Variable) -> tuple[Variable, bool]:
    """The array from which transposes of the last two axes make `x`, and whether `x` is its transpose."""
    last, changed = x.ndim - 1, False
    ends = [*range(last - 1), last, last - 1]
    while (f := x.parent) is not None and f.name == "Transpose" and list(f.args["axes"]) == ends:
        x, changed = f.inputs[0], not changed
    return x, changed


def _can_absorb(f: Function, layer: Function) -> bool:
    """True if a function is a batch normalization that can be merged into `layer`, whose only reader it is."""
    if not is_a(f, "BatchNormalization") or f.args["batch_stat"] or only_reader(layer) != f:
        return False
    y, args = layer.outputs[0], layer.args
    if is_a(layer, "Affine"):
        axis = args["base_axis"] if y.ndim == args["base_axis"] + 1 and layer.inputs[1].ndim == 2 else None
    elif is_a(layer, "Convolution"):
        axis = y.ndim - 1 if args["channel_last"] else args["base_axis"]
    else:
        return False
    return [k % y.ndim for k in f.args["axes"]] == [axis]
