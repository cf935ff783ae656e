"""Layers dealt to the stages of a pipeline by what they take on the machine at hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from mpi4py import MPI

from hpckit.apps.train.config import Config
from hpckit.apps.train.layout import Layout
from hpckit.comm.device import Device
from hpckit.nn.loss import CrossEntropy
from hpckit.plan.pipeline.partition import partition_layers
from hpckit.training.measure import measure_layers


def balanced(config: Config, laid: Layout, comm: MPI.Intracomm, device: Device) -> Layout:
    """The layout with layers on stages that take equally long, by a microbatch that all ranks measure at once.

    Without a pipeline, on GPUs and with `pipeline.balance = "arithmetic"` it stays as it is. What is learned does not
    depend on it, to the bit. Collective.
    """
    plan = laid.plan
    if plan.schedule.stages == 1 or device.is_gpu or config.pipeline.balance == "arithmetic":
        return laid
    x, targets = laid.data.training.take(np.arange(plan.batch // (plan.dp * plan.microbatches)))
    loss = CrossEntropy(laid.shape.vocab)
    times = measure_layers(laid.model, loss, x, targets, dtype=config.precision, comm=comm)
    partition = partition_layers([layer.seconds for layer in times], plan.schedule.stages)
    return replace(laid, plan=replace(plan, partition=partition))
