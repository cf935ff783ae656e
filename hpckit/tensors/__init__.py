"""Tensors on a mesh: a local array, a mesh, and the layout that says which part of the whole it is."""
