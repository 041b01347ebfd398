"""Monitors: record values, times and images of a training run to files, the log and TensorBoard."""

from __future__ import annotations

import operator
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _check
from ._core import ArgumentError, CallError
from .files.images import tile_images, write_image
from .logger import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from typing_extensions import Self

    from .tensorboard import TBGraphWriter

__all__ = [
    "Monitor",
    "MonitorImage",
    "MonitorImageTile",
    "MonitorSeries",
    "MonitorTimeElapsed",
    "TensorBoard",
    "plot_series",
    "plot_time_elapsed",
    "tile_images",
]


class Watcher:
    """Base class of receivers of all monitors' records. Its methods do nothing."""

    def value(self, name: str, index: int, value: float) -> None:
        """Receives a mean of a `MonitorSeries`, or the seconds of a `MonitorTimeElapsed`."""

    def image(self, name: str, index: int, image: NDArray[Any]) -> None:
        """Receives an image, shape (height, width, channels) or (height, width)."""

    def file(self, name: str, path: Path) -> None:
        """Receives the path of an image file that was written."""


watchers: list[Watcher] = []
"""Receivers of all monitors' records, in addition to the `TensorBoard` of a monitor."""


class Monitor:
    """The directory for the records of one run. It is created if necessary.

    Args:
        save_path: The directory.
    """

    def __init__(self, save_path: str | os.PathLike[str]) -> None:
        if not isinstance(save_path, (str, os.PathLike)):
            raise CallError(f"Monitor: expected `save_path` to be a path, got {save_path!r}")
        self._save_path = os.fspath(save_path)
        Path(save_path).mkdir(parents=True, exist_ok=True)

    @property
    def save_path(self) -> str:
        """The directory."""
        return self._save_path


class TensorBoard(Monitor):
    """A directory whose records TensorBoard shows as well: `tensorboard --logdir <save_path>`.

    Monitors of this directory write their files as with `Monitor`, and an event file for TensorBoard. This needs
    tensorboardX: the extra `tensorboard`. The `writer` records everything else that TensorBoard shows, such as
    histograms of parameters and gradients, the graph, profiles and text.

    Args:
        save_path: The directory.

    Raises:
        ImportError: If tensorboardX is not installed.

    Examples:
        >>> import tempfile, kinnor as nn
        >>> w = nn.parameter.get_parameter_or_create("w", (3,))
        >>> with tempfile.TemporaryDirectory() as folder, TensorBoard(folder) as board:
        ...     loss = MonitorSeries("loss", board, verbose=False)
        ...     for i in range(3):
        ...         loss.add(i, 1 / (i + 1))
        ...         board.writer.add_parameters(i)
        ...     board.writer.add_text("notes", "A short run.")
        >>> nn.clear_parameters()
    """

    def __init__(self, save_path: str | os.PathLike[str]) -> None:
        from .tensorboard import TBGraphWriter

        super().__init__(save_path)
        self._writer = TBGraphWriter(save_path)

    @property
    def writer(self) -> TBGraphWriter:
        """The writer: `tensorboardX.SummaryWriter` with `add_parameters`, `add_profile` and `from_variable`."""
        return self._writer

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Write all pending records. The end of a `with` block, or of the program, does the same."""
        self._writer.close()


class _Shown(Watcher):
    """Sends records to a TensorBoard writer."""

    def __init__(self, writer: TBGraphWriter) -> None:
        self._writer = writer

    def value(self, name: str, index: int, value: float) -> None:
        """Adds a scalar."""
        self._writer.add_scalar(name, value, index)

    def image(self, name: str, index: int, image: NDArray[Any]) -> None:
        """Adds an image, with NaN as 0."""
        self._writer.add_image(name, np.nan_to_num(image), index, dataformats="HWC"[: image.ndim])


def _watching(monitor: Monitor | None) -> list[Watcher]:
    """All receivers of a monitor's records."""
    return [*([_Shown(monitor.writer)] if isinstance(monitor, TensorBoard) else ()), *watchers]


def _new_file(monitor: Monitor | None, name: str, kind: str) -> Path | None:
    """The path of a monitor's text file, after emptying it. None without a monitor."""
    if monitor is None:
        return None
    if not isinstance(monitor, Monitor):
        raise CallError(f"monitor: expected a Monitor for {name!r}, got {type(monitor).__name__}")
    path = Path(monitor.save_path, f"{name.replace(' ', '-')}.{kind}.txt")
    path.write_text("")
    return path


def _append(path: Path | None, line: str) -> None:
    """Appends a line to a file, if there is one."""
    if path is not None:
        with path.open("a") as file:
            file.write(line + "\n")


def _index(op: str, index: Any) -> int:
    """An iteration as an int. Raises CallError for other types."""
    try:
        return operator.index(index)
    except TypeError:
        raise CallError(f"{op}: expected the number of an iteration, got {index!r}") from None


