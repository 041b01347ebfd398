"""Image utilities with NNabla's names: reading, writing and resizing give the same as NNabla with Pillow."""

import numpy as np
import pytest
from PIL import Image

import kinnor as nn
from kinnor.files.images import ImageError
from kinnor.utils import image_utils
from kinnor.utils.image_utils import imread, imresize, imsave, minmax_auto_scale, rescale_pixel_intensity
from kinnor.utils.image_utils.backend_events.common import upscale_float_image, upscale_pixel_intensity

PIXELS = (np.random.RandomState(0).rand(6, 8, 4) * 255).astype(np.uint8)
"""An 8-bit image of height 6 and width 8 with four channels."""


@pytest.fixture
def folder(tmp_path):
    """Returns a folder with images of several modes."""
    Image.fromarray(PIXELS[..., 0]).save(tmp_path / "L.png")
    Image.fromarray(PIXELS[..., :2]).save(tmp_path / "LA.png")
    Image.fromarray(PIXELS[..., :3]).save(tmp_path / "RGB.png")
    Image.fromarray(PIXELS).save(tmp_path / "RGBA.png")
    Image.fromarray(PIXELS[..., :3]).quantize(5).save(tmp_path / "P.png")
    Image.fromarray(PIXELS[..., 0].astype(np.uint16) * 200).save(tmp_path / "wide.png")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "kwargs", "shape", "total"),
    [  # Sums from NNabla 1.39 with the same files.
        ("L.png", {}, (6, 8), 6669),
        ("L.png", {"num_channels": 3}, (6, 8, 3), 20007),
        ("L.png", {"num_channels": 4}, (6, 8, 4), 32247),
        ("L.png", {"grayscale": True, "num_channels": 4}, (6, 8, 4), 26676),
        ("LA.png", {}, (6, 8, 2), 12832),
        ("LA.png", {"num_channels": 4}, (6, 8, 4), 26170),
        ("RGB.png", {"channel_first": True}, (3, 6, 8), 18912),
        ("RGB.png", {"grayscale": True}, (6, 8), 6305),
        ("RGB.png", {"grayscale": True, "num_channels": 0}, (6, 8), 6305),
        ("RGB.png", {"grayscale": True, "num_channels": 1, "channel_first": True}, (1, 6, 8), 6305),
        ("RGB.png", {"num_channels": 4}, (6, 8, 4), 31152),
        ("RGB.png", {"size": (4, 3)}, (3, 4, 3), 4737),
        ("RGB.png", {"size": (4, 3), "grayscale": True, "interpolate": "nearest"}, (3, 4), 1532),
        ("RGB.png", {"size": (5, 9), "interpolate": "lanczos"}, (9, 5, 3), 17796),
        ("RGB.png", {"size": (5, 9), "interpolate": "hamming"}, (9, 5, 3), 17817),
        ("RGBA.png", {"num_channels": 3}, (6, 8, 3), 18912),
        ("RGBA.png", {"size": (4, 3)}, (3, 4, 4), 6278),
        ("P.png", {}, (6, 8, 3), 19770),
        ("P.png", {"return_palette_indices": True}, (6, 8), 100),
    ],
)
def test_reading(folder, name, kwargs, shape, total):
    """Shapes and sums of images that are read with each option are as in NNabla."""
    found = imread(folder / name, **kwargs)
    assert found.shape == shape
    assert found.dtype == np.uint8
    assert found.sum() == total
    with (folder / name).open("rb") as file:
        np.testing.assert_array_equal(imread(file, **kwargs), found)


def test_sixteen_bits(folder):
    """Images of 16 bits are read and written whole, or as their upper 8 bits."""
    wide = PIXELS[..., 0].astype(np.uint16) * 200
    np.testing.assert_array_equal(imread(folder / "wide.png", as_uint16=True), wide)
    np.testing.assert_array_equal(imread(folder / "wide.png"), wide >> 8)
    np.testing.assert_array_equal(imread(folder / "RGB.png", as_uint16=True), PIXELS[..., :3].astype(np.uint16) * 256)
    imsave(folder / "out.png", wide, as_uint16=True)
    np.testing.assert_array_equal(imread(folder / "out.png", as_uint16=True), wide)
    imsave(folder / "out.png", np.array([[0, 0.5, 1]]), as_uint16=True)
    assert imread(folder / "out.png", as_uint16=True).tolist() == [[0, 32767, 65535]]
    with pytest.raises(ValueError, match="expected pixels of 8 bits, got uint16"):
        imsave(folder / "out.png", wide)
    with pytest.raises(ImageError, match="16 bits of grey"):
        imsave(folder / "out.tif", PIXELS, as_uint16=True)
    imsave(folder / "grey.tif", wide, as_uint16=True)
    np.testing.assert_array_equal(imread(folder / "grey.tif", as_uint16=True), wide)
    with pytest.raises(ImageError, match=r"expected \.png, \.tif or \.pgm for 16 bits"):
        imsave(folder / "out.jpg", wide, as_uint16=True)
    assert imread(folder / "out.png", as_uint16=True).tolist() == [[0, 32767, 65535]]


