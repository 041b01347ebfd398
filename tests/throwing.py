"""Throws arguments at everything that can be called, in a process of its own so that a crash is seen.

Run as `python throwing.py KIND EXAMPLES SEED PATH`; before each call it is written to PATH. KIND is a key of `TARGETS`.
"""

from __future__ import annotations

import copy
import mmap
import operator
import resource
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from cases import all_rows
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

import kinnor as nn
import kinnor.functions as F
from kinnor import _core

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Choose = Callable[[Sequence[Any]], Any]

EXPECTED = (
    TypeError,
    ValueError,
    RuntimeError,
    IndexError,
    KeyError,
    AttributeError,
    AssertionError,
    MemoryError,
    NotImplementedError,
    OverflowError,
    OSError,
    DeprecationWarning,
)
MEMORY = 2 << 30
ROWS: dict[str, list[Any]] = {}
for _row in all_rows():
    ROWS.setdefault(_row.name, []).append(_row)

NUMBERS = [0, 1, -1, 2, 3, -3, 7, 0.5, -0.5, 1e-300, 1e308, float("nan"), float("inf"), -float("inf"), True, False]
HUGE = [10**6, 10**10, 2**31, 2**32 + 1, 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, 10**30, -(10**30), 10**400]
SEQUENCES = [
    (), (0,), (1,), (-1,), (2,), (1, 2), (0, 0), (2, 2), (3, 3), (1, 1, 1), (2, 3), (3, -1), (-1, -1), (0, 1, 2), (2, 0, 1),
    (1, 1), (2, 1, 2, 1), (5, 5), (1,) * 10, (1,) * 40, (2,) * 70, (2**40, 2**40), (2**62, 2**62), (2**62, 4), (-(2**63),),
    (2**63 - 1,), (2**31, 2**31, 0), (10**6, 10**6), (10**400,), [1, 2], [0.5, 1.5], [None], ["a"], [[1]], range(2), (True, False), (None, 1),
]  # fmt: skip
ODD = ["", "x", "reflect", "repeat", "constant", "nearest", "\0", "é", b"x", {}, {"a": 1}, {1, 2}, object(), len, int, 1j, ..., slice(None)]
SHAPES = [
    (), (0,), (1,), (3,), (2, 3), (3, 2), (3, 3), (2, 3, 4), (2, 1), (1, 3), (0, 3), (3, 0), (2, 2, 5, 5), (3, 2, 3, 3), (4, 2, 3),
    (1, 2, 3, 4, 5), (2,) * 6, (1,) * 12, (2, 2), (1, 1, 1, 1),
]  # fmt: skip
DTYPES = [np.float32, np.float64, np.int64, np.int32, np.uint8, np.bool_, np.float16]
FILLS = ["count", "zero", "one", "negative", "nan", "inf", "huge"]


def filled(shape: tuple[int, ...], dtype: Any, how: str) -> np.ndarray:
    """An array with usual or bad numbers."""
    n = int(np.prod(shape))
    x = {
        "count": np.arange(n) % 5,
        "zero": np.zeros(n),
        "one": np.ones(n),
        "negative": -np.arange(1, n + 1),
        "nan": np.full(n, np.nan),
        "inf": np.full(n, -np.inf),
        "huge": np.full(n, 1e18),
    }[how]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return x.astype(dtype).reshape(shape)


def numpy_array(choose: Choose) -> np.ndarray:
    return filled(choose(SHAPES), choose(DTYPES), choose(FILLS))


def variable(choose: Choose) -> Any:
    """A variable in one of the states that one can be in."""
    kind = choose(["leaf", "leaf", "leaf", "array", "result", "forwarded", "cleared", "empty", "narrow"])
    if kind == "empty":
        return nn.Variable(choose(SHAPES), need_grad=choose([True, False, None]))
    a = numpy_array(choose)
    if kind == "array":
        return nn.NdArray.from_numpy_array(a)
    if kind == "narrow":
        return nn.NdArray.from_numpy_array(np.zeros((4, 3), np.float32)).narrow(0, 1, 2)
    x = nn.Variable.from_numpy_array(a, need_grad=choose([True, False, None]))
    if kind == "cleared":
        x.data.clear()
    if kind in ("result", "forwarded"):
        x = F.identity(x)
    if kind == "forwarded":
        x.forward()
    return x


def anything(choose: Choose) -> Any:
    """An argument of any kind."""
    kind = choose(["number", "number", "sequence", "sequence", "none", "huge", "odd", "variable", "array", "numpy"])
    if kind == "variable":
        return variable(choose)
    if kind == "array":
        return numpy_array(choose)
    if kind == "numpy":
        return choose([np.int64(2), np.float32(1.5), np.bool_(True), np.array(3), np.float64("nan"), np.array([1, 0])])
    return choose({"number": NUMBERS, "sequence": SEQUENCES, "huge": HUGE, "odd": ODD, "none": [None]}[kind])


