"""Training steps beside those of other frameworks: `make peers`, or `python -m benches.peers --help`."""
