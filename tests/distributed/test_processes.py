"""Programs of several processes, started as a user starts them. The checks are in `ranks/`."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import kinnor as nn
import kinnor.communicators as C
import kinnor.communicators.functions as CF
import kinnor.communicators.parametric_functions as CPF
import kinnor.functions as F
from kinnor import launch
from kinnor.communicators.pipeline import schedule
from kinnor.files.parameter_file import read_safetensors

pytest.importorskip("mpi4py")

RANKS = Path(__file__).parent / "ranks"
"""The folder with the programs that each process runs."""


def start(n, program, *arguments):
    """Starts a program as `n` processes, possibly more than there are cores. Returns the launcher."""
    command = [sys.executable, "-m", "kinnor.launch", "--oversubscribe", "--threads", "1", "-n", str(n)]
    command += [str(RANKS / program), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(n, program, *arguments, fails=False):
    """Runs a program to its end. Returns its output, or its errors if it must fail."""
    process = start(n, program, *arguments)
    out, error = process.communicate(timeout=120)
    assert (process.returncode != 0) == fails, error
    return error if fails else out


def test_collectives():
    """Three processes reduce, gather and broadcast. Each of them reports that its results are right."""
    assert run(3, "collectives.py").count("right") == 3


def test_parts_of_a_batch_train_like_the_whole_batch():
    assert run(4, "solvers.py").count("right") == 4


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_sharded_solver_equals_a_single_process(tmp_path, n):
    assert run(n, "sharded.py", tmp_path).count("right") == n


@pytest.mark.parametrize("n", [2, 3])
def test_overlapped_sums_equal_sums_after_the_run(n):
    assert run(n, "overlap.py").count("right") == n


def test_a_process_that_skips_a_run_is_an_error_on_the_others():
    process = start(3, "overlap.py", "skip")
    out, error = process.communicate(timeout=60)
    assert process.returncode and out.count("told") == 2, error
    assert "rank 2 is outside of a collective; its last was number" in error


def test_a_failed_run_ends_processes_with_waiting_threads():
    start = time.monotonic()
    assert "ValueError: the last process is broken" in run(2, "overlap.py", "raise", fails=True)
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("n", [1, 2, 4])
def test_sharded_layers_train_as_in_one_process(n):
    assert run(n, "tensor_parallel.py").count("right") == n


@pytest.mark.parametrize("n", [1, 2, 4])
def test_a_pipeline_trains_as_one_process(n):
    """A pipeline over several processes computes the gradients of a single process."""
    assert run(n, "pipeline.py").count("right") == n


def test_a_pipeline_trains_a_network_too_large_for_one_process():
    losses, peak = run(1, "pipeline_memory.py", 0).splitlines()
    parts, peaks = run(4, "pipeline_memory.py", 256).splitlines()
    assert int(peak) > 800 << 20 and max(map(int, peaks.split())) < 256 << 20
    np.testing.assert_allclose([float(x) for x in parts.split()], [float(x) for x in losses.split()], rtol=1e-6)
    run(1, "pipeline_memory.py", 256, fails=True)


@pytest.mark.parametrize("places", [1, 2, 5])
@pytest.mark.parametrize("parts", [1, 3, 8])
def test_the_schedule_of_a_pipeline_runs_each_part_once_and_keeps_few(places, parts):
    """Each process runs each part once, can always go on, and holds few parts at a time."""
    waiting = [list(schedule(place, places, parts)) for place in range(places)]
    assert all(
        sorted(steps) == sorted((w, n) for w in ("forward", "backward") for n in range(parts)) for steps in waiting
    )
    for place, steps in enumerate(waiting):
        kept = np.cumsum([1 if what == "forward" else -1 for what, _ in steps])
        assert kept.max() == min(places - place, parts)
    done = set()
    while any(waiting):  # Run each step whose requirements are met. At least one step can always run.
        ready = [
            place
            for place, steps in enumerate(waiting)
            if steps
            and (
                (steps[0][0] == "forward" and (place == 0 or ("forward", steps[0][1], place - 1) in done))
                or (steps[0][0] == "backward" and (place == places - 1 or ("backward", steps[0][1], place + 1) in done))
            )
        ]
        assert ready
        for place in ready:
            done.add((*waiting[place].pop(0), place))


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("raise", ["ValueError: the second process is broken"]),
        ("kill", ["signal 9"]),
        ("shape", ["rank 0: all_reduce of (2, 3)", "rank 1: all_reduce of (2, 4)"]),
        ("parameters", ["got a (2,) on rank 0 and b (2,) on rank 1 as number 0"]),
        ("order", ["rank 0: all_reduce of (2, 3)", "rank 1: bcast from 0 of (2, 3)"]),
        ("skip", ["rank 0 has waited", "all_reduce", "wrong.py:", "rank 1 is outside of a collective"]),
        (
            "ended",
            ["CommunicatorError: expected all ranks", "rank 1 has ended; its last collective was number 2, bcast"],
        ),
        ("received", ["CommunicatorError: expected a message of rank 1, got none: rank 1 has ended"]),
        ("group", ["CommunicatorError: expected all ranks", "rank 1 has ended"]),
        ("unsaved", ["rank 0 has waited", "save_checkpoint", "wrong.py:", "rank 1 is outside of a collective"]),
    ],
)
def test_an_error_on_one_process_ends_all(what, told):
    start = time.monotonic()
    error = run(2, "wrong.py", what, fails=True)
    assert all(text in error for text in told), error
    assert time.monotonic() - start < 60
    if "Traceback" in error:  # and no note of Open MPI behind it
        assert error.strip().splitlines()[-1].startswith(("ValueError", "kinnor.", "  ", "rank")), error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launcher_ends_all(number):
    process = start(2, "wrong.py", "wait")
    assert [process.stdout.readline() for _ in range(2)] == ["here\n"] * 2
    process.send_signal(number)
    out, _ = process.communicate(timeout=20)  # waits until no process can write any more
    assert process.returncode == 128 + number and not out


def test_a_refused_start_prints_one_line(capsys):
    """The launcher prints one line for each kind of wrong argument."""
    assert launch.main(["-n", "100000", str(RANKS / "wrong.py")]) == 2
    assert launch.main(["-n", "1", "no_such_program.py"]) == 2
    assert launch.main(["-n", "1", "--threads", "0", str(RANKS / "wrong.py")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3 and "--oversubscribe" in lines[0] and "no_such_program.py" in lines[1]
    assert "--threads 0" in lines[2]


def test_a_missing_mpi_raises_with_the_package_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    with pytest.raises(C.CommunicatorError, match=r'init: expected mpi4py .*pip install "kinnor\[mpi\]"'):
        C.MultiProcessDataParallelCommunicator().init()
    assert launch.main(["-n", "1", str(RANKS / "wrong.py")]) == 2
    monkeypatch.setattr(launch, "_mpirun", lambda: None)
    assert launch.main(["-n", "1", str(RANKS / "wrong.py")]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all("kinnor[mpi]" in line for line in lines)
    assert "mpi4py" in lines[0] and "mpirun" in lines[1]


def losses(folder):
    """Returns the last recorded loss of each step."""
    lines = [line.split() for line in (folder / "losses").read_text().splitlines()]
    return dict(line for line in lines if len(line) == 2)


@pytest.mark.parametrize("shards", ["one", "shards"])
def test_a_killed_program_resumes_with_the_same_losses(tmp_path, shards):
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    run(2, "going_on.py", tmp_path / "whole" / "run", 14, shards, "dropout")
    rng = random.Random(shards)
    for _ in range(int(os.environ.get("KINNOR_TEST_KILLS", "1"))):
        process = start(2, "going_on.py", tmp_path / "killed" / "run", 14, shards, "dropout")
        time.sleep(rng.uniform(0.3, 2.5))
        kill_one(process.pid, rng)
        process.communicate(timeout=60)
    run(2, "going_on.py", tmp_path / "killed" / "run", 14, shards, "dropout")
    assert losses(tmp_path / "killed") == losses(tmp_path / "whole")
    kept = [path.name for path in (tmp_path / "killed").iterdir() if not path.name.endswith(".tmp")]
    assert len(kept) == (4 if shards == "shards" else 2), kept


def kill_one(launcher, rng):
    """Kills one of the processes of a launcher."""
    found = subprocess.run(["pgrep", "-f", "mpi4py .*going_on.py"], capture_output=True, text=True, check=False)
    own = [int(pid) for pid in found.stdout.split() if group_of(int(pid), launcher)]
    if own:
        os.kill(rng.choice(own), signal.SIGKILL)


def group_of(pid, launcher):
    """True if a process is a Python program that descends from the launcher."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        while pid > 1 and pid != launcher:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return False
    return pid == launcher and b"prterun" not in command and b"mpirun" not in command


