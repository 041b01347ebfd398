"""Records of runs for TensorBoard, read back with TensorBoard's own reader."""

import errno
import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboardX.proto.graph_pb2 import GraphDef

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor.experimental.tb_graph_writer import TBGraphWriter
from kinnor.monitor import MonitorImage, MonitorImageTile, MonitorSeries, MonitorTimeElapsed, TensorBoard


@pytest.fixture
def loss():
    """Returns the loss of a small network, in an empty parameter scope."""
    with nn.parameter_scope("", {}):
        x = nn.Variable.from_numpy_array(np.arange(6, dtype=np.float32).reshape(2, 3))
        yield F.mean(PF.affine(F.relu(PF.affine(x, 4, name="first")), 2, name="second"))


def read(folder):
    """Returns TensorBoard's reader with the records of a folder."""
    return EventAccumulator(str(folder), size_guidance=dict.fromkeys(("scalars", "images", "histograms"), 0)).Reload()


def text(found, name):
    """Returns a text record by name."""
    return b"".join(found.Tensors(name)[-1].tensor_proto.string_val).decode()


def test_monitors_write_to_their_files_and_to_tensorboard(tmp_path):
    images = np.linspace(0, 1, 2 * 3 * 4 * 4).reshape(2, 3, 4, 4).astype(np.float32)
    with TensorBoard(tmp_path) as board:
        series = MonitorSeries("training loss", board, interval=2, verbose=False)
        timer = MonitorTimeElapsed("time", board, interval=2, verbose=False)
        shown = MonitorImage("made", board, interval=2, verbose=False)
        tiles = MonitorImageTile("sheet", board, interval=2, verbose=False)
        for i in range(4):
            series.add(i, i * i)
            timer.add(i)
            shown.add(i, images)
            tiles.add(i, np.full((4, 1, 2, 2), np.nan, np.float32) if i == 3 else images[:, :1])
    assert (tmp_path / "training-loss.series.txt").read_text() == "1 0.5\n3 6.5\n"
    found = read(tmp_path)
    assert [(e.step, e.value) for e in found.Scalars("training_loss")] == [(1, 0.5), (3, 6.5)]
    lines = np.loadtxt(tmp_path / "time.timer.txt")
    np.testing.assert_allclose([e.value for e in found.Scalars("time")], lines[:, 1], rtol=1e-5)
    assert sorted(found.Tags()["images"]) == ["made/000", "made/001", "sheet"]
    for name, files in {"made/001": "made/{:06d}-001.png", "sheet": "sheet/{:06d}.png"}.items():
        events = found.Images(name)
        assert [e.step for e in events] == [0, 1, 3]
        for event in events:
            written, shown = (
                Image.open(tmp_path / files.format(event.step)),
                Image.open(io.BytesIO(event.encoded_image_string)),
            )
            difference = np.asarray(written.convert("RGB"), int) - np.asarray(shown.convert("RGB"), int)
            assert np.abs(difference).max() <= 1  # tensorboardX truncates where the files round


def test_parameters_and_gradients(loss, tmp_path):
    """`add_parameters` writes histograms of parameters and gradients, without NaN and infinity."""
    with TensorBoard(tmp_path) as board:
        board.writer.add_parameters(0)
        loss.forward()
        loss.backward()
        board.writer.add_parameters(1)
        w = nn.get_parameters()["first/affine/W"]
        w.d[0, :2] = np.nan, np.inf
        nn.get_parameters()["first/affine/b"].d = np.nan
        board.writer.add_parameters(2, {"w": w, "b": nn.get_parameters()["first/affine/b"]}, grad=False)
    found = read(tmp_path)
    names = [f"{layer}/affine/{name}" for layer in ("first", "second") for name in ("W", "b")]
    assert sorted(found.Tags()["histograms"]) == sorted([*names, *(f"{name}.grad" for name in names), "w"])
    assert [e.step for e in found.Histograms("first/affine/W")] == [0, 1]
    (grad,) = found.Histograms("second/affine/W.grad")
    g = nn.get_parameters()["second/affine/W"].g
    assert (grad.step, grad.histogram_value.num) == (1, g.size)
    assert (grad.histogram_value.min, grad.histogram_value.max) == (g.min(), g.max())
    assert grad.histogram_value.sum == pytest.approx(g.sum(dtype=np.float64))
    assert found.Histograms("w")[0].histogram_value.num == w.size - 2
    assert [(e.step, e.value) for e in found.Scalars("w.not_finite")] == [(2, 2)]
    assert [e.value for e in found.Scalars("b.not_finite")] == [4]


