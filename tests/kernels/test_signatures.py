"""Every operation has the same functions with the same parameters in all its forms."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from types import ModuleType

import pytest

KERNELS = Path(__file__).parents[2] / "kernels"
FORMS = ("reference", "simd", "cuda")
OPERATIONS = sorted(
    ".".join(path.parent.relative_to(KERNELS).parts)
    for path in KERNELS.rglob("reference.py")
    if "shared_memory" not in path.parts
)


def functions(module: ModuleType) -> dict[str, list[str]]:
    """The public functions that a module defines, with their parameters."""
    plain = {name: getattr(value, "py_func", value) for name, value in vars(module).items() if name[0] != "_"}
    return {
        name: list(inspect.signature(value).parameters)
        for name, value in plain.items()
        if inspect.isfunction(value) and value.__module__ == module.__name__
    }


def differences(operation: str) -> list[str]:
    """What is told apart by its parameters, between forms that have it."""
    found: dict[str, dict[str, list[str]]] = {}
    for form in FORMS:
        if Path(KERNELS, *operation.split("."), f"{form}.py").exists():
            for name, parameters in functions(importlib.import_module(f"hpckit.kernels.{operation}.{form}")).items():
                found.setdefault(name, {})[form] = parameters
    return [f"{name}: {forms}" for name, forms in found.items() if len(set(map(tuple, forms.values()))) > 1]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_all_forms_have_the_same_signatures(operation):
    assert not differences(operation)
