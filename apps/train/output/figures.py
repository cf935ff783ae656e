"""The figures of a step: speed, share of the peak, bubble, communication."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from hpckit.apps.train.trainer import StepFigures, Trainer
from hpckit.comm.agree import sum_of_ranks, wait_for_ranks
from hpckit.comm.device import HOST, Device
from hpckit.comm.observe.timer import PhaseTimer
from hpckit.comm.simulated_gpu import SimulatedGpu
from hpckit.kernels.nn.matmul import multiply
from hpckit.plan.pipeline.price import price_schedule

SPEEDS = ("mfu", "communication", "tokens_per_second", "samples_per_second")
SIZE, GPU_SIZE = 1024, 4096  # rows and columns
ROUNDS = 5


class TrainingFigures:
    """Measures the steps of a run. Collective to make, and to ask.

    flops: of one sample forward and backward; peak: of matrix products on all ranks together, operations/s.
    """

    def __init__(self, trainer: Trainer) -> None:
        self.trainer, laid = trainer, trainer.laid
        self.flops = laid.shape.training_flops(laid.window)
        comm = trainer.mesh.comm
        wait_for_ranks(comm)
        self.peak = float(sum_of_ranks(comm, np.array(gemm_peak(trainer.config.arithmetic, trainer.device))))
        self.kept: dict[str, list[float]] = {}
        self.computing: list[float] = []  # of each measured step's forward and backward, the share without waiting

    def of(self, step: StepFigures, seconds: float) -> dict[str, float]:
        """The metrics of the step that was just done and took `seconds` in all on this rank.

        mfu: the operations that the model takes over what the peak would do in that time. bubble: share of the ranks'
        time without F, B, I or W, from the pipeline's first action to its last. communication: share of the step
        outside of that, but for the optimizer: sums over the replicas, the norm, the loss.
        """
        measured = self.trainer.pipeline.measured()
        rate = step.samples / seconds
        self.computing.append(measured.price.busy[self.trainer.mesh["pp"].rank] / step.seconds)
        found = {
            "loss": step.loss,
            "grad_norm": step.norm,
            "lr": step.lr,
            "samples_per_second": rate,
            "tokens_per_second": rate * self.trainer.laid.window,
            "mfu": rate * self.flops / self.peak,
            "communication": max(0.0, step.seconds - measured.price.seconds) / seconds,
        }
        if self.trainer.config.precision == "float16":
            found |= {"loss_scale": self.trainer.loss_scale.value, "skipped": float(self.trainer.loss_scale.skipped)}
        if self.trainer.laid.plan.pp > 1:
            found["bubble"] = measured.price.bubble
        if not self.trainer.laid.shape.is_language:
            del found["tokens_per_second"]
        else:
            found["tokens"] = step.seen
        for name, value in found.items():
            self.kept.setdefault(name, []).append(value)
        return found

    def split(self, timer: PhaseTimer) -> None:
        """Divide the phase `compute` of a run into what was computed and what was waited, as the measured steps say."""
        if self.computing:
            total = timer.seconds["compute"]
            timer.seconds["compute"] = total * min(1.0, float(np.mean(self.computing)))
            timer.seconds["wait"] = total - timer.seconds["compute"]

    def summary(self) -> dict[str, Any]:
        """Medians over the steps that were measured, and what they are held against. Collective."""
        plan, measured = self.trainer.laid.plan, self.trainer.pipeline.measured()
        medians = {name: float(np.median(values)) for name, values in self.kept.items()}
        found: dict[str, Any] = {name: medians[name] for name in SPEEDS if name in medians}
        found |= {"peak_flops": self.peak, "flops_per_sample": self.flops}
        if "bubble" in medians:
            equal, real = price_schedule(plan.schedule), price_schedule(plan.schedule, times=measured.times)
            found["bubble"] = {"measured": medians["bubble"], "equal_times": equal.bubble, "simulated": real.bubble}
        return found


def gemm_peak(dtype: str, device: Device = HOST) -> float:
    """Floating-point operations/s in a product of two matrices of 1024 x 1024 (4096 on a GPU): the best of five rounds.

    All ranks of a node call it at once, so that what they share, they share here too.
    """
    size = SIZE if not device.is_gpu or isinstance(device, SimulatedGpu) else GPU_SIZE
    a, b = (device.to_device(np.random.default_rng(i).standard_normal((size, size)).astype(dtype)) for i in range(2))
    out, best = device.zeros((size, size), dtype), np.inf
    for _ in range(ROUNDS + 1):  # the first compiles, and is not the best
        device.wait()
        begin = time.perf_counter()
        multiply(a, b, out)
        device.wait()
        best = min(best, time.perf_counter() - begin)
    return 2.0 * size**3 / best
