"""Compatibility with other libraries in one process."""

import shutil
import subprocess
import sys

import pytest

TAKER = """
#include <string.h>
__thread char taken[{size}] __attribute__((tls_model("initial-exec")));
void take(void) {{ memset(taken, 1, sizeof taken); }}
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit is of Linux's loader")
def test_import_needs_little_static_thread_local_storage(tmp_path):
    """Linux reserves 1,664 bytes of static thread-local storage for late libraries, and others use some of it."""
    compiler = next(filter(shutil.which, ("cc", "gcc", "clang")))
    (tmp_path / "taker.c").write_text(TAKER.format(size=832))
    library = tmp_path / "taker.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "taker.c"], check=True)
    for late in (False, True):
        load = f"import ctypes\nctypes.CDLL({str(library)!r}).take()\n" + "import kinnor" * late
        done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
