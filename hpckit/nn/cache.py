"""What attention keeps of the tokens of a text, so that the next one costs no more than its own work."""

from __future__ import annotations

from typing import Any

import numpy as np

from hpckit.errors import InputError
from hpckit.kernels.device_array import from_host


class KeyValues:
    """Keys and values of up to `capacity` tokens of each sample, for all attention layers of a model.

        cache = KeyValues(capacity=1024)
        logits, _ = model.forward(prompt, Pass(training=False, cache=cache))  # [1, n] tokens
        cache.length += n
        logits, _ = model.forward(next_token, Pass(training=False, cache=cache))  # [1, 1]: it sees the n before
        cache.length += 1

    length: tokens that are kept. With a cache a forward pass gives the logits of the tokens it is given, which come
    behind those; nothing is saved for backward.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity, self.length = capacity, 0
        self._kept: dict[str, Any] = {}

    def keep(self, name: str, tokens: Any) -> Any:
        """Keep keys and values [B, n, 2 kv_heads, d] of the layer `name`; those of all tokens so far, and room behind.

        Raises `InputError` where there is no room left.
        """
        batch, count, heads, width = tokens.shape
        if self.length + count > self.capacity:
            raise InputError(f"{self.length} + {count} tokens are more than the {self.capacity} that there is room for")
        if name not in self._kept:
            self._kept[name] = from_host(np.zeros((batch, self.capacity, heads, width), tokens.dtype), tokens)
        kept = self._kept[name]
        kept[:, self.length : self.length + count] = tokens
        return kept
