"""Data sources, the iterators over them, their cache files, and downloads."""
