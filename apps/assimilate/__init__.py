"""Data assimilation: the state of a model from few and noisy observations."""