WIDE = np.random.RandomState(1).randint(0, 65536, (6, 8, 4)).astype(np.uint16)
"""The same size with 16 bits per channel."""
OPAQUE = np.full((6, 8, 1), 65535)
"""An alpha channel without transparency, of 16 bits."""


@pytest.mark.parametrize(
    ("channels", "kwargs", "wanted"),
    [
        (1, {}, WIDE[..., 0]),
        (1, {"num_channels": 3}, WIDE[..., [0, 0, 0]]),
        (2, {}, WIDE[..., :2]),
        (2, {"num_channels": 4}, WIDE[..., [0, 0, 0, 1]]),
        (3, {}, WIDE[..., :3]),
        (3, {"num_channels": 4}, np.concatenate([WIDE[..., :3], OPAQUE], 2)),
        (3, {"channel_first": True}, WIDE[..., :3].transpose(2, 0, 1)),
        (3, {"grayscale": True}, (WIDE[..., :3] @ np.array([0.299, 0.587, 0.114])).astype(np.uint16)),
        (3, {"grayscale": True, "num_channels": 1, "size": (4, 3)}, None),
        (4, {}, WIDE),
        (4, {"num_channels": 3}, WIDE[..., :3]),
    ],
)
def test_sixteen_bits_of_colours(tmp_path, channels, kwargs, wanted):
    """16-bit images of 1 to 4 channels are read with each number of channels."""
    imsave(tmp_path / "a.png", WIDE[..., :channels], as_uint16=True)
    found = imread(tmp_path / "a.png", as_uint16=True, **kwargs)
    assert found.dtype == np.uint16
    if wanted is None:
        assert found.shape == (3, 4, 1)
    else:
        np.testing.assert_array_equal(found, wanted)
    assert imread(tmp_path / "a.png", **kwargs).dtype == np.uint8
    broken = (tmp_path / "a.png").read_bytes()[:-30]
    (tmp_path / "a.png").write_bytes(broken)
    with pytest.raises(ImageError, match=r"imread: expected an image, got .*a\.png"):
        imread(tmp_path / "a.png", as_uint16=True)


def test_pillow_alone_writes_eight_bits(tmp_path, monkeypatch):
    """The Pillow backend refuses to write 16 bits, and scales 8 bits when it reads them as 16."""
    monkeypatch.setattr(image_utils.backend_manager, "_current", image_utils.backend_manager._current)
    image_utils.set_backend("PilBackend")
    for pixels, kwargs in [(WIDE, {"as_uint16": True}), (WIDE[..., 0], {"as_uint16": True}), (WIDE, {})]:
        with pytest.raises(ValueError, match="expected"):
            imsave(tmp_path / "a.png", pixels, **kwargs)
    assert not list(tmp_path.iterdir())
    imsave(tmp_path / "a.png", PIXELS)
    np.testing.assert_array_equal(imread(tmp_path / "a.png", as_uint16=True), PIXELS.astype(np.uint16) * 256)


@pytest.mark.parametrize("channels", [None, 1, 2, 3, 4])
@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64])
def test_written_files_are_read_back(tmp_path, channels, kind):
    """PNG files written by `imsave` and `imwrite` have the original pixels."""
    pixels = PIXELS[..., 0] if channels is None else PIXELS[..., :channels]
    values = pixels if kind is np.uint8 else (pixels / 255).astype(kind)
    first = values if channels is None else values.transpose(2, 0, 1)
    imsave(tmp_path / "a.png", values)
    image_utils.imwrite(tmp_path / "b.png", first, channel_first=channels is not None)
    wanted = pixels[..., 0] if channels == 1 else pixels
    np.testing.assert_array_equal(imread(tmp_path / "a.png"), wanted)
    np.testing.assert_array_equal(imread(tmp_path / "b.png"), wanted)


