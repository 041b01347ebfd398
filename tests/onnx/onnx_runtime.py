"""Nodes of ONNX, compared with ONNX Runtime: each model is called again and again with other values and shapes."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
from onnx import helper, numpy_helper
from onnx_harness import called_in_every_way

import kinnor.onnx

VERSIONS = {"": 17, "com.microsoft": 1, "ai.onnx.ml": 3}
"""Version of each operator set, by domain."""


def model_of(nodes, feed, outputs, constants=(), versions=None):
    """Returns an ONNX model of nodes. Its inputs have the types and ranks of `feed`, and open lengths."""
    inputs = [
        helper.make_tensor_value_info(
            name,
            helper.np_dtype_to_tensor_dtype(x.dtype) if x.dtype.kind != "U" else 8,
            [f"{name}{axis}" for axis in range(x.ndim)],
        )
        for name, x in feed.items()
    ]
    held = [numpy_helper.from_array(np.asarray(x), name) for name, x in dict(constants).items()]
    made = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(nodes, "net", inputs, made, held)
    sets = [helper.make_opsetid(*each) for each in {**VERSIONS, **(versions or {})}.items()]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def compared(nodes, feeds, outputs, constants=(), versions=None, rtol=1e-4, atol=1e-5, level=0.0):
    """Asserts that a model agrees with ONNX Runtime for feeds in turn, in reverse order and in two threads.

    Integers may differ by `level`.
    """
    proto = model_of(nodes, feeds[0], outputs, constants, versions)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    reference = onnxruntime.InferenceSession(proto.SerializeToString(), options)
    expected = [reference.run(None, feed) for feed in feeds]
    session = kinnor.onnx.InferenceSession(proto)

    def check(k):
        """Asserts that one feed gives the expected results."""
        for y, wanted in zip(session.run(None, feeds[k]), expected[k], strict=True):
            assert_close(y, wanted, rtol, atol, level)

    inputs = list(feeds[0].values())
    called_in_every_way(proto, kinnor.onnx.load(proto), inputs, kinnor.onnx.load(proto)(*inputs), 1e-4, 1e-5)
    turns = [*range(len(feeds)), *reversed(range(len(feeds)))]
    for k in turns:
        check(k)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(check, turns))


def assert_close(y, wanted, rtol=1e-4, atol=1e-5, level=0.0):
    """Asserts that a result is nearly equal to the expected one. Integers may differ by `level`."""
    if isinstance(wanted, (list, dict)):
        assert type(y) is type(wanted)
        pairs = zip(y, wanted, strict=True)
        if isinstance(wanted, dict):
            assert list(y) == list(wanted)
            pairs = zip(y.values(), wanted.values(), strict=True)
        for pair in pairs:
            assert_close(*pair, rtol, atol, level)
        return
    if not isinstance(wanted, np.ndarray):
        assert y == wanted if isinstance(wanted, (str, int)) else abs(y - wanted) <= atol + rtol * abs(wanted)
        return
    assert (y.dtype.kind, y.shape) == (wanted.dtype.kind, wanted.shape)
    if wanted.dtype.kind in "OU":
        assert y.tolist() == wanted.tolist()
    elif wanted.dtype.kind in "iu":
        assert y.dtype == wanted.dtype
        assert np.abs(y.astype(np.int64) - wanted.astype(np.int64)).max(initial=0) <= level
    else:
        assert y.dtype == wanted.dtype
        np.testing.assert_allclose(y, wanted, rtol=rtol, atol=atol)
