"""Import and export of ONNX networks. Needs the package `onnx` (`pip install "kinnor[onnx]"`).

model = kinnor.onnx.load("net.onnx")
y = model(images)
kinnor.onnx.save({"y": y}, "net.onnx", inputs={"x": x})

session = kinnor.onnx.InferenceSession("net.onnx")  # the interface of ONNX Runtime
y, = session.run(None, {"x": images})
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._suggest import absent
from .read.reading import ModelMetadata, NodeArg
from .read.values import OnnxError
from .run.binding import IOBinding, OrtValue
from .run.loading import load
from .run.network import Model
from .run.options import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, RunOptions, SessionOptions
from .run.session import InferenceSession
from .write.saving import save

if TYPE_CHECKING:
    from typing import NoReturn

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
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


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        absent(f"{__name__}.{name}", __all__)
