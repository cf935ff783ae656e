"""Text from a language model, token by token."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.nn.layer import Layer, Pass


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

    The model sees the last `context` tokens. The same seed gives the same text.
    """
    text = list(map(int, tokens))
    random = np.random.default_rng(seed)
    for _ in range(count):
        window = np.array([text[-context:]], np.int32)
        logits = model.forward(window, Pass(training=False))[0]
        last = np.asarray(logits).reshape(window.size, -1)[-1, :vocab]
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
