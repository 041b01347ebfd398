"""What NNabla calls experimental: layers as classes, graphs rewritten, mixed precision, training loops, drawings."""
