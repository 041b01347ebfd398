"""Parameters of safetensors files that are read on demand: one file, several with an index, and damaged ones."""

import json
import os
import random
import re

import ml_dtypes
import numpy as np
import pytest
from support import write_safetensors

import kinnor as nn
import kinnor.layers as L
from kinnor import _core
from kinnor.files import on_demand

TYPES = [bool, np.int8, np.int32, np.int64, np.uint8, np.float16, ml_dtypes.bfloat16, np.float32, np.float64]
"""Element types of the format."""


def file_of(header, data=b"", pad=True):
    """Returns the bytes of a file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-len(text) % 8 if pad else 0)
    return len(text).to_bytes(8, "little") + text + data


def tensor(start, end, shape=(2,), dtype="F32"):
    """Returns the entry of a header."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}


@pytest.fixture
def arrays():
    """Arrays of all element types."""
    rng = np.random.RandomState(0)
    found = {f"a.{np.dtype(t).name}": rng.normal(0, 3, (3, 4)).astype(t) for t in TYPES}
    return found | {"scalar": np.float32(3).reshape(()), "empty": np.zeros((3, 0), np.float32)}


def test_arrays_have_names_types_and_values(tmp_path, arrays):
    """The arrays equal the written arrays, and are read-only."""
    found = nn.open_parameters(write_safetensors(tmp_path / "a.safetensors", arrays))
    assert found.keys() == arrays.keys()
    for name, array in found.items():
        assert array.dtype == arrays[name].dtype
        assert array.shape == arrays[name].shape
        np.testing.assert_array_equal(array, arrays[name])
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    assert "a.int8" in found
    assert "a" not in found
    assert repr(found).startswith(f"<ParameterFiles: {len(arrays)} parameters of '{tmp_path}")
    with pytest.raises(KeyError, match="nothing"):
        found["nothing"]


def test_files_of_kinnor(tmp_path):
    """A file of `save_parameters` opens."""
    path, layer = tmp_path / "p.safetensors", L.Linear(300, 4)
    layer.save_parameters(path)
    weights = nn.open_parameters(str(path))
    assert [*weights] == ["W", "b"]
    np.testing.assert_array_equal(weights["W"], layer.W.d)


@pytest.mark.parametrize("change", ["replaced", "written", "shortened", "removed"])
def test_a_file_that_changes_is_not_read(tmp_path, change):
    """After a file was changed in any way, its arrays raise an error and load nothing. Arrays that were read stay."""
    path, layer = tmp_path / "p.safetensors", L.Linear(300, 40)
    layer.save_parameters(path)
    weights = nn.open_parameters(path)
    before = weights["W"]
    if change == "replaced":
        L.Linear(300, 40).save_parameters(path)
    elif change == "written":
        content = bytearray(path.read_bytes())
        content[-4:] = b"\0\0\0\1"
        path.write_bytes(content)
    elif change == "shortened":
        os.truncate(path, 1000)
    else:
        path.unlink()
    expected = FileNotFoundError if change == "removed" else nn.ParameterError
    text = "No such file" if change == "removed" else "as it was when it was opened, .* open it again"
    other = L.Linear(300, 40)
    kept = other.W.d.copy()
    with pytest.raises(expected, match=text):
        other.load_state_dict(weights)
    np.testing.assert_array_equal(other.W.d, kept)
    np.testing.assert_array_equal(before, layer.W.d)


