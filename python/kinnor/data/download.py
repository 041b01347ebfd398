"""Downloads files and stores them locally.

Knows URLs and files, but no file contents.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any
from urllib.error import URLError
from urllib.parse import unquote, urlsplit

from .._core import ArgumentError, Error
from ..files.atomic import replacing
from ..files.progress import Progress
from ..logger import logger

__all__ = ["DownloadError", "download", "get_data_home", "opened_address"]

BLOCK = 1 << 16
"""Number of bytes to read in one step."""

SECONDS = 30
"""Seconds without data from the server until a download fails."""


class DownloadError(Error, URLError):
    """The file neither exists locally nor can be downloaded."""

    def __str__(self) -> str:
        return str(self.args[0])


def get_data_home() -> str:
    """The folder of downloaded files. It is created if it does not exist.

    It is `nnabla_data` in the home folder, or the value of the environment variable `NNABLA_DATA_HOME`.

    Returns:
        The path of the folder.
    """
    home = os.environ.get("NNABLA_DATA_HOME")
    folder = Path(home).expanduser() if home else Path.home() / "nnabla_data"
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)


def download(
    url: str, output_file: str | os.PathLike[str] | None = None, open_file: bool = True, allow_overwrite: bool = False
) -> IO[bytes] | None:
    """Download a file, unless it exists locally.

    The file is written whole or not at all. Without a network, put the file at the path that the error names.

    Args:
        url: The URL: `https:`, `http:`, `ftp:` or `file:`.
        output_file: Path of the local file; by default its name in `get_data_home()`.
        open_file: Whether to open it for reading bytes.
        allow_overwrite: Whether to download an existing file again.

    Returns:
        The open file, or None.

    Raises:
        DownloadError: If the download fails. It is a `urllib.error.URLError`, hence an `OSError`.
        ArgumentError: If the URL does not name a file.
        OSError: If the file cannot be written.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     source = Path(folder, "a.txt")
        ...     _ = source.write_text("data")
        ...     with download(source.as_uri(), Path(folder, "b.txt")) as file:
        ...         file.read()
        b'data'
    """
    parts = urlsplit(url)
    name = Path(unquote(parts.path)).name
    if not parts.scheme or not name:
        raise ArgumentError(f"download: expected the URL of a file, such as https://host/name, got {url!r}")
    target = Path(get_data_home(), name) if output_file is None else Path(output_file)
    if allow_overwrite or not target.exists():
        _fetch(url, target)
    else:
        logger.debug("%s exists and is not downloaded from %s.", target, url)
    return target.open("rb") if open_file else None


def opened_address(url: str, instead: str = "") -> Any:
    """Open a URL for reading.

    Args:
        url: The URL.
        instead: An alternative for the user, appended to the error text.

    Raises:
        DownloadError: If the URL cannot be read.
    """
    from http.client import HTTPException  # Imported late, because it is slow to import.
    from urllib.request import urlopen

    try:
        return urlopen(url, timeout=SECONDS)
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"download: expected a file at {url}{instead}, got: {reason}") from error


def _fetch(url: str, target: Path) -> None:
    """Download a URL to a local file, whole or not at all."""
    answer = opened_address(url, f" (or put the file at {target} yourself)")
    target.parent.mkdir(parents=True, exist_ok=True)
    with answer, replacing(target) as temporary, temporary.open("wb") as file:
        length = answer.headers.get("Content-Length")
        expected = int(length) if length and length.isdecimal() else None
        n_bytes = 0
        with Progress(expected or 0, target.name) as bar:
            while block := _block(answer, url):
                file.write(block)
                n_bytes += len(block)
                bar.to(n_bytes)
        if expected is not None and n_bytes != expected:
            raise DownloadError(f"download: expected {expected} bytes from {url}, got {n_bytes}")


def _block(answer: Any, url: str) -> bytes:
    """Read the next block of a response."""
    from http.client import HTTPException

    try:
        block: bytes = answer.read(BLOCK)
    except (OSError, HTTPException) as error:
        raise DownloadError(f"download: expected all of {url}, got a part: {error}") from error
    return block
