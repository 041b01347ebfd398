"""After an interrupted run, a graph gives the same bits as a new one."""

import pytest
from interruptions import NETWORKS, interrupted, thrown, thrown_by_users


@pytest.mark.parametrize("name", NETWORKS)
def test_hooks_that_throw_at_every_function(name):
    assert thrown(name) > 20


def test_functions_of_users_that_throw():
    assert thrown_by_users() == 9  # three functions with three methods each


@pytest.mark.parametrize("name", NETWORKS)
def test_interruptions_at_any_moment(name):
    assert interrupted(name, 0, 20) > 0
