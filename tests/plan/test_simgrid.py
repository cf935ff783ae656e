"""Traces for SimGrid: what a rank posts; nightly, prices beside the simulator's times, where `smpirun` is there."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import replace
from statistics import median

import pytest

import hpckit as hp
from hpckit.errors import InputError
from hpckit.plan.machine.machine import Level, Machine, machine_of
from hpckit.plan.machine.simgrid import export_trace, platform, trace
from hpckit.plan.pipeline.times import StageTimes
from hpckit.plan.pricing import price
from hpckit.plan.training.model import language_model
from hpckit.plan.training.step import TrainingStep
from hpckit.plan.training.strategy import Strategy

FLAT = Machine("flat", (Level("all", 0, 2e-6, 10e9),), 0.0, 1e15, copy=1e15)
NODES = Machine(
    "nodes", (Level("node", 16, 1e-6, 10e9, uplink=25e9), Level("all", 0, 2e-6, 10e9)), 0.0, 1e15, copy=1e15
)
SLOWER = 1000.0  # smpirun prints microseconds: messages of a machine so many times slower are read more finely


def test_a_rank_posts_as_its_executor_does():
    plan = hp.plan.collective_plan("all_reduce", "ring", 3)
    lines = trace(plan, FLAT, nbytes=3 << 20, itemsize=1)[0]
    posts = [line.split()[0] for line in lines]
    assert posts[:3] == ["irecv", "irecv", "isend"]  # one receive ahead
    assert posts.count("irecv") == posts.count("isend") == 4
    assert posts.count("wait") == 8
    assert next(line for line in lines if line.startswith("isend")).endswith(str(1 << 20))


def test_computations_wait_for_what_they_read():
    model = replace(language_model("llama3-8b"), layers=2)
    plan = TrainingStep(model, Strategy(2, 128, pp=2), machine_of("selene"))
    first, second = trace(plan, FLAT, itemsize=1)
    assert first[0].startswith("irecv 1")
    waited = second.index(next(line for line in second if line.startswith("wait 0 1")))
    assert waited < second.index(next(line for line in second if line.startswith("compute")))


def test_a_machine_is_a_platform(tmp_path):
    lines = list(platform(NODES, 32))
    assert sum("<cluster" in line for line in lines) == 2
    assert sum("<zoneRoute" in line for line in lines) == 2
    plan = hp.plan.collective_plan("all_gather", "ring", 4)
    assert "smpirun -replay list -np 4" in export_trace(plan, tmp_path / "t", FLAT, 1e6)
    assert (tmp_path / "t" / "rank3").read_text().endswith("3 finalize\n")
    with pytest.raises(InputError, match="two levels"):
        list(platform(machine_of("infiniband"), 8))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        export_trace(plan, tmp_path / "file" / "t", FLAT)


def replayed(plan, machine, folder, nbytes=0.0, itemsize=8):
    """Seconds by SimGrid."""
    command = export_trace(plan, folder, machine, nbytes, itemsize)
    done = subprocess.run(command.split(), cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    found = re.search(r"[Ss]imulat(?:ion|ed) time:? ([\d.e-]+)", done.stdout + done.stderr)
    assert found, (done.stdout + done.stderr)[-2000:]
    return float(found[1])


def slower(machine):
    levels = tuple(
        replace(x, latency=x.latency * SLOWER, bandwidth=x.bandwidth / SLOWER, uplink=x.uplink / SLOWER)
        for x in machine.levels
    )
    return replace(machine, levels=levels)


def cases():
    collective = hp.plan.collective_plan
    for machine in (FLAT, NODES):
        for name, ranks in (("ring", 64), ("tree", 1024), ("recursive_doubling", 1024), ("halving_doubling", 1024)):
            for nbytes in (8 << 10, 8 << 20):
                yield collective("all_reduce", name, ranks), machine, nbytes, 1
        others = [("all_to_all", "pairwise"), ("broadcast", "tree"), ("scatter", "tree")]
        for operation, name in [*others, ("all_gather", "ring"), ("reduce_scatter", "ring")]:
            yield collective(operation, name, 64), machine, 8 << 20, 1
        topology = hp.Topology(("z", "y", "x"), (8, 8, 16), periodic=("x", "y"))
        yield hp.plan.halo_plan(hp.Decomposition((257, 250, 512), topology, halo=2)), machine, 0, 8
        topology = hp.Topology(("z", "y", "x"), (16, 16, 16), periodic=("z", "y", "x"))
        yield hp.plan.halo_plan(hp.Decomposition((515, 512, 509), topology, halo=2)), machine, 0, 8
        program = hp.plan.pipeline_program(hp.plan.pipeline_schedule("1f1b", 8, 16))
        times = StageTimes(1e-3, 1e-3, 1e-3).table(program.schedule)
        yield replace(program, seconds=times), machine, 8 << 20, 8
        dense = replace(language_model("llama3-8b"), layers=8, width=1024, hidden=4096, vocab=8192)
        moe = replace(language_model("mixtral-8x7b"), layers=8, width=1024, hidden=2048, vocab=8192)
        moe = replace(moe, experts=replace(moe.experts, hidden=1024))
        four = Strategy(32, 512, dp=2, pp=4, cp=2, tp=4)
        five = Strategy(32, 512, dp=4, pp=2, cp=2, tp=2, ep=4, schedule="dualpipe_v", chunks=2)
        cut = Strategy(32, 512, dp=4, pp=2, tp=2, ep=2, etp=2, schedule="dualpipe_v", chunks=2)
        folded = Strategy(16, 512, pp=4, cp=2, tp=2, schedule="zb_v", chunks=2)
        looped = Strategy(16, 512, pp=4, tp=4, schedule="interleaved", chunks=2)
        for model, split in ((dense, four), (moe, five), (moe, cut), (dense, folded), (dense, looped)):
            yield TrainingStep(model, split, machine_of("selene")), machine, 0, 1


def particles():
    for machine in (FLAT, NODES):
        for sizes in ((4, 4, 4), (3, 4, 5)):
            topology = hp.Topology(("z", "y", "x"), sizes, periodic=("z", "y", "x"))
            plans = hp.plan.md_plans(84.0, 0.8442, 2.5, 0.3, topology)
            yield from ((plans.ghosts, machine, 0, 8), (plans.migration, machine, 0, 8))


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("smpirun") is None, reason="needs SimGrid (Debian: libsimgrid-dev)")
def test_prices_are_those_of_a_simulator(tmp_path):
    errors, disturbed = [], []
    for number, (plan, machine, nbytes, itemsize) in enumerate([*cases(), *particles()]):
        computes = isinstance(plan, TrainingStep) or hasattr(plan, "schedule")
        scale = 1.0 if computes else SLOWER
        shown = machine if computes else slower(machine)
        seconds = replayed(plan, shown, tmp_path / str(number), nbytes, itemsize) / scale
        priced = price(plan, machine, nbytes=nbytes, itemsize=itemsize).seconds
        shutil.rmtree(tmp_path / str(number))
        # In 1F1B messages to the next stage come while its ranks exchange, and slow them: a price lets them wait.
        known = isinstance(plan, TrainingStep) and plan.strategy.schedule == "1f1b"
        one = abs(priced / seconds - 1), f"{plan.title()} on {machine.name}: {seconds:.6g} s, {priced:.6g}"
        (disturbed if known else errors).append(one)
    assert median(error for error, _ in errors) < 0.01
    assert max(errors)[0] < 0.03, max(errors)[1]
    assert max(disturbed)[0] < 0.05, max(disturbed)[1]
