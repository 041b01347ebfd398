"""After an interrupted run, a graph gives the same bits as a new one."""

import pytest
from interruptions import NETWORKS, interrupted, thrown, thrown_by_users


@pytest.mark.parametrize("name", NETWORKS)
def test_hooks_that_throw_at_every_function(name):
    """A hook throws at one function after the other. Then the graph gives the bits of a new one."""
    assert thrown(name) > 20


def test_functions_of_users_that_throw():
    """Each method of each user's function throws once. Then the graph gives the bits of a new one."""
    assert thrown_by_users() == 9  # three functions with three methods each


@pytest.mark.parametrize("name", NETWORKS)
def test_interruptions_at_any_moment(name):
    """A signal interrupts a run at a random moment. Then the graph gives the bits of a new one."""
    assert interrupted(name, 0, 20) > 0
