"""Graphs as pictures and for TensorBoard, with NNabla's names."""

import stat
import struct
import sys

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.graph_pb2 import GraphDef

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor.experimental.tb_graph_writer import TBGraphWriter
from kinnor.experimental.viewers import PictureError, SimpleGraph


@pytest.fixture
def pred():
    """Returns the output of a small network."""
    nn.clear_parameters()
    x = nn.Variable((2, 1, 6, 6))
    h = F.relu(PF.batch_normalization(PF.convolution(x, 3, (3, 3), name="c1"), name="bn"))
    pred = F.add_n(*F.split(PF.affine(h, 4, name="fc"), axis=1))
    pred.name = "pred"
    return pred


@pytest.fixture
def no_dot(monkeypatch, tmp_path):
    """Makes `dot` unavailable."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


@pytest.fixture
def dot(no_dot, tmp_path):
    """Installs a fake `dot` that prints its arguments, and fails on text that contains `bad`."""
    path = tmp_path / "bin/dot"
    path.parent.mkdir()
    path.write_text(
        f"#!{sys.executable}\nimport sys\ntext = sys.stdin.read()\n"
        "sys.exit('syntax') if 'bad' in text else print('<svg>', sys.argv[1], len(text))\n"
    )
    path.chmod(path.stat().st_mode | stat.S_IEXEC)


def test_a_graph_in_dot(pred):
    """`SimpleGraph` draws functions, parameters and edges in the language of Graphviz."""
    source = SimpleGraph().create_graphviz_digraph(pred).source
    lines = [line.strip() for line in source.splitlines()]
    boxes = [line for line in lines if "label=" in line]
    functions = [line for line in boxes if "square" in line]
    assert [line.split('label="')[1].split('"')[0] for line in functions] == [
        *["Convolution", "BatchNormalization", "ReLU", "Affine", "Split", "AddN"]
    ]
    labels = [line.split('label="')[1].split('"')[0] for line in boxes]
    assert {"c1/conv/W", "c1/conv/b", "bn/bn/gamma", "fc/affine/W", "pred"} <= set(labels)
    assert len([line for line in lines if "->" in line]) == (3 + 5 + 1 + 3 + 1 + 4) + (1 + 1 + 1 + 1 + 4 + 1)
    told = SimpleGraph(verbose=True, fname_color_map={"ReLU": "pink"}, vname_color_map={"pred": "red"})
    text = told.create_graphviz_digraph(pred, params={}).source
    assert r'label="pred\n(2,), need_grad=True" color="black" fillcolor="red"' in text
    assert r'label="ReLU\ninplace=False" color="pink"' in text
    assert "c1/conv" not in text


def test_names_are_quoted():
    """Quotes and backslashes in a variable's name are escaped in DOT."""
    x = nn.Variable((1,), need_grad=True)
    x.name = 'a "name"\\'
    assert r'label="a \"name\"\\"' in SimpleGraph().create_graphviz_digraph(F.relu(x)).source


@pytest.mark.usefixtures("no_dot")
def test_without_graphviz_the_text_is_written(pred, tmp_path, caplog):
    """Without `dot`, `SimpleGraph` writes the DOT text and logs a warning."""
    graph = SimpleGraph()
    graph.save(pred, tmp_path / "g", cleanup=True)
    assert (tmp_path / "g").read_text() == graph.create_graphviz_digraph(pred).source
    assert "is not installed" in caplog.text
    shown = graph.view(pred, tmp_path / "h")
    assert shown._repr_mimebundle_() == {"text/plain": shown.source}
    with pytest.raises(PictureError, match="program `dot`"):
        shown.pipe()


@pytest.mark.usefixtures("dot")
def test_graphviz_makes_the_picture(pred, tmp_path):
    """With `dot`, `SimpleGraph` writes the picture, and reports a failure of `dot`."""
    graph = SimpleGraph(format="svg")
    graph.save(pred, tmp_path / "g")
    n = len((tmp_path / "g").read_text())
    assert (tmp_path / "g.svg").read_text() == f"<svg> -Tsvg {n}\n"
    shown = graph.view(pred, tmp_path / "h", format="pdf")
    assert (tmp_path / "h.pdf").read_text() == f"<svg> -Tpdf {n}\n"
    assert not (tmp_path / "h").exists()
    assert shown._repr_mimebundle_()["image/svg+xml"] == f"<svg> -Tsvg {n}\n"
    pred.name = "bad"
    with pytest.raises(PictureError, match="syntax"):
        graph.save(pred, tmp_path / "k")


def test_objects_without_a_graph_are_refused():
    """`SimpleGraph` refuses leaves and objects other than variables."""
    with pytest.raises(TypeError, match="expected a Variable, got int"):
        SimpleGraph().create_graphviz_digraph(1)
    with pytest.raises(nn.ArgumentError, match="without a parent"):
        SimpleGraph().create_graphviz_digraph(nn.Variable((1,)))


def events(path):
    """Returns the messages of an event file, after a check of lengths and checksums."""
    content, at = path.read_bytes(), 0
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        yield Event.FromString(content[at + 12 : at + 12 + length])
        at += 16 + length


def test_a_graph_for_tensorboard(pred, tmp_path):
    """`TBGraphWriter` writes each function, parameter and edge to an event file."""
    with TBGraphWriter(log_dir=tmp_path / "out") as writer:
        writer.from_variable(pred, output_name="y")
        writer.add_scalar("loss", 0.5, 3)
    (path,) = (tmp_path / "out").iterdir()
    found = list(events(path))
    (graph,) = (GraphDef.FromString(event.graph_def) for event in found if event.graph_def)
    nodes = {node.name: node for node in graph.node}
    assert len(nodes) == len(graph.node) == 1 + 2 + 4 + 2 + 6 + 1
    assert nodes["c1/conv/Convolution"].input == ["x", "c1/conv/W", "c1/conv/b"]
    assert nodes["c1/conv/W"].op == "Parameter"
    assert nodes["AddN"].input == ["Split", "Split:1", "Split:2", "Split:3"]
    assert (nodes["y"].op, list(nodes["y"].input)) == ("Variable", ["AddN"])
    shape = nodes["c1/conv/Convolution"].attr["_output_shapes"].list.shape[0]
    assert [dim.size for dim in shape.dim] == [2, 3, 4, 4]
    assert nodes["Split"].attr["axis"].s == b"1"
    assert {name.partition(":")[0] for node in graph.node for name in node.input} <= set(nodes)
    assert [(v.tag, e.step, v.simple_value) for e in found for v in e.summary.value] == [("loss", 3, 0.5)]


def test_tensorboard_refused(tmp_path, monkeypatch):
    """`TBGraphWriter` refuses other objects, and names the package that is missing."""
    with TBGraphWriter(log_dir=tmp_path) as writer, pytest.raises(TypeError, match="expected a Variable"):
        writer.from_variable(3)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pip install 'kinnor\[tensorboard\]'"):
        TBGraphWriter()
