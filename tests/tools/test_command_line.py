"""The program `kinnor`: each command, its error messages, and training from start to end."""

import csv
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
from kinnor.files.images import read_image, write_image
from kinnor.monitor import Monitor, MonitorSeries, MonitorTimeElapsed
from kinnor_cli import COMMANDS, main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Runs the test in an empty folder, and returns it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(folder):
    """Saves a small network as `net.nnp`, and returns its output."""
    x = nn.Variable((2, 1, 4, 4))
    y = PF.affine(F.relu(PF.convolution(x, 3, (3, 3), name="c")), 5, name="f")
    nn.save("net.nnp", {"y": y}, inputs={"x": x}, name="net")
    return y


def run(line):
    """Runs a command line. Returns its exit status."""
    return main(line.split())


def ok(line):
    """Runs a command line that must succeed."""
    assert run(line) == 0


def test_a_network_is_trained_on_a_folder_of_images(folder, capsys):
    ok("digits -o images")
    ok(
        "create_image_classification_dataset -i images -o data -c 1 -w 8 -g 8 -m trimming -s true "
        "-f1 training.csv -f2 validation.csv -r2 20"
    )
    assert (folder / "data/training.csv").read_text().count("\n") == 1438
    project = [sys.executable, ROOT / "examples/digits_project.py", "digits.nnp", "--epochs", "8"]
    subprocess.run(project, check=True, capture_output=True)
    ok("train -c digits.nnp -o trained")
    assert "epoch 8 of 8: cost" in capsys.readouterr().out
    report = (folder / "trained/monitoring_report.yml").read_text()
    assert min(map(float, re.findall(r"valid_error: (\S+)", report))) <= 0.02
    ok("forward -c trained/results.nnp -d data/validation.csv -o out")
    with (folder / "out/output_result.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 360
    right = [max(range(10), key=lambda i: float(row[f"y__{i}"])) == int(row["y:label"]) for row in rows]
    assert np.mean(right) >= 0.97
    ok("train -c digits.nnp -o trained --resume")
    assert {p.name for p in (folder / "trained").iterdir()} == {
        "results.nnp",
        "results_current_8.nnp",
        "monitoring_report.yml",
    }


def test_training_resumes_from_a_file(folder):
    """`kinnor train --resume` continues a training from the saved epoch."""
    rng = np.random.RandomState(0)
    np.savetxt("data.csv", rng.randn(8, 4), delimiter=",", header="x__0,x__1,x__2,t", comments="", fmt="%.6f")
    x, t = nn.Variable((4, 3)), nn.Variable((4, 1))
    loss = F.mean(F.squared_error(PF.affine(x, 1, name="a"), t))
    solver = nn.solvers.Adam(0.1)
    solver.set_parameters(nn.get_parameters())
    from kinnor.utils.save import save

    def project(n_epochs):
        """Writes a training project of `n_epochs` epochs."""
        optimizer = {"name": "o", "solver": solver, "network": "n", "dataset": "d", "weight_decay": 0, "lr_decay": 1}
        optimizer |= {"lr_decay_interval": 1, "update_interval": 1, "data_variables": {"x": "x", "t": "t"}}
        contents = {
            "networks": [{"name": "n", "batch_size": 4, "outputs": {"loss": loss}, "names": {"x": x, "t": t}}],
            "datasets": [
                {"name": "d", "uri": "data.csv", "variables": ["x", "t"], "shuffle": False, "batch_size": 4,
                     "no_image_normalization": True}
            ],
            "optimizers": [optimizer],
            "training_config": {"max_epoch": n_epochs, "iter_per_epoch": 2, "save_best": False},
        }  # fmt: skip
        save(f"p{n_epochs}.nnp", contents)

    for n in (2, 4):
        project(n)
    ok("train -c p4.nnp -o whole")
    ok("train -c p2.nnp -o parts")
    ok("train -c p4.nnp -o parts --resume")
    for name in ("whole", "parts"):
        nn.clear_parameters()
        nn.load_parameters(f"{name}/results_current_4.nnp")
        found = nn.get_parameters()["a/affine/W"].d.copy()
        if name == "whole":
            wanted = found
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_networks_are_converted_to_onnx_and_back(folder):
    x, shape = nn.Variable((5, 2, 3)), nn.Variable((5, 2, 3))
    width = nn.parameter.get_parameter_or_create("constant", (3,))
    y = F.cumsum(F.broadcast_to(shape, x) * width, axis=0) + F.one_hot(F.constant(1, (1,)), (3,))
    x.d = np.random.RandomState(0).randn(5, 2, 3)
    graph = nn.graph_def.create_graph_from_variable("net", y, {"shape": shape, "x": x, "y": y})
    nn.graph_def.save("fixed.nnp", [graph], variable_batch_size=False)
    ok("convert fixed.nnp fixed.onnx -d opset_13")
    ok("convert fixed.onnx again.nnp")
    model = nn.load("again.nnp")
    assert model.inputs == ["x"]  # For the other input only the shape was read, and that is fixed.
    assert model.network.variables["x"].shape == (5, 2, 3)
    y.forward()
    np.testing.assert_allclose(model(x.d), y.d, rtol=1e-6)


@pytest.mark.parametrize("extension", [".nntxt", ".protobuf", ".prototxt"])
def test_networks_are_converted_both_ways(folder, model, extension, capsys):
    """`convert` to each format of networks and back keeps the outputs."""
    ok(f"convert net.nnp out{extension}")
    ok(f"convert out{extension} again.nnp")
    x = np.random.RandomState(0).randn(2, 1, 4, 4).astype(np.float32)
    np.testing.assert_array_equal(nn.load("again.nnp")(x), nn.load("net.nnp")(x))
    assert run(f"convert net.nnp out{extension}") == 1
    assert re.fullmatch(r"kinnor: convert: expected a new file, or --force.*\n", capsys.readouterr().err)
    ok(f"convert net.nnp out{extension} --force --batch-size 3 --nnp-exclude-parameter")
    assert nn.graph_def.load(f"out{extension}").default_graph().variables["x"].shape == (3, 1, 4, 4)


@pytest.mark.parametrize("extension", [".h5", ".safetensors", ".protobuf"])
def test_parameters_are_converted_both_ways(folder, model, extension):
    """`convert`, `decode_param` and `encode_param` keep parameters unchanged."""
    ok(f"convert net.nnp p{extension}")
    ok("convert net.nnp bare.nntxt --nnp-exclude-parameter")
    ok(f"convert bare.nntxt p{extension} again.nnp")
    x = np.random.RandomState(0).randn(2, 1, 4, 4).astype(np.float32)
    np.testing.assert_array_equal(nn.load("again.nnp")(x), nn.load("net.nnp")(x))
    ok(f"decode_param -p p{extension} -o text")
    assert (folder / "text/f~affine~b.txt").read_text().splitlines()[0] == "(5,)"
    ok("encode_param -i text -p back.h5")
    before = {k: v.d.copy() for k, v in nn.get_parameters().items()}
    nn.clear_parameters()
    nn.load_parameters("back.h5")
    assert nn.get_parameters().keys() == before.keys()
    assert all((v.d == before[k]).all() for k, v in nn.get_parameters().items())


def test_infer_reads_and_writes_raw_files(folder, model, capsys):
    """`infer` reads raw input files and writes raw output files."""
    x = np.random.RandomState(0).randn(2, 1, 4, 4).astype(np.float32)
    x.tofile("x.bin")
    ok("infer -c net.nnp -b 2 -o out x.bin")
    found = np.fromfile("out_0_0.bin", np.float32).reshape(2, 5)
    np.testing.assert_allclose(found, nn.load("net.nnp")(x), rtol=1e-6)
    ok("infer -c net.nnp -b 2 x.bin")
    assert "(2, 5)" in capsys.readouterr().out
    assert run("infer -c net.nnp -b 3 x.bin") == 1
    assert "expected 48 numbers for 'x', which are 3 examples, got 32" in capsys.readouterr().err
    for n in (1, 2):  # As many examples as there are.
        x[:n].tofile("x.bin")
        ok("infer -c net.nnp -o out x.bin")
        assert capsys.readouterr().out == "wrote out_0_0.bin\n"
        np.testing.assert_allclose(np.fromfile("out_0_0.bin", np.float32), found[:n].ravel(), rtol=1e-6)


def test_commands_say_what_they_wrote(folder, model, capsys):
    """Each command prints the paths of the files that it wrote."""
    for line, told in (
        ("convert net.nnp net.nntxt", "wrote net.nntxt"),
        ("optimize net.nnp better.nnp", "wrote better.nnp"),
        ("draw net.nnp -o pictures", "wrote pictures/net.svg"),
        ("decode_param -p net.nnp -o text", "wrote text: 4 text files"),
        ("encode_param -i text -p back.h5", "wrote back.h5: 4 parameters"),
        ("profile -c net.nnp -o times", "wrote times/profile.csv, times/profile.json, times/profile.html"),
        ("function_info net.nnp -o list.txt", "wrote list.txt"),
        ("digits -o digits", "wrote digits: 1797 images"),
    ):
        ok(line)
        assert told in capsys.readouterr().out.splitlines(), line


def test_the_contents_of_a_file_are_shown(folder, model, capsys):
    ok("dump net.nnp -F -V")
    shown = capsys.readouterr().out
    assert "inputs: x (-1, 1, 4, 4)" in shown
    assert "Convolution" in shown
    assert "4 parameters of 95 numbers" in shown
    ok("dump net.nnp -v --dump-limit 1")
    ok("dump net.nnp -n x")
    ok("function_info net.nnp -o functions.txt")
    assert (folder / "functions.txt").read_text().splitlines()[-1] == "ReLU: 1 times, F.relu"
    ok("function_info -q Convolution")
    assert "F.convolution(base_axis, pad" in capsys.readouterr().out
    ok("function_info -x ReLU")
    ok("draw net.nnp -o drawn")
    assert (folder / "drawn/net.svg").read_text().count("<rect") == 4
    ok("profile -c net.nnp -o measured")
    assert "Convolution" in (folder / "measured/profile.csv").read_text()
    events = json.loads((folder / "measured/profile.json").read_text())["traceEvents"]
    assert {"forward", "backward"} <= {e.get("cat") for e in events if e["name"] == "Convolution"}
    assert "Convolution" in (folder / "measured/profile.html").read_text()
    ok("version")
    ok("info")
    assert nn.__version__ in capsys.readouterr().out


def page_of(path):
    """Returns the data in a page that draws a network."""
    return json.loads(re.search(r'<script id="data"[^>]*>(.*?)</script>', path.read_text(), re.DOTALL)[1])


def test_a_network_is_drawn_as_a_page_that_loads_nothing(folder, model, capsys):
    ok("draw net.nnp -o drawn -f html")
    assert [p.name for p in (folder / "drawn").iterdir()] == ["net.html"]
    assert not re.search(r"(src|href)=|https?://(?!www.w3.org)", (folder / "drawn/net.html").read_text())
    found = page_of(folder / "drawn/net.html")
    texts, nodes = found["texts"], found["nodes"]
    assert [texts[n[0]] for n in nodes] == ["Input", "Convolution", "ReLU", "Affine"]
    assert [n[4] for n in nodes] == [[], [0], [1], [2]]
    assert [texts[p] for p in nodes[1][9]] == ["c/conv/W (3, 1, 3, 3)", "c/conv/b (3,)"]
    assert texts[nodes[3][1]] == "f"
    assert [n[8] for n in nodes] == [128, 96, 96, 40], "bytes with the batch of 2 that it was saved with"
    assert [nodes[1][10], nodes[3][10]] == [120, 260]
    assert (found["title"], found["outputs"]) == ("net", [3])
    ok("draw --help")
    assert "a self-contained page with foldable scopes" in " ".join(capsys.readouterr().out.split())


def test_a_failed_page_leaves_no_file(folder, model, monkeypatch, capsys):
    """`draw` keeps the old page if writing the new one fails."""
    ok("draw net.nnp -o drawn -f html")
    before = (folder / "drawn/net.html").read_bytes()

    def full(path, text, encoding):
        """Replaces the writer of the page: writes a part, then fails as on a full disk."""
        path.write_bytes(text.encode()[:100])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_text", full)
    assert run("draw net.nnp -o drawn -f html") == 1
    assert run("draw net.nnp -o other -f html") == 1
    assert "no space left" in capsys.readouterr().err
    assert (folder / "drawn/net.html").read_bytes() == before
    assert [p.name for p in (folder / "drawn").iterdir()] == ["net.html"]
    assert not list((folder / "other").iterdir())


def test_data_sets_become_arrays(folder):
    """`conv_dataset` writes a CSV data set as a folder of arrays, and does not overwrite without `--force`."""
    write_image("a.png", np.full((6, 9, 3), 200, np.uint8))
    (folder / "set.csv").write_text("x,y\na.png,1\na.png,2\n")
    ok("conv_dataset set.csv set.cache --normalize")
    assert run("conv_dataset set.csv set.cache") == 1
    ok("conv_dataset set.csv set.cache --force --shuffle")
    assert run("conv_dataset set.csv . --force") == 1
    ok("conv_dataset set.cache again.cache")
    names = sorted(p.name for p in (folder / "again.cache").iterdir())
    assert names[1:] == ["cache_index.csv", "cache_info.csv"]
    assert names[0].startswith("cache_00000000_00000001_") and names[0].endswith(".npy")


@pytest.mark.parametrize(("mode", "colours"), [("trimming", 3), ("padding", 1)])
def test_images_are_scaled_to_the_size(folder, mode, colours):
    """`create_image_classification_dataset` crops or pads images to one size and color mode."""
    (folder / "in/cat").mkdir(parents=True)
    (folder / "in/none").mkdir()
    write_image("in/cat/wide.png", np.full((4, 12, 3), 250, np.uint8))
    write_image("in/cat/grey.png", np.full((9, 3), 250, np.uint8))
    ok(f"create_image_classification_dataset -i in -o out -c {colours} -w 4 -g 4 -m {mode} -s false -f1 a.csv")
    assert (folder / "out/a.csv").read_text() == "x:image,y:label\n./cat/grey.png,0\n./cat/wide.png,0\n"
    for name in ("wide", "grey"):
        image = read_image(f"out/cat/{name}.png")
        assert image.shape == ((4, 4, 3) if colours == 3 else (4, 4))
        assert (image.min() == 250) == (mode == "trimming") or image.min() == 249


def detection(text, size, mode="padding", width=8, height=8, colours=1):
    """Runs the converter on one image with boxes. Returns labels, regions and the image."""
    Path("in").mkdir(exist_ok=True)
    write_image("in/a.png", np.full((*size, 3), 250, np.uint8))
    Path("in/a.txt").write_text(text)
    line = f"create_object_detection_dataset -i in -o out -n 3 -c {colours} -w {width} -g {height} -a 1 -d 4 -m {mode}"
    ok(f"{line} -s false -f1 a.csv")
    assert Path("out/a.csv").read_text() == (
        "x:image,y:label,r:region\n./data/a.png,./data/a_label.csv,./data/a_region.csv\n"
    )
    found = [np.loadtxt(f"out/data/a_{what}.csv", delimiter=",", ndmin=2) for what in ("label", "region")]
    return *found, read_image("out/data/a.png")


def test_boxes_become_labels_and_regions_of_cells(folder):
    labels, regions, image = detection("2 0.25 0.3 0.5 0.25\n1 1.0 1.0 0.5 0.5\n", (8, 8))
    assert labels.tolist() == [[2, -1], [-1, 1]]
    # The center within its cell, then the logarithms of width and height in cells. The second box is clipped.
    np.testing.assert_allclose(regions[0, :4], [0.5, 0.6, np.log(1), np.log(0.5)], atol=1e-6)
    np.testing.assert_allclose(regions[1, 4:], [0.75, 0.75, np.log(0.5), np.log(0.5)], atol=1e-6)
    assert not regions[0, 4:].any() and image.shape == (8, 8)


@pytest.mark.parametrize("mode", ["trimming", "padding"])
def test_boxes_follow_the_scaling_of_images(folder, mode):
    # A quarter of a wide image, right of the middle, then a quarter of a tall one, below it.
    wide, high = "0 0.625 0.5 0.25 1\n", "0 0.5 0.625 1 0.25\n"
    for text, size, across in ((wide, (8, 16), True), (high, (16, 8), False)):
        labels, regions, _ = detection(text, size, mode)
        assert labels[-1 if mode == "trimming" or not across else 1, 1] == 0
        sides = (0.5, 1) if mode == "trimming" else (0.25, 0.5)
        along = [0.75, 0.0, *sides] if mode == "trimming" else [0.625, 0.5, *sides]
        place = regions[1, 4:]
        middle = (1 + place[:2]) / 2
        lengths = np.exp(place[2:]) / 2
        want = ([along[0], 0.5], [sides[0], sides[1]])
        if not across:
            want = ([0.5, along[0]], [sides[1], sides[0]])
        np.testing.assert_allclose(middle, want[0], atol=1e-5)
        np.testing.assert_allclose(lengths, want[1], atol=1e-5)


def test_boxes_get_the_anchor_of_their_size(folder, capsys):
    for i in range(6):
        (folder / "in/deep").mkdir(parents=True, exist_ok=True)
        write_image(f"in/deep/{i}.png", np.full((8, 8), i, np.uint8))
        (folder / f"in/deep/{i}.txt").write_text("0 0.5 0.5 0.1 0.2\n" if i % 2 else "1 0.5 0.5 0.8 0.6\n")
    write_image("in/alone.png", np.full((8, 8), 9, np.uint8))  # has no objects
    line = "create_object_detection_dataset -i in -o out -n 2 -c 3 -w 8 -g 8 -a 2 -d 8 -m padding -s true"
    ok(f"{line} -f1 a.csv -f2 b.csv -r2 50")
    assert "width 0.100000, height 0.200000\nanchor: width 0.800000, height 0.600000" in capsys.readouterr().out
    rows = [(folder / name).read_text().splitlines()[1:] for name in ("out/a.csv", "out/b.csv")]
    assert [len(part) for part in rows] == [3, 4] and len({*rows[0], *rows[1]}) == 7
    small, large, none = (np.loadtxt(f"out/data/{name}_label.csv") for name in ("deep/1", "deep/2", "alone"))
    assert small.tolist() == [0, -1] and large.tolist() == [-1, 1] and none.tolist() == [-1, -1]
    for text, told in (("9 0 0 1 1", "a class below 2"), ("0 1 2", "four numbers"), ("a b c d e", "four numbers")):
        (folder / "in/alone.txt").write_text(text)
        assert run(f"{line} -f1 a.csv") == 1
        assert told in capsys.readouterr().err
    assert run(f"{line.replace('-d 8', '-d 3')} -f1 a.csv") == 1
    for path in (folder / "in").rglob("*.txt"):
        path.unlink()
    assert run(f"{line} -f1 a.csv") == 1
    assert "expected boxes" in capsys.readouterr().err


def test_products_become_affine_layers(folder, capsys):
    """`optimize` replaces a matrix product by a parameter with an `Affine` layer."""
    w = nn.Variable.from_numpy_array(np.arange(6.0).reshape(3, 2), need_grad=True)
    with nn.parameter_scope("", {}):
        nn.parameter.set_parameter("w", w)
        x = nn.Variable.from_numpy_array(np.ones((2, 3)))
        y = F.batch_matmul(x, nn.parameter.get_parameter_or_create("w"))
        nn.save("a.nnp", {"y": y}, inputs={"x": x}, name="net")
    ok("optimize a.nnp b.nnp")
    ok("dump b.nnp --dump-functions")
    assert "Affine" in capsys.readouterr().out
    assert nn.load("b.nnp")(np.ones((2, 3), np.float32)).tolist() == [[6, 9], [6, 9]]
    assert run("optimize a.nnp b.onnx") == 1 and run("optimize gone.nnp b.nnp") == 1


def test_series_of_monitors_are_plotted(folder):
    """`plot_series` and `plot_timer` draw the files of monitors, and refuse other files."""
    pytest.importorskip("matplotlib")
    series, timer = MonitorSeries("loss", Monitor("."), 1, False), MonitorTimeElapsed("time", Monitor("."), 1, False)
    for i in range(3):
        series.add(i, i * i)
        timer.add(i)
    ok("plot_series loss.series.txt -o loss.png -l loss -t title")
    ok("plot_timer time.timer.txt -o time.svg -e -u m")
    assert read_image("loss.png").ndim == 3
    assert run("plot_series net.nnp -o x.png") == 1
    (folder / "net.nnp").write_text("no numbers")
    assert run("plot_series net.nnp -o x.png") == 1
    assert not (folder / "x.png").exists()


# --- Arguments of NNabla


def test_arguments_of_nnabla_choose_formats_executors_and_versions(folder, model, capsys):
    import onnx

    x = np.random.RandomState(0).randn(2, 1, 4, 4).astype(np.float32)
    ok("convert -I NNP -O NNP --nnp-parameter-nntxt --nnp-no-expand-network net.nnp text.nnp")
    assert capsys.readouterr().err == (
        "kinnor convert: --nnp-no-expand-network is without effect: what is repeated stays as it is\n"
    )
    np.testing.assert_array_equal(nn.load("text.nnp")(x), nn.load("net.nnp")(x))
    with zipfile.ZipFile("text.nnp") as archive:
        assert "parameter {" in archive.read("network.nntxt").decode()
    ok("convert -O ONNX -d opset_13 net.nnp net.onnx")
    assert onnx.load("net.onnx").opset_import[0].version == 13
    ok("convert net.nnp two.nntxt")
    other = Path("two.nntxt").read_text().replace('"net"', '"other"').replace('"runtime"', '"second"')
    Path("two.nntxt").write_text(other)
    ok("convert -E 1 net.nnp two.nntxt one.nntxt")
    assert list(nn.graph_def.load("one.nntxt").networks) == ["other"]
    capsys.readouterr()
    ok("dump -I NNP -E 0 net.nnp two.nntxt")
    shown = capsys.readouterr().out
    assert "network net:" in shown
    assert "network other:" not in shown
    for line, text in (
        ("convert net.nnp x.nntxt -O TFLITE", "expected the format NNP or ONNX, got 'TFLITE'"),
        ("convert net.nnp x.nntxt -O ONNX", "expected a name that ends in .onnx for ONNX"),
        ("convert net.nnp x.nntxt -I onnx", "for ONNX, got 'net.nnp'"),
        ("convert net.nnp x.onnx -d opset_snpe", "such as opset_13, got 'opset_snpe'"),
        ("convert net.nnp x.nntxt -d opset_13", "expected a name that ends in .onnx"),
        ("convert net.nnp x.nntxt -E 7", "expected an executor from 0 to 0, got 7"),
        ("convert net.nnp x.nntxt -S 1-2", "expected no -S: networks are written whole"),
        ("function_info -f NNB", "expected the set ONNX, got 'NNB'"),
    ):
        assert run(line) == 1, line
        shown = capsys.readouterr().err
        assert text in shown
        assert shown.count("\n") == 1
    assert sorted(p.name for p in folder.iterdir()) == ["net.nnp", "net.onnx", "one.nntxt", "text.nnp", "two.nntxt"]
    ok("function_info -f ONNX")
    kinds = capsys.readouterr().out
    assert "\nConvolution: " in kinds
    assert "FFT" not in kinds


def test_paths_of_a_data_set_are_written_whole(folder, model):
    x = np.random.RandomState(0).randn(2, 1, 4, 4).astype(np.float32)
    (folder / "data").mkdir()
    for i in range(2):
        np.savetxt(folder / f"data/{i}.csv", x[i, 0], delimiter=",")
    (folder / "data/set.csv").write_text("x:in,# note,y:label\n0.csv,a,0\n1.csv,b,1\n")
    ok("forward -c net.nnp -d data/set.csv -o out --replace_path")
    with Path("out/output_result.csv").open(newline="") as file:
        _, first, second = csv.reader(file)
    assert first[:3] == [str(folder / "data/0.csv"), "a", "0"]
    assert second[:3] == [str(folder / "data/1.csv"), "b", "1"]


# --- Messages


def test_failures_print_one_line_and_set_the_status(folder, capsys):
    for line, status, text in (
        ("train -c gone.nntxt -o out", 1, "kinnor: train: .*gone.nntxt"),
        ("dump", 2, "usage: kinnor dump"),
        ("sing", 2, "kinnor: expected a command, got 'sing'; `kinnor --help`"),
        ("tarin", 2, "kinnor: expected a command, got 'tarin'; did you mean 'train'"),
        ("convert a.nnp b.exe", 1, "kinnor: convert: expected a name that ends in"),
        ("convert a.nnp", 1, "kinnor: convert: expected files"),
        ("forward -c gone.nnp -d x.csv -o .", 1, "kinnor: forward: "),
        ("encode_param -i . -p x.h5", 1, "kinnor: encode_param: .*expected text files"),
        (
            "create_image_classification_dataset -i . -o out -c 1 -w 1 -g 1 -m padding -s true -f1 a",
            1,
            "expected folders",
        ),
    ):
        assert run(line) == status, line
        shown = capsys.readouterr().err
        assert re.search(text, shown), shown
        assert status == 2 or shown.count("\n") == 1
    assert run("") == 2
    (folder / "bad.nnp").write_bytes(b"PK")
    assert run("dump bad.nnp") == 1


def test_each_command_lists_its_arguments(capsys):
    """`--help` lists all commands, and `--help` of each command works."""
    ok("--help")
    listed = capsys.readouterr().out
    for name, (_, text) in COMMANDS.items():
        assert f"  {name} " in listed
        assert text in listed
        ok(f"{name} --help")
        assert f"usage: kinnor {name}" in capsys.readouterr().out


def test_help_imports_neither_numpy_nor_the_package():
    program = (
        "import sys, kinnor_cli; status = kinnor_cli.main(['--help']);"
        "print(status, [name for name in ('argparse', 'numpy', 'kinnor') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, cwd=ROOT / "python"
    )
    assert done.stdout.splitlines()[-1] == "0 []"


def test_the_program_is_also_a_module():
    """`python -m kinnor` is the program `kinnor`."""
    done = subprocess.run([sys.executable, "-m", "kinnor", "version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"Kinnor {nn.__version__}\n"
