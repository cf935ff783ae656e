"""Kernels of neural networks: matrix products, activations, normalization, loss and optimizers.

What each function computes is said in `reference`; `dispatch` chooses its form by the arrays it is given.
"""
