"""One loaded model that many threads call together: each call gets the answer for its own input."""

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import onnx.helper as oh
import onnx.numpy_helper as on
import pytest
from google.protobuf import text_format

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx
import kinnor.parametric_functions as PF
from kinnor._core import live_variables
from kinnor.files import schema

WIDTH = 48
"""Features of an input."""


@pytest.fixture(autouse=True)
def switches_often():
    """Makes Python switch between threads often during the test."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def onnx_model(nodes, outputs, **held):
    """Returns an ONNX model of these nodes. Keyword arguments are constants by name."""
    value = oh.make_tensor_value_info
    constants = [on.from_array(np.asarray(array), name) for name, array in held.items()]
    outputs = [value(name, 1, None) for name in outputs]
    graph = oh.make_graph(nodes, "net", [value("x", 1, ["n", WIDTH])], outputs, constants)
    return oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8)


def layers(folder):
    """Returns a function that loads an ONNX model with products, a folded normalization and elementwise functions."""
    rng = np.random.default_rng(1)
    w, v = (rng.standard_normal((WIDTH, WIDTH)).astype(np.float32) / 8 for _ in range(2))
    one = np.ones(WIDTH, np.float32)
    nodes = [
        oh.make_node("Gemm", ["x", "w", "zeros"], ["h"]),
        oh.make_node("BatchNormalization", ["h", "scale", "zeros", "mean", "variance"], ["n"]),
        oh.make_node("Sin", ["n"], ["s"]),
        oh.make_node("MatMul", ["s", "v"], ["y"]),
        oh.make_node("Tanh", ["y"], ["z"]),
    ]
    proto = onnx_model(nodes, ["y", "z"], w=w, v=v, scale=one * 2, zeros=one * 0, mean=one / 9, variance=one * 3)
    onnx_path = folder / "net.onnx"
    onnx_path.write_bytes(proto.SerializeToString())
    return lambda: kinnor.onnx.load(onnx_path)


def levels(folder):
    """Returns a function that loads an ONNX model with layers between 8-bit quantized values."""
    rng = np.random.default_rng(2)
    w = rng.integers(-127, 128, (WIDTH, WIDTH)).astype(np.int8)
    step, zero = np.float32(0.03), np.uint8(128)
    nodes = []
    h = "x"
    for i in range(2):
        nodes += [
            oh.make_node("QuantizeLinear", [h, "step", "zero"], [f"q{i}"]),
            oh.make_node("DequantizeLinear", [f"q{i}", "step", "zero"], [f"d{i}"]),
            oh.make_node("DequantizeLinear", ["w", "unit", "none"], [f"w{i}"]),
            oh.make_node("MatMul", [f"d{i}", f"w{i}"], [f"h{i}"]),
        ]
        h = f"h{i}"
    held = {"step": step, "zero": zero, "w": w, "unit": np.float32(0.002), "none": np.int8(0)}
    proto = onnx_model(nodes, [h], **held)
    return lambda: kinnor.onnx.Model(proto)


def stages(folder):
    """Returns a function that loads an ONNX model with two graphs, because shapes depend on computed values."""
    nodes = [
        oh.make_node("MatMul", ["x", "w"], ["h"]),
        oh.make_node("Greater", ["h", "zero"], ["is_positive"]),
        oh.make_node("NonZero", ["is_positive"], ["places"]),
        oh.make_node("Transpose", ["places"], ["pairs"]),
        oh.make_node("GatherND", ["h", "pairs"], ["positive"]),
        oh.make_node("ReduceSum", ["positive"], ["sum"], keepdims=0),
        oh.make_node("Sin", ["positive"], ["y"]),
    ]
    w = np.random.default_rng(3).standard_normal((WIDTH, 3)).astype(np.float32)
    proto = onnx_model(nodes, ["y", "sum"], w=w, zero=np.float32(0))
    return lambda: kinnor.onnx.Model(proto)


def network(folder):
    """Returns a function that loads a model from NNabla's format."""
    nn.clear_parameters()
    x = nn.Variable((2, WIDTH))
    h = PF.batch_normalization(PF.affine(x, WIDTH, name="a"), batch_stat=False)
    y = F.sin(PF.affine(F.relu(h), 5, name="b"))
    nn.save(folder / "net.nnp", {"y": y, "h": h}, inputs={"x": x})
    nn.clear_parameters()
    return lambda: nn.load(folder / "net.nnp")