def test_missing_gradients_are_not_allocated(loss, tmp_path):
    """Writing histograms allocates no gradient for parameters without one."""
    before = nn.memory_stats()["live"]
    with TensorBoard(tmp_path) as board:
        board.writer.add_parameters(0)
    assert nn.memory_stats()["live"] == before


def test_graph_text_and_profile(loss, tmp_path):
    """Graphs, text and profiles are written for TensorBoard."""
    with nn.profile() as p:
        loss.forward()
        loss.backward()
    with TensorBoard(tmp_path) as board:
        board.writer.from_variable(loss, "loss")
        board.writer.add_text("notes", "A *short* run.")
        board.writer.add_profile(p, 7)
    found = read(tmp_path)
    nodes = {node.name for node in GraphDef.FromString(found.Graph().SerializeToString()).node}
    assert {"first/affine/Affine", "second/affine/W", "loss"} <= nodes
    assert text(found, "notes/text_summary") == "A *short* run."
    assert "    " + p.table().splitlines()[0] in text(found, "profile/text_summary")
    rows = {f"profile/{row.phase}/{row.name}".replace(" ", "_"): row.seconds * 1e3 for row in p.rows("name")}
    assert set(found.Tags()["scalars"]) == set(rows)
    (event,) = found.Scalars("profile/backward/Affine")
    assert (event.step, event.value) == (7, pytest.approx(rows["profile/backward/Affine"], rel=1e-5))


def test_an_unclosed_run_is_complete(tmp_path):
    """All values are in the file although the program did not close the writer."""
    program = (
        "from kinnor.monitor import MonitorSeries, TensorBoard\n"
        f"loss = MonitorSeries('loss', TensorBoard({str(tmp_path)!r}), verbose=False)\n"
        "for i in range(50): loss.add(i, i)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    assert [e.value for e in read(tmp_path).Scalars("loss")] == list(range(50))


def test_refused(tmp_path, monkeypatch):
    """Wrong arguments and a missing package are refused."""
    with TBGraphWriter(log_dir=tmp_path) as writer:
        with pytest.raises(TypeError, match="add_parameters: expected `parameters` to be a dict of variables"):
            writer.add_parameters(0, {"w": 3})
        with pytest.raises(TypeError, match="add_parameters: expected `index`"):
            writer.add_parameters("0")
        with pytest.raises(TypeError, match="add_parameters: expected `grad`"):
            writer.add_parameters(0, grad="no")
        with pytest.raises(TypeError, match="add_profile: expected a Profile, got str"):
            writer.add_profile("slow")
    with pytest.raises(TypeError, match="expected `save_path` to be a path"):
        TensorBoard(3)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match=r"pip install 'kinnor\[tensorboard\]'"):
        TensorBoard(tmp_path)


FULL = """
import faulthandler, resource, sys
faulthandler.dump_traceback_later(20, exit=True)
from kinnor.monitor import MonitorSeries, TensorBoard
where = sys.argv[2]
board = TensorBoard(sys.argv[1])
series = MonitorSeries("loss", verbose=False)
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))  # a write beyond fails, as on a full disk
try:
    if where == "with":
        with board:
            for i in range(400):
                board.writer.add_scalar("loss", i, i)
    elif where == "add":
        for i in range(20_000):
            board.writer.add_scalar("loss", i, i)
    elif where == "flush":
        for i in range(400):
            board.writer.add_scalar("loss", i, i)
        for _ in range(200):
            board.writer.flush()
            __import__("time").sleep(0.01)
    elif where == "monitor":
        series = MonitorSeries("x", board, verbose=False)
        series._path = None
        for i in range(20_000):
            series.add(i, i)
    print("no error")
except OSError as error:
    print("OSError", error.errno)
    try:
        board.writer.add_scalar("loss", 1, 1)
    except OSError:
        print("again")
board.close()
print("ends")
"""


@pytest.mark.parametrize("where", ["with", "add", "flush", "monitor"])
def test_a_full_disk_is_an_error(tmp_path, where):
    """A write to a full disk raises OSError, and the program still ends."""
    found = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path), where], capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 0, found.stderr
    lines = found.stdout.split()
    assert lines[:2] == ["OSError", str(errno.EFBIG)], found.stdout
    assert lines[2:] == (["ends"] if where == "with" else ["again", "ends"]), found.stdout  # `with` has closed the file
