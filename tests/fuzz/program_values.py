"""Steps that build, change and cut graphs, and steps that write or share arrays."""

from __future__ import annotations

import asyncio
import gc
import tempfile
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from programs import ANY, FLAG, MOST, SEEDS, numbers, step
from tape import FORGETS, FORMULAS, NAMES, SHARED, Memory, Node, Pair, tangled

import kinnor as nn
import kinnor.parametric_functions as PF

if TYPE_CHECKING:
    from collections.abc import Callable

    from programs import Program

FROZEN = (
    *("turned", "beside", "reshape", "correlated", "first_row", "centred", "picked", "replaced", "overwritten"),
    *FORGETS,
)
"""Operations that fit only the number of rows that they were built for."""


@step(seed=SEEDS, need_grad=[True, True, True, False], dtype=[np.float32, np.float64, np.float64, np.float16])
def leaf(p: Program, seed: int, need_grad: bool, dtype: Any) -> None:
    """Adds a leaf with random values."""
    if len(p.nodes) < MOST:
        value = numbers(seed, (p.rows, 3))
        x = p.add(nn.Variable.from_numpy_array(value.astype(dtype), need_grad=need_grad), Pair(value))
        x.need_grad = need_grad


@step(op=list(NAMES), a=ANY, b=ANY, c=ANY, marked=[False, False, False, True], at_once=[False, False, True])
def apply(p: Program, op: str, a: int, b: int, c: int, marked: bool, at_once: bool) -> None:
    """Applies an operation to nodes that fit."""
    inputs = [p.node(i) for i in (a, b, c)]
    if inputs[0] is None or len(p.nodes) >= MOST:
        return
    chosen = [x for x in inputs if x is not None and x.pair.data.value.shape == (p.rows, 3)][: FORMULAS[op].n_inputs]
    if len(chosen) < FORMULAS[op].n_inputs:
        return
    if any(np.abs(x.pair.data.value).max(initial=0) > 4 or not x.pair.data.known for x in chosen):
        op, chosen = "scaled", chosen[:1]
    if op == "turned" and p.rows == 1:
        op = "sin"
    build(p, op, chosen, lambda *xs: FORMULAS[op].build(*xs), marked, at_once)


@step(first=list(NAMES), then=list(NAMES), last=list(NAMES), a=ANY, b=ANY, at_once=[False, False, True])
def chain(p: Program, first: str, then: str, last: str, a: int, b: int, at_once: bool) -> None:
    """Adds a chain of functions. Only the last one has a handle."""
    before = len(p.nodes)
    for op, x in ((first, a), (then, 0), (last, 0)):
        n = len(p.nodes)
        apply(p, op, x, b, b, marked=False, at_once=at_once)
        if len(p.nodes) == n:
            break
    for n in p.nodes[before:-1]:
        if n.op is not None and not any(m is not n and m.pair is n.pair for m in p.nodes):
            with nn.auto_forward(at_once):
                n.variable = None


HELD = {
    "no_grad": nn.no_grad,
    "auto_forward": nn.auto_forward,
    "static": lambda: nn.auto_forward(False),
    "recompute": nn.recompute,
    "half": lambda: nn.context_scope(nn.Context(["cpu:half"])),
}
"""Scopes that one task is in while another task builds a function."""


@step(op=list(NAMES), a=ANY, b=ANY, at_once=FLAG, held=list(HELD), inside=FLAG)
def apply_beside(p: Program, op: str, a: int, b: int, at_once: bool, held: str, inside: bool) -> None:
    """Builds a function in a task while another task is in a scope, or has just left one."""

    async def holds() -> None:
        """Enters a scope and waits within it."""
        with HELD[held]():
            await asyncio.sleep(0)
            if inside:
                await asyncio.sleep(0)

    async def builds() -> None:
        """Builds the function while the other task is in its scope."""
        with nn.auto_forward(at_once):
            await asyncio.sleep(0)
            apply(p, op, a, b, b, marked=False, at_once=at_once)

    async def both() -> None:
        """Runs both tasks concurrently."""
        await asyncio.gather(holds(), builds())

    asyncio.run(both())


