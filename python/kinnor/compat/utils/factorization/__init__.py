"""Decompositions of arrays into factors."""

from ....parametric_functions import cpd

__all__ = ["cpd"]
