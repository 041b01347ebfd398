"""ONNX files whose large tensors are read one at a time."""

import tracemalloc

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import kinnor.onnx
from kinnor.onnx.read import message

RNG = np.random.default_rng(5)


def saved(path, arrays):
    """Writes a model that adds the means of some arrays to its input."""
    nodes, last = [], "x"
    for k, name in enumerate(arrays):
        nodes.append(helper.make_node("ReduceMean", [name], [f"m{k}"], keepdims=0))
        nodes.append(helper.make_node("Add", [last, f"m{k}"], [f"y{k}"]))
        last = f"y{k}"
    sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])] for name in ("x", last)]
    held = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "net", *sides, held)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def arrays():
    """Returns arrays of several sizes."""
    shapes = {"large": (40, 50), "small": (3,), "later": (2000,), "last": (2, 2)}
    return {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def whole(path):
    """Reads a file and returns its message, with the tensors that the reader left in the file filled in."""
    model, tensors = message.read(path, onnx)
    with tensors.opened() as of:
        for tensor in model.graph.initializer:
            content = of(tensor)
            if content is not None:
                tensor.raw_data = content
    return model


def test_tensors_and_their_order_equal_the_file(tmp_path):
    held = arrays()
    path = saved(tmp_path / "net.onnx", held)
    assert whole(path) == onnx.load(path)
    link = tmp_path / "folder" / "link.onnx"
    link.parent.mkdir()
    link.symlink_to(path)
    for model in (kinnor.onnx.load(path), kinnor.onnx.load(link)):
        np.testing.assert_allclose(model(np.zeros(2, np.float32)), sum(x.mean() for x in held.values()), 1e-5)
        parameters = model.get_parameters()
        assert list(parameters) == list(held)
        for name, x in held.items():
            np.testing.assert_array_equal(parameters[name].d, x)
            np.testing.assert_array_equal(model.written()[1][name], x)


def test_a_file_is_never_in_memory_as_a_whole(tmp_path):
    held = {f"x{k}": RNG.standard_normal(100_000).astype(np.float32) for k in range(10)}
    path = saved(tmp_path / "net.onnx", held)
    kinnor.onnx.load(path)
    tracemalloc.start()
    try:
        kinnor.onnx.load(path)
        assert tracemalloc.get_traced_memory()[1] < 3 * held["x0"].nbytes
    finally:
        tracemalloc.stop()


def test_broken_files_parse_as_in_the_onnx_package(tmp_path):
    content = saved(tmp_path / "net.onnx", arrays()).read_bytes()
    places = [k for k in range(len(content)) if k < 300 or k > len(content) - 300] + list(range(300, len(content), 97))
    read = 0
    for place in places:
        broken = bytearray(content)
        broken[place] = RNG.integers(256)
        cut = broken[:place] if place % 7 == 0 else broken
        (tmp_path / "broken.onnx").write_bytes(cut)
        try:
            wanted = onnx.ModelProto.FromString(bytes(cut))
        except Exception:
            with pytest.raises(Exception, match=r".*"):
                whole(tmp_path / "broken.onnx")
            continue
        assert whole(tmp_path / "broken.onnx") == wanted
        read += 1
    assert read > 50


def test_a_file_that_changes_while_it_is_read_is_refused(tmp_path, monkeypatch):
    path = saved(tmp_path / "net.onnx", arrays())
    model, tensors = message.read(path, onnx)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(kinnor.onnx.OnnxError, match="expected 8000 bytes"):
        kinnor.onnx.Model(model, tmp_path, tensors)
