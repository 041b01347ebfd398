"""Plays programs of random steps. The seed determines the program.

`python tests/fuzz/playing.py SEED` shortens the failing program of a seed and plays the rest of it.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parents[1]))
import program_runs
import program_values
from programs import STEPS, Program

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CHECKS", "STEPS", "Program", "perform", "play", "program_runs", "program_values", "shortened"]

CHECKS = ["nothing", "nothing", "kernel", "eyes"]
"""Ways in which `Program.check` may read the arrays."""
OFTEN = {"leaf": 2, "apply": 6, "chain": 4, "train": 3, "backward": 2, "forward": 2, "autodiff_backward": 2}
"""Weights of steps in the random choice. Other steps have weight 1."""
DRAWN = [name for name in STEPS for _ in range(OFTEN.get(name, 1))]
"""Names of steps, each as often as its weight."""

Taken = tuple[str, dict[str, Any], str]
"""A step, its arguments and the mode of the check after it."""


def written(seed: int, steps: int = 30) -> tuple[dict[str, bool], list[Taken]]:
    """Returns the kind and the steps of a random program. The first steps build nodes."""
    choose = random.Random(seed)
    kind = {"double": choose.random() < 0.5, "plain": choose.random() < 0.25}
    taken = []
    for i in range(steps):
        name = "leaf" if i < 2 else "apply" if i < 5 else choose.choice(DRAWN)
        arguments = {a: choose.choice(values) for a, values in STEPS[name][1].items()}
        taken.append((name, arguments, choose.choice(CHECKS)))
    return kind, taken


def perform(kind: dict[str, bool], taken: list[Taken]) -> None:
    """Runs the steps of a program, with a check after each."""
    p = Program(**kind)
    try:
        for name, arguments, check in taken:
            p.do(name, **arguments)
            p.check(check)
    finally:
        p.close()


def play(seed: int, steps: int = 30) -> None:
    """Plays the program of a seed."""
    perform(*written(seed, steps))


def end(kind: dict[str, bool], taken: list[Taken]) -> str:
    """Plays a program. Returns the class name of its error, or an empty text if it succeeds."""
    try:
        perform(kind, taken)
    except Exception as e:
        return type(e).__name__
    return ""


def end_of_child(kind: dict[str, bool], taken: list[Taken]) -> str:
    """Like `end`, for a program that may end its process: plays it in a child."""
    if (child := os.fork()) == 0:
        end(kind, taken)
        os._exit(0)
    code = os.waitpid(child, 0)[1]
    return f"ended with {code}" if code else ""


def shortened(seed: int) -> tuple[dict[str, bool], list[Taken]]:
    """Shortens the failing program of a seed until no step can be removed and no argument made simpler."""
    kind, taken = written(seed)
    f = end_of_child if end_of_child(kind, taken) else end
    expected = f(kind, taken)
    before = None
    while expected and before != taken:
        before = taken
        for length in (8, 4, 2, 1):
            for at in range(len(taken) - length, -1, -length):
                if f(kind, fewer := taken[:at] + taken[at + length :]) == expected:
                    taken = fewer
        for i in range(len(taken)):
            for simpler in simpler_than(taken[i]):
                if f(kind, changed := [*taken[:i], simpler, *taken[i + 1 :]]) == expected:
                    taken = changed
                    break
    return kind, taken


def simpler_than(one: Taken) -> Iterator[Taken]:
    """Yields simpler versions of a step: without its check, or with arguments that come earlier in their lists."""
    name, arguments, check = one
    if check != "nothing":
        yield name, arguments, "nothing"
    for key, values in STEPS[name][1].items():
        for value in values[: min(3, values.index(arguments[key]))]:
            yield name, arguments | {key: value}, check


def main() -> None:
    """Shortens the failing program whose seed is on the command line, prints it as a call, and plays it."""
    warnings.simplefilter("error")
    kind, taken = shortened(int(sys.argv[1]))
    print(f"perform({kind}, [")
    for one in taken:
        print(f"    {one},")
    print("])", flush=True)
    perform(kind, taken)


if __name__ == "__main__":
    main()