def build(p: Program, op: str, inputs: list[Node], f: Callable[..., Any], marked: bool, at_once: bool) -> None:
    """Adds the result of `f` on these inputs as a node, static or eager, perhaps marked for recomputation."""
    if tangled(inputs):
        return
    if at_once:
        for x in inputs:
            if not (x.pair.data.known and x.pair.data.sure):
                if x.op is None or not p.can_run(x):
                    return
                p.run(x)
        if not all(x.pair.data.sure for x in inputs):
            return
    with nn.auto_forward(at_once), nn.recompute(marked):
        y = f(*(x.variable for x in inputs))
    node = p.add(y, Pair(np.zeros(y.shape), False), op, inputs)
    node.recompute = marked
    if at_once:
        node.compute()
        if y.parent is None:
            node.op, node.inputs, node.need_grad, y.need_grad = None, (), False, False
        elif y.need_grad != node.wanted()[node]:
            node.seen = None  # a changed flag of another node takes effect in the next run
        node.kept = None
        if marked:
            node.pair.data.sure = False


@step(a=ANY, which=[0, 1], at_once=FLAG)
def dense(p: Program, a: int, which: int, at_once: bool) -> None:
    """Applies an affine layer. Layers may share parameters."""
    x = p.node(a)
    if x is None or x.pair.data.value.shape != (p.rows, 3) or len(p.nodes) >= MOST or not x.pair.data.known:
        return
    name = f"layer{which}"
    known = nn.get_parameters(grad_only=False)
    if f"{name}/affine/W" not in known:
        with nn.parameter_scope(name):
            PF.affine(x.variable, 3)
        for n in ("W", "b"):
            v = nn.get_parameters(grad_only=False)[f"{name}/affine/{n}"]
            value = numbers(which, v.shape)
            v.d = value
            w = p.add(v, Pair(value))
            w.need_grad = w.is_weight = True
            v.info = (name, n)
    parameters = [w for n in ("W", "b") for w in p.nodes if w.variable is not None and w.variable.info == (name, n)]

    def layer(h: nn.Variable, *_: Any) -> nn.Variable:
        """Applies the layer in its parameter scope."""
        with nn.parameter_scope(name):
            return PF.affine(h, 3)

    build(p, "weighed", [x, *parameters], layer, False, at_once)


@step(a=ANY, seed=SEEDS, way=["d", "data", "fill", "zero", "copy", "part", "inside", "float32"])
def write(p: Program, a: int, seed: int, way: str) -> None:
    """Writes new values to a leaf, in one of several ways."""
    x = p.leaf(a, True)
    if x is None:
        return
    v, m = x.variable, x.pair.data
    value = numbers(seed, m.value.shape)
    if m.root is not m and way != "part":
        way = "inside"  # a part of an array keeps the type of the whole
    if way in ("fill", "zero"):
        value = np.full(m.value.shape, 0.0 if way == "zero" else seed / 64)
        v.data.fill(seed / 64) if way == "fill" else v.data.zero()
    elif way == "copy":
        v.data.copy_from(nn.NdArray.from_numpy_array(value))
    elif way == "part":
        if not (m.known and m.sure):
            return
        v.data.narrow(0, 0, 1).data = value[:1].astype(v.data.dtype)
        m.root.version += 1  # a write through the library counts, also of the values that are there
        value = np.concatenate((value[:1], m.value[1:]))
    elif way == "inside":
        if not (m.known and m.sure):
            return
        v.d[-1] = value[-1]
        value = np.concatenate((m.value[:-1], value[-1:]))
    elif way == "data":
        v.data.data = value
    else:
        v.d = value.astype(np.float32) if way == "float32" else value
    if way not in ("inside", "part"):
        m.root.epoch = m.epoch = m.epoch + 1
        m.root.version += 1  # values written before may have another type now
    m.write(value)


@step(a=ANY)
def hold(p: Program, a: int) -> None:
    """Makes a NumPy view of a leaf, for later steps to read and write."""
    x = p.leaf(a)
    if x is not None and x.pair.data.known and x.pair.data.sure:
        p.views.append((x.variable.d, x.pair.data, x.pair.data.epoch))


@step(a=ANY)
def hold_gradient(p: Program, a: int) -> None:
    """Makes a NumPy view of a gradient. It must show what later runs add."""
    x = p.leaf(a, True)
    if x is not None and x.pair.grad.known and x.pair.grad.sure:
        if any(n.pair is x.pair and n.op is not None for n in p.sorted()):
            return  # a run under a budget may free the gradient of a result
        view = x.variable.g
        if view.dtype == p.dtype:
            p.views.append((view, x.pair.grad, x.pair.grad.epoch))


