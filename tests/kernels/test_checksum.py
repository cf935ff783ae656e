"""The checksum of words: the same in both forms, and no word changes unseen."""

from __future__ import annotations

import numpy as np

from hpckit.kernels.checksum import reference, simd


def test_both_forms_give_the_same_number() -> None:
    random = np.random.default_rng(5)
    for n in (0, 1, 7, 64, 1001):
        words = random.integers(0, 2**64, n, dtype=np.uint64)
        for start in (0, 13):
            assert int(simd.checksum(words, start)) == reference.checksum(words, start)


def test_it_is_what_it_was() -> None:
    assert reference.checksum(np.array([0, 1, 2**64 - 1], np.uint64)) == int(
        simd.checksum(np.array([0, 1, 2**64 - 1], np.uint64), 0)
    )
    total = 0
    for number, word in enumerate((5, 6)):  # the definition, in whole numbers
        mixed = (word ^ number * reference.KEY % 2**64) * reference.FACTOR % 2**64
        total = (total + (mixed ^ mixed >> 32)) % 2**64
    assert reference.checksum(np.array([5, 6], np.uint64)) == total


def test_every_bit_and_every_swap_counts() -> None:
    words = np.arange(1.0, 12.0).view(np.uint64)
    before = int(simd.checksum(words, 0))
    for k in range(len(words)):
        for bit in range(64):
            changed = words.copy()
            changed[k] ^= np.uint64(1 << bit)
            assert int(simd.checksum(changed, 0)) != before
    for a in range(len(words)):
        for b in range(a):
            changed = words.copy()
            changed[[a, b]] = changed[[b, a]]
            assert int(simd.checksum(changed, 0)) != before
