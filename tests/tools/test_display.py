"""The display of objects in a terminal and in a notebook."""

import copy
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import kinnor as nn
import kinnor.functions as F
import kinnor.parametric_functions as PF
import kinnor.solvers as S


@pytest.fixture
def network():
    """Returns the loss of a small network."""
    x = nn.Variable.from_numpy_array(np.ones((2, 3), np.float32))
    with nn.parameter_scope("first"):
        y = PF.batch_normalization(PF.affine(x, 4))
    return F.mean(F.relu(y))


def test_parameters_are_a_table_without_values(network):
    """`str` of parameters lists name, shape, type and size of each."""
    lines = str(nn.get_parameters(grad_only=False)).splitlines()
    assert lines[0].split() == ["name", "shape", "type", "gradient", "size"]
    assert lines[1].split() == ["first/affine/W", "(3,", "4)", "float32", "yes", "12"]
    assert lines[5].split()[0::4] == ["first/bn/mean", "no"]
    assert lines[-1] == "6 parameters, 32 elements, 128 bytes"
    assert repr(nn.get_parameters()) == str(nn.get_parameters())
    assert "Variable" not in str(nn.get_parameters())


def test_parameters_are_still_a_dict(network):
    """The table of parameters behaves as an OrderedDict."""
    found = nn.get_parameters()
    assert isinstance(found, OrderedDict) and found == dict(found)
    assert type(copy.copy(found)) is type(found) and list(found.copy()) == list(found)
    assert list(pickle.loads(pickle.dumps(found))) == list(found)
    found.pop("first/affine/W")
    found["other"] = 3
    assert str(found).splitlines()[-2].split() == ["other", "int"]
    assert "first/affine/W" in nn.get_parameters()
    nn.clear_parameters()
    assert str(nn.get_parameters()) == "0 parameters, 0 elements, 0 bytes"


def test_everything_is_a_table_in_a_notebook(network):
    network.forward()
    solver = S.Adam()
    solver.set_parameters(nn.get_parameters())
    shown = {
        "Variable": network,
        "NdArray": network.data,
        "Mean(axes=(0, 1)": network.parent,
        "Adam(": solver,
        "4 parameters": nn.get_parameters(),
    }
    for text, each in shown.items():
        html = each._repr_html_()
        assert text in html and html.startswith("<table") and html.count("<tr>") == html.count("</tr>") > 1
        assert each._repr_mimebundle_(include=None, exclude=None) == {"text/plain": repr(each), "text/html": html}
    assert "first/affine/W" in solver._repr_html_() and "0.2" not in nn.get_parameters()._repr_html_()


def test_names_from_users_are_escaped_in_html():
    x = nn.Variable((2, 3))
    x.name = "<script>"
    assert "<script>" not in x._repr_html_() and "&lt;script&gt;" in x._repr_html_()
    with nn.parameter_scope("<b>"):
        PF.affine(x, 2)
    assert "<b>" not in nn.get_parameters()._repr_html_()


def test_parameters_of_modules_and_models_look_the_same():
    class Network(nn.Module):
        """A module with one layer."""

        def call(self, x):
            """Returns the output of the module."""
            return PF.affine(x, 2)

    network = Network()
    network(nn.Variable((1, 3)))
    assert str(network.get_parameters()).endswith("2 parameters, 8 elements, 32 bytes")
