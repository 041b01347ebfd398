"""Monitors, the log, and learning rate schedules."""

import io
import logging
import subprocess
import sys

import matplotlib.pyplot as plt
import numpy as np
import pytest

from kinnor.files.images import read_image, write_image
from kinnor.logger import logger
from kinnor.monitor import (
    Monitor,
    MonitorImage,
    MonitorImageTile,
    MonitorSeries,
    MonitorTimeElapsed,
    plot_series,
    plot_time_elapsed,
    tile_images,
)
from kinnor.utils.learning_rate_scheduler import (
    BaseLearningRateScheduler,
    CosineScheduler,
    ExponentialScheduler,
    LinearWarmupScheduler,
    PolynomialScheduler,
    StepScheduler,
)


@pytest.fixture
def monitor(tmp_path):
    """Returns a monitor in a temporary folder."""
    return Monitor(tmp_path / "run" / "first")


def read_png(path):
    """Reads an image with the channel axis last."""
    pixels = read_image(path)
    return pixels[..., np.newaxis] if pixels.ndim == 2 else pixels


def test_series_writes_means(monitor, tmp_path, caplog):
    """A series writes the mean of each interval to its file and to the log, and begins the file anew."""
    series = MonitorSeries("training loss", monitor, interval=2)
    with caplog.at_level(logging.INFO, "kinnor"):
        for i in range(5):
            series.add(i, i * i)
    assert (tmp_path / "run/first/training-loss.series.txt").read_text() == "1 0.5\n3 6.5\n"
    assert caplog.messages == ["iter=1 {training loss}=0.5", "iter=3 {training loss}=6.5"]
    MonitorSeries("training loss", monitor)
    assert (tmp_path / "run/first/training-loss.series.txt").read_text() == ""


def test_series_takes_arrays_and_needs_no_monitor(caplog):
    """A series without a monitor logs the mean of what is added."""
    with caplog.at_level(logging.INFO, "kinnor"):
        MonitorSeries("loss").add(0, np.array([1, 2], np.float32))
        MonitorSeries("loss", verbose=False).add(0, 1)
    assert caplog.messages == ["iter=0 {loss}=1.5"]


def test_time_elapsed(monitor, tmp_path):
    """The timer writes the time since its last row, and the total time."""
    timer = MonitorTimeElapsed("time", monitor, interval=10, verbose=False)
    for i in range(25):
        timer.add(i)
    rows = np.loadtxt(tmp_path / "run/first/time.timer.txt")
    assert rows[:, [0, 2]].tolist() == [[9, 10], [19, 10]]
    assert rows[1, 3] == pytest.approx(rows[:, 1].sum())


def test_plots(monitor, tmp_path):
    """Plots show the values that were written."""
    plt.switch_backend("agg")
    series = MonitorSeries("loss", monitor, verbose=False)
    timer = MonitorTimeElapsed("time", monitor, interval=1, verbose=False)
    for i in range(3):
        series.add(i, 10 * i)
        timer.add(i)
    plot_series(tmp_path / "run/first/loss.series.txt", {"color": "red"})
    plot_time_elapsed(str(tmp_path / "run/first/time.timer.txt"), elapsed=True, unit="m")
    loss, times = plt.gca().lines
    assert loss.get_xydata().tolist() == [[0, 0], [1, 10], [2, 20]]
    assert (np.diff(times.get_ydata()) > 0).all()
    plt.close("all")
    with pytest.raises(ValueError, match="got 'w'"):
        plot_time_elapsed("none", unit="w")


def test_images_are_written_at_their_interval(monitor, tmp_path):
    """`MonitorImage` writes the first `num_images` images at each interval."""
    images = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    writer = MonitorImage("made up", monitor, interval=3, num_images=1, verbose=False)
    for i in range(6):
        writer.add(i, images)
    files = sorted(path.name for path in (tmp_path / "run/first/made-up").iterdir())
    assert files == ["000000-000.png", "000002-000.png", "000005-000.png"]
    image = read_png(tmp_path / "run/first/made-up/000002-000.png")
    np.testing.assert_array_equal(image, np.rint(images[0].transpose(1, 2, 0) / 59 * 255))


