"""What is measured beside hpckit: C, PyTorch, and any program of the user's."""
