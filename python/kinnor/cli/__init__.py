"""The commands of the program `kinnor`, one module for each group. `kinnor_cli` lists them.

Each module has a function `add(name, parser)`. It adds the arguments of a command and returns the function
that runs the command on the parsed arguments.
"""
