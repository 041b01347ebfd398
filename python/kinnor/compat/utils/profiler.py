"""Measures the time of each function of a graph, and of the graph as a whole."""

from __future__ import annotations

import csv
import sys
import time
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from ... import _check
from ..._core import ArgumentError, CallError, Variable, __version__
from ...parameter import get_parameters
from .. import cpu
from .times_alone import times_alone

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..._core import Function

__all__ = ["GraphProfiler", "GraphProfilerCsvWriter", "ProfileStat", "convert_time_scale"]

SCALES = {"m": 1e3, "u": 1e6, "n": 1e9}
"""Units in a second, by the first letter of the unit."""


class ProfileStat(NamedTuple):
    """The measured time of a function. `mean_time` is a number as text, in the profiler's time scale."""

    parameter_scope: str | None
    inputs_shape: list[tuple[int, ...]]
    args_info: Any
    function_name: str
    mean_time: str
    n_run: int


def convert_time_scale(sec: float, format: str = "m") -> float:
    """Convert seconds to another unit.

    Args:
        sec: Seconds.
        format: `m` for milliseconds, `u` for microseconds, `n` for nanoseconds.

    Raises:
        ArgumentError: If the unit is unknown.

    Examples:
        >>> convert_time_scale(1.5, "m")
        1500.0
    """
    if format not in SCALES:
        raise ArgumentError(f"convert_time_scale: expected one of {list(SCALES)}, got {format!r}")
    return sec * SCALES[format]


class GraphProfiler:
    """Measures each function of a graph, forward and backward, then the whole graph, then training steps.

    The engine measures the functions, as in `kinnor.profile(alone=True)`: functions are not fused. The sum of their
    times is therefore larger than the time of a normal run.

    Args:
        graph: The output of the graph.
        device_id: Name of the device; without effect.
        ext_name: Name of the extension; `cpu`.
        solver: A solver for training steps, which update its parameters. Without it no training is measured.
        n_run: Number of runs of each measurement.
        max_measure_execution_time: Seconds after which a measurement stops early.
        time_scale: Unit of times: `m`, `u` or `n` for milli-, micro- or nanoseconds.
        backward_accum: Whether each function adds to all gradients; functions are then called one by one. A run of the
            graph adds only where gradients are summed, and overwrites elsewhere.

    Raises:
        CallError: If `graph` is not a variable with a parent.
        ArgumentError: If another argument has a wrong value.

    Examples:
        >>> import kinnor as nn
        >>> x = nn.Variable((4, 4), need_grad=True)
        >>> profiler = GraphProfiler(nn.functions.sum(nn.functions.relu(x)), "0", "cpu", n_run=2)
        >>> profiler.run()
        >>> [stat.function_name for stat in profiler.get_result()["forward"]]
        ['ReLU', 'Sum']
    """

    def __init__(
        self,
        graph: Any,
        device_id: str | int = "0",
        ext_name: str = "cpu",
        solver: Any = None,
        n_run: int = 100,
        max_measure_execution_time: float = 1,
        time_scale: str = "m",
        backward_accum: bool = False,
    ) -> None:
        if not isinstance(graph, Variable) or graph.parent is None:
            raise CallError(f"GraphProfiler: expected a variable that a function computes, got {graph!r}")
        convert_time_scale(0.0, time_scale)
        self.graph, self.device_id, self.ext_name, self.solver = graph, device_id, ext_name, solver
        self.n_run = _check.count("GraphProfiler", "n_run", n_run)
        self.max_measure_execution_time = max_measure_execution_time
        self.time_scale, self.backward_accum = time_scale, backward_accum
        self._functions: list[Function] = []
        graph.visit(self._functions.append)
        # NNabla's names of attributes, for derived classes.
        self.name2val = {variable: name for name, variable in get_parameters(grad_only=False).items()}
        self.ext_module = cpu
        self.result: dict[str, Any] = {}

    def _measure_execution_time(self, execution: Callable[..., object], *execution_args: Any) -> tuple[str, int]:
        """The mean time of a call as text, and the number of calls. Derived classes may override it."""
        execution(*execution_args)
        start, n = time.perf_counter(), 0
        while n < self.n_run:
            execution(*execution_args)
            n += 1
            if time.perf_counter() - start > self.max_measure_execution_time:
                break
        mean = (time.perf_counter() - start) / n
        return f"{convert_time_scale(mean, self.time_scale):.8g}", n

    def _stat(self, f: Function, mean: str, n: int) -> ProfileStat:
        """The result for a function."""
        name = next((self.name2val[v] for v in f.inputs if v in self.name2val), "")
        scope = name.rpartition("/")[0] or None
        return ProfileStat(scope, [v.shape for v in f.inputs], f.info.args.items(), f.info.type_name, mean, n)

    def _alone(self, run: Callable[[], object], backward: bool) -> list[ProfileStat]:
        """Measure the functions of a run one by one."""
        found = times_alone(run, self.n_run, self.max_measure_execution_time, backward)
        means = {f: convert_time_scale(sum(times) / len(times), self.time_scale) for f, times in found.items()}
        return [self._stat(f, f"{means[f]:.8g}", len(found[f])) for f in self._functions if f in found]

    def _time_profiling(self, f: Function, target_process: str) -> None:
        """Measure a single function; for derived classes that override the measurement."""
        accum = ([self.backward_accum] * len(f.inputs),) if target_process == "backward" else ()
        measured = self._measure_execution_time(getattr(f, target_process), f.inputs, f.outputs, *accum)
        self.result[target_process].append(self._stat(f, *measured))

    def _measures_otherwise(self) -> bool:
        """True if a derived class overrides the measurement of a function."""
        names = ("_time_profiling", "_measure_execution_time")
        return any(getattr(type(self), name) is not getattr(GraphProfiler, name) for name in names)

    def time_profiling_forward(self) -> None:
        """Measure each function forward."""
        if self._measures_otherwise():
            self.graph.forward()
            self.result["forward"] = []
            for f in self._functions:
                self._time_profiling(f, "forward")
            return
        self.result["forward"] = self._alone(self.graph.forward, backward=False)

    def time_profiling_backward(self) -> None:
        """Measure each function with gradients to compute backward."""
        self.result["backward"] = []
        if not self.graph.need_grad:
            return
        self.graph.forward()
        if self._measures_otherwise():
            self.graph.backward()
            for f in self._functions:
                if any(v.need_grad for v in f.inputs):
                    self._time_profiling(f, "backward")
            return
        if not self.backward_accum:
            self.result["backward"] = self._alone(self.graph.backward, backward=True)
            return
        self.graph.backward()
        for f in self._functions:  # one by one, because a run of the graph decides which gradients are summed
            if any(v.need_grad for v in f.inputs):
                self._time_profiling(f, "backward")

    def training_function(self) -> None:
        """Run a training step: zero gradients, forward, backward, update."""
        self.solver.zero_grad()
        self.graph.forward()
        self.graph.backward()
        self.solver.update()

    def time_profiling_whole_graph(self) -> None:
        """Measure the graph forward and backward, and training steps if there is a solver."""
        found = self.result
        found["forward_all"], found["n_run_forward_all"] = self._measure_execution_time(self.graph.forward)
        if self.graph.need_grad:
            found["backward_all"], found["n_run_backward_all"] = self._measure_execution_time(self.graph.backward)
        if self.solver is not None:
            found["training"], found["n_run_training"] = self._measure_execution_time(self.training_function)

    def run(self) -> None:
        """Measure everything.

        Raises:
            CallError: If a `kinnor.profile` is active.
        """
        self.result = {}
        self.time_profiling_forward()
        self.time_profiling_backward()
        self.time_profiling_whole_graph()

    def get_result(self) -> dict[str, Any]:
        """The measured times.

        `forward` and `backward` have a `ProfileStat` for each function. `forward_all`, `backward_all` and `training`
        are times as text. `n_run_forward_all` and the like are numbers of runs.
        """
        return self.result

    def print_result(self) -> None:
        """Print the measured times."""
        print(f"time scale: {self.time_scale}")
        for side in ("forward", "backward"):
            print(f"-----------------{side}--------------------")
            for stat in self.result.get(side, ()):
                print(stat)
            print()
        print(", ".join(f"all {k[:-4]}: {v}" for k, v in self.result.items() if k in ("forward_all", "backward_all")))


