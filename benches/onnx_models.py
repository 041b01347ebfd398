"""ONNX models compared with onnxruntime, on the same files.

    python benches/onnx_models.py                       # ten architectures, batches of 1, 8 and 32, one and two threads
    python benches/onnx_models.py resnet lstm --batch 1 --threads 1
    python benches/onnx_models.py --memory              # the peak of memory from loading on, in separate processes
    python benches/onnx_models.py resnet --quantized qdq
    python benches/onnx_models.py --models FOLDER       # other files: also new shapes, first calls and memory

The runtimes take turns of a tenth of a second, because idle threads of both spin for a while after a call. A
figure is the minimum of all calls: processor time on one thread, wall time on more. A ratio below 1 means that
Kinnor is faster.

Outputs must agree, else the row says so and the exit status is 1. Outputs of quantized models may differ by eight
levels, or by half of the error of quantization. If inputs that are larger by one part in a million change onnxruntime's
outputs, they may also differ by twice this change.
"""

from __future__ import annotations

import argparse
import gc
import math
import sys
import tempfile
import time
from datetime import datetime, timezone
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))

from benches import onnx_networks as networks
from benches.onnx_files import compare, session_of
from benches.onnx_memory import CALLS, peak
from benches.onnx_quantized import FORMS, moved, quantized, tolerances
from benches.peers.published import machine

import kinnor as nn
import kinnor.onnx

if TYPE_CHECKING:
    from collections.abc import Callable

RNG = np.random.default_rng(0)
TURN = 0.1
"""Seconds of a turn."""
APART = 1e-3
"""Tolerance of float outputs, relative to the largest number."""


def images(n: int, size: int = 64) -> dict[str, Any]:
    """Returns inputs of convolutional networks."""
    return {"x": RNG.standard_normal((n, 3, size, size)).astype(np.float32)}


def words(n: int) -> dict[str, Any]:
    """Returns inputs of a text encoder."""
    mask = (RNG.random((n, 64)) < 0.8).astype(np.float32)
    return {"tokens": RNG.integers(networks.WORDS, size=(n, 64)), "mask": mask}


def cached(n: int) -> dict[str, Any]:
    """Returns inputs of a language model that has read 64 words."""
    past = {key: RNG.standard_normal((n, 4, 4, 64, 64)).astype(np.float32) for key in ("keys", "values")}
    return {"tokens": RNG.integers(networks.WORDS, size=(n, 1)), **past}


def sequences(n: int) -> dict[str, Any]:
    """Returns inputs of a recurrent network."""
    return {"x": RNG.standard_normal((n, 50, 64)).astype(np.float32)}


MOBILE = (
    (16, 16, 3, 1),
    (64, 24, 3, 2),
    (72, 24, 3, 1),
    (72, 40, 5, 2),
    (120, 40, 5, 1),
    (240, 80, 3, 2),
    (200, 80, 3, 1),
)
EFFICIENT = ((16, 3, 1), (24, 3, 2), (24, 3, 1), (40, 5, 2), (40, 5, 1), (80, 3, 2), (80, 3, 1))

ARCHITECTURES: dict[str, tuple[Callable[..., Any], dict[str, Any], Callable[[int], dict[str, Any]]]] = {
    "resnet": (networks.resnet, {"widths": (64, 128, 256, 512), "blocks": (3, 4, 6, 3)}, images),
    "mobilenet": (networks.mobilenet, {"stem": 16, "blocks": MOBILE, "last": 576}, images),
    "efficientnet": (networks.efficientnet, {"stem": 32, "blocks": EFFICIENT}, images),
    "densenet": (networks.densenet, {"stem": 64, "growth": 32, "layers": (6, 12)}, lambda n: images(n, 32)),
    "unet": (networks.unet, {"width": 32}, images),
    "yolo": (networks.yolo, {"stem": 32}, lambda n: images(n, 128)),
    "bert": (networks.bert, {"width": 256, "layers": 4, "heads": 4}, words),
    "gpt2": (networks.gpt2, {}, cached),
    "vit": (networks.vit, {"width": 192, "layers": 6, "heads": 3}, images),
    "lstm": (networks.lstm, {"units": 128}, sequences),
}


def write(name: str, path: Path) -> None:
    """Writes an architecture with random parameters and a symbolic batch size."""
    network, arguments, made = ARCHITECTURES[name]
    nn.clear_parameters()
    for is_shaken in (False, True):
        inputs = {key: nn.Variable.from_numpy_array(x) for key, x in made(2).items()}
        outputs = network(**inputs, **arguments)
        if not is_shaken:
            networks.shaken()
    kinnor.onnx.save(outputs, path, inputs)