def test_writing_refused(tmp_path):
    """`imsave` refuses values out of range and wrong shapes."""
    path = tmp_path / "a.png"
    for bad, words in [
        (PIXELS / 128, "from 0 to 1, got 0.0078125 to"),
        (PIXELS.astype(int), "from 0 to 1"),
        (np.array([[np.nan]]), "from 0 to 1"),
        (PIXELS[0, 0], "expected an image of 2 or 3 axes"),
        (np.zeros((2, 3, 5), np.uint8), "1 to 4 channels"),
        ([[1]], "expected `img` to be an array, got list"),
    ]:
        with pytest.raises(ValueError, match=words):
            imsave(path, bad)
    with pytest.raises(ValueError, match="expected `auto_scale`"):
        imsave(path, PIXELS / 255, auto_scale=False)
    with pytest.raises(ValueError, match=r"ending of an image format such as \.png, got '\.xyz'"):
        imsave(tmp_path / "a.xyz", PIXELS)
    with pytest.raises(ImageError, match="mode RGBA"):
        imsave(tmp_path / "a.jpg", PIXELS)
    assert not list(tmp_path.iterdir())


def test_reading_refused(folder):
    """`imread` refuses damaged files, missing files and wrong options."""
    (folder / "text.png").write_text("no image")
    with pytest.raises(ImageError, match="expected an image"):
        imread(folder / "text.png")
    with pytest.raises(FileNotFoundError):
        imread(folder / "none.png")
    for kwargs in ({"num_channels": 2}, {"num_channels": 1}, {"size": 4}, {"size": (0, 2)}, {"interpolate": "cubic"}):
        with pytest.raises(nn.ArgumentError, match=f"`{next(iter(kwargs))}`"):
            imread(folder / "RGB.png", **kwargs)
    with pytest.raises(TypeError):
        imread(folder / "RGB.png", grey=True)


@pytest.mark.parametrize(
    ("values", "kind", "total"),
    [  # Values from NNabla 1.39.
        (PIXELS[..., 0], np.uint8, 2080),
        (PIXELS[..., :1], np.uint8, 2080),
        (PIXELS[..., :3], np.uint8, 5887),
        (PIXELS[..., :3].astype(np.uint16) * 200, np.uint16, 1177002),
        (PIXELS[..., :3].astype(int) - 100, np.float32, 1385),
    ],
)
def test_resizing(values, kind, total):
    """Sizes, types and sums of resized images are as in NNabla."""
    found = imresize(values, (5, 3))
    assert found.shape == (3, 5, *values.shape[2:])
    assert found.dtype == kind
    assert int(found.astype(float).sum()) == total
    if values.ndim == 3:
        first = imresize(values.transpose(2, 0, 1), (5, 3), channel_first=True)
        np.testing.assert_array_equal(first, found.transpose(2, 0, 1))


def test_ranges():
    """Floats are scaled to 8 or 16 bits, by their range or from [0, 1]."""
    assert minmax_auto_scale(PIXELS, False).astype(int).sum() == 24484
    assert minmax_auto_scale(PIXELS, True).astype(int).sum() == 6315091
    assert minmax_auto_scale(np.full((1, 2), 7.0), False).tolist() == [[255, 255]]
    assert not minmax_auto_scale(np.zeros((2, 2)), False).any()
    for kind, wide in ((np.uint8, False), (np.uint16, True)):
        levels = np.arange(np.iinfo(kind).max + 1, dtype=kind)
        for parts in (np.float32, np.float64):
            assert np.array_equal(upscale_float_image(levels.astype(parts) / levels[-1], wide), levels)
    assert rescale_pixel_intensity(PIXELS.astype(int), 10, 200, 0, 100, np.uint8).astype(int).sum() == 13886
    assert upscale_pixel_intensity(np.array([1, 255], np.uint8), True).tolist() == [256, 65280]


def test_backends(caplog):
    """Backends can be chosen by name. One that is missing is replaced with a warning."""
    image_utils.set_backend("pil")
    assert image_utils.get_backend() == "PilBackend"
    image_utils.set_backend("cv2")
    assert "PngBackend is used instead of 'cv2'" in caplog.text
    assert image_utils.get_backend() == "PngBackend"
    assert set(image_utils.get_available_backends()) == {"PilBackend", "PngBackend"}
    assert image_utils.backend_manager.accept("a.dcm", ".dcm", "load") == "NG"
    with pytest.raises(nn.ArgumentError, match="got 'gimp'"):
        image_utils.set_backend("gimp")


def test_without_pillow(monkeypatch, tmp_path):
    """Without Pillow, reading and writing raise ImportError with the package to install."""
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(ImportError, match=r"pip install 'kinnor\[image\]'"):
        imread(tmp_path / "a.png")
    with pytest.raises(ImportError, match=r"kinnor\[image\]"):
        imsave(tmp_path / "a.png", PIXELS)
