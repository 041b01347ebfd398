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


@pytest.mark.skipif(sys.platform != "linux", reason="the room is that of Linux's loader")
def test_import_needs_little_of_the_room_that_libraries_share_for_thread_locals(tmp_path):
    """Linux's loader has 1,664 bytes in each thread for libraries that come late, of which others have taken some."""
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang")))
    (tmp_path / "taker.c").write_text(TAKER.format(size=832))
    library = tmp_path / "taker.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "taker.c"], check=True)
    for late in (False, True):
        load = f"import ctypes\nctypes.CDLL({str(library)!r}).take()\n" + "import kinnor" * late
        done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
