"""Decompositions of arrays into factors."""

from . import cpd

__all__ = ["cpd"]
