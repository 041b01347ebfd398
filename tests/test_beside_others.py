"""Beside other libraries in one process."""

import shutil
import subprocess
import sys

import pytest

TAKER = """
#include <string.h>
__thread char taken[{size}] __attribute__((tls_model("initial-exec")));
void take(void) {{ memset(taken, 1, sizeof taken); }}
"""


def loading(libraries, then=""):
    """A process that loads libraries, one after the other."""
    program = "import ctypes\n" + "".join(f"ctypes.CDLL({str(path)!r}).take()\n" for path in libraries) + then
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.skipif(sys.platform != "linux", reason="the room is that of Linux's loader")
def test_import_needs_no_room_for_thread_locals_that_others_have_taken(tmp_path):
    """What each thread has from its start is scarce: libraries that were loaded before may have taken it all."""
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang")))
    taken = []
    for size in (1024, 256, 64):
        source = tmp_path / f"{size}.c"
        source.write_text(TAKER.format(size=size))
        fits = True
        while fits and len(taken) < 40:
            library = tmp_path / f"{len(taken)}.so"
            subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
            fits = loading([*taken, library]).returncode == 0
            taken += [library] * fits
    assert 0 < len(taken) < 40
    done = loading(taken, "import kinnor")
    assert done.returncode == 0, done.stderr
