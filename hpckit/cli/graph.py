"""`hpckit graph run|status|draw FILE`: simulate, analyze, train, report: tasks that follow by their files."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from hpckit.cli import launch
from hpckit.cli.joined import check_world, joined
from hpckit.cli.submit import find_site
from hpckit.cli.terminal import print_table
from hpckit.errors import InputError
from hpckit.jobs import slurm
from hpckit.jobs.attempt import Attempt, words_of
from hpckit.jobs.graph import Graph, load_graph
from hpckit.jobs.graph_draw import draw_svg, draw_text
from hpckit.jobs.graph_driver import Driver
from hpckit.jobs.graph_pool import PooledAttempt, check_for_pool
from hpckit.jobs.graph_slurm import submit_graph
from hpckit.jobs.graph_state import ATTEMPT, FAILED, GraphState, read_json
from hpckit.jobs.site import Site

FAILED_CODE = 1
WATCH_SECONDS = 2.0


def parser() -> argparse.ArgumentParser:
    """The options of `hpckit graph`."""
    it = argparse.ArgumentParser(prog="hpckit graph", description="Run a graph of tasks, or go on with it.")
    verbs = it.add_subparsers(dest="what", required=True, metavar="run|status|draw")
    one = verbs.add_parser("run", help="do all tasks that are not done; run it again after a failure or a kill")
    one.add_argument("file", type=Path, metavar="FILE")
    one.add_argument("--cores", type=int, metavar="N", help="cores to use at once (all of this machine or allocation)")
    one.add_argument("--slurm", action="store_true", help="a job of Slurm for each task, with --dependency")
    one.add_argument("--no-wait", action="store_true", help="with --slurm: leave when all jobs are submitted")
    one.add_argument("--site", type=Path, metavar="FILE", help="the site file, with --slurm")
    for name, does in (("status", "what is done, and what is next"), ("draw", "a picture of the graph")):
        other = verbs.add_parser(name, help=does)
        other.add_argument("file", type=Path, metavar="FILE")
        if name == "draw":
            other.add_argument("--svg", type=Path, metavar="FILE", help="write an SVG picture")
    task = verbs.add_parser("task", help="inside a job: do these tasks, whose inputs are there")
    task.add_argument("file", type=Path, metavar="FILE")
    task.add_argument("tasks", nargs="+", metavar="TASK")
    task.add_argument("--site", type=Path, metavar="FILE")
    return it


def main(arguments: list[str]) -> int:
    """The verb `graph`; `run` returns 0 when all tasks are done, 1 where one failed."""
    options = parser().parse_args(arguments)
    graph = load_graph(options.file)
    state = GraphState(graph)
    if options.what == "draw":
        states = task_states(graph, state)
        if options.svg:
            options.svg.write_text(draw_svg(graph, states), encoding="utf-8")
            print(f"wrote {options.svg}")
        else:
            print(draw_text(graph, states))
        return 0
    if options.what == "status":
        _print_status(graph, state)
        return 0
    if options.what == "task":
        return _run_in_job(graph, state, options)
    if options.slurm:
        return _run_on_slurm(graph, state, options)
    above = joined(os.environ)
    if above is not None:
        return _run_in_pool(graph, state, above)
    return _run_here(graph, state, graph.order, options.cores or _cores())


def task_states(graph: Graph, state: GraphState) -> dict[str, str]:
    """done, changed (done once, from other inputs), running, failed, ready or waiting, for each task."""
    found: dict[str, str] = {}
    for name in graph.order:
        if any(found[parent] != "done" for parent in graph.parents[name]):
            failed = any(found[parent] in ("failed", "skipped") for parent in graph.parents[name])
            found[name] = "skipped" if failed else "waiting"
            continue
        key = graph.key(name)
        if state.is_done(name, key):
            found[name] = "done"
        elif (state.failure(name) or {}).get("key") == key:
            found[name] = "failed"
        elif any(_is_alive(work) for work in state.attempts(name)):
            found[name] = "running"
        else:
            found[name] = "ready" if state.record(name) is None else "changed"
    return found


def say(line: str) -> None:
    """Print a line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def _run_here(graph: Graph, state: GraphState, tasks: list[str], cores: int) -> int:
    """All tasks on this machine, or on the nodes of the allocation around it."""
    for name in tasks:
        if graph.tasks[name].slots > cores:
            print(f"warning: {name} wants {graph.tasks[name].slots} cores of {cores}; it runs alone", file=sys.stderr)
    with state.locked() as lock:
        start = partial(_start, state, _mpi_words, lock)
        return _told(Driver(graph, state, cores, start, say).run())


def _start(state: GraphState, launcher: Any, lock: int | None, name: str, key: str) -> Attempt:
    task = state.graph.tasks[name]
    environment = launch.rank_environment(task.slots)
    return Attempt(state, name, key, words_of(name, task, launcher), environment, lock)


def _mpi_words(ranks: int) -> list[str]:
    """The words before a command that start it on ranks: those of `hpckit run`, up to the interpreter."""
    words = launch.command(ranks, [])
    return words[: words.index(sys.executable)]


