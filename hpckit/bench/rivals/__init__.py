"""What is measured beside hpckit: C, JAX, PyTorch, and any program of the user's."""
