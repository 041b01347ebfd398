"""NNabla's experimental modules: layers as classes, graph rewriting, mixed precision, training loops, drawing."""