def _run_in_pool(graph: Graph, state: GraphState, above: Any) -> int:
    """On the ranks of a launcher: rank 0 drives, by mpi4py.futures."""
    from mpi4py import MPI
    from mpi4py.futures import MPICommExecutor

    check_world(above, MPI.COMM_WORLD.size)
    check_for_pool(graph)
    code = 0
    with MPICommExecutor(MPI.COMM_WORLD, root=0) as pool:
        if pool is not None:
            with state.locked():
                workers = max(1, MPI.COMM_WORLD.size - 1)
                code = _told(Driver(graph, state, workers, partial(_pooled, state, pool), say).run())
    return code


def _pooled(state: GraphState, pool: Any, name: str, key: str) -> PooledAttempt:
    return PooledAttempt(state, name, key, pool)


def _run_on_slurm(graph: Graph, state: GraphState, options: argparse.Namespace) -> int:
    """Submit what is not done, and wait for the jobs."""
    site = find_site(options.site)
    if not site.environment.venv and sys.prefix != sys.base_prefix:
        site = site.model_copy(update={"environment": site.environment.model_copy(update={"venv": sys.prefix})})
    left = [name for name, known in task_states(graph, state).items() if known != "done"]
    for name in left:
        state.forget_failure(name)
    more = ["--site", str(options.site.absolute())] if options.site else []

    def command(names: list[str]) -> list[str]:
        return ["hpckit", "graph", "task", str(options.file.absolute()), *names, *more]

    jobs = submit_graph(graph, state, left, site, command, say)
    if options.no_wait or not jobs:
        return 0
    before: dict[str, str] = {}
    while True:
        alive = {job for job, known in slurm.states(jobs.values()).items() if known.state in slurm.ALIVE}
        now = task_states(graph, state)
        for name in graph.order:
            if now[name] != before.get(name, "waiting"):
                say(f"{name}: {now[name]}")
        before = now
        if not alive:
            return _told({name: "done" if known == "done" else "failed" for name, known in now.items()})
        time.sleep(WATCH_SECONDS)


def _run_in_job(graph: Graph, state: GraphState, options: argparse.Namespace) -> int:
    """Inside a job of Slurm: these tasks, one after the other, each with its retries."""
    unknown = [name for name in options.tasks if name not in graph.tasks]
    if unknown:
        raise InputError(f"there is no task {unknown[0]!r}", do=f"tasks: {', '.join(graph.order)}")
    state.make()
    site = find_site(options.site)
    launcher = partial(_site_words, site) if os.environ.get("SLURM_JOB_ID") else _mpi_words
    for name in options.tasks:
        alone = Graph(graph.name, graph.folder, {name: graph.tasks[name].model_copy(update={"after": (), "near": ""})})
        own = GraphState(alone)
        code = _told(Driver(alone, own, 1, partial(_start, own, launcher, None), say).run())
        if code:
            return code
    return 0


def _site_words(site: Site, ranks: int) -> list[str]:
    if site.mpi.launcher == "mpiexec":
        return ["mpiexec", *site.mpi.options, "-n", str(ranks)]
    pmi = [f"--mpi={site.mpi.pmi}"] if site.mpi.pmi else []
    return ["srun", *pmi, "--kill-on-bad-exit=1", f"--ntasks={ranks}", *site.mpi.options]


def _told(outcome: Any) -> int:
    counts = {kind: sum(value == kind for value in outcome.values()) for kind in ("done", "kept", "failed", "skipped")}
    words = {"kept": "done before"}
    say("; ".join(f"{count} {words.get(kind, kind)}" for kind, count in counts.items() if count))
    return FAILED_CODE if counts["failed"] else 0


def _print_status(graph: Graph, state: GraphState) -> None:
    rows = []
    for name, known in task_states(graph, state).items():
        record, failure = state.record(name) or {}, state.failure(name) or {}
        seconds = f"{record['seconds']:.1f} s" if known == "done" and "seconds" in record else ""
        detail = failure.get("log", "") if known == "failed" else ", ".join(graph.parents[name])
        rows.append((name, known, seconds, detail))
    print_table(("task", "state", "took", "after, or log"), rows)
    print(f"go on:  hpckit graph run {shlex.quote(str(graph.folder / (graph.name + '.toml')))}")


def _is_alive(work: Path) -> bool:
    """An attempt that may be at work: not one that failed, and not one of a process of this machine that is gone."""
    about = read_json(work / ATTEMPT)
    if about is None or (work / FAILED).exists():
        return False
    try:
        os.kill(int(about["pid"]), 0)
    except ProcessLookupError:
        return about["host"] != os.uname().nodename
    except OSError:
        pass
    return True


def _cores() -> int:
    """All cores of the allocation, else of this machine."""
    tasks = os.environ.get("SLURM_NTASKS", "")
    return int(tasks) if tasks.isdigit() and int(tasks) else launch.cores()
