"""Steps that run graphs: forward and backward in every mode, differentiation, solvers, hooks, budgets, threads."""

from __future__ import annotations

import contextlib
import threading
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from programs import ANY, CLEARS, FLAG, SEEDS, Thrown, numbers, step
from support import DOUBLE
from tape import FORMULAS, SHARED, UNARY, tangled

import kinnor as nn
import kinnor.functions as F
import kinnor.solvers as S
from kinnor import autodiff

if TYPE_CHECKING:
    from collections.abc import Callable

    from programs import Program
    from tape import Node


@step(a=ANY, how=CLEARS, mode=["eyes", "kernel"])
def forward(p: Program, a: int, how: dict[str, bool], mode: str) -> None:
    """Runs a node forward and checks its value."""
    r = p.computed(a)
    if p.can_run(r):
        p.run(r, **how)
        p.look(r.variable.data, r.pair.data, mode, "the result")


@step(a=ANY, b=ANY, how=CLEARS)
def forward_all(p: Program, a: int, b: int, how: dict[str, bool]) -> None:
    """Runs two nodes forward together."""
    r, s = p.computed(a), p.computed(b)
    if p.can_run(r, s) and not tangled([r, s]):
        nn.forward_all([r.variable, s.variable], **how)
        p.record_forward([r, s], **how)


@step(a=ANY, clear_buffer=FLAG, seed=SEEDS, start=["one", "array", "own"], zero=FLAG)
def backward(p: Program, a: int, clear_buffer: bool, seed: int, start: str, zero: bool) -> None:
    """Runs backward from a node. The run must be exact if all values are known to be there, else exact or refused."""
    r = p.computed(a)
    if r is None or not p.can_run(r):
        return
    shape = r.pair.data.value.shape
    if start == "own" and not (r.pair.grad.known and r.pair.grad.sure):
        start = "array"
    g = {"one": np.ones(shape), "array": numbers(seed, shape), "own": r.pair.grad.value.copy()}[start]
    if g.shape != shape:
        return
    if zero:
        for x in r.leaves():
            if x.variable is not None:
                x.variable.grad.zero()
                x.pair.grad.zero()
    given = {"one": 1, "array": nn.NdArray.from_numpy_array(g), "own": None}[start]
    ready, fresh = r.is_ready(), r.is_fresh()
    with warnings.catch_warnings():
        if not ready:
            warnings.simplefilter("ignore")
        try:
            r.variable.backward(given, clear_buffer=clear_buffer)
        except (nn.ClearedError, nn.GraphError, nn.ShapeError):
            assert not ready
            p.unknown_gradients(r)
            p.record_freed(r, True)
            forget_restored(r)
            return
    if fresh:
        p.record_backward(r, g, clear_buffer or not ready)
    else:
        p.unknown_gradients(r)
        p.record_freed(r, True)
        forget_restored(r)


def forget_restored(r: Node) -> None:
    """Marks values as unknown that were cleared, and that a run may have recomputed from changed leaves."""
    for n in r.functions():
        n.pair.data.forget() if n.op not in SHARED and (n.recompute or not n.pair.data.sure) else None


@step(a=ANY, how=CLEARS[:3], clear_buffer=FLAG, times=[1, 2, 3])
def train(p: Program, a: int, how: dict[str, bool], clear_buffer: bool, times: int) -> None:
    """Runs training steps: forward, zeroed gradients, backward."""
    r = p.computed(a)
    for _ in range(times):
        if p.can_run(r):
            p.run(r, **how)
            p.add_to_zeros(r)
            assert r.is_ready()
            shape = r.pair.data.value.shape
            r.variable.backward(clear_buffer=clear_buffer)
            p.record_backward(r, np.ones(shape), clear_buffer)


@step(a=ANY, b=ANY, how=CLEARS[:3], clear_buffer=FLAG)
def train_both(p: Program, a: int, b: int, how: dict[str, bool], clear_buffer: bool) -> None:
    """Runs two graphs forward together, then backward one after the other. They may share nodes."""
    r, s = p.computed(a), p.computed(b)
    if r is s or not p.can_run(r, s) or tangled([r, s]):
        return
    nn.forward_all([r.variable, s.variable], **how)
    p.record_forward([r, s], **how)
    for root, clear in ((r, False), (s, clear_buffer)):
        p.add_to_zeros(root)
        root.variable.backward(clear_buffer=clear)
        p.record_backward(root, np.ones(root.pair.data.value.shape), clear)


