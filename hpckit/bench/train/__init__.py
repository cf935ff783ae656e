"""Training steps against PyTorch's, on one core and on 2 ranks."""
