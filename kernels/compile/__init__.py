"""The compiler's options, and what kernels are made of: vectors, numbers with a slope, blocks of GPU threads."""
