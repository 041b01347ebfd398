"""Parameters in NNabla's protobuf files."""

import time

import numpy as np
import pytest

import kinnor as nn
import kinnor.solvers as S
from kinnor import ParameterError
from kinnor.files import parameter_protobuf, schema
from kinnor.parameter import get_parameter_or_create

NNABLA = (
    b"\xc2\x0c\x1a\n\x03a/w\xa2\x01\x04\n\x02\x02\x01\xa2\x06\x08\x00\x00\x80?\x00\x00\x00@\xa8\x06\x01"
    b"\xc2\x0c\x0f\n\x03a/m\xa2\x01\x00\xa2\x06\x04\x00\x00@@"
)
"""Written by NNabla 1.39: `a/w` of shape (2, 1), and `a/m` of shape () without gradient."""


def test_the_bytes_match_nnabla():
    """A message that NNabla wrote is decoded, and encoded to the same bytes."""
    found = parameter_protobuf.decode(NNABLA)
    assert [(name, values.tolist(), need_grad) for name, values, need_grad in found] == [
        ("a/w", [[1.0], [2.0]], True),
        ("a/m", 3.0, False),
    ]
    assert parameter_protobuf.encode(found) == NNABLA


def test_round_trip_keeps_order_and_need_grad(tmp_path):
    for n, name in enumerate(("z", "b/c", "a")):
        get_parameter_or_create(name, (2, n), np.full((2, n), n, np.float32), need_grad=n != 1)
    nn.save_parameters(tmp_path / "p.protobuf")
    saved = nn.get_parameters(grad_only=False)
    nn.clear_parameters()
    with nn.parameter_scope("in"):
        nn.load_parameters(tmp_path / "p.protobuf")
        loaded = nn.get_parameters(grad_only=False)
    assert list(loaded) == list(saved) == ["z", "b/c", "a"]
    for name, parameter in loaded.items():
        np.testing.assert_array_equal(parameter.d, saved[name].d)
        assert parameter.need_grad == saved[name].need_grad


def test_broken_files_are_refused_and_change_nothing(tmp_path):
    path = tmp_path / "broken.protobuf"
    get_parameter_or_create("a/w", (2, 1), np.zeros((2, 1)))
    pieces = [NNABLA[:n] for n in range(1, len(NNABLA)) if n != 29]
    for content in (*pieces, b"\xff" * 40, NNABLA.replace(b"\x02\x02\x01", b"\x02\x05\x01"), b"\xc2\x0c\x02\n\x00"):
        path.write_bytes(content)
        with pytest.raises(ParameterError, match="expected a protobuf file"):
            nn.load_parameters(path)
        assert not nn.get_parameters(grad_only=False)["a/w"].d.any()


def test_parameters_of_integers_are_refused(tmp_path):
    """Integer parameters cannot be saved as protobuf."""
    nn.parameter.set_parameter("n", nn.Variable.from_numpy_array(np.array([1, 2]), need_grad=False))
    with pytest.raises(ParameterError, match="real numbers"):
        nn.save_parameters(tmp_path / "p.protobuf")


def test_large_files_are_written_parameter_by_parameter_and_read_in_one_go():
    arrays = {f"p{i}": np.full(2_000_000, i, np.float32) for i in range(8)}
    pieces = parameter_protobuf.pieces((name, values, True) for name, values in arrays.items())
    whole = bytearray()
    for piece, values in zip(pieces, arrays.values(), strict=True):
        assert values.nbytes < len(piece) < values.nbytes + 100
        whole += piece
    start = time.process_time()
    found = parameter_protobuf.decode(bytes(whole))
    assert time.process_time() - start < 0.5
    assert all((values == arrays[name]).all() for name, values, _ in found)


def test_lengths_of_too_many_axes_are_not_read(tmp_path):
    message = schema.messages().NNablaProtoBuf()
    message.parameter.add(variable_name="w").shape.dim.extend([1] * 10_000_000)
    (tmp_path / "p.protobuf").write_bytes(message.SerializeToString())
    start = time.process_time()
    with pytest.raises(ParameterError, match="expected at most 64 axes"):
        nn.load_parameters(tmp_path / "p.protobuf")
    assert time.process_time() - start < 0.5


@pytest.mark.parametrize("kind", ["parameters", "states"])
def test_values_beyond_single_precision_are_not_saved_as_infinite(tmp_path, kind):
    """Protobuf files have single precision. The file that was there stays; infinite values are saved."""
    path = tmp_path / "a.protobuf"
    with nn.parameter_scope("", {}), nn.context_scope(nn.Context(["cpu:double"])):
        w = get_parameter_or_create("w", None, np.ones(2))
        solver = S.Adam()
        solver.set_parameters({"w": w})
        w.g = 1
        solver.update()
        array = solver.get_states()["w"].pstate["mean"] if kind == "states" else w
        save = solver.save_states if kind == "states" else nn.save_parameters
        array.d = np.array([np.inf, 1 + 1e-12])
        save(path)
        before = path.read_bytes()
        array.d = np.array([np.inf, 1e39])
        with pytest.raises(ParameterError, match=r"expected values of single precision .* got 1e\+39"):
            save(path)
        assert path.read_bytes() == before
