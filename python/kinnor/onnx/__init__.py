"""Import and export of ONNX networks. Needs the package `onnx` (`pip install "kinnor[onnx]"`).

model = kinnor.onnx.load("net.onnx")
y = model(images)
kinnor.onnx.save({"y": y}, "net.onnx", inputs={"x": x})
"""

from .read.values import OnnxError
from .run.network import Model, load
from .write.saving import save

__all__ = ["Model", "OnnxError", "load", "save"]
