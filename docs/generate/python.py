"""The reference of the Python interface, made from signatures and docstrings of what is imported."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from operator import attrgetter
from types import ModuleType

from pieces import linked, table

import hpckit

# Page -> (title, modules in this order; a package with a star stands for its public modules).
PAGES = {
    "plans": ("Plans", [
        "hpckit.plan.*", "hpckit.plan.collective.plan", "hpckit.plan.grid.halo", "hpckit.plan.pipeline.schedule",
    ]),
    "grids": ("Grids, exchange, particles on a mesh", [
        "hpckit.comm.mesh", "hpckit.grid.field", "hpckit.grid.exchange",
        "hpckit.grid.boundary_conditions", "hpckit.comm.device", "hpckit.comm.gpu",
        "hpckit.comm.shared.symmetric", "hpckit.comm.shared.calls",
        "hpckit.particles.particles", "hpckit.particles.migration",
        "hpckit.particles.ghosts", "hpckit.comm.observe.timer",
    ]),
    "tensors": ("Tensors on a mesh", ["hpckit.tensors.*"]),
    "collectives": ("Collectives", [
        "hpckit.collectives.operations.reductions", "hpckit.collectives.operations.movements", "hpckit.collectives.*",
    ]),
    "kernels": ("Kernels", [
        "hpckit.kernels.compile.jit", "hpckit.kernels.compile.vectors", "hpckit.kernels.*.dispatch",
    ]),
    "adjoint": ("Models that know their gradient", ["hpckit.adjoint.*"]),
    "layers": ("Layers and optimizers", ["hpckit.nn.*"]),
    "training": ("Training on a mesh", ["hpckit.training.*"]),
    "molecular-dynamics": ("Molecular dynamics", ["hpckit.md.*"]),
    "observables": ("Observables", ["hpckit.md.observables.*"]),
    "files": ("Files", [
        "hpckit.io.fields.writer", "hpckit.io.fields.reader", "hpckit.io.safetensors", "hpckit.io.particles.*",
    ]),
    "soundings": ("Soundings", ["hpckit.apps.atmosphere.sounding", "hpckit.apps.atmosphere.parcel"]),
    "exact": ("Exact solutions", ["hpckit.apps.exact.*"]),
    "runs": ("Runs, checkpoints, reports", [
        "hpckit.run.context", "hpckit.launch.program_run", "hpckit.io.checkpoint.state",
        "hpckit.apps.common.validation",
        "hpckit.comm.observe.watch", "hpckit.comm.observe.watched_comm",
        "hpckit.report.extension", "hpckit.report.run_data", "hpckit.errors",
    ]),
    "jobs": ("Jobs and task graphs", ["hpckit.jobs.site", "hpckit.jobs.script", "hpckit.jobs.graph.graph",
                                      "hpckit.jobs.graph.driver"]),
}  # fmt: skip

GROUPS = {
    "Meshes, fields, halo exchange": (
        "world Mesh Topology Decomposition Field HaloExchange print_root find_gpu empty_shared"
    ),
    "Tensors": "FFT tensors.Tensor",
    "Boundary conditions": "bc.fixed bc.zero_gradient bc.mirror bc.antisymmetric",
    "Particles": "Swarm System",
    "Plans: make, prove, price, draw": "prove price draw " + " ".join(f"plan.{name}" for name in hpckit.plan.__all__),
    "Collectives": "all_reduce reduce reduce_scatter all_gather gather broadcast scatter all_to_all "
    + "all_reduce_init reduce_scatter_init all_gather_init broadcast_init all_to_all_init",
    "Gradients": "model gradient vjp jvp vmap fit_potential "
    + " ".join(f"adjoint.{name}" for name in hpckit.adjoint.__all__ if name not in hpckit.__all__),
    "Training": " ".join(f"training.{name}" for name in hpckit.training.__all__),
    "Files and checkpoints": "Run FieldWriter Checkpoints " + " ".join(f"io.{name}" for name in hpckit.io.__all__),
    "Watching": "Watch",
}

HEAD = """# Python

`import hpckit as hp` provides the names of this page; it starts neither MPI nor a GPU. Each area has a page of its own,
by module: `hp.nn` is on [layers and optimizers](layers.md), `hp.io` on [files](files.md).

