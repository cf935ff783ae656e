"""A graph as jobs of Slurm: one for each task, or for a chain of tasks that read what the one before wrote, with
`--dependency`.

The jobs need no driver: each checks, runs and records its own task. A restarted driver finds waiting and running jobs
by their name and comment.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection
from pathlib import Path

from hpckit.jobs import slurm
from hpckit.jobs.graph.graph import TaskGraph
from hpckit.jobs.graph.state import GraphState, read_json, write_json
from hpckit.jobs.script import Job, job_script, seconds
from hpckit.jobs.site import Site

Say = Callable[[str], None]
MOST_SECONDS = 4 * 3600  # of a job of tasks that nobody asked to share one: longer jobs wait longer, or are refused


def chains(
    graph: TaskGraph, tasks: list[str], home_of: Callable[[str], str] = lambda name: "", held: Collection[str] = ()
) -> list[list[str]]:
    """`tasks` (in the order of the graph) in groups that run one after the other in one job, on the same nodes; without
    those that are `held` by jobs that were submitted before.

    A task joins the job of the one named by its `near` if that job need not wait longer: the task's other inputs are
    done, or done before that job begins. Without being told it joins that of `home_of(name)`, which makes most of its
    inputs, if the two also take the same cores, nobody else is to be near, and the job's limit stays short, and if no
    other job would wait longer, or be lost where this task fails: all that needs the job's tasks needs this one.
    """
    found: list[list[str]] = []
    wanted = {graph.tasks[name].near for name in tasks}
    for name in tasks:
        if name in held:
            continue
        task = graph.tasks[name]
        near = task.near or home_of(name)
        home = next((chain for chain in found if chain[-1] == near), None)
        if home is not None and not task.near:
            alike = graph.tasks[near].slots == task.slots and near not in wanted
            chain = [*home, name]
            others = [other for other in tasks if other not in chain and not set(home).isdisjoint(graph.parents[other])]
            if (
                not alike
                or _limit(graph, chain) > MOST_SECONDS
                or not all(_reaches(graph, name, other) for other in others)
            ):
                home = None
        if home is not None and all(
            parent not in tasks or parent in home or any(_reaches(graph, parent, first) for first in home)
            for parent in graph.parents[name]
        ):
            home.append(name)
        else:
            found.append([name])
    return found


def submit_graph(
    graph: TaskGraph,
    state: GraphState,
    tasks: list[str],
    site: Site,
    command: Callable[[list[str]], list[str]],
    say: Say,
) -> dict[str, str]:
    """Submit the jobs of `tasks`, which are not done; returns task -> number of its job.

    `command(names)` is the command line that runs these tasks one after the other, inside the job.
    """
    state.make()
    (state.folder / "jobs").mkdir(exist_ok=True)
    mark = _mark(state)
    jobs: dict[str, str] = {}
    for name, number in slurm.jobs_with_comment(mark).items():
        there = [task for task in _tasks_of(graph, state, name) if task in tasks]
        if there:
            say(f"{', '.join(there)}: job {number} is there already")
        jobs |= dict.fromkeys(there, number)
    for chain in chains(graph, tasks, state.home, set(jobs)):
        name = f"{graph.name}.{chain[0]}"
        waits = dict.fromkeys(jobs[parent] for task in chain for parent in graph.parents[task] if parent in jobs)
        script = _script(graph, state, chain, site, command, name)
        options = [f"--comment={mark}", "--kill-on-invalid-dep=yes"]
        if waits:
            options.append("--dependency=afterok:" + ":".join(waits))
        write_json(_list_of(graph, state, name), {"tasks": chain})
        number = str(slurm.submit(script, options, graph.folder))
        say(f"{', '.join(chain)}: job {number}" + (f" after {', '.join(waits)}" if waits else ""))
        jobs |= dict.fromkeys(chain, number)
    return jobs


def submit_copy(
    graph: TaskGraph, state: GraphState, name: str, site: Site, command: Callable[[list[str]], list[str]], say: Say
) -> str:
    """Submit a second job for a slow task, if there is none yet; returns its number."""
    job, mark = f"{graph.name}.{name}.copy", _mark(state)
    number = slurm.jobs_with_comment(mark).get(job)
    if number is None:
        script = _script(graph, state, [name], site, lambda names: [*command(names), "--copy"], job)
        number = str(slurm.submit(script, [f"--comment={mark}"], graph.folder))
        say(f"{name}: takes long, job {number} does it too")
    return number


def _list_of(graph: TaskGraph, state: GraphState, job: str) -> Path:
    """The file with the tasks of the job of this name: when it is found again, the first of them may be done."""
    return state.folder / "jobs" / f"{job.removeprefix(f'{graph.name}.')}.json"


def _tasks_of(graph: TaskGraph, state: GraphState, job: str) -> list[str]:
    return (read_json(_list_of(graph, state, job)) or {}).get("tasks", [])  # none of a second copy's job


def _limit(graph: TaskGraph, chain: list[str]) -> int:
    """The time limit of a job for these tasks, s."""
    return sum(seconds(graph.tasks[name].time) for name in chain)


def clock_limit(limit: int) -> str:
    """A time limit in s as Slurm takes it."""
    days, rest = divmod(limit, 86400)
    clock = f"{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def _mark(state: GraphState) -> str:
    """The comment that marks the jobs of this graph."""
    return hashlib.sha256(str(state.folder).encode()).hexdigest()[:16]


def _script(
    graph: TaskGraph,
    state: GraphState,
    chain: list[str],
    site: Site,
    command: Callable[[list[str]], list[str]],
    name: str,
) -> Path:
    """Write the job's script, wide enough for the widest of its tasks."""
    slots = max(graph.tasks[task].slots for task in chain)
    a_node = site.cpu.ranks_per_node or slots
    nodes = math.ceil(slots / a_node)
    job = Job(
        name=name,
        nodes=nodes,
        time=clock_limit(_limit(graph, chain)),
        start=command(chain),
        ranks_per_node=math.ceil(slots / nodes),
        serial=True,
        output=str(state.folder / "jobs" / f"{chain[0]}-%j.out"),
        about=f"task {' '.join(chain)}",
    )
    path = state.folder / "jobs" / f"{name.removeprefix(f'{graph.name}.')}.sh"
    path.write_text(job_script(job, site), encoding="utf-8")
    return path


def _reaches(graph: TaskGraph, ancestor: str, name: str) -> bool:
    return name == ancestor or name in graph.descendants(ancestor)
