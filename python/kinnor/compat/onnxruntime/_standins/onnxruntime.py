"""Stands for ONNX Runtime in a new process until `kinnor.compat.onnxruntime` has put its name into place."""

import sys

sys.modules.pop(__name__, None)  # Otherwise this module would be taken for ONNX Runtime itself.

import kinnor.compat.onnxruntime  # noqa: E402, F401
