"""Layers, losses and optimizers on flat vectors of parameters: no MPI, no mesh, nothing hidden between microbatches."""