@step(a=ANY)
def zero_gradient(p: Program, a: int) -> None:
    """Zeroes the gradient of a leaf."""
    x = p.leaf(a, True)
    if x is not None:
        x.variable.grad.zero()
        x.pair.grad.zero()


def adam(g: np.ndarray) -> np.ndarray:
    """Returns the first update of Adam with learning rate 1."""
    rate = np.sqrt(1 - 0.999) / (1 - 0.9)
    return rate * (1 - 0.9) * g / (np.sqrt((1 - 0.999) * g * g) + 1e-8)


SOLVERS = {
    "Sgd": (S.Sgd, lambda g: g),
    "Momentum": (S.Momentum, lambda g: g),
    "Adam": (lambda lr: S.Adam(alpha=lr), adam),
}
"""By name: makes a solver of a learning rate, and the first update by it as a function of the gradient."""


@step(a=ANY, lr=[0.1, 0.5], over=[0, 1, 2, 3], kind=list(SOLVERS), decay=[0.0, 0.0, 0.25])
def update(p: Program, a: int, lr: float, over: int, kind: str, decay: float) -> None:
    """Runs the first update of a solver, with or without weight decay."""
    chosen: dict[Any, Node] = {}
    for i in range(over + 1):
        x = p.leaf(a + i, True)
        if x is not None and x.pair.data.known and x.pair.data.sure and x.pair.grad.known and x.pair.grad.sure:
            # Half precision rounds by more than the tolerance. So does Adam where gradients are tiny.
            slope = x.pair.grad.value + decay * x.pair.data.value
            large = kind != "Adam" or not (np.abs(slope) < 1e-3).any()
            # A zero gradient may count as no gradient.
            some = not decay or x.pair.grad.value.any()
            if x.variable.dtype != np.float16 and large and some:
                chosen[x.pair] = x
    if not chosen:
        return
    make, formula = SOLVERS[kind]
    solver = make(lr)
    solver.set_parameters({str(i): x.variable for i, x in enumerate(chosen.values())})
    if decay:
        solver.weight_decay(decay)
        for x in chosen.values():
            x.pair.grad.write(x.pair.grad.value + decay * x.pair.data.value)
    solver.update()
    for x in chosen.values():
        m = x.pair.data
        m.root.version += 1
        if np.float32 in (written_type(x.variable.data), written_type(x.variable.grad)):
            p.rtol = 3e-4  # the new values, or the sum with the decay, are rounded in any context
        if np.any(x.pair.grad.value):
            m.write(m.value - lr * formula(x.pair.grad.value))


def written_type(array: nn.NdArray) -> Any:
    """The type of the elements, or None if the array has no memory."""
    with contextlib.suppress(nn.GraphError):
        return array.dtype
    return None


@step(a=ANY, retain=FLAG, forward_first=[True, True, False])
def autodiff_backward(p: Program, a: int, retain: bool, forward_first: bool) -> None:
    """Differentiates by `autodiff.backward`, which adds to the gradients of the leaves."""
    r = p.computed(a)
    if not p.can_run(r) or not r.wanted()[r]:
        return
    if forward_first:
        p.run_if_needed(r)
        p.add_to_zeros(r)
        # All values must exist then, except the gradient of a leaf without a handle.
        assert r.is_ready() or not all(x.pair.grad.sure for x in r.leaves())
    wanted = r.wanted()
    ends = [n for n in r.above() if wanted[n] and not any(wanted[x] for x in n.inputs)]
    ready, fresh = r.is_ready() and all(n.pair.grad.sure for n in ends), r.is_fresh()
    start = np.ones(r.pair.data.value.shape)
    try:
        autodiff.backward(r.variable, nn.NdArray.from_numpy_array(start), retain_graph=retain)
    except (nn.ClearedError, nn.GraphError, nn.ShapeError, autodiff.ModifiedError, autodiff.GraphFreedError):
        assert not ready
        p.record_freed(r, True)
        forget_restored(r)
        return
    found = r.gradients(start)
    if not fresh:
        forget_restored(r)
    for n in r.above():
        if n.op is not None:
            # The next run decides which of them are leaves.
            if not fresh or not any(wanted[x] for x in n.inputs):
                n.pair.grad.forget()
        elif n in found and n.pair.grad.known:
            n.pair.grad.write(n.pair.grad.value + found[n]) if fresh else n.pair.grad.forget()
    p.record_freed(r, not retain)


