"""Parameters that graphs use in folded form: the original values are freed, and read from the file again on demand."""

import copy
import os
import pickle

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.onnx
import kinnor.parametric_functions as PF
from kinnor.onnx import OnnxError

SHAPE = (2, 32, 6, 6)
"""Shape of a batch of images."""


@pytest.fixture
def saved(tmp_path):
    """Writes a model with two folded layers and one other layer. Returns its path and its parameters."""
    nn.seed(4)
    x = nn.Variable(SHAPE)
    h = x
    for name in "ab":
        h = PF.convolution(h, 64, (3, 3), pad=(1, 1), with_bias=False, name=name)
        h = F.relu(PF.batch_normalization(h, batch_stat=False, name=name))
    y = PF.affine(h, 16, name="c")
    kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x})
    parameters = kinnor.onnx.load(tmp_path / "net.onnx").get_parameters(grad_only=False)
    return tmp_path / "net.onnx", {key: x.d.copy() for key, x in parameters.items()}


def given(n=2):
    """Returns a batch of random images."""
    return np.random.default_rng(7).standard_normal((n, *SHAPE[1:])).astype(np.float32)


def gone(model):
    """Returns the names of parameters whose values were freed."""
    return [key for key, x in model._weights.parameters.items() if x.data.clear_called]


def assert_same(parameters, wanted):
    """Asserts that parameters have these names and values."""
    assert list(parameters) == list(wanted)
    for key, x in parameters.items():
        np.testing.assert_array_equal(x.d, wanted[key])


@pytest.mark.skipif(os.name != "posix", reason="a file that is open cannot be deleted")
def test_folded_parameters_are_freed_and_read_again(saved):
    path, wanted = saved
    model = kinnor.onnx.load(path)
    before = nn.memory_stats()["live"]
    y = model(given())
    large = [key for key, x in wanted.items() if key.endswith("conv/W")]
    assert gone(model) == large
    assert len(large) == 2
    assert nn.memory_stats()["live"] < before + (1 << 14)
    path.unlink()
    np.testing.assert_array_equal(model(given()), y)
    assert_same(
        {key: nn.Variable.from_numpy_array(x) for key, x in model.written()[1].items() if key in wanted}, wanted
    )
    assert_same(model.get_parameters(), wanted)
    np.testing.assert_allclose(model(given()), y, rtol=1e-4, atol=1e-5)
    assert not gone(model)


def test_other_shapes_and_variables_find_their_parameters(saved):
    path, wanted = saved
    model, plain = kinnor.onnx.load(path), kinnor.onnx.load(path)
    plain.get_parameters()
    for n in (2, 3, 1, 2):
        if n == 2 or model.shapes["x"][0] is None:
            np.testing.assert_allclose(model(given(n)), plain(given(n)), rtol=1e-4, atol=1e-5)
    y = model(nn.Variable.from_numpy_array(given()))
    y.forward()
    np.testing.assert_allclose(y.d, plain(given()), rtol=1e-5, atol=1e-6)
    assert_same(model.get_parameters(), wanted)


@pytest.mark.parametrize("is_called", [True, False])
def test_copies_have_parameters_of_their_own(saved, is_called):
    """A copied or unpickled model works after its file is gone."""
    path, wanted = saved
    model = kinnor.onnx.load(path)
    y = model(given())
    other = pickle.loads(pickle.dumps(model)) if is_called else copy.deepcopy(kinnor.onnx.load(path))
    path.write_bytes(b"")
    np.testing.assert_array_equal(other(given()), y)
    assert_same(other.get_parameters(), wanted)


def test_a_file_that_changed_is_not_read_again(saved):
    path, wanted = saved
    model, other = kinnor.onnx.load(path), kinnor.onnx.load(path)
    y = model(given())
    content = path.read_bytes()
    os.utime(path, ns=(0, 0))
    assert gone(model)
    with pytest.raises(OnnxError, match="written since then"):
        model.get_parameters()
    np.testing.assert_array_equal(model(given()), y)
    # A model that has not freed its parameters yet keeps them.
    np.testing.assert_array_equal(other(given()), y)
    assert_same(other.get_parameters(), wanted)
    assert path.read_bytes() == content


def test_a_constant_reshaped_in_place_stays(tmp_path):
    """Weights of an interpolation get axes in place, so the arrays from the file are freed."""
    x = nn.Variable((1, 3, 32, 32))
    y = F.interpolate(x, scale=(2, 2), mode="linear", half_pixel=True)
    kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x})
    x.d = given_images = np.random.default_rng(3).standard_normal(x.shape).astype(np.float32)
    y.forward()
    model = kinnor.onnx.load(tmp_path / "net.onnx")
    for _ in range(2):
        np.testing.assert_allclose(model(given_images), y.d, rtol=1e-4, atol=1e-5)
    assert gone(model) or not [key for key, p in model._weights.parameters.items() if p.size >= 2048]


@pytest.mark.skipif(os.name != "posix", reason="a file that is open cannot be deleted")
def test_another_shape_reads_no_parameter_again(saved, monkeypatch):
    """Calls with new batch sizes do not reload freed parameters."""
    path, wanted = saved
    model = kinnor.onnx.load(path)
    model(given())
    freed = gone(model)
    assert freed
    read = []
    monkeypatch.setattr(os, "pread", lambda *args: read.append(args))
    for n in (1, 3, 2):
        assert model(given(n)).shape == (n, 16)
    assert not read
    assert gone(model) == freed
    monkeypatch.undo()
    assert_same(model.get_parameters(grad_only=False), wanted)
