"""What programs take from NNabla's command line program; its commands are those of `kinnor`."""
