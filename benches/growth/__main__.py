"""Growth: how time and memory of training steps grow with one size of the network, the input or the machine.

    python -m benches.growth                             # all parts
    python -m benches.growth --only depth "first steps"  # some parts
    python -m benches.growth --publish                   # writes the results and the pictures
    python -m benches.growth --publish --add --rounds 0  # writes them again from the file of figures
    python -m benches.growth --quick --output FILE       # tiny sizes

Each part runs in processes of its own, one in each round. Rounds of all parts take turns, and a figure is the
minimum of all rounds: processor time on one thread, and wall time on more. A step writes the inputs, runs forward
and backward, and updates the parameters. Memory is the peak of the library's arrays from building the network on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benches.peers.published import FOLDER, ROOT

from .parts import PARTS
from .report import RESULTS, ROWS, described, draw, text


def measured(part: str, is_quick: bool) -> dict[str, Any]:
    """Runs a part in a process of its own."""
    command = [sys.executable, "-m", "benches.growth", "--work", part, *["--quick"] * is_quick]
    environment = os.environ | {"KINNOR_NUM_THREADS": "1"}
    out = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    if out.returncode:
        raise SystemExit(out.stderr)
    found: dict[str, Any] = json.loads(out.stdout)
    return found


def least(a: Any, b: Any) -> Any:
    """Returns the smaller number, in each place of nested rows. Digests must be equal.

    >>> least({"1": [2.0, 3.0]}, {"1": [4.0, 1.0]})
    {'1': [2.0, 1.0]}
    """
    if isinstance(a, dict):
        return {key: least(a[key], b[key]) for key in a}
    if isinstance(a, list):
        return [least(*pair) for pair in zip(a, b, strict=True)]
    if isinstance(a, str) and a != b:
        raise SystemExit(f"growth: expected the same bits in each round, got {a} and {b}")
    return min(a, b)


def main() -> None:
    """Measures, and prints or publishes the results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="PART", help="parts whose names start so")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="the smallest sizes, a few steps, one round")
    parser.add_argument("--output", type=Path, default=ROWS, help="the file for the figures, in JSON")
    parser.add_argument("--add", action="store_true", help="keep the figures of the file, and its smaller times")
    parser.add_argument("--publish", action="store_true", help="write the page of results and the pictures")
    parser.add_argument("--draw", type=Path, metavar="FOLDER", help="draw the pictures there")
    parser.add_argument("--work", choices=PARTS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        print(json.dumps(PARTS[given.work](given.quick)))
        return
    only = tuple(given.only or ("",))
    names = [name for name in PARTS if name.startswith(only)]
    if not names:
        parser.error(f"--only: expected the start of one of {', '.join(PARTS)}; got {' '.join(only)}")
    facts = json.loads(given.output.read_text()) if given.add else described()
    found = facts["parts"]
    for n in range(1 if given.quick else given.rounds):
        for name in names:
            rows = measured(name, given.quick)
            found[name] = least(found[name], rows) if name in found else rows
            print(f"round {n + 1}: {name}", file=sys.stderr, flush=True)
            given.output.write_text(json.dumps(facts, indent=1) + "\n")
    if given.publish:
        RESULTS.write_text(text(facts))
    else:
        print(text(facts), end="")
    folder = FOLDER if given.publish else given.draw
    if folder:
        draw(found, folder)


if __name__ == "__main__":
    main()
