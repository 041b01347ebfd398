"""Plays programs of random steps: a number is a program."""

from __future__ import annotations

import random

import program_runs
import program_values
from programs import STEPS, Program

__all__ = ["CHECKS", "STEPS", "Program", "play", "program_runs", "program_values"]

CHECKS = ["nothing", "nothing", "kernel", "eyes"]
"""How `Program.check` may look."""
OFTEN = {"leaf": 2, "apply": 8, "train": 3, "backward": 2, "forward": 2}
DRAWN = [name for name in STEPS for _ in range(OFTEN.get(name, 1))]


def play(seed: int, steps: int = 30) -> None:
    """A program of random steps, of which the first build something."""
    choose = random.Random(seed)
    p = Program(choose.random() < 0.5, choose.random() < 0.25)
    try:
        for i in range(steps):
            name = "leaf" if i < 2 else "apply" if i < 5 else choose.choice(DRAWN)
            p.do(name, **{a: choose.choice(values) for a, values in STEPS[name][1].items()})
            p.check(choose.choice(CHECKS))
    finally:
        p.close()
