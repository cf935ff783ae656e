"""Graphs of tasks: each an MPI job, a command or a function; the edges are the files that one makes and another reads.

A task's key is the hash of all that its outputs depend on: its definition, and the contents of its inputs. A task is
done if its key and outputs match the record, whatever became of the driver, so that running a half-done graph again
continues it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from hpckit.errors import InputError, nearest
from hpckit.jobs.site import one_line, read_toml_file, told

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,60}")
_FUNCTION = re.compile(r"(?:(.+\.py)|[A-Za-z_][\w.]*):[A-Za-z_]\w*")
BLOCK_BYTES = 1 << 20


def inner_path(text: str) -> str:
    """Return `text` if it names a file below the graph's folder; else raise `ValueError`."""
    path = PurePosixPath(one_line(text))
    if path.is_absolute() or ".." in path.parts or not path.parts or str(path) != text or text.startswith(".hpckit"):
        raise ValueError(f"{text!r}: give a plain path below the folder of the graph")
    return text


def _function(text: str) -> str:
    found = _FUNCTION.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r}: give file.py:name or module:name")
    if found[1]:
        inner_path(found[1])
    return text


InnerPath = Annotated[str, AfterValidator(inner_path)]
Text = Annotated[str, AfterValidator(one_line)]


class Task(BaseModel):
    """A task of the graph. It works in its own folder, which holds its inputs, and leaves its outputs there.

    One of `run` (words of `hpckit run`; the run directory is an output folder with the task's name), `command` and
    `function` (called with the keyword arguments `inputs`, `outputs` and those of `arguments`) defines its work.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: tuple[Text, ...] = Field((), description='words of hpckit run: ["weather/thermal", "grid.nx=100"]')
    command: tuple[Text, ...] = Field((), description='a program and its arguments: ["python", "analyze.py"]')
    function: Annotated[str, AfterValidator(lambda text: _function(text) if text else text)] = Field(
        "", description="file.py:name or module:name"
    )
    arguments: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the function")
    inputs: tuple[InnerPath, ...] = Field((), description="files it reads; those of other tasks are edges")
    outputs: tuple[InnerPath, ...] = Field((), description="files it makes")
    after: tuple[str, ...] = Field((), description="tasks to wait for without a file")
    ranks: int = Field(
        0, ge=0, description="MPI ranks of a run or command; 0: a run has one, a command is not an MPI job"
    )
    cores: int = Field(0, ge=0, description="cores it keeps busy; 0: one for each rank")
    near: str = Field("", description="run it where and right after this task was run: its files are still in memory")
    retries: int = Field(0, ge=0, le=100, description="times it is tried again after a failure")
    backoff: float = Field(1.0, ge=0, le=3600, description="s before the first new try; twice as long each time")
    timeout: float = Field(0.0, ge=0, description="s after which a try counts as failed; 0: none")
    twice_after: float = Field(
        0.0, ge=0, description="s after which a second copy may be started, if cores are free; 0: never"
    )
    time: Text = Field("01:00:00", description="time limit of its job on Slurm")

    @model_validator(mode="after")
    def _one_kind(self) -> Task:
        if sum(map(bool, (self.run, self.command, self.function))) != 1:
            raise ValueError("give one of run, command and function")
        if self.arguments and not self.function:
            raise ValueError("arguments are for a function")
        if self.ranks and self.function:
            raise ValueError("a function is not an MPI job: make it a command with ranks")
        if len(set(self.outputs)) < len(self.outputs):
            raise ValueError("an output is named twice")
        return self

    @property
    def reads(self) -> tuple[str, ...]:
        """All files that the task reads: its inputs, and the file that its function is in."""
        source = self.function.partition(":")[0]
        return (*self.inputs, source) if source.endswith(".py") and source not in self.inputs else self.inputs

    @property
    def slots(self) -> int:
        """Cores that the task takes."""
        return self.cores or self.ranks or 1


@dataclass(frozen=True)
class TaskGraph:
    """Tasks by name, and the folder that their files are in. Made by `load_graph` or `make_graph`, which check it."""

    name: str
    folder: Path
    tasks: Mapping[str, Task] = field(default_factory=dict)

    @cached_property
    def maker(self) -> dict[str, str]:
        """Output -> the task that makes it."""
        return {path: name for name, task in self.tasks.items() for path in task.outputs}

    @cached_property
    def parents(self) -> dict[str, list[str]]:
        """Task -> the tasks it waits for, each once."""
        found = {}
        for name, task in self.tasks.items():
            makers = [self.maker[path] for path in task.reads if path in self.maker]
            found[name] = list(dict.fromkeys([*makers, *task.after]))
        return found

    @cached_property
    def order(self) -> list[str]:
        """All tasks, each after its parents."""
        done: list[str] = []
        left = dict(self.parents)
        while left:
            ready = [name for name, parents in left.items() if all(parent not in left for parent in parents)]
            if not ready:
                raise InputError(f"the tasks {', '.join(_cycle(left))} wait for each other in a circle")
            for name in ready:
                done.append(name)
                del left[name]
        return done

    def descendants(self, name: str) -> set[str]:
        """All tasks that need `name`, through others too."""
        found: set[str] = set()
        for other in self.order:
            if other != name and found.union({name}) & set(self.parents[other]):
                found.add(other)
        return found

    def key(self, name: str) -> str:
        """The hash of all that the outputs of a task depend on; its inputs must be there.

        Raises `InputError` for a missing input.
        """
        task = self.tasks[name]
        what = task.model_dump(mode="json", include={"run", "command", "function", "arguments", "outputs", "ranks"})
        try:
            inputs = {path: sha256_of(self.folder / path) for path in task.reads}
        except OSError as error:
            raise InputError(
                f"the input {error.filename} of the task {name} cannot be read: {error.strerror}"
            ) from None
        return hashlib.sha256(json.dumps([what, inputs], sort_keys=True).encode()).hexdigest()


def load_graph(path: Path) -> TaskGraph:
    """The graph in the TOML file `path`: a table `[tasks.NAME]` for each task.

    Raises `InputError` that lists every mistake.
    """
    tree = read_toml_file(path, "the graph", "give a TOML file with tables [tasks.NAME]")
    unknown = [key for key in tree if key != "tasks"]
    tables = tree.get("tasks")
    if unknown or not isinstance(tables, dict) or not tables:
        raise InputError(
            f"a graph has tables [tasks.NAME], and nothing else; here {', '.join(unknown) or 'there is none'}",
            where=str(path),
            do="docs/task-graphs.md shows one",
        )
    return make_graph(path.stem, path.absolute().parent, tables)


def make_graph(name: str, folder: Path, tables: Mapping[str, Any]) -> TaskGraph:
    """A checked graph of tasks given as tables (`Task`s or mappings).

    Raises `InputError` that lists every mistake: settings, names, files made twice, unknown parents, circles, inputs
    that do not exist and that no task makes.
    """
    mistakes: list[str] = []
    tasks: dict[str, Task] = {}
    wrong: dict[str, Any] = {}
    for task, table in tables.items():
        if not _NAME.fullmatch(task):
            mistakes.append(f"{task!r} is not a task name: letters, digits, _ and -")
        try:
            tasks[task] = table if isinstance(table, Task) else Task.model_validate(table)
        except ValidationError as error:
            wrong[task] = table
            for entry in error.errors(include_url=False):
                place = ".".join(map(str, (task, *entry["loc"])))
                mistakes.append(f"{place}: {_sentence(entry)}")
    graph = TaskGraph(name, Path(folder).absolute(), tasks)
    mistakes += _contradictions(graph, wrong)
    if mistakes:
        raise InputError("\n".join(mistakes), where=f"the graph {name}")
    _ = graph.order  # raises for a circle
    return graph


def _sentence(entry: Any) -> str:
    """The error in a setting of a task, in the words of TOML."""
    if entry["type"] == "extra_forbidden":
        near = nearest(entry["loc"][-1], Task.model_fields)
        return "unknown key; " + (f"did you mean {near}?" if near else f"known: {', '.join(Task.model_fields)}")
    return "expected a table [tasks.NAME]" if entry["type"] == "model_type" else told(entry)


def _contradictions(graph: TaskGraph, wrong: Mapping[str, Any]) -> Iterable[str]:
    """The contradictions between tasks; of `wrong` tables only names and outputs are used."""
    makers: dict[str, str] = {}
    outputs = [table.get("outputs") for table in wrong.values() if isinstance(table, dict)]
    promised = {str(path) for paths in outputs if isinstance(paths, list) for path in paths}
    for name, task in graph.tasks.items():
        for path in task.outputs:
            if path in makers:
                yield f"{path} is made by {makers[path]} and by {name}"
            makers[path] = name
    for name, task in graph.tasks.items():
        for other in (*task.after, *([task.near] if task.near else [])):
            if other not in graph.tasks and other not in wrong:
                yield f"{name}: there is no task {other!r}"
        if task.near and task.near in graph.tasks and task.near not in graph.parents[name]:
            yield f"{name}: near = {task.near!r} is for a task that it needs a file of"
        for path in task.reads:
            if path not in makers and path not in promised and not (graph.folder / path).exists():
                yield f"{name}: no task makes its input {path}, and it is not there"


def _cycle(left: Mapping[str, list[str]]) -> list[str]:
    """One circle among tasks that all wait for one another."""
    seen: list[str] = []
    name = next(iter(left))
    while name not in seen:
        seen.append(name)
        name = next(parent for parent in left[name] if parent in left)
    return [*seen[seen.index(name) :], name]


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, or of a folder: of the names and contents of all files in it."""
    if path.is_dir():
        files = sorted(entry for entry in path.rglob("*") if entry.is_file())
        parts = [f"{entry.relative_to(path)}\0{sha256_of(entry)}\n" for entry in files]
        return hashlib.sha256("".join(parts).encode()).hexdigest()
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
