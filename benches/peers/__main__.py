"""Trains or predicts in Kinnor and in all installed peers, and reports which is faster.

Each framework has a process of its own. The processes take turns, so that a disturbance affects all.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tqdm import tqdm

from . import footprint, published, report
from .contenders import DTYPES, PEERS, PREDICTION, ROOT, TRAINING, Contender, Failed, Row, able, forms, installed
from .workloads import WORKLOADS

if TYPE_CHECKING:
    from collections.abc import Iterator


def options() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(prog="python -m benches.peers", description=__doc__)
    parser.add_argument("--python", type=Path, default=ROOT / ".venv-peers/bin/python", help="that has the peers")
    parser.add_argument("--peers", nargs="*", choices=PEERS, help="leave out the others; none: Kinnor alone")
    parser.add_argument("--compile", action="store_true", help="torch.compile too, which takes a minute a workload")
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=[*WORKLOADS], help="workloads")
    parser.add_argument("--predict", action="store_true", help="outputs only, in place of training steps")
    parser.add_argument("--dtype", choices=DTYPES, default="float32", help="bfloat16: mixed precision")
    parser.add_argument("--threads", type=int, nargs="+", default=[2, 1])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each contender in each round")
    parser.add_argument("--output", type=Path, help="default: `results`; or `prediction` and `bfloat16` there")
    parser.add_argument("--publish", action="store_true", help="show it on the page about speed in docs/guide as well")
    parser.add_argument("--quick", action="store_true", help="Kinnor alone, on tiny sizes: whether all this works")
    chosen = parser.parse_args()
    chosen.task = PREDICTION if chosen.predict else TRAINING
    of_task = chosen.task if chosen.predict else ""
    of_dtype = "" if chosen.dtype == "float32" else chosen.dtype
    chosen.output = chosen.output or Path(__file__).parent / "results" / of_task / of_dtype
    if chosen.publish and (chosen.quick or chosen.peers == []):
        parser.error("--publish: expected peers to be measured beside, got --quick or --peers without any")
    if chosen.quick:
        chosen.peers, chosen.threads, chosen.rounds, chosen.seconds = [], [1], 1, 0.0
    return chosen


def peers_of(chosen: argparse.Namespace) -> list[str]:
    """Returns the peers to compare with. Ends the program if there are none, unless none were requested."""
    if chosen.peers == []:
        return []
    found = [name for name in installed(chosen.python) if chosen.peers is None or name in chosen.peers]
    found = [name for name in found if able(name, chosen.task, chosen.dtype)]
    if not found:
        sys.exit(
            f"no peers: {chosen.python} has none of {', '.join(chosen.peers or PEERS)}.\n"
            f"`PEERS={','.join(PEERS)} make peers` installs them there (several GB), `--peers` alone does without."
        )
    return found


def attempt(contender: Contender, what: str, *arguments: float) -> None:
    """Calls a method of a contender, unless it has failed before. Records a failure."""
    if contender.row.failure:
        return
    try:
        getattr(contender, what)(*arguments)
    except Failed as failure:
        contender.row.failure = str(failure)


def run(chosen: argparse.Namespace, peers: list[str], name: str, threads: int, bar: tqdm, folder: Path) -> list[Row]:
    """Returns all rows of one workload at one number of threads. Writes its ONNX file to a folder."""
    workload = WORKLOADS[name](chosen.quick)
    contenders: list[Contender] = []
    try:
        file = folder / "network.onnx" if "onnxruntime" in peers else None
        if file:
            from .on_kinnor import export

            export(workload.for_prediction(), file)
        for framework in ("kinnor", *peers):
            python = sys.executable if framework == "kinnor" else chosen.python
            for form in forms(framework, workload, chosen.compile):
                bar.set_description(f"{name}, {threads} threads: {framework} {form}")
                row = Row(name, threads, framework, form, dtype=chosen.dtype, task=chosen.task)
                contender = Contender(row, python, chosen.quick, file if framework == "onnxruntime" else None)
                contenders.append(contender)
                attempt(contender, "start")
                bar.update()
        for turn in range(chosen.rounds):
            # Rotate the order, so that no contender always follows the same one.
            for contender in contenders[turn % len(contenders) :] + contenders[: turn % len(contenders)]:
                bar.set_description(f"{name}, {threads} threads: round {turn + 1}")
                attempt(contender, "measure", chosen.seconds)
                bar.update()
        for contender in contenders:
            attempt(contender, "finish")
    finally:
        for contender in contenders:
            contender.close()
    return [contender.row for contender in contenders]


def steps(chosen: argparse.Namespace, peers: list[str]) -> int:
    """Returns the length of the progress bar."""
    made = [WORKLOADS[name](True) for name in chosen.only]
    starts = sum(len(forms(f, workload, chosen.compile)) for workload in made for f in ("kinnor", *peers))
    return starts * (1 + chosen.rounds) * len(chosen.threads)


def groups(chosen: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Yields workload and number of threads of each group of rows."""
    for threads in chosen.threads:
        for name in chosen.only:
            yield name, threads


def main() -> None:
    """Measures, prints and writes the results."""
    chosen = options()
    peers = peers_of(chosen)
    rows: list[Row] = []
    comparisons: list[report.Comparison] = []
    with tempfile.TemporaryDirectory() as folder, tqdm(total=steps(chosen, peers), disable=None) as bar:
        for name, threads in groups(chosen):
            here = run(chosen, peers, name, threads, bar, Path(folder))
            for row in report.void(here):
                bar.write(f"void: {row.workload}, {row.who}, {row.threads} threads: {row.failure}")
            rows += here
            compared = report.compare(here, WORKLOADS[name](True).is_small_work)
            bar.write(f"{name}, {threads} threads: {'; '.join(map(str, compared))}")
            comparisons += compared
    found = [] if chosen.quick else footprint.measure({"kinnor": sys.executable, **dict.fromkeys(peers, chosen.python)})
    report.write(rows, comparisons, found, chosen.output)
    print(report.ratios(comparisons))
    if found:
        print(report.footprints(found))
    for n in chosen.threads:
        print(report.conclusion(comparisons, n))
    print(f"written: {chosen.output}")
    if chosen.publish:
        published.write(comparisons, chosen.threads[0])
        print(f"written: {published.FOLDER / 'speed.md'} and its figures")
    if any(row.failure for row in rows if row.framework == "kinnor"):
        sys.exit("a row of Kinnor's is void")


if __name__ == "__main__":
    main()