def described(folder):
    """Returns a function that loads a network description and calls it. It builds a graph for each call."""
    load = network(folder)

    def made():
        """Returns a function that builds and runs the network for its input."""
        inner = load().network

        def call(x):
            """Returns the outputs of the inner model for an array, as arrays."""
            outputs = arrays(inner(nn.Variable.from_numpy_array(x)))
            nn.forward_all(outputs)
            return tuple(y.d.copy() for y in outputs)

        return call

    return made


def arrays(answer):
    """Returns the outputs of a model as a list."""
    return list(answer) if isinstance(answer, tuple) else [answer]


def is_one_of(found, answers):
    """True if the outputs equal one of several answers approximately."""
    return any(
        len(found) == len(wanted)
        and all(a.shape == b.shape and np.allclose(a, b, 1e-4, 1e-5) for a, b in zip(found, wanted, strict=True))
        for wanted in answers
    )


def together(work, n_threads):
    """Runs `work(i)` in several threads at the same time.

    Returns their errors and the wrong results that they report.
    """
    wrong, start = [], threading.Barrier(n_threads)

    def run(i):
        """Calls `work` and records what it raises or returns."""
        try:
            start.wait()
            wrong.extend(work(i) or [])
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return wrong


@pytest.mark.parametrize("made", [layers, levels, stages, network, described])
def test_each_call_gets_its_own_answer(made, tmp_path):
    """Threads that share a model get the outputs for their own inputs."""
    load = made(tmp_path)
    rng = np.random.default_rng(0)
    lengths = (1, 2, 3, 300)
    inputs = [rng.standard_normal((lengths[i % 4], WIDTH)).astype(np.float32) for i in range(32)]
    references = [load(), load()]
    if hasattr(references[1], "get_parameters"):
        references[1].get_parameters()  # from here on graphs are not folded
    answers = [[arrays(model(x)) for model in references] for x in inputs]
    model = load()

    def work(i):
        """Calls the model in a random order. Returns the wrong answers."""
        order, wrong = np.random.default_rng(i).integers(0, len(inputs), 40), []
        for turn, k in enumerate(order):
            if turn == 20 and i == 0 and hasattr(model, "get_parameters"):
                model.get_parameters()
            if turn % 10 == i:
                with pytest.raises(nn.Error):
                    model(np.zeros((2, WIDTH + 1), np.float32))
            given = inputs[k].copy()
            found = arrays(model(given))
            given[...] = np.nan  # neither the caller's array nor the answer is shared with the model any more
            if not is_one_of(found, answers[k]):
                wrong.append(f"thread {i}, call {turn}")
        return wrong

    for _ in range(3):
        assert not together(work, 8)


def test_parameters_stay_while_another_shape_is_built(tmp_path):
    # Parameters that no graph reads are freed, but not while a call uses a graph that is no longer cached.
    load = layers(tmp_path)
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((n, WIDTH)).astype(np.float32) for n in range(1, 30)]
    reference = load()
    answers = [[arrays(reference(x))] for x in inputs]
    model = load()

    def work(i):
        """Calls the model with all shapes. Returns the wrong answers."""
        order = np.random.default_rng(i).permutation(len(inputs))
        return [int(k) for k in order if not is_one_of(arrays(model(inputs[k])), answers[k])]

    assert not together(work, 6)
    assert all(np.isfinite(x.d).all() for x in model.get_parameters().values())


