"""Export to ONNX: every function with a row, run by onnxruntime and loaded again; files and names."""

import functools
from collections import Counter

import numpy as np
import onnx
import onnxruntime
import pytest
from cases import all_rows

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx
import kinnor.parametric_functions as PF
from kinnor import _core
from kinnor.onnx.write import saving
from kinnor.onnx.write.exports import EXPORTS
from kinnor.onnx.write.exports.fused import BINARY

NEWEST = max(v for v in range(9, onnx.defs.onnx_opset_version() + 1) if v <= 25)
"""The newest operator set that both sides support."""
OPSETS = (9, 13, 17, 21, NEWEST)
"""Versions of the operator set to save for."""


def variable(values):
    """Returns a variable, in float32 for real numbers."""
    return nn.Variable.from_numpy_array(np.asarray(values, np.float32 if values.dtype.kind == "f" else values.dtype))


def listed(made):
    """Returns outputs as a list."""
    return list(made) if isinstance(made, (list, tuple)) else [made]


def run(path, given):
    """Runs an ONNX file by onnxruntime and returns its outputs."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    held = {x.name: given[x.name] for x in session.get_inputs()}
    return session.run(None, {key: x.astype(np.float32) if x.dtype.kind == "f" else x for key, x in held.items()})


def agrees(found, wanted, tolerance=1e-4):
    """Asserts that results have equal shapes and nearly equal values."""
    for y, held in zip(found, wanted, strict=True):
        assert y.shape == held.shape
        np.testing.assert_allclose(y.astype(np.float64), held.astype(np.float64), rtol=tolerance, atol=tolerance)


def built(row):
    """Returns inputs and outputs of a row as variables."""
    xs = [None if x is None else variable(x) for x in row.inputs]
    return xs, listed((getattr(_core.functions, row.name, None) or getattr(F, row.name))(*xs, **row.args))


@functools.cache
def rows(most):
    """Returns rows of the table whose functions can be exported, at most `most` of each name."""
    found, counts = [], Counter()
    for row in all_rows():
        is_usual = not (row.random or row.writes or any(x is not None and not x.size for x in row.inputs))
        if not is_usual or counts[row.name] >= most:
            continue
        kinds = set()
        for y in built(row)[1]:
            y.visit(lambda function, kinds=kinds: kinds.add(function.info.type_name))
        if kinds <= EXPORTS.keys():
            counts[row.name] += 1
            found.append(row)
    return found


# Number of rows that an operator set cannot express, including arguments that no set has.
REFUSED = {9: 8, 13: 2, 17: 0, 21: 1, NEWEST: 0}


@pytest.mark.parametrize("opset", OPSETS)
def test_functions(tmp_path, opset):
    """All rows but `REFUSED` can be saved. ONNX Runtime and the loaded model then compute the same."""
    refused, outputs, inputs = [], {}, {}
    for number, row in enumerate(rows(2 if opset == 21 else 1)):
        xs, ys = built(row)
        mine = {f"x{number}_{i}": x for i, x in enumerate(xs) if x is not None}
        made = {f"{row.name}_{number}_{i}": y for i, y in enumerate(ys)}
        try:
            kinnor.onnx.save(made, tmp_path / "one.onnx", mine, opset=opset, free_batch=False)
        except nn.UnsupportedError as error:
            refused.append(str(error))
            continue
        outputs |= made
        inputs |= mine
    assert len(refused) <= REFUSED[opset], refused
    path = tmp_path / "net.onnx"
    kinnor.onnx.save(outputs, path, inputs, opset=opset, free_batch=False)
    onnx.checker.check_model(path)
    nn.forward_all(list(outputs.values()))
    wanted, given = {key: y.d.copy() for key, y in outputs.items()}, {key: x.d.copy() for key, x in inputs.items()}
    for found in (run(path, given), kinnor.onnx.load(path)(**given)):
        failed = []
        for (key, held), y in zip(wanted.items(), found, strict=True):
            try:
                agrees([y], [held])
            except AssertionError as error:
                failed.append(f"{key}: {error}")
        assert not failed, failed


def test_every_row_is_tried():
    """Every exporter has a row of the table that uses it."""
    kinds = set()
    for row in rows(1):
        for y in built(row)[1]:
            y.visit(lambda function: kinds.add(function.info.type_name))
    assert sorted(EXPORTS.keys() - kinds) == [*sorted(BINARY), "Dropout", "Einsum"]


@pytest.mark.parametrize("opset", OPSETS)
@pytest.mark.parametrize("layer", [PF.binary_connect_affine, PF.binary_weight_affine])
@pytest.mark.parametrize("outputs", [4, (2, 3)])
def test_affine_layers_of_binary_weights(tmp_path, opset, layer, outputs):
    """Affine layers with binary weights are exported and give the same numbers."""
    x = variable(np.random.RandomState(0).randn(3, 5))
    with nn.parameter_scope("", {}):
        y = layer(x, outputs, quantize_zero_to=-1.0, b_init=np.ones(outputs))
        nn.get_parameters()[next(key for key in nn.get_parameters() if key.endswith("/W"))].d[1] = 0
        kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x}, opset=opset)
        y.forward()
    agrees([*run(tmp_path / "net.onnx", {"x": x.d}), kinnor.onnx.load(tmp_path / "net.onnx")(x.d)], [y.d, y.d])


@pytest.mark.parametrize("layer", [PF.binary_connect_convolution, PF.binary_weight_convolution])
@pytest.mark.parametrize("args", [{}, {"pad": (1, 2), "stride": (2, 1), "with_bias": False}])
def test_convolutions_of_binary_weights(tmp_path, layer, args):
    """Convolutions with binary weights are exported and give the same numbers."""
    x = variable(np.random.RandomState(0).randn(3, 4, 6, 5))
    with nn.parameter_scope("", {}):
        y = layer(x, 6, (3, 3), **args)
        kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x})
        y.forward()
    agrees([*run(tmp_path / "net.onnx", {"x": x.d}), kinnor.onnx.load(tmp_path / "net.onnx")(x.d)], [y.d, y.d])


def network(n=2):
    """Returns input and output of a small network."""
    x = nn.Variable((n, 1, 6, 6))
    h = F.relu(PF.convolution(x, 2, (3, 3), name="c"))
    return x, PF.affine(h, 3, name="f")


def test_names_of_parameters_inputs_and_outputs(tmp_path):
    """The file has the given names of inputs, outputs and network, and the paths of parameters."""
    x, y = network()
    kinnor.onnx.save({"scores": y}, tmp_path / "net.onnx", {"image": x}, name="small")
    proto = onnx.load(tmp_path / "net.onnx")
    assert {held.name for held in proto.graph.initializer} >= set(nn.get_parameters())
    assert ([held.name for held in proto.graph.input], proto.graph.output[0].name) == (["image"], "scores")
    assert proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert (proto.graph.name, proto.opset_import[0].version) == ("small", 21)
    assert list(kinnor.onnx.load(tmp_path / "net.onnx").get_parameters()) == list(nn.get_parameters())


def test_parameters_have_the_shape_that_nodes_expect(tmp_path):
    x = nn.Variable((2, 3, 4, 4))
    with nn.parameter_scope("shapes", {}):
        h = PF.batch_normalization(x, batch_stat=False)
        kinnor.onnx.save({"y": h}, tmp_path / "net.onnx", {"x": x})
        proto = onnx.load(tmp_path / "net.onnx").graph
        assert [node.op_type for node in proto.node] == ["BatchNormalization"]
        assert {held.name: list(held.dims) for held in proto.initializer} == {
            f"bn/{name}": [3] for name in ("beta", "gamma", "mean", "var")
        }
        gamma = nn.get_parameters()["bn/gamma"]
        assert gamma.shape == (1, 3, 1, 1)
        kinnor.onnx.save({"y": h * gamma, "again": F.reshape(gamma, (3,))}, tmp_path / "net.onnx", {"x": x})
        x.d = np.random.RandomState(0).randn(*x.shape)
        y, again = run(tmp_path / "net.onnx", {"x": x.d})
        np.testing.assert_allclose(y, x.d, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(again, np.ones(3))


def test_symbolic_or_fixed_batch(tmp_path):
    """Saved models accept another batch size only with `free_batch`. Axes that cannot be open are refused."""
    x, y = network()
    for free, allowed in ((True, True), ({"x": 0}, True), (False, False), ({}, False)):
        kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x}, free_batch=free)
        model = kinnor.onnx.load(tmp_path / "net.onnx")
        given = np.ones((5, 1, 6, 6), np.float32)
        if allowed:
            assert model(given).shape == run(tmp_path / "net.onnx", {"x": given})[0].shape == (5, 3)
        else:
            with pytest.raises(nn.ShapeError):
                model(given)
    mixed = F.reshape(x, (2 * 6 * 6,))[:3]
    with pytest.raises(nn.UnsupportedError, match=r"free_batch=False|length is open|length that is known"):
        kinnor.onnx.save(F.split(F.reshape(x, (72, 1)))[0], tmp_path / "other.onnx", {"x": x})
    kinnor.onnx.save(mixed, tmp_path / "mixed.onnx", {"x": x}, free_batch=False)
    for wrong in ({"z": 0}, {"x": 4}):
        with pytest.raises(nn.ArgumentError, match="expected axes of the inputs"):
            kinnor.onnx.save(y, tmp_path / "other.onnx", {"x": x}, free_batch=wrong)
    assert not (tmp_path / "other.onnx").exists()


def test_functions_that_cannot_be_exported_are_named(tmp_path):
    path = tmp_path / "net.onnx"
    x, y = network()
    kinnor.onnx.save(y, path)
    before = path.read_bytes()
    with pytest.raises(nn.UnsupportedError, match=r"expected functions of docs/onnx.md, got FFT \(function 1\)"):
        kinnor.onnx.save(F.fft(F.relu(nn.Variable((3, 4, 2))), 1), path)
    with pytest.raises(
        nn.UnsupportedError, match=r"CumSum of inputs .*: expected opset 11 or later, got 9 \(function 0\)"
    ):
        kinnor.onnx.save(F.cumsum(nn.Variable((3, 4))), path, opset=9)
    for opset in (8, 99):
        with pytest.raises(nn.ArgumentError, match="expected an `opset` from 9 to"):
            kinnor.onnx.save(y, path, opset=opset)
    with pytest.raises(nn.ArgumentError, match="names for outputs"):
        kinnor.onnx.save({"x": y}, path, {"x": x})
    with pytest.raises(nn.CallError, match="expected outputs, got none"):
        kinnor.onnx.save({}, path)
    assert path.read_bytes() == before
    assert [held.name for held in tmp_path.iterdir()] == ["net.onnx"]


def test_tensors_outside_of_the_file(tmp_path):
    """With `external_data`, tensors are saved in a second file."""
    x, y = network()
    path = tmp_path / "net.onnx"
    kinnor.onnx.save(y, path, {"x": x}, external_data=True)
    assert sorted(held.name for held in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
    given = {"x": np.random.default_rng(0).normal(size=x.shape).astype(np.float32)}
    x.d = given["x"]
    y.forward()
    agrees(run(path, given), [y.d])
    agrees([kinnor.onnx.load(path)(**given)], [y.d])


def test_models(tmp_path):
    """A loaded model can be saved again, with its changed parameters."""
    x, y = network()
    nn.save(tmp_path / "net.nnp", {"y": y}, {"x": x})
    kinnor.onnx.save(nn.load(tmp_path / "net.nnp"), tmp_path / "net.onnx")
    model = kinnor.onnx.load(tmp_path / "net.onnx")
    given = np.random.default_rng(0).normal(size=(3, 1, 6, 6)).astype(np.float32)
    x, y = network(3)
    x.d = given
    y.forward()
    agrees([model(given)], [y.d])
    for parameter in model.get_parameters().values():
        parameter.d = parameter.d * 0.5
    kinnor.onnx.save(model, tmp_path / "again.onnx")
    agrees(run(tmp_path / "again.onnx", {"x": given}), [model(given)])


def test_inputs_of_whole_numbers(tmp_path):
    """A network whose input is whole numbers is exported."""
    x = nn.Variable.from_numpy_array(np.array([[0, 2], [1, 1], [2, 0]]))
    y = PF.embed(x, 3, 4, name="e")
    kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x})
    y.forward()
    agrees(run(tmp_path / "net.onnx", {"x": x.d}), [y.d])


@pytest.mark.parametrize("kind", ["onnx", "nnp"])
def test_what_is_no_network_is_not_written(tmp_path, kind):
    """Wrong outputs and inputs are refused by both formats, and no file is written."""
    x, y = network()
    path, other = tmp_path / f"net.{kind}", nn.Variable((1, 2))

    def written(outputs, inputs):
        """Writes a file in the format of the test."""
        return kinnor.onnx.save(outputs, path, inputs) if kind == "onnx" else nn.save(path, outputs, inputs)

    for outputs, inputs, told in (
        ({"y": y}, {"x": other}, r"got 'x' of shape \(1, 2\), which no function between reads"),
        ({"y": y}, {"x": x, "z": other}, "got 'z' of shape"),
        ({"y": y}, {"x": np.ones(3)}, "expected `inputs` to be Variables by name, got ndarray for 'x'"),
        ({"y": y}, ["x"], "expected `inputs` to be Variables by name, got list"),
        (nn.Sequential(nn.Module()), {"x": x}, "expected the output of a network, got the module Sequential"),
        ("net", {"x": x}, "expected Variables as outputs, got str"),
    ):
        with pytest.raises(nn.CallError, match=told):
            written(outputs, inputs)
        assert not path.exists()
    written({"y": y, "same": x}, {"x": x})
    assert path.exists()


def test_files_of_the_other_format_are_named(tmp_path):
    """`nn.load` and `nn.save` of an ONNX file name the function to call instead."""
    x, y = network()
    kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x})
    with pytest.raises(nn.nnp.NetworkError, match=r"kinnor\.onnx\.load reads ONNX files"):
        nn.load(tmp_path / "net.onnx")
    with pytest.raises(nn.nnp.NetworkError, match=r"kinnor\.onnx\.save writes ONNX files"):
        nn.save(tmp_path / "net.onnx", y)
    with pytest.raises(nn.nnp.NetworkError, match="save_parameters writes parameters"):
        nn.save(tmp_path / "net.pt", y)


@pytest.mark.parametrize("name", kinnor.onnx.write.saving.ELSEWHERE)
def test_arguments_of_pytorch_are_explained(tmp_path, name):
    """Arguments of `torch.onnx.export` suggest the argument of `onnx.save`."""
    x, y = network()
    with pytest.raises(TypeError, match=f"got an argument '{name}'; .*`?(opset|inputs|outputs|free_batch)"):
        kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x}, **{name: ["x"]})


@pytest.mark.parametrize("ending", saving.OF_OTHERS)
def test_endings_of_other_formats_are_refused(tmp_path, ending):
    """Extensions of other formats are refused with a suggestion."""
    x = nn.Variable((1, 3))
    path = tmp_path / f"net{ending.upper()}"
    with pytest.raises(nn.ArgumentError, match=r"onnx\.save: expected a path that ends in \.onnx, got .*; ") as raised:
        nn.onnx.save(F.relu(x), path, inputs={"x": x})
    assert str(raised.value).endswith(saving.OF_OTHERS[ending]) and not path.exists()


def test_models_have_the_methods_of_modules(tmp_path):
    """A loaded model has `named_parameters`, `train` and `eval`, and fits into a solver."""
    network = nn.layers.Sequential(nn.layers.Linear(3, 4), nn.layers.BatchNorm1d(4), nn.layers.Linear(4, 2)).eval()
    x = nn.Variable((1, 3))
    nn.onnx.save(network(x), tmp_path / "net.onnx", inputs={"x": x})
    model = nn.onnx.load(tmp_path / "net.onnx")
    named = dict(model.named_parameters())
    frozen = {name for name, v in model.get_parameters().items() if not v.need_grad}
    assert list(named.values()) == list(model.parameters()) and frozen and not frozen & named.keys()
    assert model.train() is model.eval() is model
    solver = nn.solvers.Sgd(lr=0.1)
    solver.set_parameters(model)
    assert solver.get_parameters().keys() == named.keys()
    next(model.parameters()).need_grad = False
    assert dict(model.named_parameters()).keys() == named.keys()


def test_fit_trains_the_parameters_of_a_model(tmp_path):
    x = nn.Variable((1, 3))
    nn.onnx.save(nn.layers.Linear(3, 1)(x), tmp_path / "net.onnx", inputs={"x": x})
    model, rng = nn.onnx.load(tmp_path / "net.onnx"), np.random.default_rng(0)
    inputs = rng.normal(size=(64, 3)).astype(np.float32)
    targets = inputs.sum(axis=1, keepdims=True)
    with nn.parameter_scope("elsewhere", {}):
        history = nn.fit(model, (inputs, targets), "mse", solver=nn.solvers.Adam(0.1), epochs=20, verbose=False)
    assert history[-1]["loss"] < 0.1
    np.testing.assert_allclose(model(inputs), targets, atol=1)
