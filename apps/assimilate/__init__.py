"""Data assimilation: the state of a model, or its friction, from few and noisy observations."""