def test_another_number_of_processes_resumes(tmp_path):
    """A checkpoint of some processes is continued by another number of processes."""
    for n, folder in ((1, "alone"), (2, "changed")):
        (tmp_path / folder).mkdir()
        run(n, "going_on.py", tmp_path / folder / "run", 4 if folder == "changed" else 8, "one", "plain")
    run(1, "going_on.py", tmp_path / "changed" / "run", 6, "one", "plain")
    run(4, "going_on.py", tmp_path / "changed" / "run", 8, "one", "plain")
    alone, changed = losses(tmp_path / "alone"), losses(tmp_path / "changed")
    assert alone.keys() == changed.keys()
    for step, loss in alone.items():
        np.testing.assert_allclose(float.fromhex(changed[step]), float.fromhex(loss), rtol=1e-4)


def arrays(path):
    """Returns the arrays of a checkpoint in one file."""
    return {entry.name: entry.values for entry in read_safetensors(path) if entry.name != "about"}


def test_saved_shards_load_in_any_number_of_processes(tmp_path):
    """Two processes save. One resumes from their files, then two resume from its file."""
    said = [run(n, "saving.py", tmp_path, *before).splitlines() for n, before in ((2, ()), (1, ("2",)), (2, ("12",)))]
    assert [lines.count("right") for lines in said] == [2, 1, 2]
    losses = [sorted(line.split() for line in lines if line != "right") for lines in said]
    assert losses[2] == losses[0]
    for (name, *found), (expected_name, *expected) in zip(losses[1], losses[0], strict=True):
        assert name == expected_name
        np.testing.assert_allclose([*map(float.fromhex, found)], [*map(float.fromhex, expected)], rtol=1e-4)
    for name in ("spread", "placed"):
        first = arrays(tmp_path / f"2.{name}.one")
        assert first["parameters/a/affine/W"].shape == (8, 12) and len(first) > 20
        for other in (f"12.{name}.one", f"212.{name}.one"):
            found = arrays(tmp_path / other)
            assert found.keys() == first.keys()
            for key, values in first.items():
                np.testing.assert_array_equal(found[key], values)
        shards = list(tmp_path.glob(f"2.{name}.shards.*-of-2"))
        assert len(shards) == 2 and all(path.stat().st_size > 1000 for path in shards)


