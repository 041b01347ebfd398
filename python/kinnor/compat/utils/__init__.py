"""Data sources and iterators, learning-rate schedules, files and other tools, under NNabla's names."""
