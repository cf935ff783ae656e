"""What the box has beside its dynamics: forcing, radiation, mixing, water, tracers."""
