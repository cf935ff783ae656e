"""Factorizations: how many ranks each dim of a grid is cut over."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from hpckit.errors import DecompositionError

NEAREST, REACH = 3, 100  # numbers of ranks proposed below and above, and how far above the search goes


def factorizations(ranks: int, dims: int) -> Iterator[tuple[int, ...]]:
    """Every way to write `ranks` as an ordered product of `dims` factors."""
    if dims == 1:
        yield (ranks,)
        return
    for factor in _divisors(ranks):
        for rest in factorizations(ranks // factor, dims - 1):
            yield (factor, *rest)


def _divisors(number: int) -> list[int]:
    """All of them, in rising order."""
    small = [n for n in range(1, math.isqrt(number) + 1) if number % n == 0]
    return small + [number // n for n in reversed(small) if n * n != number]


def halo_surface(shape: Sequence[int], sizes: Sequence[int], periodic: Sequence[bool]) -> int:
    """The cells on one side of all cuts between ranks: how many a halo of width 1 sends in one direction.

    A dim that is not cut costs nothing, as its halo is copied within the rank.
    """
    cells = 1
    for n in shape:
        cells *= n
    surface = 0
    for n, parts, closed in zip(shape, sizes, periodic, strict=True):
        cuts = 0 if parts == 1 else parts if closed else parts - 1
        surface += cuts * (cells // max(n, 1))
    return surface


def fitting_factorizations(
    ranks: int, shape: Sequence[int], fixed: Sequence[int], least: Sequence[int]
) -> Iterator[tuple[int, ...]]:
    """The factorizations that keep the sizes in `fixed` (0: free) and cut no dim into blocks thinner than `least`.

    A dim that stays whole may be thinner: its halo is copied within the rank.
    """
    for sizes in factorizations(ranks, len(shape)):
        if any(w and w != s for w, s in zip(fixed, sizes, strict=True)):
            continue
        if all(s == 1 or n // s >= t for n, s, t in zip(shape, sizes, least, strict=True)):
            yield sizes


def best_factorization(
    ranks: int,
    shape: Sequence[int] | None,
    fixed: Sequence[int] | None = None,
    periodic: Sequence[bool] | None = None,
    least: Sequence[int] | None = None,
) -> tuple[int, ...]:
    """Sizes of the rank axes, one for each dim, with the smallest halo surface. Of equal ones it takes that which cuts
    the earlier dims more, and the unit-stride dim (the last) least: a face across it touches a cache line for each
    cell.

    `fixed[d]` > 0 keeps that size, 0 leaves it to choose. `least[d]` is the smallest block allowed (the halo width).
    Without a `shape` all dims count as equally long. Raises `DecompositionError` when nothing fits.
    """
    if shape is None and fixed is None:
        raise DecompositionError("a factorization needs the shape of the grid, or the sizes that are fixed")
    dims = len(shape if shape is not None else fixed or ())
    wanted = tuple(fixed) if fixed is not None else (0,) * dims
    closed = tuple(periodic) if periodic is not None else (False,) * dims
    thinnest = tuple(max(1, n) for n in least) if least is not None else (1,) * dims
    # Long and equal where the shape is unknown, so that the most cubic blocks win and nothing is too thin.
    extents = tuple(shape) if shape is not None else (ranks * 720720,) * dims
    best: tuple[tuple[int, tuple[int, ...]], tuple[int, ...]] | None = None
    for sizes in fitting_factorizations(ranks, extents, wanted, thinnest):
        order = (halo_surface(extents, sizes, closed), tuple(reversed(sizes)))
        if best is None or order < best[0]:
            best = (order, sizes)
    if best is None:
        most = tuple(w or max(1, n // t) for n, t, w in zip(extents, thinnest, wanted, strict=True))
        given = f" with {_by(wanted)} ranks along its dims (0: any number)" if any(wanted) else ""
        raise DecompositionError(
            f"{ranks} ranks cannot share a grid of {_by(shape)} cells{given} in blocks of at least {_by(thinnest)}"
            if shape is not None
            else f"{ranks} ranks cannot be laid over {_by(wanted)} ranks (0: any number)",
            likely="too many ranks for this grid, or a number whose factors do not fit" if shape is not None else "",
            do=f"ranks that fit this grid: {fitting_counts(ranks, most, wanted)}"
            if shape is not None
            else "leave an axis free with 0, or take a number of ranks that the fixed sizes divide",
        )
    return best[1]


def _by(numbers: Sequence[int]) -> str:
    return " x ".join(map(str, numbers))


def fitting_counts(ranks: int, most: Sequence[int], fixed: Sequence[int] | None = None) -> str:
    """The numbers of ranks nearest to `ranks` that axes of at most these sizes hold, and the greatest one, as a text.

    An axis with a number above 0 in `fixed` has that size.
    """
    wanted = tuple(fixed) if fixed is not None else (0,) * len(most)
    greatest = math.prod(most)
    bounds = [(w, w) if w else (1, m) for m, w in zip(most, wanted, strict=True)]

    def fits(count: int, dim: int = 0) -> bool:
        least, greatest = bounds[dim]
        if dim == len(bounds) - 1:
            return least <= count <= greatest
        least = max(least, -(-count // math.prod(high for _, high in bounds[dim + 1 :])))  # else too much is left
        return any(count % n == 0 and fits(count // n, dim + 1) for n in range(least, min(greatest, count) + 1))

    below = itertools.islice((n for n in range(min(ranks - 1, greatest), 0, -1) if fits(n)), NEAREST)
    above = itertools.islice((n for n in range(ranks + 1, min(greatest, ranks + REACH) + 1) if fits(n)), NEAREST)
    near = sorted({*below, *above})
    return f"{', '.join(map(str, near)) or 'none'}; at most {greatest}"
