"""What NNabla keeps for old programs."""
