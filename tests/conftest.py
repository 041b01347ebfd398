"""Fixtures of several files."""

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
