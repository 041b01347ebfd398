"""Environment settings, and unsupported interpreters."""

import os
import subprocess
import sys

import pytest

from kinnor import system

IMPORT = "import kinnor as nn; print(nn.get_num_threads(), nn.config.plan)"
"""A program that prints settings read from the environment."""


def run(program, **variables):
    """Runs a program with environment variables. Returns its status, its output and the last line of its errors."""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | variables, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip().splitlines()[-1:]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("KINNOR_MEMORY_LIMIT", "abc", "a number of bytes, such as 1073741824, 1024M or 1G"),
        ("KINNOR_MEMORY_LIMIT", "-1", "a number of bytes, such as 1073741824, 1024M or 1G"),
        ("KINNOR_ISA", "sse", "portable, neon, avx2 or avx512"),
        ("KINNOR_PLAN", "bogus", "plain, optimised or print"),
        ("KINNOR_NUM_THREADS", "0", "a number from 1 to 1024"),
        ("KINNOR_NUM_THREADS", "two", "a number from 1 to 1024"),
    ],
)
def test_a_wrong_value_is_refused(name, value, expected):
    code, _, last = run(IMPORT, **{name: value})
    assert code == 1
    assert last == [f'ImportError: environment: expected {name} to be {expected}, got "{value}"']


def test_accepted_values():
    """Environment variables of Kinnor are accepted with spaces around, and may be empty."""
    given = {"KINNOR_NUM_THREADS": " 3 ", "KINNOR_PLAN": "plain", "KINNOR_ISA": "portable", "KINNOR_MEMORY_LIMIT": ""}
    assert run(IMPORT, **given) == (0, "3 plain", [])


def test_plans_are_printed_when_they_are_made_and_fused():
    program = """
import kinnor as nn
import kinnor.functions as F
x = nn.Variable((4, 600), need_grad=True)
y = F.sum(F.tanh(F.sin(x)))
for _ in range(4):
    y.forward(clear_no_need_grad=True)
    y.backward(clear_buffer=True)
print(nn.config.plan)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"KINNOR_PLAN": "print"}, capture_output=True, text=True
    )
    assert done.stdout == "optimised\n"
    forward, backward, forward_again, backward_again = blocks(done.stderr)
    assert forward[:2] == ["forward: 3 functions", "  run      1 Sin (4, 600) -> (4, 600)"]
    assert backward[:2] == ["backward: 3 functions", "  run      1 Sum () -> (4, 600)"]
    assert backward[3] == "  run      2 Tanh (4, 600) -> (4, 600)"
    assert forward_again[1] == "  pass     1-2, or one by one:"
    assert backward_again[3] == "  pass     2-3, or one by one:"


def test_callbacks_keep_fusion_and_see_each_function():
    program = """
import numpy as np
import kinnor as nn
import kinnor.functions as F

class Callback(nn.CommunicatorBackwardCallback):
    def on_finish_function_backward(self, f):
        seen.append(f.name)

def trained(callbacks):
    x = nn.Variable.from_numpy_array(np.linspace(-1, 1, 2400).reshape(4, 600), need_grad=True)
    y = F.sum(F.tanh(F.sin(x)))
    for _ in range(4):
        y.forward(clear_no_need_grad=True)
        x.grad.zero()
        y.backward(clear_buffer=True, communicator_callbacks=callbacks)
    return x.g.tobytes()

seen = []
assert trained([Callback()]) == trained([])
print(seen)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"KINNOR_PLAN": "print"}, capture_output=True, text=True
    )
    assert done.stdout == f"{['Sum', 'Tanh', 'Sin'] * 4}\n"
    joined = [block for block in blocks(done.stderr) if any("pass" in line for line in block)]
    assert [block[0] for block in joined] == ["forward: 3 functions", "backward: 3 functions"] * 2


def blocks(text):
    """Returns the lines of each printed plan."""
    found = []
    for line in text.splitlines():
        if not line.startswith(" "):
            found.append([])
        found[-1].append(line)
    return found


def test_a_memory_limit_with_a_unit():
    """`KINNOR_MEMORY_LIMIT` accepts a unit, and larger allocations fail."""
    program = """
import kinnor as nn, numpy as np
try:
    nn.NdArray(3 << 20).data
except MemoryError as e:
    print(e)
nn.NdArray(1 << 20).data
"""
    assert run(program, KINNOR_MEMORY_LIMIT="8M") == (0, "cannot allocate 12582912 bytes", [])


def test_a_second_interpreter_is_refused():
    """Importing the package in a second interpreter of the process raises an error."""
    program = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import kinnor
second = interpreters.create()
interpreters.run_string(second, "try: import kinnor._core\\nexcept Exception as e: print(repr(e), flush=True)")
interpreters.destroy(second)
"""
    code, out, last = run(program)
    assert (code, last) == (0, [])
    assert out.startswith("ImportError('kinnor: expected to be imported once in a process, in one interpreter")


@pytest.mark.parametrize(
    "way",
    [
        "y.forward(function_post_hook=lambda f: None)",
        "y.backward(function_pre_hook=lambda f: None)",
    ],
)
def test_a_thread_that_is_in_a_hook_when_the_interpreter_ends(way):
    """The interpreter ends while a daemon thread runs graphs with hooks."""
    program = f"""
import threading, time
import numpy as np
import kinnor as nn, kinnor.functions as F

x = nn.Variable.from_numpy_array(np.ones((100, 100), np.float32), need_grad=True)
y = F.sum(F.exp(x))
y.forward()

def run():
    while True:
        {way}

threading.Thread(target=run, daemon=True).start()
time.sleep(0.05)
print("ends")
"""
    for _ in range(3):
        assert run(program) == (0, "ends", [])


def test_open_files_are_written_at_exit(tmp_path):
    """Files that are still open when the interpreter ends are complete."""
    program = """
import kinnor, sys

class Last:
    def __del__(self, write=sys.stdout.write):
        write("gone")

last = Last()
file = open(sys.argv[1], "w")
file.write("kept")
"""
    path = tmp_path / "left.txt"
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True)
    assert (done.returncode, done.stdout, path.read_text()) == (0, "gone", "kept")


def test_a_second_interpreter_may_stay_open_until_exit():
    program = """
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import kinnor
second = interpreters.create()
interpreters.run_string(second, "try: import kinnor._core\\nexcept ImportError: pass")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_processor_without_avx2_gets_a_warning(monkeypatch, capsys):
    assert "AVX2" in system.slowness("x86_64", {"processor": "sse4.2 avx"})
    assert system.slowness("AMD64", {"processor": "avx avx2 fma"}) is None
    assert system.slowness("arm64", {"processor": "neon"}) is None
    monkeypatch.setattr(system, "slowness", lambda *_: "slow")
    system.say_slowness()
    assert capsys.readouterr().err == "slow\n"


def test_older_instruction_sets_can_be_selected():
    """`KINNOR_ISA=portable` selects code without vector instructions."""
    code, said, error = run("import kinnor; kinnor.show_config()", KINNOR_ISA="portable")
    assert code == 0 and error == []
    assert "instructions  portable" in said
    assert "bfloat16      float32" in said
