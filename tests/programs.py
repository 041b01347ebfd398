"""Programs that do to graphs whatever a program can, held against a tape: `tape.py` says what there should be.

A program is a list of steps with their arguments, which `STEPS` names with all that they may be. They are in
`program_values.py` and `program_runs.py`. Who chooses is not known here. A step that does not fit does nothing.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from bed import DOUBLE
from tape import FORGETS, SHARED, Memory, Node, Pair

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Step = Callable[..., None]

STEPS: dict[str, tuple[Step, dict[str, list[Any]]]] = {}
ANY = list(range(12))
"""Which node of those that there are, or which leaf."""
SEEDS = list(range(50))
FLAG = [False, True]
CLEARS = [{}, {}, {"clear_no_need_grad": True}, {"clear_buffer": True}]
MOST = 30
"""Nodes of a program."""


class Thrown(Exception):
    """What hooks of a program raise."""


def step(**arguments: list[Any]) -> Callable[[Step], Step]:
    """Names a step with what its arguments may be."""

    def add(f: Step) -> Step:
        STEPS[f.__name__] = (f, arguments)
        return f

    return add


@functools.cache
def kept_numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    return np.random.RandomState(seed).randint(-256, 257, shape) / 256


def numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Between -1 and 1, and exact in each type of floating point."""
    return kept_numbers(seed, shape).copy()


class Program:
    """Variables and the tape beside them."""

    def __init__(self, double: bool, plain: bool) -> None:
        self.context = DOUBLE if double else nn.Context(["cpu:float"])
        self.rtol = 1e-6 if double else 3e-4
        self.dtype = np.float64 if double else np.float32
        self.nodes: list[Node] = []
        self.views: list[tuple[np.ndarray, Memory, int]] = []
        self.rows = 2
        self.weights = 0
        nn.config.plan = "plain" if plain else "optimised"
        nn.clear_parameters()

    def close(self) -> None:
        """Leaves no trace."""
        nn.config.plan = "optimised"
        nn.clear_parameters()

    def do(self, name: str, **arguments: Any) -> None:
        """A step."""
        with nn.context_scope(self.context):
            STEPS[name][0](self, **arguments)

    # Choosing.

    def node(self, i: int) -> Node | None:
        held = [n for n in self.nodes if n.variable is not None]
        return held[-1 - i % len(held)] if held else None

    def computed(self, i: int) -> Node | None:
        held = [n for n in self.nodes if n.variable is not None and n.op is not None]
        return held[-1 - i % len(held)] if held else None

    def leaf(self, i: int, weights: bool = False) -> Node | None:
        held = [n for n in self.nodes if n.op is None and n.variable is not None and (weights or not n.is_weight)]
        return held[-1 - i % len(held)] if held else None

    # The tape.

    def agrees(self, got: Any, expected: np.ndarray, what: str) -> None:
        most = np.abs(expected).max(initial=1.0)
        if got.shape == expected.shape and np.abs(got - expected).max(initial=0.0) <= self.rtol * 0.3 * most:
            return  # as nearly always: a comparison that takes a tenth of the time
        np.testing.assert_allclose(got, expected, self.rtol, self.rtol * 0.3 * most, err_msg=what)

    def sorted(self) -> list[Node]:
        return list({n: None for node in self.nodes for n in node.above()})

    def unsure(self, of: Iterable[Node], kept: frozenset[Node] | None, clearing: bool) -> None:
        """After a run: what may have been cleared."""
        for n in of:
            n.kept = kept
            if n.op in SHARED:
                continue
            if clearing or n.recompute:
                n.pair.data.sure &= n.persistent

    def ran(self, roots: list[Node], clear_buffer: bool = False, clear_no_need_grad: bool = False) -> None:
        """A forward run, on the tape."""
        above = list({n: None for r in roots for n in r.functions()})
        for n in above:
            n.compute()
        clearing = clear_buffer or clear_no_need_grad
        kept = frozenset() if clear_buffer else frozenset(roots) if clearing else None
        self.unsure(above, kept, clearing)
        for r in roots:
            r.pair.data.sure = True

    def stopped(self, roots: list[Node]) -> None:
        """A run that did not come to its end."""
        for n in {n: None for r in roots for n in r.functions()}:
            n.kept, n.seen = frozenset(), None
            if n.op not in SHARED:
                n.pair.data.forget()

    def went_back(self, root: Node, start: np.ndarray, clear_buffer: bool) -> None:
        """A backward run, on the tape."""
        for n, g in root.gradients(start).items():
            if n.op is None:
                n.pair.grad.write(n.pair.grad.value + g) if n.pair.grad.known else None
            elif n is not root:
                n.pair.grad.write(g)
                n.pair.grad.known = not clear_buffer and n.op not in SHARED
                n.pair.grad.sure = n.pair.grad.known
        for n in root.functions():
            shares = n.op in SHARED
            for x in n.inputs if shares else ():
                if x.op is not None:
                    x.pair.grad.forget()
        self.spent(root, clear_buffer)
        root.pair.grad.forget()

    def spent(self, root: Node, clearing: bool) -> None:
        """What a backward run may have given back. Values on the way to those that are computed again go as well."""
        above = list(root.functions())
        if clearing or any(n.recompute or n.op in FORGETS for n in above):  # what `F.forget` builds is marked
            self.unsure([n for n in above if n is not root], frozenset() if clearing else root.kept, True)
        if clearing:
            root.kept = frozenset()

    def unknown_gradients(self, root: Node) -> None:
        for n in root.above():
            n.pair.grad.forget()

    def add(self, variable: nn.Variable, pair: Pair, op: str | None = None, inputs: Iterable[Node] = ()) -> Node:
        node = Node(variable, pair, op, tuple(inputs))
        self.nodes.append(node)
        return node

    # Looking.

    def check(self, how: str) -> None:
        """Compares all that can be read: by Python's eyes, or by a function of the array, which leaves no view."""
        with nn.context_scope(self.context):
            for view, memory, epoch in self.views:
                if memory.known and memory.epoch == epoch:
                    self.agrees(view, memory.value, "a view")
            if how == "nothing":
                return
            for i, n in enumerate(self.nodes):
                if n.variable is not None:
                    self.look(n.variable.data, n.pair.data, how, f"values of {i}: {n.op}")
                    if how == "eyes":
                        self.look(n.variable.grad, n.pair.grad, how, f"gradient of {i}: {n.op}")

    def look(self, array: nn.NdArray, memory: Memory, how: str, what: str) -> None:
        try:
            got = np.array(array.data if how == "eyes" else F.identity(array).data)
        except nn.ClearedError:
            assert not memory.sure, f"{what} are cleared"
            return
        if memory.known:
            self.agrees(got, memory.value, what)

    # Running.

    def run(self, root: Node, **how: Any) -> None:
        """A forward run that has to succeed."""
        assert root.variable is not None
        root.variable.forward(**how)
        self.ran([root], **how)

    def add_to_zeros(self, root: Node) -> None:
        """Gives leaves a gradient to add to where it may be cleared: an unlinked copy has that of its original."""
        for x in root.leaves():
            if x.variable is not None and not x.pair.grad.sure:
                x.variable.grad.zero()
                x.pair.grad.zero()

    def settle(self, root: Node) -> None:
        """Runs forward unless a gradient could be computed as it is."""
        if not root.is_ready():
            self.run(root)

    def can_run(self, *roots: Node | None) -> bool:
        return all(r is not None and all(x.pair.data.known and x.pair.data.sure for x in r.leaves()) for r in roots)
