"""Calls everything public with random arguments, in a process of its own, so that a crash is detected.

Run as `python throwing.py KIND START COUNT PATH`. KIND is a key of `TARGETS`. The calls are numbered from START
on. Each call is written to PATH before it is made, so that the last one is known after a crash.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import logging
import mmap
import operator
import random
import resource
import signal
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import public_names
from cases import all_rows
from odd_arguments import DTYPES, FILLS, HUGE, NUMBERS, SEQUENCES, anything, filled, numpy_array, variable

import kinnor as nn
import kinnor.functions as F
from kinnor import _core

if TYPE_CHECKING:
    from collections.abc import Callable

    from odd_arguments import Choose

EXPECTED = (
    nn.Error,
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
    ImportError,
    DeprecationWarning,
)
"""Errors that a call with wrong arguments may raise."""
MEMORY = 2 << 30
"""Bytes of address space that the calls may take. Before them, an import takes more of it on machines of many cores."""
SECONDS = 20
"""CPU seconds for one call. The process is ended after that, and the note in PATH names the call."""
ROWS: dict[str, list[Any]] = {}
"""Rows of the table of operations, by the name of the function."""
for _row in all_rows():
    ROWS.setdefault(_row.name, []).append(_row)


class Offence(Exception):
    """Raised if a call violates a rule."""


class Throw:
    """Makes calls, and raises `Offence` if a call ends in a way that no call may, such as with a bare Python error."""

    def __init__(self, path: Path) -> None:
        """Notes each call in the file `path`, so that the last one is known after a crash."""
        path.write_bytes(b" " * 8192)
        with path.open("r+b") as file:
            self.note = mmap.mmap(file.fileno(), 8192)
        self.number = 0

    def __call__(self, what: str, f: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Returns the result of a call, or None if the call was refused."""
        text = (
            f"{self.number}: {what}({', '.join([*map(shown, args), *(f'{k}={shown(v)}' for k, v in kwargs.items())])})"
        )
        self.note[:] = text.encode()[:8192].ljust(8192)
        before = [(a, state(a)) for a in (*args, *kwargs.values()) if isinstance(a, (nn.Variable, nn.NdArray))]
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
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
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def state(x: Any) -> np.ndarray | None:
    """Returns a copy of the values, to see that a refused call changes none.

    None if they are cleared or not computed.
    """
    data = x.data if isinstance(x, nn.Variable) else x
    if data.clear_called:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return np.array(data.data, np.float32)
        except nn.NotComputedError:
            return None


def shown(x: Any) -> str:
    """Formats an argument for a message."""
    if isinstance(x, (nn.Variable, nn.NdArray, np.ndarray)):
        kind = (
            ""
            if isinstance(x, np.ndarray)
            else f", cleared={(x.data if isinstance(x, nn.Variable) else x).clear_called}"
        )
        return f"{type(x).__name__}({x.shape}{kind})"
    try:
        return repr(x)[:200]
    except EXPECTED as e:  # from an object made of random data
        return f"{type(x).__name__}, whose repr raises {type(e).__name__}"


def follow(throw: Throw, what: str, y: Any) -> None:
    """Runs what a call returned: forward, backward, and the gradient as a graph."""
    for y_ in y if isinstance(y, tuple) else (y,):
        if isinstance(y_, nn.Variable) and y_.size < 10**6 and y_.parent is not None:
            throw(f"forward of {what}", y_.forward, True)
            throw(f"forward of {what}", y_.forward)
            throw(f"backward of {what}", y_.backward)
            x = [x for x in y_.parent.inputs if x.need_grad]
            g = throw(f"grad of {what}", nn.grad, [y_], x) if x else None
            if g:
                throw(f"forward of grad of {what}", nn.forward_all, g)


def functions(throw: Throw, choose: Choose) -> None:
    """Calls a registered operation with inputs and arguments that need not fit."""
    name, _, inputs, args, _ = choose(_core.declarations())
    operands, given = choose([spoiled, made_up])(name, inputs, args, choose)
    if choose([False] * 9 + [True]):
        given[choose(["outputs", "n_outputs", "x", "nonsense"])] = anything(choose)
    with nn.auto_forward(choose([False, False, True])):
        y = throw(f"F.{name}", getattr(F, name), *operands, **given)
    follow(throw, name, y)


def made_up(name: str, inputs: Any, args: Any, choose: Choose) -> tuple[list[Any], dict[str, Any]]:
    """Returns unrelated inputs and arguments."""
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
    """Returns a row of the table of operations with one or two changes."""
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
    return [
        nn.Variable.from_numpy_array(a, need_grad=need_grad) if isinstance(a, np.ndarray) else a for a in arrays
    ], given