@step(i=ANY, seed=SEEDS, drop=FLAG)
def write_view(p: Program, i: int, seed: int, drop: bool) -> None:
    """Writes through a view that an earlier step made. Drops the view afterwards if `drop`."""
    if p.views:
        view, m, epoch = p.views[i % len(p.views)]
        if m.epoch == epoch == m.root.epoch and m.known and view.dtype.kind == "f":
            value = numbers(seed, m.value.shape)
            view[...] = value
            m.write(value)
        if drop:
            del p.views[i % len(p.views)]


@step(a=ANY, b=ANY)
def share(p: Program, a: int, b: int) -> None:
    """Makes two leaves share one array."""
    x, y = p.leaf(a), p.leaf(b)
    if x is None or y is None or x.pair.data.value.shape != y.pair.data.value.shape or x.pair is y.pair:
        return
    if any(y.pair.data.root is n.pair.data.root or x.pair is n.pair for n in p.sorted() if n.op is not None):
        return
    x.variable.data = y.variable.data
    x.pair.data = y.pair.data


@step(a=ANY, b=ANY)
def swap(p: Program, a: int, b: int) -> None:
    """Exchanges the arrays of two leaves."""
    x, y = p.leaf(a), p.leaf(b)
    if x is None or y is None or x.pair.data.value.shape != y.pair.data.value.shape or x.pair is y.pair:
        return
    if any(z.pair is n.pair for z in (x, y) for n in p.sorted() if n is not z):
        return
    x.variable.data, y.variable.data = y.variable.data, x.variable.data
    x.pair.data, y.pair.data = y.pair.data, x.pair.data


@step(a=ANY, b=ANY, seed=SEEDS)
def narrow(p: Program, a: int, b: int, seed: int) -> None:
    """Gives two leaves the two halves of one array."""
    x, y = p.leaf(a), p.leaf(b)
    shape = (p.rows, 3)
    if x is None or y is None or x.pair is y.pair or any(z.pair.data.value.shape != shape for z in (x, y)):
        return
    if any(z.pair is n.pair for z in (x, y) for n in p.sorted() if n.op is not None):
        return
    whole = Memory(numbers(seed, (2 * p.rows, 3)))
    array = nn.NdArray.from_numpy_array(whole.value.astype(p.dtype))
    for z, start in ((x, 0), (y, p.rows)):
        z.variable.data = array.narrow(0, start, p.rows)
        z.pair.data = Memory(whole.value[start : start + p.rows], part_of=whole)


@step(a=ANY, need_grad=FLAG)
def unlink(p: Program, a: int, need_grad: bool) -> None:
    """Adds an unlinked copy of a node."""
    x = p.node(a)
    # Hooks on a gradient are called for all variables that share it.
    if x is not None and len(p.nodes) < MOST and x.op not in SHARED and not x.hooks:
        u = p.add(x.variable.get_unlinked_variable(need_grad=need_grad), x.pair)
        u.need_grad, u.is_weight = need_grad, True


@step(a=ANY)
def copy(p: Program, a: int) -> None:
    """Adds a deep copy of a node."""
    x = p.node(a)
    if x is not None and len(p.nodes) < MOST and x.pair.data.known and x.pair.data.sure and x.pair.grad.known:
        y = x.variable.create_deep_copy()
        c = p.add(y, Pair(x.pair.data.value))
        c.pair.grad.write(x.pair.grad.value)
        wanted = x.need_grad
        c.need_grad = bool(y.need_grad) if wanted is None else wanted
        y.need_grad = c.need_grad
        c.is_weight = x.is_weight


@step(a=ANY, dtype=[np.float32, np.float64])
def cast(p: Program, a: int, dtype: Any) -> None:
    """Casts a leaf to another type."""
    x = p.leaf(a)
    if x is not None and x.pair.data.known and x.pair.data.root is x.pair.data:
        m = x.pair.data
        x.variable.data.cast(dtype)
        m.epoch += 1
        m.root.version += 1  # the cast array can be written to
        if dtype is np.float32:
            p.rtol = 3e-4
            m.write(m.value.astype(np.float32))


