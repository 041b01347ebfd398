"""ONNX: networks that other programs made, loaded and called; needs the package `onnx` (`pip install "kinnor[onnx]"`).

model = kinnor.onnx.load("net.onnx")
y = model(images)
"""

from .network import Model, load
from .values import OnnxError

__all__ = ["Model", "OnnxError", "load"]
