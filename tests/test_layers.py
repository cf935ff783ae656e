"""The floors of the architecture: who may import whom, what an import may start, and what gets installed."""

from __future__ import annotations

import ast
import configparser
import functools
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("architecture", ROOT / "docs" / "generate" / "architecture.py")
architecture = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(architecture)
# The page of the architecture has the table of the floors, and its picture is made from the same imports.
FLOOR = {room: floor for floor, rooms in architecture.floors().items() for room in rooms}
MODULES, HOMES = architecture.modules(), architecture.HOMES
edges = functools.cache(architecture.imports)  # read where these tests run, not wherever they are collected
room = architecture.room

# What apps share; an app imports no other app.
SHARED_BY_APPS = {"hpckit.apps.common", "hpckit.apps.atmosphere", "hpckit.apps.exact"}
MOST_ENTRIES = 15  # of a room, beside its `__init__.py`
# Each app has its own of these, and each operation's kernels their `Physics`: one idea, in the form of its room.
OF_EACH_APP = {"Model", "Diagnostics"}
OF_EACH_OPERATION = {"Physics"}
# Libraries of the leaves; other rooms may import what they declare in setup.cfg.
LIBRARIES = {
    "hpckit.plan": {"numpy"},
    "hpckit.apps.exact": {"numpy"},
    "hpckit.kernels": {"numpy", "numba", "llvmlite", "cupy"},
}
# Options on either processor; records on a GPU; vectors, functions of them, tiles, and memory by its address.
COMPILER = {
    f"hpckit.kernels.{name}"
    for name in (
        "compile.addresses",
        "compile.jit",
        "compile.linked",
        "compile.shortcuts",
        "compile.cuda.jit",
        "compile.vectors",
        "compile.intrinsics",
        "compile.lanes",
        "compile.compress",
        "compile.streams",
        "compile.strips",
        "compile.elementary",
        "compile.functions",
        "particles.cuda_records",
        "nn.tile.tile",
        "nn.tile.turn",
    )
} | {"hpckit.comm.shared.compiled.atomics"}


def app(module):
    """The app that a module is part of, None for other modules and for what apps share."""
    parts = module.split(".")
    name = ".".join(parts[:3])
    return name if parts[:2] == ["hpckit", "apps"] and len(parts) > 2 and name not in SHARED_BY_APPS else None


@functools.cache
def imported(path):
    """The modules that a file names in its imports; read once for all tests."""
    names = []
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names.append(node.module)
            if node.module in ("hpckit", "hpckit.kernels", "hpckit.apps"):
                names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def statements(block):
    """All statements below a node, without the expressions in them, which are most of a tree."""
    for part in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(block, part, ()):
            yield each
            yield from statements(each)


