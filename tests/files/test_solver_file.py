"""Files of solver states: round trips, NNabla's bytes, and files that do not match."""

import random

import numpy as np
import pytest

from kinnor._core import ParameterError
from kinnor.files import solver_file, solver_protobuf
from kinnor.files.solver_file import State

FORMATS = [".safetensors", ".h5", ".protobuf"]
"""Extensions of all formats for solver states."""


def states():
    """Returns solver states of several shapes."""
    rng = np.random.RandomState(0)
    shapes = {"z": (), "conv1/W": (2, 3), "conv1/b": (3,), "none": (2, 0)}
    arrays = {
        key: {name: np.asarray(rng.randn(*shape), np.float32) for name in ("mean", "var")}
        for key, shape in shapes.items()
    }
    return {key: State(t, found) for t, (key, found) in enumerate(arrays.items())} | {"sgd": State(2**32 - 1, {})}


@pytest.mark.parametrize("extension", FORMATS)
def test_states_make_a_round_trip(tmp_path, extension):
    """Solver states are saved and loaded with equal values and element types."""
    if extension == ".h5":
        pytest.importorskip("h5py")
    path = tmp_path / f"states{extension}"
    solver_file.save(path, states())
    found = solver_file.load(path)
    assert set(found) == set(states())
    for key, expected in states().items():
        assert found[key].t == expected.t
        assert set(found[key].arrays) == set(expected.arrays)
        for name, array in expected.arrays.items():
            assert (found[key].arrays[name].dtype, found[key].arrays[name].shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(found[key].arrays[name], array)


def test_h5_has_the_layout_of_nnabla(tmp_path):
    """HDF5 files of solver states have NNabla's groups and attributes."""
    h5py = pytest.importorskip("h5py")
    path = tmp_path / "states.h5"
    solver_file.save(path, states())
    with h5py.File(path) as file:
        group = file["conv1/W"]
        assert group.attrs["index"] == 1
        assert sorted(group) == ["mean", "t", "var"]
        assert [group[name].attrs["index"] for name in ("mean", "var")] == [0, 1]
        assert (group["t"].dtype, group["t"][()]) == (np.int64, 1)


# One element in NNabla's `Adam` after a step with the gradient 0.5.
NNABLA = bytes.fromhex("f20131c2022e0a017a12290801") + bytes.fromhex(
    "12110a03766172120aa20100a206040012833912120a046d65616e120aa20100a20604d0cc4c3d"
)


def test_protobuf_of_nnabla_is_read():
    """States that NNabla wrote are decoded, and encoded to the same bytes."""
    ((key, t, arrays),) = solver_protobuf.decode(NNABLA)
    assert (key, t, list(arrays)) == ("z", 1, ["var", "mean"])
    assert arrays["mean"].shape == ()
    np.testing.assert_allclose([arrays["var"], arrays["mean"]], [0.00025, 0.05], rtol=1e-4)
    assert solver_protobuf.encode([(key, t, arrays)]) == NNABLA


def test_broken_protobuf_is_refused(tmp_path):
    """Randomly damaged files raise ParameterError or load."""
    rng = random.Random(0)
    path = tmp_path / "broken.protobuf"
    whole = solver_protobuf.encode((key, *state) for key, state in states().items())
    for _ in range(500):
        broken = bytearray(whole[: rng.randint(1, len(whole))])
        broken[rng.randrange(len(broken))] = rng.randrange(256)
        path.write_bytes(broken)
        try:
            solver_file.load(path)
        except ParameterError as error:
            assert "load_states: expected" in str(error)  # noqa: PT017 - some changes go unseen


def test_hostile_h5_files_are_refused(tmp_path):
    """Links, virtual data sets and huge sizes in HDF5 files raise ParameterError."""
    h5py = pytest.importorskip("h5py")
    path, secret = tmp_path / "states.h5", tmp_path / "secret.h5"
    with h5py.File(secret, "w") as file:
        file["a"] = np.ones(4, np.float32)

    def external(group):
        """Links the data to another file."""
        group.create_dataset("var", (4,), "f4", external=[(str(secret), 0, 16)])

    def link(group):
        """Links to another HDF5 file."""
        group["var"] = h5py.ExternalLink(secret, "/a")

    def soft(group):
        """Links to a data set of the same file."""
        group["var"] = h5py.SoftLink("/w/mean")

    def virtual(group):
        """Maps data of another file."""
        layout = h5py.VirtualLayout((4,), "f4")
        layout[:] = h5py.VirtualSource(secret, "a", (4,))
        group.create_virtual_dataset("var", layout)

    def huge(group):
        """Declares a huge data set."""
        group.create_dataset("unknown", (3 << 28,), "f4", chunks=(1 << 20,))

    def name(group):
        """Has a name that is not valid UTF-8."""
        group.file.create_group(b"\xff")["t"] = np.int64(1)

    def index(group):
        """Has text as index."""
        group["mean"].attrs["index"] = "first"

    for make in (external, link, soft, virtual, huge, name, index):
        with h5py.File(path, "w") as file:
            group = file.create_group("w")
            group["t"] = np.int64(1)
            group["mean"] = np.zeros(4, np.float32)
            make(group)
        with pytest.raises(ParameterError, match="load_states: expected"):
            solver_file.load(path)


@pytest.mark.parametrize("extension", FORMATS)
@pytest.mark.parametrize("names", [[""], ["a//b"], ["a\0b"], ["\ud800"], ["a", "a/mean"], [".."], ["a/" * 200 + "a"]])
def test_names_without_a_round_trip_are_refused(tmp_path, extension, names):
    array = np.ones(1, np.float32)
    with pytest.raises(ParameterError, match="save_states: expected"):
        solver_file.save(tmp_path / f"s{extension}", {name: State(1, {"mean": array}) for name in names})
    assert list(tmp_path.iterdir()) == []


def test_unknown_formats_are_refused(tmp_path):
    """Other extensions are refused with a list of the supported ones."""
    for act in (solver_file.load, lambda path: solver_file.save(path, {})):
        with pytest.raises(ParameterError, match=r"\.safetensors or \.h5 or \.protobuf"):
            act(tmp_path / "states.txt")
        with pytest.raises(ParameterError, match="expected a name that ends in"):
            act(tmp_path / "states.nnp")
    with pytest.raises(FileNotFoundError):
        solver_file.load(tmp_path / "missing.h5")
