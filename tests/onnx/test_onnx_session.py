"""ONNX: sessions behind the interface of ONNX Runtime, and models that are in memory."""

import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import kinnor as nn
import kinnor.onnx

RNG = np.random.default_rng(3)
W = RNG.standard_normal((4, 3)).astype(np.float32)
"""The weight of the network."""


def network():
    """Returns a model with two inputs, two outputs, an open axis and metadata."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Tanh", ["h"], ["y"]),
        helper.make_node("Mul", ["n", "n"], ["m"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 4]),
            helper.make_tensor_value_info("n", TensorProto.INT64, [None]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", 3]),
            helper.make_tensor_value_info("m", TensorProto.INT64, [None]),
        ],
        [numpy_helper.from_array(W, "w")],
        doc_string="a graph",
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, producer_name="tests")
    made.metadata_props.add(key="letters", value="abc")
    made.model_version = 7
    made.domain = "here"
    made.doc_string = "a model"
    return made


FEED = {"x": RNG.standard_normal((5, 4)).astype(np.float32), "n": np.array([2, -3])}
"""Inputs of the network by name."""
Y = np.tanh(FEED["x"] @ W)
"""The expected first output for `FEED`."""


@pytest.fixture
def session():
    """Returns a session of the network."""
    return kinnor.onnx.InferenceSession(network().SerializeToString())


@pytest.fixture
def reference():
    """Returns ONNX Runtime's session of the network."""
    return onnxruntime.InferenceSession(network().SerializeToString())


@pytest.mark.parametrize("kind", ["path", "text", "bytes", "bytearray", "message"])
def test_a_model_is_read_from(kind, tmp_path):
    """A model is loaded from a path, bytes or a message, which stays unchanged."""
    proto, path = network(), tmp_path / "net.onnx"
    onnx.save(proto, path)
    content = proto.SerializeToString()
    sources = {"path": path, "text": str(path), "bytes": content, "bytearray": bytearray(content), "message": proto}
    before = proto.SerializeToString()
    model = kinnor.onnx.load(sources[kind])
    np.testing.assert_allclose(model(**FEED)[0], Y, rtol=1e-6)
    assert list(model.get_parameters()) == ["w"]
    assert proto.SerializeToString() == before


def test_external_data_of_a_model_in_memory(tmp_path):
    """A model of bytes reads its external data from a given folder only."""
    path = tmp_path / "net.onnx"
    onnx.save(network(), path, save_as_external_data=True, location="w.bin", size_threshold=0)
    content = path.read_bytes()
    np.testing.assert_allclose(kinnor.onnx.load(content, folder=tmp_path)(**FEED)[0], Y, rtol=1e-6)
    with pytest.raises(kinnor.onnx.OnnxError, match="expected a file in the folder of the model"):
        kinnor.onnx.load(content)
    options = kinnor.onnx.SessionOptions()
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(tmp_path))
    found = kinnor.onnx.InferenceSession(content, options).run(["y"], FEED)
    np.testing.assert_allclose(found[0], Y, rtol=1e-6)


def test_what_is_no_model_in_memory_is_refused_in_few_words():
    """Bytes that are no model raise a short error."""
    for content in (b"none", RNG.bytes(100_000), b""):
        with pytest.raises(kinnor.onnx.OnnxError) as caught:
            kinnor.onnx.load(content)
        assert len(str(caught.value)) < 200
    with pytest.raises(nn.CallError, match="expected a path, bytes or a ModelProto, got int"):
        kinnor.onnx.load(3)


def test_descriptions_equal_those_of_onnx_runtime(session, reference):
    """Names, types, shapes and metadata equal ONNX Runtime's."""
    for get in ("get_inputs", "get_outputs"):
        found = [(x.name, x.type, x.shape) for x in getattr(session, get)()]
        assert found == [(x.name, x.type, x.shape) for x in getattr(reference, get)()]
    found, wanted = session.get_modelmeta(), reference.get_modelmeta()
    for name in found._fields:
        assert getattr(found, name) == getattr(wanted, name), name
    copied = pickle.loads(pickle.dumps(session.model))
    assert copied.input_info == session.model.input_info
    assert copied.metadata == session.model.metadata


def test_types_that_are_no_tensors_are_described():
    element = helper.make_tensor_type_proto(TensorProto.DOUBLE, ["n"])
    sequence = helper.make_sequence_type_proto(element)
    x = helper.make_value_info("x", helper.make_optional_type_proto(sequence))
    nodes = [helper.make_node("OptionalHasElement", ["x"], ["y"])]
    graph = helper.make_graph(nodes, "net", [x], [helper.make_tensor_value_info("y", TensorProto.BOOL, [])])
    model = kinnor.onnx.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    assert model.input_info[0] == ("x", "optional(seq(tensor(double)))", ["n"])
    assert model.output_info[0] == ("y", "tensor(bool)", [])


