"""The bundled digits, and IDX files: valid files made from them, and damaged ones."""

import gzip
import struct

import numpy as np
import pytest

import kinnor
from kinnor.datasets import IdxError, digits, read_idx

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}
"""The byte of the IDX header for each NumPy element type."""


def idx_bytes(array):
    """Returns the bytes of an IDX file that holds this array."""
    array = np.asarray(array)
    header = struct.pack(">HBB", 0, CODES[array.dtype.str[1:]], array.ndim) + np.array(array.shape, ">u4").tobytes()
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


@pytest.fixture
def pixels():
    """Returns the digits as 8-bit images."""
    images, _ = digits()
    return (images[:, 0] * 16).astype(np.uint8)


def test_digits_are_the_published_ones():
    """The bundled digits have the published shape, range, label counts and sum."""
    images, labels = digits()
    assert images.shape == (1797, 1, 8, 8)
    assert images.dtype == np.float32
    assert (images.min(), images.max()) == (0, 1)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (images * 16).sum() == 561718
    assert (images[0, 0, 0] * 16).tolist() == [0, 0, 5, 13, 9, 1, 0, 0]


def test_digits_are_fresh_each_time():
    """Each call returns new arrays, so that changes do not persist."""
    images, _ = digits()
    images[:] = 7
    assert digits()[0].max() == 1


@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_read_idx_reads_the_written_digits(tmp_path, pixels, compress):
    """`read_idx` reads plain and compressed IDX files."""
    path = tmp_path / "train-images-idx3-ubyte"
    path.write_bytes(compress(idx_bytes(pixels)))
    array = read_idx(path)
    assert array.dtype == np.uint8
    assert array.flags.writeable
    np.testing.assert_array_equal(array, pixels)


@pytest.mark.parametrize("kind", CODES)
def test_read_idx_knows_all_types_of_element(tmp_path, kind):
    expected = np.arange(24).reshape(2, 3, 4).astype(kind)
    (tmp_path / "file").write_bytes(idx_bytes(expected))
    array = read_idx(str(tmp_path / "file"))
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)


def test_read_idx_of_no_examples(tmp_path):
    """An IDX file of zero images is read as an empty array."""
    (tmp_path / "file").write_bytes(idx_bytes(np.zeros((0, 28, 28), "u1")))
    assert read_idx(tmp_path / "file").shape == (0, 28, 28)


WHOLE = idx_bytes(np.arange(12, dtype="u1").reshape(3, 4))
"""A valid IDX file of shape (3, 4). Tests damage copies of it."""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "an empty file"),
        (b"\0\0", "got 00 00"),
        (b"\1" + WHOLE[1:], "got 01 00 08 02"),
        (b"\0\0\x0a" + WHOLE[3:], "got 00 00 0a 02"),
        (b"PNG\n" + WHOLE, "start with two zero bytes"),
        (b"\0\0\x08\0", "1 to 32 axes, got 0"),
        (b"\0\0\x08\xff" + WHOLE, "1 to 32 axes, got 255"),
        (WHOLE[:9], "2 sizes of 4 bytes, got 5 bytes"),
        (WHOLE[:-1], "shape (3, 4) to hold 12 bytes of data, got only 11"),
        (WHOLE + b"\0", "got more"),
        (b"\0\0\x0e\x02" + b"\xff" * 8 + b"data", "a shape that memory can hold"),
        (b"\0\0\x0e\x04" + b"\xff" * 16 + b"data", "a shape that memory can hold"),
        (b"\0\0\x08\x04" + b"\xff" * 12 + b"\0" * 4, "a shape that memory can hold"),
        (b"\0\0\x0e\x01" + b"\xff" * 4 + b"data", "got only 4"),
        (gzip.compress(WHOLE, mtime=0)[:-9], "complete gzip file"),
        (gzip.compress(WHOLE, mtime=0)[:-8] + b"12345678", "complete gzip file"),
        (b"\x1f\x8b\x08" + b"\xff" * 40, "complete gzip file"),
        (gzip.compress(WHOLE[:-2], mtime=0), "got only 10"),
    ],
)
def test_read_idx_describes_errors(tmp_path, content, message):
    path = tmp_path / "broken"
    path.write_bytes(content)
    with pytest.raises(IdxError) as caught:
        read_idx(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, OSError)
    assert isinstance(caught.value, kinnor.Error)


def test_read_idx_stops_at_the_end_of_a_bomb(tmp_path):
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(WHOLE + bytes(100_000_000), mtime=0))
    with pytest.raises(IdxError, match="got more"):
        read_idx(path)


def test_read_idx_of_a_missing_file(tmp_path):
    """A missing file raises FileNotFoundError."""
    with pytest.raises(FileNotFoundError):
        read_idx(tmp_path / "none")