"""


def index() -> str:
    """The names of `hpckit`, in groups; those that no group names come last."""
    text = HEAD + table(("area", "modules"), ((f"[{title}]({page}.md)", ", ".join(
        f"`{name}`" for name in names)) for page, (title, names) in PAGES.items())) + "\n"  # fmt: skip
    grouped = {name for names in GROUPS.values() for name in names.split()}
    rest = [name for name in hpckit.__all__ if name not in {*grouped, *hpckit.NAMESPACES, "__version__"}]
    groups = {**GROUPS, "Others": " ".join(rest)} if rest else GROUPS
    for title, names in groups.items():
        text += f"\n## {title}\n"
        for name in names.split():
            text += _entry(f"hp.{name}", attrgetter(name)(hpckit), 3, up="../../")
    return text


def page(name: str) -> str:
    """One area: its modules, with their public functions and classes."""
    title, patterns = PAGES[name]
    text = f"# {title}\n"
    for module in (module for pattern in patterns for module in _modules(pattern)):
        members = list(_members(module))
        if not members:
            continue
        text += f"\n## {module.__name__}\n\n{_prose(inspect.getdoc(module) or '', '../../')}\n"
        for member, value in members:
            text += _entry(member, value, 3, up="../../")
    return text


def _modules(pattern: str) -> Iterator[ModuleType]:
    """The modules that a pattern of `PAGES` stands for: `a.*` the modules of a, `a.*.b` those called b below a."""
    package, star, last = pattern.partition(".*")
    if not star:
        yield importlib.import_module(package)
        return
    folder = importlib.import_module(package)
    if last:
        found = (info.name for info in pkgutil.walk_packages(folder.__path__, f"{package}."))
        yield from (importlib.import_module(name) for name in sorted(found) if name.endswith(last))
    else:
        found = (info.name for info in pkgutil.iter_modules(folder.__path__, f"{package}.") if not info.ispkg)
        yield from (importlib.import_module(name) for name in sorted(found))


def _members(module: ModuleType) -> Iterator[tuple[str, object]]:
    """Public functions and classes that this module defines and documents."""
    for name, value in vars(module).items():
        made_here = getattr(value, "__module__", None) == module.__name__ and not name.startswith("_")
        if made_here and (inspect.isclass(value) or inspect.isfunction(value)) and inspect.getdoc(value):
            yield name, value


def _entry(name: str, value: object, level: int, up: str) -> str:
    """Signature and docstring; of a class also its public methods and properties."""
    if not (inspect.isclass(value) or callable(value)):
        return f"\n{'#' * level} `{name}`\n\n{_prose(_doc(value), up)}\n"
    text = f"\n{'#' * level} `{name}`\n\n```python\n{name}{_signature(value)}\n```\n\n{_prose(_doc(value), up)}\n"
    if inspect.isclass(value):
        for member, inner in vars(value).items():
            text += _method(member, inner, up)
    return text


def _method(name: str, value: object, up: str) -> str:
    """A method or property, as one item below its class."""
    inner = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
    if name.startswith("_") and name not in ("__call__", "__getitem__"):
        return ""
    doc = inspect.getdoc(inner)
    if isinstance(inner, property) and doc:
        signature = name
    elif inspect.isfunction(inner) and doc:
        signature = f"{name}{_signature(inner, bound=not isinstance(value, staticmethod))}"
    else:
        return ""
    body = "\n".join(f"    {line}" if line else "" for line in _prose(doc, up).splitlines())
    return f"\n`{' '.join(signature.split())}`\n:   {body.lstrip()}\n"


def _signature(value: object, bound: bool = False) -> str:
    """The parameters in parentheses, a line each where they are many; `bound` leaves the first one out."""
    try:
        signature = inspect.signature(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "(…)"
    parameters = list(signature.parameters.values())[1 if bound else 0 :]
    signature = signature.replace(parameters=parameters)
    text = re.sub(r"<(?:function|class|object)? ?'?([\w.]+)[^>]*>", r"\1", str(signature)).replace("'", "")
    text = re.sub(r"\b(?:npt|np|typing|collections\.abc|hpckit(?:\.\w+)+)\.", "", text)
    if len(text) <= 90 or bound:
        return text
    return str(_broken(text))


def _broken(text: str) -> str:
    """A long signature with a parameter a line: cut at the commas that stand in no brackets but the outer ones."""
    depth, start, parts = 0, 1, []
    end = len(text)
    for place, sign in enumerate(text):
        depth += (sign in "([{") - (sign in ")]}")
        if depth == 0:
            end = place
            break
        if sign == "," and depth == 1:
            parts.append(text[start:place].strip())
            start = place + 1
    parts.append(text[start:end].strip())
    return "(\n" + "".join(f"    {part},\n" for part in parts) + text[end:]


def _doc(value: object) -> str:
    """The docstring; not the one that a dataclass makes of its fields."""
    doc = inspect.getdoc(value) or ""
    return "" if doc.startswith(f"{getattr(value, '__name__', '?')}(") else doc


def _prose(doc: str, up: str) -> str:
    """A docstring as Markdown: signs that Markdown would take for marks are escaped outside of code."""
    parts = re.split(r"(`[^`]*`)", doc)
    parts[::2] = [re.sub(r"([*<\[\]])", r"\\\1", part).replace("\\<", "&lt;") for part in parts[::2]]
    return linked("".join(parts), up)
