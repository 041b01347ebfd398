"""The Python interface of NNabla's command line program. The program `kinnor` runs its commands."""