@step(a=ANY, b=ANY, create_graph=FLAG)
def autodiff_grad(p: Program, a: int, b: int, create_graph: bool) -> None:
    """Differentiates by `autodiff.grad`, perhaps with a graph, and checks the result."""
    r = p.computed(a)
    if not p.can_run(r) or not r.wanted()[r] or (create_graph and any(n.op == "users" for n in r.above())):
        return
    wanted = r.wanted()
    above = [n for n in r.above() if n.variable is not None and wanted[n] and n is not r and not n.is_weight]
    if not above:
        return
    p.run_if_needed(r)
    x = above[b % len(above)]
    if sum(n.pair is x.pair for n in r.above()) > 1:
        return
    start = np.ones(r.pair.data.value.shape)
    (g,) = autodiff.grad(
        r.variable,
        [x.variable],
        [nn.NdArray.from_numpy_array(start)],
        create_graph=create_graph,
        retain_graph=True,
        allow_unused=True,
    )
    expected = r.gradients(start).get(x, np.zeros_like(x.pair.data.value))
    p.record_freed(r, False)
    if g is None:
        assert not expected.any()
    else:
        p.agrees(g.d, expected, "gradient by autodiff")


DERIVED = [name for name in UNARY if name not in ("relu", "users")]
"""Operations with a second derivative."""
PRODUCTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "value_and_grad": lambda f, x, v: autodiff.value_and_grad(lambda x: F.sum(f(x) * v))(x)[1],
    "vjp": lambda f, x, v: autodiff.vjp(f, x, v)[1],
    "create_graph": lambda f, x, v: autodiff.vjp(f, x, v, create_graph=True)[1],
    "jacobian": lambda f, x, v: F.reshape(autodiff.jacobian(lambda x: F.sum(f(x) * v), x), x.shape),
    "grad": lambda f, x, v: by_grad(f, x, v),
}
"""Ways to the product of the Jacobian of a function with a vector."""


def by_grad(f: Callable[[Any], Any], x: Any, v: Any) -> Any:
    """Returns the gradient of `sum(f(x) * v)` by `x`, from `autodiff.grad` in eager mode."""
    with nn.auto_forward(), autodiff.enable_grad():
        x = F.identity(x) if x.requires_grad else nn.Variable.from_numpy_array(x.d, need_grad=True)
        return autodiff.grad(F.sum(f(x) * v), [x], materialize_grads=True)[0]


@step(op=DERIVED, inner=list(PRODUCTS), outer=[*PRODUCTS, "jvp"], seed=SEEDS)
def derive_twice(p: Program, op: str, inner: str, outer: str, seed: int) -> None:
    """Compares a nested derivative with a difference quotient of the tape's derivatives."""
    value, weights, along = (numbers(s, (3, 3)) for s in (seed, seed + 50, seed + 100))
    x, w, v = map(nn.Variable.from_numpy_array, (value, weights, along))
    formula = FORMULAS[op]

    def first(x: Any) -> Any:
        """Returns the inner derivative at `x`."""
        return PRODUCTS[inner](formula.build, x, w)

    with nn.context_scope(DOUBLE):
        if outer == "jvp":
            _, found = autodiff.jvp(first, x, v)
        elif outer == "grad":
            found = by_grad(lambda x: autodiff.vjp(formula.build, x, w, create_graph=True)[1], x, v)
        else:
            found = PRODUCTS[outer](first, x, v)
        up, down = (formula.backward(weights, value + e * along)[0] for e in (1e-5, -1e-5))
        np.testing.assert_allclose(found.d, (up - down) / 2e-5, 1e-5, 1e-7, err_msg=f"{outer} of {inner} of {op}")


