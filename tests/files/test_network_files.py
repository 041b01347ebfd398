"""Networks in NNabla's file formats: every function of the table survives a round trip."""

import io
import itertools
import re
import warnings
import zipfile
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cases import all_rows
from support import UnaryFunction

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor import _core
from kinnor.files import network_file, schema
from kinnor.graph_def import NetworkError, messages
from kinnor.utils.load import load
from kinnor.utils.nnp_graph import NnpLoader, NnpNetworkPass
from kinnor.utils.save import save

FILES = Path(__file__).parent / "nnabla"
"""Files that NNabla wrote."""
PROTO = Path(schema.__file__).with_name("nnabla.proto")
"""The text of NNabla's message definitions."""


def refusal(described):
    """Returns the error that writing a network description raises, or None if it can be written."""
    try:
        described.as_proto(variable_batch_size=False)
    except NetworkError as error:
        return str(error)
    return None


def variable(values):
    """Returns a variable in float32 for real numbers, since files hold no other real type; None for None."""
    return None if values is None else nn.Variable.from_numpy_array(np.asarray(values, _kind(values)))


def _kind(values):
    """Returns the type in which files hold these values: float32 for real numbers, else their own."""
    return np.float32 if values.dtype.kind == "f" else values.dtype


def listed(made):
    """Returns outputs as a list."""
    return list(made) if isinstance(made, (list, tuple)) else [made]


def by_name():
    """Returns the rows of the table by name."""
    found = defaultdict(list)
    for row in all_rows():
        found[row.name].append(row)
    return found.items()


