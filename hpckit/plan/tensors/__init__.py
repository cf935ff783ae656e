"""Layouts of tensors on a mesh, and the plans that change them."""
