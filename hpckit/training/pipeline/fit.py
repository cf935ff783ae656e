"""Whether a mesh, a model and a plan fit together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hpckit.errors import InputError

if TYPE_CHECKING:
    from hpckit.comm.mesh import Mesh
    from hpckit.nn.layer import Sequential
    from hpckit.plan.pipeline.training import TrainingPlan


def require_fit(model: Sequential, mesh: Mesh, plan: TrainingPlan) -> None:
    """Raise `InputError` unless the plan was made for this mesh and model."""
    sizes = dict(zip(mesh.topology.names, mesh.topology.sizes, strict=True))
    wanted = plan.mesh | {name: getattr(plan, name) for name in ("cp", "tp") if name in sizes}
    if any(sizes.get(name, 1) != size for name, size in wanted.items()) or set(sizes) - set(wanted):
        shown = " x ".join(f"{name}={size}" for name, size in sizes.items())
        raise InputError(
            f"the mesh is {shown}, and the plan is for {' x '.join(f'{name}={n}' for name, n in wanted.items())}",
            do=f"make it by Mesh(comm, {', '.join(f'{name}={n}' for name, n in wanted.items())})",
        )
    if len(model.layers) != plan.partition.starts[-1]:
        raise InputError(
            f"the model has {len(model.layers)} layers, and the plan is for {plan.partition.starts[-1]}",
            do="give len(model.layers) to training_plan",
        )
    if is_tied(model) != plan.tied:
        said, meant = ("ties", "not") if is_tied(model) else ("does not tie", "")
        raise InputError(
            f"the model {said} its first and last layer, and the plan does {meant}".rstrip(),
            do=f"give tied={is_tied(model)} to training_plan",
        )


def is_tied(model: Sequential) -> bool:
    """Whether the first and the last layer share a weight. Raises `InputError` if other layers share one."""
    users: dict[str, set[int]] = {}
    for number, layer in enumerate(model.layers):
        for parameter in layer.parameters():
            users.setdefault(parameter.name, set()).add(number)
    several = {name: numbers for name, numbers in users.items() if len(numbers) > 1}
    for name, numbers in several.items():
        if numbers != {0, len(model.layers) - 1}:
            raise InputError(
                f"layers {', '.join(map(str, sorted(numbers)))} share {name}",
                do="share a weight between the first and the last layer only, or within one layer",
            )
    return bool(several)
