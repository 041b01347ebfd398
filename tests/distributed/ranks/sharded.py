"""Norms, clipping and states of a sharded solver match a single process, for any number of processes."""

import sys
from pathlib import Path

import numpy as np
import pytest

import kinnor as nn
import kinnor.communicators as C
import kinnor.functions as F
import kinnor.solvers as S

folder = Path(sys.argv[1])
"""The folder for states that the processes save."""
comm = C.MultiProcessDataParallelCommunicator(timeout=60)
comm.init()
shapes = {"a": (3, 4), "b": (5,)}  # fewer parameters than processes


def network(make):
    """Returns parameters, their solver and a loss."""
    rng = np.random.default_rng(1)
    v = {name: nn.Variable.from_numpy_array(rng.standard_normal(s).astype(np.float32)) for name, s in shapes.items()}
    for each in v.values():
        each.need_grad = True
    solver = make()
    solver.set_parameters(v)
    return v, solver, F.sum(v["a"] ** 3.0) + F.sum(v["b"] ** 3.0)


def step(solver, loss, max_norm, callback=None):
    """Runs a training step with clipped gradients. Returns their global norm."""
    loss.forward()
    solver.zero_grad()
    loss.backward(communicator_callbacks=callback)
    norm = solver.clip_grad_by_global_norm(max_norm)
    solver.update()
    return norm


v, one, loss = network(S.Adam)
w, spread, spread_loss = network(lambda: C.ShardedSolver(S.Adam(), comm))
for max_norm in (0, 1.0, 1e9, 0.1):
    expected, found = step(one, loss, max_norm), step(spread, spread_loss, max_norm, spread.callback)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    for name in shapes:
        np.testing.assert_allclose(w[name].d, v[name].d, rtol=1e-5, atol=1e-7)
for wrong in (-1.0, float("nan")):
    with pytest.raises(nn.ArgumentError):
        spread.clip_grad_by_global_norm(wrong)

for value, inf, nan in ((0, False, False), (np.inf, True, False), (np.nan, False, True)):
    loss.forward(), spread_loss.forward()
    spread.zero_grad()
    spread_loss.backward(communicator_callbacks=spread.callback)
    if "b" in spread.owned():  # only the owner holds the state
        w["b"].grad.data[1] = value
    found = spread.check_inf_grad(), spread.check_nan_grad(), spread.check_inf_or_nan_grad()
    assert found == (inf, nan, inf or nan), (value, found)
if np.isnan(value):
    norm = spread.clip_grad_by_global_norm(1.0)
    assert not np.isfinite(norm), norm

path = folder / f"states{comm.size}.safetensors"
spread.save_states(path)
one_again = S.Adam()
one_again.set_parameters(v)
one_again.load_states(path)
_, spread_again, _ = network(lambda: C.ShardedSolver(S.Adam(), comm))
spread_again.load_states(path)
for found in (one_again.get_states(), spread_again.get_states()):
    for name, state in one.get_states().items():
        assert found[name].t == state.t == 4
        for each, values in state.pstate.items():
            np.testing.assert_allclose(found[name].pstate[each].d, values.d, rtol=1e-5, atol=1e-7)
with pytest.raises(OSError if comm.rank == 0 else C.CommunicatorError):
    spread.save_states(folder / "missing" / "states.safetensors")
print("right")
