"""Evaluation of a trained network: loss and accuracy on held-out data, and text generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.apps.train.data import Images, Text
from hpckit.apps.train.trainer import Trainer
from hpckit.nn.layer import KeyValues, Layer, Pass
from hpckit.plan.blocks import block

TAG = 1
MOST_DIMS = 6


@dataclass(frozen=True)
class Evaluation:
    """loss: mean, nats a token or image. accuracy: share of answers whose likeliest class is right. samples: of it."""

    loss: float
    accuracy: float
    samples: int


def evaluate(trainer: Trainer, data: Text | Images, most: int) -> Evaluation:
    """The first `most` samples of the data, dealt to the replicas, forward only. Collective; the same on every rank.

    Stages hand on one part after another, so that the ranks of a pipeline work at the same time.
    """
    samples = min(most, len(data))
    first, own = block(samples, trainer.replicas, trainer.replica)
    at_once = max(1, trainer.config.batch.size // (trainer.replicas * trainer.laid.plan.microbatches))
    sums = np.zeros(3)  # loss, right ones, targets
    leaving: list[MPI.Request] = []
    most_own = block(samples, trainer.replicas, 0)[1]
    for begin in range(first, first + most_own, at_once):
        if begin >= first + own:  # other replicas have one sample more, and gather parameters with this one
            for stage in trainer.laid.plan.stages_of(trainer.mesh["pp"].rank):
                trainer.pipeline.need(stage)
            continue
        x, targets = data.take(np.arange(begin, min(begin + at_once, first + own)))
        logits = _forward(trainer, x, leaving)
        if logits is not None:
            rows = logits.reshape(-1, logits.shape[-1])
            chosen = trainer.device.to_host(rows[:, : trainer.laid.shape.vocab].argmax(axis=1))
            right = (chosen == targets.reshape(-1)).sum()
            sums += [float(trainer.loss.forward(logits, targets)[0]), right, targets.size]
    MPI.Request.Waitall(leaving)
    trainer.mesh.comm.Allreduce(MPI.IN_PLACE, sums)
    return Evaluation(sums[0] / sums[2], sums[1] / sums[2], samples)


def _forward(trainer: Trainer, x: np.ndarray, leaving: list[MPI.Request]) -> Any:
    """The logits of a part of the data on the rank with the last stage, None on the others."""
    line, plan, layers = trainer.mesh["pp"], trainer.laid.plan, trainer.laid.model.layers
    home = plan.schedule.rank_of
    here = trainer.device.to_device(x) if x.dtype.kind == "f" else x
    for stage in plan.stages_of(line.rank):
        if stage and home[stage - 1] != line.rank:
            form = np.empty(MOST_DIMS, np.int64)
            line.Recv(form, home[stage - 1], TAG)
            came = np.empty(form[form >= 0], trainer.config.precision)
            line.Recv(came, home[stage - 1], TAG)
            here = trainer.device.to_device(came)
        trainer.pipeline.need(stage)
        for number in plan.partition.layers(stage):
            here = layers[number].forward(here, Pass(training=False))[0]
        if stage + 1 < len(home) and home[stage + 1] != line.rank:
            form = np.full(MOST_DIMS, -1, np.int64)
            form[: here.ndim] = here.shape
            here = np.ascontiguousarray(trainer.device.to_host(here))
            leaving += [line.Isend(each, home[stage + 1], TAG) for each in (form, here)]
    return here if home[-1] == line.rank else None


def continued(
    model: Layer,
    tokens: np.ndarray,
    count: int,
    *,
    context: int,
    vocab: int,
    temperature: float = 1.0,
    top_k: int = 0,
    seed: int = 0,
) -> np.ndarray:
    """The `tokens` (int32 [n], n >= 1) and `count` more, each chosen by `chosen` from what the model expects.

    The model sees the last `context` tokens. The same seed gives the same text. While the text fits the context, a
    token costs its own work and a look at the keys and values before (`KeyValues`); behind that every token's position
    in the window changes, and the window is worked out anew.
    """
    text = list(map(int, tokens))
    random = np.random.default_rng(seed)
    cache = KeyValues(min(context, len(text) + count))
    for _ in range(count):
        if len(text) <= context:
            window, step = text[cache.length :], Pass(training=False, cache=cache)
        else:
            window, step = text[-context:], Pass(training=False)
        logits = model.forward(np.array([window], np.int32), step)[0]
        cache.length += len(window) if step.cache else 0
        last = np.asarray(logits).reshape(len(window), -1)[-1, :vocab]
        text.append(chosen(last, temperature, top_k, random))
    return np.array(text, np.int32)


def chosen(logits: np.ndarray, temperature: float, top_k: int, random: Any) -> int:
    """A token drawn with the probabilities softmax(logits / temperature), among the `top_k` largest (0: among all).

    Temperature 0 is greedy: the largest logit, of equal ones the first.
    """
    if temperature == 0:
        return int(logits.argmax())
    values = logits.astype(np.float64) / temperature
    if 0 < top_k < len(values):
        least = np.partition(values, -top_k)[-top_k]
        values = np.where(values >= least, values, -np.inf)
    sums = np.cumsum(np.exp(values - values.max()))
    drawn = min(random.random() * sums[-1], np.nextafter(sums[-1], 0))  # below the end even where it is rounded up
    return int(np.searchsorted(sums, drawn, side="right"))