def test_calls_that_train_and_calls_that_predict(tmp_path):
    """Threads that call a model with variables and threads that call it with arrays get the same right results."""
    load = layers(tmp_path)
    x = np.random.default_rng(0).standard_normal((4, WIDTH)).astype(np.float32)
    wanted = [arrays(load()(x))]
    model = load()

    def work(i):
        """Calls the model with a variable in odd threads, else with an array."""
        if i % 2:
            y, z = model(nn.Variable.from_numpy_array(x))
            nn.forward_all([y, z])
            found = [y.d, z.d]
        else:
            found = arrays(model(x))
        return [] if is_one_of(found, wanted) else [i]

    assert not together(work, 8)


@pytest.mark.parametrize("made", [layers, network])
def test_graphs_do_not_grow_in_number_with_calls(made, tmp_path):
    """Many calls from several threads build only a few graphs."""
    model = made(tmp_path)()
    x = np.ones((3, WIDTH), np.float32)
    n_before = live_variables()
    model(x)
    n_each = live_variables() - n_before

    def work(i):
        """Calls the model many times."""
        for _ in range(50):
            model(x)

    assert not together(work, 8)
    n_after = live_variables()
    assert n_after <= n_before + n_each * (max(4, os.cpu_count() or 1) + 1)
    assert not together(work, 1)
    assert live_variables() == n_after


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_calls_a_model_that_threads_are_in(tmp_path):
    model = layers(tmp_path)()
    x = np.random.default_rng(0).standard_normal((3, WIDTH)).astype(np.float32)
    wanted = [arrays(model(x))]
    ends = threading.Event()

    def predict():
        """Calls the model until the test ends."""
        while not ends.is_set():
            model(np.ones((int(time.time() * 1e4) % 40 + 1, WIDTH), np.float32))

    threads = [threading.Thread(target=predict) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    signal.alarm(20)
                    other = np.ones((77, WIDTH), np.float32)
                    code = 0 if is_one_of(arrays(model(x)), wanted) and len(model(other)[0]) == 77 else 2
                finally:
                    os._exit(code)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        ends.set()
        for thread in threads:
            thread.join()


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="signals")
def test_a_signal_handler_calls_the_model_that_is_running(tmp_path):
    model = layers(tmp_path)()
    rng = np.random.default_rng(0)
    x, other = (rng.standard_normal((300, WIDTH)).astype(np.float32) for _ in range(2))
    wanted, of_other = [arrays(model(x))], [arrays(model(other))]
    wrong, calls, is_in_handler = [], [], []

    def handle(*_):
        """A signal handler that calls the model."""
        if is_in_handler:
            return
        is_in_handler.append(1)
        calls.append(1)
        if not is_one_of(arrays(model(other)), of_other):
            wrong.append("handler")
        is_in_handler.clear()

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
    try:
        end = time.monotonic() + 1
        while time.monotonic() < end and len(calls) < 100:
            if not is_one_of(arrays(model(x)), wanted):
                wrong.append("call")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert calls
    assert not wrong


def test_a_call_within_a_build_on_the_same_thread_is_refused(tmp_path):
    """Calling a model while the thread builds it raises GraphError."""
    model = layers(tmp_path)()
    with model._lock.held(), pytest.raises(nn.GraphError, match="while this thread builds"):
        model(np.ones((3, WIDTH), np.float32))
    assert len(arrays(model(np.ones((3, WIDTH), np.float32)))) == 2


@pytest.mark.parametrize("made", [layers, network])
@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_copies(made, copied, tmp_path):
    """A model and its copy run in several threads with the right results."""
    model = made(tmp_path)()
    x = np.random.default_rng(0).standard_normal((3, WIDTH)).astype(np.float32)
    if copied is copy.copy:
        model(x)
    other = copied(model)
    wanted = [arrays(model(x))]
    assert not together(lambda i: [] if is_one_of(arrays((model, other)[i % 2](x)), wanted) else [i], 4)


