"""Functions of `kinnor.functions`, and methods of core classes, that are written in Python."""
