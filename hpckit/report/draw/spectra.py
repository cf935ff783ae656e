"""Spectra of fields against wavenumber, normalized so that their integral is the variance (Parseval).

Horizontal dims are transformed, the vertical (`z`) is averaged over; all dims of a field without a vertical are
transformed. In two dims the energy is summed over rings of the wavenumber k = sqrt(kx**2 + ky**2) of width dk, the
least wavenumber of the domain: E(k) dk is the variance in a ring.

A dim that is not periodic is mirrored before the transform, which makes it a cosine transform (Denis, Côté and Laprise
2002, Mon. Wea. Rev. 130, 1812-1829): no window, no detrending, and the variance is preserved. A velocity on
faces that is zero at its walls is mirrored with its sign changed (sine transform).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hpckit.report.field_file import SLAB_BYTES, Dim, FieldFile, FileField, evenly

Array = npt.NDArray[Any]
MOST_TIMES = 4
MOST_LEVELS = 24  # that are averaged
PLANE_POINTS = 3_000_000  # beyond, lines along the last dim are transformed in place of planes
LINES = 512
FIT_END, FIT_LEAST = 12.0, 5  # shortest wavelength that a power law is fitted to, in cells; least number of bins
BINS = 6  # an octave
STEEPEST, FLATTEST = -8.0, 0.5
SCATTER = 0.5  # decades, root mean square, about a law
ROUNDING = 1e-12  # of the peak: fields are written in single precision
BELOW = 0.5  # of the fitted law: where the spectrum stays below, waves are not resolved


@dataclass(frozen=True)
class Spectrum:
    """E(k) at several times.

    `k` (rad per `length_unit`) at the middle of rings of width `dk`, without k = 0; `density` [times, rings], the
    variance (or kinetic energy per mass) per wavenumber; `variance` [times], its integral. `spacing`: the widest
    cell of the dims transformed. `rings`: the number below the shortest wave of every dim; rings beyond have gaps.
    """

    name: str
    units: str
    times: list[float]
    k: Array
    dk: float
    density: Array
    variance: Array
    spacing: float
    rings: int
    said: str
    time_unit: str = "s"
    length_unit: str = "m"

    @property
    def mean(self) -> Array:
        """The mean over the second half of the times."""
        return self.density[len(self.times) // 2 :].mean(axis=0)


@dataclass(frozen=True)
class PowerLaw:
    """A power law C k**slope over `first` to `last` rad/m, and the wavenumber of its end (rad/m).

    Above `cutoff` the spectrum stays below the law; None if it follows the law to the shortest wave.
    """

    slope: float
    factor: float
    first: float
    last: float
    cutoff: float | None

    def at(self, k: Array) -> Array:
        """The law at wavenumbers."""
        return self.factor * k**self.slope


def mirrored(values: Array, dim: Dim, axis: int) -> Array:
    """Values over a whole period along `axis`: unchanged for a periodic dim, else with their mirror image.

    Centers repeat beyond the wall; faces, which hold both walls, are mirrored at them, with the sign changed if they
    are zero there.
    """
    if dim.periodic:
        return values
    if not dim.face:
        return np.concatenate([values, np.flip(values, axis)], axis)
    inner = np.flip(np.take(values, range(1, values.shape[axis] - 1), axis), axis)
    ends = np.abs(np.take(values, [0, -1], axis)).max()
    odd = ends <= 1e-12 * max(np.abs(values).max(), 1e-300)
    return np.concatenate([values, -inner if odd else inner], axis)


def rings_of(values: Array, dims: Sequence[Dim]) -> tuple[Array, Array, float]:
    """Wavenumber k, variance density E(k) and dk of values [planes, *dims], the mean over the planes.

    sum(E) dk is the mean over planes of the variance within each (k = 0 left out).
    """
    axes = tuple(range(1, values.ndim))
    for axis, dim in zip(axes, dims, strict=True):
        values = mirrored(values, dim, axis)
    power = (np.abs(np.fft.fftn(values, axes=axes)) ** 2).mean(axis=0) / np.prod(values.shape[1:]) ** 2
    waves = [2 * np.pi * np.fft.fftfreq(n, _spacing(dim)) for n, dim in zip(values.shape[1:], dims, strict=True)]
    dk = min(2 * np.pi / (n * _spacing(dim)) for n, dim in zip(values.shape[1:], dims, strict=True))
    squares = np.zeros(power.shape)
    for axis, wave in enumerate(waves):
        squares += (wave**2).reshape([-1 if a == axis else 1 for a in range(len(waves))])
    ring = np.rint(np.sqrt(squares) / dk).astype(int)
    power.flat[0] = 0.0  # the mean
    # Waves within half a ring of k = 0 belong to the first ring.
    sums = np.bincount(np.maximum(ring, 1).ravel(), weights=power.ravel())
    return dk * np.arange(1, len(sums)), sums[1:] / dk, dk


def spectrum(file: FieldFile, variables: Sequence[FileField], name: str, units: str, weight: float) -> Spectrum | None:
    """The sum of the variables' spectra times `weight`: 1/2 for the kinetic energy of velocities.

    None for dims that are not evenly spaced or too short. At most `MOST_TIMES` frames are read, a plane at a time.
    """
    along = [[i for i, dim in enumerate(one.dims) if len(one.dims) == 1 or dim.axis != "z"] for one in variables]
    used = [one.dims[i] for one, which in zip(variables, along, strict=True) for i in which]
    if any(len(dim.points) < 8 or dim.spacing is None for dim in used):
        return None
    if math.prod(variables[0].shape[i] for i in along[0]) > PLANE_POINTS:
        along = [which[-1:] for which in along]
    frames = [int(frame) for frame in evenly(len(file.times), MOST_TIMES)]
    density, k, dk = [], np.zeros(0), 0.0
    for frame in frames:
        total: Array = np.zeros(0)
        for one, which in zip(variables, along, strict=True):
            k, own, dk = _one(file, one, which, frame)
            total = own if not total.size else _added(total, own)
        density.append(weight * total)
    rows = np.array(density)
    if not np.isfinite(rows).all() or not rows.any():
        return None
    dims = [variables[0].dims[i] for i in along[0]]
    widest = max(_spacing(dim) for dim in dims)
    k = dk * np.arange(1, rows.shape[1] + 1)
    rings = min(len(k), round(math.pi / widest / dk))
    times = [float(file.times[frame]) for frame in frames]
    said, length = _said(variables[0], dims), dims[0].units or "1"
    return Spectrum(name, units, times, k, dk, rows, rows.sum(axis=1) * dk, widest, rings, said, file.time_unit, length)


def binned(k: Array, density: Array) -> tuple[Array, Array]:
    """Rings joined to bins of a sixth of an octave (`BINS`), with the mean density of each; empty bins are left out.

    k and density [rings]; the first rings stay as they are.
    """
    number = np.floor(BINS * np.log2(k / k[0]) + 1e-9).astype(int)
    counts = np.bincount(number)
    sums, places = np.bincount(number, weights=density), np.bincount(number, weights=k)
    good = (counts > 0) & (sums > 0)
    return places[good] / counts[good], sums[good] / counts[good]


def fit(k: Array, density: Array, spacing: float) -> PowerLaw | None:
    """A power law between the spectrum's peak and waves of 12 cells, and the wavenumber of its end.

    k and density [rings] are joined to bins first; None if too few of them lie in this range, if the spectrum falls
    faster than any law of turbulence or not at all, and if it scatters too widely about a line (a comb). The
    wavenumber beyond which the spectrum stays below half of the law marks the effective resolution (after Skamarock
    2004, Mon. Wea. Rev. 132, 3019-3032).
    """
    if not (density > 0).any():
        return None
    k, density = binned(k, density)
    end = 2 * math.pi / (FIT_END * spacing)
    chosen = (k >= 1.5 * k[density.argmax()]) & (k <= end) & (density > ROUNDING * density.max())
    if chosen.sum() < FIT_LEAST:
        return None
    slope, offset = np.polyfit(np.log(k[chosen]), np.log(density[chosen]), 1)
    off = np.log10(density[chosen]) - (slope * np.log(k[chosen]) + offset) / math.log(10)
    if slope < STEEPEST or slope > FLATTEST or np.sqrt((off**2).mean()) > SCATTER:
        return None
    made = PowerLaw(float(slope), float(np.exp(offset)), float(k[chosen][0]), float(k[chosen][-1]), None)
    beyond = k > end
    above = np.flatnonzero(beyond & (density >= BELOW * made.at(k)))
    first = above[-1] + 1 if above.size else int(np.argmax(beyond))
    cutoff = float(k[first]) if beyond.any() and first < len(k) else None
    return PowerLaw(made.slope, made.factor, made.first, made.last, cutoff)


def _one(file: FieldFile, variable: FileField, along: Sequence[int], frame: int) -> tuple[Array, Array, float]:
    """The spectrum of a variable: dims `along` transformed, the mean over the others."""
    dims = [variable.dims[i] for i in along]
    if len(along) == len(variable.dims):
        return rings_of(file.read(variable, frame)[None], dims)
    rows, shape = variable.shape[0], [len(dim.points) for dim in dims]
    if file.frame_bytes(variable) <= SLAB_BYTES:
        return rings_of(file.read(variable, frame).reshape(-1, *shape), dims)
    others = math.prod(variable.shape[: -len(along)])
    most = MOST_LEVELS if len(along) > 1 else max(1, LINES * rows // others)
    chosen = np.unique(np.linspace(0, rows - 1, min(rows, most)).round().astype(int))
    total: Array = np.zeros(0)
    k, dk = np.zeros(0), 0.0
    for row in chosen:
        k, own, dk = rings_of(file.read(variable, frame, (int(row),)).reshape(-1, *shape), dims)
        total = own if not total.size else total + own
    return k, total / len(chosen), dk


def _added(a: Array, b: Array) -> Array:
    """The sum of spectra with the same dk whose last rings may differ by one."""
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    total = long.copy()
    total[: len(short)] += short
    return total


def _said(variable: FileField, dims: Sequence[Dim]) -> str:
    """The method of the spectrum in words, for its caption."""
    axes = " and ".join(dim.axis for dim in dims)
    text = f"transformed along {axes}" + (", summed over rings of wavenumber" if len(dims) > 1 else "")
    others = [axis for axis in variable.axes if axis not in {dim.axis for dim in dims}]
    if others:
        text += f", the mean over {' and '.join(others)}"
    closed = [dim.axis for dim in dims if not dim.periodic]
    return text + (f"; {' and '.join(closed)} mirrored at the walls (cosine transform)" if closed else "")


def _spacing(dim: Dim) -> float:
    step = dim.spacing
    assert step is not None
    return abs(step)
