"""The build backend: maturin, and the stubs of functions, which only the compiled extension can describe.

A wheel for another kind of machine gets the stubs of the source tree, because its extension cannot be imported here.
Sources made by `make sdist` after `make build` have them.
"""

from __future__ import annotations

import base64
import hashlib
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import maturin
from maturin import (
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

MAKE_STUBS = Path(__file__).resolve().parents[1] / "make-stubs"
WRITTEN_BY_HAND = "kinnor/_core.pyi"
"""The stub that is not made."""
IMPORTED = ["numpy>=1.23"]
"""Packages that the extension imports, while the stubs are made."""

Settings = Mapping[str, Any] | None
Folder = str | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Returns the requirements of maturin and of `make-stubs`."""
    return [*maturin.get_requires_for_build_wheel(config_settings), *IMPORTED]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """Returns the requirements of maturin and of `make-stubs`."""
    return [*maturin.get_requires_for_build_editable(config_settings), *IMPORTED]


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: Folder = None) -> str:
    """Builds a wheel with stubs, and returns its file name."""
    name = maturin.build_wheel(wheel_directory, config_settings, metadata_directory)
    complete(Path(wheel_directory, name))
    return name


def build_editable(wheel_directory: str, config_settings: Settings = None, metadata_directory: Folder = None) -> str:
    """Builds an editable wheel, writes the stubs into the source tree, and returns the wheel's file name."""
    name = maturin.build_editable(wheel_directory, config_settings, metadata_directory)
    subprocess.run([sys.executable, MAKE_STUBS], check=True)
    return name


def complete(wheel: Path) -> None:
    """Puts stubs into a wheel, made with its own extension; if that cannot be imported, the wheel must have stubs."""
    with zipfile.ZipFile(wheel) as archive, tempfile.TemporaryDirectory() as folder:
        archive.extractall(folder)
        run = subprocess.run([sys.executable, MAKE_STUBS, "--package", Path(folder, "kinnor")])
        if run.returncode != 0:
            if "kinnor/functions.pyi" in archive.namelist():
                return
            raise SystemExit(f"{wheel.name}: expected an extension that can be imported, or stubs in the sources")
        stubs = {path.relative_to(folder).as_posix(): path.read_bytes() for path in Path(folder).rglob("*.pyi")}
        del stubs[WRITTEN_BY_HAND]
        entries = [(entry, archive.read(entry)) for entry in archive.infolist() if entry.filename not in stubs]
    compressor = mock.patch.object(zipfile, "_get_compressor", Compressor)
    with compressor, zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, stub in stubs.items():
            archive.writestr(name, stub)
        for entry, content in entries:
            if entry.filename.endswith(".dist-info/RECORD"):
                others = [line for line in content.decode().splitlines() if line.split(",")[0] not in stubs]
                lines = [*others, *(recorded(name, stub) for name, stub in stubs.items())]
                content = "".join(f"{line}\n" for line in lines).encode()
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)


class Compressor:
    """Compresses a file of a wheel, to fewer bytes if the package `deflate` is installed: `make wheel` does that."""

    def __init__(self, *_: object) -> None:
        self.content = bytearray()

    def compress(self, content: bytes) -> bytes:
        """Takes a part of the file. Returns nothing yet."""
        self.content += content
        return b""

    def flush(self) -> bytes:
        """Returns the compressed file."""
        try:
            from deflate import deflate_compress
        except ImportError:
            compressor = zlib.compressobj(wbits=-zlib.MAX_WBITS)
            return compressor.compress(self.content) + compressor.flush()
        return bytes(deflate_compress(bytes(self.content), 12))


def recorded(name: str, content: bytes) -> str:
    """Returns the line for a file in the RECORD of a wheel: its name, hash and size."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}"