@pytest.mark.parametrize("names", [None, [], ["y"], ["m", "y"], ["y", "y"]])
def test_outputs_are_chosen(session, reference, names):
    """`run` computes the requested outputs in the requested order."""
    for y, wanted in zip(session.run(names, FEED), reference.run(names, FEED), strict=True):
        assert y.dtype == wanted.dtype
        np.testing.assert_allclose(y, wanted, rtol=1e-6)


def test_inputs_that_do_not_fit_are_refused(session):
    x, n = FEED["x"], FEED["n"]
    for feed, kind, told in [
        ({"x": x}, nn.CallError, r"expected the inputs \['n'\]"),
        ({**FEED, "z": x}, nn.CallError, r"got \['z'\]"),
        ({"x": x.astype(np.float64), "n": n}, nn.DTypeError, r"expected tensor\(float\) as input 'x', got tensor\(d"),
        ({"x": x, "n": n.astype(np.int32)}, nn.DTypeError, r"expected tensor\(int64\) as input 'n'"),
        ({"x": x[:, :3], "n": n}, nn.ShapeError, "of input 'x'"),
        ({"x": None, "n": n}, nn.CallError, "input 'x', got None"),
    ]:
        with pytest.raises(kind, match=told):
            session.run(None, feed)
    with pytest.raises(nn.CallError, match="got 'q'"):
        session.run(["q"], FEED)
    with pytest.raises(nn.CallError, match="expected a list of names"):
        session.run("y", FEED)
    np.testing.assert_allclose(session.run(None, FEED)[0], Y, rtol=1e-6)


def test_lists_and_swapped_bytes_are_inputs(session):
    """Inputs may be lists, or arrays of the other byte order."""
    feed = {"x": FEED["x"].astype(">f4"), "n": [2, -3]}
    y, m = session.run(None, feed)
    np.testing.assert_allclose(y, Y, rtol=1e-6)
    assert m.tolist() == [4, 9]


def test_threads_share_a_session(session):
    """Threads may run one session at the same time."""
    feeds = [{"x": RNG.standard_normal((k, 4)).astype(np.float32), "n": np.arange(k)} for k in (1, 2, 5, 9)]

    def work(k):
        """Runs the session with one of four inputs and checks the results."""
        feed = feeds[k % 4]
        y, m = session.run(None, feed)
        np.testing.assert_allclose(y, np.tanh(feed["x"] @ W), rtol=1e-5)
        np.testing.assert_array_equal(m, feed["n"] ** 2)
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(400)))


def test_values_and_bindings(session):
    """`OrtValue` and IO bindings work as in ONNX Runtime."""
    x = kinnor.onnx.OrtValue.ortvalue_from_numpy(FEED["x"])
    n = kinnor.onnx.OrtValue.ortvalue_from_shape_and_type([2], np.int64)
    n.update_inplace(FEED["n"])
    y, m = session.run_with_ort_values(None, {"x": x, "n": n})
    np.testing.assert_allclose(y.numpy(), Y, rtol=1e-6)
    assert (m.shape(), m.data_type(), m.element_type(), m.is_tensor()) == ([2], "tensor(int64)", 7, True)
    with pytest.raises(nn.ShapeError, match="update_inplace"):
        n.update_inplace(np.zeros(3))
    with pytest.raises(nn.UnsupportedError, match="expected the device 'cpu', got 'cuda'"):
        kinnor.onnx.OrtValue.ortvalue_from_numpy(FEED["x"], "cuda")

    binding, target = session.io_binding(), np.zeros((5, 3), np.float32)
    given = FEED["x"].copy()
    binding.bind_input("x", "cpu", 0, np.float32, given.shape, given.ctypes.data)
    binding.bind_ortvalue_input("n", n)
    binding.bind_output("m")
    binding.bind_output("y", "cpu", 0, np.float32, target.shape, target.ctypes.data)
    for factor in (1, 2):
        given[:] = FEED["x"] * factor
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(target, np.tanh(FEED["x"] * factor @ W), rtol=1e-5)
        assert binding.copy_outputs_to_cpu()[0].tolist() == [4, 9]
    assert [value.shape() for value in binding.get_outputs()] == [[2], [5, 3]]


