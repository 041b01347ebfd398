"""Random programs on graphs: everything that can be read matches a record in NumPy.

`programs.py` has the steps and `tape.py` the expected values. Hypothesis chooses and shortens programs. `make
fuzz` plays random ones for a given time.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from playing import CHECKS, STEPS, Program, play


class Machine(RuleBasedStateMachine):
    """A program whose steps Hypothesis chooses."""

    program: Program | None = None

    @initialize(double=st.booleans(), plain=st.booleans(), first=st.integers(0, 9), second=st.integers(0, 9))
    def begin(self, double: bool, plain: bool, first: int, second: int) -> None:
        """Adds two leaves."""
        self.program = Program(double, plain)
        for seed in (first, second):
            self.program.do("leaf", seed=seed, need_grad=True, dtype=float)

    def teardown(self) -> None:
        """Restores the global state after a program."""
        if self.program is not None:
            self.program.close()


def taken(name: str) -> Any:
    """Returns a step as a rule of Hypothesis."""
    arguments = {a: st.sampled_from(values) for a, values in STEPS[name][1].items()}

    def do(self: Machine, check: str, **given: Any) -> None:
        """Does the step and checks the program."""
        self.program.do(name, **given)
        self.program.check(check)

    do.__name__ = name
    return rule(check=st.sampled_from(CHECKS), **arguments)(do)


for _name in STEPS:
    setattr(Machine, _name, taken(_name))

TestMachine = Machine.TestCase
TestMachine.settings = settings(
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    max_examples=80,
    stateful_step_count=25,
)


@pytest.mark.parametrize("block", range(6))
def test_random_programs(block):
    """Fifty random programs of a block of seeds read what the record says."""
    for seed in range(50 * block, 50 * block + 50):
        try:
            play(seed)
        except Exception as e:
            raise AssertionError(f"program {seed}, played by `play({seed})` of playing.py: {e}") from e
