"""Programs with gradients: traced steps, fused kernels, and adjoints through halo exchanges."""

from __future__ import annotations

from hpckit import loaded_on_use

_HOMES = {
    "Ensemble": "hpckit.adjoint.ensemble",
    "TracedModel": "hpckit.adjoint.models",
    "Network": "hpckit.adjoint.networks",
    "Window": "hpckit.adjoint.windows.window",
    "binomial_schedule": "hpckit.adjoint.windows.schedule",
    "check": "hpckit.adjoint.checks",
    "fit_potential": "hpckit.md.bridges.fit",
    "gradient": "hpckit.adjoint.derived",
    "jvp": "hpckit.adjoint.derived",
    "minimize": "hpckit.adjoint.lbfgs",
    "model": "hpckit.adjoint.models",
    "vjp": "hpckit.adjoint.derived",
    "vmap": "hpckit.adjoint.samples",
    **dict.fromkeys(
        ("cos", "exp", "log", "maximum", "minimum", "sin", "sqrt", "tanh", "where"), "hpckit.adjoint.trace"
    ),
}

__all__ = list(_HOMES)
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES)
