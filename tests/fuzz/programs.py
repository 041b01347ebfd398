"""Random programs on graphs, compared with a record of the expected values in `tape.py`.

A program is a list of steps with arguments. `STEPS` lists all steps with the possible values of their arguments.
The steps are in `program_values.py` and `program_runs.py`. This module does not choose the steps. A step that
does not apply does nothing.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
from support import DOUBLE
from tape import FORGETS, SHARED, Memory, Node, Pair

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Step = Callable[..., None]

STEPS: dict[str, tuple[Step, dict[str, list[Any]]]] = {}
"""Steps by name: the function, and the possible values of its arguments."""
ANY = list(range(12))
"""Choices of a node or a leaf, counted from the newest."""
SEEDS = list(range(50))
"""Seeds of random values."""
FLAG = [False, True]
"""Choices of a flag."""
CLEARS = [{}, {}, {"clear_no_need_grad": True}, {"clear_buffer": True}]
"""Choices of the arguments of a forward run."""
MOST = 30
"""Maximum number of nodes of a program."""


class Thrown(Exception):
    """Raised by hooks of a program."""


def step(**arguments: list[Any]) -> Callable[[Step], Step]:
    """Decorator: registers a step with the possible values of its arguments."""

    def add(f: Step) -> Step:
        """Adds the function to `STEPS`."""
        STEPS[f.__name__] = (f, arguments)
        return f

    return add


@functools.cache
def kept_numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Returns multiples of 1/256 between -1 and 1, always the same array for a seed and a shape."""
    return np.random.RandomState(seed).randint(-256, 257, shape) / 256