@pytest.mark.parametrize(("name", "rows"), by_name(), ids=lambda value: value if isinstance(value, str) else "")
def test_every_function_makes_a_round_trip(name, rows):
    """Each row of the table that files can hold is saved and loaded with the same outputs."""
    for row in rows:
        inputs = [variable(x) for x in row.inputs]
        outputs = listed((getattr(_core.functions, name, None) or getattr(F, name))(*inputs, **row.args))
        names = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
        names |= {f"y{i}": y for i, y in enumerate(outputs)}
        described = nn.graph_def.create_graph_from_variable("net", outputs, names)
        file = io.BytesIO()
        refused = refusal(described)
        if refused is not None:  # Files cannot hold functions that NNabla lacks.
            (kind,) = re.findall(r"expected functions that NNabla's files can hold, got (\w+)", refused) or [
                "arguments"
            ]
            assert kind not in messages.holders() and (kind != "arguments" or "arguments that NNabla has" in refused)
            continue
        network_file.write(file, described.as_proto(include_parameter=True, variable_batch_size=False), ".nntxt")
        network = nn.graph_def.load(file, extension=".nntxt").default_graph()
        assert network.outputs == [f"y{i}" for i in range(len(outputs))]
        copies = {key: variable(row.inputs[int(key[1:])]) for key in network.inputs}
        if "bits" in row.args:  # Files do not store `bits`: it follows from the type of the input.
            copies["x0"] = nn.Variable.from_numpy_array(row.inputs[0].astype(f"uint{row.args['bits']}"))
        found = listed(network(*copies.values()))
        if row.random:
            assert [y.shape for y in found] == [y.shape for y in outputs]
            continue
        nn.forward_all(found)
        nn.forward_all(outputs)
        for y, wanted in zip(found, outputs, strict=True):
            # Files do not store types, so a result in a narrow type becomes one in a wider type.
            values = y.d.astype(wanted.d.dtype) if wanted.d.dtype.kind in "iu" else y.d
            np.testing.assert_allclose(values, wanted.d, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("how", ["natively", "as NNabla"])
def test_constants_of_functions_are_no_inputs(tmp_path, how):
    """Constants inside a graph are saved as parameters, not as inputs."""
    x = nn.Variable.from_numpy_array(np.arange(6, dtype=np.float32).reshape(2, 3))
    y = F.onnx_resize(PF.affine(x[[1, 0]], 4, name="a"), sizes=(2, 8), mode="cubic")
    y.forward()
    wanted, before = y.d.copy(), list(nn.get_parameters(grad_only=False))
    path = tmp_path / "net.nnp"
    if how == "natively":
        nn.save(path, {"y": y}, inputs={"x": x})
        assert list(nn.get_parameters(grad_only=False)) == before
        model = nn.load(path)
        assert model.inputs == ["x"]
        found = model(x.d)
    else:
        contents = {"networks": [{"name": "n", "batch_size": 2, "outputs": {"y": y}, "names": {"x": x}}]}
        save(path, contents)
        assert list(nn.get_parameters(grad_only=False)) == before
        nn.clear_parameters()
        network = NnpLoader(path).get_network("n", batch_size=2)
        assert list(network.inputs) == ["x"]
        network.inputs["x"].d = x.d
        network.outputs["y"].forward()
        found = network.outputs["y"].d
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


# --- Messages


def test_messages_equal_the_text_format():
    """The compiled description of messages has the fields of `nnabla.proto`."""
    found = {}
    for name, body in re.findall(r"^message (\w+) \{\n(.*?)^\}", PROTO.read_text(), re.MULTILINE | re.DOTALL):
        found[name] = {field: int(number) for field, number in re.findall(r"(\w+) = (\d+);", body)}
    made = vars(schema.messages())
    assert found == {k: {f.name: f.number for f in v.DESCRIPTOR.fields} for k, v in made.items() if v.DESCRIPTOR.fields}
    assert len(found) > 190


def test_both_sets_of_classes_have_the_same_bytes():
    """`schema.messages` and `schema.arrays` read and write the same bytes."""
    message = schema.messages().NNablaProtoBuf()
    message.parameter.add(variable_name="w", data=[1.0, 2.0]).shape.dim.append(2)
    solver = message.optimizer.add(name="o").solver
    solver.states["w"].state_parameter["mean"].data.extend([3.0, 4.0])
    content = message.SerializeToString()
    same = schema.arrays().NNablaProtoBuf.FromString(content)
    assert schema.array(same.parameter[0]).tolist() == [1.0, 2.0]
    assert same.SerializeToString() == content


# --- Files


def network():
    """Returns the input and the output of a small network."""
    x = nn.Variable((4, 1, 8, 8))
    h = PF.convolution(x, 3, (3, 3), pad=(1, 1), name="c")
    h = F.max_pooling(F.relu(PF.batch_normalization(h)), (2, 2))
    return x, PF.affine(F.reshape(h, (4, 48)), 5, name="f")


@pytest.mark.parametrize("extension", [".nnp", ".nntxt", ".prototxt", ".protobuf"])
def test_files_of_each_format(tmp_path, extension):
    """A network is saved and loaded in each format with equal results."""
    x, y = network()
    x.d = np.random.RandomState(0).randn(*x.shape)
    y.forward()
    path = str(tmp_path / f"net{extension}")
    contents = {
        "networks": [{"name": "net", "batch_size": 4, "outputs": {"y": y}, "names": {"x": x}}],
        "executors": [{"name": "runtime", "network": "net", "data": ["x"], "output": ["y"]}],
    }
    save(path, contents, include_params=True)
    found = nn.graph_def.load(path)
    assert list(found.get_parameters()) == list(nn.get_parameters(grad_only=False))
    assert found.executors["runtime"].proto.output_variable[0].variable_name == "y"
    again = found(x)
    again.forward()
    np.testing.assert_array_equal(again.d, y.d)
    assert found(nn.Variable((7, 1, 8, 8))).shape == (7, 5)
    assert found(batch_size=2).shape == (2, 5)
    assert found().shape == (4, 5)
    nn.clear_parameters()
    nn.load_parameters(path)
    assert list(nn.get_parameters(grad_only=False)) == list(found.get_parameters())
    proto = nn.load_parameters(path, needs_proto=True)
    assert [p.variable_name for p in proto.parameter] == list(found.get_parameters())


def test_functions_that_files_cannot_hold_are_refused(tmp_path):
    class Mine(UnaryFunction):
        """A user's function without a form in files."""

    x = nn.Variable((2, 3))
    for y in (Mine()(x), _put(F.relu(x))):
        with pytest.raises(NetworkError, match=r"expected functions that NNabla's files can hold, got (Mine|Put)"):
            nn.save(tmp_path / "net.nnp", y)
    assert not list(tmp_path.iterdir())


def _put(y):
    """Returns `y` after assigning 1 to its first element in place."""
    y[0] = 1
    return y


def test_a_batch_axis_in_another_place_is_refused(tmp_path):
    """A network that moves the batch axis cannot be saved for any batch size."""
    x = nn.Variable((4, 6))
    y = PF.affine(F.reshape(x, (8, 3)), 2)
    contents = {"networks": [{"name": "net", "batch_size": 4, "outputs": {"y": y}, "names": {"x": x}}]}
    with pytest.raises(NetworkError, match="expected shapes that begin with the batch of 4"):
        save(str(tmp_path / "net.nnp"), contents)
    save(str(tmp_path / "net.nnp"), contents, variable_batch_size=False)
    assert nn.graph_def.load(str(tmp_path / "net.nnp"))().shape == (8, 2)


def _joining(between):
    """Returns input and output of a network that joins the batch with another axis, and its description."""
    x = nn.Variable.from_numpy_array(np.random.RandomState(0).randn(1, 2, 3, 4).astype(np.float32))
    y = F.reshape(between(PF.affine(x, 6, base_axis=2)), (2, 3, 2))
    return x, y, {"networks": [{"name": "net", "batch_size": 1, "outputs": {"y": y}, "names": {"x": x}}]}


@pytest.mark.parametrize("between", [F.relu, lambda h: h + h, lambda h: PF.affine(h, 6, base_axis=2, name="b")])
def test_axes_that_a_network_joins_are_one_in_a_file(tmp_path, between):
    """A batch axis that was joined with another one and split again follows the batch size."""
    x, y, contents = _joining(between)
    path = str(tmp_path / "net.nnp")
    save(path, contents)
    assert nn.graph_def.load(path, batch_size=5)().shape == (5, 3, 2)
    made = NnpLoader(path).get_network("net", batch_size=2)
    made.inputs["x"].d = x.d[0]
    for output in (y, made.outputs["y"]):
        output.forward()
    np.testing.assert_array_equal(made.outputs["y"].d, y.d)


@pytest.mark.parametrize(
    "between",
    [lambda h: F.softmax(h, axis=2), lambda h: h + F.constant(1, h.shape), lambda h: PF.affine(h, (2, 6), name="b")],
)
def test_axes_that_a_function_counts_are_not_joined(tmp_path, between):
    """Networks whose functions depend on the number of axes are refused if the batch is joined."""
    *_, contents = _joining(between)
    with pytest.raises(NetworkError, match="expected shapes that begin with the batch of 1"):
        save(str(tmp_path / "net.nnp"), contents)


def test_a_model_is_a_function_of_arrays(tmp_path):
    x, y = network()
    nn.save(tmp_path / "net.nnp", {"y": y}, inputs={"x": x})
    parameters = nn.get_parameters(grad_only=False)
    nn.clear_parameters()
    model = nn.load(tmp_path / "net.nnp")
    images = np.random.RandomState(0).randn(4, 1, 8, 8).astype(np.float32)
    x.d = images
    y.forward()
    np.testing.assert_array_equal(model(images), y.d)
    np.testing.assert_array_equal(model(x=images), y.d)
    assert model(images[:3]).shape == (3, 5)
    assert model.get_parameters().keys() == parameters.keys()
    assert not nn.get_parameters()
    loss = F.mean(model(x))
    loss.forward()
    loss.backward()
    assert model.get_parameters()["f/affine/W"].g.any()
    with pytest.raises(nn.CallError, match="expected inputs"):
        model()
    model.save(tmp_path / "again.nnp")
    np.testing.assert_array_equal(nn.load(tmp_path / "again.nnp")(images), model(images))


def test_proto_variables_in_a_block(tmp_path):
    """A network can be described with `ProtoVariable`s, and saved with an executor."""
    with nn.graph_def.graph(name="net") as described:
        x0, x1 = nn.ProtoVariable((4, 3), name="x0"), nn.ProtoVariable((4, 3), name="x1")
        h = F.tanh(PF.affine(x0, 5, name="a") + PF.affine(x1, 5, name="a"))
        y0, y1 = PF.affine(h, 2, name="b"), PF.affine(h, 3, name="c")
    assert described.default_graph().inputs == ["x0", "x1"]
    executor = {"name": "run", "network": "net", "data": ["x0", "x1"], "output": {"y0": y0, "y1": y1}}
    nn.graph_def.save(str(tmp_path / "net.nnp"), [described], executors=[executor])
    found = NnpLoader(str(tmp_path / "net.nnp"))
    assert found.get_network_names() == ["net"]
    with pytest.raises(KeyError, match=r"^get_network: expected one of \['net'\], got 'other'$"):
        found.get_network("other")
    made = found.get_network("net", batch_size=2)
    assert {k: v.shape for k, v in made.outputs.items()} == {"y0": (2, 2), "y1": (2, 3)}
    assert set(nn.get_parameters()) <= set(made.variables)


def test_the_default_graph_holds_new_functions():
    """Functions of a `ProtoVariable` become a network of the default graph."""
    nn.graph_def.reset_default_graph()
    x = nn.ProtoVariable((2, 3))
    y = F.relu(x)
    network = nn.graph_def.get_default_graph_by_variable(y)
    assert network is nn.graph_def.get_default_graph("model")
    assert network.functions["ReLU"].type == "ReLU"
    assert network(nn.Variable((5, 3))).shape == (5, 3)
    nn.graph_def.reset_default_graph()
    assert not nn.graph_def.get_default_graph().networks


def test_passes_change_networks(tmp_path):
    """A pass changes shapes, arguments and functions of a network when it is built."""
    x, y = network()
    contents = {"networks": [{"name": "net", "batch_size": 4, "outputs": {"y": y}, "names": {"x": x}}]}
    save(str(tmp_path / "net.nnp"), contents)
    loader = NnpLoader(str(tmp_path / "net.nnp"))

    def built(*changes, batch_size=2):
        """Builds the network after these calls of methods of a `NnpNetworkPass`."""
        callback = NnpNetworkPass()
        for name, *args in changes:
            getattr(callback, name)(*args)
        return loader.get_network("net", batch_size, callback)

    def kinds(made):
        """Returns the types of all functions."""
        found = []
        for output in made.outputs.values():
            output.visit(lambda f: found.append(f.info.type_name))
        return found

    whole = ["Convolution", "BatchNormalization", "ReLU", "MaxPooling", "Reshape", "Affine"]
    assert kinds(built()) == whole
    made = built(("remove_and_rewire", "@net/ReLU"), ("fix_parameters",))
    assert kinds(made) == [kind for kind in whole if kind != "ReLU"]
    assert not any(v.need_grad for v in made.variables.values())
    assert list(built(("use_up_to", "@net/ReLU_out")).outputs) == ["@net/ReLU_out"]
    mine = nn.Variable((3, 1, 8, 8))
    assert built(("set_variable", "x", mine), batch_size=3).inputs["x"] is mine
    made = built(("set_batch_normalization_batch_stat_all", False))
    (function,) = [f for f in _functions(made.outputs["y"]) if f.info.type_name == "BatchNormalization"]
    assert not function.info.args["batch_stat"]

    seen = []
    other = NnpNetworkPass()
    other.on_generate_variable("x")(lambda v: pytest.fail("the one that was noted last counts"))
    other.set_variable("x", nn.Variable((3, 1, 12, 14)))
    other.remove_and_rewire("@net/ReLU")
    for kind in whole:
        note = other.on_generate_function_by_type(kind)
        note(lambda f: seen.append((f.proto.type, list(f.inputs[0].proto.shape.dim))) or f)

    @other.on_generate_function_by_name("@net/Reshape")
    def flatten(f):
        """Sets the shape of a `Reshape` to two axes."""
        f.proto.reshape_param.shape.dim[:] = [-1, int(np.prod(f.inputs[0].proto.shape.dim[1:]))]
        return f

    other.use_up_to("@net/Reshape_out")
    made = loader.get_network("net", 3, other)
    assert made.outputs["@net/Reshape_out"].shape == (3, 3 * 6 * 7)
    assert made.inputs["x"].shape == (3, 1, 12, 14)
    assert seen[0] == ("Convolution", [3, 1, 12, 14])
    assert [kind for kind, _ in seen] == [kind for kind in whole[:5] if kind != "ReLU"]
    given = NnpNetworkPass()

    @given.on_generate_variable("x")
    def put(v):
        """Replaces the variable `x` by `mine`."""
        v.variable = mine
        return v

    assert loader.get_network("net", 3, given).inputs["x"] is mine


def _functions(y):
    """Returns all functions above `y`."""
    found = []
    y.visit(found.append)
    return found


# --- Repetitions

REPEATED = """
network {
  name: "net" batch_size: 2
  repeat_info { id: "loop" times: 3 }
  variable { name: "x" type: "Buffer" shape { dim: -1 dim: 4 } }
  variable { name: "start" type: "Buffer" repeat_id: "loop" shape { dim: -1 dim: 4 } }
  variable { name: "h" type: "Buffer" repeat_id: "loop" shape { dim: -1 dim: 4 } }
  variable { name: "y" type: "Buffer" shape { dim: -1 dim: 4 } }
  variable { name: "fc{loop}/W" type: "Parameter" repeat_id: "loop" shape { dim: 4 dim: 4 }
             initializer { type: "NormalAffineGlorot" multiplier: 1 } }
  function { name: "start" type: "RepeatStart" repeat_id: "loop" input: "x" input: "h" output: "start"
             repeat_param { repeat_id: "loop" } }
  function { name: "fc" type: "Affine" repeat_id: "loop" input: "start" input: "fc{loop}/W" output: "h"
             affine_param { base_axis: 1 } }
  function { name: "end" type: "RepeatEnd" input: "h" output: "y" repeat_param { repeat_id: "loop" times: 3 } }
}
"""

RECURRENT = """
network {
  name: "net" batch_size: 2
  repeat_info { id: "time" times: 3 }
  variable { name: "x" type: "Buffer" shape { dim: -1 dim: 3 dim: 4 } }
  variable { name: "zero" type: "Buffer" shape { dim: -1 dim: 4 } }
  variable { name: "at" type: "Buffer" repeat_id: "time" shape { dim: -1 dim: 4 } }
  variable { name: "before" type: "Buffer" repeat_id: "time" shape { dim: -1 dim: 4 } }
  variable { name: "h" type: "Buffer" repeat_id: "time" shape { dim: -1 dim: 4 } }
  variable { name: "y" type: "Buffer" shape { dim: -1 dim: 3 dim: 4 } }
  function { name: "in" type: "RecurrentInput" repeat_id: "time" input: "x" output: "at"
             recurrent_param { repeat_id: "time" axis: 1 } }
  function { name: "delay" type: "Delay" repeat_id: "time" input: "h" input: "zero" output: "before"
             recurrent_param { repeat_id: "time" } }
  function { name: "add" type: "Add2" repeat_id: "time" input: "at" input: "before" output: "h" add2_param { } }
  function { name: "out" type: "RecurrentOutput" input: "h" output: "y"
             recurrent_param { repeat_id: "time" length: 3 axis: 1 } }
}
"""


def test_repeated_blocks_have_the_stated_number_of_copies():
    loader = NnpLoader(io.StringIO(REPEATED))
    made = loader.get_network("net")
    weights = [made.variables[f"fc[{i}]/W"] for i in range(3)]
    made.inputs["x"].d = x = np.random.RandomState(0).randn(2, 4).astype(np.float32)
    made.outputs["y"].forward()
    wanted = x @ weights[0].d @ weights[1].d @ weights[2].d
    np.testing.assert_allclose(made.outputs["y"].d, wanted, rtol=1e-4, atol=1e-5)


def test_a_recurrent_loop_carries_its_state():
    """A file with a recurrent loop is unrolled so that each step reads the state before it."""
    made = NnpLoader(io.StringIO(RECURRENT)).get_network("net")
    made.inputs["x"].d = x = np.random.RandomState(0).randn(2, 3, 4)
    made.inputs["zero"].d = 1
    made.outputs["y"].forward()
    np.testing.assert_allclose(made.outputs["y"].d, 1 + x.cumsum(axis=1), rtol=1e-5)


# --- Invalid files


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('input: "x"', 'input: "gone"', "expected the name of a variable"),
        ("multiplier: 1 }", "multiplier: 3e38 }", "expected a multiplier of at most 1e\\+30, got 3e\\+38"),
        (
            '"x" type: "Buffer" shape { dim: -1 dim: 4 }',
            '"x" type: "Buffer" shape { dim: 4611686018427387904 dim: 4 }',
            "expected a shape that memory can hold",
        ),
        (
            'repeat_id: "loop" shape { dim: 4 dim: 4 }',
            'repeat_id: "loop" shape { dim: 30000 dim: 3000 }',
            "numbers in parameters that are repeated, got 270000000",
        ),
        ("times: 3 }\n  variable", "times: 1000000000000 }\n  variable", "expected at most 200000 nodes"),
        ("times: 3 }\n  variable", "times: 500000 }\n  variable", "expected at most 200000 nodes"),
        ('name: "start" type: "Buffer"', 'name: "x" type: "Buffer"', "expected each name once"),
        ('output: "h"', 'output: "y"', "expected one function to make|got 'y'"),
        ('"Affine"', '"Sorcery"', "expected a known function"),
        ('"Affine"', '"PythonFunction"', "expected a known function"),
        ("dim: 4 dim: 4 }", "dim: 4 dim: 5 }", "affine: expected"),
        ("network {", "network { {", "expected text of NNabla"),
    ],
)
def test_broken_networks_are_refused(before, after, message):
    assert before in REPEATED
    with pytest.raises(nn.Error, match=message):
        NnpLoader(io.StringIO(REPEATED.replace(before, after))).get_network("net")


