"""Growth of time and memory of training steps, and what the first steps cost: `python -m benches.growth`."""