# --- One process


def test_one_process_needs_no_mpi():
    """A communicator of one process works without MPI, and must be initialized."""
    comm = C.MultiProcessDataParalellCommunicator(nn.Context())
    with pytest.raises(C.CommunicatorError, match=r"rank: expected a call of init"):
        _ = comm.rank
    comm.init()
    assert (comm.rank, comm.local_rank, comm.size) == (0, 0, 1)
    assert comm.name == "MultiProcessDataParallelCommunicator"
    a, b = nn.NdArray.from_numpy_array(np.ones(3)), nn.NdArray((3,))
    comm.all_reduce([a], division=True)
    comm.all_gather(a, [b])
    assert b.data.tolist() == [1, 1, 1]
    with pytest.raises(C.CommunicatorError, match="different ranks from 0 to 0"):
        comm.new_group(("g", [0, 1]))
    with pytest.raises(C.CommunicatorError, match="expected one of the groups world"):
        comm.bcast(a, 0, group="g")
    with pytest.raises(TypeError, match="NdArray"):
        comm.all_reduce([3])


def test_wrong_arguments_are_refused_with_a_typed_error():
    comm = C.MultiProcessDataParallelCommunicator()
    comm.init()
    x, w, a = nn.Variable((1, 3)), nn.Variable((2,), need_grad=True), nn.NdArray((2,))
    comm.add_context_and_parameters((nn.Context(), {"w": w}))
    wrong = [None, 3, "a", [], object(), [3], w, 0.5]
    for call in (
        comm.new_group,
        lambda given: comm.new_group((given, [0])) if given != "a" else comm.new_group(given),
        lambda given: comm.new_group(("g", given)),
        lambda given: comm.new_group(("g", [given])),
        lambda given: comm.find_group(given if given != "a" else 3),
        comm.add_context_and_parameters,
        lambda given: comm.add_context_and_parameters((given, {})),
        lambda given: comm.add_context_and_parameters((nn.Context(), given)),
        lambda given: comm.add_context_and_parameters((nn.Context(), {"w": given if given is not w else 3})),
        comm.remove_context_parameters,
        lambda given: comm.get_all_reduce_callback(given if given != 3 else 0),
        lambda given: comm.get_all_reduce_callback(group=given),
        lambda given: comm.get_all_reduce_callback(overlap=given),
        lambda given: comm.get_all_reduce_callback(scale_grad=given if given not in (3, 0.5) else "x"),
        lambda given: comm.get_all_reduce_callback(division=given),
        lambda given: comm.all_reduce(given if given != [] else [[]]),
        lambda given: comm.all_reduce(a, division=given),
        lambda given: comm.bcast(a, given),
        lambda given: comm.reduce(a, given),
        lambda given: comm.all_gather(a, given),
        lambda given: comm.all_gather(given, [a]),
        lambda given: comm.reduce_scatter(given, a),
        lambda given: comm.reduce_scatter([a], given),
        lambda given: CF.all_reduce(x, given),
        lambda given: CF.all_gather(x, comm, given),
        lambda given: CF.sync_batch_normalization(x, None, None, x, x, given),
        lambda given: CPF.affine_columns(x, 4, given),
        lambda given: CPF.affine_rows(x, 4, given),
        lambda given: C.ShardedSolver(given, comm),
        lambda given: C.ShardedSolver(nn.solvers.Sgd(), given),
        lambda given: C.ShardedSolver(nn.solvers.Sgd(), comm).set_parameters(given),
        lambda given: C.ShardedSolver(nn.solvers.Sgd(), comm).set_states(given),
        lambda given: C.Pipeline(given, comm, [(4, 2)], 2),
        lambda given: C.Pipeline(F.sum, given, [(4, 2)], 2),
        lambda given: C.Pipeline(F.sum, comm, given, 2),
        lambda given: C.Pipeline(F.sum, comm, [(4, 2)], 2).forward(given),
        lambda given: nn.save_checkpoint("never.checkpoint", communicator=given if given is not None else 3),
        lambda given: nn.load_checkpoint("never.checkpoint", communicator=given if given is not None else 3),
        lambda given: C.MultiProcessDataParallelCommunicator(timeout=given if given not in (3, 0.5) else "x"),
    ):
        for given in wrong:
            with pytest.raises(nn.Error):
                call(given)
    assert comm.list_groups() == {"world": [0]}