def test_circles_are_refused():
    """A network whose functions form a cycle is refused."""
    text = """network { name: "n" variable { name: "x" type: "Buffer" } variable { name: "a" type: "Buffer" }
        variable { name: "b" type: "Buffer" } variable { name: "y" type: "Buffer" }
        function { name: "f" type: "Add2" input: "x" input: "b" output: "a" }
        function { name: "g" type: "Tanh" input: "a" output: "b" }
        function { name: "h" type: "Tanh" input: "b" output: "y" } }"""
    found = nn.graph_def.load(io.StringIO(text))
    with pytest.raises(NetworkError, match="expected no cycle"):
        found()


def test_deep_networks_are_built_without_recursion():
    """A network of 5,000 functions in a chain is built."""
    n = 5_000
    kinds = itertools.cycle(["Tanh", "Abs"])
    proto = schema.messages().NNablaProtoBuf()
    net = proto.network.add(name="n")
    for i in range(n):
        net.variable.add(name=f"v{i}", type="Buffer").shape.dim.append(1)
    for i in range(n - 1):
        net.function.add(name=f"f{i}", type=next(kinds), input=[f"v{i}"], output=[f"v{i + 1}"])
    y = nn.graph_def.load(io.BytesIO(proto.SerializeToString()), extension=".protobuf")()
    assert y.shape == (1,)


