"""Training without an all-reduce at every step: averages with neighbors, local SGD, parameter servers."""
