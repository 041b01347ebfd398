"""Fixtures of several files."""

import gc
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


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One more than there are cores, as tests of several processes wait for each other half of the time."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_finish(session: pytest.Session) -> None:
    """What was made to collect thousands of tests stays: `gc.collect` in a test need not look at it each time."""
    gc.collect()
    gc.freeze()
