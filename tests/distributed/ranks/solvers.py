"""With every solver, copies on parts of a batch and one network on the whole batch reach the same parameters.

Repeated runs of the copies give the same bits.
"""

import numpy as np
from network import EXAMPLES, Network, distance

import kinnor as nn
import kinnor.solvers as S
from kinnor.communicators import MultiProcessDataParallelCommunicator, ShardedSolver

comm = MultiProcessDataParallelCommunicator()
comm.init()
names = [name for name in S.__all__ if name not in ("Solver", "SolverState")]
"""Names of all solvers."""
assert len(names) == 18, names
for n, name in enumerate(names):
    make = getattr(S, name)
    whole, part = Network(EXAMPLES, f"whole{n}"), Network(EXAMPLES // comm.size, f"part{n}")
    sharded = Network(EXAMPLES // comm.size, f"sharded{n}")
    solver, solver_of_part, solver_of_shards = make(), make(), ShardedSolver(make(), comm)
    for network, its_solver in ((whole, solver), (part, solver_of_part), (sharded, solver_of_shards)):
        its_solver.set_parameters(network.parameters)
    comm.clear_context_parameters()
    comm.add_context_and_parameters((nn.Context(), part.parameters))
    overlap = ("blocking", "thread", "none", "after")[n % 4]
    callback = comm.get_all_reduce_callback(
        packing_size=200, division=True, overlap="none" if overlap == "after" else overlap
    )
    for step in range(4):
        whole.feed(step)
        whole.step(solver)
        for network, its_solver, its_callback in (
            (part, solver_of_part, callback),
            (sharded, solver_of_shards, solver_of_shards.callback),
        ):
            network.feed(step, comm.rank)
            network.step(its_solver, its_callback, network is part and overlap == "after")
    # Solvers divide by square roots, which magnifies the rounding of tiny gradients.
    scale = max(float(np.abs(v.d).max()) for v in whole.parameters.values())
    assert distance(whole, part) < 2e-5 * scale, (name, distance(whole, part))
    assert distance(part, sharded) < 2e-5 * scale, (name, distance(part, sharded))
    digest = "".join(v.d.tobytes().hex() for v in part.parameters.values())
    assert len(set(comm._members("test", "world").exchange(digest))) == 1, name
    if n < 4:  # Repeat with each overlap mode. The bits must not change.
        again, solver_of_again = Network(EXAMPLES // comm.size, f"again{n}"), make()
        solver_of_again.set_parameters(again.parameters)
        comm.clear_context_parameters()
        comm.add_context_and_parameters((nn.Context(), again.parameters))
        callback = comm.get_all_reduce_callback(
            packing_size=200, division=True, overlap="none" if overlap == "after" else overlap
        )
        for step in range(4):
            again.feed(step, comm.rank)
            again.step(solver_of_again, callback, overlap == "after")
        assert "".join(v.d.tobytes().hex() for v in again.parameters.values()) == digest, name
    states = solver_of_shards.get_states()
    for key, state in solver_of_part.get_states().items():
        assert state.t == states[key].t
        for each, v in state.pstate.items():
            np.testing.assert_allclose(states[key].pstate[each].d, v.d, rtol=1e-3, atol=1e-5)
print("right")