@step(a=ANY, b=ANY, how=CLEARS, seed=SEEDS)
def graph_grad(p: Program, a: int, b: int, how: dict[str, bool], seed: int) -> None:
    """Builds the graph of a gradient by `nn.grad`. Runs it before and after a leaf changes."""
    r = p.computed(a)
    if not p.can_run(r):
        return
    wanted = r.wanted()
    above = [n for n in r.above() if n.variable is not None and wanted[n] and n is not r and not n.is_weight]
    if not above or not wanted[r] or any(n.op in ("unlink", "users") for n in r.above()):
        return
    x = above[b % len(above)]
    if sum(n.pair is x.pair for n in r.above()) > 1:
        return
    p.run(r)
    found = nn.grad([r.variable], [x.variable])
    r.persistent = True
    for _ in range(2):
        expected = r.gradients(np.ones(r.pair.data.value.shape), False).get(x, np.zeros_like(x.pair.data.value))
        nn.forward_all(found, **how)
        p.agrees(found[0].d, expected, "gradient as a graph")
        p.unsure(r.functions(), frozenset(), True)
        leaf = next(r.leaves())
        if leaf.variable is not None and leaf.pair.data.root is leaf.pair.data:
            value = numbers(seed, leaf.pair.data.value.shape)
            leaf.variable.d = value
            leaf.pair.data.root.epoch = leaf.pair.data.epoch = leaf.pair.data.epoch + 1
            leaf.pair.data.root.version += 1  # values written before may have another type now
            leaf.pair.data.write(value)
        for n in r.functions():
            n.compute()
            n.pair.data.sure = False
    del found
    p.run(r)


@step(a=ANY, at=list(range(16)), run=["forward", "backward", "both"], when=["pre", "post"])
def throw(p: Program, a: int, at: int, run: str, when: str) -> None:
    """Runs with a hook that raises at function number `at`, if there is one."""
    r = p.computed(a)
    if not p.can_run(r):
        return
    left = [at]

    def hook(_: Any) -> None:
        """A hook that raises after a number of calls."""
        if left[0] == 0:
            raise Thrown
        left[0] -= 1

    if run != "backward":
        try:
            r.variable.forward(**{f"function_{when}_hook": hook})
            p.record_forward([r])
        except Thrown:
            p.stopped([r])
            p.run(r)
    if run != "forward":
        p.run_if_needed(r)
        p.add_to_zeros(r)
        try:
            r.variable.backward(**{f"function_{when}_hook": hook})
            p.record_backward(r, np.ones(r.pair.data.value.shape), False)
        except Thrown:
            p.unknown_gradients(r)
            for n in r.functions():
                n.kept = frozenset()
            p.run(r)


@step(a=ANY, factor=[2.0, -0.5])
def hook_gradient(p: Program, a: int, factor: float) -> None:
    """Registers a hook that multiplies a gradient by `factor`."""
    x = p.node(a)
    if x is None or any(n is not x and n.pair is x.pair for n in p.sorted()):
        return
    # Changed flags of other nodes take effect in the next run.
    with contextlib.suppress(RuntimeError):
        handle = x.variable.register_hook(lambda g: g * factor)
        x.hooks.append((handle, factor)) if x.wanted()[x] else handle.remove()


@step(a=ANY, which=[0, 1])
def unhook_gradient(p: Program, a: int, which: int) -> None:
    """Removes a hook on a gradient."""
    hooked = [n for n in p.sorted() if n.hooks]
    if hooked:
        x = hooked[a % len(hooked)]
        handle, _ = x.hooks.pop(-which)
        handle.remove()


@step(a=ANY, b=ANY, by=["Variable", "autodiff", "grad"])
def throw_on_gradient(p: Program, a: int, b: int, by: str) -> None:
    """Differentiates with a gradient hook that raises. Afterwards `autodiff` must have changed no gradient."""
    r = p.computed(a)
    if not p.can_run(r) or not r.wanted()[r] or not any(r.wanted()[x] for x in r.inputs):
        return
    p.run_if_needed(r)
    p.add_to_zeros(r)
    above = [n for n in r.gradients(np.zeros(r.pair.data.value.shape)) if n.variable is not None]
    x = above[b % len(above)]
    if any(n is not x and n.pair is x.pair for n in p.sorted()):
        return

    def hook(_: Any) -> None:
        """A gradient hook that raises."""
        raise Thrown

    handle = x.variable.register_hook(hook)
    try:
        if by == "Variable":
            r.variable.backward()
        elif by == "autodiff":
            autodiff.backward(r.variable, nn.NdArray.from_numpy_array(np.ones(r.variable.shape)))
        else:
            autodiff.grad(r.variable, [x.variable], [nn.NdArray.from_numpy_array(np.ones(r.variable.shape))])
    except Thrown:
        pass
    else:
        raise AssertionError("a hook did not throw")
    finally:
        handle.remove()
    if by == "Variable":
        p.unknown_gradients(r)
    for n in r.functions():
        n.kept = frozenset()
    p.record_freed(r, True)
    p.run(r)


