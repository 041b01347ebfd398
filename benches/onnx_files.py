"""ONNX files of the user compared with onnxruntime: `benches/onnx_models.py --models FOLDER`.

Each file gets one row for each number of threads. The runtimes take turns in one process:

- `warm`: a call of a shape that was called before; the minimum of many.
- `new`: calls of random shapes, each for the first time; the sum of all. For Kinnor also as a multiple of warm calls.
- `first`: loading and the first call; the minimum of a few, with the runtimes in turns.
- `memory`: the peak in MiB from loading on, over warm calls and over calls of random shapes, each in its own process.
- `apart`: the largest difference of an output, relative to the largest number in it, over all calls.

A JSON file says how inputs look where a file does not say it:

    {"speech": {"lengths": {"N": [16000, 64000, 320]}, "values": {"sr": 16000, "lengths": "N"}}}

`lengths` has smallest, largest and step of an open axis, by its name in the file or as `input:axis`. `values` has
bounds of random numbers, one number, or the name of the axis whose length the input says.
"""

from __future__ import annotations

import gc
import json
import math
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from benches.onnx_memory import CALLS, peak

import kinnor as nn
import kinnor.onnx

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

__all__ = ["Feeds", "measured"]

TURN = 0.1
"""Seconds of a turn."""
SHAPES = 16
"""Random shapes."""
FIRSTS = 3
"""How often a file is loaded."""
PAUSE = 0.05
"""Seconds without work between runtimes. Threads of onnxruntime spin for 30 ms after each call of theirs."""
DTYPES = {"float": "float32", "double": "float64"}
"""NumPy's names of element types, where ONNX has others."""


class Feeds:
    """Random inputs of a model.

    Args:
        session: The model in onnxruntime.
        said: The entry of the JSON file on its inputs.
    """

    def __init__(self, session: onnxruntime.InferenceSession, said: Mapping[str, Any]) -> None:
        self._inputs = session.get_inputs()
        self._lengths = said.get("lengths", {})
        self._values = said.get("values", {})
        self._rng = np.random.default_rng(0)

    @property
    def are_open(self) -> bool:
        """True if an axis has lengths to choose from."""
        return any(first < last for first, last, _ in map(self._range, self._names()))

    def _names(self) -> list[str]:
        """Returns the names of open axes."""
        axes = [(held.name, at, n) for held in self._inputs for at, n in enumerate(held.shape)]
        return list(dict.fromkeys(_axis(*held) for held in axes if not isinstance(held[2], int)))

    def _range(self, name: str) -> tuple[int, int, int]:
        """Returns smallest and largest length of an axis, and the step. Batches have length 1 if nothing is said."""
        if name in self._lengths:
            return tuple(self._lengths[name])
        is_batch = any(held.shape and _axis(held.name, 0, held.shape[0]) == name for held in self._inputs)
        return (1, 1, 1) if is_batch else (32, 256, 32)

    def lengths(self, share: float | None = None) -> dict[str, int]:
        """Returns a length for each open axis.

        Args:
            share: Place between smallest and largest; by default random.
        """
        found = {}
        for name in self._names():
            first, last, step = self._range(name)
            steps = (last - first) // step
            at = round(share * steps) if share is not None else int(self._rng.integers(steps + 1))
            found[name] = first + step * at
        return found

    def arrays(self, lengths: Mapping[str, int]) -> dict[str, Any]:
        """Returns inputs by name.

        Args:
            lengths: Lengths by the names of open axes.
        """
        return {held.name: self._array(held, lengths) for held in self._inputs}

    def _array(self, held: Any, lengths: Mapping[str, int]) -> Any:
        """Returns one input."""
        axes = [(held.name, at, n) for at, n in enumerate(held.shape)]
        shape = [axis[2] if isinstance(axis[2], int) else lengths[_axis(*axis)] for axis in axes]
        kind = held.type[len("tensor(") : -1]
        dtype = np.dtype(DTYPES.get(kind, kind))
        values = self._values.get(held.name)
        if isinstance(values, str):
            return np.full(shape, lengths[values], dtype)
        if isinstance(values, (int, float)):
            return np.full(shape, values, dtype)
        if values is not None:
            low, high = values
            drawn = (
                self._rng.uniform(low, high, shape) if dtype.kind == "f" else self._rng.integers(low, high + 1, shape)
            )
            return drawn.astype(dtype)
        if dtype.kind == "f":
            return (0.3 * self._rng.standard_normal(shape)).astype(dtype)
        return np.ones(shape, dtype) if dtype.kind == "b" else self._rng.integers(1, 20, shape).astype(dtype)


