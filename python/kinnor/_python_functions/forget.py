"""Activation checkpointing, the implementation of `functions.forget`.

A *segment* is the part of a graph that `func` builds. Only its inputs and outputs are saved.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .._core import ArgumentError, CallError, GraphError, NdArray, PythonFunction, RecomputeError, ShapeError, Variable
from ..modes import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .._core import FunctionVariable

CHECKS = ("default", "none", "values")
"""Values of `determinism_check`."""


def forget(func: Callable[..., Any], xs: Sequence[Any], preserve_rng_state: bool, determinism_check: str) -> Any:
    """Calls `func` and saves only its outputs; see `functions.forget`."""
    if not callable(func):
        raise CallError(f"forget: func must be callable, got {type(func).__name__}")
    if determinism_check not in CHECKS:
        raise ArgumentError(f"forget: expected `determinism_check` to be one of {CHECKS}, got {determinism_check!r}")
    variables = [as_variable(x) for x in xs]
    if not _core.auto_forward_mode():
        return packed(marked(func, variables))
    if not _core.grad_mode():
        return packed(returned(func(*variables)))
    return packed(Forget(func, preserve_rng_state, determinism_check).first(variables))


def as_variable(x: Any) -> Variable:
    """The argument as a variable. NdArrays share their memory, other values are copied."""
    if isinstance(x, Variable):
        return x
    if isinstance(x, NdArray):
        v = Variable(x.shape)
        v.data = x
        return v
    return Variable.from_numpy_array(x)


def packed(ys: Sequence[Variable]) -> Any:
    """A single variable, or a tuple of several."""
    return ys[0] if len(ys) == 1 else tuple(ys)


def returned(result: Any) -> list[Variable]:
    """The result of a segment as a checked list of variables."""
    if isinstance(result, Variable):
        return [result]
    if not isinstance(result, tuple):
        raise GraphError(f"forget: A tuple of Variables or a Variable are expected, but {type(result)} is returned.")
    for n, y in enumerate(result, 1):
        if not isinstance(y, Variable):
            raise GraphError(f"forget: {ordinal(n)} element of a returned tuple is not Variable, but is {type(y)}")
    return list(result)


def ordinal(n: int) -> str:
    """An ordinal number: `1st`, `2nd`, `11th`."""
    teens = n // 10 % 10 == 1
    return f"{n}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def marked(func: Callable[..., Any], xs: Sequence[Variable]) -> list[Variable]:
    """Builds the segment into a static graph, and marks its inner variables for recomputation by the engine."""
    outside, since = _core.recompute_mode(), _core.births()
    outer = _core.scope_recompute(True)
    try:
        ys = returned(func(*xs))
    finally:
        _core.scope_recompute(outer)
    for y in ys:
        if _core.is_born_since(y, since):
            y.recompute = outside
    return ys


class Forget(PythonFunction):
    """A segment as one function of the graph.

    Its inputs are the arguments of `func`, followed by the outer variables that `func` reads and that need a gradient.
    So the engine propagates all gradients.
    """

    def __init__(self, func: Callable[..., Any], preserve_rng_state: bool, determinism_check: str) -> None:
        super().__init__()
        self.func = func
        self.preserve_rng_state = preserve_rng_state
        self.determinism_check = determinism_check
        self.context = _core.context_mode()
        self.surroundings = [capture() for capture in surroundings]
        self.drawn: list[tuple[int, int]] = []
        self.n_xs = 0
        self.hidden: list[Variable] = []
        self.facts: list[tuple[Any, ...]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.computed = False

    def first(self, xs: Sequence[Variable]) -> list[Variable]:
        """Calls `func` for the first time, and adds the segment to the graph. Returns its outputs."""
        since = _core.births()
        with without_graph() as notes, self.recording():
            ys = returned(self.func(*[leaf(x, False) for x in xs]))
        self.n_xs = len(xs)
        self.hidden = _core.taken_from_outside([*notes.read(), *ys], since, [])
        if not ys or not (self.hidden or any(x.need_grad for x in xs)):
            return [y.get_unlinked_variable(need_grad=False) for y in ys]
        # Each output needs its own array, even if `func` returns an argument or a view of it.
        own = [(notes.has_made(y) or _core.is_born_since(y, since)) and y.get_number_of_references == 1 for y in ys]
        ys = [y if alone else _core.functions.identity(y) for y, alone in zip(ys, own, strict=True)]
        self.facts = [self.fact(y) for y in ys]
        self.computed = True
        result = self(*xs, *self.hidden, outputs=[y.data for y in ys])
        return [result] if isinstance(result, Variable) else list(result)

    def fact(self, y: Variable) -> tuple[Any, ...]:
        """The properties of an output that must be equal in each call."""
        if self.determinism_check == "none":
            return (y.shape,)  # always needed, to store the values
        values = (blake2b(y.d.tobytes(), digest_size=8).hexdigest(),) if self.determinism_check == "values" else ()
        return (y.shape, str(dtype_of(y)), *values)

    def check(self, ys: Sequence[Variable]) -> None:
        """Raises RecomputeError if outputs differ from the first call."""
        if len(ys) != len(self.facts):
            raise RecomputeError(f"forget: expected {len(self.facts)} outputs as the first time, got {len(ys)}")
        for i, (y, first) in enumerate(zip(ys, self.facts, strict=True)):
            again = self.fact(y)
            for what, a, b in zip(("shape", "dtype", "values, of which the hash is"), first, again, strict=False):
                if a != b:
                    raise RecomputeError(f"forget: expected output {i} of {what} {a} as the first time, got {b}")

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Records the random draws in a `with` block."""
        _core.record_random()
        try:
            yield
        finally:
            self.drawn = _core.recorded_random()

    @contextmanager
    def again(self, grad: bool, recompute: bool = True) -> Iterator[None]:
        """Restores modes, parameter scope and random draws of the first call, for a `with` block."""
        outer = (
            _core.set_recomputing(recompute),
            _core.set_grad_mode(grad),
            _core.scope_auto_forward(True),
            _core.scope_recompute(False),
            _core.scope_context(self.context),
        )
        left = _core.replay_random(self.drawn if recompute and self.preserve_rng_state else [])
        try:
            with ExitStack() as stack:
                for restore in self.surroundings:
                    stack.enter_context(restore())
                yield
        finally:
            _core.replay_random(left)
            _core.set_recomputing(outer[0])
            _core.set_grad_mode(outer[1])
            _core.scope_auto_forward(outer[2])
            _core.scope_recompute(outer[3])
            _core.scope_context(outer[4])

    def gradients(
        self, xs: Sequence[Variable], seeds: Sequence[Variable], wanted: Sequence[bool], create_graph: bool
    ) -> list[Variable | None]:
        """Runs `func` again on `xs`. Returns the gradients of its inputs, or None for unwanted ones.

        With `create_graph` the gradients run eagerly only if the caller runs functions eagerly. Seeds in a static graph
        may have no values yet.
        """
        eager = not create_graph or _core.auto_forward_mode()
        with self.again(grad=True):
            since = _core.births()
            ys = returned(self.func(*xs))
            self.check(ys)
            by = [v for v, w in zip([*xs, *self.hidden], wanted, strict=True) if w]
            roots = [(y, seed) for y, seed in zip(ys, seeds, strict=True) if y.need_grad]
            if not roots:
                return [None] * len(wanted)
            ends, starts = [y for y, _ in roots], [seed for _, seed in roots]
            if eager:
                found = iter(_core.differentiate(ends, starts, by, create_graph, create_graph, True, since))
            else:
                _core.scope_auto_forward(False)
                found = iter(_core.grad_graph(ends, by, starts))
        return [next(found) if w else None for w in wanted]

    def min_outputs(self) -> int:
        """The number of outputs of `func`."""
        return len(self.facts)

    def setup_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Sets the shapes of the first call."""
        shapes = [x.shape for x in inputs]
        self.shapes = self.shapes or shapes
        if shapes != self.shapes:
            raise ShapeError(f"forget: expected inputs of the shapes of its call, {self.shapes}, got {shapes}")
        for y, (shape, *_) in zip(outputs, self.facts, strict=True):
            y.reset_shape(shape, True)

    def forward_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Does nothing in the first run, as the outputs exist. Later runs call `func` again."""
        if self.computed:
            self.computed = False
            return
        recomputing = _core.in_recomputing()
        xs = [leaf(x, False) for x in inputs[: self.n_xs]]
        with self.again(grad=False, recompute=recomputing), without_graph():
            if recomputing:
                ys = returned(self.func(*xs))
            else:
                with self.recording():
                    ys = returned(self.func(*xs))
        if recomputing:
            self.check(ys)
        for y, new in zip(outputs, ys, strict=True):
            y.data.cast(dtype_of(new))
            y.d = new.d

    def backward_impl(
        self,
        inputs: list[FunctionVariable],
        outputs: list[FunctionVariable],
        propagate_down: list[bool],
        accum: list[bool],
    ) -> None:
        """Recomputes the segment, and adds the gradients of its inputs."""
        xs = [leaf(x, w) for x, w in zip(inputs[: self.n_xs], propagate_down, strict=False)]
        seeds = []
        for y in outputs:
            seed = Variable(y.shape, need_grad=False)
            seed.data = y.grad
            seeds.append(seed)
        found = self.gradients(xs, seeds, propagate_down, create_graph=False)
        # The gradient of an unused input has no type yet. It gets the type of the others.
        kinds = [dtype_of(g) for g in found if g is not None and is_written(g)] or [dtype_of(seeds[0])]
        for x, g, add in zip(inputs, found, accum, strict=True):
            if g is None or (add and not is_written(g)):
                continue  # zeros change nothing, and must not change the type of a sum
            kind = dtype_of(g) if is_written(g) else kinds[0]
            x.grad.cast(np.promote_types(x.g.dtype, kind) if add else kind)
            x.g = x.g + g.d if add else g.d

    def gradient_impl(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        grad_outputs: Sequence[Variable],
        propagate_down: Sequence[bool],
    ) -> list[Variable | None]:
        """The gradients as variables. The recomputed segment is connected to the inputs, for higher derivatives."""
        with self.again(grad=True):
            # Two inputs may be the same variable, so each gets its own copy.
            ends = [_core.functions.identity(available(x)) for x in inputs[: self.n_xs]]
        return self.gradients(ends, grad_outputs, propagate_down, create_graph=True)

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """False: gradients do not read outputs."""
        return False

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """True: the segment is recomputed from its inputs."""
        return True


def is_written(x: Variable) -> bool:
    """False if the values are zeros without a type, such as the gradient of an unused input."""
    try:
        return bool(x.data.dtype)
    except GraphError:
        return False


def dtype_of(x: Variable) -> Any:
    """The element type of a variable's values. Zeros without a type get one."""
    return x.data.dtype if is_written(x) else x.d.dtype


@contextmanager
def without_graph() -> Iterator[_core.Notes]:
    """Runs functions without a graph in a `with` block, so that values are freed early. Records what they read."""
    notes, outer = _core.Notes(), _core.set_grad_mode(False)
    notes.swap()
    try:
        yield notes
    finally:
        notes.swap()
        _core.set_grad_mode(outer)


def available(x: Variable) -> Variable:
    """An input with its values. Evicted values are recomputed."""
    if x.parent is not None and x.data.clear_called:
        x.forward()
    return x


def leaf(x: Variable | FunctionVariable, need_grad: bool) -> Variable:
    """A new leaf that shares the values of an input."""
    v = Variable(x.shape, need_grad=need_grad)
    v.data = x.data
    return v
