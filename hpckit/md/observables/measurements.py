"""All observables of one run or trajectory, and their results as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hpckit.errors import InputError
from hpckit.md.observables.correlation import Correlation, TimeCorrelation
from hpckit.md.observables.frame import Frame, part_of
from hpckit.md.observables.profile import DensityProfile, RadialProfile
from hpckit.md.observables.radial import RadialDistribution
from hpckit.md.observables.speeds import SpeedDistribution
from hpckit.md.observables.structure import StructureFactor

if TYPE_CHECKING:
    from mpi4py import MPI

MOST_WAVES = 1500  # of S(k); above it a random choice
FIT = (0.3, 1.0)  # shares of the longest lag between which the slope of the displacement is taken


@dataclass(frozen=True)
class Measured:
    """The observables: g(r) up to `reach` in `bins`; S(k) up to `k_max` in `shells`, none for 0; the density along
    `axis` in `slabs`, around the middle for "r", none for ""; displacement and velocity correlation over `lags` frames
    with a time origin every `spacing` frames, none for 0.
    """

    reach: float
    bins: int = 200
    k_max: float = 0.0
    shells: int = 80
    axis: str = ""
    slabs: int = 100
    lags: int = 200
    spacing: int = 5


def least_width(widths: Sequence[float] | np.ndarray, periodic: Sequence[bool] | np.ndarray) -> float:
    """The least width of a box (`Cell.widths`) along which it is periodic, inf without: g(r) reaches to half of it."""
    return min((float(width) for width, wraps in zip(widths, periodic, strict=True) if wraps), default=np.inf)


class Measurements:
    """The chosen observables: `add_structure` measures single frames, `add_motion` pairs of frames, which must come at
    equal intervals. `types`: the number of particle types.

    With a communicator all ranks add the same frames and share the work (collective).
    """

    def __init__(self, measured: Measured, types: int = 1) -> None:
        self.measured, self.types = measured, types
        self._radial = RadialDistribution(measured.reach, measured.bins, types)
        self._speeds = SpeedDistribution()
        self._structure = StructureFactor(measured.k_max, measured.shells, MOST_WAVES) if measured.k_max else None
        self._profile: DensityProfile | RadialProfile | None = None
        if measured.axis == "r":
            self._profile = RadialProfile(measured.slabs)
        elif measured.axis:
            self._profile = DensityProfile(measured.axis, measured.slabs)
        each = 0 if not measured.lags else types + 1 if types > 1 else 1
        self._motion = [TimeCorrelation(measured.lags, measured.spacing) for _ in range(each)]

    @classmethod
    def of(cls, frames: Iterable[Frame], measured: Measured, types: int = 1) -> Self:
        """Measure a trajectory, with frames as from `read_h5md`, at equal intervals unless there are no lags."""
        made = cls(measured, types)
        for frame in frames:
            made.add_structure(frame)
            made.add_motion(frame)
        return made

    def add_structure(self, frame: Frame, comm: MPI.Comm | None = None) -> None:
        """g(r), S(k), density profile and, with velocities, their distribution. Raises `InputError` as each does."""
        self._radial.add(frame, comm)
        if self._structure is not None:
            self._structure.add(frame, comm)
        if self._profile is not None:
            self._profile.add(frame, comm)
        if frame.velocities is not None and np.any(frame.velocities):
            self._speeds.add(frame, comm)

    def add_motion(self, frame: Frame, comm: MPI.Comm | None = None) -> None:
        """Displacement and velocity correlation, of all particles and of each type."""
        for number, motion in enumerate(self._motion):
            motion.add(frame if number == 0 else part_of(frame, frame.types == number - 1), comm)

    def result(self, comm: MPI.Comm | None = None) -> dict[str, Any]:
        """The results as lists and numbers, ready for JSON; observables without frames are left out. Types from 1."""
        found: dict[str, Any] = {}
        if self._radial.frames:
            found["radial"] = self._radial_result(comm)
        if self._structure is not None and self._structure.frames:
            structure = self._structure.result(comm)
            found["structure"] = {"k": structure.k.tolist(), "s": structure.s.tolist()}
        if self._profile is not None and self._profile.frames:
            profile = self._profile.result(comm)
            found["profile"] = {
                "axis": self.measured.axis,
                "frames": self._profile.frames,
                "x": profile.x.tolist(),
                "density": profile.density.tolist(),
                "mass_density": profile.mass_density.tolist(),
            }
        if self._speeds.frames:
            speeds = self._speeds.result(comm)
            found["speeds"] = {
                "frames": self._speeds.frames,
                "u": speeds.u.tolist(),
                "density": speeds.density.tolist(),
                "exact": speeds.exact.tolist(),
                "distance": speeds.distance,
            }
        if self._motion and self._motion[0].frames > 1:
            every = [motion.result(comm) for motion in self._motion]
            found["motion"] = _motion_result(every[0], self._motion[0].frames)
            found["motion"]["types"] = [_motion_result(each, self._motion[0].frames) for each in every[1:]]
        return found

    def _radial_result(self, comm: MPI.Comm | None) -> dict[str, Any]:
        radial = self._radial.result(comm)
        partial = {
            f"{a + 1}-{b + 1}": radial.partial[a, b].tolist() for a in range(self.types) for b in range(a, self.types)
        }
        return {
            "frames": self._radial.frames,
            "r": radial.r.tolist(),
            "g": radial.g.tolist(),
            "coordination": radial.coordination.tolist(),
            "peak": list(_top(radial.r, radial.g)),
            "partial": partial if self.types > 1 else {},
        }


def _motion_result(found: Correlation, frames: int) -> dict[str, Any]:
    made: dict[str, Any] = {"frames": frames, "time": found.time.tolist(), "msd": found.msd.tolist()}
    made["vacf"] = found.vacf.tolist() if np.any(found.vacf) else []
    estimates = {"einstein": lambda: found.diffusion(*FIT)}
    if made["vacf"]:
        estimates["green_kubo"] = found.green_kubo
    for name, estimate in estimates.items():
        try:
            value, error = estimate()
        except InputError:  # too few lags for a slope
            continue
        made[name] = {"diffusion": value, "error": error if np.isfinite(error) else None}
    return made


def _top(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """Place and height of the peak: of the parabola through the highest bin and its neighbors."""
    at = int(y.argmax())
    if not 0 < at < len(y) - 1:
        return float(x[at]), float(y[at])
    left, top, right = y[at - 1 : at + 2]
    bend = left - 2 * top + right
    shift = 0.5 * (left - right) / bend if bend else 0.0
    return float(x[at] + shift * (x[1] - x[0])), float(top - 0.25 * (left - right) * shift)
