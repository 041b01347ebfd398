"""Compares what `digests.py` printed on two machines. Exits with 1 if bits differ that should be the same."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from accuracy import SUMS_OF_PRODUCTS

# rustfft has an algorithm for each kind of registers.
FOURIER = {"fft", "ifft", "stft", "istft"}


def main() -> int:
    """Compares two files."""
    first, second = (json.loads(Path(name).read_text()) for name in sys.argv[1:3])
    differ = {name for name, bits in first["table"].items() if second["table"].get(name) != bits}
    wrong = differ - SUMS_OF_PRODUCTS - FOURIER
    if first["without products"] != second["without products"]:
        wrong.add("functions of large arrays without products")
    print(f"{len(first['table'])} operations, other bits: {', '.join(sorted(differ)) or 'none'}")
    if wrong:
        print(f"expected the same bits: {', '.join(sorted(wrong))}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