def fitting(annotation: str, choose: Choose) -> Any:
    """Returns a value of the annotated type, though rarely a sensible one."""
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
    operator.add, operator.sub, operator.mul, operator.truediv, operator.pow, operator.matmul, operator.getitem,
    operator.eq, operator.ne, operator.lt, operator.iadd, operator.isub, operator.imul, operator.itruediv,
    operator.ipow, operator.imatmul, operator.floordiv, operator.mod, operator.and_,
]  # fmt: skip
"""Binary operators."""
ALONE = [
    operator.neg,
    operator.pos,
    abs,
    len,
    float,
    int,
    bool,
    repr,
    str,
    hash,
    iter,
    copy.copy,
    copy.deepcopy,
    np.asarray,
]
"""Operators and built-in functions of one argument."""


def members(throw: Throw, choose: Choose) -> None:
    """Uses a method, a property or an operator of a variable, an array or a function."""
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
    """Returns an index."""
    slices = [slice(None), slice(1, None, 2), slice(None, None, -1), slice(5, 2), slice(0, 10, 0), slice(2**70)]
    one = [0, -1, 5, None, ..., True, *slices]
    if choose([True, False, False]):
        return choose(one)
    return tuple(choose([*one, numpy_array(choose), [0, 1]]) for _ in range(choose([0, 1, 2, 3, 9])))


SKIPPED = {
    "__class__", "__init_subclass__", "__new__", "__reduce__", "__reduce_ex__", "__subclasshook__", "__del__",
    "__setattr__", "__getattribute__", "__delattr__", "__dir__", "__sizeof__",
}  # fmt: skip
"""Members that are not called."""


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
    """Calls a solver: its constructor, then its methods in any order."""
    import kinnor.solvers as S

    name = choose([n for n in S.__all__ if n != "SolverState"])
    given = (
        [choose([*NUMBERS, 0.1, 0.9])]
        if choose([True, False])
        else [anything(choose) for _ in range(choose([0, 1, 2, 3]))]
    )
    solver = throw(f"S.{name}", getattr(S, name), *given)
    for _ in range(4 if solver is not None else 0):
        if choose([True, False]):
            w = {n: variable(choose) for n in ("a", "b")}
            throw("set_parameters", solver.set_parameters, w)
        else:
            member(throw, choose, solver)


CALLABLES = [
    nn.Variable, nn.NdArray, nn.Variable.from_numpy_array, nn.NdArray.from_numpy_array, nn.grad, nn.forward_all,
    nn.Context, nn.seed, nn.Variable.forward, nn.Variable.backward, nn.Variable.rewire_on, F.dot, F.clip_by_value,
    F.clip_by_norm, _core.grad_graph,
]  # fmt: skip
"""Classes and functions to call with any arguments."""


def constructors(throw: Throw, choose: Choose) -> None:
    """Calls classes and plain functions of the package."""
    f = choose(CALLABLES)
    y = throw(getattr(f, "__qualname__", repr(f)), f, *(anything(choose) for _ in range(choose([0, 1, 1, 2, 3, 4]))))
    follow(throw, "constructors", y)


NAMES = public_names.names()
"""All public callables by name."""
TAKEN = ("hooks.set", "nn.set_function", "nn.set_solver", "nn.unset", "hooks.unset")
"""Beginnings of names whose first argument is replaced by a key that can be removed again."""


def names(throw: Throw, choose: Choose) -> None:
    """Calls any public name with any arguments, and uses the result."""
    name = choose(sorted(NAMES))
    f = NAMES[name]
    given = [public_names.argument(choose) for _ in range(choose([0, 1, 1, 2, 2, 3, 4]))]
    if name.startswith(TAKEN) and given:
        given[0] = "x"  # a key that can be removed again
    by_name = {}
    with contextlib.suppress(ValueError, TypeError):
        keys = [k for k in inspect.signature(f).parameters if k not in ("args", "kwargs")]
        for key in keys[len(given) :]:
            if choose([True, False, False]):
                by_name[key] = public_names.argument(choose)
    y = throw(name, f, *given, **by_name)
    public_names.use(throw, choose, name, y)
    public_names.restore()


TARGETS = {
    "functions": functions,
    "members": members,
    "solvers": solvers,
    "constructors": constructors,
    "names": names,
}
"""Makes one call, or several that follow from it, by the kind of object that is called."""


def main(kind: str, start: int, count: int, path: str) -> None:
    """Makes the calls, and raises at the first violation."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
    warnings.simplefilter("ignore")
    logging.disable()
    throw = Throw(Path(path))
    for number in range(start, start + count):
        throw.number = number
        TARGETS[kind](throw, random.Random(number).choice)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
