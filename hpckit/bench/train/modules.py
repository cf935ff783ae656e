"""Modules of PyTorch on 2 ranks: hpckit.torch over MPI against torch.distributed over gloo, in the same processes.

A step is forward, loss, backward and fused AdamW of a GPT in float32, one thread a rank, from the same values. The
losses of the first steps are compared before anything is timed, then steps of all candidates run in turn. The ratios
are times, ours over theirs: below 1 is better for hpckit.

What is exchanged depends on the model and what is computed on the tokens: the figures are for one text of 128 tokens a
rank, where many ranks share a batch; those that end in `_long` for four. "apart" are steps of both ranks at once that
exchange nothing: what the machine allows.
"""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

from hpckit.bench.measure import Ratios, Rows, ratio, result, timed
from hpckit.bench.ranks import answer, run_ranks

ROUNDS, FEW = 41, 15
BATCHES = {"": 1, "_long": 4}  # texts a rank


def run(quick: bool = False) -> dict[str, Any]:
    """Measure all: rows and ratios. Raises `SetupError` where the ranks fail; without PyTorch it says so."""
    if importlib.util.find_spec("torch") is None:
        rows: Rows = [{"note": "PyTorch is not installed: pip install 'hpckit[bench]'"}]
        return result("torch", rows, {})
    rounds = FEW if quick else ROUNDS
    found = run_ranks("hpckit.bench.train.modules", 2, [(batch, rounds) for batch in BATCHES.values()])
    ratios: Ratios = {}
    rows = []
    for (suffix, batch), one in zip(BATCHES.items(), found, strict=True):
        times = one["times"]
        rows += [timed(f"GPT, {batch} x 128 tokens a rank", name, seconds) for name, seconds in times.items()]
        ratios[f"torch_ddp_vs_gloo{suffix}"] = ratio(times["ddp"], times["gloo_ddp"])
        ratios[f"torch_fsdp_vs_gloo{suffix}"] = ratio(times["fsdp"], times["gloo_fsdp"])
        ratios[f"torch_zero1_vs_ddp{suffix}"] = ratio(times["zero1"], times["ddp"])
        ratios[f"torch_ddp_vs_apart{suffix}"] = ratio(times["ddp"], times["apart"])
    return result("torch", rows, ratios)


def case(batch: int, rounds: int) -> dict[str, Any]:
    """On each rank: seconds a step of every candidate."""
    import copy

    import numpy as np
    import torch
    from mpi4py import MPI
    from torch.distributed import device_mesh, fsdp
    from torch.nn.parallel import DistributedDataParallel as TheirDDP

    from hpckit.bench.collectives.ranks import start_gloo
    from hpckit.bench.rivals.torch import GPT, TorchBlock, cross_entropy
    from hpckit.bench.train.ranks import HEADS, LAYERS, LENGTH, RATE, VOCAB, WIDTH, Step, text, time_in_turn
    from hpckit.torch.data import DistributedDataParallel
    from hpckit.torch.optimizer import ZeroRedundancyOptimizer
    from hpckit.torch.sharded import FullyShardedDataParallel

    comm = MPI.COMM_WORLD
    if not torch.distributed.is_initialized():
        start_gloo(torch, torch.distributed)
    torch.manual_seed(0)
    model = GPT(VOCAB, LENGTH, WIDTH, HEADS, LAYERS)
    x, targets = (torch.from_numpy(each) for each in text(batch, comm.rank))
    mesh = device_mesh.init_device_mesh("cpu", (comm.size,))

    def fully_sharded() -> Any:
        it = copy.deepcopy(model)
        for block in it.blocks:
            fsdp.fully_shard(block, mesh=mesh)
        return fsdp.fully_shard(it, mesh=mesh)

    def step_of(it: Any, zero: bool = False) -> Step:
        how: dict[str, Any] = {"lr": RATE, "fused": True}
        optimizer: Any = torch.optim.AdamW(it.parameters(), **how) if not zero else None
        if zero:
            optimizer = ZeroRedundancyOptimizer(it.parameters(), torch.optim.AdamW, comm, **how)

        def step() -> float:
            optimizer.zero_grad()
            loss = cross_entropy(it(x), targets)
            loss.backward()
            optimizer.step()
            return loss.item()

        return step

    steps: dict[str, Step] = {
        "ddp": step_of(DistributedDataParallel(copy.deepcopy(model), comm)),
        "gloo_ddp": step_of(TheirDDP(copy.deepcopy(model), gradient_as_bucket_view=True)),
        "fsdp": step_of(FullyShardedDataParallel(copy.deepcopy(model), comm, blocks=TorchBlock)),
        "gloo_fsdp": step_of(fully_sharded()),
        "zero1": step_of(DistributedDataParallel(copy.deepcopy(model), comm), zero=True),
    }
    first = {name: [step() for _ in range(3)] for name, step in steps.items()}
    for name, losses in first.items():
        np.testing.assert_allclose(losses, first["ddp"], rtol=2e-4, err_msg=name)
    steps["apart"] = step_of(copy.deepcopy(model))
    return {"times": time_in_turn(steps, (), rounds)}


if __name__ == "__main__":
    answer(sys.argv[1:], case)
