"""The public names of NNabla 1.39, and the names that are missing here.

Used to check the documented list of missing names. The functions of `nnabla.function_bases` and the classes of
`nnabla.function` are left out, since they follow from `nnabla.functions`.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

FILE = Path(__file__).with_suffix(".txt")
"""One line for each module: its name, a colon, its names. A name that ends with a dot is a class."""


def names() -> dict[str, list[str]]:
    """Returns the public names by module."""
    rows = (line.partition(":") for line in FILE.read_text().splitlines())
    return {module: found.split() for module, _, found in rows}


def missing() -> tuple[list[str], dict[str, list[str]]]:
    """Returns the missing modules, and the missing names of the other modules. Run it in a process of its own."""
    import kinnor.compat.nnabla  # noqa: F401

    modules, found = [], {}
    for module, known in names().items():
        try:
            place = member(module)
        except (ImportError, AttributeError):
            modules.append(module)
            continue
        absent = [name for name in known if not hasattr(place, name)]
        if absent:
            found[module.rstrip(".")] = absent
    inside = [m for m in modules if not any(m.startswith(f"{other}.") for other in modules)]
    return inside, found


def member(module: str) -> object:
    """Returns the module of this name, or the class if the name ends in a dot."""
    if not module.endswith("."):
        return importlib.import_module(module)
    place, _, name = module.rstrip(".").rpartition(".")
    return getattr(importlib.import_module(place), name)


if __name__ == "__main__":
    json.dump(missing(), sys.stdout)
