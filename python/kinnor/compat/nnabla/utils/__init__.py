"""What NNabla keeps under `nnabla.utils` and Kinnor does not have."""
