"""ONNX: settings of sessions and runs, values that other libraries share, and initializers that a run replaces."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import kinnor as nn
import kinnor.onnx

W = np.array([[2, 3], [5, 7], [11, 13]], np.float32)
"""The initializer of the model."""
X = np.array([[1, -2], [3, -4], [5, -6]], np.float32)
"""An input of the model."""


def product(is_open=False, lengths=("a", "b")):
    """Returns a model that multiplies its input by an initializer, which a run may replace if `is_open`."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, list(lengths))
    w = helper.make_tensor_value_info("w", TensorProto.FLOAT, [3, 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, list(lengths))
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "product",
        [x, w] if is_open else [x],
        [y],
        [numpy_helper.from_array(W, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def options(**settings):
    """Returns options with settings."""
    found = kinnor.onnx.SessionOptions()
    for name, value in settings.items():
        setattr(found, name, value)
    return found


def test_a_run_replaces_initializers_that_are_inputs():
    """An initializer among the inputs keeps its value unless the feed has another one."""
    session = kinnor.onnx.InferenceSession(product(is_open=True))
    theirs = onnxruntime.InferenceSession(product(is_open=True).SerializeToString())
    assert [held.name for held in session.get_overridable_initializers()] == ["w"]
    assert [held.name for held in session.get_inputs()] == [held.name for held in theirs.get_inputs()] == ["x"]
    for feed in ({"x": X}, {"x": X, "w": W + 1}, {"x": X, "w": W - 1}, {"x": X}):
        np.testing.assert_array_equal(session.run(None, feed)[0], theirs.run(None, feed)[0])
    closed = kinnor.onnx.InferenceSession(product())
    assert closed.get_overridable_initializers() == []
    with pytest.raises(nn.CallError, match="got \\['w'\\]"):
        closed.run(None, {"x": X, "w": W})


def test_options_replace_initializers():
    """Options give initializers other values, of the same type and shape. The model of the caller stays as it is."""
    found, proto = options(), product()
    before = proto.SerializeToString()
    found.add_initializer("w", kinnor.onnx.OrtValue(W * 10))
    found.add_initializer("none", kinnor.onnx.OrtValue(W))
    session = kinnor.onnx.InferenceSession(proto, found)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * W * 10)
    assert proto.SerializeToString() == before
    for value in (W[:2], W.astype(np.float64)):
        wrong = options()
        wrong.add_initializer("w", kinnor.onnx.OrtValue(value))
        with pytest.raises(nn.ArgumentError, match="initializer 'w': expected float32"):
            kinnor.onnx.InferenceSession(proto, wrong)
    with pytest.raises(nn.CallError, match="expected an OrtValue"):
        options().add_initializer("w", W)
    with pytest.raises(nn.CallError, match="expected a value for each of 2 names"):
        options().add_external_initializers(["w", "v"], [kinnor.onnx.OrtValue(W)])


def test_options_have_external_files_in_memory():
    """Tensors of files that do not exist come from options: by the name of the tensor, or of the file."""
    proto = product()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "none.bin"), ("offset", "4"), ("length", str(W.nbytes))):
        tensor.external_data.add(key=key, value=value)
    with pytest.raises(kinnor.onnx.OnnxError):
        kinnor.onnx.InferenceSession(proto)
    content = b"abcd" + W.tobytes()
    by_name, by_file, short = options(), options(), options()
    by_name.add_external_initializers(["w"], [kinnor.onnx.OrtValue(W)])
    by_file.add_external_initializers_from_files_in_memory(["none.bin"], [content], [len(content)])
    for found in (by_name, by_file):
        session = kinnor.onnx.InferenceSession(proto, found)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * W)
    short.add_external_initializers_from_files_in_memory(["none.bin"], [content], [9])
    with pytest.raises(nn.ArgumentError, match="got a file of 9"):
        kinnor.onnx.InferenceSession(proto, short)
    with pytest.raises(nn.CallError, match="bytes and lengths of 1 files"):
        short.add_external_initializers_from_files_in_memory(["a"], [], [])


def test_options_fix_the_lengths_of_open_axes():
    """Open axes get lengths by name and by meaning. Inputs of other lengths are refused."""
    proto = product()
    proto.graph.input[0].type.tensor_type.shape.dim[1].denotation = "DATA_CHANNEL"
    found = options()
    found.add_free_dimension_override_by_name("a", 3)
    found.add_free_dimension_override_by_denotation("DATA_CHANNEL", 2)
    session = kinnor.onnx.InferenceSession(proto, found)
    assert session.get_inputs()[0].shape == [3, 2]
    assert session.get_outputs()[0].shape == [3, "b"]
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * W)
    with pytest.raises(nn.ShapeError):
        session.run(None, {"x": X[:1]})
    assert kinnor.onnx.InferenceSession(proto).get_inputs()[0].shape == ["a", "b"]