def numbers(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Returns numbers between -1 and 1 that are exact in every floating-point type."""
    return kept_numbers(seed, shape).copy()


class Program:
    """Variables of the library and their nodes on the tape."""

    def __init__(self, double: bool, plain: bool) -> None:
        """Begins an empty program in double or single precision, with plain or optimized plans."""
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
        """Restores all global state."""
        nn.config.plan = "optimised"
        nn.clear_parameters()

    def do(self, name: str, **arguments: Any) -> None:
        """Runs a step by name."""
        with nn.context_scope(self.context):
            STEPS[name][0](self, **arguments)

    # Choosing nodes.

    def node(self, i: int) -> Node | None:
        """Returns the node number `i`, counted from the newest. None if there are none."""
        held = [n for n in self.nodes if n.variable is not None]
        return held[-1 - i % len(held)] if held else None

    def computed(self, i: int) -> Node | None:
        """Like `node`, among computed nodes."""
        held = [n for n in self.nodes if n.variable is not None and n.op is not None]
        return held[-1 - i % len(held)] if held else None

    def leaf(self, i: int, weights: bool = False) -> Node | None:
        """Like `node`, among leaves."""
        held = [n for n in self.nodes if n.op is None and n.variable is not None and (weights or not n.is_weight)]
        return held[-1 - i % len(held)] if held else None

    # Recording on the tape.

    def agrees(self, got: Any, expected: np.ndarray, what: str, largest: float = 1.0) -> None:
        """Asserts that values agree within the tolerance of the program. `largest` is the largest magnitude that was
        added to them: gradients of leaves in single precision are sums that round by its share.
        """
        most = np.abs(expected).max(initial=max(largest, 1.0))
        if got.shape == expected.shape and np.abs(got - expected).max(initial=0.0) <= self.rtol * 0.3 * most:
            return  # fast path: the full comparison takes a tenth of the run time
        np.testing.assert_allclose(got, expected, self.rtol, self.rtol * 0.3 * most, err_msg=what)

    def sorted(self) -> list[Node]:
        """Returns all nodes, inputs first."""
        return list({n: None for node in self.nodes for n in node.above()})

    def unsure(self, of: Iterable[Node], kept: frozenset[Node] | None, clearing: bool) -> None:
        """Records that the values of the nodes `of` may have been cleared, except for the nodes `kept`."""
        for n in of:
            n.kept = kept
            if n.op in SHARED:
                continue
            if clearing or n.recompute:
                n.pair.data.sure &= n.persistent

    def record_forward(
        self,
        roots: list[Node],
        clear_buffer: bool = False,
        clear_no_need_grad: bool = False,
        budgeted: bool = False,
    ) -> None:
        """Records in the tape what a forward run of `roots` computes and clears."""
        above = list({n: None for r in roots for n in r.functions()})
        for n in above:
            n.compute()
            n.budgeted = budgeted
        clearing = clear_buffer or clear_no_need_grad
        kept = frozenset() if clear_buffer else frozenset(roots) if clearing else None
        self.unsure(above, kept, clearing)
        for r in roots:
            r.pair.data.sure = True

    def stopped(self, roots: list[Node]) -> None:
        """Records in the tape that a run of `roots` was interrupted: its values are unknown."""
        for n in {n: None for r in roots for n in r.functions()}:
            n.kept, n.seen = frozenset(), None
            if n.op not in SHARED:
                n.pair.data.forget()

    def record_backward(self, root: Node, start: np.ndarray, clear_buffer: bool) -> None:
        """Records in the tape the gradients that a backward run from `root` adds, and what it clears."""
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
        self.record_freed(root, clear_buffer)
        root.pair.grad.forget()

    def record_freed(self, root: Node, clearing: bool) -> None:
        """Records the values that a backward run may have freed, including inputs of recomputed nodes."""
        above = list(root.functions())
        if clearing or any(n.recompute or n.op in FORGETS for n in above):  # `F.forget` marks its functions
            self.unsure([n for n in above if n is not root], frozenset() if clearing else root.kept, True)
        for n in above:
            if n is not root and n.budgeted and n.op not in SHARED:
                n.pair.data.sure &= n.persistent
        if clearing:
            root.kept = frozenset()

    def unknown_gradients(self, root: Node) -> None:
        """Marks all gradients above `root` as unknown."""
        for n in root.above():
            n.pair.grad.forget()

    def add(self, variable: nn.Variable, pair: Pair, op: str | None = None, inputs: Iterable[Node] = ()) -> Node:
        """Adds a node."""
        node = Node(variable, pair, op, tuple(inputs))
        self.nodes.append(node)
        return node

    # Checking.

    def check(self, how: str) -> None:
        """Compares all readable values: through NumPy views if `how` is "eyes", else by a function, which leaves no
        view.
        """
        with nn.context_scope(self.context):
            for view, memory, epoch in self.views:
                if memory.known and memory.epoch == epoch:
                    self.agrees(view, memory.value, "a view", memory.largest)
            if how == "nothing":
                return
            for i, n in enumerate(self.nodes):
                if n.variable is not None:
                    self.look(n.variable.data, n.pair.data, how, f"values of {i}: {n.op}")
                    if how == "eyes":
                        self.look(n.variable.grad, n.pair.grad, how, f"gradient of {i}: {n.op}")

    def look(self, array: nn.NdArray, memory: Memory, how: str, what: str) -> None:
        """Compares one array of the library with its record."""
        try:
            got = np.array(array.data if how == "eyes" else F.identity(array).data)
        except nn.ClearedError:
            assert not memory.sure, f"{what} are cleared"
            return
        except nn.NotComputedError:
            assert not memory.value.any(), f"{what} are said not to be computed"
            return
        if memory.known:
            self.agrees(got, memory.value, what, memory.largest)

    # Running.

    def run(self, root: Node, **how: Any) -> None:
        """Runs forward. The run must succeed."""
        assert root.variable is not None
        root.variable.forward(**how)
        self.record_forward([root], **how)

    def add_to_zeros(self, root: Node) -> None:
        """Zeroes the gradients of leaves that may have been cleared, so that a backward run adds to zeros.

        An unlinked copy shares the gradient of its original.
        """
        for x in root.leaves():
            if x.variable is not None and not x.pair.grad.sure:
                x.variable.grad.zero()
                x.pair.grad.zero()

    def run_if_needed(self, root: Node) -> None:
        """Runs forward unless the values allow a backward run already."""
        if not root.is_ready():
            self.run(root)

    def can_run(self, *roots: Node | None) -> bool:
        """True if all leaves of these nodes have known values."""
        return all(r is not None and all(x.pair.data.known and x.pair.data.sure for x in r.leaves()) for r in roots)
