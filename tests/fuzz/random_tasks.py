"""Random asyncio tasks that enter and leave scopes between each other: each task sees its own scopes only.

`python tests/fuzz/random_tasks.py SEED` runs the tasks of a seed.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import kinnor as nn
import kinnor.functions as F

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


@dataclass(frozen=True)
class Scopes:
    """The modes that a task has entered, and that it must therefore observe."""

    eager: bool = False
    context: str = "float"
    recompute: bool = False
    differentiates: bool = True
    path: tuple[str, ...] = ()


def entered(scopes: Scopes, choose: random.Random) -> tuple[AbstractContextManager[Any], Scopes]:
    """Returns a random scope to enter, and the modes that a task must observe within it."""
    kind = choose.choice(["eager", "context", "recompute", "no_grad", "path"])
    if kind == "eager":
        on = choose.random() < 0.5
        return nn.auto_forward(on), replace(scopes, eager=on)
    if kind == "context":
        name = choose.choice(["float", "double", "half", "bfloat16"])
        return nn.context_scope(nn.Context([f"cpu:{name}"])), replace(scopes, context=name)
    if kind == "recompute":
        on = choose.random() < 0.5
        return nn.recompute(on), replace(scopes, recompute=on)
    if kind == "no_grad":
        return nn.no_grad(), replace(scopes, differentiates=False)
    name = choose.choice("abc")
    return nn.parameter_scope(name), replace(scopes, path=(*scopes.path, name))


class Seen:
    """Checks that a task observes its own modes, and remembers the parameter scope of each path."""

    def __init__(self) -> None:
        self._scopes: dict[tuple[str, ...], Any] = {(): nn.get_current_parameter_scope()}

    def check(self, expected: Scopes, who: str) -> None:
        """Raises AssertionError if the current scopes differ from the expected ones."""
        y = F.exp(nn.Variable.from_numpy_array(np.ones(2, np.float32), need_grad=True))
        here = nn.get_current_parameter_scope()
        known = next((path for path, scope in self._scopes.items() if scope is here), None)
        if known is None:
            self._scopes[expected.path] = here
            known = expected.path
        found = Scopes(
            eager=nn.get_auto_forward(),
            context=nn.get_current_context().backend[0].partition(":")[2],
            recompute=nn.get_global_recompute(),
            differentiates=bool(y.need_grad),
            path=known,
        )
        assert found == expected, f"{who} sees {found}, expected {expected}"
        assert self._scopes[expected.path] is here, f"{who} has another scope at {expected.path}"


async def task(number: int, choose: random.Random, steps: int, scopes: Scopes, seen: Seen) -> None:
    """Takes random steps, and awaits between them.

    Raises:
        AssertionError: If the task observes a scope of another task.
    """
    held: list[tuple[ExitStack, Scopes]] = []
    now = scopes
    for _ in range(steps):
        action = choose.choice(["enter", "enter", "leave", "wait", "wait", "spawn"])
        if action == "enter" and len(held) < 5:
            scope, within = entered(now, choose)
            stack = ExitStack()
            stack.enter_context(scope)
            held.append((stack, now))
            now = within
        elif action == "leave" and held:
            stack, now = held.pop()
            stack.close()
        elif action == "spawn" and steps > 8:
            await asyncio.gather(
                task(number, random.Random(choose.random()), steps // 2, now, seen),
                task(number, random.Random(choose.random()), steps // 2, now, seen),
            )
        else:
            await asyncio.sleep(0)
        seen.check(now, f"task {number}")
    while held:
        stack, now = held.pop()
        stack.close()
        await asyncio.sleep(0)
        seen.check(now, f"task {number}")


async def _together(seed: int, seen: Seen) -> None:
    """Runs several random tasks concurrently."""
    choose = random.Random(seed)
    started = [
        task(k, random.Random(choose.random()), choose.randint(4, 20), Scopes(), seen)
        for k in range(choose.randint(2, 5))
    ]
    await asyncio.gather(*started)


def check(seed: int) -> None:
    """Runs the tasks of a seed. Afterwards the thread must be in no scope.

    Raises:
        AssertionError: If a task or the thread observes a scope of another task.
    """
    nn.clear_parameters()
    try:
        seen = Seen()
        asyncio.run(_together(seed, seen))
        seen.check(Scopes(), f"the thread, after tasks {seed},")
    finally:
        nn.clear_parameters()


if __name__ == "__main__":
    for each in sys.argv[1:]:
        check(int(each))