def agree(found: Any, wanted: list[Any], apart: list[float]) -> bool:
    """True if the outputs agree, each within its tolerance relative to the largest number."""
    given = list(found) if isinstance(found, tuple) else [found]
    rows = zip(given, wanted, apart, strict=True)
    return all(np.abs(a - b).max() <= share * max(np.abs(b).max(), 1) for a, b, share in rows)


def most(name: str, path: Path, batch: int, threads: int) -> tuple[float, bool]:
    """Measures and prints the memory of one batch size of one architecture. Returns the ratio."""
    given = ARCHITECTURES[name][2](batch)
    ours, theirs = (peak(runtime, path, [given] * CALLS, threads) for runtime in ("kinnor", "onnxruntime"))
    print(
        f"{name:<13} batch {batch:>2}, {threads} threads: {ours:8.1f} MiB, {ours / theirs:.2f} of onnxruntime's",
        flush=True,
    )
    return ours / theirs, True


def row(name: str, path: Path, plain: Path, batch: int, threads: int, seconds: float) -> tuple[float, bool]:
    """Measures and prints one batch size of one architecture. Returns the ratio, and if the outputs agree.

    Args:
        name: The architecture.
        path: Its file.
        plain: The same file, or the file that it was quantized from.
        batch: Samples in a call.
        threads: Number of threads.
        seconds: Duration of the measurement.
    """
    gc.collect()  # frees the models of the last row
    begun = time.perf_counter()
    session = session_of(path, threads)
    theirs = time.perf_counter() - begun
    nn.set_num_threads(threads)
    begun = time.perf_counter()
    model = kinnor.onnx.load(path)
    ours = time.perf_counter() - begun
    given = ARCHITECTURES[name][2](batch)
    runs = (lambda: model(**given), lambda: session.run(None, given))
    found, wanted = (run() for run in runs)
    apart = [APART] * len(wanted)
    if plain != path:
        of_floats = session_of(plain, threads).run(None, given)
        apart = tolerances(wanted, of_floats, session.run(None, moved(given)))
    same = agree(found, wanted, apart)
    clock = time.process_time if threads == 1 else time.perf_counter
    least = [math.inf, math.inf]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, run in enumerate(runs):
            turn = time.perf_counter() + TURN
            while time.perf_counter() < turn:
                begun = clock()
                run()
                least[i] = min(least[i], clock() - begun)
    ratio = least[0] / least[1]
    print(
        f"{name:<13} batch {batch:>2}, {threads} threads: {1e3 * least[0]:8.3f} ms, {ratio:.2f} of onnxruntime's"
        f"; load {ours / theirs:.2f}{'' if same else '; NOT THE SAME'}",
        flush=True,
    )
    return ratio, same


def main() -> int:
    """Compares the models that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", default=list(ARCHITECTURES), help="architectures; all by default")
    parser.add_argument("--batch", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a row is measured")
    parser.add_argument("--memory", action="store_true", help="the most memory in place of time")
    parser.add_argument("--quantized", choices=FORMS, help="quantize the models first")
    parser.add_argument("--models", type=Path, help="a folder of ONNX files, or one file, in place of architectures")
    parser.add_argument(
        "--inputs", type=Path, help="a JSON file on the inputs of these files: see benches/onnx_files.py"
    )
    parser.add_argument("--publish", type=Path, help="a file for the table of results of these files")
    options = parser.parse_args()
    if options.models:
        now = datetime.now(timezone.utc)
        publish = (options.publish, f"{machine()}, {now.day} {now:%B %Y}") if options.publish else None
        return compare(options.models, options.inputs, options.threads, options.seconds, options.memory, publish)
    unknown = set(options.names) - set(ARCHITECTURES)
    if unknown:
        parser.error(f"expected architectures of {sorted(ARCHITECTURES)}, got {sorted(unknown)}")
    found, threads_before = [], nn.get_num_threads()
    with tempfile.TemporaryDirectory() as folder, nn.parameter_scope("", {}):
        for name in tqdm(options.names, disable=None):
            path = plain = Path(folder) / f"{name}.onnx"
            write(name, plain)
            if options.quantized:
                path = quantized(plain, options.quantized, [ARCHITECTURES[name][2](2) for _ in range(4)])
                try:
                    session_of(path, 1)
                except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
                    print(f"{name:<13} onnxruntime refuses what it has quantized: {error}", flush=True)
                    continue
            for threads, n in product(options.threads, options.batch):
                if options.memory:
                    found.append(most(name, path, n, threads))
                else:
                    found.append(row(name, path, plain, n, threads, options.seconds))
    nn.set_num_threads(threads_before)
    if found:
        print(f"geometric mean {math.exp(sum(math.log(ratio) for ratio, _ in found) / len(found)):.2f}")
    return 0 if all(same for _, same in found) else 1


if __name__ == "__main__":
    sys.exit(main())