@pytest.mark.parametrize("made", [layers, network])
def test_graphs_go_with_the_model(made, tmp_path):
    """Deleting a model frees its graphs and its parameters."""
    load = made(tmp_path)
    gc.collect()
    n_before = live_variables()
    model = load()
    model(np.ones((3, WIDTH), np.float32))
    assert live_variables() > n_before
    del model
    gc.collect()
    assert live_variables() == n_before


PICKLED = """
import pickle, sys
import numpy as np
with open(sys.argv[1], "rb") as file:
    model, x, wanted = pickle.load(file)
found = model(x)
for a, b in zip(found if isinstance(found, tuple) else [found], wanted, strict=True):
    np.testing.assert_allclose(a, b, 1e-4, 1e-5)
print(type(model).__module__, len(model.get_parameters()))
"""
"""A program that calls a model from a pickle in another process."""


@pytest.mark.parametrize("state", ["new", "called", "unfolded", "trained"])
@pytest.mark.parametrize("made", [layers, levels, stages, network])
def test_pickled_models_work_in_other_processes(made, state, tmp_path):
    """A pickled model has its current parameters, and gives the same numbers where it is loaded."""
    model = made(tmp_path)()
    x = np.random.default_rng(0).standard_normal((3, WIDTH)).astype(np.float32)
    if state != "new":
        model(x)
    if state in ("unfolded", "trained"):
        for parameter in model.get_parameters(grad_only=True).values() if state == "trained" else ():
            parameter.d = parameter.d * 1.5
    path = tmp_path / "model.pickle"
    path.write_bytes(pickle.dumps((model, x, arrays(model(x)))))
    found = subprocess.run([sys.executable, "-c", PICKLED, path], capture_output=True, text=True, check=False)
    assert found.stdout.split() == [type(model).__module__, str(len(model.get_parameters()))], found.stderr


@pytest.mark.parametrize(
    "initializer", ["Constant", "Range", "Uniform", "Normal", "NormalConvolutionGlorot", "UniformCLConvGlorot"]
)
def test_descriptions_of_networks_are_pickled(initializer, tmp_path):
    """The networks of a file with their executors, repetitions and initializers."""
    made = schema.messages().NNablaProtoBuf()
    text_format.Parse(
        """
        network { name: "net" repeat_info { id: "loop" times: 3 }
          variable { name: "x" type: "Buffer" shape { dim: -1 dim: 4 } }
          variable { name: "w" type: "Parameter" shape { dim: 2 dim: 3 dim: 4 dim: 4 }
            initializer { type: "KIND" multiplier: 2 } }
          variable { name: "s" type: "Buffer" shape { dim: -1 dim: 4 } }
          variable { name: "h" type: "Buffer" shape { dim: -1 dim: 4 } repeat_id: "loop" }
          variable { name: "y" type: "Buffer" shape { dim: -1 dim: 4 } }
          function { name: "start" type: "RepeatStart" input: "x" input: "h" output: "s"
            repeat_param { repeat_id: "loop" } }
          function { name: "f" type: "ReLU" repeat_id: "loop" input: "s" output: "h" relu_param { inplace: false } }
          function { name: "end" type: "RepeatEnd" input: "h" output: "y"
            repeat_param { repeat_id: "loop" times: 3 } } }
        executor { name: "run" network_name: "net" data_variable { variable_name: "x" data_name: "x" }
          output_variable { variable_name: "y" data_name: "y" } }
        """.replace("KIND", initializer),
        made,
    )
    path = tmp_path / "net.nntxt"
    path.write_text(text_format.MessageToString(made))
    graph = nn.graph_def.load(path)
    other = pickle.loads(pickle.dumps(graph))
    assert other.as_proto(variable_batch_size=False) == graph.as_proto(variable_batch_size=False)
    w, again = (each.default_graph().parameters["w"] for each in (graph, other))
    np.testing.assert_array_equal(w.initializer(w.shape), again.initializer(again.shape))
