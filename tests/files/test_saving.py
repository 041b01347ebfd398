"""Interrupted saves, by a full disk or a kill: either the old file or the new one exists, and no others.

`python tests/files/test_saving.py [--count N]` kills N writers of all formats, and fills the disk at N positions of
each.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import kinnor as nn
import kinnor.solvers as S
from kinnor.files import parameter_file, solver_file
from kinnor.files.solver_file import State

KINDS = [
    f"{what}{extension}" for what in ("parameters", "states") for extension in (".safetensors", ".h5", ".protobuf")
]
"""File names of all kinds of files: contents and format."""


def save(path, value, n=4):
    """Writes a file with `n` arrays of 10,000 elements equal to `value`."""
    arrays = {f"a{i}": np.full(10_000, value, np.float32) for i in range(n)}
    if path.name.startswith("states"):
        solver_file.save(path, {name: State(value, {"mean": array}) for name, array in arrays.items()})
    else:
        parameter_file.save(path, [parameter_file.Entry(name, array, True) for name, array in arrays.items()])


def load(path, n=4):
    """Returns the value of all elements of a file that `save` wrote."""
    if path.name.startswith("states"):
        arrays = [state.arrays["mean"] for state in solver_file.load(path).values()]
    else:
        arrays = [entry.values for entry in parameter_file.load(path)]
    values = {float(value) for array in arrays for value in np.unique(array)}
    assert (len(arrays), len(values)) == (n, 1), (len(arrays), values)
    return values.pop()


def listing(folder):
    """Returns the sorted names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


# --- Full disks

FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_saving import KINDS, listing, load, save

folder, n_limits = Path(sys.argv[2]), int(sys.argv[3])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for kind in KINDS:
    path = folder / kind
    save(path, 1)
    size = path.stat().st_size
    limits = [0, 1, 8, 100, 600, 1000, 2048, 4096, *range(5000, size, -(-size // n_limits)), size - 1]
    for limit in limits:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
        try:
            save(path, 2)
            print(kind, "was written in spite of the limit", limit)
        except OSError as error:
            if error.errno != 27:
                print(kind, limit, repr(error))
        except Exception as error:
            print(kind, limit, repr(error))
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        if load(path) != 1 or listing(folder) != [kind]:
            print(kind, limit, load(path), listing(folder))
    save(path, 3)
    if load(path) != 3:
        print(kind, "cannot be written any more")
    path.unlink()
print("end")
"""


def fill_the_disk(folder, n_limits):
    """Saves under `n_limits` limits of file size. The old file must stay, and saving must work again afterwards."""
    arguments = [sys.executable, "-c", FULL, Path(__file__).parent, folder, str(n_limits)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


def test_a_full_disk_is_an_oserror_and_keeps_the_old_file(tmp_path):
    fill_the_disk(tmp_path, 12)


# --- Kills


def write_on(path, value, told):
    """Saves increasing values for ever. Writes each value to the pipe `told` once its file is complete."""
    while True:
        value += 1
        save(path, value)
        os.write(told, b"%d\n" % value)


def kill(path, value, rng, n_saves):
    """Forks a writer, kills it within its first saves and checks the files. Returns the value in the file."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # from Python 3.12; the writer takes no locks of other threads
        writer = os.fork()
    if writer == 0:
        with contextlib.suppress(BaseException):
            write_on(path, value, write)
        os._exit(1)
    os.close(write)
    with os.fdopen(read) as told:
        told.readline()
        start = time.monotonic()
        told.readline()
        time.sleep(rng.random() * (time.monotonic() - start) * n_saves)
        os.kill(writer, signal.SIGKILL)
        done = int((told.read().split() or [value + 2])[-1])
    assert os.waitpid(writer, 0)[1] == signal.SIGKILL
    found = load(path)
    assert found in (done, done + 1), f"{path.name}: expected {done} or the next, got {found}"
    return int(found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_save_leaves_a_whole_file_and_no_temporary_ones(tmp_path, kind):
    path, rng, value = tmp_path / kind, random.Random(kind), 0
    for _ in range(3):
        value = kill(path, value, rng, 3)
    save(path, value)
    assert listing(tmp_path) == [kind]


# --- Names


@pytest.mark.parametrize("extension", [".safetensors", ".h5", ".protobuf"])
@pytest.mark.parametrize("length", [200, 201, 245, 255])
@pytest.mark.parametrize("letter", ["n", "ü"])
def test_names_of_maximum_length(tmp_path, extension, length, letter):
    """Files whose names have the maximum length are saved and replaced."""
    stem = letter * ((length - len(extension)) // len(letter.encode()))
    path = tmp_path / f"{stem}{extension}"
    save(path, 1)
    save(path, 2)
    assert load(path) == 2
    solver = S.Adam()
    solver.set_parameters({"w": nn.Variable((2,), need_grad=True)})
    solver.save_states(path)
    solver.load_states(path)
    assert listing(tmp_path) == [path.name]


def test_temporary_files_of_a_long_name_are_removed(tmp_path):
    path = tmp_path / f"{'n' * 240}.protobuf"
    rng = random.Random(0)
    kill(path, 0, rng, 2)
    save(path, 9)
    assert (load(path), listing(tmp_path)) == (9, [path.name])


def main():
    """Kills many writers, and fills many disks."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng, in_a_save = random.Random(given.seed), 0
    values = dict.fromkeys(KINDS, 0)
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as fresh:
        paths = {kind: Path(folder, kind, kind) for kind in KINDS}
        for path in paths.values():
            path.parent.mkdir()
        for i in range(given.count):
            kind = KINDS[i % len(KINDS)]
            values[kind] = kill(paths[kind], values[kind], rng, 6)
            in_a_save += len(listing(paths[kind].parent)) > 1
        for kind, path in paths.items():
            save(path, 1)
            assert listing(path.parent) == [kind], listing(path.parent)
        fill_the_disk(fresh, given.count)
    print(f"{given.count} full disks for each of {len(KINDS)} kinds of file: the old file stays, nothing beside it")
    print(f"{given.count} kills, {in_a_save} of them in a save: each file whole, nothing left beside them")


if __name__ == "__main__":
    main()
