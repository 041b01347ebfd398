"""The size of a framework: seconds to import, and MiB on disk.

    python -m benches.peers.footprint DISTRIBUTION

Prints the MiB of an installed distribution with all its requirements, and of itself alone.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from .contenders import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

IMPORTS = {"kinnor": "import kinnor, kinnor.functions, kinnor.parametric_functions, kinnor.solvers"}
DISTRIBUTIONS = {"tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow_cpu")}


@dataclass(frozen=True)
class Footprint:
    """Seconds to import a framework in a new process, MiB with all requirements, and MiB of its own."""

    name: str
    seconds: float
    total: float
    own: float


def of_package(name: str) -> float:
    """Returns the MiB of a package's folder. Used for development installs, whose files are only there."""
    found = util.find_spec(name)
    folder = Path(found.origin).parent if found and found.origin else None
    files = folder.rglob("*") if folder else []
    return sum(f.stat().st_size for f in files if f.is_file() and "__pycache__" not in f.parts) / 2**20


def of_distribution(name: str) -> float:
    """Returns the MiB of the files that a distribution installed."""
    files = [Path(str(f.locate())) for f in metadata.files(name) or [] if "__pycache__" not in f.parts]
    return sum(f.stat().st_size for f in files if f.is_file()) / 2**20


def required(name: str, found: set[str] | None = None) -> set[str]:
    """Returns the distribution and all installed ones that it requires, without extras."""
    found = set() if found is None else found
    key = re.sub(r"[-_.]+", "-", name).lower()
    try:
        lines = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return found
    if key not in found:
        found.add(key)
        for line in lines:
            matched = re.match(r"[\w.-]+", line)
            if matched and "extra" not in line.partition(";")[2]:
                required(matched[0], found)
    return found


def main() -> None:
    """Prints both figures."""
    name = sys.argv[1]
    names = DISTRIBUTIONS.get(name, (name,))
    if name == "kinnor":
        own, others = of_package("kinnor"), required("numpy")
    else:
        name = next((n for n in names if required(n)), name)
        own, others = of_distribution(name), required(name) - {re.sub(r"[-_.]+", "-", name).lower()}
    print(own + sum(map(of_distribution, others)), own)


def seconds(command: list[str]) -> float:
    """Returns the seconds that a program runs."""
    started = time.perf_counter()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return time.perf_counter() - started


def measure(pythons: Mapping[str, Path | str], rounds: int = 5) -> list[Footprint]:
    """Measures the footprint of each framework with its interpreter, in alternating rounds."""
    taken: dict[str, list[float]] = {name: [] for name in pythons}
    for _ in range(rounds + 1):
        for name, python in pythons.items():
            over = seconds([str(python), "-c", "pass"])
            taken[name].append(seconds([str(python), "-c", IMPORTS.get(name, f"import {name}")]) - over)
    found = []
    for name, python in pythons.items():
        command = [str(python), "-m", "benches.peers.footprint", name]
        total, own = subprocess.check_output(command, text=True, cwd=ROOT).split()
        # The first round may read the files from disk.
        found.append(Footprint(name, median(taken[name][1:]), float(total), float(own)))
    return found


if __name__ == "__main__":
    main()
