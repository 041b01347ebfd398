"""Commands of the program `kinnor` that NNabla's program has: projects, data sets and files of parameters."""
