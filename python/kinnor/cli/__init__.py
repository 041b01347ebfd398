"""The commands of the program `kinnor`, each a function of what `argparse` found. `kinnor_cli` lists them.

A module has a function `add(name, parser)`, which adds the arguments of a command and returns the function
that runs it.
"""
