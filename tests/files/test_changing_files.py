"""Files that another process overwrites while they are read: the result is one version of the file, or an error."""

import os
import subprocess
import sys
import time

import numpy as np
import onnx.helper as oh
import onnx.numpy_helper as on
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx
import kinnor.parametric_functions as PF
import kinnor.solvers as S
from kinnor.files import atomic

N = 60_000
"""Number of elements of the arrays, so that a write takes long."""

WRITER = """
import sys, time
path, versions = sys.argv[1], [open(name, "rb").read() for name in sys.argv[2:]]
print("ready", flush=True)
while True:
    for content in versions:
        with open(path, "wb", buffering=0) as file:
            for i in range(0, len(content), len(content) // 7):
                file.write(content[i : i + len(content) // 7])
                time.sleep(0.0005)
        time.sleep(0.03)
"""


def parameters(path, value):
    """Writes parameters equal to `value` to a file. Returns a function that reads them."""
    nn.save_parameters(path, {f"p{i}": nn.Variable.from_numpy_array(np.full(N, value, np.float32)) for i in range(3)})

    def read(path):
        """Returns the parameters in a file."""
        with nn.parameter_scope("read"):
            nn.clear_parameters()
            nn.load_parameters(path)
            return [x.d.copy() for x in nn.get_parameters(grad_only=False).values()]

    return read


def states(path, value):
    """Writes solver states equal to `value` to a file. Returns a function that reads them."""
    solver = S.Adam()
    w = nn.Variable.from_numpy_array(np.zeros(N, np.float32), need_grad=True)
    solver.set_parameters({"w": w})
    w.g = 0
    solver.update()
    state = solver.get_states()
    for array in state["w"].pstate.values():
        array.data = np.full(N, value, np.float32)
    solver.set_states(state)
    solver.save_states(path)

    def read(path):
        """Returns the states in a file."""
        made = S.Adam()
        made.set_parameters({"w": w})
        made.load_states(path)
        return [np.array(x.data) for x in made.get_states()["w"].pstate.values()]

    return read


def onnx_model(path, value):
    """Writes an ONNX model with weights equal to `value`. Returns a function that reads them."""
    held = [on.from_array(np.full((100, N // 100), value, np.float32), f"w{i}") for i in range(3)]
    nodes = [oh.make_node("MatMul", ["x", f"w{i}"], [f"y{i}"]) for i in range(3)]
    tensor = oh.make_tensor_value_info
    graph = oh.make_graph(nodes, "net", [tensor("x", 1, [1, 100])], [tensor(f"y{i}", 1, None) for i in range(3)], held)
    path.write_bytes(oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8).SerializeToString())

    def read(path):
        """Returns the weights in a file."""
        return [x.d.copy() for x in kinnor.onnx.load(path).get_parameters().values()]

    return read


def network(path, value):
    """Writes a network with weights equal to `value`. Returns a function that reads them."""
    with nn.parameter_scope("network"):
        nn.clear_parameters()
        x = nn.Variable((1, 100))
        y = PF.affine(x, N // 100, w_init=np.full((100, N // 100), value, np.float32), with_bias=False)
        nn.save(path, {"y": F.relu(y)}, inputs={"x": x})

    def read(path):
        """Returns the weights in a file."""
        return [x.d.copy() for x in nn.load(path).get_parameters().values()]

    return read


FORMATS = [
    (parameters, ".safetensors"),
    (parameters, ".h5"),
    (parameters, ".protobuf"),
    (states, ".h5"),
    (states, ".safetensors"),
    (onnx_model, ".onnx"),
    (network, ".nnp"),
]
"""Pairs of a writer and a file suffix. A writer saves a value at a path, and returns how to read it."""


@pytest.mark.parametrize(("made", "suffix"), FORMATS, ids=[f"{made.__name__}{suffix}" for made, suffix in FORMATS])
def test_readers_see_one_version(made, suffix, tmp_path):
    """A reader of a file that is being replaced gets the whole old or the whole new contents."""
    versions = [tmp_path / f"{value}{suffix}" for value in (1, 2)]
    read, _ = (made(path, value) for value, path in enumerate(versions, 1))
    path = tmp_path / f"file{suffix}"
    path.write_bytes(versions[0].read_bytes())
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path, *versions], stdout=subprocess.PIPE)
    found = set()
    try:
        writer.stdout.readline()
        start = time.monotonic()
        while time.monotonic() < start + (0.8 if found & {1.0, 2.0} else 20):
            try:
                arrays = read(path)
            except (nn.Error, OSError) as error:
                found.add(type(error))
            else:
                # A partly written protobuf file is valid and has fewer parameters.
                values = {float(value) for array in arrays for value in np.unique(array)}
                assert len(values) <= 1, "a mixture of two versions"
                found |= values
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    assert found & {1.0, 2.0}, found


def test_a_file_that_is_written_all_the_time_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_PATIENCE", 0.1)
    path, calls = tmp_path / "p.safetensors", []
    parameters(path, 1)

    def read(path):
        """Touches the file during each read."""
        calls.append(1)
        os.utime(path, ns=(0, len(calls)))

    with pytest.raises(atomic.FileBusyError, match="that no process writes"):
        atomic.steadily("load", path, read)
    assert len(calls) > 1
    monkeypatch.setattr(atomic, "_is_fresh", lambda _: True)
    with pytest.raises(atomic.FileBusyError, match="load_parameters: expected a file that no process writes"):
        nn.load_parameters(path)


def test_a_file_from_a_clock_that_is_ahead_is_read(tmp_path):
    """A file whose modification time is in the future is read without waiting."""
    path = tmp_path / "p.safetensors"
    read = parameters(path, 1)
    ahead = time.time_ns() + 3600 * 10**9
    os.utime(path, ns=(ahead, ahead))
    start = time.monotonic()
    assert len(read(path)) == 3
    assert time.monotonic() - start < 1


def test_a_folded_model_detects_a_changed_file_of_the_same_size_and_time(tmp_path):
    rng = np.random.default_rng(0)
    w = rng.standard_normal((32, 32, 3, 3)).astype(np.float32)
    path = tmp_path / "net.onnx"

    def write(w):
        """Writes a model with the weight `w`."""
        tensor, one = oh.make_tensor_value_info, np.ones(32, np.float32)
        nodes = [
            oh.make_node("Conv", ["x", "w"], ["h"], kernel_shape=[3, 3], pads=[1] * 4),
            oh.make_node("BatchNormalization", ["h", "one", "one", "one", "one"], ["y"]),
        ]
        held = [on.from_array(w, "w"), on.from_array(one, "one")]
        graph = oh.make_graph(nodes, "net", [tensor("x", 1, ["n", 32, 4, 4])], [tensor("y", 1, None)], held)
        model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())

    write(w)
    model, x = kinnor.onnx.load(path), rng.standard_normal((1, 32, 4, 4)).astype(np.float32)
    before, stamp = model(x), path.stat()
    for other in (w * 10, np.concatenate([w[1:2], w[:1], w[2:]]), w + np.float32(1e-6)):
        write(other.astype(np.float32))
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        with pytest.raises(kinnor.onnx.OnnxError, match="written since"):
            model.get_parameters()
        # A graph of another shape shares the folded weights of the file that was loaded.
        np.testing.assert_allclose(model(np.concatenate([x, x])), np.concatenate([before] * 2), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(model(x), before)
    write(w)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    np.testing.assert_array_equal(model.get_parameters()["w"].d, w)
