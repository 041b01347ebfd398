"""Fixtures of several files."""

import os

import pytest

import kinnor as nn


@pytest.fixture(params=["static", "dynamic"])
def mode(request):
    """Every test holds for graphs that are run later and for those that are run at once."""
    with nn.auto_forward(request.param == "dynamic"):
        yield request.param


@pytest.fixture(autouse=True)
def no_parameters():
    """A test begins without parameters, and leaves none."""
    nn.clear_parameters()
    yield
    nn.clear_parameters()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores, as tests of several processes wait for each other half of the time."""
    return (os.cpu_count() or 1) + 1
