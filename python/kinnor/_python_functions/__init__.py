"""Functions and methods of the core that are written in Python."""
