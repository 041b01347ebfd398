"""Training steps compared with other frameworks: `make peers`, or `python -m benches.peers --help`."""
