"""hpckit: a rank mesh with named axes carries everything, and every communication on it is a plan.

The names below and eight namespaces are the public face: `hp.plan` (plans as values), `hp.bc` (boundary conditions),
`hp.nn` (layers, losses, optimizers), `hp.io` (files), `hp.tensors` (tensors and transforms on a mesh), `hp.training`
(parallel and decentralized training), `hp.serving` (models that write), `hp.adjoint` (steps that know their gradient).
Names are loaded on first use, so that `import hpckit` starts neither MPI nor a GPU.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping

__version__ = "0.1.0"


def loaded_on_use(module: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a module whose names live elsewhere; homes: name -> module, or `module:name`.

    Raises `AttributeError` for any other, with the namespace that has it or the nearest name.
    """

    def get(name: str) -> object:
        if name not in homes:
            from hpckit.errors import nearest

            spaces = NAMESPACES.items() if module == "hpckit" and not name.startswith("_") else ()
            within = [
                f"hp.{space}.{each}"
                for space, home in spaces
                for each in importlib.import_module(home).__all__
                if each.lower() == name.lower()
            ]
            if within:
                hint = f"it is {' or '.join(within)}"
            elif near := nearest(name, homes):
                hint = f"did you mean {near}?"
            else:
                hint = f"it has {', '.join(sorted(homes))}"
            raise AttributeError(f"module {module!r} has no attribute {name!r}; {hint}")
        home, _, inner = homes[name].partition(":")
        found = importlib.import_module(home)
        value = found if name in NAMESPACES and module == "hpckit" else getattr(found, inner or name)
        setattr(sys.modules[module], name, value)
        return value

    return get, lambda: sorted({*homes, "__version__"} if module == "hpckit" else homes)


NAMESPACES = {
    "adjoint": "hpckit.adjoint",
    "bc": "hpckit.grid.boundary_conditions",
    "io": "hpckit.io",
    "nn": "hpckit.nn",
    "plan": "hpckit.plan",
    "serving": "hpckit.serving",
    "tensors": "hpckit.tensors",
    "training": "hpckit.training",
}
_HOMES = NAMESPACES | {
    "Checkpoints": "hpckit.run.checkpoints",
    "Decomposition": "hpckit.plan.grid.decomposition",
    "FFT": "hpckit.tensors.fourier",
    "Field": "hpckit.grid.field",
    "FieldWriter": "hpckit.io.fields.writer",
    "HaloExchange": "hpckit.grid.exchange",
    "Mesh": "hpckit.comm.mesh",
    "Run": "hpckit.launch.program_run:ProgramRun",
    "Swarm": "hpckit.particles.swarm",
    "System": "hpckit.md.system",
    "Topology": "hpckit.plan.topology",
    "Watch": "hpckit.comm.observe.watch",
    "all_gather": "hpckit.collectives",
    "all_gather_init": "hpckit.collectives",
    "all_reduce": "hpckit.collectives",
    "all_reduce_init": "hpckit.collectives",
    "all_to_all": "hpckit.collectives",
    "all_to_all_init": "hpckit.collectives",
    "broadcast": "hpckit.collectives",
    "broadcast_init": "hpckit.collectives",
    "draw": "hpckit.plan.drawing",
    "empty_shared": "hpckit.comm.shared.symmetric",
    "find_gpu": "hpckit.comm.gpu",
    "fit_potential": "hpckit.md.bridges.fit",
    "gather": "hpckit.collectives",
    "gradient": "hpckit.adjoint.derived",
    "jvp": "hpckit.adjoint.derived",
    "model": "hpckit.adjoint.models",
    "price": "hpckit.plan.pricing",
    "print_root": "hpckit.comm.mesh",
    "prove": "hpckit.plan.proving",
    "reduce": "hpckit.collectives",
    "reduce_scatter": "hpckit.collectives",
    "reduce_scatter_init": "hpckit.collectives",
    "scatter": "hpckit.collectives",
    "vjp": "hpckit.adjoint.derived",
    "vmap": "hpckit.adjoint.samples",
    "world": "hpckit.comm.mesh",
}

__all__ = ["__version__", *_HOMES]
__getattr__, __dir__ = loaded_on_use(__name__, _HOMES)
