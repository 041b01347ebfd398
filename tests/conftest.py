"""Fixtures and pytest hooks for all tests."""

import gc
import os

import pytest

import kinnor as nn


@pytest.fixture(params=["static", "dynamic"])
def mode(request):
    """Runs the test in both modes: static graphs and eager execution. Returns the name of the mode."""
    with nn.auto_forward(request.param == "dynamic"):
        yield request.param


@pytest.fixture(autouse=True)
def no_parameters():
    """Clears all parameters before and after each test."""
    nn.clear_parameters()
    yield
    nn.clear_parameters()


@pytest.fixture
def convolution_settings():
    """Restores threads and convolution algorithm after the test."""
    before = nn.get_num_threads()
    yield
    nn.set_num_threads(before)
    nn.set_conv_algorithm("auto")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Runs one worker more than there are cores, since tests of several processes often wait for each other."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_finish(session: pytest.Session) -> None:
    """Freezes the objects made by test collection, so that `gc.collect` in a test skips them."""
    gc.collect()
    gc.freeze()
