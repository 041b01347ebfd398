"""Small networks of common architectures: exported to ONNX, run by onnxruntime and loaded again, for any batch size."""

import runpy
from pathlib import Path

import numpy as np
import pytest
from benches import onnx_models
from benches.onnx_networks import (
    bert,
    densenet,
    efficientnet,
    gpt2,
    lstm,
    mobilenet,
    resnet,
    shaken,
    unet,
    vit,
    yolo,
)
from test_onnx_saving import agrees, listed, run

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx
from kinnor_cli import main

EXAMPLES = Path(__file__).parents[2] / "examples"


def images(n):
    """Returns a batch of images."""
    return {"x": np.random.default_rng(n).normal(size=(n, 3, 32, 32)).astype(np.float32)}


def words(n):
    """Returns a batch of tokens and a mask."""
    rng = np.random.default_rng(n)
    return {"tokens": rng.integers(50, size=(n, 6)), "mask": (rng.random((n, 6)) < 0.8).astype(np.float32)}


def cached(n):
    """Returns a token and a cache of keys and values."""
    rng = np.random.default_rng(n)
    past = {key: rng.normal(size=(n, 2, 4, 3, 4)).astype(np.float32) for key in ("keys", "values")}
    return {"tokens": rng.integers(50, size=(n, 1)), **past}


def sequences(n):
    """Returns a batch of sequences."""
    return {"x": np.random.default_rng(n).normal(size=(n, 5, 3)).astype(np.float32)}


NETWORKS = {
    resnet: images,
    mobilenet: images,
    efficientnet: images,
    densenet: images,
    unet: images,
    yolo: images,
    bert: words,
    gpt2: cached,
    vit: images,
    lstm: sequences,
}
"""Networks of the examples. The value makes the inputs of a network for a batch of `n`."""


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_architectures(tmp_path, network):
    """Saved networks agree with ONNX Runtime and when they are loaded, for another batch size too."""

    def built(n):
        """Builds the network for a batch of `n`."""
        given = {key: nn.Variable.from_numpy_array(x) for key, x in NETWORKS[network](n).items()}
        return given, listed(network(**given))

    built(2)
    shaken()
    inputs, outputs = built(2)
    path = tmp_path / "net.onnx"
    kinnor.onnx.save(outputs, path, inputs)
    model = kinnor.onnx.load(path)
    assert set(model.get_parameters()) >= {k for k, x in nn.get_parameters().items()}
    for n in (2, 3):
        given, wanted = NETWORKS[network](n), built(n)[1]
        nn.forward_all(wanted)
        wanted = [y.d.copy() for y in wanted]
        if network is efficientnet:  # dropout is for training only
            with_dropout, F.dropout = F.dropout, lambda x, p: x
            wanted = [y.d for y in built(n)[1] if y.forward() is None]
            F.dropout = with_dropout
        agrees(run(path, given), wanted)
        agrees(listed(model(**given)), wanted)


def test_einsum(tmp_path):
    """A saved `einsum` agrees with ONNX Runtime."""
    x, w = nn.Variable((2, 3)), nn.Variable.from_numpy_array(np.arange(12.0).reshape(3, 4))
    y = F.einsum(x, w, equation="ij,jk->ki")
    kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x})
    x.d = np.random.default_rng(0).normal(size=x.shape)
    y.forward()
    agrees(run(tmp_path / "net.onnx", {"x": x.d}), [y.d])


def test_networks_of_the_examples(tmp_path, monkeypatch):
    """Networks of the examples give the same by Kinnor, by onnxruntime, and loaded again."""
    monkeypatch.syspath_prepend(EXAMPLES)
    lenet = runpy.run_path(str(EXAMPLES / "lenet.py"))["lenet"]
    features = runpy.run_path(str(EXAMPLES / "frozen_network.py"))["random_features"]
    for network in (lenet, features):
        x = nn.Variable((2, 1, 8, 8))
        y = network(x)
        shaken()
        kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x})
        x.d = np.random.default_rng(0).random(x.shape)
        y.forward()
        agrees(run(tmp_path / "net.onnx", {"x": x.d}), [y.d])
        agrees([kinnor.onnx.load(tmp_path / "net.onnx")(x.d)], [y.d])


def test_the_command_converts_both_ways(tmp_path, monkeypatch, capsys):
    """`kinnor convert` between `.nnp` and `.onnx` keeps the outputs of the network."""
    monkeypatch.chdir(tmp_path)
    x = nn.Variable((2, 3, 32, 32))
    y = resnet(x)
    shaken()
    nn.save("net.nnp", {"y": y}, {"x": x})
    for command in ("net.nnp net.onnx", "net.onnx again.nnp", "again.nnp again.onnx", "net.onnx w.safetensors"):
        assert main(["convert", *command.split()]) == 0, capsys.readouterr().err
    given = images(3)
    wanted = nn.load("net.nnp")(**given)
    agrees(run("net.onnx", given), [wanted])
    agrees([nn.load("again.nnp")(**given)], [wanted])
    agrees(run("again.onnx", given), [wanted])
    x = nn.Variable((4, 3, 2))
    nn.save("fft.nnp", {"y": F.fft(x, 1)}, {"x": x})
    assert main(["convert", "fft.nnp", "fft.onnx"]) == 1
    assert "expected functions of docs/onnx.md, got FFT" in capsys.readouterr().err
    assert not (tmp_path / "fft.onnx").exists()


def test_the_bench_of_models(capsys, monkeypatch):
    """The bench of ONNX models prints a row for each network, with each option."""
    monkeypatch.setattr(
        "sys.argv", ["onnx_models.py", "lstm", "gpt2", "--batch", "1", "--threads", "1", "--seconds", "0.05"]
    )
    assert onnx_models.main() == 0
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows] == ["lstm", "gpt2", "geometric"]
    assert all("of onnxruntime's; load" in row for row in rows[:2])
    for arguments, told in ((["--memory"], "MiB, "), (["--quantized", "dynamic", "--seconds", "0.05"], "; load")):
        monkeypatch.setattr("sys.argv", ["onnx_models.py", "lstm", "--batch", "1", "--threads", "1", *arguments])
        assert onnx_models.main() == 0
        assert told in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["onnx_models.py", "alexnet"])
    with pytest.raises(SystemExit):
        onnx_models.main()
    assert "expected architectures of ['bert'" in capsys.readouterr().err
