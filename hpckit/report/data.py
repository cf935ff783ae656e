"""The numbers of a figure, to be downloaded from the page itself."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from hpckit.report.page import escape

MOST_ROWS = 4000  # of the data of a figure
MOST_POINTS = 24_000  # of the maps of a field: about 100 kB of the page


def with_data(picture: str, name: str, columns: Mapping[str, Sequence[float]]) -> str:
    """A picture with a link below it that downloads its numbers as NAME.csv; '' for no picture.

    columns: name with unit -> values, all of one length; of more than 4000 rows evenly spread ones are taken.
    """
    return f"<figure>{picture}{data_link(name, columns)}</figure>" if picture else ""


def data_link(name: str, columns: Mapping[str, Sequence[float]]) -> str:
    """The link of `with_data`."""
    count = len(next(iter(columns.values())))
    rows = range(count) if count <= MOST_ROWS else [i * (count - 1) // (MOST_ROWS - 1) for i in range(MOST_ROWS)]
    lines = [_head(columns)]
    lines += [",".join(f"{values[row]:.9g}" for values in columns.values()) for row in rows]
    address = "data:text/csv;charset=utf-8," + quote("\n".join(lines) + "\n", safe=",")
    return _link("CSV", f"{_file(name)}.csv", address, "the numbers of this figure")


def columns_of(lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], along: str) -> dict[str, list[float]]:
    """Curves of different places as columns: places, called `along`, and a column a curve; NaN where it has none."""
    places = sorted({float(place) for at, _ in lines.values() for place in at})
    named = {name or "value": dict(zip(map(float, at), values, strict=True)) for name, (at, values) in lines.items()}
    return {along: places} | {name: [of.get(place, np.nan) for place in places] for name, of in named.items()}


def map_link(
    name: str,
    dims: Mapping[str, npt.ArrayLike],
    title: str,
    values: npt.NDArray[np.floating],
    most_points: int = MOST_POINTS,
) -> str:
    """A link that downloads maps as NAME.csv.gz: a row a point, with its place (one column a dim) and its value.

    dims: name with unit -> places, one entry for each dim of `values`, in its order. Of more than `most_points` points
    the last two dims are thinned to means over blocks, and the link says so.
    """
    points = [np.asarray(each, float) for each in dims.values()]
    step = 1
    while np.prod([len(each) for each in points[:-2]] + [len(each) // step for each in points[-2:]]) > most_points:
        step += 1
    for dim in range(max(values.ndim - 2, 0), values.ndim) if step > 1 else ():
        points[dim], values = _means(points[dim], step, 0), _means(values, step, dim)
    columns = [*(each.ravel() for each in np.meshgrid(*points, indexing="ij")), values.ravel()]
    lines = [_head([*dims, title]), *(",".join(f"{value:.6g}" for value in row) for row in zip(*columns, strict=True))]
    packed = gzip.compress(("\n".join(lines) + "\n").encode(), mtime=0)
    said = "the numbers of these pictures" + (f", means over {step} x {step} of their points" if step > 1 else "")
    address = "data:application/gzip;base64," + base64.b64encode(packed).decode()
    return _link("CSV", f"{_file(name)}.csv.gz", address, said)


def from_file(variable: str) -> str:
    """A link below pictures of fields to the file that holds their numbers."""
    return _link("HDF5", "", "../output/fields.h5", f"the file with all numbers of the field: the variable {variable}")


def _means(values: npt.NDArray[np.floating], step: int, dim: int) -> npt.NDArray[np.floating]:
    """Means over blocks of `step` along a dim; an incomplete last block is left out."""
    whole = values.shape[dim] // step
    kept = np.take(values, range(whole * step), axis=dim)
    return kept.reshape(*kept.shape[:dim], whole, step, *kept.shape[dim + 1 :]).mean(axis=dim + 1)


def _head(titles: Iterable[str]) -> str:
    return ",".join(f'"{title}"' if "," in title else title for title in titles)


def _file(name: str) -> str:
    return re.sub(r"\W+", "-", name).strip("-") or "data"


def _link(text: str, file: str, address: str, title: str) -> str:
    saved = f'download="{escape(file)}" href="{address}"' if file else f'href="{address}" download'
    return f'<a class="data" {saved} title="{escape(title)}">{text}</a>'
