"""`plan_report`: a readable report on the memory and the optimisations of a training step or prediction."""

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
    r"""Report the memory of a training step, by function and at its peak, and its optimisations. Nothing is run.

    The table has a row for each function of the forward run: input and output shapes, size of the output, and memory
    of all arrays of the graph after the function. The column "value" says if the output is kept for the backward run,
    freed after its last reader, or freed and recomputed. Below is the peak of a forward and a backward run. Sizes
    follow from shapes and types; scratch buffers of kernels are not counted.

    The last lines list the optimisations of a repeated step that clears buffers (without a budget). These are
    elementwise functions fused into one pass, functions in place, and functions fused with the one before. The function
    before is a product, a convolution or a normalization, and its result stays in the cache. Optimisations change time
    and memory only; see `kinnor.config.plan`.

    For functions that ran eagerly under a budget, the report shows the current state: values in memory, evicted values,
    and the current size. Evicted values are recomputed on demand.

    For the backward run a plan has only the peak. With a profile of a step, the picture also shows the measured memory
    during each function, forward and backward.

    Args:
        loss: The variable from which the backward run starts, or the output of a prediction.
        memory_budget: The budget in bytes; by default the current `kinnor.memory_budget`, if there is one.
        clear_buffer: Whether to report a prediction by `forward(clear_buffer=True)`, without a backward run.
        instructions: Whether to append the instructions of a repeated step (without a budget), in their order, with
            the shapes that each function reads and writes. Indented instructions run if the functions cannot run
            fused. With the environment variable `KINNOR_PLAN=print` each new plan prints its instructions.
        profile: A `kinnor.profile` of a block that ran such a step. Of several steps the last one is shown. Its sizes
            count all arrays of the program.

    Returns:
        A table as text. In a notebook it is shown as a picture; its `save` writes a page.

    Raises:
        CallError: If `profile` is not a profile.
        ArgumentError: If no function ran forward or backward during the profile.
        GraphError: If no function computes `loss`.
        BudgetError: If the budget cannot be kept.

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
    """The measured functions of the last step in a profile, forward and then backward."""
    from .profiling import Profile

    if not isinstance(profile, Profile):
        raise CallError(f"plan_report: expected `profile` to be a Profile, got {type(profile).__name__}")
    moments = profile.memory()
    if not moments:
        raise ArgumentError("plan_report: expected a profile of a block that runs functions, got one without functions")
    turns = (n for n in range(1, len(moments)) if (moments[n - 1].phase, moments[n].phase) == ("backward", "forward"))
    return moments[max(turns, default=0) :]


def summary(facts: dict[str, Any], clear_buffer: bool) -> list[str]:
    """The lines of the report: a table of functions, the peaks, and the optimisations."""
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
    """Ranges of functions by their numbers in the table, such as `1-2 and 5`."""
    return " and ".join(f"{start + 1}-{end}" if end > start + 1 else str(end) for start, end in ranges)


def count(ranges: Ranges) -> str:
    """The number of functions in ranges, in words."""
    n = sum(end - start for start, end in ranges)
    return f"{n} function{'s' if n > 1 else ''}"


def optimised(run: str, name: Callable[[Ranges], str], facts: tuple[Ranges, Sequence[int], int, Ranges]) -> list[str]:
    """A line on the optimisations of a run; none if there are none."""
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
    """The table cells of an output: shape, size, and whether it is kept."""
    shape, size, fate = output
    return str(tuple(shape)), mib(size), fate


def shapes(inputs: Iterable[Sequence[int]]) -> str:
    """Shapes, separated by spaces."""
    return " ".join(str(tuple(shape)) for shape in inputs)


def mib(size: int) -> str:
    """A size in mebibytes, as text."""
    return f"{size / 2**20:.2f}"