@step(a=ANY, seed=SEEDS)
def clear(p: Program, a: int, seed: int) -> None:
    """Clears a leaf, checks that it reads as NaN, and writes new values."""
    x = p.leaf(a)
    if (
        x is None
        or x.pair.data.root is not x.pair.data
        or any(x.pair.data is r.pair.data.root for r in p.nodes if r.pair.data.root is not r.pair.data)
    ):
        return
    if any(x.pair is n.pair for n in p.sorted() if n.op is not None):
        return
    try:
        x.variable.data.clear()
    except nn.GraphError:
        return
    x.pair.data.epoch += 1
    assert np.isnan(x.variable.d).all()
    x.pair.data.write(np.nan)
    write(p, 0, seed, "d") if p.leaf(0, True) is x else None
    if not np.isfinite(x.pair.data.value).all():
        value = numbers(seed, x.pair.data.value.shape)
        x.variable.d = value
        x.pair.data.epoch += 1
        x.pair.data.write(value)


@step(rows=[1, 2, 4, 401])
def resize(p: Program, rows: int) -> None:
    """Changes the number of rows of the leaves.

    Dependent nodes follow in the next run, or are refused and can recover.
    """
    leaves = [n for n in p.sorted() if n.op is None and n.pair.data.value.shape == (p.rows, 3)]
    if rows == p.rows or any(n.variable is None or n.is_weight for n in p.sorted() if n.op is None and n in leaves):
        return
    for n in leaves:
        if n.pair.data.root is not n.pair.data:
            try:
                n.variable.reset_shape((rows, 3), True)
            except nn.GraphError:
                return
            raise AssertionError("a part was resized")
    old, refused = p.rows, False
    for rows_ in (rows, old):
        reshape(p, leaves, rows_)
        for r in p.nodes:
            if r.op is None or r.variable is None:
                continue
            try:
                r.variable.forward()
            except (nn.Error, ValueError):
                assert rows_ != old and any(n.op in FROZEN for n in r.above())
                refused = True
            else:
                p.record_forward([r]) if not any(n.op in FROZEN for n in r.above()) or rows_ == old else p.stopped([r])
        if not refused and not any(n.op in FROZEN for n in p.sorted()):
            break


def reshape(p: Program, leaves: list[Node], rows: int) -> None:
    """Resizes leaves that have arrays of their own."""
    p.rows = rows
    for i, n in enumerate({n.pair: n for n in leaves}.values()):
        n.variable.reset_shape((rows, 3), True)
        value = numbers(i, (rows, 3))
        n.variable.d = value
        n.pair.data.epoch += 1
        n.pair.data, n.pair.grad = Memory(value), Memory(np.zeros((rows, 3)))
    for n in p.sorted():
        if n.op is not None:
            n.seen = None
            n.pair.data, n.pair.grad = Memory(np.zeros((rows, 3)), False), Memory(np.zeros((rows, 3)), False)


@step(a=ANY, b=ANY, shape=[(1,), (5, 3), (2, 2, 2), (300, 3)], clear_buffer=FLAG)
def reset(p: Program, a: int, b: int, shape: tuple[int, ...], clear_buffer: bool) -> None:
    """Changes the shape of a computed variable. Backward is then refused, and forward restores the shape."""
    x = p.computed(a)
    if x is None or any(n is not x and (n.pair is x.pair or n.pair.data.root is x.pair.data.root) for n in p.sorted()):
        return
    below = [r for r in p.nodes if r.variable is not None and r.op is not None and x in r.above()]
    r = below[b % len(below)]
    if not p.can_run(r) or x.variable.shape == shape:
        return
    p.run_if_needed(r)
    wanted = r.wanted()
    passed = [n for n in r.gradients(np.zeros(r.pair.data.value.shape)) if any(wanted[i] for i in n.inputs)]
    goes_through = any(x is n or (x in n.inputs and wanted[x]) for n in passed)
    try:
        x.variable.reset_shape(shape, True)
    except nn.GraphError:
        return  # parts of an array keep their shapes
    x.pair.data.forget()
    x.pair.grad.forget()
    p.unknown_gradients(r)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            r.variable.backward(clear_buffer=clear_buffer)
        except (nn.GraphError, nn.ClearedError, nn.ShapeError):
            pass
        else:
            assert not goes_through, "backward through an array of another shape"
    p.record_freed(r, True)
    p.run(r)
    assert x.variable.shape == x.pair.data.value.shape