class MonitorSeries:
    """A series of values, such as the loss: means over `interval` iterations.

    They go to the log, and to the file `<name>.series.txt` as lines `<index> <mean>`. An existing file is overwritten.
    Spaces in the name become hyphens.

    Args:
        name: Name of the series.
        monitor: Directory of the file. Without it no file is written.
        interval: Iterations between two lines.
        verbose: Whether to write to the log.

    Examples:
        >>> series = MonitorSeries("training loss", interval=10, verbose=False)
        >>> for i in range(100):
        ...     series.add(i, 1 / (i + 1))
    """

    def __init__(self, name: str, monitor: Monitor | None = None, interval: int = 1, verbose: bool = True) -> None:
        self.name = _check.text("MonitorSeries", "name", name)
        self.interval = _check.count("MonitorSeries", "interval", interval)
        self.verbose = verbose
        self._path = _new_file(monitor, name, "series")
        self._monitor = monitor
        self._values: list[float] = []
        self._last = -1

    def add(self, index: int, value: Any) -> None:
        """Add a value.

        Args:
            index: The iteration, from 0.
            value: A number, or an array, whose mean is added.
        """
        index = _index("MonitorSeries.add", index)
        try:
            self._values.append(float(np.mean(value)))
        except (TypeError, ValueError):
            raise CallError(f"MonitorSeries.add: expected a number or an array, got {value!r}") from None
        if index - self._last < self.interval:
            return
        mean = float(np.mean(self._values))
        self._last, self._values = index, []
        if self.verbose:
            logger.info("iter=%d {%s}=%s", index, self.name, mean)
        _append(self._path, f"{index} {mean:g}")
        for watcher in _watching(self._monitor):
            watcher.value(self.name, index, mean)


class MonitorTimeElapsed:
    """The time that iterations take.

    It goes to the log, and to the file `<name>.timer.txt` as lines
    `<index> <seconds since the last line> <iterations since the last line> <total seconds>`.

    Args:
        name: Name of the record.
        monitor: Directory of the file. Without it no file is written.
        interval: Iterations between two lines.
        verbose: Whether to write to the log.
    """

    def __init__(self, name: str, monitor: Monitor | None = None, interval: int = 100, verbose: bool = True) -> None:
        self.name = _check.text("MonitorTimeElapsed", "name", name)
        self.interval = _check.count("MonitorTimeElapsed", "interval", interval)
        self.verbose = verbose
        self._path = _new_file(monitor, name, "timer")
        self._monitor = monitor
        self._last = -1
        self._start = self._lap = time.perf_counter()

    def add(self, index: int) -> None:
        """Record the end of an iteration.

        Args:
            index: The iteration, from 0.
        """
        index = _index("MonitorTimeElapsed.add", index)
        n_iterations = index - self._last
        if n_iterations < self.interval:
            return
        now = time.perf_counter()
        elapsed, total = now - self._lap, now - self._start
        self._lap, self._last = now, index
        if self.verbose:
            logger.info("iter=%d {%s}=%s[sec/%diter] %s[sec]", index, self.name, elapsed, n_iterations, total)
        _append(self._path, f"{index} {elapsed} {n_iterations} {total}")
        for watcher in _watching(self._monitor):
            watcher.value(self.name, index, elapsed)


