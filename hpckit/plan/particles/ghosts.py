"""Ghosts as a plan: the particles, shifted by box lengths, that every rank sends to every other."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from hpckit.plan.particles.domain import DomainDecomposition
from hpckit.plan.protocol import EMPTY, NOTHING, Claim, Ends, Floats, Ints, Step

POSITION = 24.0  # bytes: what a step sends of a ghost


class Ghosts(NamedTuple):
    """Some ghosts: sender, receiver, number of the particle, int64[n] each, and `image`: its shift in box lengths,
    int64[n, 3].
    """

    sender: Ints
    receiver: Ints
    particle: Ints
    image: Ints

    def of(self, chosen: npt.NDArray[np.bool_] | Ints) -> Ghosts:
        """The chosen ghosts."""
        return Ghosts(*(each[chosen] for each in self))


def ghosts_of(domains: DomainDecomposition, rank: int, reach: float, positions: Floats) -> Ghosts:
    """The ghosts that a rank with particles at `positions` [n, 3] sends: by receiver, then segment, then particle."""
    options, segments = domains.ghosts(rank, reach)
    positions = domains.cell.straight(positions)
    within = [
        [(positions[:, d] >= one.low) & (positions[:, d] < one.high) for one in each] for d, each in enumerate(options)
    ]
    found = []
    for segment, (x, y, z) in zip(segments[1:], list(itertools.product(*within))[1:], strict=True):
        particle = np.flatnonzero(x & y & z)
        receiver, image = np.full(len(particle), segment.peer), np.tile(segment.image, (len(particle), 1))
        found.append(Ghosts(np.full(len(particle), rank), receiver, particle, image))
    every = _joined(found)
    return every.of(np.argsort(every.receiver, kind="stable"))


@dataclass(frozen=True, eq=False)
class GhostPlan:
    """The ghosts of one rebuild: every particle within `reach` of a domain, for each dim by itself, is sent to its
    rank. In a tilted cell each dim is a straight coordinate, of which `reach` spans `Cell.reaches`.

    positions: float64[n, 3] of all particles, wrapped into the box; a particle's number is its row. sent: the ghosts,
    one message for all from one rank to another. taken: int64[ranks, ranks], the ghosts that the rank of the row
    receives from that of the column, as reported by the ranks; None: as many as are sent. node: of each rank, whose
    ranks share memory; None: messages only. share: the number of particles that each one represents. itemsize: bytes
    that are sent of a ghost.

    The plan's cells on each rank are first the ghosts that it sends, then the ghosts that it must have, and last one
    for ghosts that it must not have. The proof compares them with the images of all particles, examined one by one.
    """

    domains: DomainDecomposition
    reach: float
    positions: Floats
    sent: Ghosts
    taken: Ints | None = None
    node: Ints | None = None
    share: float = 1.0
    itemsize: float = POSITION

    @classmethod
    def of(cls, domains: DomainDecomposition, reach: float, positions: Floats, **more: object) -> Self:
        """The plan of the ghosts that all ranks send by `DomainDecomposition.ghosts`."""
        owners, found = domains.owners(positions), []
        for rank in range(domains.topology.size):
            own = np.flatnonzero(owners == rank)
            each = ghosts_of(domains, rank, reach, positions[own])
            found.append(each._replace(particle=own[each.particle]))
        return cls(domains, reach, positions, _joined(found), **more)  # type: ignore[arg-type]

    @property
    def ranks(self) -> int:
        """How many ranks."""
        return self.domains.topology.size

    def title(self) -> str:
        """What it is, in a few words."""
        return f"ghosts of {len(self.positions) * self.share:.0f} particles within {self.reach:g} on {self.ranks} ranks"

    @property
    def bytes_sent(self) -> Ints:
        """Bytes that each rank sends to others in a step: int64[ranks]."""
        others = self.sent.sender[self.sent.sender != self.sent.receiver]
        return (self.itemsize * self.share * np.bincount(others, minlength=self.ranks)).astype(np.int64)

    def steps(self) -> Iterator[Step]:
        """All messages at once, with the copies in the memory of a rank and of a node."""
        sent = self.sent
        near = sent.sender == sent.receiver if self.node is None else self.node[sent.sender] == self.node[sent.receiver]
        lag = 1
        for place, chosen in (("memory", near), ("messages", ~near)):
            if chosen.any():
                yield self._step(np.flatnonzero(chosen), place, lag)
                lag += 1

    def _step(self, rows: Ints, place: str, lag: int) -> Step:
        """The messages of these rows of `sent`, which are sorted by sender and receiver; they leave by direction."""
        sent, ranks = self.sent.of(rows), self.ranks
        pair, first = np.unique(sent.sender * ranks + sent.receiver, return_index=True)
        last = np.append(first[1:], len(rows))
        sender, receiver = pair // ranks, pair % ranks
        must, (_, cell, give) = self._must, self._given
        cells = give + np.minimum(must.cell_of(sent), must.most)
        counts, starts = last - first, first
        if self.taken is not None:
            counts = self.taken[receiver, sender]
            starts = np.cumsum(counts) - counts
            cells = np.concatenate(
                [
                    np.append(cells[a:b], np.full(max(0, n - (b - a)), give + must.most))[:n]
                    for a, b, n in zip(first, last, counts, strict=True)
                ]
            )
        amount = None if self.share == 1.0 else self.share
        leave = np.lexsort((self.domains.direction(sender, receiver), sender))
        step = Step(
            Ends(receiver[leave], first[leave], last[leave], sender[leave], cells=cell[rows]),
            Ends(sender, starts, starts + counts, receiver, cells=cells),
            itemsize=self.itemsize,
            place=place,  # type: ignore[arg-type]
            lag=lag,
            name=f"ghosts by {place}",
            texts=lambda: list(map(str, (last - first)[leave])),
        )
        if amount is None:
            return step
        weighed = [
            replace(end, amount=amount * n) for end, n in ((step.sends, (last - first)[leave]), (step.receives, counts))
        ]
        return replace(step, sends=weighed[0], receives=weighed[1])

    @functools.cached_property
    def _given(self) -> tuple[Ints, Ints, int]:
        """The images sent: sender and index of each, once for all its receivers; for each row of `sent` the place of
        its image among those of the sender; and the largest number of images of a rank.
        """
        index = self._must.index(self.sent.particle, self.sent.image)
        given, place = np.unique(np.stack([self.sent.sender, index]), axis=1, return_inverse=True)
        cell = np.arange(given.shape[1]) - np.searchsorted(given[0], given[0])
        return given, cell[place.reshape(-1)], int(cell.max(initial=-1)) + 1

    @functools.cached_property
    def _must(self) -> Expected:
        return Expected(self.domains, self.reach, self.positions)

    def claim(self) -> Claim:
        """Each rank gives images of its own particles; it holds those within reach of its domain, each once."""
        must, sent, (_, cell, give) = self._must, self.sent, self._given
        start = np.full((self.ranks, give + must.most + 1), NOTHING)
        own = self.domains.owners(self.positions)[sent.particle] == sent.sender
        start[sent.sender, cell] = np.where(own, must.index(sent.particle, sent.image), NOTHING)
        end = start.copy()
        end[:, give:] = EMPTY
        end[must.rank, give + must.cell] = must.number
        return Claim(
            start,
            end,
            node=np.arange(self.ranks) if self.node is None else self.node,
            cell_name=lambda rank, cell: (
                f"the ghost {cell - give}" if cell >= give else f"the particle {cell} it sends"
            ),
            index_name=must.name,
        )


class Expected:
    """All ghosts that ranks must have, found by examining every image of every particle.

    rank, cell, number: int64[n], of each ghost: its receiver, its place among those of the receiver, and the index of
    particle and image. most: the largest number of one rank.
    """

    def __init__(self, domains: DomainDecomposition, reach: float, positions: Floats) -> None:
        spans, straight = domains.cell.reaches(reach), domains.cell.straight(positions)
        self._images = np.where(domains.periodic, np.ceil(spans / domains.lengths), 0).astype(np.int64)
        self._around = 2 * self._images + 1
        self._ranks = domains.topology.size
        owners, found = domains.owners(positions), []
        for rank in range(self._ranks):
            particle, image = self._within(*domains.owned(rank), spans, straight, domains.lengths)
            others = (owners[particle] != rank) | image.any(axis=1)
            found.append(np.sort(self.index(particle[others], image[others])))
        counts = np.array([len(each) for each in found])
        self.number, self.most = np.concatenate(found), int(counts.max(initial=0))
        self.rank = np.repeat(np.arange(self._ranks), counts)
        self.cell = np.arange(len(self.number)) - np.repeat(np.cumsum(counts) - counts, counts)
        self._key = self.number + self.rank * self._span(len(positions))

    def _span(self, particles: int) -> int:
        self._particles = particles
        return particles * math.prod(map(int, self._around))

    def _within(
        self, low: Floats, high: Floats, reach: Floats, positions: Floats, lengths: Floats
    ) -> tuple[Ints, Ints]:
        """The particles and images that lie within reach of a box, for each dim."""
        options = []
        for d in range(3):
            each = []
            for image in range(-int(self._images[d]), int(self._images[d]) + 1):
                place = positions[:, d] + image * lengths[d]
                each.append((image, (place >= low[d] - reach[d]) & (place < high[d] + reach[d])))
            options.append(each)
        particles, images = [], []
        for (i, x), (j, y) in itertools.product(*options[:2]):
            both = x & y
            for k, z in options[2]:
                found = np.flatnonzero(both & z)
                particles.append(found)
                images.append(np.tile((i, j, k), (len(found), 1)))
        return np.concatenate(particles), np.concatenate(images)

    def index(self, particle: Ints, image: Ints) -> Ints:
        """The index of a particle and its image; the index of no ghost if the image is out of reach of all domains."""
        far = (np.abs(image) > self._images).any(axis=1)
        place = image + self._images
        number = ((particle * self._around[0] + place[:, 0]) * self._around[1] + place[:, 1]) * self._around[2]
        return np.where(far, NOTHING, number + place[:, 2])

    def cell_of(self, sent: Ghosts) -> Ints:
        """The place of each ghost among those of its receiver; `most` for a ghost that it must not have."""
        index = self.index(sent.particle, sent.image)
        key = index + sent.receiver * self._span(self._particles)
        at = np.minimum(np.searchsorted(self._key, key), max(0, len(self._key) - 1))
        known = (self._key[at] == key) & (index >= 0) if len(self._key) else np.zeros(len(key), bool)
        return np.where(known, self.cell[at] if len(self._key) else 0, self.most)

    def name(self, index: int) -> str:
        """Which particle and image a number stands for."""
        rest, z = divmod(index, int(self._around[2]))
        rest, y = divmod(rest, int(self._around[1]))
        particle, x = divmod(rest, int(self._around[0]))
        image = tuple(int(a - b) for a, b in zip((x, y, z), self._images, strict=True))
        return f"particle {particle}" + (f" moved by {image} boxes" if any(image) else "")


def _joined(parts: list[Ghosts]) -> Ghosts:
    none = np.zeros(0, np.int64)
    each = [*parts, Ghosts(none, none, none, np.zeros((0, 3), np.int64))]
    return Ghosts(*map(np.concatenate, zip(*each, strict=True)))
