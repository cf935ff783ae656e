"""Evaluation of a trained network: loss and accuracy on held-out data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.apps.train.data import Images, Text
from hpckit.apps.train.trainer import Trainer
from hpckit.nn.layer import Pass
from hpckit.plan.blocks import block

TAG = 1
MOST_DIMS = 6
MOST_MISREAD = 24  # images in it
TEXT_SAMPLES = 64  # of a text at a validation, if the settings do not say


@dataclass(frozen=True)
class Evaluation:
    """loss: mean, nats a token or image. accuracy: share of answers whose likeliest class is right. samples: of it.

    answers: the likeliest class of each image, int32 [samples]; of a text None.
    """

    loss: float
    accuracy: float
    samples: int
    answers: np.ndarray | None = None


def evaluate(trainer: Trainer, data: Text | Images, most: int | None = None) -> Evaluation:
    """At most `most` samples, spread evenly over the data, forward only; always the same ones. Collective; the same
    on every rank. most: by default 64 of a text, all of the images.

    Stages hand on one part after another, so that the ranks of a pipeline work at the same time.
    """
    if most is None:
        most = TEXT_SAMPLES if isinstance(data, Text) else len(data)
    samples = min(most, len(data))
    taken = np.arange(samples) * len(data) // samples
    answers = None if isinstance(data, Text) else np.zeros(samples, np.int32)
    first, own = block(samples, trainer.replicas, trainer.replica)
    at_once = max(1, trainer.config.batch.size // (trainer.replicas * trainer.laid.plan.microbatches))
    sums = np.zeros(3)  # loss, right ones, targets
    leaving: list[MPI.Request] = []
    for begin in range(first, first + own, at_once):
        part = slice(begin, min(begin + at_once, first + own))
        x, targets = data.take(taken[part])
        logits = _forward(trainer, x, leaving)
        if logits is not None:
            rows = logits.reshape(-1, logits.shape[-1])
            likeliest = trainer.device.to_host(rows[:, : trainer.laid.shape.vocab].argmax(axis=1))
            right = (likeliest == targets.reshape(-1)).sum()
            if answers is not None:
                answers[part] = likeliest
            sums += [float(trainer.loss.forward(logits, targets)[0]), right, targets.size]
    MPI.Request.Waitall(leaving)
    trainer.mesh.comm.Allreduce(MPI.IN_PLACE, sums)
    if answers is not None:
        trainer.mesh.comm.Allreduce(MPI.IN_PLACE, answers)
    return Evaluation(float(sums[0] / sums[2]), float(sums[1] / sums[2]), samples, answers)


def answers_record(data: Images, answers: np.ndarray, classes: int) -> dict[str, Any]:
    """How images were classified: "confusion"[class][answer] counts them, "misread" holds the first wrong ones.

    answers: of all or of evenly spread images, as `evaluate` gives them.
    """
    images, right = data.take(np.arange(len(answers)) * len(data) // len(answers))
    confusion = np.zeros((classes, classes), np.int64)
    np.add.at(confusion, (right, answers), 1)
    wrong = np.flatnonzero(right != answers)[:MOST_MISREAD]
    misread = [
        {"class": int(right[i]), "answer": int(answers[i]), "pixels": images[i, ..., 0].astype(float).tolist()}
        for i in wrong
    ]
    return {"confusion": confusion.tolist(), "misread": misread}


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
        for number in plan.partition.layers(stage):
            here = layers[number].forward(here, Pass(training=False))[0]
        if stage + 1 < len(home) and home[stage + 1] != line.rank:
            form = np.full(MOST_DIMS, -1, np.int64)
            form[: here.ndim] = here.shape
            here = np.ascontiguousarray(trainer.device.to_host(here))
            leaving += [line.Isend(each, home[stage + 1], TAG) for each in (form, here)]
    return here if home[-1] == line.rank else None
