"""Import and export of ONNX networks. Needs the package `onnx` (`pip install "kinnor[onnx]"`).

model = kinnor.onnx.load("net.onnx")
y = model(images)
kinnor.onnx.save({"y": y}, "net.onnx", inputs={"x": x})

session = kinnor.onnx.InferenceSession("net.onnx")  # the interface of ONNX Runtime
y, = session.run(None, {"x": images})
"""

from .read.described import ModelMetadata, NodeArg
from .read.values import OnnxError
from .run.network import Model, load
from .run.session import (
    ExecutionMode,
    GraphOptimizationLevel,
    InferenceSession,
    IOBinding,
    OrtValue,
    RunOptions,
    SessionOptions,
)
from .write.saving import save

__all__ = [
    "ExecutionMode",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "Model",
    "ModelMetadata",
    "NodeArg",
    "OnnxError",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "load",
    "save",
]
