"""Models of machines, and clocks that run over the steps of a plan."""