def test_a_run_in_another_thread_calls_back(session):
    """`run_async` calls back with the outputs, the user's object and the error text."""
    done, found = threading.Event(), []

    def callback(outputs, data, text):
        """Notes the results of the run and wakes the test."""
        found.append((outputs, data, text))
        done.set()

    session.run_async(["y"], FEED, callback, "mine")
    assert done.wait(60)
    np.testing.assert_allclose(found[0][0][0], Y, rtol=1e-6)
    assert found[0][1:] == ("mine", "")
    done.clear()
    session.run_async(["y"], {}, callback, None)
    assert done.wait(60)
    assert "expected the inputs" in found[1][2]


def test_options():
    """Session options: threads are applied, entries are stored, and custom libraries are refused."""
    before = nn.get_num_threads()
    options = kinnor.onnx.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = kinnor.onnx.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("a", "b")
    assert options.get_session_config_entry("a") == "b"
    with pytest.raises(nn.ArgumentError, match="got 'c'"):
        options.get_session_config_entry("c")
    with pytest.raises(nn.UnsupportedError, match="library"):
        options.register_custom_ops_library("ops.so")
    try:
        session = kinnor.onnx.InferenceSession(
            network(), options, [("CUDAExecutionProvider", {"device_id": 1}), "CPUExecutionProvider"]
        )
        assert nn.get_num_threads() == 1
    finally:
        nn.set_num_threads(before)
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert session.get_session_options() is options


PROGRAM = """
import importlib.util
import numpy as np
import onnxruntime as ort
from onnxruntime.capi import _pybind_state
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument, NoSuchFile

assert importlib.util.find_spec("onnxruntime") is not None
options = ort.SessionOptions()
options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
session = ort.InferenceSession("net.onnx", sess_options=options, providers=["CPUExecutionProvider"])
x = np.ones((2, 4), np.float32)
y, = session.run([session.get_outputs()[0].name], {"x": x, "n": np.array([1])})
print(y.shape, session.get_inputs()[0].shape, session.get_modelmeta().custom_metadata_map["letters"])

def refused(kind, call, *args):
    try:
        call(*args)
    except kind as error:
        print(type(error).__name__)

refused(InvalidArgument, session.run, None, {"x": x.astype(float), "n": np.array([1])})
refused(InvalidArgument, session.run, None, {"x": x[:, :1], "n": np.array([1])})
refused(InvalidArgument, session.run, ["q"], {"x": x, "n": np.array([1])})
refused(ValueError, session.run, None, {})
refused(NoSuchFile, ort.InferenceSession, "none.onnx")
refused(Exception, ort.InferenceSession, b"none")
try:
    import onnxruntime.quantization
except ModuleNotFoundError as error:
    print(error)
print(ort.__version__, getattr(ort, "__kinnor__", None))
"""


