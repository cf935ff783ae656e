"""A status file per node with the state of its ranks: its watcher writes it, a login node reads it.

Standard library only.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hpckit.comm.observe.diagnosis import RUNNING, Rank
from hpckit.errors import InputError
from hpckit.plan.inputs.text import parse_json, read_bytes

NAME = "ranks.json"
EVERY = 10.0  # seconds between two writes: so few small files do not load a parallel file system
QUIET = 30.0  # seconds without a change after which a rank is named
SILENT = 6 * EVERY  # age of a file from which its node counts as silent
MOST_SHOWN = 8  # ranks named per node


class NodeFile:
    """`ranks.json` in the folder of a node, rewritten every `EVERY` seconds; folder None writes nothing.

    {"host", "written" (seconds since 1970), "ranks": [{"rank", "pid", "life", "doing", "still" (seconds without a
    change), "operation", "place", "inside", "text"}]}.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._next = time.monotonic() + EVERY

    def tell(self, ranks: Iterable[Rank]) -> None:
        """Write the states of the ranks, if it is time; a full disk does not stop the watcher."""
        if self._folder is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + EVERY
        text = json.dumps({"host": socket.gethostname(), "written": time.time(), "ranks": [plain(it) for it in ranks]})
        part = self._folder / f"{NAME}.part"
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            part.write_text(text, encoding="utf-8")
            os.replace(part, self._folder / NAME)

    def remove(self) -> None:
        """Remove the file after all ranks have ended by themselves, and its folder if that is empty then."""
        if self._folder is not None:
            with suppress(OSError):
                (self._folder / NAME).unlink()
                self._folder.rmdir()


def plain(it: Rank) -> dict[str, Any]:
    """A rank as plain values."""
    last = it.last
    return {
        "rank": it.rank,
        "pid": it.pid,
        "life": it.life,
        "doing": it.doing if it.life == RUNNING else "",
        "still": round(it.still, 1),
        "operation": last.what() if last else "",
        "place": last.where() if last else "",
        "inside": it.inside,
        "text": it.text(),
    }


def read_nodes(watch_folder: Path) -> list[dict[str, Any]]:
    """The last status file of each node, in the order of their folders; unreadable files are left out."""
    found = []
    for path in sorted(watch_folder.glob(f"*/{NAME}")):
        with suppress(InputError, ValueError):
            values = parse_json(read_bytes(path, "the status"))
            if isinstance(values, dict) and isinstance(values.get("ranks"), list):
                found.append(values)
    return found


def node_lines(node: dict[str, Any], now: float) -> list[str]:
    """The lines about a node: how many ranks go on, and which do not; now: seconds since 1970."""
    age = max(0.0, now - float(node["written"]))  # clocks of two machines may disagree
    if age > SILENT:
        return [f"no word from {node['host']} for {age:.0f} s ({len(node['ranks'])} ranks)"]
    quiet = [it for it in node["ranks"] if it["life"] != RUNNING or it["still"] > QUIET]
    going = len(node["ranks"]) - len(quiet)
    shown = [f"{node['host']}: {going} of {len(node['ranks'])} ranks go on"]
    for it in quiet[:MOST_SHOWN]:
        since = f", unchanged for {it['still'] + age:.0f} s" if it["life"] == RUNNING else ""
        shown.append(f"  {it['text']}{since}")
    if len(quiet) > MOST_SHOWN:
        shown.append(f"  and {len(quiet) - MOST_SHOWN} more")
    return shown
