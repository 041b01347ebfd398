"""Segments that keep their inputs only and are run again for the backward run: what `functions.forget` is made of."""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _core
from .._core import ArgumentError, CallError, GraphError, NdArray, PythonFunction, RecomputeError, ShapeError, Variable
from ..parameter import get_current_parameter_scope, parameter_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .._core import FunctionVariable

CHECKS = ("default", "none", "values")


def forget(func: Callable[..., Any], xs: Sequence[Any], preserve_rng_state: bool, determinism_check: str) -> Any:
    """Calls `func`, and keeps nothing of what it computes but its outputs."""
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
    """A variable as it is, anything else as the values of one."""
    if isinstance(x, Variable):
        return x
    if isinstance(x, NdArray):
        v = Variable(x.shape)
        v.data = x
        return v
    return Variable.from_numpy_array(x)


def packed(ys: Sequence[Variable]) -> Any:
    """One variable by itself, several as a tuple."""
    return ys[0] if len(ys) == 1 else tuple(ys)


def returned(result: Any) -> list[Variable]:
    """What a segment returned, as a list."""
    if isinstance(result, Variable):
        return [result]
    if not isinstance(result, tuple):
        raise GraphError(f"forget: A tuple of Variables or a Variable are expected, but {type(result)} is returned.")
    for n, y in enumerate(result, 1):
        if not isinstance(y, Variable):
            raise GraphError(f"forget: {ordinal(n)} element of a returned tuple is not Variable, but is {type(y)}")
    return list(result)


def ordinal(n: int) -> str:
    """`1st`, `2nd`, `11th`."""
    teens = n // 10 % 10 == 1
    return f"{n}{'th' if teens else {1: 'st', 2: 'nd', 3: 'rd'}.get(n % 10, 'th')}"


