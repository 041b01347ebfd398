"""Arrays of another type than the compute type: the next run sees every write, of any kind."""

import numpy as np
import pytest
from writes import RUNS, TYPES, WRITES, check, check_in_turn, combinations

import kinnor as nn
import kinnor.functions as F

ALL = list(combinations())
"""All combinations of an element type, a network, a leaf, a write and a run."""
EACH = 101
"""The test plays one in `EACH` combinations. `make fuzz` plays all."""


def test_every_combination_is_there_once():
    """The list of combinations is complete, and has no duplicates."""
    assert len(set(ALL)) == len(ALL) == 43_938
    assert len([c for c in ALL if c.kind == "float64"]) == 5_556
    assert {(c.kind, c.write, c.run) for c in ALL} >= {
        (kind, write, run)
        for kind in TYPES
        for write in WRITES
        for run in range(len(RUNS))
        if (kind, write) != ("bfloat16", "borrowed")
    }


@pytest.mark.parametrize("kind", TYPES)
def test_the_next_run_sees_every_write(kind):
    """After each kind of write to each array, the next run uses the new values."""
    for combination in [c for c in ALL if c.kind == kind][::EACH]:
        check(combination)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("run", range(len(RUNS)))
def test_a_run_sees_writes_in_turn(kind, run):
    """In a weight that is packed and cached with its array."""
    check_in_turn(kind, "affine", run)


def test_a_numeric_gradient_changes_no_value():
    """Writing values through a view and restoring them leaves the results unchanged."""
    x = nn.Variable.from_numpy_array(np.array([1.0, 2.0, 3.0]), need_grad=True)
    y = F.sum(x * x)
    y.forward()

    def numeric(step=1e-2):
        """Returns the numeric gradient by writes through a view."""
        d = x.d
        found = np.zeros(3)
        for i in range(3):
            old, ends = d[i], []
            for sign in (1, -1):
                d[i] = old + sign * step
                y.forward()
                ends.append(y.item())
            d[i] = old
            found[i] = (ends[0] - ends[1]) / (2 * step)
        return found

    assert np.allclose(numeric(), [2, 4, 6], atol=1e-2)
    y.forward()
    assert y.item() == 14
    x.grad.zero()
    y.backward()
    assert x.g.tolist() == [2, 4, 6]


def test_indices_that_were_changed_through_a_view_are_read_anew():
    w = nn.Variable.from_numpy_array(np.arange(8, dtype=np.float32).reshape(4, 2))
    i = nn.Variable.from_numpy_array(np.array([0, 1], np.int32))
    y = F.embed(i, w)
    view = i.d
    y.forward()
    view[:] = [3, 2]
    del view
    y.forward()
    assert y.d.tolist() == [[6, 7], [4, 5]]