def test_times_are_written(tmp_path):
    """A profile is a list of events that trace viewers read; without the setting there is none."""
    session = kinnor.onnx.InferenceSession(
        product(), options(enable_profiling=True, profile_file_prefix=str(tmp_path / "times"))
    )
    assert session.get_profiling_start_time_ns() > 0
    for _ in range(2):
        session.run(None, {"x": X})
    path = session.end_profiling()
    assert path.startswith(str(tmp_path / "times_"))
    events = json.loads(Path(path).read_text())
    assert [event["name"] for event in events] == ["model_loading", "model_run", "model_run"]
    assert all(event["ph"] == "X" and event["dur"] >= 0 for event in events)
    session.run(None, {"x": X})
    assert session.end_profiling() == ""
    assert kinnor.onnx.InferenceSession(product()).end_profiling() == ""


@pytest.mark.parametrize("location", [None, "weights.bin"])
def test_the_model_is_written_as_it_was_read(location, tmp_path):
    """The file of `optimized_model_filepath` computes the same, in ONNX Runtime as well, also if written twice."""
    path = tmp_path / "written.onnx"
    found = options(optimized_model_filepath=str(path))
    if location is not None:
        found.add_session_config_entry("session.optimized_model_external_initializers_file_name", location)
        found.add_session_config_entry("session.optimized_model_external_initializers_min_size_in_bytes", "10")
    for _ in range(2):
        kinnor.onnx.InferenceSession(product(), found)
    assert (tmp_path / "weights.bin").is_file() == (location is not None)
    if location is not None:
        assert (tmp_path / "weights.bin").stat().st_size < 2 * W.nbytes + 4096
    onnx.checker.check_model(str(path))
    for session in (kinnor.onnx.InferenceSession(path), onnxruntime.InferenceSession(str(path))):
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], X * W)


def test_settings_have_names_and_types():
    """A setting of another name or type is refused, and numbers of levels are levels."""
    found = kinnor.onnx.SessionOptions()
    with pytest.raises(AttributeError, match="no setting 'intra_op_threads'"):
        found.intra_op_threads = 1
    for value in ("two", 2.5, None):
        with pytest.raises(nn.CallError, match=r"intra_op_num_threads: expected int"):
            found.intra_op_num_threads = value
    with pytest.raises(nn.CallError, match="expected strings"):
        found.add_session_config_entry("a", 1)
    found.graph_optimization_level = 99
    assert found.graph_optimization_level is kinnor.onnx.GraphOptimizationLevel.ORT_ENABLE_ALL
    found.intra_op_num_threads = np.int64(1)
    found.enable_profiling = 0
    assert found.enable_profiling is False
    theirs = onnxruntime.SessionOptions()
    names = [name for name in dir(theirs) if not name.startswith("_") and not callable(getattr(theirs, name))]
    ours = kinnor.onnx.SessionOptions()
    for name in names:
        theirs_value, value = getattr(theirs, name), getattr(ours, name)
        assert (int(value) if isinstance(value, int) else value) == (
            int(theirs_value) if isinstance(value, int) else theirs_value
        ), name


def test_arguments_of_a_run_are_checked():
    """A run refuses a feed without names, options of another kind, and options that end it."""
    session = kinnor.onnx.InferenceSession(product())
    with pytest.raises(nn.CallError, match="expected inputs by name, got list"):
        session.run(None, [X])
    with pytest.raises(nn.CallError, match="expected RunOptions, got int"):
        session.run(None, {"x": X}, 3)
    ended = kinnor.onnx.RunOptions()
    ended.terminate = True
    with pytest.raises(kinnor.onnx.OnnxError, match="`terminate`"):
        session.run(None, {"x": X}, ended)
    with pytest.raises(nn.CallError, match="expected SessionOptions, got int"):
        kinnor.onnx.InferenceSession(product(), 3)


