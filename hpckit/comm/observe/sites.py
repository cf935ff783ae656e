"""The communicators and call sites of a watched rank, each written once to its file of words.

A call site is the first frame outside the modules that communicate; these set `__communicates__ = True`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from zlib import crc32

import numpy as np
from mpi4py import MPI

from hpckit.comm.observe.table import MOST_GROUPS, MOST_SITES, place_and_root
from hpckit.errors import InputError

INNER: dict[int, Any] = {}  # the places in modules that communicate: none


@dataclass(slots=True)
class Group:
    """A known communicator: its number here, a key equal on its ranks, its name, its ranks, the number of its calls so
    far, and a digest of them.
    """

    comm: MPI.Comm  # kept alive, so that its id is not reused
    index: int
    key: str
    axis: str
    members: tuple[int, ...]
    number: int = 0
    digest: int = 0


@dataclass(slots=True)
class CallSite:
    """An operation at a place in the source on a communicator. index: in the table; place: index and root as one
    number, as in records; signature: a checksum of operation and root.
    """

    index: int
    group: Group
    operation: Hashable
    dtype: Hashable
    root: int
    code: CodeType
    line: int
    signature: int = 0
    place: int = 0

    def __post_init__(self) -> None:
        self.place = place_and_root(self.index, self.root)
        self.signature = crc32(f"{self.told()['operation']} {self.root}".encode())

    def told(self) -> dict[str, Any]:
        """The site in words."""
        operation = " ".join(map(str, self.operation)) if isinstance(self.operation, tuple) else str(self.operation)
        dtype = self.dtype.name if isinstance(self.dtype, np.dtype) else str(self.dtype)
        code = self.code
        place = {"file": code.co_filename, "line": self.line, "function": code.co_name}
        return {"operation": operation, "dtype": dtype, **place}


class Sites:
    """The call sites of a rank. `world` holds all watched ranks; lines go to the file `path`."""

    def __init__(self, world: MPI.Intracomm, path: Path) -> None:
        self.places: dict[int, dict[int, CallSite]] = {}  # by code object, then by instruction
        self._world = world
        self._groups: dict[int, Group] = {}
        self._sites: dict[Any, CallSite] = {}
        self._full = False
        self._modules: set[str] = set()  # that communicate, written so far
        self._codes: list[CodeType] = []  # kept alive, so that their ids are not reused
        self._log = open(path, "w", buffering=1, encoding="utf-8")  # noqa: SIM115

    def find(self, frame: FrameType, comm: MPI.Comm, operation: Hashable, dtype: Hashable, root: int) -> CallSite:
        """The site of an operation at a place in the source; made at the first call there."""
        key = (id(frame.f_code), frame.f_lasti, operation, dtype, id(comm), root)
        site = self._sites.get(key)
        if site is None:
            number = min(len(self._sites) + 1, MOST_SITES)
            group = self._groups.get(id(comm)) or self._new_group(comm)
            site = CallSite(number, group, operation, dtype, root, frame.f_code, frame.f_lineno)
            if number < MOST_SITES:
                self._sites[key] = site
            self._tell_modules()
            if not self._full:
                self._log.write(json.dumps(["site", number, group.index, *site.told().values(), root]) + "\n")
                self._full = number == MOST_SITES
        return site

    def know(self, frame: FrameType) -> dict[int, CallSite]:
        """The sites of a new code object: INNER for modules that communicate, else an empty dict."""
        code = frame.f_code
        self._codes.append(code)
        self.places[id(code)] = places = INNER if communicates(frame) else {}
        return places

    def _tell_modules(self) -> None:
        """Write the files of the modules that communicate: the watcher leaves their frames out of stacks."""
        for name, module in list(sys.modules.items()):
            if name not in self._modules and hasattr(module, "__communicates__"):
                self._modules.add(name)
                self._log.write(json.dumps(["module", 0, module.__file__]) + "\n")

    def close(self) -> None:
        """Close the file of words."""
        self._log.close()

    def _new_group(self, comm: MPI.Comm) -> Group:
        """Register a communicator at its first use; local."""
        mine, all_ranks = comm.Get_group(), self._world.Get_group()
        ranks = MPI.Group.Translate_ranks(mine, list(range(mine.size)), all_ranks)
        mine.Free()
        all_ranks.Free()
        members = tuple(int(rank) for rank in ranks)
        if MPI.UNDEFINED in members:
            raise InputError(
                "a communicator holds ranks that are not watched", do="make the watch on all ranks of the job"
            )
        axis = comm.name or f"{len(members)} ranks"
        like = sum((group.axis, group.members) == (axis, members) for group in self._groups.values())
        index = min(len(self._groups), MOST_GROUPS - 1)
        group = Group(comm, index, f"{axis} {like} {members}", axis, members)
        self._groups[id(comm)] = group
        self._log.write(json.dumps(["group", index, group.key, axis, members]) + "\n")
        return group


def communicates(frame: FrameType) -> bool:
    """Whether a frame belongs to a module that communicates, so it is not a call site."""
    return "__communicates__" in frame.f_globals
