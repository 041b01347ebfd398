"""Runs a program under ONNX Runtime's name: `python -m kinnor.compat.onnxruntime (script.py | -m module | -c text)`."""

from __future__ import annotations

from kinnor.compat import _programs

from . import STANDINS, install

_programs.run("kinnor.compat.onnxruntime", install, STANDINS)