def test_bindings_check_names():
    """Inputs and outputs are bound by their names, and a run needs an output."""
    session = kinnor.onnx.InferenceSession(product())
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    with pytest.raises(nn.ArgumentError, match="expected an output that is bound"):
        session.run_with_iobinding(binding)
    for bind in (binding.bind_cpu_input, binding.bind_ortvalue_input, binding.bind_ortvalue_output):
        with pytest.raises(nn.ArgumentError, match="got 'z'"):
            bind("z", kinnor.onnx.OrtValue(X))
    with pytest.raises(nn.ArgumentError, match="got 'z'"):
        binding.bind_output("z")
    binding.bind_output("y")
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], X * W)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.uint8])
def test_other_libraries_share_the_memory_of_values(dtype):
    """NumPy and DLPack see the array of a value, and values are made of their arrays, without a copy."""
    array = np.arange(6).reshape(2, 3).astype(dtype)
    value = kinnor.onnx.OrtValue.ortvalue_from_numpy(array)
    assert np.shares_memory(np.asarray(value), array)
    assert not np.shares_memory(np.array(value), array)
    assert np.asarray(value, np.float64).dtype == np.float64
    assert value.__dlpack_device__() == (1, 0)
    assert np.shares_memory(np.from_dlpack(value), array)
    for held in (value, array, value.to_dlpack()):
        assert np.shares_memory(kinnor.onnx.OrtValue.from_dlpack(held).numpy(), array)


def test_values_of_types_that_numpy_lacks():
    """Bytes are values of a type by its number, if the sizes agree; and truth values."""
    bits = np.array([0x3F80, 0x4000], np.uint16)
    value = kinnor.onnx.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, TensorProto.BFLOAT16)
    assert (value.element_type(), value.shape()) == (TensorProto.BFLOAT16, [2])
    np.testing.assert_array_equal(value.numpy().astype(np.float32), [1, 2])
    with pytest.raises(nn.DTypeError, match="expected elements of the size of bfloat16"):
        kinnor.onnx.OrtValue.ortvalue_from_numpy_with_onnx_type(X, TensorProto.BFLOAT16)
    truth = kinnor.onnx.OrtValue.from_dlpack(np.array([1, 0], np.uint8), is_bool_tensor=True)
    assert truth.numpy().tolist() == [True, False]


@pytest.mark.parametrize("where", ["blobs", "blobs/inside", "elsewhere"])
def test_links_to_a_model_and_its_tensors(where, tmp_path):
    """A model and its tensors may be links into one folder, as in caches of downloads, and into no other."""
    proto = product()
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    for folder in (tmp_path / "blobs", tmp_path / where, tmp_path / "snapshot"):
        folder.mkdir(exist_ok=True)
    (tmp_path / "blobs/one").write_bytes(proto.SerializeToString())
    (tmp_path / where / "two").write_bytes(W.tobytes())
    (tmp_path / "snapshot/net.onnx").symlink_to(tmp_path / "blobs/one")
    (tmp_path / "snapshot/weights.bin").symlink_to(tmp_path / where / "two")
    if where == "elsewhere":
        with pytest.raises(kinnor.onnx.OnnxError, match="expected a file in the folder of the model"):
            kinnor.onnx.load(tmp_path / "snapshot/net.onnx")
    else:
        np.testing.assert_array_equal(kinnor.onnx.load(tmp_path / "snapshot/net.onnx")(X), X * W)


@pytest.mark.parametrize("reduction", ["mul", "max", "min"])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
@pytest.mark.parametrize("operator", ["ScatterND", "ScatterElements"])
def test_scattered_elements_are_reduced(operator, dtype, reduction):
    """Elements at equal places are multiplied, or the largest or smallest is kept, as in ONNX Runtime."""
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    rng = np.random.default_rng(2)
    if operator == "ScatterND":
        indices, updates, attributes = np.array([[1], [-1], [1]]), rng.integers(-5, 5, (3, 3)).astype(dtype), {}
    else:
        indices, updates = np.array([[0, 2], [2, 2], [-1, 0]]), rng.integers(-5, 5, (3, 2)).astype(dtype)
        attributes = {"axis": 1}
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "i", "u"], ["y"], reduction=reduction, **attributes)],
        "net",
        [
            helper.make_tensor_value_info("x", kind, ["n", 3]),
            helper.make_tensor_value_info("i", TensorProto.INT64, list(indices.shape)),
            helper.make_tensor_value_info("u", kind, list(updates.shape)),
        ],
        [helper.make_tensor_value_info("y", kind, ["n", 3])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    model, theirs = kinnor.onnx.load(proto), onnxruntime.InferenceSession(proto.SerializeToString())
    for n in (3, 5, 3):
        feed = {"x": rng.integers(-5, 5, (n, 3)).astype(dtype), "i": indices, "u": updates}
        expected = theirs.run(None, feed)[0]
        y = model(**feed)
        assert y.dtype == expected.dtype
        np.testing.assert_array_equal(y, expected)