def _axis(name: str, at: int, length: Any) -> str:
    """Returns the name of an open axis."""
    return length if isinstance(length, str) and length != "?" else f"{name}:{at}"


def _apart(found: Any, wanted: list[Any]) -> float:
    """Returns the largest difference between outputs, relative to the largest number of each."""
    given = list(found) if isinstance(found, tuple) else [found]
    most = 0.0
    for a, b in zip(given, wanted, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if a.shape != b.shape:
            return math.inf
        if not b.size or a.dtype.kind in "OU":
            most = max(most, 0.0 if (a == b).all() else math.inf)
            continue
        a, b = a.astype(np.float64), b.astype(np.float64)
        if (np.isnan(a) != np.isnan(b)).any():
            return math.inf
        most = max(most, float(np.nanmax(np.abs(a - b), initial=0) / (np.nanmax(np.abs(b), initial=0) + 1e-12)))
    return most


def session_of(path: Path, threads: int) -> onnxruntime.InferenceSession:
    """Loads a model in onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def measured(path: Path, said: Mapping[str, Any], threads: int, seconds: float, with_memory: bool) -> dict[str, float]:
    """Measures one file.

    Args:
        path: The file.
        said: The entry of the JSON file on its inputs.
        threads: Number of threads.
        seconds: Duration of the warm turns.
        with_memory: Whether to measure memory.

    Returns:
        Figures by the names in the module's docstring. Names with `_ratio` are ratios to onnxruntime's.
    """
    gc.collect()
    clock = time.process_time if threads == 1 else time.perf_counter
    nn.set_num_threads(threads)
    feeds = Feeds(session_of(path, threads), said)
    given = feeds.arrays(feeds.lengths(0.5))
    firsts: list[list[float]] = [[], []]
    session: Any
    model: Any
    for _ in range(FIRSTS):
        session = model = None
        time.sleep(PAUSE)
        begun = clock()
        session = session_of(path, threads)
        wanted = session.run(None, given)
        firsts[1].append(clock() - begun)
        time.sleep(PAUSE)
        begun = clock()
        model = kinnor.onnx.load(path)
        found = model(**given)
        firsts[0].append(clock() - begun)
    runs: list[Callable[[Mapping[str, Any]], Any]] = [lambda x: model(**x), lambda x: session.run(None, x)]
    row = {"first_ratio": min(firsts[0]) / min(firsts[1]), "apart": _apart(found, wanted)}
    least = [math.inf, math.inf]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, run in enumerate(runs):
            turn = time.perf_counter() + TURN
            while time.perf_counter() < turn:
                begun = clock()
                run(given)
                least[i] = min(least[i], clock() - begun)
    row.update(warm_ms=1e3 * least[0], warm_ratio=least[0] / least[1])
    row["apart"] = max(row["apart"], _apart(runs[0](given), wanted))
    stream = []
    if feeds.are_open:
        stream += [feeds.arrays(feeds.lengths()) for _ in range(SHAPES)]
        sums = [0.0, 0.0]
        made: list[list[Any]] = [[], []]
        for i in (1, 0):
            time.sleep(PAUSE)
            for x in stream:
                begun = clock()
                made[i].append(runs[i](x))
                sums[i] += clock() - begun
        row["apart"] = max(row["apart"], *map(_apart, *made))
        again = 0.0
        for x in stream:
            times = []
            for _ in range(4):
                begun = clock()
                runs[0](x)
                times.append(clock() - begun)
            again += min(times)
        row.update(new_ms=1e3 * sums[0] / SHAPES, new_ratio=sums[0] / sums[1], new_in_warm=sums[0] / again)
    row["apart"] = max(row["apart"], _apart(runs[0](given), wanted))
    if with_memory:
        for name, calls in (("memory", [given] * CALLS), ("stream", stream)):
            if calls:
                ours, theirs = (peak(runtime, path, calls, threads) for runtime in ("kinnor", "onnxruntime"))
                row.update({f"{name}_mib": ours, f"{name}_ratio": ours / theirs})
    return row


def printed(name: str, threads: int, row: Mapping[str, float]) -> None:
    """Prints the figures of one file."""
    parts = [f"{row['warm_ms']:8.2f} ms warm {row['warm_ratio']:5.2f}"]
    if "new_ratio" in row:
        parts.append(f"{row['new_ms']:8.1f} ms new {row['new_ratio']:5.2f}, {row['new_in_warm']:4.1f} calls")
    parts.append(f"first {row['first_ratio']:5.2f}")
    for key in ("memory", "stream"):
        if f"{key}_mib" in row:
            parts.append(f"{key} {row[f'{key}_mib']:6.0f} MiB {row[f'{key}_ratio']:5.2f}")
    print(f"{name:<24} {threads} threads: {'; '.join(parts)}; apart {row['apart']:.1e}", flush=True)


COLUMNS = {"warm": ".2f", "new": ".2f", "first": ".2f", "memory": ".2f", "stream": ".2f", "apart": ".0e"}
"""Columns of a table of results, with the formats of their numbers."""


def table(rows: Mapping[str, Mapping[int, Mapping[str, float]]], machine: str) -> str:
    """Returns results as a table of comma-separated values.

    Args:
        rows: The rows of each file by number of threads.
        machine: The processor and the date.
    """
    lines = [
        f"# {machine}. Time and peak memory over those of ONNX Runtime; apart: see benches/onnx_files.py.",
        f"file,threads,{','.join(COLUMNS)}",
    ]
    for name, by_threads in rows.items():
        for threads, row in by_threads.items():
            cells = (row.get(f"{key}_ratio", row.get(key)) for key in COLUMNS)
            texts = ("" if v is None else format(v, kind) for v, kind in zip(cells, COLUMNS.values(), strict=True))
            lines.append(f"{name},{threads},{','.join(texts)}")
    return "\n".join(lines) + "\n"


def compare(
    folder: Path,
    said: Path | None,
    threads: list[int],
    seconds: float,
    with_memory: bool,
    publish: tuple[Path, str] | None = None,
) -> int:
    """Compares the files of a folder. Returns the exit status: 1 if a file was refused.

    Args:
        folder: The folder, or one file.
        said: The JSON file on inputs.
        threads: Numbers of threads.
        seconds: Duration of the warm turns of one row.
        with_memory: Whether to measure memory.
        publish: The file to which the table of results is written, and the processor and the date.
    """
    inputs = json.loads(said.read_text()) if said is not None else {}
    rows: dict[str, list[float]] = {}
    done: dict[str, dict[int, Mapping[str, float]]] = {}
    status = 0
    for path in [folder] if folder.is_file() else sorted(folder.glob("**/*.onnx")):
        for n in threads:
            try:
                row = measured(path, inputs.get(path.stem, {}), n, seconds, with_memory and n == threads[0])
            except Exception as error:
                print(f"{path.stem:<24} {type(error).__name__}: {str(error)[:200]}", flush=True)
                status = 1
                break
            printed(path.stem, n, row)
            done.setdefault(path.stem, {})[n] = row
            for key, ratio in row.items():
                if key.endswith("_ratio"):
                    rows.setdefault(f"{key.removesuffix('_ratio')}, {n} threads", []).append(ratio)
    for key, ratios in sorted(rows.items()):
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"{key:<20} geometric mean {mean:.2f}, most {max(ratios):.2f}, {len(ratios)} files")
    if publish is not None:
        publish[0].write_text(table(done, publish[1]))
    return status
