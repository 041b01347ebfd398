"""Progress bars of long operations: only on a terminal, and only after half a second."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import textwrap

import pytest

from kinnor.files.progress import SHORT

WORKS = {
    "cache": """
        from kinnor.utils.cache_data_source import DataSourceWithFileCache
        from kinnor.utils.data_source_implements import SimpleDataSource
        DataSourceWithFileCache(SimpleDataSource(lambda i: (sleep(TIME) or i,), 40)).close()
        """,
    "epoch 1": """
        from unittest.mock import MagicMock
        from kinnor.experimental.framework.trainer import Trainer
        worker = MagicMock(**{"load_checkpoint.return_value": 0, "max_epoch.return_value": 1})
        worker.iter_per_epoch.return_value = 40
        worker.update_in_iteration.side_effect = lambda i, e: sleep(TIME)
        Trainer(worker).train()
        """,
    "load parameters": """
        import io
        from kinnor.files import hdf5
        file = io.BytesIO()
        nn.save_parameters(file, {f"w{i}": nn.Variable.from_numpy_array([i]) for i in range(40)}, ".h5")
        own = hdf5.Node.values
        hdf5.Node.values = lambda node: (sleep(TIME), own(node))[1]
        nn.load_parameters(file, extension=".h5")
        """,
    "convert to ONNX": """
        import tempfile, kinnor.functions as F, kinnor.onnx.write.saving as saving
        own = saving.Call
        saving.Call = lambda *args: (sleep(TIME), own(*args))[1]
        y = nn.Variable((2, 3))
        for _ in range(40):
            y = F.relu(y)
        with tempfile.TemporaryDirectory() as folder:
            saving.save(y, folder + "/y.onnx")
        """,
}
"""Programs with a progress bar, by the label of the bar."""


def stderr_of(work, on_terminal, before="progress.SHORT = 0.05"):
    """Returns what a program writes to its standard error."""
    start = "from time import sleep\nimport sys\nimport kinnor as nn\nfrom kinnor.files import progress\nTIME = 0.005\n"
    code = f"{start}{before}\n{textwrap.dedent(work)}"
    command = [sys.executable, "-W", "error", "-c", code]
    if not on_terminal:
        return subprocess.run(command, check=True, capture_output=True, timeout=60).stderr.decode()
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    with subprocess.Popen(command, stderr=theirs) as process:
        os.close(theirs)
        parts = []
        while True:
            try:
                parts.append(os.read(ours, 65536))
            except OSError:  # the other end is closed
                break
        os.close(ours)
    assert process.returncode == 0, b"".join(parts).decode()
    return b"".join(parts).decode()


@pytest.mark.parametrize("name", WORKS)
def test_a_bar_on_a_terminal(name):
    """A long operation shows a bar on a terminal, and removes it at the end."""
    text = stderr_of(WORKS[name], on_terminal=True)
    assert f"{name}: " in text
    assert "/40 [" in text
    assert text.endswith("\r"), "which takes the bar away"


def test_silent_elsewhere():
    """Without a terminal nothing is shown."""
    assert stderr_of("".join(map(textwrap.dedent, WORKS.values())), on_terminal=False) == ""


def test_silent_if_short():
    """Work that ends before `SHORT` seconds shows no bar."""
    assert (
        stderr_of("".join(map(textwrap.dedent, WORKS.values())), on_terminal=True, before="progress.SHORT = 60") == ""
    )
    assert SHORT == 0.5


def test_silent_without_tqdm():
    """Without the package `tqdm`, nothing is shown."""
    assert stderr_of(WORKS["cache"], on_terminal=True, before="progress.SHORT, sys.modules['tqdm'] = 0.05, None") == ""


def test_a_bar_disappears_when_its_work_fails():
    work = """
    from kinnor.files.progress import each
    try:
        for i in each(range(40), "work"):
            sleep(TIME)
            if i == 35:
                raise ValueError
    except ValueError:
        print("failed", file=sys.stderr)
    """
    text = stderr_of(work, on_terminal=True)
    assert "work: " in text
    assert text.endswith("\rfailed\r\n")