class MonitorImage:
    """Images, such as outputs of a network, as files `<name>/<index>-<number>.png`.

    They are written at index 0 and whenever `index + 1` is a multiple of `interval`. This needs Pillow: the extra
    `image`.

    Args:
        name: Name of the directory.
        monitor: Directory in which it is created.
        interval: Iterations between two writes.
        verbose: Whether to log each write.
        num_images: Number of images that are written, from the start of the batch.
        normalize_method: Maps a batch of images to values from 0 to 1; by default a linear map of its range.
    """

    def __init__(
        self,
        name: str,
        monitor: Monitor,
        interval: int = 1000,
        verbose: bool = True,
        num_images: int = 16,
        normalize_method: Callable[[NDArray[Any]], NDArray[Any]] | None = None,
    ) -> None:
        self.name = _check.text("MonitorImage", "name", name)
        self.interval = _check.count("MonitorImage", "interval", interval)
        self.verbose = verbose
        self.num_images = num_images
        self.normalize_method = normalize_method or self.default_normalize_method
        self._monitor = monitor
        self.save_dir = os.path.join(monitor.save_path, name.replace(" ", "-"))  # noqa: PTH118 - NNabla has a str.
        Path(self.save_dir).mkdir(parents=True, exist_ok=True)

    def default_normalize_method(self, x: NDArray[Any]) -> NDArray[Any]:
        """Map a batch linearly to the range from 0 to 1. A constant batch becomes zeros.

        Args:
            x: The images.
        """
        low, high = x.min(), x.max()
        stretched: NDArray[Any] = (x - low) / (high - low if high > low else 1)
        return stretched

    def add(self, index: int, var: Any) -> None:
        """Write images if `index` is due.

        Args:
            index: The iteration, from 0.
            var: A Variable, an NdArray or an array of shape (n, ..., channels, height, width). Two channels get a third
                one of ones. Of more than three channels the first three are written.

        Raises:
            ArgumentError: If `var` has another type, or fewer than three axes.
        """
        if index != 0 and (index + 1) % self.interval != 0:
            return
        self._write(index, self._images(var))

    def _images(self, var: Any) -> NDArray[Any]:
        """The normalized images to write, shape (n, 1 or 3 channels, height, width)."""
        value = var if isinstance(var, np.ndarray) else getattr(var, "d", getattr(var, "data", None))
        if not isinstance(value, np.ndarray):
            raise ArgumentError(
                f"{type(self).__name__}.add: expected a Variable, NdArray or array, got {type(var).__name__}"
            )
        if value.ndim < 3:
            raise ArgumentError(
                f"{type(self).__name__}.add: expected shape (n, ..., channels, height, width), got {value.shape}"
            )
        images = self.normalize_method(value.reshape(-1, *value.shape[-3:])[: self.num_images].copy())
        if images.shape[1] == 2:
            return np.concatenate([images, np.ones_like(images[:, :1])], axis=1)
        return images[:, :3]

    def _write(self, index: int, images: NDArray[Any]) -> None:
        """Writes each image to its own file."""
        for number, image in enumerate(images):
            name, pixels = f"{self.name}/{number:03d}", image.transpose(1, 2, 0)
            self._write_one(Path(self.save_dir, f"{index:06d}-{number:03d}.png"), name, index, pixels)
        self._log(index, f"{index:06d}-*.png")

    def _write_one(self, path: Path, name: str, index: int, pixels: NDArray[Any]) -> None:
        """Writes an image file, and sends image and path to the receivers."""
        write_image(path, pixels)
        for watcher in _watching(self._monitor):
            watcher.image(name, index, pixels)
            watcher.file(self.name, path)

    def _log(self, index: int, name: str) -> None:
        """Logs a write, if `verbose`."""
        if self.verbose:
            logger.info("iter=%d {%s} is written to %s.", index, self.name, Path(self.save_dir, name))


class MonitorImageTile(MonitorImage):
    """Images of a batch as tiles of one file `<name>/<index>.png`, otherwise like `MonitorImage`.

    Args:
        name: Name of the directory.
        monitor: Directory in which it is created.
        interval: Iterations between two files.
        verbose: Whether to log each write.
        num_images: Number of images that are written, from the start of the batch.
        normalize_method: Maps a batch of images to values from 0 to 1; by default a linear map of its range.
    """

    def _write(self, index: int, images: NDArray[Any]) -> None:
        """Writes all images to one file."""
        self._write_one(Path(self.save_dir, f"{index:06d}.png"), self.name, index, tile_images(images))
        self._log(index, f"{index:06d}.png")


def plot_series(filename: str | os.PathLike[str], plot_kwargs: dict[str, Any] | None = None) -> None:
    """Plot the file of a `MonitorSeries` on matplotlib's current axes.

    Args:
        filename: The file `<name>.series.txt`.
        plot_kwargs: Further arguments of `matplotlib.pyplot.plot`.
    """
    _plot(filename, 1, 1, plot_kwargs)


def plot_time_elapsed(
    filename: str | os.PathLike[str],
    elapsed: bool = False,
    unit: str = "s",
    plot_kwargs: dict[str, Any] | None = None,
) -> None:
    """Plot the file of a `MonitorTimeElapsed` on matplotlib's current axes.

    Args:
        filename: The file `<name>.timer.txt`.
        elapsed: Whether to plot the total time; otherwise the time of each interval.
        unit: Seconds `"s"`, minutes `"m"`, hours `"h"` or days `"d"`.
        plot_kwargs: Further arguments of `matplotlib.pyplot.plot`.

    Raises:
        ArgumentError: If the unit is unknown.
    """
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    if unit not in seconds:
        raise ArgumentError(f"plot_time_elapsed: expected `unit` to be one of s, m, h, d, got {unit!r}")
    _plot(filename, 3 if elapsed else 1, seconds[unit], plot_kwargs)


def _plot(path: str | os.PathLike[str], column: int, unit: float, plot_kwargs: dict[str, Any] | None) -> None:
    """Plots a column of a monitor's text file, divided by `unit`, over the iterations."""
    import matplotlib.pyplot as plt

    table = np.loadtxt(path, ndmin=2)
    plt.plot(table[:, 0], table[:, column] / unit, **plot_kwargs or {})
