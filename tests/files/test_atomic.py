"""Atomic replacement of files."""

import os
import signal
import subprocess
import sys
import time
from stat import S_IMODE

import pytest

import kinnor
from kinnor.files.atomic import replacing, replacing_folder


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
    """Replacing a symbolic link writes to its target."""
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


SAME_ID = """
import os, sys
os.getpid = lambda: 1  # as in a container of its own
import numpy as np
import kinnor as nn
from kinnor.files.atomic import replacing, replacing_folder
number, folder = int(sys.argv[1]), sys.argv[2]
w = nn.Variable.from_numpy_array(np.full(3000, number, np.float32))
for i in range(60):
    nn.save_parameters(folder + "/p.safetensors", {"w": w})
    with replacing(folder + "/p.txt") as temporary, open(temporary, "w") as file:
        for _ in range(20):
            file.write(str(number) * 50)
            file.flush()
    found = open(folder + "/p.txt").read()
    assert len(found) == 1000 and len(set(found)) == 1, found[:100]
    nn.load_parameters(folder + "/p.safetensors")
    assert len(set(nn.get_parameters(grad_only=False)["w"].d)) == 1
"""


def test_writers_with_equal_process_ids(tmp_path):
    """Writers with the same process id, as in containers, do not disturb each other."""
    writers = [subprocess.Popen([sys.executable, "-c", SAME_ID, str(i), str(tmp_path)]) for i in range(3)]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert listing(tmp_path) == ["p.safetensors", "p.txt"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_writer_with_our_id_writes_stays(kind, tmp_path):
    """The temporary file of a live writer with our process id is not removed."""
    program = f"""
import os, sys
os.getpid = lambda: {os.getpid()}
from kinnor.files.atomic import replacing, replacing_folder
with {"replacing" if kind == "file" else "replacing_folder"}({str(tmp_path / "p")!r}) as temporary:
    print(temporary.name, flush=True)
    sys.stdin.read()
    (temporary / "x" if {kind == "folder"} else temporary).write_text("theirs")
"""
    writer = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, close_fds=True
    )
    name = writer.stdout.readline().strip()
    if kind == "file":
        with replacing(tmp_path / "p") as temporary:
            temporary.write_text("ours")
    else:
        with replacing_folder(tmp_path / "p") as temporary:
            (temporary / "x").write_text("ours")
    assert listing(tmp_path) == sorted([name, "p"])
    writer.communicate("")
    assert writer.returncode == 0
    assert listing(tmp_path) == ["p"]
    assert (tmp_path / "p" / ("x" if kind == "folder" else "")).read_text() == "theirs"


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_writer_left_goes(kind, tmp_path):
    """The next write removes the temporary file of a killed writer."""
    made = replacing if kind == "file" else replacing_folder
    program = f"""
import os, signal
from kinnor.files.atomic import {made.__name__}
with {made.__name__}({str(tmp_path / "p")!r}) as temporary:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", program], check=False)
    assert len(listing(tmp_path)) == 1
    with made(tmp_path / "p"):
        assert len(listing(tmp_path)) == 1
    assert listing(tmp_path) == ["p"]
