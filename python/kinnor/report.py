"""What a training step or a prediction does with its memory, for people to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from ._core import ArgumentError, CallError
from .display import text_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ._core import Variable
    from .pictures.plan import PlanReport
    from .profiling import Profile
    from .profiling.result import Moment

    Ranges = Sequence[tuple[int, int]]

__all__ = ["plan_report"]


def plan_report(
    loss: Variable,
    memory_budget: int | None = None,
    *,
    clear_buffer: bool = False,
    instructions: bool = False,
    profile: Profile | None = None,
) -> PlanReport:
    r"""What a training step does with its memory: function by function, and at its worst moment. Nothing is run.

    For each function of the forward run: what it is, the shapes that it takes and gives, the bytes of what it gives,
    whether that is kept for the backward run, dropped after its last reader, or dropped and recomputed, and the bytes
    that all arrays of the graph take once the function has run. Below, the most that a step takes in one run forward
    and one backward. The bytes follow from shapes and types; what kernels need to work in comes on top.

    Then what runs in another way than function by function where a step is repeated and clears (without a budget):
    elementwise functions that run as one pass, those that write where they read, and those that are done along with the
    function before (a product, a convolution, a normalization), while its result is in the cache. Nothing but time and
    memory changes by it; `kinnor.config.plan` says more.

    Of functions that ran as they were built, under a budget, it says how things are now: which values are there, which
    were evicted and come back when they are wanted, and the bytes of what there is.

    Of the backward run a plan says only what it takes at most. With a profile of a step, the picture also shows the
    memory during each function forward and backward, as it was in that step.

    Args:
        loss: The variable from which the backward run starts, or that is predicted.
        memory_budget: The budget in bytes; by default that of `kinnor.memory_budget`, if there is one.
        clear_buffer: Whether to say what a prediction by `forward(clear_buffer=True)` does, without a backward run.
        instructions: Whether to list below what the runs of such a step do (without a budget), one thing after the
            other, when it is repeated: the shapes that a function reads and writes follow its name, and what is set in
            is what several functions do one by one if they cannot run together. The environment variable
            `KINNOR_PLAN=print` has each run print its list when it is made.
        profile: What `kinnor.profile` found in a block that ran such a step; of several steps the last one is shown.
            Its bytes are those of all arrays of the program.

    Returns:
        A table as text, to be printed; a picture in a notebook, and as a page by `save`.

    Raises:
        CallError: If `profile` is no profile.
        ArgumentError: If no function ran forward or backward while it was taken.
        GraphError: If no function computes `loss`.
        BudgetError: If the budget cannot be kept to.

        >>> import kinnor as nn, kinnor.functions as F
        >>> x = nn.Variable((256, 1024), need_grad=True)
        >>> loss = F.mean(F.tanh(F.tanh(x)))
        >>> print(nn.plan_report(loss))
        #  function  takes        gives         MiB  value  all MiB
        1  Tanh      (256, 1024)  (256, 1024)  1.00  kept      3.00
        2  Tanh      (256, 1024)  (256, 1024)  1.00  kept      4.00
        3  Mean      (256, 1024)  ()           0.00  kept      4.00
        <BLANKLINE>
        6.00 MiB at most with forward() and backward()
        6.00 MiB with forward(clear_no_need_grad=True) and backward(clear_buffer=True)
        forward: 1-2 in one pass
        backward: 2 functions in one pass, 1.00 MiB in the cache only

        >>> w = nn.Variable((1024, 1024), need_grad=True)
        >>> print(*nn.plan_report(F.relu(F.affine(x, w)), clear_buffer=True).splitlines()[-2:], sep="\n")
        7.00 MiB at most with forward(clear_buffer=True)
        forward: 2 along with the function before, 1.00 MiB in the cache only

        >>> print(nn.plan_report(F.relu(F.affine(x, w)), clear_buffer=True, instructions=True).split("\n\n")[-1])
        forward: 2 functions
          chain    1-2, or one by one:
            run      1 Affine (256, 1024) (1024, 1024) -> (256, 1024)
            run      2 ReLU (256, 1024) -> (256, 1024)
            release  input 0 (256, 1024)
    """
    from .pictures.plan import PlanReport

    facts = _core.plan_facts(loss, memory_budget, clear_buffer)
    lines = summary(facts, clear_buffer)
    moments = [] if profile is None else last_step(profile)
    if moments:
        worst = max(moments, key=lambda moment: moment.peak)
        lines.append(f"{mib(worst.peak)} MiB at most as it ran, in {worst.name} {worst.phase}")
    report = PlanReport("\n".join([*lines, "", facts["instructions"]] if instructions else lines))
    report.facts, report.moments = facts, moments
    return report


def last_step(profile: Profile) -> list[Moment]:
    """The functions of the last step that a profile has seen, forward and then backward."""
    from .profiling import Profile

    if not isinstance(profile, Profile):
        raise CallError(f"plan_report: expected `profile` to be a Profile, got {type(profile).__name__}")
    moments = profile.memory()
    if not moments:
        raise ArgumentError("plan_report: expected a profile of a block that runs functions, got one that saw none run")
    turns = (n for n in range(1, len(moments)) if (moments[n - 1].phase, moments[n].phase) == ("backward", "forward"))
    return moments[max(turns, default=0) :]


def summary(facts: dict[str, Any], clear_buffer: bool) -> list[str]:
    """What each function, and the whole step, does with memory."""
    rows = [("#", "function", "takes", "gives", "MiB", "value", "all MiB")]
    for n, (name, inputs, outputs, live) in enumerate(facts["steps"], 1):
        first, *rest = outputs or [((), 0, "")]
        rows.append((str(n), name, shapes(inputs), *describe(first), mib(live)))
        rows += [("", "", "", *describe(output), "") for output in rest]
    lines = text_table(rows, right=(0, 4, 6))
    keeping, clearing = mib(facts["peak_keeping"]), mib(facts["peak_clearing"])
    if clear_buffer:
        lines += ["", f"{clearing} MiB at most with forward(clear_buffer=True)"]
    else:
        lines += [
            "",
            f"{keeping} MiB at most with forward() and backward()",
            f"{clearing} MiB with forward(clear_no_need_grad=True) and backward(clear_buffer=True)",
        ]
    if facts["at_once"]:
        lines.append(f"{mib(facts['peak'])} MiB now, under the budget of {mib(facts['budget'])} MiB")
        return lines
    if facts["budget"] is not None:
        lines.append(
            f"{mib(facts['peak'])} MiB under the budget of {mib(facts['budget'])} MiB, "
            f"for about {facts['extra']:.0%} more work"
        )
        return lines
    forward, backward = facts["optimised"]
    lines += optimised("forward", numbers, forward)
    lines += optimised("backward", count, backward)
    return lines


def numbers(ranges: Ranges) -> str:
    """Which functions these are, in the order of the table."""
    return " and ".join(f"{start + 1}-{end}" if end > start + 1 else str(end) for start, end in ranges)


def count(ranges: Ranges) -> str:
    """How many functions these are."""
    n = sum(end - start for start, end in ranges)
    return f"{n} function{'s' if n > 1 else ''}"


def optimised(run: str, name: Callable[[Ranges], str], facts: tuple[Ranges, Sequence[int], int, Ranges]) -> list[str]:
    """A line on what is optimised in a run, if anything is."""
    passes, in_place, saved, along = facts
    parts = []
    if passes:
        parts.append(f"{name(passes)} in {'one pass' if len(passes) == 1 else f'{len(passes)} passes'}")
    if along:
        parts.append(f"{name(along)} along with the function before")
    if saved:
        parts.append(f"{mib(saved)} MiB in the cache only")
    if in_place:
        parts.append(f"{len(in_place)} in place")
    return [f"{run}: {', '.join(parts)}"] if parts else []


def describe(output: tuple[Sequence[int], int, str]) -> tuple[str, str, str]:
    """Shape, size and fate of a value."""
    shape, size, fate = output
    return str(tuple(shape)), mib(size), fate


def shapes(inputs: Iterable[Sequence[int]]) -> str:
    """Shapes, one after the other."""
    return " ".join(str(tuple(shape)) for shape in inputs)


def mib(size: int) -> str:
    """Bytes as mebibytes."""
    return f"{size / 2**20:.2f}"
