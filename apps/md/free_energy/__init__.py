"""Free energies and slow motion: collective variables, their biases, and a coupling parameter."""
