"""A network that passes messages between particles, in layers of `hpckit.nn`: a potential, trained on energies and
forces.

The features of a particle are made of what is near it, exchanged with other ranks (`Brick.forward`), and heard by its
neighbors through filters of the distance (Schütt et al., J. Chem. Phys. 148, 2018, 241722); its energy is made of both.
Derivatives go backward by the same way, those by features of ghosts to their owners (`Brick.back`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.errors import InputError
from hpckit.md.bridges.brick import BrickPotential
from hpckit.md.bridges.fit import ReferenceFrame
from hpckit.nn.activations import activation_of
from hpckit.nn.layer import Pass, Sequential
from hpckit.nn.linear import Linear
from hpckit.nn.optimizers import AdamW
from hpckit.nn.parameters import Parameters

Floats = npt.NDArray[np.float64]
STEP = 1e-5  # longest move of a particle, in units of the cutoff, of the difference of two gradients


class Crystal:
    """The particles of one periodic box as a brick without ghosts: images count as the particles themselves."""

    def __init__(self, positions: npt.ArrayLike, box: npt.ArrayLike, types: npt.ArrayLike, cutoff: float) -> None:
        places, edges = np.asarray(positions, np.float64), np.asarray(box, np.float64)
        self.own, self.types = len(places), np.asarray(types, np.int64)
        most = [range(-n, n + 1) for n in np.ceil(cutoff / edges).astype(int)]
        found = []
        for image in product(*most):
            d = places[None] - places[:, None] + np.array(image) * edges
            near = (d * d).sum(axis=2) < cutoff * cutoff
            if not any(image):
                np.fill_diagonal(near, False)
            first, second = np.nonzero(near)
            found.append((first, second, d[first, second]))
        self.first, self.second, self.vectors = (np.concatenate(each) for each in zip(*found, strict=True))

    def forward(self, features: Floats) -> Floats:
        """There are no ghosts."""
        return features

    def back(self, gradients: Floats) -> Floats:
        """There are no ghosts."""
        return gradients


@dataclass(frozen=True)
class Errors:
    """Root mean squares of the errors of a component of a force, and of the energy a particle."""

    force: float
    energy: float


class MessagePassing:
    """A network for `types` types of particles: `potential()` is for a `System`, `train` fits it.

    cutoff: how far a particle sees; it hears what its neighbors see. width: features of a particle; waves: functions of
    the distance. seed: of the initial weights. Weights are in `parameters`. Raises `InputError` for sizes below 1.
    """

    def __init__(self, types: int, cutoff: float, width: int = 16, waves: int = 8, seed: int = 0) -> None:
        if min(types, width, waves) < 1 or not cutoff > 0:
            raise InputError(f"a network of {types} types, {width} features, {waves} waves and the cutoff {cutoff:g}")
        self.types, self.cutoff, self.width, self.waves = types, cutoff, width, waves
        inputs = types * (waves + 1)
        self.see = Sequential([Linear(inputs, width, "see.0"), activation_of("silu"), Linear(width, width, "see.1")])
        self.filter = Linear(waves, width, "filter", bias=False)
        self.tell = Sequential([Linear(2 * width, width, "tell.0"), activation_of("silu"), Linear(width, 1, "tell.1")])
        every = [*self.see.parameters(), *self.filter.parameters(), *self.tell.parameters()]
        self.parameters = Parameters(every, np.float64)
        self.parameters.initialize(seed)
        self.offset = 0.0  # energy a particle, beside the network's

    def potential(self) -> BrickPotential:
        """The network as the interaction of a `System`."""
        return BrickPotential(self, self.cutoff, self.types)

    def __call__(self, brick: Any) -> tuple[Floats, Floats]:
        """Energies of own particles [own], and derivatives by the vectors [m, 3]; see `BrickPotential`."""
        return self._run(brick, brick.vectors)

    def _waves(self, r: Floats) -> tuple[Floats, Floats]:
        """Functions of the distance, which end at the cutoff, and their derivatives."""
        x, centers = r[:, None] / self.cutoff, np.linspace(0.25, 0.95, self.waves)
        narrow = (1.5 * self.waves) ** 2
        fade, drop = (1 - x * x) ** 2, -4 * x * (1 - x * x)
        wave = np.exp(-narrow * (x - centers) ** 2)
        inside = x < 1
        values, slopes = fade * wave, (drop - 2 * narrow * (x - centers) * fade) * wave
        return np.where(inside, values, 0.0), np.where(inside, slopes / self.cutoff, 0.0)

    def _run(self, brick: Any, vectors: Floats, scale: float | None = None) -> tuple[Floats, Floats]:
        """Energies and derivatives; with a scale, that times the derivatives by the weights is added to `grad`s."""
        n, first, second, step, w = brick.own, brick.first, brick.second, Pass(), self.width
        r = np.sqrt((vectors * vectors).sum(axis=1))
        waves, slopes = self._waves(r)
        kinds = brick.types[second]
        seen = np.zeros((n, self.types, self.waves + 1))
        np.add.at(seen[:, :, : self.waves], (first, kinds), waves)
        seen[np.arange(n), brick.types[:n], self.waves] = 1.0
        features, saw = self.see.forward(seen.reshape(n, -1), step)
        every = brick.forward(features)
        weights, filtered = self.filter.forward(waves, step)
        heard = np.zeros((n, w))
        np.add.at(heard, first, weights * every[second])
        told, telling = self.tell.forward(np.concatenate([features, heard], axis=1), step)
        dy = np.full_like(told, 1.0 if scale is None else scale)
        both = self.tell.backward_input(telling, dy)
        d_heard = both[first, w:]
        d_weights, d_every = d_heard * every[second], np.zeros_like(every)
        np.add.at(d_every, second, d_heard * weights)
        d_features = both[:, :w] + brick.back(d_every)
        d_waves = self.filter.backward_input(filtered, d_weights)
        d_seen = self.see.backward_input(saw, d_features).reshape(seen.shape)
        d_waves = d_waves + d_seen[first, kinds, : self.waves]
        if scale is not None:
            self.tell.backward_weight(telling, dy)
            self.filter.backward_weight(filtered, d_weights)
            self.see.backward_weight(saw, d_features)
        d_r = (d_waves * slopes).sum(axis=1)
        return told[:, 0] + self.offset, (d_r / r)[:, None] * vectors


def forces_of(brick: Any, slopes: Floats) -> Floats:
    """Forces [own, 3] in a brick without ghosts."""
    found = np.zeros((brick.own, 3))
    np.add.at(found, brick.first, slopes)
    np.add.at(found, brick.second, -slopes)
    return found


def loss_gradient(
    network: MessagePassing, brick: Any, forces: Floats, energy: float | None, force_weight: float, energy_weight: float
) -> tuple[float, float, float]:
    """The loss of a frame, whose derivatives by the weights are added to the gradients; and the squares in it.

    The loss is force_weight times the mean square of the errors of forces and energy_weight times the square of the
    error of the energy a particle. Forces are derivatives: of their errors v the gradient is that of the slope of the
    energy along v, a central difference of two gradients (Pearlmutter, Neural Comput. 6, 1994, 147, in place of his
    exact rule), good to about eight digits.
    """
    energies, slopes = network(brick)
    wrong = forces_of(brick, slopes) - forces
    squares = float((wrong * wrong).mean())
    miss = 0.0 if energy is None else (float(energies.sum()) - energy) / brick.own
    if energy is not None:
        network._run(brick, brick.vectors, 2.0 * energy_weight * miss / brick.own)
    along = 2.0 * force_weight / wrong.size * wrong
    longest = float(np.abs(along).max())
    if longest > 0:
        step = STEP * network.cutoff / longest
        moved = step * (along[brick.second] - along[brick.first])
        for sign in (1.0, -1.0):
            network._run(brick, brick.vectors + sign * moved, -sign / (2.0 * step))
    return force_weight * squares + energy_weight * miss * miss, squares, miss * miss


def train(
    network: MessagePassing,
    frames: Sequence[ReferenceFrame],
    types: Sequence[npt.ArrayLike],
    steps: int = 500,
    rate: float = 1e-2,
    force_weight: float = 1.0,
    energy_weight: float = 1.0,
) -> list[Errors]:
    """Fit the weights to the forces and energies of frames, whose particles have these types, by Adam over all frames
    at each step; the errors before each. Raises `InputError` for no frame, and for arrays that do not fit.
    """
    if not frames or len(frames) != len(types):
        raise InputError(f"{len(frames)} frames, but types of {len(types)}", do="give one or more, and types of each")
    bricks = [Crystal(it.positions, it.box, kinds, network.cutoff) for it, kinds in zip(frames, types, strict=True)]
    for it, brick in zip(frames, bricks, strict=True):
        if np.shape(it.forces) != (brick.own, 3) or brick.types.shape != (brick.own,):
            raise InputError(f"a frame of {brick.own} particles has forces {list(np.shape(it.forces))}")
    known = [it.energy / brick.own for it, brick in zip(frames, bricks, strict=True) if it.energy is not None]
    network.offset = float(np.mean(known)) if known else 0.0
    optimizer, found, parameters = AdamW(network.parameters, weight_decay=0.0), [], network.parameters
    for step in range(steps):
        parameters.zero_grads()
        sums = np.zeros(2)
        for it, brick in zip(frames, bricks, strict=True):
            given = np.asarray(it.forces, np.float64), it.energy, force_weight, energy_weight
            sums += loss_gradient(network, brick, *given)[1:]
        found.append(Errors(*np.sqrt(sums / len(frames)).tolist()))
        optimizer.step(rate * 0.5 * (1 + np.cos(np.pi * step / steps)), 1.0 / len(frames))
    return found
