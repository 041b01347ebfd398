"""Graphs rewritten into faster ones that compute the same: constants folded, scales merged, products of integers."""
