"""Solver states: in files, in messages and by value; and errors."""

import numpy as np
import pytest
from test_solvers import parameter, solver

import kinnor as nn
from kinnor.solver import SolverState

STATES = {"Sgd": [], "Adam": ["mean", "var"], "Momentum": ["m"], "Adagrad": ["v"], "AMSGRAD": ["m", "v", "v_hat"]}
"""Names of the arrays of each solver's state."""


@pytest.mark.parametrize("name", STATES)
@pytest.mark.parametrize("extension", [".h5", ".safetensors", ".protobuf"])
def test_states_make_a_round_trip_through_files(tmp_path, name, extension):
    if extension == ".h5":
        pytest.importorskip("h5py")
    w = parameter(2, 3)
    s = solver(name, **{"conv/W": w, "b": parameter()})
    s.update()
    s.update()
    states = s.get_states()
    assert list(states["conv/W"].pstate) == STATES[name]
    s.save_states(tmp_path / f"states{extension}")
    fresh = solver(name, **{"b": parameter(), "conv/W": copy_of(w)})
    fresh.load_states(str(tmp_path / f"states{extension}"))
    for key, state in fresh.get_states().items():
        assert state.t == 2
        for array in state.pstate:
            np.testing.assert_array_equal(state.pstate[array].d, states[key].pstate[array].d)
    # Both solvers continue with equal results.
    s.update()
    fresh.update()
    np.testing.assert_array_equal(w.d, fresh.get_parameters()["conv/W"].d)


def copy_of(v):
    """Returns a leaf with copies of values and gradient."""
    return nn.Variable.from_numpy_array(v.d, v.g, need_grad=True)


def test_states_are_set_by_value_and_shown_by_reference():
    s, other = solver(w=parameter(2)), solver(w=parameter(2))
    s.update()
    states = s.get_states()
    other.set_states(states)
    other.update()
    assert states["w"].t == 1
    before = states["w"].pstate["mean"].d.copy()
    assert other.get_states()["w"].t == 2
    s.update()
    assert not np.array_equal(states["w"].pstate["mean"].d, before)


def test_double_states_stay_double(tmp_path):
    """States of float64 parameters are saved and loaded in float64."""
    w = parameter(2, dtype=np.float64)
    s = solver(w=w)
    s.update()
    s.save_states(tmp_path / "states.safetensors")
    fresh = solver(w=copy_of(w))
    fresh.load_states(tmp_path / "states.safetensors")
    mean = fresh.get_states()["w"].pstate["mean"].d
    assert mean.dtype == np.float64
    np.testing.assert_array_equal(mean, s.get_states()["w"].pstate["mean"].d)


class Message:
    """Stands for a message of the protobuf package. `content` holds its bytes."""

    def __init__(self):
        self.content = b""

    def MergeFromString(self, content):
        """Appends serialized bytes, as merging messages does."""
        self.content += content

    def SerializeToString(self):
        """Returns the bytes."""
        return self.content


def test_states_go_through_messages():
    """States are written to a protobuf message and read from it."""
    s, fresh, message = solver(), solver(), Message()
    s.update()
    s.set_states_to_protobuf(message)
    fresh.set_states_from_protobuf(message)
    for name, v in s.get_states()["w"].pstate.items():
        np.testing.assert_array_equal(fresh.get_states()["w"].pstate[name].d, v.d)


def test_states_that_do_not_fit_change_nothing(tmp_path):
    s = solver(w=parameter(2), b=parameter(1))
    s.update()
    good = s.get_states()["w"]
    unknown = {"b": s.get_states()["b"], "v": good}
    with pytest.raises(RuntimeError, match="Set weight parameter for v first"):
        s.set_states(unknown)
    with pytest.raises(nn.ParameterError, match="mean"):
        s.set_states({"w": SolverState({"m": good.pstate["mean"]}, 3)})
    with pytest.raises(nn.ShapeError, match="'mean' of 'b'"):
        s.set_states({"w": SolverState(good.pstate, 9), "b": good})
    assert s.get_states()["w"].t == 1
    with pytest.raises(nn.ParameterError, match=r"\.safetensors"):
        s.save_states(tmp_path / "states.txt")
    with pytest.raises(nn.ParameterError, match=r"\.safetensors"):
        s.load_states(tmp_path / "states.nnp")
    with pytest.raises(FileNotFoundError):
        s.load_states(tmp_path / "none.safetensors")
