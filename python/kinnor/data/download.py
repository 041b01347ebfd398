"""Files from an address, kept on this machine.

Knows addresses and files; knows nothing of what is in them.
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
"""Bytes that are read at once."""

SECONDS = 30
"""That a server may be silent."""


class DownloadError(Error, URLError):
    """A file is neither kept on this machine nor to be had from its address."""

    def __str__(self) -> str:
        return str(self.args[0])


def get_data_home() -> str:
    """The folder that downloaded files are kept in; it is made if it is not there.

    That is `nnabla_data` in the home folder, or what the environment variable `NNABLA_DATA_HOME` says.

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
    """Have a file from an address, unless it is there already.

    The file is written whole or not at all. Without a network, put it where it is expected by hand: the error says
    where.

    Args:
        url: The address: `https:`, `http:`, `ftp:` or `file:`.
        output_file: Where the file goes; by its name into `get_data_home()` by default.
        open_file: Whether to open it for reading bytes.
        allow_overwrite: Whether to read it again if it is there.

    Returns:
        The open file, or None.

    Raises:
        DownloadError: If it cannot be read. It is a `urllib.error.URLError`, hence an `OSError`.
        ArgumentError: If the address names no file.
        OSError: If it cannot be written.

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
        raise ArgumentError(f"download: expected an address of a file, such as https://host/name, got {url!r}")
    target = Path(get_data_home(), name) if output_file is None else Path(output_file)
    if allow_overwrite or not target.exists():
        _fetch(url, target)
    else:
        logger.debug("%s is there already, and not read from %s.", target, url)
    return target.open("rb") if open_file else None


def opened_address(url: str, instead: str = "") -> Any:
    """What is at an address, open for reading.

    Args:
        url: The address.
        instead: What else would do, for the error.

    Raises:
        DownloadError: If it cannot be read.
    """
    from http.client import HTTPException  # With what it brings, too much for an import of data sets.
    from urllib.request import urlopen

    try:
        return urlopen(url, timeout=SECONDS)
    except (OSError, ValueError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        raise DownloadError(f"download: expected a file at {url}{instead}, got: {reason}") from error


def _fetch(url: str, target: Path) -> None:
    answer = opened_address(url, f" (or one that was put at {target} by hand)")
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
    from http.client import HTTPException

    try:
        block: bytes = answer.read(BLOCK)
    except (OSError, HTTPException) as error:
        raise DownloadError(f"download: expected all of {url}, got a part: {error}") from error
    return block