@pytest.mark.parametrize(("channels", "written"), [(1, 1), (2, 3), (3, 3), (5, 3)])
def test_tiles(monitor, tmp_path, channels, written):
    """Images are written as tiles of one sheet."""
    images = np.random.RandomState(0).rand(5, channels, 4, 6)
    MonitorImageTile("tiles", monitor, verbose=False, normalize_method=lambda x: x).add(0, images)
    sheet = read_png(tmp_path / "run/first/tiles/000000.png")
    assert sheet.shape == (3 * 5, 3 * 7, written)
    np.testing.assert_array_equal(sheet[5:9, 7:13, 0], np.rint(images[4, 0] * 255))
    assert not sheet[10:, 14:].reshape(-1, written)[:, :2].any()


def test_constant_image_is_black(monitor, tmp_path):
    """A constant image is written as black."""
    MonitorImage("flat", monitor, verbose=False).add(0, np.ones((1, 1, 2, 2)))
    assert not read_png(tmp_path / "run/first/flat/000000-000.png").any()


def test_images_refused(monitor):
    """Monitors and image functions refuse lists and wrong shapes."""
    writer = MonitorImage("images", monitor, verbose=False)
    with pytest.raises(TypeError, match="got list"):
        writer.add(0, [1, 2])
    with pytest.raises(ValueError, match=r"got \(2, 2\)"):
        writer.add(0, np.ones((2, 2)))
    with pytest.raises(ValueError, match="tile_images"):
        tile_images(np.ones((2, 2)))
    with pytest.raises(ValueError, match="write_image"):
        write_image("none.png", np.ones((2, 2, 5)))


def test_tile_images_lays_out_by_rows():
    """`tile_images` arranges images row by row with padding between."""
    sheet = tile_images(np.arange(4).reshape(4, 1, 1, 1), padsize=1, padval=9)
    assert sheet.tolist() == [[0, 9, 1, 9], [9, 9, 9, 9], [2, 9, 3, 9], [9, 9, 9, 9]]


def test_log_goes_to_the_current_standard_error(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logger.info("shown")
    logger.debug("hidden")
    assert stream.getvalue().endswith("[kinnor][INFO]: shown\n")
    assert stream.getvalue().count("\n") == 1
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.NullHandler()])
    logger.info("the program's own handlers show this")
    assert stream.getvalue().count("\n") == 1


def test_log_file_from_the_configuration(tmp_path):
    """The logger writes to the file that `nnabla.conf` names."""
    (tmp_path / "nnabla.conf").write_text("[LOG]\nlog_file_name = run.log\nlog_console_level = ERROR\n")
    program = "from kinnor.logger import logger; logger.debug('a detail')"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("", "")
    assert (tmp_path / "run.log").read_text().endswith("a detail\n")


def test_schedules():
    """Learning rates of each schedule at some iterations."""

    def rates(schedule, *iterations):
        """Returns the learning rates at these iterations, to compare approximately."""
        return pytest.approx([schedule.get_learning_rate(i) for i in iterations])

    assert rates(PolynomialScheduler(2, 100, 2), 0, 50, 100) == [2, 0.5, 0]
    assert rates(CosineScheduler(2, 100), 0, 50, 100) == [2, 1, 0]
    assert rates(ExponentialScheduler(2, 0.5, 10), 0, 9, 10, 25) == [2, 2, 1, 0.5]
    assert rates(StepScheduler(2, 0.5, [10, 20]), 9, 10, 20) == [2, 1, 0.5]
    assert rates(LinearWarmupScheduler(CosineScheduler(2, 100), 4), 0, 3, 50) == [
        0.25 * CosineScheduler(2, 100).get_learning_rate(0),
        CosineScheduler(2, 100).get_learning_rate(3),
        1,
    ]
    with pytest.raises(NotImplementedError, match="get_learning_rate"):
        BaseLearningRateScheduler().get_learning_rate(0)


def test_logger_works_for_any_order_of_imports():
    for first in ("pass", "import kinnor.monitor", "import kinnor.logger", "from kinnor.logger import logger"):
        program = f"{first}; import kinnor; kinnor.logger.info('told'); print(kinnor.logger.name)"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr.rstrip()[-4:]) == ("kinnor\n", "told"), first