@step(a=ANY, budget=["least", "ample", "none"])
def budgeted(p: Program, a: int, budget: str) -> None:
    """Runs forward and backward without a memory budget, with an ample one, or with the least one."""
    r = p.computed(a)
    if not p.can_run(r):
        return
    amount = {"none": None, "ample": 1 << 30, "least": 1}[budget]
    try:
        r.variable.forward(memory_budget=amount)
    except nn.BudgetError as error:
        r.variable.forward(memory_budget=error.least)
    p.record_forward([r], clear_no_need_grad=budget != "none", budgeted=budget != "none")
    p.add_to_zeros(r)
    r.variable.backward()
    p.record_backward(r, np.ones(r.pair.data.value.shape), budget != "none")


@step(seed=SEEDS, a=ANY)
def beside(p: Program, seed: int, a: int) -> None:
    """Runs a node forward and backward while another thread trains a graph of its own."""
    r = p.computed(a)
    value = numbers(seed, (50, 3))
    found: list[Any] = []

    def other() -> None:
        """Trains a graph of its own in another thread."""
        x = nn.Variable.from_numpy_array(value, need_grad=True)
        y = F.sum(F.tanh(x) ** 2)
        for _ in range(3):
            x.grad.zero()
            y.forward(clear_no_need_grad=True)
            y.backward(clear_buffer=True)
        found.append(x.g.copy())

    thread = threading.Thread(target=other)
    thread.start()
    if p.can_run(r):
        p.run(r)
    thread.join()
    np.testing.assert_allclose(found[0], 2 * np.tanh(value) * (1 - np.tanh(value) ** 2), 1e-4, 1e-5)


@step(a=ANY, b=ANY, how=CLEARS, times=[1, 3])
def together(p: Program, a: int, b: int, how: dict[str, bool], times: int) -> None:
    """Runs two graphs in two threads at the same time. They may share nodes. Each must be right or refused."""
    r, s = p.computed(a), p.computed(b)
    if not p.can_run(r, s) or tangled([r, s]):
        return
    errors: list[BaseException] = []

    def other() -> None:
        """Runs the second graph in another thread."""
        with nn.context_scope(p.context):
            for _ in range(times):
                try:
                    s.variable.forward(**how)
                except BaseException as e:
                    errors.append(e)

    thread = threading.Thread(target=other)
    thread.start()
    for _ in range(times):
        try:
            r.variable.forward(**how)
        except nn.Error as e:
            errors.append(e)
    thread.join()
    assert all(isinstance(e, (nn.GraphError, nn.ClearedError)) for e in errors), errors
    p.stopped([r, s])
    p.run(r)
    p.run(s, **how)


@step(a=ANY, seed=SEEDS, backward=FLAG)
def inside(p: Program, a: int, seed: int, backward: bool) -> None:
    """Runs with hooks that run and differentiate an eager graph of their own."""
    r = p.computed(a)
    if not p.can_run(r):
        return
    value = numbers(seed, (2, 2))

    def hook(_: Any) -> None:
        """A hook that runs and differentiates an eager graph."""
        x = nn.Variable.from_numpy_array(value, need_grad=True)
        with nn.auto_forward():
            y = F.sum(F.sin(x) * 2.0)
        p.agrees(y.d, 2 * np.sin(value).sum(), "within a hook")
        y.backward()
        p.agrees(x.g, 2 * np.cos(value), "gradient within a hook")

    r.variable.forward(function_post_hook=hook)
    p.record_forward([r])
    if backward:
        p.add_to_zeros(r)
        r.variable.backward(function_pre_hook=hook)
        p.record_backward(r, np.ones(r.pair.data.value.shape), False)
