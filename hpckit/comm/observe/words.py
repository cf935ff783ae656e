"""The meaning of the numbers in the table of a node, read from the files of words. Standard library only."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from hpckit.comm.observe.diagnosis import Call
from hpckit.comm.observe.table import CallRecord

Place = tuple[int, str, str, str, int, str, int]  # group, operation, dtype, file, line, function, root


@dataclass
class Words:
    """The lines of `sites-R` read so far."""

    path: Path
    offset: int = 0
    groups: dict[int, tuple[str, str, tuple[int, ...]]] = field(default_factory=dict)  # key, axis, members
    sites: dict[int, Place] = field(default_factory=dict)
    modules: set[str] = field(default_factory=set)  # files whose frames are not call sites

    def read(self) -> None:
        """Read the lines added since the last call."""
        with contextlib.suppress(OSError), open(self.path, encoding="utf-8") as lines:
            lines.seek(self.offset)
            while (line := lines.readline()).endswith("\n"):
                kind, number, *rest = json.loads(line)
                if kind == "group":
                    self.groups[number] = (rest[0], rest[1], tuple(rest[2]))
                elif kind == "module":
                    self.modules.add(rest[0])
                else:
                    self.sites[number] = tuple(rest)
                self.offset = lines.tell()

    def every(self) -> list[Call]:
        """All call sites of the rank, as calls with unknown numbers."""
        return [
            call for site in self.sites.values() for call in [self._made(site, CallRecord(0, 0, 1, -1, site[6], 1, 0))]
        ]

    def call(self, record: CallRecord) -> Call | None:
        """A record as a call; None if its site has not been written yet."""
        if record.site not in self.sites:
            return None
        return self._made(self.sites[record.site], record)

    def _made(self, site: Place, record: CallRecord) -> Call:
        group, operation, dtype, file, line, function, _ = site
        key, axis, members = self.groups[group]
        return Call(
            operation=operation,
            axis=axis,
            dtype=dtype,
            count=record.elements,
            root=record.root,
            group=key,
            members=members,
            number=record.number,
            file=file,
            line=line,
            function=function,
            inside=record.ended == 0,
            sequence=record.sequence,
        )
