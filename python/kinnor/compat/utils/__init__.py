"""What stands around a network, by NNabla's names: data sources and iterators, learning-rate schedules."""
