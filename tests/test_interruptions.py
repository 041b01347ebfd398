"""A run that is broken off leaves a graph that does what a new one does, to the bit."""

import pytest
from interruptions import NETWORKS, interrupted, thrown, thrown_by_users


@pytest.mark.parametrize("name", NETWORKS)
def test_hooks_that_throw_at_every_function(name):
    assert thrown(name) > 20


def test_functions_of_users_that_throw():
    assert thrown_by_users() == 9  # three of them, three methods


@pytest.mark.parametrize("name", NETWORKS)
def test_interruptions_at_any_moment(name):
    assert interrupted(name, 0, 20) > 0
