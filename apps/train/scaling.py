"""The scaling model of training."""

from __future__ import annotations

from typing import Any

from hpckit.apps.common.scaling import Load, sums
from hpckit.apps.train.config import Config
from hpckit.apps.train.layout import layout, plan_of
from hpckit.apps.train.settings.mesh import Ranks
from hpckit.plan.pipeline.price import price_schedule

UNIT = "samples"


def stepped(config: Config, steps: int) -> dict[str, Any]:
    """One small validation at the end, no text."""
    quiet: dict[str, Any] = {"time.validate_every": 0, "time.validate_samples": 1, "optimizer.warmup": 0}
    return {"time.steps": steps, **quiet, **({"sample.tokens": 0} if config.model.is_language else {})}


def grown(config: Config, ranks: int) -> dict[str, Any]:
    """More samples a step."""
    return {"batch.size": config.batch.size * ranks}


def load(config: Config, ranks: int) -> Load:
    """The sum of the gradients over the replicas. With a pipeline its idle share counts as work, at equal times of all
    stages.
    """
    alone = {"batch": config.batch.model_copy(update={"size": 1, "microbatches": 1}), "mesh": Ranks()}
    laid = layout(config.model_copy(update=alone), 1)  # so many ranks may want more samples than there are
    plan = plan_of(config, laid.shape.products(laid.window), laid.shape.tied, ranks)
    bubble = price_schedule(plan.schedule).bubble if plan.pp > 1 else 0.0
    nbytes = sum(parameter.size for parameter in laid.model.parameters()) * config.gradient_bytes
    return Load(config.batch.size / ranks / (1 - bubble), sums(plan.replicas, nbytes / (plan.pp * plan.tp)))
