"""Programs that know their gradient: traced steps, fused kernels, and adjoints through halo exchanges."""

from __future__ import annotations

from hpckit import loaded_on_use

_HOMES = {
    "Model": "hpckit.adjoint.model",
    "check": "hpckit.adjoint.check:check",
    "gradient": "hpckit.adjoint.model",
    "jvp": "hpckit.adjoint.model",
    "model": "hpckit.adjoint.model",
    "vjp": "hpckit.adjoint.model",
    **dict.fromkeys(
        ("cos", "exp", "log", "maximum", "minimum", "sin", "sqrt", "tanh", "where"), "hpckit.adjoint.trace"
    ),
}

__all__ = list(_HOMES)
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES)
