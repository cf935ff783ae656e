"""Figures of a GPU against the bandwidth of a copy, and against PyTorch."""
