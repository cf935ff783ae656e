"""The streaming velocity of a box that changes its shape while its particles stay where they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpckit.comm.device import Device
from hpckit.kernels.particles.integrate.cell.dispatch import stream
from hpckit.particles.migration import wrap
from hpckit.particles.particles import Particles
from hpckit.plan.particles.domain import DomainDecomposition


@dataclass(frozen=True)
class Flow:
    """u(x) = speed + gradient (x - corner): how the points of a cell move whose corner moves with `speed`, and whose
    edges h change by gradient h, with an upper triangular gradient [3, 3].
    """

    gradient: np.ndarray
    corner: np.ndarray
    speed: np.ndarray

    def add(self, particles: Particles, sign: int = 1) -> None:
        """Add it to the velocities of particles, or take it away (sign = -1)."""
        here = particles.velocities, particles.positions, particles.slots
        stream(*here, sign * self.gradient, self.corner, sign * self.speed)

    @contextmanager
    def removed(self, particles: Particles) -> Iterator[None]:
        """Within it particles have their velocities less this one; after it those of before, to the last bit."""
        velocities = particles.velocities[: particles.slots].copy()
        self.add(particles, -1)
        try:
            yield
        finally:
            particles.velocities[: particles.slots] = velocities


def wrap_within(
    flow: Flow | None, domains: DomainDecomposition, positions: Any, velocities: Any, images: Any, device: Device
) -> int:
    """`wrap` records [slots, 4]; a particle that is moved by edges of the cell gets the velocity there. Returns how
    many are lost.
    """
    slots = len(positions)
    if flow is None:
        return wrap(domains, positions, images, slots)
    before = images.copy()
    lost = wrap(domains, positions, images, slots)
    edges = flow.gradient @ domains.cell.matrix.T  # how fast they change
    velocities[:, :3] -= (images - before).astype(np.float64) @ device.to_device(edges.T)
    return lost
