"""Audio utilities with NNabla's names: round trips of files, and use in data sets."""

import sys

import numpy as np
import pytest

import kinnor as nn
from kinnor.utils import audio_utils
from kinnor.utils.audio_utils import AudioError, auread, auresize, ausave, minmax_auto_scale
from kinnor.utils.audio_utils.common import normalize_intensity, rescale_intensity
from kinnor.utils.data_iterator import data_iterator_csv_dataset
from kinnor.utils.data_source import DataError
from kinnor.utils.data_source_loader import load, load_audio, load_wav

SAMPLES = np.arange(20, dtype=np.int16).reshape(10, 2) * 100
"""Ten samples of two channels."""


@pytest.mark.parametrize(
    "samples",
    [
        SAMPLES,
        SAMPLES[:, :1],
        (SAMPLES // 10).astype(np.uint8),
        SAMPLES.astype(np.int32) * 1000,
        SAMPLES / np.float32(3e3),
    ],
    ids=lambda samples: f"{samples.dtype}-{samples.shape[1]}",
)
def test_written_files_are_read_back(tmp_path, samples):
    path = tmp_path / "a.wav"
    ausave(path, samples, frame_rate=8000)
    found = auread(path)
    assert found.dtype == samples.dtype
    np.testing.assert_array_equal(found, samples)
    audio_utils.auwrite(path, samples.T, channel_first=True)
    with path.open("rb") as file:
        np.testing.assert_array_equal(auread(file, channel_first=True), samples.T)


def test_signs_and_formats(tmp_path):
    """Signed and unsigned samples are converted, and .wav, .flac and .ogg files are read back."""
    ausave(tmp_path / "a.wav", np.array([[-128], [0], [127]], np.int8))
    assert auread(tmp_path / "a.wav")[:, 0].tolist() == [0, 128, 255]
    ausave(tmp_path / "a.wav", SAMPLES.astype(np.uint16))
    np.testing.assert_array_equal(auread(tmp_path / "a.wav"), SAMPLES)
    ausave(tmp_path / "a.flac", SAMPLES)
    np.testing.assert_array_equal(auread(tmp_path / "a.flac"), SAMPLES)
    ausave(tmp_path / "a.ogg", SAMPLES)
    assert auread(tmp_path / "a.ogg").dtype == np.float32


def test_bare_samples(tmp_path):
    """Files without a header need `raw_format_param` to be read."""
    path = tmp_path / "a.raw"
    path.write_bytes(SAMPLES.tobytes())
    told = {"sample_width": 2, "channels": 2, "frame_rate": 44100}
    np.testing.assert_array_equal(auread(path, raw_format_param=told), SAMPLES)
    with pytest.raises(AudioError, match="got 40 bytes"):
        auread(path, raw_format_param={**told, "channels": 3})
    for bad in (None, {}, {**told, "sample_width": 3}):
        with pytest.raises(nn.ArgumentError, match="raw_format_param"):
            auread(path, raw_format_param=bad)


def test_other_sizes():
    """`auresize` changes the number of samples and channels, and refuses impossible sizes."""
    # Lengths as in NNabla 1.39 with pydub, which rounds down twice.
    np.testing.assert_allclose(auresize(SAMPLES, (5, 2))[:, 0], [0, 399, 799, 1199, 1599], atol=1)
    assert auresize(SAMPLES, (20, 2))[:4, 0].tolist() == [0, 100, 200, 300]
    assert auresize(SAMPLES, (20, 2)).shape == (20, 2)
    assert auresize(SAMPLES.T, (10, 1), channel_first=True)[0, :2].tolist() == [50, 250]
    assert auresize(SAMPLES[:, :1], (10, 3))[1].tolist() == [200, 200, 200]
    for bad in ((10, 3), (0, 2), (4,)):
        with pytest.raises(nn.ArgumentError, match="auresize"):
            auresize(SAMPLES, bad)


def test_ranges():
    """Scaling to the range of an integer type, and from one range to another."""
    assert minmax_auto_scale(np.array([-1.0, 0, 1]), np.int16).tolist() == [-32768, 0, 32767]
    assert minmax_auto_scale(np.array([0, 5, 10]), np.int32).tolist() == [-2147483648, 0, 2147483647]
    assert normalize_intensity(np.ones(2), 1, 1).tolist() == [1, 1]
    assert normalize_intensity(np.zeros(2), 0, 0).tolist() == [0, 0]
    wide = np.array([-32768, 0, 32767], np.int16)
    assert rescale_intensity(wide, wide.min(), wide.max(), -1, 1, np.float32).tolist() == [-1, np.float32(1 / 65535), 1]
    with pytest.raises(nn.ArgumentError, match="4 bytes"):
        minmax_auto_scale(SAMPLES, np.float64)


def test_data_sets_have_sounds(tmp_path):
    """CSV data sets and loaders by extension read audio files."""
    ausave(tmp_path / "a.wav", SAMPLES)
    (tmp_path / "a.csv").write_text("x,y\na.wav,1\n")
    with data_iterator_csv_dataset(tmp_path / "a.csv", 1) as batches:
        np.testing.assert_array_equal(batches.next()[0], SAMPLES[None])
    assert load(".wav") is load_audio
    assert load_wav(tmp_path / "a.wav", (2, 10)).shape == (2, 10)
    assert load_audio(tmp_path / "a.wav", (5, 1)).shape == (5, 1)
    with pytest.raises(DataError, match="load_audio"):
        load_audio(tmp_path / "a.wav", (5, 3))
    with pytest.raises(DataError, match="load_wav"):
        load_wav(tmp_path / "a.wav", (3, 10))


def test_refused(tmp_path, monkeypatch):
    """Files without sound, arrays that are no samples, unknown formats and a missing package are refused."""
    (tmp_path / "a.wav").write_text("no sound")
    with pytest.raises(AudioError, match="expected a sound"):
        auread(tmp_path / "a.wav")
    with pytest.raises(FileNotFoundError):
        auread(tmp_path / "none.wav")
    for bad in (SAMPLES / 3e3, SAMPLES[:, 0], [[1]], SAMPLES.astype(np.float16)):
        with pytest.raises(nn.ArgumentError, match="ausave"):
            ausave(tmp_path / "b.wav", bad)
    with pytest.raises(nn.ArgumentError, match="expected an audio file extension"):
        ausave(tmp_path / "b.txt", SAMPLES)
    with pytest.raises(nn.ArgumentError, match="got 'sox'"):
        audio_utils.set_backend("sox")
    assert audio_utils.get_available_backends() == ["soundfile", "pydub"]
    for name in ("pydub", "soundfile"):
        audio_utils.set_backend(name)
        assert audio_utils.get_backend() == name
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(ImportError, match=r"pip install 'kinnor\[audio\]'"):
        ausave(tmp_path / "b.wav", SAMPLES)
    assert not (tmp_path / "b.wav").exists()


def test_a_file_that_cannot_be_written(tmp_path, monkeypatch):
    """As on a full disk: the system's error is raised, and the old file stays."""
    path = tmp_path / "a.wav"
    ausave(path, SAMPLES)
    before = path.read_bytes()
    for ending in ("wav", "flac", "ogg"):
        with pytest.raises(OSError, match="No such file"):
            ausave(tmp_path / "nowhere" / f"a.{ending}", SAMPLES)

    def full(self, content):
        """Raises the error of a full disk."""
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        ausave(path, SAMPLES * 2)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a.wav"]
