"""The cost model of distributed training: its sums, and simulation of plans of real networks."""

import doctest
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benches import distributed, scale  # noqa: E402

LINK = scale.Link(20e-6, 1e9, 4e9)
"""A link between processes: latency, bytes per second, and bytes summed per second."""


def test_examples_of_the_model():
    """The examples in the docstrings of the cost model are right."""
    assert doctest.testmod(scale).attempted >= 6
    assert doctest.testmod(scale).failed == 0


@pytest.mark.parametrize("ranks", [2, 3, 8, 1024])
@pytest.mark.parametrize("size", [4, 1 << 14, 1 << 26])
def test_a_sum_takes_at_least_the_time_of_its_transfers(ranks, size):
    taken = scale.all_reduce_time(LINK, ranks, size)
    assert taken >= size / LINK.bandwidth and taken > LINK.latency
    assert taken <= 2 * (ranks - 1) * LINK.latency + 2 * size / LINK.bandwidth + size / LINK.sums
    assert scale.all_reduce_time(LINK, 1, size) == 0


@pytest.mark.parametrize("packing", [1, 1 << 10, 1 << 30])
def test_overlap_is_between_its_lower_bound_and_none(packing):
    """An overlapped step takes at least the lower bound, and at most the time without overlap."""
    plan = scale.Plan(1e-3, 4e-3, 5e-4, [(1e-3 * n, 1 << 18) for n in range(1, 5)])
    for ranks in (2, 16, 256):
        none, blocking, thread = (
            scale.step_time(plan, LINK, ranks, overlap, packing) for overlap in ("none", "blocking", "thread")
        )
        assert scale.least_step_time(plan, LINK, ranks, packing) <= thread <= none == blocking
    assert sum(size for _, size in scale.buckets(plan, packing)) == 4 << 18


def test_plans_of_real_networks_are_simulated():
    """`benches.scale` records a network's backward run and simulates more processes."""
    command = [sys.executable, "-m", "benches.scale", "--repeats", "1", "--networks", "mlp 64"]
    done = subprocess.run(
        [*command, "--link", "1e-6", "1e12"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    shares = [[float(x) for x in line.split()[3:]] for line in done.stdout.splitlines()[2:]]
    assert len(shares) == 10 and all(share == sorted(share) for share in ([row[0], *row[2:]] for row in shares))
    plan = scale.record("mlp 64", 1, 2)
    assert sum(size for _, size in plan.gradients) == 4 * (785 * 512 + 513 * 256 + 257 * 10)
    assert all(0 < ready <= plan.backward for ready, _ in plan.gradients)
    times = [ready for ready, _ in plan.gradients]
    assert times == sorted(times)
    refused = subprocess.run([*command[:3], "link"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (
        refused.returncode == 1
        and refused.stderr == "scale: expected at least two processes to measure a link, got one\n"
    )


def test_a_process_of_the_comparison_trains():
    """A process of the bench trains, and reports its times and losses."""
    command = [sys.executable, "-m", "benches.distributed"]
    work = [*command, "--work", "kinnor", "mlp 64", "blocking", "0.01"]
    done = subprocess.run(work, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    told = json.loads(done.stdout)
    assert told["rank"] == 0 and told["step"] > 0 and len(told["losses"]) == distributed.N_LOSSES
    assert told["losses"][0] == pytest.approx(np.log(10), abs=2)
    refused = subprocess.run(
        [*command, "--python", "nowhere"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert refused.returncode == 1 and "`PEERS=torch make peers` installs it" in refused.stderr


def test_ways_to_sum_are_compared():
    """The bench of overlap prints one row with the times of each way to sum gradients."""
    pytest.importorskip("mpi4py")
    command = [sys.executable, "-m", "benches.overlap", "--networks", "mlp 64", "--repeats", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    row = done.stdout.splitlines()[1]
    assert row.startswith("shared memory  mlp 64")
    said = dict(re.findall(r"(\w+) +([0-9.]+)", row.partition("mlp 64")[2]))
    assert said.keys() == {"computed", "sent", "asleep", "worked", "allowed", "none", "blocking", "thread"}
    assert float(said["allowed"]) >= float(said["computed"]) > 0
