"""The table of measured times: which algorithm was quickest for a size, a number of ranks and a place.

A shipped table stands in for what was not measured; `hpckit bench collectives --tune` writes that of this machine. Rank
0 of an axis reads it and tells the others, so that all choose alike.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from mpi4py import MPI

from hpckit.comm.agree import broadcast_bytes
from hpckit.errors import InputError
from hpckit.plan.inputs.text import parse_json, read_bytes

SHIPPED = Path(__file__).with_name("table.json")
TUNED = Path("~/.config/hpckit/collectives.json")
LAYOUTS = ("node", "nodes")
KINDS = ("host", "symmetric", "device")


@dataclass(frozen=True)
class Entry:
    """What was measured for `ranks` ranks of one node ("node") or of several ("nodes"), on buffers of one kind: on the
    host, symmetric (`empty_shared`), or on a device. steps: sizes in bytes up to which (None: any) the algorithms stand
    in the order of their times.
    """

    operation: str
    ranks: int
    layout: str
    kind: str
    steps: tuple[tuple[int | None, tuple[str, ...]], ...]

    def algorithms(self, nbytes: int) -> tuple[str, ...]:
        """The algorithms for a size, quickest first."""
        return next((names for limit, names in self.steps if limit is None or nbytes <= limit), ())

    def to_dict(self) -> dict[str, Any]:
        """As in the file."""
        return {**vars(self), "steps": [[limit, list(names)] for limit, names in self.steps]}


Table = tuple[Entry, ...]


def best(table: Table, operation: str, ranks: int, layout: str, kind: str, nbytes: int) -> tuple[str, ...]:
    """The algorithms for a case, quickest first; of the nearest number of ranks that was measured."""
    found = [e for e in table if (e.operation, e.layout, e.kind) == (operation, layout, kind)]
    if not found:
        return ()
    return min(found, key=lambda e: abs(math.log(e.ranks / ranks))).algorithms(nbytes)


def shared_table(comm: MPI.Comm) -> Table:
    """The tuned table before the shipped one, as rank 0 reads them. Collective; the same error on every rank."""
    texts = [b"", b""]
    if comm.rank == 0:
        tuned = TUNED.expanduser()
        texts = [read_bytes(tuned, "the table") if tuned.is_file() else b"[]", SHIPPED.read_bytes()]
    tables = [broadcast_bytes(comm, text, 0) for text in texts]
    own = parse(tables[0].decode(), str(TUNED))
    known = {(e.operation, e.layout, e.kind) for e in own}
    return own + tuple(
        e for e in parse(tables[1].decode(), SHIPPED.name) if (e.operation, e.layout, e.kind) not in known
    )


def parse(text: str, name: str) -> Table:
    """A table from the text of its file. Raises `InputError`."""
    try:
        return tuple(_entry(one) for one in parse_json(text))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"the table of collectives is not one that hpckit wrote: {error}",
            where=name,
            do="remove it, or write it anew with `hpckit bench collectives --tune`",
        ) from None


def write(table: Table, path: Path | None = None) -> Path:
    """Keep a tuned table, entry by entry in place of an older one for the same case; returns where it is."""
    target = path or TUNED.expanduser()
    old = parse(target.read_text(encoding="utf-8"), str(target)) if target.is_file() else ()
    new = {(e.operation, e.ranks, e.layout, e.kind): e for e in (*old, *table)}
    target.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(entry.to_dict()) for entry in new.values())
    temporary = target.with_suffix(".new")
    temporary.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    temporary.replace(target)
    return target


def _entry(given: Mapping[str, Any]) -> Entry:
    steps = tuple((None if limit is None else int(limit), tuple(map(str, names))) for limit, names in given["steps"])
    if given["layout"] not in LAYOUTS or given["kind"] not in KINDS or int(given["ranks"]) < 1:
        raise ValueError(f"an entry for {given['ranks']} ranks, {given['layout']}, {given['kind']}")
    return Entry(str(given["operation"]), int(given["ranks"]), given["layout"], given["kind"], steps)


def steps_of(sizes: list[int], ranked: list[tuple[str, ...]]) -> tuple[tuple[int | None, tuple[str, ...]], ...]:
    """Steps from measured sizes, in rising order; between two of them the limit is their geometric mean."""
    limits: list[int | None] = [math.isqrt(a * b) for a, b in pairwise(sizes)]
    return tuple(zip([*limits, None], ranked, strict=True))