def circles(graph):
    """The strongly connected groups of more than one node, by Tarjan (1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in graph.get(node, ()):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    for node in list(graph):
        if node not in index:
            visit(node)
    return found


def test_rooms_are_folders_on_a_floor():
    files = {path.name for path in (ROOT / "hpckit").glob("*.py")}
    assert files == {"__init__.py", "errors.py"}
    folders = {path.name for path in (ROOT / "hpckit").iterdir() if (path / "__init__.py").exists()}
    assert folders | {"errors", "kernels", "apps"} <= set(FLOOR)


def test_rooms_are_small():
    rooms = [path.parent for home in HOMES.values() for path in home.glob("**/*/__init__.py")]
    sizes = {
        str(room.relative_to(ROOT)): sum(
            (path.is_dir() and (path / "__init__.py").exists()) or (path.is_file() and path.suffix == ".py")
            for path in room.iterdir()
            if path.name != "__init__.py"
        )
        for room in rooms
    }
    assert not {room: size for room, size in sizes.items() if size > MOST_ENTRIES}


def homes_of_classes(texts):
    """Class -> the modules that define it; settings are left out, which bear the names of keys in a file."""
    defined = [
        (module, node)
        for module, text in texts.items()
        if "class " in text
        for node in statements(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    ]
    settings, bases = {"Section", "_Table"}, {}
    for _, node in defined:
        bases.setdefault(node.name, set()).update(ast.unparse(base).rpartition(".")[2] for base in node.bases)
    while more := {name for name, above in bases.items() if above & settings} - settings:
        settings |= more
    homes = {}
    for module, node in defined:
        if not {ast.unparse(base).rpartition(".")[2] for base in node.bases} & settings:
            homes.setdefault(node.name, []).append(module)
    return homes


def test_no_class_name_stands_for_two_things():
    texts = {module: path.read_text(encoding="utf-8") for module, path in MODULES.items()}
    twice = {}
    for name, modules in homes_of_classes(texts).items():
        others = [
            module
            for module in modules
            if not (name in OF_EACH_APP and app(module))
            and not (name in OF_EACH_OPERATION and module.startswith("hpckit.kernels."))
        ]
        if len(others) > 1:
            twice[name] = others
    assert not twice, "rename them to the nouns of their fields"


def test_a_class_name_that_stands_for_two_things_is_seen():
    texts = {
        "a": "class Step: pass\nclass Time(Section): pass",
        "b": "class Outer:\n    class Step: pass\nclass Time(io.Section): pass\nclass Late(Time): pass",
        "c": "class Late: pass",
    }
    assert homes_of_classes(texts) == {"Step": ["a", "b"], "Outer": ["b"], "Late": ["c"]}


def test_nothing_imports_upwards():
    wrong = [
        f"{module} imports {name}"
        for module, names in edges().items()
        for name in names
        if room(module) and room(name) and FLOOR[room(module)] < FLOOR[room(name)]
    ]
    assert not wrong


def test_files_do_not_import_each_other_in_a_circle():
    assert not circles(edges())


def test_rooms_do_not_import_each_other_in_a_circle():
    rooms = {}
    for module, names in edges().items():
        rooms.setdefault(room(module), set()).update(room(name) for name in names if room(name))
    assert not circles({name: others - {name} for name, others in rooms.items() if name})


def test_only_the_front_end_reads_environment_variables():
    """Settings come from there; an app or a library that read them would not say so in its arguments."""
    passes_on = {"hpckit.jobs.graph.pool"}  # gives its own to the process that it starts
    wrong = {
        module
        for module, path in MODULES.items()
        if room(module) and FLOOR[room(module)] < FLOOR["settings"]
        for text in [path.read_text(encoding="utf-8")]
        if re.search("environ|getenv", text)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute | ast.Name)
        and (node.attr if isinstance(node, ast.Attribute) else node.id) in ("environ", "getenv")
    }
    assert wrong == passes_on


def test_apps_do_not_import_each_other():
    wrong = [
        f"{module} imports {name}"
        for module, names in edges().items()
        for name in names
        if app(module) and app(name) and app(module) != app(name)
    ]
    assert not wrong


def test_leaves_need_few_libraries():
    wrong = []
    for module, path in MODULES.items():
        for leaf, libraries in LIBRARIES.items():
            if module == leaf or module.startswith(leaf + "."):
                known = libraries | set(sys.stdlib_module_names) | {"hpckit"}
                wrong += [f"{module} imports {name}" for name in imported(path) if name.split(".")[0] not in known]
    assert not wrong


def calls_of_mpi(text):
    """The lines of a program that take a method of a communicator, a request or a window of MPI."""
    from mpi4py import MPI

    kinds = (MPI.Intracomm, MPI.Intercomm, MPI.Prequest, MPI.Message, MPI.Win, MPI.File)
    local = ("Abort", "Get_", "Is_", "Set_")  # it ends the job; they ask and set what is here
    named = {name for kind in kinds for name in dir(kind) if name[0].isupper() and not name.startswith(local)}
    pickled = {name.lower() for name in named} & set(dir(MPI.Intracomm))
    if not re.search(rf"\.\s*({'|'.join(named | pickled)})\b", text):
        return  # most files: without any of the words
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    modules = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    } - {"MPI"}
    for node in nodes:
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            plainly = node.attr in named and owner not in modules
            if plainly or (
                node.attr in pickled and owner.rpartition(".")[2].strip("_") in ("comm", "line", "node", "world")
            ):
                yield node.lineno


def test_only_executors_call_mpi():
    allowed = architecture.callers_of_mpi()
    wrong, used = [], set()
    for module, path in MODULES.items():
        name = module.removeprefix("hpckit.").replace(".", "/")
        home = next((each for each in allowed if name == each or name.startswith(each + "/")), None)
        lines = list(calls_of_mpi(path.read_text(encoding="utf-8")))
        if lines and home is None and not name.startswith("bench"):
            wrong += [f"{path.relative_to(ROOT)}:{line}" for line in lines]
        used |= {home} if lines else set()
    assert not wrong
    assert allowed <= used, "the table names files that do not call MPI"


def test_a_call_of_mpi_is_seen():
    text = "from a import moving\nmesh.comm.Bcast(x)\nMPI.Request.Waitall(r)\nstart = line.Isend\nmesh['x'].Barrier()\n"
    assert sorted(calls_of_mpi(text)) == [2, 3, 4, 5]
    assert list(
        calls_of_mpi("self.comm.bcast(x)\nmesh.comm.rank\nmoving.recv(x)\nimport moving\nmoving.Gather(x)")
    ) == [1]


def test_a_circle_and_an_arrow_up_are_seen():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]
    assert not circles({"a": {"b", "c"}, "b": {"c"}})


BY_OTHER_NAMES = re.compile(r"^[ \t]*(?:from|import(?:.*,)?)[ \t]+(?:kernels|apps)\b", re.MULTILINE)


def test_kernels_and_apps_are_imported_by_their_installed_names():
    # Folders of tools (.hypothesis and others) come and go while other tests run.
    folders = [each for each in ROOT.iterdir() if each.is_dir() and each.name[0] != "." and each.name != "build"]
    for folder in folders:
        for path in folder.rglob("*.py"):
            if not BY_OTHER_NAMES.search(path.read_text(encoding="utf-8")):
                continue  # to parse all files takes 7 s
            assert not {name.split(".")[0] for name in imported(path) if name} & {"kernels", "apps"}, path


@pytest.mark.parametrize("module", ["hpckit", "hpckit.kernels", "hpckit.plan.proving", "hpckit.kernels.stencil"])
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
    for module, path in MODULES.items():
        compiled = module.startswith(("hpckit.kernels", "hpckit.comm.shared.compiled"))
        if compiled and module not in COMPILER:
            assert not {name for name in imported(path) if name.startswith(("numba", "llvmlite"))}, path


def test_every_public_name_is_there():
    import hpckit

    assert len(set(hpckit.__all__) - {*hpckit.NAMESPACES, "__version__"}) <= 38
    names = {name for name, home in hpckit._HOMES.items() if home.rpartition(".")[2] == name} - set(hpckit.NAMESPACES)
    assert not names, "a name is a module and a function: `from hpckit.plan import prove`"
    spaces = [hpckit, *(getattr(hpckit, name) for name in hpckit.NAMESPACES)]
    for space in spaces:
        for name in getattr(space, "__all__", ()):
            assert getattr(space, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Meshh'; did you mean Mesh"):
        _ = hpckit.Meshh
    with pytest.raises(AttributeError, match=r"no attribute 'minimize'; it is hp\.adjoint\.minimize"):
        _ = hpckit.minimize
    with pytest.raises(AttributeError, match=r"it is hp\.adjoint\.Ensemble"):
        _ = hpckit.ensemble
