"""`hpckit graph run|status|draw|report FILE`: simulate, analyze, train, report: tasks that follow by their files."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hpckit.cli.verbs.submit import find_site
from hpckit.errors import InputError, did_you_mean
from hpckit.io.files import write_svg
from hpckit.jobs import slurm
from hpckit.jobs.attempt import Attempt, words_of
from hpckit.jobs.graph.draw import draw_svg, draw_text, draw_timeline
from hpckit.jobs.graph.driver import Driver, failure_words
from hpckit.jobs.graph.graph import TaskGraph, load_graph
from hpckit.jobs.graph.pool import PooledAttempt, check_for_pool
from hpckit.jobs.graph.slurm import submit_copy, submit_graph
from hpckit.jobs.graph.state import GraphState, stragglers, task_states
from hpckit.jobs.process import cores
from hpckit.jobs.site import Site
from hpckit.launch import mpiexec
from hpckit.launch.launcher import check_world, joined
from hpckit.report.page import caption, escape, page, section, table
from hpckit.run.progress import clock_text
from hpckit.settings.table import Parser, print_table

if TYPE_CHECKING:
    from mpi4py import MPI

FAILED_CODE = 1
WATCH_SECONDS = 2.0


def parser() -> argparse.ArgumentParser:
    """The options of `hpckit graph`."""
    it = Parser(prog="hpckit graph", description="Run a graph of tasks, or go on with it.")
    verbs = it.add_subparsers(dest="what", required=True, metavar="run|status|draw|report")
    one = verbs.add_parser("run", help="do all tasks that are not done; run it again after a failure or a kill")
    one.add_argument("file", type=Path, metavar="FILE")
    one.add_argument("--cores", type=int, metavar="N", help="cores to use at once (all of this machine or allocation)")
    one.add_argument("--slurm", action="store_true", help="a job of Slurm for each task, with --dependency")
    one.add_argument("--no-wait", action="store_true", help="with --slurm: leave when all jobs are submitted")
    one.add_argument("--site", type=Path, metavar="FILE", help="the site file, with --slurm")
    others = {
        "status": "what is done, and what is next",
        "draw": "a picture of the graph",
        "report": "a page: every attempt on a time axis, by node and cores",
    }
    for name, does in others.items():
        other = verbs.add_parser(name, help=does)
        other.add_argument("file", type=Path, metavar="FILE")
        if name == "draw":
            other.add_argument("--svg", type=Path, metavar="FILE", help="write an SVG picture")
    task = verbs.add_parser("task", description="Inside a job: do these tasks, whose inputs are there.")
    task.add_argument("file", type=Path, metavar="FILE")
    task.add_argument("tasks", nargs="+", metavar="TASK")
    task.add_argument("--site", type=Path, metavar="FILE")
    task.add_argument("--copy", action="store_true", help="beside another job that does the same: the first counts")
    return it


def main(arguments: list[str]) -> int:
    """The verb `graph`; `run` returns 0 when all tasks are done, 1 where one failed."""
    it = parser()
    known = ("run", "status", "draw", "report")
    if arguments and not arguments[0].startswith("-") and arguments[0] not in (*known, "task"):
        near = did_you_mean(arguments[0], known)
        raise InputError(f"graph does not {arguments[0]!r}", likely=near, do=f"hpckit graph {'|'.join(known)} FILE")
    options = it.parse_args(arguments)
    graph = load_graph(options.file)
    state = GraphState(graph)
    if options.what == "draw":
        states = task_states(graph, state)
        if options.svg:
            write_svg(options.svg, draw_svg(graph, states))
            print(f"wrote {options.svg}")
        else:
            print(draw_text(graph, states))
        return 0
    if options.what == "status":
        _print_status(graph, state)
        return 0
    if options.what == "report":
        print(write_report(graph, state))
        return 0
    if options.what == "task":
        return run_in_job(graph, state, options)
    if options.cores is not None and options.cores < 1:
        raise InputError(f"--cores {options.cores}", do="give 1 or more; left out: all of this machine or allocation")
    if (options.no_wait or options.site) and not options.slurm:
        raise InputError("--no-wait and --site are for --slurm", do="add --slurm, or leave them out")
    if options.slurm:
        return run_on_slurm(graph, state, options)
    above = joined(os.environ)
    if above is not None:
        return _run_in_pool(graph, state, above)
    return _run_here(graph, state, graph.order, options.cores or _cores())


def say(line: str) -> None:
    """Print a line with the time of day."""
    print(f"{time.strftime('%H:%M:%S')}  {line}", flush=True)


def _run_here(graph: TaskGraph, state: GraphState, tasks: list[str], cores: int) -> int:
    """All tasks on this machine, or on the nodes of the allocation around it."""
    left = [name for name, known in task_states(graph, state).items() if known != "done"]
    for name in left:
        mpiexec.require_room(graph.tasks[name].ranks, f"the task {name}")
    for name in tasks:
        if graph.tasks[name].slots > cores:
            print(f"warning: {name} wants {graph.tasks[name].slots} cores of {cores}; it runs alone", file=sys.stderr)
    with state.locked() as lock:
        return told(Driver(graph, state, {"": cores}, partial(start, state, mpi_words, lock), say))


def start(state: GraphState, launcher: Any, lock: int | None, name: str, key: str, host: str) -> Attempt:
    """Begin an attempt on this machine or in this job."""
    task = state.graph.tasks[name]
    environment = mpiexec.rank_environment(task.slots, ours=task.ranks > 0 and not task.run)
    return Attempt(state, name, key, words_of(name, task, launcher), environment, lock)


def mpi_words(ranks: int) -> list[str]:
    """The words before a command that start it on ranks: those of `hpckit run`, up to the interpreter."""
    words = mpiexec.command(ranks, [])
    return words[: words.index(sys.executable)]


def _run_in_pool(graph: TaskGraph, state: GraphState, above: Any) -> int:
    """On the ranks of a launcher: rank 0 drives, by mpi4py.futures."""
    from mpi4py import MPI

    check_world(above, MPI.COMM_WORLD.size)
    check_for_pool(graph)
    with _pools(MPI.COMM_WORLD) as found:
        if found is None:
            return 0
        hosts = {host: workers for host, (workers, _) in found.items()}

        def pooled(name: str, key: str, host: str) -> PooledAttempt:
            return PooledAttempt(state, name, key, host, found[host][1])

        with state.locked():
            return told(Driver(graph, state, hosts, pooled, say))


@contextlib.contextmanager
def _pools(comm: MPI.Intracomm) -> Iterator[dict[str, tuple[int, Executor]] | None]:
    """Collective: on rank 0 an executor for the other ranks of each host, with their number; None on these, which work
    until rank 0 leaves the block.
    """
    from mpi4py.futures import MPICommExecutor

    from hpckit.comm.agree import gather_json, share_json

    hosts = share_json(comm, gather_json(comm, socket.gethostname()))
    if comm.size == 1:
        with MPICommExecutor(comm, root=0) as alone:
            yield {hosts[0]: (1, cast(Executor, alone))}
        return
    with contextlib.ExitStack() as stack:
        found: dict[str, tuple[int, Executor]] = {}
        for host in dict.fromkeys(hosts[1:]):
            ranks = [0, *(rank for rank in range(1, comm.size) if hosts[rank] == host)]
            if comm.rank in ranks:
                own = comm.Create_group(comm.group.Incl(ranks))
                found[host] = len(ranks) - 1, cast(Executor, stack.enter_context(MPICommExecutor(own, root=0)))
        yield found if comm.rank == 0 else None


def told(driver: Driver) -> int:
    """Run the tasks and say how many are done; returns the exit code."""
    outcome = driver.run()
    if len(driver.hosts) > 1 and driver.near[0]:
        say(f"{driver.near[1]} of {driver.near[0]} tasks with inputs of others ran where most of these were made")
    return told_of(outcome)


def told_of(outcome: Mapping[str, str]) -> int:
    """Say how many tasks are done; returns the exit code."""
    counts = {kind: sum(value == kind for value in outcome.values()) for kind in ("done", "kept", "failed", "skipped")}
    words = {"kept": "done before"}
    say("; ".join(f"{count} {words.get(kind, kind)}" for kind, count in counts.items() if count))
    return FAILED_CODE if counts["failed"] else 0


def _print_status(graph: TaskGraph, state: GraphState) -> None:
    rows = []
    for name, known in task_states(graph, state).items():
        record, failure = state.record(name) or {}, state.failure(name) or {}
        seconds = f"{record['seconds']:.1f} s" if known == "done" and "seconds" in record else ""
        detail = failure.get("log", "") if known == "failed" else ", ".join(graph.parents[name])
        rows.append((name, known, seconds, detail))
    print_table(("task", "state", "took", "after, or log"), rows)
    print(f"go on:  hpckit graph run {shlex.quote(str(graph.folder / (graph.name + '.toml')))}")


def write_report(graph: TaskGraph, state: GraphState) -> Path:
    """Write `report.html` beside the state of a graph: its attempts on a time axis, the graph, a table.

    Raises `InputError` for a graph that never ran.
    """
    journal = state.journal()
    if not journal:
        raise InputError(f"the graph {graph.name} has not run yet", do=f"hpckit graph run {graph.name}.toml")
    begin, end = min(row["started"] for row in journal), max(row["ended"] for row in journal)
    busy = sum(row["slots"] * (row["ended"] - row["started"]) for row in journal if row["how"] == "done")
    lost = sum(row["slots"] * (row["ended"] - row["started"]) for row in journal if row["how"] != "done")
    known = [row["near"] for row in journal if "near" in row]
    states = task_states(graph, state)
    done = sum(found == "done" for found in states.values())
    cards = [
        (f"{done} of {len(states)}", "tasks done"),
        (clock_text(end - begin), "first start to last end"),
        (f"{busy:.3g}", "core-seconds of attempts that counted"),
        (f"{lost:.3g}", "core-seconds of failures and second copies"),
        (str(len({row["host"] for row in journal})), "nodes"),
    ]
    if known:
        cards.append((f"{sum(known)} of {len(known)}", "ran where most of their inputs were made"))
    rows = [
        (
            row["task"],
            row["how"],
            row["host"],
            str(row["slots"]),
            f"{row['started'] - begin:.2f}",
            f"{row['ended'] - row['started']:.2f}",
        )
        for row in sorted(journal, key=lambda row: row["started"])
    ]
    head = ("task", "end", "node", "cores", "start (s)", "took (s)")
    shown = "".join(f'<div class="card"><b>{escape(a)}</b><span>{escape(b)}</span></div>' for a, b in cards)
    text = page(
        f"{graph.name}: task graph",
        f'<header><p class="kicker">task graph in {escape(graph.folder)}</p><h1>{escape(graph.name)}</h1></header>',
        f'<div class="cards">{shown}</div>',
        section(
            "Attempts over time",
            f'<div class="pan">{draw_timeline(journal)}</div>',
            caption("A bar is an attempt, as high as the cores it takes; red failed, gray another copy was first."),
        ),
        section("Graph", f'<div class="pan">{draw_svg(graph, states)}</div>'),
        section("Attempts", table(head, rows, (3, 4, 5))),
    )
    path = state.folder / "report.html"
    path.write_text(text, encoding="utf-8")
    return path


def _cores() -> int:
    """All cores of the allocation, else of this machine."""
    tasks = os.environ.get("SLURM_NTASKS", "")
    return int(tasks) if tasks.isdigit() and int(tasks) else cores()


def run_on_slurm(graph: TaskGraph, state: GraphState, options: argparse.Namespace) -> int:
    """Submit what is not done, and wait for the jobs; returns 0 when all tasks are done."""
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
    if not jobs:
        return told_of(dict.fromkeys(graph.order, "kept"))
    if options.no_wait:
        return 0
    copies: dict[str, str] = {}
    before: dict[str, str] = {}
    while True:
        known = slurm.states([*jobs.values(), *copies.values()])
        now = task_states(graph, state)
        for name in graph.order:
            if now[name] != before.get(name, "waiting"):
                failure = state.failure(name) if now[name] == "failed" else None
                say(failure_words(name, failure) if failure else f"{name}: {now[name]}")
        before = now
        if not any(each.state in slurm.ALIVE for each in known.values()):
            return told_of(_outcome(graph, state, left, jobs, known))
        for name in stragglers(graph, state, now):
            if name not in copies:
                copies[name] = submit_copy(graph, state, name, site, command, say)
        time.sleep(WATCH_SECONDS)


def _outcome(
    graph: TaskGraph, state: GraphState, left: list[str], jobs: Mapping[str, str], known: Mapping[str, slurm.JobState]
) -> dict[str, str]:
    """What became of each task, now that all jobs have ended; says which were ended by something else."""
    outcome = {}
    for name, now in task_states(graph, state).items():
        if now == "done":
            outcome[name] = "done" if name in left else "kept"
        elif now in ("waiting", "skipped"):
            outcome[name] = "skipped"
        else:
            outcome[name] = "failed"
            if now != "failed":
                job = jobs[name]
                ended = known[job].state if job in known else "without a trace"
                logs = [str(path) for path in (state.folder / "jobs").glob(f"*-{job}.out")]
                say(", ".join([f"{name}: not done, its job {job} ended ({ended})", *logs]))
    return outcome


def run_in_job(graph: TaskGraph, state: GraphState, options: argparse.Namespace) -> int:
    """Inside a job of Slurm: these tasks, one after the other, each with its retries."""
    unknown = [name for name in options.tasks if name not in graph.tasks]
    if unknown:
        raise InputError(f"there is no task {unknown[0]!r}", do=f"tasks: {', '.join(graph.order)}")
    state.make()
    site = find_site(options.site)
    launcher = partial(_site_words, site) if os.environ.get("SLURM_JOB_ID") else mpi_words
    for name in options.tasks:
        task = graph.tasks[name]
        alone = TaskGraph(graph.name, graph.folder, {name: task.model_copy(update={"after": (), "near": ""})})
        own = GraphState(alone)
        others = "copy" if options.copy else "copied" if task.twice_after else ""
        code = told(Driver(alone, own, {"": 1}, partial(start, own, launcher, None), say, others))
        if code:
            return code
    return 0


def _site_words(site: Site, ranks: int) -> list[str]:
    if site.mpi.launcher == "mpiexec":
        return ["mpiexec", *site.mpi.options, "-n", str(ranks)]
    pmi = [f"--mpi={site.mpi.pmi}"] if site.mpi.pmi else []
    return ["srun", *pmi, "--kill-on-bad-exit=1", f"--ntasks={ranks}", *site.mpi.options]