@step(a=ANY, b=ANY)
def rewire(p: Program, a: int, b: int) -> None:
    """Replaces the function of `a` with the function of an unused node `b`."""
    x, y = p.node(a), p.computed(b)
    if x is None or y is None or x is y or x.is_weight or x in y.above():
        return
    if any(y in n.inputs or (n is not y and n.pair is y.pair) or (n is not x and n.pair is x.pair) for n in p.sorted()):
        return
    if x.pair.data.value.shape != y.pair.data.value.shape or any(
        x.pair.data.root is n.pair.data.root for n in p.sorted() if n is not x
    ):
        return
    if any(n.op in SHARED for n in p.sorted()):
        return
    if any(x in n.above() and tangled([n, y]) for n in p.sorted()):
        return
    p.views = [v for v in p.views if v[1] is not x.pair.data]
    x.variable.rewire_on(y.variable)
    p.nodes.remove(y)
    x.op, x.inputs, x.pair, x.need_grad, x.seen, x.hooks = y.op, y.inputs, y.pair, y.need_grad, None, y.hooks
    x.recompute = x.variable.recompute
    for n in p.sorted():
        if x in n.inputs:
            n.seen = None


@step(a=ANY)
def cut(p: Program, a: int) -> None:
    """Turns a computed node into a leaf."""
    x = p.computed(a)
    if x is None or not (x.pair.data.known and x.pair.data.sure) or x.op in SHARED:
        return
    if any(n is not x and n.pair is x.pair for n in p.sorted()):
        return
    x.variable.parent = None
    x.op, x.inputs, x.seen = None, (), None
    x.hooks = []  # its hooks stay with the function
    x.need_grad = x.variable.need_grad = False
    for n in p.sorted():
        n.seen = None  # the next run decides which nodes take part in differentiation


@step(a=ANY, need_grad=[True, False])
def flag(p: Program, a: int, need_grad: bool) -> None:
    """Sets `need_grad` of a node."""
    x = p.node(a)
    if x is not None and not x.is_weight:
        x.need_grad = x.variable.need_grad = need_grad
        for n in p.sorted():
            n.seen = None


@step(a=ANY, persistent=FLAG)
def keep(p: Program, a: int, persistent: bool) -> None:
    """Sets `persistent` of a node."""
    x = p.node(a)
    if x is not None:
        x.persistent = x.variable.persistent = persistent


@step(a=ANY, recompute=FLAG)
def mark(p: Program, a: int, recompute: bool) -> None:
    """Sets `recompute` of a node."""
    x = p.computed(a)
    if x is not None:
        x.recompute = x.variable.recompute = recompute
        for n in p.sorted():
            n.kept = frozenset()


@step(a=ANY, at_once=FLAG)
def let_go(p: Program, a: int, at_once: bool) -> None:
    """Drops the Python handle of a node. Its function stays alive while other nodes depend on it."""
    x = p.computed(a)
    if x is not None and not any(n is not x and n.pair is x.pair for n in p.nodes):
        with nn.auto_forward(at_once):
            x.variable = None
        p.nodes = [n for n in p.nodes if n is not x or any(n in m.inputs for m in p.sorted())]


@step(seed=SEEDS, kind=["safetensors", "h5", "protobuf"])
def save_and_load(p: Program, seed: int, kind: str) -> None:
    """Saves parameters to a file, changes them, and loads them again."""
    weights = [n for n in p.nodes if n.is_weight and n.variable is not None and n.variable.info is not None]
    weights = [w for w in weights if w.pair.data.known and w.pair.data.sure]
    if not weights or any(not w.pair.data.sure for w in p.nodes if w.is_weight):
        return
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/parameters.{kind}"
        nn.save_parameters(path)
        for w in weights:
            w.variable.d = numbers(seed, w.pair.data.value.shape)
        nn.load_parameters(path)
    for w in weights:
        w.pair.data.root.epoch = w.pair.data.epoch = w.pair.data.epoch + 1
        w.pair.data.root.version += 1


@step(cache=FLAG)
def collect(p: Program, cache: bool) -> None:
    """Runs the garbage collector. Clears the memory cache too if `cache`."""
    gc.collect(0)
    if cache:
        nn.clear_memory_cache()
