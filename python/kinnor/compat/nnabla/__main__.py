"""Runs a program under NNabla's names: `python -m kinnor.compat.nnabla (script.py | -m module | -c text) [args]`."""

from __future__ import annotations

from kinnor.compat import _programs

from . import STANDINS, install

_programs.run("kinnor.compat.nnabla", install, STANDINS)