def marked(func: Callable[..., Any], xs: Sequence[Variable]) -> list[Variable]:
    """Builds the segment into a static graph, where dropping and computing again is the engine's own business."""
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

    Its inputs are those of `func`, and after them the variables from outside that `func` reads and that need a
    gradient: so the engine routes all gradients, and nothing is written on the side.
    """

    def __init__(self, func: Callable[..., Any], preserve_rng_state: bool, determinism_check: str) -> None:
        super().__init__()
        self.func = func
        self.preserve_rng_state = preserve_rng_state
        self.determinism_check = determinism_check
        self.context = _core.context_mode()
        self.scope = get_current_parameter_scope()
        self.drawn: list[tuple[int, int]] = []
        self.n_xs = 0
        self.hidden: list[Variable] = []
        self.facts: list[tuple[Any, ...]] = []
        self.shapes: list[tuple[int, ...]] = []
        self.computed = False

    def first(self, xs: Sequence[Variable]) -> list[Variable]:
        """Calls `func` for the first time, and makes a function of the graph of it."""
        since = _core.births()
        with without_graph() as notes, self.recording():
            ys = returned(self.func(*[leaf(x, False) for x in xs]))
        self.n_xs = len(xs)
        self.hidden = _core.taken_from_outside([*notes.read(), *ys], since, [])
        if not ys or not (self.hidden or any(x.need_grad for x in xs)):
            return [y.get_unlinked_variable(need_grad=False) for y in ys]
        # An output is an array of its own, also where `func` returns what it was given, or a view of it.
        own = [(notes.has_made(y) or _core.is_born_since(y, since)) and y.get_number_of_references == 1 for y in ys]
        ys = [y if alone else _core.functions.identity(y) for y, alone in zip(ys, own, strict=True)]
        self.facts = [self.fact(y) for y in ys]
        self.computed = True
        result = self(*xs, *self.hidden, outputs=[y.data for y in ys])
        return [result] if isinstance(result, Variable) else list(result)

    def fact(self, y: Variable) -> tuple[Any, ...]:
        """What must be the same of an output each time."""
        if self.determinism_check == "none":
            return (y.shape,)  # without which there is no place for the values
        values = (blake2b(y.d.tobytes(), digest_size=8).hexdigest(),) if self.determinism_check == "values" else ()
        return (y.shape, str(dtype_of(y)), *values)

    def check(self, ys: Sequence[Variable]) -> None:
        """Refuses a run that gave something else than the first."""
        if len(ys) != len(self.facts):
            raise RecomputeError(f"forget: expected {len(self.facts)} outputs as the first time, got {len(ys)}")
        for i, (y, first) in enumerate(zip(ys, self.facts, strict=True)):
            again = self.fact(y)
            for what, a, b in zip(("shape", "dtype", "values, of which the hash is"), first, again, strict=False):
                if a != b:
                    raise RecomputeError(f"forget: expected output {i} of {what} {a} as the first time, got {b}")

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Notes the random numbers that are drawn."""
        _core.record_random()
        try:
            yield
        finally:
            self.drawn = _core.recorded_random()

    @contextmanager
    def again(self, grad: bool, recompute: bool = True) -> Iterator[None]:
        """Everything as it was when the segment was first run: modes, scope of parameters, random numbers."""
        outer = (
            _core.set_recomputing(recompute),
            _core.set_grad_mode(grad),
            _core.scope_auto_forward(True),
            _core.scope_recompute(False),
            _core.scope_context(self.context),
        )
        left = _core.replay_random(self.drawn if recompute and self.preserve_rng_state else [])
        try:
            with parameter_scope("", self.scope):
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
        """Runs `func` again on `xs`, and differentiates what it built, up to its inputs and no further."""
        with self.again(grad=True):
            since = _core.births()
            ys = returned(self.func(*xs))
            self.check(ys)
            by = [v for v, w in zip([*xs, *self.hidden], wanted, strict=True) if w]
            roots = [(y, seed) for y, seed in zip(ys, seeds, strict=True) if y.need_grad]
            if not roots:
                return [None] * len(wanted)
            found = iter(
                _core.differentiate(
                    [y for y, _ in roots], [seed for _, seed in roots], by, create_graph, create_graph, True, since
                )
            )
        return [next(found) if w else None for w in wanted]

    def min_outputs(self) -> int:
        """As many as `func` returned."""
        return len(self.facts)

    def setup_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """Shapes are those of the first time."""
        shapes = [x.shape for x in inputs]
        self.shapes = self.shapes or shapes
        if shapes != self.shapes:
            raise ShapeError(f"forget: expected inputs of the shapes of its call, {self.shapes}, got {shapes}")
        for y, (shape, *_) in zip(outputs, self.facts, strict=True):
            y.reset_shape(shape, True)

    def forward_impl(self, inputs: list[FunctionVariable], outputs: list[FunctionVariable]) -> None:
        """The first time the outputs are there; later ones run `func` again."""
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
        """Hands on what the segment's own graph says."""
        xs = [leaf(x, w) for x, w in zip(inputs[: self.n_xs], propagate_down, strict=False)]
        seeds = []
        for y in outputs:
            seed = Variable(y.shape, need_grad=False)
            seed.data = y.grad
            seeds.append(seed)
        found = self.gradients(xs, seeds, propagate_down, create_graph=False)
        for x, g, add in zip(inputs, found, accum, strict=True):
            if g is None:
                continue
            # The gradient of an input that is not used has no type yet: that of the others must not change for it.
            kind = dtype_of(g) if is_written(g) else dtype_of(seeds[0])
            x.grad.cast(np.promote_types(x.g.dtype, kind) if add else kind)
            x.g = x.g + g.d if add else g.d

    def gradient_impl(
        self,
        inputs: Sequence[Variable],
        outputs: Sequence[Variable],
        grad_outputs: Sequence[Variable],
        propagate_down: Sequence[bool],
    ) -> list[Variable | None]:
        """The same on variables: the segment is connected to its inputs, so that gradients of gradients get there."""
        with self.again(grad=True):
            # Two inputs may be one variable: each gets an end of its own.
            ends = [_core.functions.identity(available(x)) for x in inputs[: self.n_xs]]
        return self.gradients(ends, grad_outputs, propagate_down, create_graph=True)

    def grad_depends_output_data(self, i: int, o: int) -> bool:
        """Outputs are not looked at."""
        return False

    def grad_depends_input_data(self, i: int, j: int) -> bool:
        """All inputs are needed to run again."""
        return True


def is_written(x: Variable) -> bool:
    """False if the values are zeros without a type, as of the gradient of an input that is not used."""
    try:
        return bool(x.data.dtype)
    except GraphError:
        return False


def dtype_of(x: Variable) -> Any:
    """The type of the values. Zeros without a type get one here."""
    return x.data.dtype if is_written(x) else x.d.dtype


@contextmanager
def without_graph() -> Iterator[_core.Notes]:
    """Functions are not kept, so that memory of values goes as soon as nobody holds them; what they read is noted."""
    notes, outer = _core.Notes(), _core.set_grad_mode(False)
    notes.swap()
    try:
        yield notes
    finally:
        notes.swap()
        _core.set_grad_mode(outer)


def available(x: Variable) -> Variable:
    """An input with values: one that is to be computed again is computed now."""
    if x.parent is not None and x.data.clear_called:
        x.forward()
    return x


def leaf(x: Variable | FunctionVariable, need_grad: bool) -> Variable:
    """A variable of its own on the values of an input."""
    v = Variable(x.shape, need_grad=need_grad)
    v.data = x.data
    return v