def test_an_unknown_escape_keeps_its_backslash(tmp_path):
    """An unknown escape in a text file is read literally, without a warning."""
    path = tmp_path / "odd.nntxt"
    path.write_text('network { name: "a\\Cb" variable { name: "x" type: "Buffer" shape { dim: 1 } } }')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert "a\\Cb" in nn.graph_def.load(path).networks


@pytest.mark.parametrize("extension", [".protobuf", ".nntxt"])
def test_a_million_nodes_are_refused_soon(extension):
    """A file with too many nodes is refused before it is built."""
    if extension == ".nntxt":
        content = b"network {" + b'variable{name:"x"}' * 1_000_000 + b"}"
    else:
        nodes = b"\xa2\x06\x03\n\x01x" * 1_000_000
        content = (
            b"\xa2\x06" + bytes([*(len(nodes) >> 7 * i & 0x7F | 0x80 for i in range(3)), len(nodes) >> 21]) + nodes
        )
    with pytest.raises(NetworkError, match=r"expected (networks with )?at most"):
        nn.graph_def.load(io.BytesIO(content), extension=extension)


def archive(**members):
    """Returns a zip archive with these members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as held:
        for name, content in members.items():
            held.writestr(name, content)
    file.seek(0)
    return file


def test_an_archive_is_read_as_a_whole_however_often():
    """A file object is read from its start each time."""
    file = archive(**{"network.nntxt": REPEATED})
    for _ in range(3):
        assert list(nn.graph_def.load(file, extension=".nnp").networks) == ["net"]
        assert list(load(file, extension=".nnp").networks) == ["net"]


def test_archives_are_not_unpacked_and_no_bombs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    bomb = b" " * (64 << 20)
    with pytest.raises(NetworkError, match="expected at most 100 times"):
        nn.graph_def.load(archive(**{"network.nntxt": bomb}), extension=".nnp")
    outside = archive(**{"../../evil.nntxt": REPEATED, "/tmp/evil.py": "1", "network.pkl": b"\x80\x04."})
    assert list(nn.graph_def.load(outside, extension=".nnp").networks) == ["net"]
    assert not list(tmp_path.iterdir())
    with pytest.raises(NetworkError, match="expected at most 10000 files"):
        nn.graph_def.load(archive(**{f"{i}.nntxt": "" for i in range(10_001)}), extension=".nnp")
    with pytest.raises(NetworkError, match="expected an archive"):
        nn.graph_def.load(io.BytesIO(b"PK"), extension=".nnp")


def test_nothing_is_loaded_of_a_file_that_does_not_fit(tmp_path):
    """A parameter of another shape is refused before anything is changed."""
    x, y = network()
    nn.save(tmp_path / "net.nnp", y, inputs={"x": x})
    nn.clear_parameters()
    before = nn.parameter.get_parameter_or_create("f/affine/W", (2, 2), np.ones((2, 2)))
    with pytest.raises(nn.ParameterError, match="expected shape"):
        nn.load_parameters(tmp_path / "net.nnp")
    assert list(nn.get_parameters(grad_only=False)) == ["f/affine/W"]
    assert (before.d == 1).all()


# --- Files written by NNabla


def test_a_file_of_nnabla_gives_the_same_numbers():
    """The file was made by `tools/make-nnabla-file` with NNabla 1.39."""
    with np.load(FILES / "nnabla.npz") as held:
        x, y = held["x"], held["y"]
    np.testing.assert_allclose(nn.load(FILES / "nnabla.nnp")(x), y, rtol=1e-5, atol=1e-6)
    made = NnpLoader(str(FILES / "nnabla.nnp")).get_network("net", batch_size=4)
    made.inputs["x"].d = x
    made.outputs["y"].forward()
    np.testing.assert_allclose(made.outputs["y"].d, y, rtol=1e-5, atol=1e-6)


def test_optimizers_monitors_and_executors_are_read_and_linked():
    """A file of NNabla is read with all its settings."""
    info = load(str(FILES / "nnabla.nnp"), prepare_data_iterator=False)
    assert list(info.networks) == ["net", "train"]
    assert info.proto_graph.networks is info.networks
    assert info.proto_graph.default_graph() is info.networks["net"]
    assert (info.training_config.max_epoch, info.training_config.iter_per_epoch) == (2, 3)
    assert info.datasets["set"].uri == "set.csv"
    optimizer = info.optimizers["opt"]
    assert (optimizer.solver.name, optimizer.solver.learning_rate()) == ("Adam", pytest.approx(0.01))
    assert {state.t for state in optimizer.solver.get_states().values()} == {2}
    assert optimizer.scheduler.get_learning_rate(2) == pytest.approx(0.005)
    assert {node.name: data for node, data in optimizer.dataset_assign.items()} == {"x": "x", "t": "y"}
    assert "bn/mean" not in optimizer.parameters
    assert [node.name for node in info.monitors["valid_error"].monitor_variables] == ["loss"]
    (executor,) = info.executors.values()
    assert [node.name for node in executor.output_assign] == ["y"]
    optimizer.target.forward()
    optimizer.target.backward()
    optimizer.solver.update()


def test_states_of_solvers_make_a_round_trip(tmp_path):
    x, y = network()
    solver = nn.solvers.Adam()
    solver.set_parameters(nn.get_parameters())
    y.forward()
    y.backward()
    solver.update()
    optimizer = {"name": "o", "solver": solver, "network": "net", "dataset": [], "weight_decay": 0, "lr_decay": 1}
    optimizer |= {"lr_decay_interval": 1, "update_interval": 1}
    net = {"name": "net", "batch_size": 4, "outputs": {"y": y}, "names": {"x": x}}
    contents = {"networks": [net], "optimizers": [optimizer]}
    wanted = {k: s.pstate["mean"].d.copy() for k, s in solver.get_states().items()}
    for name, settings in (
        ("h.nnp", {"include_solver_state": True}),
        ("p.nnp", {"include_solver_state": True, "solver_state_format": ".protobuf", "parameter_format": ".protobuf"}),
        ("t.nntxt", {"include_solver_state": True, "include_params": True}),
    ):
        save(str(tmp_path / name), contents, **settings)
        with nn.parameter_scope("", {}):
            found = load(str(tmp_path / name)).optimizers["o"].solver.get_states()
        assert found.keys() == wanted.keys()
        for key, state in found.items():
            np.testing.assert_allclose(state.pstate["mean"].d, wanted[key], rtol=1e-5)


def test_files_of_old_versions():
    """With the context format from before 2018, and with unknown and removed fields."""
    text = """
        global_config { default_context { backend: "cpu|cuda" array_class: "CudaCachedArray" device_id: "0"
            compute_backend: "default|cudnn" } }
        network { name: "n" batch_size: 2 some_field_of_another_version: 3
            variable { name: "x" type: "Buffer" shape { dim: -1 dim: 3 dim: 4 dim: 4 } }
            variable { name: "w" type: "Parameter" shape { dim: 2 dim: 3 dim: 3 dim: 3 }
                initializer { type: "NormalConvolutionGlorot" multiplier: 1 } }
            variable { name: "y" type: "Buffer" shape { dim: -1 dim: 2 dim: 2 dim: 2 } }
            function { name: "c" type: "Convolution" input: "x" input: "w" output: "y"
                convolution_param { base_axis: 1 pad { dim: 0 dim: 0 } stride { dim: 1 dim: 1 } new: 4 } } }
        optimizer { name: "o" network_name: "n" solver { type: "SGD" sgd_param { lr: 0.1 } lr_decay: 0.9 }
            loss_variable { variable_name: "y" } parameter_variable { variable_name: "w" learning_rate_multiplier: 1 } }
    """
    info = load(io.StringIO(text))
    x, y = (info.networks["n"].variables[name].variable_instance for name in "xy")
    x.d = 1
    y.forward()
    assert y.d.any()
    assert info.optimizers["o"].solver.name == "Sgd"


def test_a_loader_of_ones_own_asks_a_pass_step_by_step(capsys):
    """A program may call the private methods of `NnpNetworkPass` for each node."""
    asked = NnpNetworkPass(2)
    asked.fix_parameters()
    asked.use_up_to("y")
    asked.on_generate_function_by_type("Affine")(lambda f: [f, "type"])
    asked.on_generate_function_by_name("first")(lambda f: [f, "name"])
    seen = []
    for decorate, key in ((asked.on_function_pass_by_type, "Affine"), (asked.on_function_pass_by_name, "first")):
        decorate(key)(lambda f, variables, scope, key=key: seen.append((f.name, key, variables, scope)))
    node = SimpleNamespace(name="y", need_grad=True, stop=False)
    function = SimpleNamespace(name="first", proto=SimpleNamespace(type="Affine"), disabled=False)
    other = SimpleNamespace(name="second", proto=SimpleNamespace(type="ReLU"), disabled=False)
    assert asked._apply_generate_variable(node) is node and not node.need_grad
    assert asked._apply_generate_function_by_type(function) == [function, "type"]
    assert asked._apply_generate_function_by_name(function) == [function, "name"]
    assert asked._apply_generate_function_by_type(other) is asked._apply_generate_function_by_name(other) is other
    for f in (function, other):
        asked._apply_function_pass_by_type(f, "variables", "scope")
        asked._apply_function_pass_by_name(f, "variables", "scope")
    assert seen == [("first", key, "variables", "scope") for key in ("Affine", "first")]
    asked._apply_use_up_to([node])
    asked.verbose2("built")
    assert node.stop and capsys.readouterr().out == "built\n"
    NnpNetworkPass(1).verbose2("built")
    assert capsys.readouterr().out == ""


def test_networks_are_built_in_the_context_of_their_graph():
    with nn.parameter_scope("", {}):
        y = PF.affine(nn.Variable((2, 3)), 4)
        graph = nn.graph_def.create_graph_from_variable("net", y)
    assert "net" in graph and "executors" in graph and "other" not in graph
    assert graph.get("net") is graph["net"] is graph.net and graph.get("other", 5) == 5
    assert graph.net.current_context == graph.current_context == nn.get_current_context()
    half = nn.ext_utils.get_extension_context("cpu", type_config="half")
    graph.current_context = half
    assert graph.net.current_context == half
    made = graph(nn.Variable.from_numpy_array(np.ones((2, 3))))
    made.forward()
    assert made.data.dtype == np.float16
    with pytest.raises(TypeError, match="expected a Context, got 'cpu'"):
        graph.current_context = "cpu"
    graph["copy"], graph["note"] = graph.net.clone(), "text"
    assert list(graph.networks) == ["net", "copy"] and graph.note == "text"


def test_files_have_equal_numbers_of_axes_for_broadcasting_inputs(tmp_path):
    """Inputs that broadcast are saved with equal numbers of axes, as NNabla needs."""
    with nn.parameter_scope("", {}):
        x, row = nn.Variable((2, 4, 3)), nn.Variable((3,))
        one = nn.parameter.get_parameter_or_create("one", ())
        y = F.maximum2(x * row, x + one) / nn.parameter.get_parameter_or_create("w", (4, 3))
        for v in (x, row, *nn.get_parameters().values()):
            v.d = np.random.RandomState(0).rand(*v.shape) + 0.5
        graph = nn.graph_def.create_graph_from_variable("net", y, {"x": x, "row": row, "y": y})
        kinds = [f.type for f in graph.net.functions.values()]
        nn.graph_def.save(str(tmp_path / "net.nnp"), [graph], variable_batch_size=False)
    assert [f.type for f in graph.net.functions.values()] == kinds
    again = nn.graph_def.load(str(tmp_path / "net.nnp")).net
    assert sum(f.type == "Reshape" for f in again.functions.values()) == 3
    for function in again.functions.values():
        if function.type != "Reshape":
            assert len({len(again.variable(name).shape) for name in function.inputs}) == 1
    made = again(x, row) if again.inputs == ["x", "row"] else again(row, x)
    nn.forward_all([made, y])
    np.testing.assert_array_equal(made.d, y.d)


def test_the_last_of_several_files_has_the_parameters(tmp_path):
    x, y = network()
    contents = {"networks": [{"name": "net", "batch_size": 4, "outputs": {"y": y}, "names": {"x": x}}]}
    save(str(tmp_path / "net.nntxt"), contents, include_params=True)
    weight = nn.get_parameters()["f/affine/W"]
    first = weight.d.copy()
    weight.d = 3
    nn.save_parameters(str(tmp_path / "new.h5"), {"f/affine/W": weight})
    for files, wanted in ((("net.nntxt", "new.h5"), 3), (("new.h5", "net.nntxt"), first)):
        nn.clear_parameters()
        load([str(tmp_path / name) for name in files])
        np.testing.assert_array_equal(nn.get_parameters()["f/affine/W"].d, np.broadcast_to(wanted, first.shape))
        assert "c/conv/W" in nn.get_parameters()


@pytest.mark.parametrize(
    "key",
    [
        0,
        (slice(None), None),
        (..., 1),
        (slice(1, None), 2, slice(None, None, 2)),
        (slice(None), slice(None, None, -1), -1),
    ],
)
def test_axes_that_indices_take_away_or_add(tmp_path, key):
    """Networks that index variables are saved and loaded with equal results."""
    x = nn.Variable.from_numpy_array(np.random.RandomState(0).randn(2, 3, 4))
    y = F.sin(x)[key] * 2
    y.forward()
    graph = nn.graph_def.create_graph_from_variable("net", y, {"x": x})
    graph.save(str(tmp_path / "net.nnp"), variable_batch_size=False)
    for found in (graph, nn.graph_def.load(str(tmp_path / "net.nnp"))):
        made = found(x)
        made.forward()
        np.testing.assert_array_equal(made.d, y.d)


def test_an_axis_that_an_index_takes_away_leaves_the_batch_open(tmp_path):
    """Indexing other axes by a number keeps the batch size variable."""
    with nn.parameter_scope("", {}):
        x = nn.Variable((2, 3, 4))
        y = PF.affine(x, (5, 6))[:, -1, 1:3]
        graph = nn.graph_def.create_graph_from_variable("net", y, {"x": x})
        graph.save(str(tmp_path / "net.nnp"))
        assert nn.graph_def.load(str(tmp_path / "net.nnp"))(nn.Variable((7, 3, 4))).shape == (7, 2)
        first = nn.graph_def.create_graph_from_variable("net", PF.affine(x, 5, name="z")[0], {"x": x})
        with pytest.raises(nn.Error, match="variable_batch_size=False"):
            first.save(str(tmp_path / "other.nnp"))


def test_files_hold_functions_that_nnabla_lacks(tmp_path):
    """Functions that NNabla lacks are saved as equivalent functions of NNabla."""
    rng = np.random.RandomState(0)
    q, k, v, mask = (nn.Variable.from_numpy_array(rng.randn(*s)) for s in ((2, 3, 4), (2, 5, 4), (2, 5, 6), (3, 5)))
    made = [
        F.scaled_dot_product_attention(q, k, v, causal=True),
        F.scaled_dot_product_attention(q, k, v, mask, scale=0.3),
        F.scaled_dot_product_attention(q, k, v, dropout=1e-9),
        F.hard_swish(q * 3),
    ]
    names = {"q": q, "k": k, "v": v, "mask": mask}
    graph = nn.graph_def.create_graph_from_variable("net", made, names)
    graph.save(str(tmp_path / "net.nnp"), variable_batch_size=False)
    again = nn.graph_def.load(str(tmp_path / "net.nnp"))
    found = again(*[names[name] for name in again.net.inputs])
    nn.forward_all([*made, *found])
    for y, wanted in zip(found, made, strict=True):
        np.testing.assert_allclose(y.d, wanted.d, rtol=1e-5, atol=1e-6)
    assert {"ScaledDotProductAttention", "HardSwish"}.isdisjoint(f.type for f in again.net.functions.values())


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("has_statistics", [False, True])
@pytest.mark.parametrize("has_z", [False, True])
def test_fused_convolutions_of_files_take_optional_inputs(has_bias, has_statistics, has_z):
    rng = np.random.RandomState(0)
    x, w, z = (nn.Variable.from_numpy_array(rng.rand(*s)) for s in ((2, 3, 5, 5), (4, 3, 3, 3), (2, 4, 3, 3)))
    bias = nn.Variable.from_numpy_array(rng.rand(4))
    statistics = [nn.Variable.from_numpy_array(rng.rand(1, 4, 1, 1) + 0.5) for _ in range(4)]
    given = [bias] * has_bias + statistics * has_statistics + [z] * has_z
    (made,) = messages.call("FusedConvolution", [x, w, *given], {"batch_stat": False, "eps": 1e-5}, 1)
    y = F.convolution(x, w, bias if has_bias else None)
    if has_statistics:
        y = F.batch_normalization(y, *statistics, eps=1e-5, batch_stat=False)
    y = F.relu(y + z if has_z else y)
    nn.forward_all([made, y])
    np.testing.assert_allclose(made.d, y.d, rtol=1e-5)


def test_leaves_that_are_no_inputs_are_saved_as_constants(tmp_path):
    x = nn.Variable((1, 4))
    x.d = [[3, 1, 0, 2]]
    positions = nn.Variable.from_numpy_array(np.arange(4))
    with nn.parameter_scope("", {}):
        y = PF.embed(x, 10, 3, name="tokens") + PF.embed(positions, 4, 3, name="positions")
        y.forward()
        nn.save(tmp_path / "fixed.nnp", {"y": y}, inputs={"tokens": x})
        nn.save(tmp_path / "open.nnp", {"y": y})
        nn.onnx.save({"y": y}, tmp_path / "fixed.onnx", inputs={"tokens": x})
    for name in ("fixed.nnp", "fixed.onnx"):
        model = nn.load(tmp_path / name) if name.endswith("nnp") else nn.onnx.load(tmp_path / name)
        assert model.inputs == ["tokens"]
        np.testing.assert_allclose(model(x.d), y.d, rtol=1e-6)
    assert len(nn.load(tmp_path / "open.nnp").inputs) == 2


def test_an_input_of_another_shape_is_named(tmp_path):
    x = nn.Variable((1, 3))
    with nn.parameter_scope("", {}):
        nn.save(tmp_path / "net.nnp", {"y": PF.affine(x, 2)}, inputs={"x": x})
    model = nn.load(tmp_path / "net.nnp")
    for wrong in (np.ones((2, 9)), np.ones(3), nn.Variable((2, 9))):
        shape = re.escape(str(tuple(wrong.shape)))
        with pytest.raises(nn.ShapeError, match=rf"model: expected input 'x' of shape \(any, 3\), got {shape}"):
            model(wrong)
    assert model(np.ones((5, 3))).shape == (5, 2)
