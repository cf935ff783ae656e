"""`hpckit graph run --slurm`, and what its jobs do: `hpckit graph task`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping
from functools import partial

from hpckit.cli.verbs.graph.verb import mpi_words, say, start, told
from hpckit.cli.verbs.submit import find_site
from hpckit.errors import InputError
from hpckit.jobs import slurm
from hpckit.jobs.graph.driver import Driver, failure_words
from hpckit.jobs.graph.graph import Graph
from hpckit.jobs.graph.slurm import submit_copy, submit_graph
from hpckit.jobs.graph.state import GraphState
from hpckit.jobs.site import Site
from hpckit.jobs.task_states import stragglers, task_states

WATCH_SECONDS = 2.0


def run_on_slurm(graph: Graph, state: GraphState, options: argparse.Namespace) -> int:
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
        return told(dict.fromkeys(graph.order, "kept"))
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
            return told(_outcome(graph, state, left, jobs, known))
        for name in stragglers(graph, state, now):
            if name not in copies:
                copies[name] = submit_copy(graph, state, name, site, command, say)
        time.sleep(WATCH_SECONDS)


def _outcome(
    graph: Graph, state: GraphState, left: list[str], jobs: Mapping[str, str], known: Mapping[str, slurm.JobState]
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


def run_in_job(graph: Graph, state: GraphState, options: argparse.Namespace) -> int:
    """Inside a job of Slurm: these tasks, one after the other, each with its retries."""
    unknown = [name for name in options.tasks if name not in graph.tasks]
    if unknown:
        raise InputError(f"there is no task {unknown[0]!r}", do=f"tasks: {', '.join(graph.order)}")
    state.make()
    site = find_site(options.site)
    launcher = partial(_site_words, site) if os.environ.get("SLURM_JOB_ID") else mpi_words
    for name in options.tasks:
        task = graph.tasks[name]
        alone = Graph(graph.name, graph.folder, {name: task.model_copy(update={"after": (), "near": ""})})
        own = GraphState(alone)
        others = "copy" if options.copy else "copied" if task.twice_after else ""
        code = told(Driver(alone, own, 1, partial(start, own, launcher, None), say, others).run())
        if code:
            return code
    return 0


def _site_words(site: Site, ranks: int) -> list[str]:
    if site.mpi.launcher == "mpiexec":
        return ["mpiexec", *site.mpi.options, "-n", str(ranks)]
    pmi = [f"--mpi={site.mpi.pmi}"] if site.mpi.pmi else []
    return ["srun", *pmi, "--kill-on-bad-exit=1", f"--ntasks={ranks}", *site.mpi.options]
