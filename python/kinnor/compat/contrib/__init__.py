"""NNabla's deprecated `contrib` package, for old programs."""
