"""Programs for ONNX Runtime: names, providers, messages, the inner session, and ONNX's backend interface."""

import os
import subprocess
import sys

import onnx
from onnx import TensorProto, helper

PRELUDE = """
import warnings
import numpy as np
import pytest
import onnxruntime as ort
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import *

X = np.array([[1, 2], [3, 4]], np.float32)
def session(**named):
    return ort.InferenceSession("net.onnx", **named)
"""
"""The begin of each program."""


def run(tmp_path, text):
    """Runs a program beside the file of a model that negates its input."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 2])
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "net", [x], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), tmp_path / "net.onnx")
    (tmp_path / "program.py").write_text(PRELUDE + text)
    command = [sys.executable, "-m", "kinnor.compat.onnxruntime", "program.py"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr


def test_providers_that_are_not_there(tmp_path):
    """Providers other than the CPU cause a warning. Unknown names and wrong arguments are errors."""
    run(
        tmp_path,
        """
with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not available"):
    held = session(providers=[("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"])
assert held.get_providers() == ort.get_available_providers() == ["CPUExecutionProvider"]
with warnings.catch_warnings():
    warnings.simplefilter("error")
    session(providers=["CPUExecutionProvider"], provider_options=[{"a": 1}])
with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="Unknown Provider Type: Mine"):
    held.set_providers(["Mine"])
with pytest.warns(UserWarning, match="is there twice"):
    session(providers=["CPUExecutionProvider"] * 2)
for providers, settings in (
    (3, None), ([3], None), (["CPUExecutionProvider"], 3), (["CPUExecutionProvider"], [3]),
    (["CPUExecutionProvider"], []), ([("CPUExecutionProvider", {})], [{}]), ([("CPUExecutionProvider",)], None),
):
    with pytest.raises(ValueError, match="provider"):
        session(providers=providers, provider_options=settings)
""",
    )


def test_errors_have_the_names_of_onnx_runtime(tmp_path):
    """Errors have the types that programs for ONNX Runtime catch."""
    run(
        tmp_path,
        """
held = session()
with pytest.raises(ValueError, match=r"Required inputs \\(\\['x'\\]\\) are missing from input feed \\(\\['z'\\]\\)"):
    held.run(None, {"z": X})
with pytest.raises(InvalidProtobuf):
    ort.InferenceSession(".")
for wrong in (3, None):
    with pytest.raises(TypeError):
        ort.InferenceSession(wrong)
with pytest.raises(TypeError):
    session(sess_options=3)
options, settings = ort.SessionOptions(), ort.RunOptions()
for entry in (options.get_session_config_entry, settings.get_run_config_entry):
    with pytest.raises(RuntimeError, match="does not have configuration with key: none"):
        entry("none")
settings.terminate = True
with pytest.raises(Fail):
    held.run(None, {"x": X}, settings)
with pytest.raises(NotImplemented):
    options.register_custom_ops_library("ops.so")
with pytest.raises(NotImplemented):
    settings.add_active_adapter(None)
with pytest.raises(AttributeError, match="'SparseTensor'"):
    ort.SparseTensor
assert not hasattr(ort, "LoraAdapter")
""",
    )


def test_messages_reach_the_function_of_the_program(tmp_path):
    """The logging callback gets messages of all levels; its errors end nothing."""
    run(
        tmp_path,
        """
found = []
ort.set_default_logger_callback(lambda *message: found.append(message), severity=0)
session()
assert found and all([type(part) for part in message] == [int, str, str, str, str] for message in found)
def fails(*message):
    raise KeyError
ort.set_default_logger_callback(fails, 0)
with pytest.warns(RuntimeWarning, match="KeyError"):
    session()
ort.set_default_logger_callback(None)
session()
for wrong in (("text",), (fails, 5), (fails, -1)):
    with pytest.raises(RuntimeError):
        ort.set_default_logger_callback(*wrong)
with pytest.raises(RuntimeError):
    ort.set_default_logger_severity(9)
""",
    )


def test_the_inner_session_and_values(tmp_path):
    """Programs that use the classes of ONNX Runtime's extension module get the same results."""
    run(
        tmp_path,
        """
held = session()
value = ort.OrtValue.ortvalue_from_numpy(X)
cpu = C.OrtDevice(C.OrtDevice.cpu(), C.OrtDevice.default_memory(), 0)
assert C.OrtValue.ortvalue_from_numpy(X, cpu).shape() == [2, 2]
with pytest.raises(RuntimeError, match="expected the device 'cpu'"):
    C.OrtValue.ortvalue_from_numpy(X, ort.OrtDevice.make("cuda", 0))
found = held._sess.run_with_ort_values({"x": value._ortvalue}, ["y"], None)
assert isinstance(found, C.OrtValueVector) and found.element_type_at(0) == 1
np.testing.assert_array_equal(found[0].numpy(), -X)
assert isinstance(held.run_with_ort_values(None, {"x": value})[0], ort.OrtValue)
y = np.zeros_like(X)
for given in (("y", cpu), ("y", cpu, np.float32, y.shape, y.ctypes.data)):
    binding = C.SessionIOBinding(held._sess)
    binding.bind_input("x", cpu, np.float32, X.shape, value.data_ptr())
    binding.bind_output(*given)
    held._sess.run_with_iobinding(binding, None)
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), -X)
np.testing.assert_array_equal(y, -X)
device = ort.OrtDevice.make("cuda", 1)
assert (device.device_type(), device.device_id(), device.device_vendor_id()) == (1, 1, ort.OrtDeviceVendorId.NVIDIA)
memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
assert (memory.name, memory.device_id) == ("Cpu", 0)
ort.create_and_register_allocator(memory, ort.OrtArenaCfg({"max_mem": 7}))
assert ort.OrtArenaCfg(8, 0, 4, 2).max_dead_bytes_per_chunk == 2
assert [held.name for held in session().get_input_memory_infos()] == ["Cpu"]
""",
    )


def test_the_backend_interface(tmp_path):
    """`onnxruntime.backend` prepares and runs models, and refuses settings that write files."""
    run(
        tmp_path,
        """
import onnx
from onnxruntime import backend
from onnxruntime.backend.backend import OnnxRuntimeBackend
from onnxruntime.backend.backend_rep import OnnxRuntimeBackendRep
assert isinstance(OnnxRuntimeBackend.prepare("net.onnx"), OnnxRuntimeBackendRep)
for model in ("net.onnx", open("net.onnx", "rb").read(), onnx.load("net.onnx"), session()):
    ready = backend.prepare(model, "CPU", log_severity_level=3, unknown=1)
    assert backend.prepare(ready) is ready
    for inputs in (X, [X]):
        np.testing.assert_array_equal(ready.run(inputs, logid="a")[0], -X)
    np.testing.assert_array_equal(backend.run(model, [X], intra_op_num_threads=1)[0], -X)
assert backend.supports_device("CPU") and not backend.supports_device("CUDA:0")
for name in ("optimized_model_filepath", "enable_profiling", "profile_file_prefix"):
    with pytest.raises(RuntimeError, match=f"{name} is not permitted"):
        backend.prepare("net.onnx", **{name: "a"})
with pytest.raises(RuntimeError, match="terminate is not permitted"):
    backend.run("net.onnx", [X], terminate=True)
with pytest.raises(RuntimeError, match="expected the device 'CPU'"):
    backend.prepare("net.onnx", "CUDA")
""",
    )
