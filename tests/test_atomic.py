"""Atomic replacement of files."""

import os
import signal
import subprocess
import sys
import time
from stat import S_IMODE

import pytest

import kinnor
from kinnor.files.atomic import replacing


def listing(folder):
    """Returns the sorted names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "p.txt"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text(f"new {1 / 0}")
    assert path.read_text() == "old"
    assert listing(tmp_path) == ["p.txt"]


def test_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "p.txt", tmp_path / "link.txt"
    link.symlink_to(target)
    with replacing(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_temporary_files_of_dead_writers_are_removed(tmp_path):
    path = tmp_path / "p.txt"
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True, check=True
    )
    names = {
        f".p.txt.{int(dead.stdout)}-0.tmp": False,
        f".p.txt.{os.getpid()}-999999.tmp": False,
        f".p.txt.{os.getppid()}-0.tmp": True,
        ".q.txt.1-0.tmp": True,
        ".p.txt.x-0.tmp": True,
    }
    for name in names:
        (tmp_path / name).touch()
    with replacing(path) as first, replacing(path) as second:
        first.write_text("1")
        second.write_text("2")
    assert path.read_text() == "1"
    assert listing(tmp_path) == sorted(["p.txt", *(name for name, stays in names.items() if stays)])


WRITER = """
import sys
from kinnor.files.atomic import replacing
i = 0
while True:
    with replacing(sys.argv[1]) as temporary, open(temporary, "wb") as file:
        for _ in range(64):
            file.write(bytes([i % 256]) * 4096)
            file.flush()
    i += 1
    print(i, flush=True)
"""


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    path = tmp_path / "p.bin"
    for delay in (0.0, 0.003, 0.007):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
        writer.stdout.readline()
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        content = path.read_bytes()
        assert len(content) == 64 * 4096
        assert len(set(content)) == 1
    with replacing(path) as temporary:
        temporary.write_bytes(b"")
    assert listing(tmp_path) == ["p.bin"]


@pytest.mark.parametrize("before", [None, 0o600, 0o664])
def test_replacing_keeps_the_permissions_of_the_file(tmp_path, before):
    plain, path = tmp_path / "plain", tmp_path / "p.safetensors"
    plain.touch()
    if before is not None:
        path.touch()
        path.chmod(before)
    kinnor.save_parameters(path, {"w": kinnor.Variable((2,))})
    mode = plain.stat().st_mode if before is None else before
    assert S_IMODE(path.stat().st_mode) == S_IMODE(mode)