def test_arrays_that_nothing_was_written_to_are_zeros():
    comm = C.MultiProcessDataParallelCommunicator()
    comm.init()
    w, unused = nn.Variable((2,), need_grad=True), nn.Variable((3,), need_grad=True)
    w.d, unused.d = 1, 1
    comm.bcast([nn.NdArray((2,)), w.data], 0)
    comm.add_context_and_parameters((nn.Context(), {"unused": unused, "w": w}))
    for overlap in ("none", "blocking", "thread"):
        callback = comm.get_all_reduce_callback(overlap=overlap)
        y = F.sum(w * w)
        for _ in range(3):
            y.forward()
            w.grad.zero(), unused.grad.zero()
            y.backward(communicator_callbacks=callback)
            comm.allreduce()
            assert w.g.tolist() == [2, 2] and unused.g.tolist() == [0, 0, 0]


def test_copies_within_a_process_share_their_gradients():
    comm = C.DataParallelCommunicator()
    comm.init()
    copies = [{"w": nn.Variable((2,), need_grad=True)} for _ in range(2)]
    for n, copy in enumerate(copies):
        copy["w"].g = n + 1
        comm.add_context_and_parameters((nn.Context(device_id=str(n)), copy))
    comm.allreduce(division=True)
    assert [copy["w"].g.tolist() for copy in copies] == [[1.5, 1.5], [1.5, 1.5]]


def test_a_gradient_moved_to_other_memory_is_refused():
    comm = C.MultiProcessDataParallelCommunicator()
    comm.init()
    w = nn.Variable((2,), need_grad=True)
    comm.add_context_and_parameters((nn.Context(), {"w": w}))
    callback = comm.get_all_reduce_callback(overlap="blocking")
    y = F.sum(w * w)
    for _ in range(3):
        w.d = [1, 2]
        y.forward()
        w.grad.zero()
        y.backward(communicator_callbacks=callback)
        assert w.g.tolist() == [2, 4]
    w.grad = nn.NdArray((2,))
    y.forward()
    with pytest.raises(C.CommunicatorError, match="stay where it was put"):
        y.backward(communicator_callbacks=callback)


def test_functions_of_one_process():
    """Collective functions in a single process return their inputs."""
    comm = C.MultiProcessDataParallelCommunicator()
    comm.init()
    x = nn.Variable.from_numpy_array(np.ones((1, 3), np.float32), need_grad=True)
    y = CF.reduce_scatter(CF.broadcast(CF.all_reduce(x, comm), comm), comm) + CF.all_gather(x, comm)[0, 0]
    y.forward()
    x.grad.zero()
    y.backward()
    assert y.d.tolist() == [2, 2, 2] and x.g.tolist() == [[2, 2, 2]]


def test_the_example_trains_the_digits(tmp_path):
    """The example `digits.py` with two processes reaches the expected accuracy."""
    program = Path(__file__).parents[2] / "examples" / "distributed" / "digits.py"
    out = run(2, program, "--epochs", 14, "--output", tmp_path)
    assert float(out.split("test accuracy ")[1].split()[0]) >= 98
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "digits.checkpoint").stat().st_size > 50_000
