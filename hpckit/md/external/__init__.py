"""Forces from outside, and along chosen paths: fields, walls, collective variables, biases, couplings."""
