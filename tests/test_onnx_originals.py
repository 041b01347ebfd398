"""Parameters that graphs do not take as they are: their numbers go, and come back from the file."""

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


@pytest.fixture
def saved(tmp_path):
    """A file of two layers that are folded and one that is not, and the parameters that are in it."""
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
    return np.random.default_rng(7).standard_normal((n, *SHAPE[1:])).astype(np.float32)


def gone(model):
    return [key for key, x in model._parameters.items() if x.data.clear_called]


def assert_same(parameters, wanted):
    assert list(parameters) == list(wanted)
    for key, x in parameters.items():
        np.testing.assert_array_equal(x.d, wanted[key])


@pytest.mark.skipif(os.name != "posix", reason="a file that is open cannot be deleted")
def test_what_was_folded_goes_and_comes_back(saved):
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
    path, wanted = saved
    model = kinnor.onnx.load(path)
    y = model(given())
    other = pickle.loads(pickle.dumps(model)) if is_called else copy.deepcopy(kinnor.onnx.load(path))
    path.write_bytes(b"")
    np.testing.assert_array_equal(other(given()), y)
    assert_same(other.get_parameters(), wanted)


def test_a_file_that_was_written_since_is_not_taken_for_the_old_one(saved):
    path, wanted = saved
    model, other = kinnor.onnx.load(path), kinnor.onnx.load(path)
    y = model(given())
    content = path.read_bytes()
    os.utime(path, ns=(0, 0))
    assert gone(model)
    with pytest.raises(OnnxError, match="written since then"):
        model.get_parameters()
    np.testing.assert_array_equal(model(given()), y)
    # Who has not let go of its parameters keeps them.
    np.testing.assert_array_equal(other(given()), y)
    assert_same(other.get_parameters(), wanted)
    assert path.read_bytes() == content


def test_a_constant_that_is_reshaped_where_it_lies_stays(tmp_path):
    """The matrices of an interpolation get axes in place; the arrays of the file that they are made of leave memory."""
    x = nn.Variable((1, 3, 32, 32))
    y = F.interpolate(x, scale=(2, 2), mode="linear", half_pixel=True)
    kinnor.onnx.save(y, tmp_path / "net.onnx", {"x": x})
    x.d = given_images = np.random.default_rng(3).standard_normal(x.shape).astype(np.float32)
    y.forward()
    model = kinnor.onnx.load(tmp_path / "net.onnx")
    for _ in range(2):
        np.testing.assert_allclose(model(given_images), y.d, rtol=1e-4, atol=1e-5)
    assert gone(model) or not [key for key, p in model._parameters.items() if p.size >= 2048]