class GraphProfilerCsvWriter:
    """Writes the times of a `GraphProfiler` as CSV.

    Args:
        gb: The profiler, which has run.
        file: Destination of the text; by default standard output.
    """

    def __init__(self, gb: GraphProfiler, file: IO[str] | None = None) -> None:
        self.gb, self.file = gb, sys.stdout if file is None else file
        self._writer = csv.writer(self.file, lineterminator="\n")

    def write_header(self) -> None:
        """Write the settings of the measurement."""
        gb = self.gb
        self._writer.writerows([("num. of run", gb.n_run), ("device id", gb.device_id), ("ext name", gb.ext_name)])
        self._writer.writerows([("time scale", gb.time_scale), ("nnabla version", __version__), ()])

    def check_same(self, f: ProfileStat, b: ProfileStat) -> bool:
        """True if two measurements are of the same function.

        Args:
            f: The first measurement.
            b: The second measurement.
        """
        return (*f[:2], list(f.args_info), f.function_name) == (*b[:2], list(b.args_info), b.function_name)

    def write(self) -> None:
        """Write everything.

        Raises:
            ArgumentError: If the profiler has not run.
        """
        result = self.gb.get_result()
        if not result:
            raise ArgumentError("GraphProfilerCsvWriter.write: expected a profiler that has run, got one that has not")
        self.write_header()
        names = ["parameter_scope", "function_name", "inputs_shape", "args_info", "forward", "backward"]
        self._writer.writerow([*names, "forward_n_run", "backward_n_run"])
        behind = list(result["backward"])
        for stat in result["forward"]:
            same = behind.pop(0) if behind and self.check_same(stat, behind[0]) else None
            arguments = ", ".join(f"{key}: {value}" for key, value in stat.args_info)
            times = (stat.mean_time, same.mean_time if same else "", stat.n_run, same.n_run if same else "")
            self._writer.writerow(
                (stat.parameter_scope or "", stat.function_name, stat.inputs_shape, arguments, *times)
            )
        told = {
            "forward": "forward all",
            "backward": "backward all",
            "training": "training(forward + backward + update)",
        }
        for key, title in told.items():
            name = key if key == "training" else f"{key}_all"
            if name in result:
                self._writer.writerows([(), (title, result[name]), (f"{name}_n_run", result[f"n_run_{name}"])])
