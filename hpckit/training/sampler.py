"""The samples of each rank: one global counter is the position in the data, for any number of ranks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError
from hpckit.plan.blocks import block, block_starts
from hpckit.plan.inputs.numbers import count as whole
from hpckit.plan.pipeline.parts import subtrees

ROUNDS = 6  # of the Feistel network; 4 already look random (Luby and Rackoff 1988)


class Share(NamedTuple):
    """One replica's part of a batch.

    indices: of its samples in the data set, int64[n]; n may be 0 at the end of the data. first_sample: the global
    number of the first one, counted over all epochs. total: samples of the batch over all replicas. epoch: from 0.
    """

    indices: npt.NDArray[np.int64]
    first_sample: int
    total: int
    epoch: int


class Sampler:
    """Deals `samples` samples in batches of `batch`, every epoch in an order of its own.

        sampler = hp.training.Sampler(len(data), batch=64, seed=1)
        for _ in range(steps):
            share = sampler.take(replica=mesh["dp"].rank, replicas=mesh["dp"].size)

    `position`, the number of samples dealt so far, is its whole state, for checkpoints. From there any number of
    replicas continues with the same batches, and the batch size may change. The order comes from a permutation that is
    computed number by number, so that nothing of the data's size is stored or drawn.

    A batch does not cross the end of an epoch: the last one is smaller, or with `drop_last` is left out. shuffle:
    False keeps the order of the data. Raises `InputError` for invalid numbers.
    """

    def __init__(
        self,
        samples: int,
        batch: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        position: int = 0,
        drop_last: bool = False,
    ) -> None:
        self.samples, self.batch = whole(samples, "the number of samples"), whole(batch, "the batch")
        self.seed, self.position = whole(seed, "the seed"), whole(position, "the position")
        self.shuffle, self.drop_last = shuffle, drop_last
        if self.samples < 1 or self.batch < 1 or self.position < 0 or self.seed < 0:
            raise InputError(
                f"{samples} samples in batches of {batch} from position {position}, seed {seed}",
                do="give 1 sample and a batch of 1 or more, a position and a seed of 0 or more",
            )
        if drop_last and self.batch > self.samples:
            raise InputError(
                f"a batch of {batch} of {samples} samples, where smaller batches are dropped",
                do=f"take a batch of at most {samples}, or keep the last one",
            )

    @property
    def epoch(self) -> int:
        """The epoch of the next batch, from 0."""
        return self._begin() // self.samples

    def take(self, replica: int = 0, replicas: int = 1, parts: int = 0) -> Share:
        """The samples of one replica in the next batch; advances the position. Every replica must take every batch.

        The batch is cut into contiguous blocks, in the order of the replicas, whose sizes differ by at most 1. parts:
        cut it into so many, of which each replica gets those that `TrainingPlan` with such parts gives it.
        """
        if not 0 <= replica < replicas:
            raise InputError(f"replica {replica} of {replicas}", do="count replicas from 0")
        first = self._begin()
        epoch, place = divmod(first, self.samples)
        total = min(self.batch, self.samples - place)
        start, size = block(total, replicas, replica)
        if parts:
            node, starts = subtrees(parts, replicas)[replica], block_starts(total, parts)
            start, size = (int(n) for n in (starts[node.first], starts[node.first + node.parts] - starts[node.first]))
        numbers = np.arange(place + start, place + start + size, dtype=np.int64)
        if self.shuffle:
            numbers = permuted(numbers, self.samples, self.seed, epoch)
        self.position = first + total
        return Share(numbers, first + start, total, epoch)

    def _begin(self) -> int:
        """The start of the next batch: at the next epoch, if the rest of this one is dropped."""
        left = self.samples - self.position % self.samples
        return self.position + left if self.drop_last and left < self.batch else self.position


def permuted(numbers: npt.NDArray[np.int64], count: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The images of `numbers`, each below `count`, under a random permutation of 0 … count - 1: int64, of their shape.

    A Feistel network on the next larger square of a power of two, walked until it leads below `count` again (Black and
    Rogaway 2002, "Ciphers with arbitrary finite domains").
    """
    half = max(1, ((count - 1).bit_length() + 1) // 2)
    mask, shift = np.uint64((1 << half) - 1), np.uint64(half)
    keys = _mixed(np.arange(1, ROUNDS + 1, dtype=np.uint64) + _mixed(np.uint64(epoch) + _mixed(np.uint64(seed))))
    found = numbers.astype(np.uint64)
    outside = np.ones(found.shape, bool)
    while outside.any():
        left, right = found[outside] >> shift, found[outside] & mask
        for key in keys:
            left, right = right, left ^ (_mixed(right ^ key) & mask)
        found[outside] = left << shift | right
        outside = found >= np.uint64(count)
    return found.astype(np.int64)


def _mixed(words: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    """A hash of words where each bit depends on all: the finalizer of SplitMix64 (Steele et al. 2014)."""
    z = np.atleast_1d(words) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