class Offence(Exception):
    """What a call may not do."""


class Throw:
    """Makes calls, and says when one does not end as calls should."""

    def __init__(self, path: Path) -> None:
        path.write_bytes(b" " * 8192)
        with path.open("r+b") as file:
            self.note = mmap.mmap(file.fileno(), 8192)

    def __call__(self, what: str, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """The result of a call, or None when it was refused."""
        text = f"{what}({', '.join([*map(shown, args), *(f'{k}={shown(v)}' for k, v in kwargs.items())])})"
        self.note[:] = text.encode()[:8192].ljust(8192)
        before = [(a, state(a)) for a in (*args, *kwargs.values()) if isinstance(a, (nn.Variable, nn.NdArray))]
        try:
            return f(*args, **kwargs)
        except BaseException as e:
            if not isinstance(e, EXPECTED):
                raise Offence(f"{text}: raised {type(e).__mro__}: {e}") from e
            if "internal error" in str(e) or "panicked" in str(e):
                raise Offence(f"{text}: {e}") from e
            for a, old in before:
                if old is not None and not np.array_equal(old, state(a), equal_nan=True):
                    raise Offence(f"{text}: changed {a!r}, being refused: {e}") from e
            return None


def state(x: Any) -> np.ndarray | None:
    """The values, which a refused call leaves as they were; none where they are cleared."""
    data = x.data if isinstance(x, nn.Variable) else x
    if data.clear_called:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.array(data.data, np.float32)


def shown(x: Any) -> str:
    """An argument as a message shows it."""
    if isinstance(x, (nn.Variable, nn.NdArray, np.ndarray)):
        kind = "" if isinstance(x, np.ndarray) else f", cleared={(x.data if isinstance(x, nn.Variable) else x).clear_called}"
        return f"{type(x).__name__}({x.shape}{kind})"
    return repr(x)[:200]


def follow(throw: Throw, what: str, y: Any) -> None:
    """Runs what came out of a call: forward, backward, the gradient as a graph."""
    for y_ in y if isinstance(y, tuple) else (y,):
        if isinstance(y_, nn.Variable) and y_.size < 10**6:
            if y_.parent is not None:
                throw(f"forward of {what}", y_.forward, True)
                throw(f"forward of {what}", y_.forward)
                throw(f"backward of {what}", y_.backward)
                x = [x for x in y_.parent.inputs if x.need_grad]
                g = throw(f"grad of {what}", nn.grad, [y_], x) if x else None
                if g:
                    throw(f"forward of grad of {what}", nn.forward_all, g)


def functions(throw: Throw, choose: Choose) -> None:
    """A registered operation with operands and arguments that need not fit."""
    name, _, inputs, args, _ = choose(_core.declarations())
    operands, given = choose([spoiled, made_up])(name, inputs, args, choose)
    if choose([False] * 9 + [True]):
        given[choose(["outputs", "n_outputs", "x", "nonsense"])] = anything(choose)
    with nn.auto_forward(choose([False, False, True])):
        y = throw(f"F.{name}", getattr(F, name), *operands, **given)
    follow(throw, name, y)


def made_up(name: str, inputs: Any, args: Any, choose: Choose) -> tuple[list[Any], dict[str, Any]]:
    """Operands and arguments that have nothing to do with each other."""
    wild = choose([False, False, True])
    operands = []
    for _, kind in inputs:
        for _ in range(choose([1, 2, 3]) if kind == "list" else 1):
            absent = kind == "optional" and choose([True, False])
            operands.append(None if absent else anything(choose) if wild else variable(choose))
    given = {}
    for arg, _, annotation, default in args:
        if default is None or choose([True, False]):
            given[arg] = anything(choose) if choose([True, False, False]) else fitting(annotation, choose)
    return operands, given


def spoiled(name: str, inputs: Any, args: Any, choose: Choose) -> tuple[list[Any], dict[str, Any]]:
    """A row of the table of operations with a thing or two changed."""
    row = choose(ROWS.get(name, [None]))
    if row is None:
        return made_up(name, inputs, args, choose)
    arrays = list(row.inputs)
    given = dict(row.args)
    for _ in range(choose([1, 1, 2])):
        what = choose(["operand", "values", "argument", "argument"])
        if what == "argument" and args:
            arg, _, annotation, _ = choose(args)
            given[arg] = fitting(annotation, choose)
        elif arrays:
            at = choose(range(len(arrays)))
            if what == "operand" or not isinstance(arrays[at], np.ndarray):
                arrays[at] = variable(choose)
            else:
                arrays[at] = filled(arrays[at].shape, choose(DTYPES), choose(FILLS))
    need_grad = choose([True, False])
    return [nn.Variable.from_numpy_array(a, need_grad=need_grad) if isinstance(a, np.ndarray) else a for a in arrays], given


def fitting(annotation: str, choose: Choose) -> Any:
    """A value of the type that a declaration asks for, not often a sensible one."""
    if "None" in annotation and choose([True, False, False]):
        return None
    if annotation.startswith("bool"):
        return choose([True, False])
    if annotation.startswith("str"):
        return choose(["constant", "reflect", "repeat", "nearest", ""])
    if "Sequence" in annotation:
        return choose(SEQUENCES)
    if annotation.startswith("int"):
        return choose([0, 1, 2, -1, 3, *HUGE[:8]])
    return choose(NUMBERS)


OPERATORS = [
    operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.matmul, operator.getitem, operator.eq,
    operator.ne, operator.lt, operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow, operator.imatmul,
    operator.floordiv, operator.mod, operator.and_,
]  # fmt: skip
ALONE = [operator.neg, operator.pos, abs, len, float, int, bool, repr, str, hash, iter, copy.copy, copy.deepcopy, np.asarray]


def members(throw: Throw, choose: Choose) -> None:
    """A method, a property or an operator of a variable, an array or a function."""
    x = variable(choose)
    if isinstance(x, nn.Variable) and x.parent is not None and choose([True, False]):
        x = x.parent
    kind = choose(["member", "member", "member", "operator", "alone", "item"])
    if kind == "operator":
        f = choose(OPERATORS)
        pair = (x, anything(choose)) if choose([True, False]) else (anything(choose), x)
        throw(f.__name__, f, *pair)
    elif kind == "alone":
        f = choose(ALONE)
        throw(f.__name__, f, x)
    elif kind == "item":
        throw("setitem", operator.setitem, x, choose([index, anything])(choose), anything(choose))
        throw("getitem", operator.getitem, x, index(choose))
    else:
        member(throw, choose, x)


def index(choose: Choose) -> Any:
    """What stands in brackets."""
    one = [0, -1, 5, None, ..., slice(None), slice(1, None, 2), slice(None, None, -1), slice(5, 2), slice(0, 10, 0), slice(2**70), True]
    if choose([True, False, False]):
        return choose(one)
    return tuple(choose([*one, numpy_array(choose), [0, 1]]) for _ in range(choose([0, 1, 2, 3, 9])))


SKIPPED = {"__class__", "__init_subclass__", "__new__", "__reduce__", "__reduce_ex__", "__subclasshook__", "__del__", "__setattr__", "__getattribute__", "__delattr__", "__dir__", "__sizeof__"}


def member(throw: Throw, choose: Choose, x: Any) -> None:
    """Gets, sets and calls a member by its name."""
    name = choose([n for n in sorted(dir(type(x))) if n not in SKIPPED])
    what = f"{type(x).__name__}.{name}"
    found = throw(what, getattr, x, name)
    if callable(found):
        y = throw(what, found, *(anything(choose) for _ in range(choose([0, 1, 1, 2, 2, 3, 4]))))
        follow(throw, what, y)
    else:
        throw(what, setattr, x, name, anything(choose))


def solvers(throw: Throw, choose: Choose) -> None:
    """A solver: its arguments, and its methods in any order."""
    import kinnor.solvers as S

    name = choose([n for n in S.__all__ if isinstance(getattr(S, n), type) or callable(getattr(S, n))])
    given = [choose([*NUMBERS, 0.1, 0.9])] if choose([True, False]) else [anything(choose) for _ in range(choose([0, 1, 2, 3]))]
    solver = throw(f"S.{name}", getattr(S, name), *given)
    for _ in range(4 if solver is not None else 0):
        if choose([True, False]):
            w = {n: variable(choose) for n in ("a", "b")}
            throw("set_parameters", solver.set_parameters, w)
        else:
            member(throw, choose, solver)


def constructors(throw: Throw, choose: Choose) -> None:
    """Classes and plain functions of the package."""
    f = choose([
        nn.Variable, nn.NdArray, nn.Variable.from_numpy_array, nn.NdArray.from_numpy_array, nn.grad, nn.forward_all, nn.Context,
        nn.seed, nn.Variable.forward, nn.Variable.backward, nn.Variable.rewire_on, F.dot, F.clip_by_value, F.clip_by_norm, _core.grad_graph,
    ])  # fmt: skip
    y = throw(getattr(f, "__qualname__", repr(f)), f, *(anything(choose) for _ in range(choose([0, 1, 1, 2, 3, 4]))))
    follow(throw, "constructors", y)


TARGETS = {"functions": functions, "members": members, "solvers": solvers, "constructors": constructors}


def main(kind: str, examples: int, start: int, path: str) -> None:
    """Throws, and raises at the first offence, made small."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    warnings.simplefilter("ignore")
    throw = Throw(Path(path))

    @seed(start)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    @given(st.data())
    def run(data: st.DataObject) -> None:
        TARGETS[kind](throw, lambda options: data.draw(st.sampled_from(options)))

    run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
