"""The floors of the architecture: who may import whom, what an import may start, and what gets installed."""

from __future__ import annotations

import ast
import configparser
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HOMES = {"hpckit": ROOT / "hpckit", "hpckit.kernels": ROOT / "kernels", "hpckit.apps": ROOT / "apps"}

# Room -> rooms it may import besides itself. The front end (cli, bench) may import everything.
ALLOWED = {
    "hpckit.plan": {"hpckit.errors"},
    "hpckit.kernels": set(),
    "hpckit.core": {"hpckit.plan", "hpckit.kernels"},
    "hpckit.apps.atmosphere": {"hpckit.core", "hpckit.plan", "hpckit.kernels"},
    "hpckit.collectives": {"hpckit.core", "hpckit.plan", "hpckit.kernels"},
    "hpckit.md": {"hpckit.core", "hpckit.plan", "hpckit.kernels", "hpckit.io"},
    "hpckit.io": {"hpckit.core", "hpckit.plan", "hpckit.kernels"},
    "hpckit.report": {"hpckit.core", "hpckit.plan", "hpckit.kernels", "hpckit.io"},
    "hpckit.apps.exact": set(),
    "hpckit.training": {"hpckit.core", "hpckit.plan", "hpckit.kernels", "hpckit.collectives", "hpckit.nn"},
    "hpckit.jobs": {"hpckit.core"},
    "hpckit.nn": {"hpckit.kernels"},
    "hpckit.md.observables": {"hpckit.core", "hpckit.plan", "hpckit.kernels"},
    "hpckit.apps": {
        "hpckit.core",
        "hpckit.plan",
        "hpckit.kernels",
        "hpckit.io",
        "hpckit.report",
        "hpckit.apps.atmosphere",
        "hpckit.collectives",
        "hpckit.md",
        "hpckit.apps.exact",
        "hpckit.nn",
        "hpckit.md.observables",
        "hpckit.training",
    },
}
# Libraries of the leaves; other rooms may import what they declare in setup.cfg.
LIBRARIES = {
    "hpckit.plan": {"numpy"},
    "hpckit.apps.exact": {"numpy"},
    "hpckit.kernels": {"numpy", "numba", "llvmlite", "cupy"},
}
# Options on either processor; records on a GPU; vectors, numbers with a slope, and memory by its address.
COMPILER = {
    f"hpckit.kernels.{name}"
    for name in (
        "compile.jit",
        "compile.cuda_jit",
        "compile.vectors",
        "compile.lanes",
        "compile.strips",
        "compile.elementary",
        "compile.dual",
        "compile.vector_form",
        "particles.cuda_records",
        "atomics",
    )
}
FRONT_END = {"hpckit.cli", "hpckit.bench"}


def modules():
    for package, folder in HOMES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield ".".join((package, *(part for part in parts if part != "__init__"))), path


def room(module):
    """The room of a module: a package below hpckit, an app of its own, or the core (hpckit/*.py)."""
    parts = module.split(".")
    if parts[:2] == ["hpckit", "apps"]:
        return ".".join(parts[:3])
    if (len(parts) > 1 and (ROOT / "hpckit" / parts[1]).is_dir()) or parts[:2] == ["hpckit", "kernels"]:
        return ".".join(parts[:2])
    return "hpckit.errors" if module == "hpckit.errors" else "hpckit.core"


def imported(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module
            if node.module in ("hpckit", "hpckit.kernels", "hpckit.apps"):
                yield from (f"{node.module}.{alias.name}" for alias in node.names)


MODULES = list(modules())


def test_nothing_imports_upwards():
    wrong = []
    for module, path in MODULES:
        own = room(module)
        if own in FRONT_END or module == "hpckit":
            continue
        floor = "hpckit.apps" if own.startswith("hpckit.apps") else own
        allowed = ALLOWED[floor if floor != "hpckit.errors" else "hpckit.plan"] | {own, "hpckit.errors", "hpckit.apps"}
        for name in imported(path):
            if name.split(".")[0] == "hpckit" and name not in ("hpckit", "hpckit.kernels", "hpckit.apps"):
                if room(name) not in allowed:
                    wrong.append(f"{module} imports {name}")
            elif floor in LIBRARIES and name.split(".")[0] not in LIBRARIES[floor] | set(sys.stdlib_module_names) | {
                "hpckit"
            }:
                wrong.append(f"{module} imports {name}")
    assert not wrong


def test_kernels_and_apps_are_imported_by_their_installed_names():
    # Folders of tools (.hypothesis and others) come and go while other tests run.
    folders = [each for each in ROOT.iterdir() if each.is_dir() and each.name[0] != "." and each.name != "build"]
    for folder in folders:
        for path in folder.rglob("*.py"):
            assert not {name.split(".")[0] for name in imported(path) if name} & {"kernels", "apps"}, path


@pytest.mark.parametrize("module", ["hpckit", "hpckit.kernels", "hpckit.plan.prove", "hpckit.kernels.stencil"])
def test_importing_starts_neither_mpi_nor_a_gpu(module):
    code = (
        f"import sys, {module}; print(sorted({{'mpi4py.MPI', 'cupy', 'numba.cuda', 'matplotlib'}} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_folder_is_installed():
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg", encoding="utf-8")
    listed = set(config["options"]["packages"].split())
    on_disk = {
        ".".join((package, *path.parent.relative_to(folder).parts))
        for package, folder in HOMES.items()
        for path in folder.rglob("__init__.py")
    }
    assert listed == on_disk


def test_only_jit_touches_the_compiler():
    for module, path in MODULES:
        if module.startswith("hpckit.kernels") and module not in COMPILER:
            assert not {name for name in imported(path) if name.startswith(("numba", "llvmlite"))}, path


def test_every_public_name_is_there():
    import hpckit

    for name in hpckit.__all__:
        assert getattr(hpckit, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Meshh'"):
        _ = hpckit.Meshh