def test_programs_for_onnx_runtime_run_unchanged(tmp_path):
    """A program that imports `onnxruntime` runs on Kinnor, with its errors."""
    onnx.save(network(), tmp_path / "net.onnx")
    (tmp_path / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "kinnor.compat.onnxruntime", "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "(2, 3) ['rows', 4] abc"
    assert lines[1:7] == [*["InvalidArgument"] * 3, "ValueError", "NoSuchFile", "InvalidProtobuf"]
    assert lines[7] == "module 'onnxruntime.quantization': ONNX Runtime has it and Kinnor has not"
    assert lines[8] == f"{onnxruntime.__version__} {nn.__version__}" or lines[8].endswith(nn.__version__)


def test_tests_and_workers_find_the_name(tmp_path):
    """Test runs and child processes import the replacement of `onnxruntime`."""
    (tmp_path / "test_theirs.py").write_text(
        "import subprocess, sys, onnxruntime\n"
        "TEXT = 'import onnxruntime; print(onnxruntime.__kinnor__)'\n"
        "def test_name(tmp_path):\n"
        "    assert onnxruntime.__kinnor__\n"
    )
    (tmp_path / "starts.py").write_text(
        "import subprocess, sys\n"
        "text = 'import onnxruntime; print(onnxruntime.__kinnor__)'\n"
        "print(subprocess.run([sys.executable, '-c', text], capture_output=True, text=True, check=True).stdout)\n"
    )
    for arguments in (
        ["pytest", "-q", "-p", "kinnor.compat.onnxruntime", "-p", "no:cacheprovider", "test_theirs.py"],
        ["kinnor.compat.onnxruntime", "starts.py"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=120,
            check=False,
            env={**os.environ},
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_name_is_refused_after_onnx_runtime_itself():
    """Kinnor's `onnxruntime` cannot be imported after ONNX Runtime."""
    with pytest.raises(ImportError, match="expected to be imported before onnxruntime"):
        import kinnor.compat.onnxruntime  # noqa: F401


def one_node(operator, arrays, opset=18, constants=(), **attributes):
    """Returns the bytes of a model of one node, whose inputs `constants` are constants, and its feed."""
    named = {f"x{i}": np.asarray(array) for i, array in enumerate(arrays) if array is not None}
    held = {name: array for name, array in named.items() if int(name[1:]) in constants}
    feed = {name: array for name, array in named.items() if name not in held}
    inputs = [f"x{i}" if array is not None else "" for i, array in enumerate(arrays)]
    graph = helper.make_graph(
        [helper.make_node(operator, inputs, ["y"], **attributes)],
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in feed.items()
        ],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made).SerializeToString(), feed


def both(proto, feed):
    """Returns the outputs of Kinnor and of ONNX Runtime."""
    ours = nn.onnx.InferenceSession(proto).run(None, feed)[0]
    return ours, onnxruntime.InferenceSession(proto, providers=["CPUExecutionProvider"]).run(None, feed)[0]


DOUBLES = np.array([[1 + 1e-12, -0.3, 1e-60], [1e200, 0.1, -7.25]])
"""Numbers that float32 rounds, or that are out of its range."""


@pytest.mark.parametrize(
    ("operator", "arrays", "attributes"),
    [
        ("Add", (DOUBLES, DOUBLES[::-1].copy()), {}),
        ("Mul", (DOUBLES, DOUBLES), {}),
        ("Div", (DOUBLES, DOUBLES[::-1].copy()), {}),
        ("Exp", (DOUBLES[:, 1:2],), {}),
        ("MatMul", (DOUBLES, DOUBLES.T.copy()), {}),
        ("Gemm", (DOUBLES, DOUBLES, DOUBLES[:, :2].copy()), {"transB": 1}),
        ("ReduceSum", (DOUBLES,), {"keepdims": 0}),
        ("Softmax", (DOUBLES[:, 1:],), {}),
        ("Concat", (DOUBLES, DOUBLES), {"axis": 0}),
        ("Greater", (DOUBLES, np.float64([[1, -0.3, 0]])), {}),
        ("Clip", (DOUBLES, np.float64(-1e-12), np.float64(1e100)), {}),
        ("Cast", (np.array([2**24 + 1, 2**53 - 1]),), {"to": TensorProto.DOUBLE}),
        ("Cast", (DOUBLES[:1],), {"to": TensorProto.FLOAT}),
    ],
)
def test_double_precision_is_computed_in_double_precision(operator, arrays, attributes):
    ours, theirs = both(*one_node(operator, arrays, **attributes))
    assert ours.dtype == theirs.dtype
    np.testing.assert_allclose(ours, theirs, rtol=1e-14)


@pytest.mark.parametrize("slope", [(), (1,), (3, 1), (2, 3, 4), (2, 1, 1), (4,)])
def test_a_slope_that_is_not_used_has_no_effect(slope):
    """`PRelu` on positive inputs ignores slopes of infinity or NaN, as in ONNX Runtime."""
    x = np.abs(RNG.standard_normal((2, 3, 4))).astype(np.float32)
    for bad in (np.inf, np.nan, 0.5):
        ours, theirs = both(*one_node("PRelu", (x, np.full(slope, bad, np.float32))))
        assert np.array_equal(ours, x)
        assert np.array_equal(theirs, x)
    ours, theirs = both(*one_node("PRelu", (-x, RNG.standard_normal(slope).astype(np.float32))))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("place", ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_resized_images_are_those_of_onnx_runtime(mode, place):
    """`Resize` agrees with ONNX Runtime. An infinite pixel changes only outputs that depend on it."""
    for shape, sizes in (
        ((1, 2, 5, 7), (9, 4)),
        ((2, 1, 4, 4), (8, 8)),
        ((1, 1, 6, 3), (6, 7)),
        ((1, 1, 3, 3), (1, 5)),
    ):
        x = RNG.standard_normal(shape).astype(np.float32)
        to = np.array([*shape[:2], *sizes])
        proto, feed = one_node(
            "Resize", (x, None, None, to), constants=(3,), mode=mode, coordinate_transformation_mode=place
        )
        ours, theirs = both(proto, feed)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
        spoilt, moved = x.copy(), x.copy()
        spoilt[..., 1, 1], moved[..., 1, 1] = np.inf, 50.0
        session = nn.onnx.InferenceSession(proto)
        apart = session.run(None, {"x0": moved})[0] == ours
        assert np.array_equal(session.run(None, {"x0": spoilt})[0][apart], ours[apart])
