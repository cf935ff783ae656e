"""Evaluation of a trained network: loss and accuracy on held-out data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.apps.train.data import Images, TextSamples
from hpckit.apps.train.trainer import Trainer
from hpckit.comm.agree import sum_of_ranks
from hpckit.plan.blocks import block

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


def evaluate(trainer: Trainer, data: TextSamples | Images, most: int | None = None) -> Evaluation:
    """At most `most` samples, spread evenly over the data, forward only; always the same ones. Collective; the same
    on every rank. most: by default 64 of a text, all of the images.

    Stages hand on one part after another, so that the ranks of a pipeline work at the same time.
    """
    if most is None:
        most = TEXT_SAMPLES if isinstance(data, TextSamples) else len(data)
    samples = min(most, len(data))
    taken = np.arange(samples) * len(data) // samples
    answers = None if isinstance(data, TextSamples) else np.zeros(samples, np.int32)
    first, own = block(samples, trainer.replicas, trainer.replica)
    at_once = max(1, trainer.config.batch.size // (trainer.replicas * trainer.laid.plan.microbatches))
    sums = np.zeros(3)  # loss, right ones, targets
    most_own = block(samples, trainer.replicas, 0)[1]
    for begin in range(first, first + most_own, at_once):  # as often on all replicas, which gather shards together
        part = slice(min(begin, first + own), min(begin + at_once, first + own))
        x, targets = data.take(taken[part])
        logits = trainer.pipeline.forward(x)
        if logits is not None:
            targets = trainer.pipeline.context.own(targets)  # of whose tokens the logits are
            likeliest = trainer.device.to_host(trainer.loss.answers(logits))
            right = (likeliest == targets.reshape(-1)).sum()
            loss = float(trainer.loss.forward(logits, targets)[0])
            if trainer.pipeline.tensor.rank:
                continue  # the first rank of each group of tp counts
            if answers is not None:
                answers[part] = likeliest
            sums += [loss, right, targets.size]
    trainer.pipeline.finish()
    sum_of_ranks(trainer.mesh.comm, sums)
    if answers is not None:
        sum_of_ranks(trainer.mesh.comm, answers)
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
