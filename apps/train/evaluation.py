"""Evaluation of a trained network: loss and accuracy on held-out data, and text generation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.apps.train.data import Images, Text
from hpckit.apps.train.trainer import Trainer
from hpckit.comm.agree import sum_of_ranks
from hpckit.nn.layer import KeyValues, Layer, Pass
from hpckit.plan.blocks import block

ANSWERS = "answers.json"  # in the output of a run that classifies images
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
    most_own = block(samples, trainer.replicas, 0)[1]
    for begin in range(first, first + most_own, at_once):  # as often on all replicas, which gather shards together
        part = slice(min(begin, first + own), min(begin + at_once, first + own))
        x, targets = data.take(taken[part])
        logits = trainer.pipeline.forward(x)
        if logits is not None:
            rows = logits.reshape(-1, logits.shape[-1])
            likeliest = trainer.device.to_host(rows[:, : trainer.laid.shape.vocab].argmax(axis=1))
            right = (likeliest == targets.reshape(-1)).sum()
            if answers is not None:
                answers[part] = likeliest
            sums += [float(trainer.loss.forward(logits, targets)[0]), right, targets.size]
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
