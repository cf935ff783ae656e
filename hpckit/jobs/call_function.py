"""Calls the function of a task: `python -m hpckit.jobs.call_function SPEC`, in the folder of the attempt."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from hpckit.jobs.graph.graph import Task


def spec(task: Task) -> str:
    """The input of `call`, as JSON."""
    return json.dumps(
        {"function": task.function, "inputs": task.inputs, "outputs": task.outputs, "arguments": task.arguments}
    )


def call(text: str, folder: Path) -> None:
    """Import and call the function with the keyword arguments `inputs` and `outputs` (lists of paths) and the task's.

    Raises what the function raises; `AttributeError` or `ImportError` if there is no such function.
    """
    what = json.loads(text)
    source, _, name = what["function"].rpartition(":")
    function = getattr(_module(source, folder), name)
    function(
        inputs=[folder / path for path in what["inputs"]],
        outputs=[folder / path for path in what["outputs"]],
        **what["arguments"],
    )


def _module(source: str, folder: Path) -> Any:
    if not source.endswith(".py"):
        return importlib.import_module(source)
    path = folder / source
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


if __name__ == "__main__":
    call(sys.argv[1], Path.cwd())
