"""Overlapped gradient sums give the same result as sums after backward, even if backward runs collectives itself."""

import sys
import time

import numpy as np
import pytest

import kinnor as nn
import kinnor.communicators as C
import kinnor.communicators.functions as CF
import kinnor.functions as F
import kinnor.solvers as S

what = sys.argv[1] if len(sys.argv) > 1 else "right"
"""The fault to cause, or "right" to cause none."""
comm = C.MultiProcessDataParallelCommunicator(timeout=1.0 if what == "skip" else 60.0)
comm.init()


def training(overlap, dtype=None, more=()):
    """Builds a network whose gradient sums overlap the backward run if `overlap`. Returns its parameters and a training
    step.
    """
    rng = np.random.default_rng(5)
    shapes = {"low": (20, 64), "beta": (1, 64), "gamma": (1, 64), "middle": (64, 300), "high": (300, 7)}
    v = {
        name: nn.Variable.from_numpy_array(rng.standard_normal(shape).astype(np.float32) / 8, need_grad=True)
        for name, shape in shapes.items()
    }
    mean, variance = nn.Variable((1, 64)), nn.Variable((1, 64))
    mean.d, variance.d = 0, 1
    x = nn.Variable((6, 20))
    h = CF.sync_batch_normalization(F.affine(x, v["low"]), v["beta"], v["gamma"], mean, variance, comm)
    h = F.tanh(F.affine(F.tanh(h), v["middle"]))
    loss = F.mean(F.affine(h, v["high"]) ** 2.0)
    solver = S.Momentum(0.05)
    solver.set_parameters(v)
    comm.clear_context_parameters()
    comm.add_context_and_parameters((nn.Context(), v))
    callback = comm.get_all_reduce_callback(64, division=True, overlap=overlap, dtype=dtype)

    def step(n):
        """Runs training step number `n` on random values."""
        x.d = np.random.default_rng([n, comm.rank]).standard_normal(x.shape)
        loss.forward()
        solver.zero_grad()
        loss.backward(clear_buffer=True, communicator_callbacks=[callback, *more])
        solver.update()
        return b"".join(each.d.tobytes() for each in v.values())

    return step


if what == "skip":  # The last process never runs backward. The others get an error from the run, then continue alone.
    step = training("thread")
    step(0), step(1)
    if comm.rank < comm.size - 1:
        with pytest.raises(
            C.CommunicatorError, match=r"(?s)in collective number .*overlap\.py:\d+.*outside of a"
        ) as told:
            step(2)
        assert f"rank {comm.size - 1} is outside" in str(told.value)
        with pytest.raises(C.CommunicatorError, match="expected all ranks in it"):
            comm.barrier()
        print("told", flush=True)
    else:
        time.sleep(30)  # the first process to end stops all others
    sys.exit()

if what == "raise":

    class Broken(nn.CommunicatorBackwardCallback):
        """A callback that raises during a run of the last process, while threads of the others wait for it."""

        on = False
        """True to raise in `on_finish_function_backward`."""

        def on_finish_function_backward(self, f):
            """Raises in the last process at the first `Tanh`."""
            if self.on and comm.rank == comm.size - 1 and f.info.type_name == "Tanh":
                raise ValueError("the last process is broken")

    broken = Broken()
    step = training("thread", more=[broken])
    step(0), step(1)
    broken.on = True
    step(2)

for dtype in (None, "bfloat16"):
    after, thread, again = training("none", dtype), training("thread", dtype), training("thread", dtype)
    for n in range(6):
        expected, found = after(n), thread(n)
        assert again(n) == found
        # The sum of two numbers does not depend on the order. Halves are summed in rank order.
        if comm.size == 2 or dtype is not None:
            assert found == expected, (dtype, n)
        np.testing.assert_allclose(*(np.frombuffer(b, np.float32) for b in (found, expected)), rtol=1e-4, atol=1e-6)
    told = comm._members("overlap", "world").exchange(found.hex())
    assert len(set(told)) == 1
print("right")
