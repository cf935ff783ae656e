"""Jobs on a real Slurm on this machine: requeue to the same bits, killed drivers of task graphs, the first run."""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from hpckit.bench.command import add_only
from hpckit.bench.measure import Ratios, Rows, result, spread
from hpckit.jobs.graph.graph import load_graph
from hpckit.jobs.graph.state import GraphState
from hpckit.launch.scratch import scratch
from tests.first_run import first_run
from tests.slurm.loopback import Cluster, cluster, missing
from tests.slurm.requeue import limited, requeued, same_bits

Part = Callable[[Cluster, Path, bool, Ratios], Rows]
KEYS = ("requeue_bitwise", "limit_bitwise", "graph_kills", "first_run_s")
LONG = ("limit_bitwise", "first_run_s")  # left out where `quick`
KILLS, QUICK_KILLS, KILLS_A_ROUND = 50, 5, 5
FRONT_END = [sys.executable, "-m", "hpckit.cli.main"]
TASK = """\
[tasks.{name}]
command = ["bash", "-c", "sleep 0.15; cat {reads} > {name}.txt; echo {name} >> {name}.txt"]
inputs = [{inputs}]
outputs = ["{name}.txt"]
"""
# Name -> parents: two chains that meet, and what follows from them.
TASKS = {"a": "", "b": "", "c": "", "d": "", "e": "ab", "f": "cd", "g": "ef", "h": "ef", "i": "g", "j": "hi"}


def add_options(it: argparse.ArgumentParser) -> tuple[str, ...]:
    """The option of this command, and its name for `run`."""
    return add_only(it, KEYS)


def run(quick: bool = False, only: Sequence[str] | None = None) -> dict[str, Any]:
    """Four keys, or those named in `only`: `requeue_bitwise` 1 where a run over three time limits has the bits of the
    unbroken one; `limit_bitwise` (not where `quick`) 1 where so have runs that Slurm itself warned, and ended, at a
    limit; `graph_kills` the part of killed drivers whose graphs ended with the same hashes; `first_run_s` seconds
    (time, less is better) from a fresh virtual environment to the report of a run on 2 ranks, left out where `quick`.
    """
    wanted = only or [key for key in KEYS if not (quick and key in LONG)]
    results: Rows = []
    ratios: Ratios = {}
    with scratch() as name:
        folder = Path(name)
        if "graph_kills" in wanted:
            kills, same = graph_kills(folder / "graph", QUICK_KILLS if quick else KILLS)
            results.append({"what": "drivers of a task graph killed", "count": kills, "same": same})
            ratios["graph_kills"] = spread([same / kills], kills)
        slurms = {"requeue_bitwise": _requeue, "limit_bitwise": _limits}
        if parts := [part for key, part in slurms.items() if key in wanted]:
            results += _on_slurm(parts, folder, quick, ratios)
        if "first_run_s" in wanted:
            (folder / "fresh").mkdir()
            seconds = sum(first_run(folder / "fresh").values())
            results.append({"what": "fresh environment to report, s", "count": 1, "seconds": seconds})
            ratios["first_run_s"] = spread([seconds], 1)
    return result("cluster", results, ratios)


def _on_slurm(parts: Sequence[Part], folder: Path, quick: bool, ratios: Ratios) -> Rows:
    """The rows of the parts that need a Slurm, which is started for them; adds their keys."""
    if problem := missing():
        return [{"what": f"requeue: no Slurm here: {problem}"}]
    rows = []
    with cluster(1) as slurm:
        for part in parts:
            here = folder / part.__name__.strip("_")
            here.mkdir()
            rows += part(slurm, here, quick, ratios)
    return rows


def _requeue(slurm: Cluster, folder: Path, quick: bool, ratios: Ratios) -> Rows:
    """The row of the run that is warned twice and put back into the queue; adds its key."""
    found = requeued(slurm, folder, limits=3, end=2500.0 if quick else 5000.0)
    equal = found["exit"] == "0:0" and same_bits(found["fields"])
    ratios["requeue_bitwise"] = spread([float(equal and found["starts"] == 3)], 1)
    return [{"what": "run over several time limits", "count": found["starts"], "same": int(equal)}]


def _limits(slurm: Cluster, folder: Path, quick: bool, ratios: Ratios) -> Rows:
    """The rows of runs that Slurm warned, and ended, at a limit of a minute; adds their key."""
    found = limited(slurm, folder)
    warned, ended = found["warned"], found["ended"]
    well = warned["exit"] == "0:0" and warned["starts"] > 1 and same_bits(warned["fields"])
    killed = ended["starts"] > 1 and same_bits(ended["fields"])
    ratios["limit_bitwise"] = spread([float(well and killed)], 2)
    return [
        {"what": "run warned by Slurm before its limits", "count": warned["starts"], "same": int(well)},
        {"what": "run ended by Slurm at its limit, requeued", "count": 1, "same": int(killed)},
    ]


def graph_kills(folder: Path, least: int, seed: int = 1) -> tuple[int, int]:
    """Kill the drivers of fresh graphs at random moments, five times each, and let them finish.

    Returns how many were killed, and how many of them in graphs that ended with the hashes of an unbroken one.
    """
    chance = random.Random(seed)
    whole = _hashes(_graph(folder / "whole"))
    kills = same = number = 0
    while kills < least:
        number += 1
        file = _graph(folder / f"{number:03d}")
        here = 0
        while here < min(KILLS_A_ROUND, least - kills) and _killed(file, chance.uniform(0.1, 1.5)):
            here += 1
        kills += here
        same += here * (_hashes(file) == whole)
    return kills, same


def _graph(folder: Path) -> Path:
    folder.mkdir(parents=True)
    texts = []
    for name, parents in TASKS.items():
        files = [f"{parent}.txt" for parent in parents]
        inputs = ", ".join(f'"{file}"' for file in files)
        texts.append(TASK.format(name=name, reads=" ".join(files) or "/dev/null", inputs=inputs))
    file = folder / "study.toml"
    file.write_text("\n".join(texts))
    return file


def _killed(file: Path, seconds: float) -> bool:
    """Start a driver and kill it; False where it was through before."""
    driver = subprocess.Popen([*FRONT_END, "graph", "run", file, "--cores", "2"], stdout=subprocess.DEVNULL)
    try:
        driver.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        return True


def _hashes(file: Path) -> dict[str, Any]:
    """What the finished graph made; empty where it does not finish."""
    ended = subprocess.run([*FRONT_END, "graph", "run", file, "--cores", "2"], stdout=subprocess.DEVNULL, check=False)
    graph = load_graph(file)
    state = GraphState(graph)
    return {} if ended.returncode else {name: (state.record(name) or {}).get("outputs") for name in graph.tasks}
