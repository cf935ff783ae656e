"""Mean square displacement and velocity autocorrelation over many time origins."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hpckit.errors import InputError
from hpckit.md.observables.frame import Floats, Frame, own_block, summed

if TYPE_CHECKING:
    from mpi4py import MPI

BLOCKS = 8  # groups of particles whose spread gives the errors


@dataclass(frozen=True)
class Correlation:
    """time, msd, vacf: float64[lags]; of groups of particles: float64[groups, lags]."""

    time: Floats
    msd: Floats
    vacf: Floats
    msd_groups: Floats
    vacf_groups: Floats

    def diffusion(self, first: float = 0.3, last: float = 1.0) -> tuple[float, float]:
        """D and its standard error from the slope of the displacement, 6 D t (Einstein 1905), between these shares of
        the longest lag; the error from the spread over groups of particles.
        """
        chosen = (self.time >= first * self.time[-1]) & (self.time <= last * self.time[-1])
        if chosen.sum() < 2:
            raise InputError("a diffusion coefficient takes at least two lags", do="measure more frames")
        time = self.time[chosen]
        value = np.polyfit(time, self.msd[chosen], 1)[0] / 6.0
        return float(value), _error(np.polyfit(time, self.msd_groups[:, chosen].T, 1)[0] / 6.0)

    def green_kubo(self) -> tuple[float, float]:
        """D and its standard error from the integral of the velocity autocorrelation over 3 (Green 1954, Kubo 1957)."""
        middles = 0.5 * (self.vacf_groups[:, 1:] + self.vacf_groups[:, :-1])
        value = 0.5 * (self.vacf[1:] + self.vacf[:-1]) @ np.diff(self.time) / 3.0
        return float(value), _error(middles @ np.diff(self.time) / 3.0)


class TimeCorrelation:
    """Compares frames at equal intervals with earlier ones up to `lags` intervals back.

    A new time origin is kept every `spacing` frames, so lags / spacing copies of this rank's particles are in memory.
    Displacements are unwrapped: positions + images x edges. Frames need velocities for the autocorrelation.
    """

    def __init__(self, lags: int, spacing: int = 1) -> None:
        if lags < 1 or spacing < 1:
            raise InputError(f"lags and spacing are 1 or more, not {lags} and {spacing}")
        self.lags, self.spacing, self.frames = lags, spacing, 0
        self._origins: deque[tuple[int, Floats, Floats | None]] = deque()
        self._sums = np.zeros((2, BLOCKS, lags + 1))
        self._samples = np.zeros((BLOCKS, lags + 1))
        self._times: list[float] = []

    def add(self, frame: Frame, comm: MPI.Comm | None = None) -> None:
        """Compare a frame with the origins. Raises `InputError` for frames at unequal intervals, or out of order."""
        self._check_time(frame.time)
        own = own_block(frame, comm)
        places = frame.positions[own] + frame.cell.shifts(frame.images[own])
        velocities = None if frame.velocities is None else frame.velocities[own].copy()
        if self.frames % self.spacing == 0:
            self._origins.append((self.frames, places, velocities))
        while self.frames - self._origins[0][0] > self.lags:
            self._origins.popleft()
        group = np.arange(own.start, own.stop) * BLOCKS // max(len(frame.positions), 1)
        members = np.bincount(group, minlength=BLOCKS)
        for number, start, started in self._origins:
            lag = self.frames - number
            moved = ((places - start) ** 2).sum(1)
            self._sums[0, :, lag] += np.bincount(group, moved, BLOCKS)
            if velocities is not None and started is not None:
                self._sums[1, :, lag] += np.bincount(group, (velocities * started).sum(1), BLOCKS)
            self._samples[:, lag] += members
        self.frames += 1

    def result(self, comm: MPI.Comm | None = None) -> Correlation:
        """The result of the frames so far. Collective with a communicator; last bits depend on the number of ranks."""
        sums, samples = summed(self._sums, comm), summed(self._samples, comm)
        lags = min(self.frames, self.lags + 1)
        step = self._times[1] - self._times[0] if len(self._times) > 1 else 0.0
        filled = samples[:, 0] > 0  # fewer particles than groups leave some empty
        with np.errstate(divide="ignore", invalid="ignore"):
            msd, vacf = sums[:, filled, :lags] / samples[filled, :lags]
            mean = sums[:, :, :lags].sum(1) / samples[:, :lags].sum(0)
        time: Floats = step * np.arange(lags, dtype=np.float64)
        return Correlation(time, mean[0], mean[1], msd, vacf)

    def _check_time(self, time: float) -> None:
        times = self._times
        if len(times) < 2:
            if times and not time > times[0]:
                raise InputError(
                    f"a frame at {time:g} comes after one at {times[0]:g}",
                    likely="the same frame given twice, or frames without their times",
                    do="give each frame once, in the order of time, with `time` set",
                )
            times.append(time)
        else:
            step, expected = times[1] - times[0], times[0] + self.frames * (times[1] - times[0])
            if abs(time - expected) > 1e-6 * abs(step):
                raise InputError(
                    f"frames come every {step:g}, the next one was due at {expected:g} and is at {time:g}",
                    do="give frames at equal intervals",
                )


def _error(values: Floats) -> float:
    """The standard error of the mean of independent values."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")
