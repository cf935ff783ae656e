"""Guesses of the next tokens from the text itself: what followed where it said the same before.

A guess is checked by computing it with the step: the token of each place is chosen as without guesses (greedy, or with
the number that is drawn for the place), and guesses count up to the first that differs. So the text is the same with
and without them, and a sampled one has the same distribution (Leviathan et al., "Fast inference from transformers via
speculative decoding", 2023, where the draft is certain of its tokens).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LONGEST, SHORTEST = 4, 2  # tokens at the end of the text that are looked for
WINDOW = 4096  # tokens that are looked through


def guessed(tokens: Sequence[int], count: int) -> tuple[int, ...]:
    """Up to `count` tokens that followed the last place where the text had its last tokens: as many as occur again."""
    every = np.array(tokens[-WINDOW:], np.int64)
    for size in range(LONGEST, SHORTEST - 1, -1):
        if len(every) <= size:
            continue
        windows = np.lib.stride_tricks.sliding_window_view(every[:-1], size)
        places = np.flatnonzero((windows == every[-size:]).all(axis=1))
        if len(places):
            begin = int(places[-1]) + size
            return tuple(every[begin : begin + count].tolist())
    return ()