@pytest.mark.parametrize("pad", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_weights_load_from_any_place_in_the_file(tmp_path, dtype, pad):
    """Arrays load also if the file stores them unaligned, and transposed."""
    values = np.random.RandomState(1).normal(size=(5, 3)).astype(dtype)
    name = "w" if pad else "w12"
    header = {name: tensor(0, values.nbytes, values.shape, on_demand.CODES[values.dtype.name])}
    (tmp_path / "w.safetensors").write_bytes(file_of(header, values.tobytes(), pad))
    found = nn.open_parameters(tmp_path / "w.safetensors")
    layer = L.Linear(3, 5, bias=False)
    layer.load_state_dict({"W": found[name].T})
    assert layer.W.data.dtype == values.dtype
    np.testing.assert_array_equal(layer.W.d, values.T)


def sharded(folder, arrays):
    """Writes arrays into two files with an index. Returns the path of the index."""
    names = list(arrays)
    parts = {f"model-0000{i}-of-00002.safetensors": names[i - 1 :: 2] for i in (1, 2)}
    for file, some in parts.items():
        write_safetensors(folder / file, {name: arrays[name] for name in some})
    places = {name: file for name in names for file, some in parts.items() if name in some}
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    return path


def test_an_index_of_several_files(tmp_path, arrays):
    """The index lists the names of all files. The path may be the index or its folder."""
    path = sharded(tmp_path, arrays)
    for found in (nn.open_parameters(path), nn.open_parameters(tmp_path)):
        assert [*found] == [*arrays]
        for name, array in found.items():
            np.testing.assert_array_equal(array, arrays[name])


def test_an_index_must_fit_its_files(tmp_path, arrays):
    """A name that a file lacks, a missing file, and files of other folders are refused."""
    path = sharded(tmp_path, arrays)
    index = json.loads(path.read_text())
    first = index["weight_map"]["scalar"]
    path.write_text(json.dumps({"weight_map": {"scalar": first, "lost": first}}))
    with pytest.raises(nn.ParameterError, match="files without 'lost'"):
        nn.open_parameters(path)
    path.write_text(json.dumps({"weight_map": {"a": "model-3.safetensors"}}))
    with pytest.raises(FileNotFoundError):
        nn.open_parameters(path)
    for odd in (
        "../a.safetensors",
        "/etc/a.safetensors",
        "a\0.safetensors",
        "c:a.safetensors",
        "a.bin",
        3,
        None,
        ["a"],
    ):
        path.write_text(json.dumps({"weight_map": {"a": odd}}))
        with pytest.raises(nn.ParameterError, match="names of files in its folder"):
            nn.open_parameters(path)
    for odd in ("", "[" * 100_000, "[]", "{}", '{"weight_map": 3}', "\xff"):
        path.write_bytes(odd.encode("latin-1"))
        with pytest.raises(nn.ParameterError, match="`weight_map`"):
            nn.open_parameters(path)


def test_a_folder_has_one_model(tmp_path, arrays):
    with pytest.raises(nn.ParameterError, match=r"a folder with a \.safetensors file"):
        nn.open_parameters(tmp_path)
    write_safetensors(tmp_path / "one.safetensors", arrays)
    assert nn.open_parameters(tmp_path).keys() == arrays.keys()
    write_safetensors(tmp_path / "two.safetensors", arrays)
    with pytest.raises(nn.ParameterError, match=r"got 'one\.safetensors', 'two\.safetensors'"):
        nn.open_parameters(tmp_path)


def test_other_paths(tmp_path):
    with pytest.raises(nn.ParameterError, match="load_parameters reads other formats"):
        nn.open_parameters(tmp_path / "a.h5")
    with pytest.raises(FileNotFoundError):
        nn.open_parameters(tmp_path / "a.safetensors")


DAMAGED = {
    "nothing": b"",
    "a short length": b"\1\0",
    "a long header": (10**17).to_bytes(8, "little") + b"{}",
    "no JSON": file_of(b"{"),
    "deep JSON": file_of(b"[" * 100_000),
    "a list": file_of([]),
    "a name twice": file_of(b'{"a":%s,"a":%s}' % ((json.dumps(tensor(0, 8)).encode(),) * 2), bytes(8)),
    "a number": file_of({"a": 3}),
    "no dtype": file_of({"a": {"shape": [2], "data_offsets": [0, 8]}}, bytes(8)),
    "an odd dtype": file_of({"a": tensor(0, 8, dtype="F8_E5M2")}, bytes(8)),
    "a list as dtype": file_of({"a": tensor(0, 8, dtype=["F32"])}, bytes(8)),
    "a negative length": file_of({"a": tensor(0, 8, (-2, -1))}, bytes(8)),
    "a fraction": file_of({"a": tensor(0, 8, (2.0,))}, bytes(8)),
    "a truth value": file_of({"a": tensor(0, 4, (True,))}, bytes(4)),
    "too few bytes": file_of({"a": tensor(0, 8)}, bytes(7)),
    "too many bytes": file_of({"a": tensor(0, 8)}, bytes(9)),
    "a gap": file_of({"a": tensor(4, 12)}, bytes(12)),
    "an overlap": file_of({"a": tensor(0, 8), "b": tensor(4, 12)}, bytes(12)),
    "another size": file_of({"a": tensor(0, 8, (3,))}, bytes(8)),
    "ends before its start": file_of({"a": tensor(8, 0)}, bytes(8)),
    "an enormous shape": file_of({"a": tensor(0, 0, (0, 2**62, 2**62))}),
    "a product that overflows": file_of({"a": tensor(0, 0, (2**32, 2**32))}),
    "too many axes": file_of({"a": tensor(0, 4, (1,) * 100)}, bytes(4)),
}
"""The contents of files that are not valid."""


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files(tmp_path, name):
    """A damaged file is refused with its path, before an array refers to it."""
    path = tmp_path / "a.safetensors"
    path.write_bytes(DAMAGED[name])
    with pytest.raises(nn.ParameterError, match=re.escape(str(path))):
        nn.open_parameters(path)


def test_both_readers_take_the_same_files(tmp_path, arrays):
    """If a randomly changed file is accepted, `load_parameters` accepts it too, with equal arrays."""
    path = write_safetensors(tmp_path / "a.safetensors", dict(list(arrays.items())[3:]))
    content = path.read_bytes()
    end, draw = content.rindex(b"}") + 1, random.Random(0)
    taken = 0
    for _ in range(300):
        changed = bytearray(content)
        for _ in range(draw.choice((1, 1, 2))):
            changed[draw.randrange(end)] = draw.choice(b'0123456789,:"[]{}FI \xff')
        path.write_bytes(changed)
        try:
            found = nn.open_parameters(path)
        except nn.ParameterError:
            continue
        taken += 1
        entries, _ = _core.read_safetensors(bytes(changed))
        assert [entry[:3] for entry in entries] == [(n, a.dtype.name, list(a.shape)) for n, a in found.items()]
        for name, dtype, shape, start in entries:
            size = np.prod(shape, dtype=int)
            np.testing.assert_array_equal(found[name].ravel(), np.frombuffer(changed, dtype, size, start))
    assert taken > 5
