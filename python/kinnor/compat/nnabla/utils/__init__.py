"""Modules of `nnabla.utils` that only NNabla's programs use."""
