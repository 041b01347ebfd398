"""`kinnor profile`: measures the time of each function of a network."""

from __future__ import annotations

import csv
import time
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import parameter as parameters
from ...cli import wrote
from ...files.atomic import replacing
from ...nnp import NetworkError
from ...profiling import profile as profiled
from ..utils.load import load
from ..utils.times_alone import times_alone

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

__all__ = ["add", "profile"]

RUNS = 10
"""Number of timed runs, forward and backward. One warm-up run comes first."""


def add(name: str, parser: argparse.ArgumentParser) -> Callable[[Any], object]:
    """Add the arguments of the command.

    Args:
        name: Its name.
        parser: The parser of the command.
    """
    parser.add_argument("-c", "--config", required=True, help="project file: .nnp, .nntxt or .prototxt")
    parser.add_argument("-o", "--outdir", required=True, help="folder to create for results")
    return lambda args: profile(args.config, args.outdir)


def profile(config: str, outdir: str) -> list[tuple[str, str, str, float]]:
    """Measure the functions of each network, run forward one by one, and each network as a whole.

    Args:
        config: Path of the project file.
        outdir: Path of the folder for `profile.csv`, and for one traced run `profile.json`, a Chrome trace,
            and `profile.html`, a flame graph.

    Returns:
        Rows of network, function or `*` for all, phase, and median time in milliseconds.

    Raises:
        NetworkError: If the project file is malformed, or if it has no network.
        OSError: If a file cannot be read or written.
    """
    with parameters.parameter_scope("", OrderedDict()):
        info = load(config, prepare_data_iterator=False)
        if not info.networks:
            raise NetworkError(f"expected a network in {config}, got none")
        rows, ends = [], []
        for network in info.networks.values():
            nodes = (*network.variables.values(), *network.parameters.values())
            variables = {n.name: n.variable_instance for n in nodes}
            for name in network.inputs:
                variables[name].d = 0  # type: ignore[union-attr]
            ends.append(_output([variables[name] for name in network.outputs]))
            rows += _network(network.name, ends[-1])
        with profiled() as found:
            for output in ends:
                output.forward()
                if output.need_grad:
                    output.backward()
    target = Path(outdir)
    target.mkdir(parents=True, exist_ok=True)
    for kind in ("json", "html"):
        found.save(target / f"profile.{kind}")
    with replacing(target / "profile.csv") as temporary, temporary.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("network", "function", "run", "milliseconds"))
        writer.writerows((*row[:3], f"{row[3]:.4f}") for row in rows)
    wrote(target / f"profile.{kind}" for kind in ("csv", "json", "html"))
    for network_name, function, run, milliseconds in rows:
        print(f"{network_name:16} {function:40} {run:8} {milliseconds:10.3f} ms")
    return rows


def _output(outputs: list[Any]) -> Any:
    """A single variable that depends on all outputs."""
    from ... import functions

    return outputs[0] if len(outputs) == 1 else functions.sink(*outputs)


def _network(name: str, output: Any) -> list[tuple[str, str, str, float]]:
    """The measured rows of a network."""
    spent = times_alone(output.forward, RUNS)
    rows = [
        (name, f"{i} {f.info.type_name}", "forward", 1e3 * float(np.median(times)))
        for i, (f, times) in enumerate(spent.items())
    ]
    rows.append((name, "*", "forward", _time(output.forward)))
    if output.need_grad:
        rows.append((name, "*", "backward", _time(output.backward)))
    return rows


def _time(run: Callable[[], object]) -> float:
    """The median time of a call in seconds, after a warm-up call."""
    times = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return 1e3 * float(np.median(times[1:]))
