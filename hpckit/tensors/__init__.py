"""Tensors on a mesh: a local array, a mesh, and the layout that says which part of the whole it is."""

from hpckit import loaded_on_use

_HOMES = {
    "FFT": "hpckit.tensors.fourier",
    "Tensor": "hpckit.tensors.tensor",
}
__all__ = list(_HOMES)
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES)
