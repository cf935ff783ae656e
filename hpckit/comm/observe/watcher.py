"""The watcher of a node: a process of its own that reads the table of the ranks and reports which rank holds up others.

It is a process, since compiled code that keeps the interpreter lock would also stop a thread of the rank. It starts
with the first rank of its node, imports only the standard library, and ends when all ranks have ended.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import shutil
import signal
import socket
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from hpckit.comm.observe.diagnosis import DEAD, LEFT, RUNNING, STOPPED, Call, Rank, Stall, diagnose, diagnose_idle
from hpckit.comm.observe.history import differing, due_there, odd_one, rare
from hpckit.comm.observe.status_file import NodeFile
from hpckit.comm.observe.table import (
    ABSENT,
    ALARM,
    Head,
    read_calls,
    read_head,
    read_numbers,
    set_alarm,
    set_ending,
    somebody_listens,
    table_of,
)
from hpckit.comm.observe.table import LEFT as HAS_LEFT
from hpckit.comm.observe.table import RUNNING as IS_RUNNING
from hpckit.comm.observe.words import Words

STACK_SIGNAL = signal.SIGUSR2
STACK_SECONDS = 5.0  # at most, for the stacks of the ranks to be written
STACK_POLL = 0.05
COMPARE_SECONDS = 2.0  # between two comparisons of the last calls of all ranks
START_SECONDS = 60.0  # for the ranks to appear
REPORT = "stall.json"
COMPUTING = "computing"
END_SECONDS = 10.0  # at most, for ranks that check `is_ending` to end by themselves
MOVED = 2**20  # bytes of file traffic that show a rank at work; its stacks and logs are smaller


@dataclass
class Options:
    """The options of the watcher. ranks: of this node; end: s after which a stalled job is ended, 0 for never; keep:
    the folder for the report, None for none; spare_computing: do not end the job while a late rank computes.
    """

    folder: Path
    ranks: int
    limit: float
    end: float
    keep: Path | None
    spare_computing: bool


@dataclass
class Seen:
    """The last known state of a rank: the time of its last change, and then its processor time and the bytes that it
    had read and written (monotonic s, ticks, bytes).
    """

    state: object = None
    since: float = 0.0
    ticks: int = 0
    moved: int = 0


class Watcher:
    """Polls the table, and reports each stall once."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.table: mmap.mmap = table_of(options.folder, options.ranks)
        self.seen = [Seen(since=time.monotonic()) for _ in range(options.ranks)]
        self.words = [Words(options.folder / f"sites-{slot}") for slot in range(options.ranks)]
        self.told: Stall | None = None
        self.told_at = self.next_comparison = 0.0
        self.suspects: set[tuple[str, int]] = set()  # operations whose digests differed when last compared
        self.differed = False  # whether a difference has been reported
        self.file = NodeFile(options.keep)
        self.ended = False  # by this watcher, which then causes all further changes of the processes

    def run(self) -> None:
        """Watch until all ranks have ended, or the watcher ends the job."""
        poll = min(0.25, self.options.limit / 8)
        began = last = time.monotonic()
        first_rank: list[TextIO] = [sys.stdin]  # closed by the first rank when it ends
        while True:
            if select.select(first_rank, [], [], poll)[0]:
                first_rank, poll = [], min(poll, 0.05)
            now = time.monotonic()
            if now - last > 4 * poll + 0.5:  # this process itself was stopped: restart the counts
                for it in self.seen:
                    it.since = now
            last = now
            heads = self._heads()
            if all(head.state != IS_RUNNING or not _alive(head.pid) for head in heads):
                if any(head.pid for head in heads) or now - began > START_SECONDS:
                    if all(head.state == HAS_LEFT for head in heads):
                        self._over(now)
                        self._compare(last=True)
                        self.file.remove()
                    return
                continue
            self._look(heads, now)
            if self.ended:
                return

    def _look(self, heads: list[Head], now: float) -> None:
        ranks = [self._rank(slot, head, now) for slot, head in enumerate(heads) if head.state != ABSENT]
        self.file.tell(ranks)
        stall = diagnose(ranks, self.options.limit)
        if stall is None and self.options.end:
            stall = diagnose_idle(ranks, self.options.end)
        if stall is None:
            if self._has_untold(ranks):
                return
            self._over(now)
            if now >= self.next_comparison:
                self._compare()
            return
        stall = self._explained(stall)
        if self.told is not None and self.told.hopeless:
            # Ranks that see the alarm raise and leave; that others then wait for them is not a new cause.
            stall = replace(self.told, seconds=self.told.seconds + now - self.told_at)
        elif self.told is None or (stall.kind, stall.culprits) != (self.told.kind, self.told.culprits):
            self.told_at = now
            self._report(stall)
        if self.options.end and stall.seconds > self.options.end and not self._spared(stall):
            self._end(stall)

    def _has_untold(self, ranks: list[Rank]) -> bool:
        """Whether a rank of a hopeless stall has not raised yet, while another has and is about to leave: the alarm
        stays on for it.
        """
        if self.told is None or not self.told.hopeless:
            return False
        before = self.told.ranks
        return any(it.inside and it.rank in before and it.last == before[it.rank].last for it in ranks)

    def _spared(self, stall: Stall) -> bool:
        """Whether the late rank computes, which `spare_computing` permits: report the stall, but do not end the job."""
        late = [stall.ranks[rank] for rank in stall.culprits if rank in stall.ranks]
        computing = stall.kind in ("late", "idle") and any(it.doing == COMPUTING for it in late)
        return self.options.spare_computing and computing

    def _explained(self, stall: Stall) -> Stall:
        """The stall with the rank that left the common path, if the last calls of the ranks show it."""
        history = self._history()
        odd = differing(history)
        if odd is not None:
            return replace(stall, kind="differ", culprits=odd.culprits, did=odd.did, due=odd.due, others=odd.others)
        if stall.kind == "crossed":
            last = {rank: call for rank in stall.culprits if (call := stall.ranks[rank].last) is not None}
            odd = odd_one(history, last)
            if odd.due is not None:
                return replace(stall, culprits=odd.culprits, did=odd.did, due=odd.due, others=odd.others)
        return stall

    def _history(self) -> dict[int, list[Call]]:
        """The last calls of every rank of this node, in words."""
        found = {}
        for slot, words in enumerate(self.words):
            words.read()
            calls = [words.call(record) for record in read_calls(self.table, slot)]
            found[read_head(self.table, slot).rank] = [call for call in calls if call is not None]
        return found

    def _compare(self, last: bool = False) -> None:
        """Report once that ranks called different operations without a stall: their digests differ twice in a row (a
        record may be read while it is written) or at the end.
        """
        self.next_comparison = time.monotonic() + COMPARE_SECONDS
        digests: dict[tuple[str, int], dict[int, int]] = {}  # by group and number, then by rank
        for slot, words in enumerate(self.words):
            records = read_calls(self.table, slot)
            if any(record.site not in words.sites for record in records):
                words.read()
            for record in records:
                if record.digest and record.site in words.sites:
                    key = words.groups[words.sites[record.site][0]][0]
                    digests.setdefault((key, record.number), {})[read_head(self.table, slot).rank] = record.digest
        differ = {where for where, them in digests.items() if len(set(them.values())) > 1}
        if not self.differed and ((last and differ) or differ & self.suspects):
            self.differed = True
            self._tell_differing(digests[min(differ, key=lambda where: where[1])])
        self.suspects = differ

    def _tell_differing(self, digests: Mapping[int, int]) -> None:
        """Report ranks that called different operations and went on."""
        odd = differing(self._history())
        ranks = {it.rank: it for slot, head in enumerate(self._heads()) for it in [self._rank(slot, head, 0.0)]}
        if odd is None:
            values = list(digests.values())
            fewer = tuple(rank for rank, value in digests.items() if values.count(value) <= len(values) // 2)
            sites = {head.rank: words.every() for head, words in zip(self._heads(), self.words, strict=True)}
            did = rare(sites)
            due, others = due_there(sites, did)
            stall = Stall("differed", 0.0, tuple(sorted(did)) or fewer, (), ranks, did=did, due=due, others=others)
        else:
            stall = Stall("differed", 0.0, odd.culprits, (), ranks, did=odd.did, due=odd.due, others=odd.others)
        self._keep(stall, ended=False)
        _say(stall.text())

    def _heads(self) -> list[Head]:
        return [read_head(self.table, slot) for slot in range(self.options.ranks)]

    def _over(self, now: float) -> None:
        """Print that the stall is over, if there was one."""
        if self.told is not None:
            _say(f"the stall is over after {self.told.seconds + now - self.told_at:.1f} s")
            set_alarm(self.table, False)
        self.told = None

    def _rank(self, slot: int, head: Head, now: float) -> Rank:
        calls = read_calls(self.table, slot, most=1)
        record = calls[-1] if calls else None
        numbers = read_numbers(self.table, slot)
        life = RUNNING if head.state != HAS_LEFT else LEFT
        condition, ticks = process_state(head.pid)
        if life == RUNNING and condition == "":
            life = DEAD
        it, moved = self.seen[slot], _bytes_moved(head.pid)
        if it.state != (head, record, life) or moved - it.moved > MOVED:
            self.seen[slot] = it = Seen((head, record, life), now, ticks, moved)
        still = 0.0 if now < head.allowed_until and life == RUNNING else now - it.since
        share = (ticks - it.ticks) / os.sysconf("SC_CLK_TCK") / max(still, 1e-9)
        doing = STOPPED if condition in ("T", "t") else COMPUTING if share > 0.1 else "asleep"
        words = self.words[slot]
        if record is not None and record.site not in words.sites:
            words.read()
        by_key = {key: numbers[group] for group, (key, _, _) in words.groups.items()}
        call = None if record is None else words.call(record)
        return Rank(head.rank, head.pid, life, call, by_key, still, doing)

    def _report(self, stall: Stall) -> None:
        """Keep and print the report; the file also has the stacks."""
        stall = self.told = replace(stall, ranks=self._with_stacks(stall.ranks))
        self._keep(stall, ended=False)
        _write(self.options.folder / ALARM, stall.text())
        if stall.hopeless:
            set_alarm(self.table, True)  # ranks that poll the alarm while they wait raise
        _say(stall.text())

    def _keep(self, stall: Stall, ended: bool) -> None:
        """Write the report to the folder of the run; if the disk is full, only the printed text is left."""
        if self.options.keep is None:
            return
        report = {**stall.to_dict(), "host": socket.gethostname(), "ended": ended}
        try:
            self.options.keep.mkdir(parents=True, exist_ok=True)
            _write(self.options.keep / REPORT, json.dumps(report, indent=1))
        except OSError as error:
            _say(f"{self.options.keep / REPORT} could not be written: {error.strerror}")

    def _with_stacks(self, ranks: Mapping[int, Rank]) -> dict[int, Rank]:
        """The ranks with their stacks, requested by a signal that is answered even in compiled code."""
        slots = {head.rank: slot for slot in range(self.options.ranks) if (head := read_head(self.table, slot)).pid}
        files = {rank: self.options.folder / f"stack-{slot}" for rank, slot in slots.items()}
        sizes = {rank: file.stat().st_size for rank, file in files.items() if file.exists()}
        asked = []
        for rank, it in ranks.items():
            if it.life == RUNNING and rank in sizes and it.doing != "stopped":
                with contextlib.suppress(OSError):
                    os.kill(it.pid, STACK_SIGNAL)
                    asked.append(rank)
        self._wait_for_stacks({slots[rank]: (files[rank], sizes[rank]) for rank in asked})
        found = {}
        for rank, it in ranks.items():
            stack: list[str] = []
            if rank in sizes:
                modules = self.words[slots[rank]].modules
                with open(files[rank], encoding="utf-8", errors="replace") as lines:
                    lines.seek(sizes[rank])
                    stack = [text for line in lines if (text := _frame(line, modules))]
            found[rank] = replace(it, stack=tuple(stack))
        return found

    def _wait_for_stacks(self, asked: Mapping[int, tuple[Path, int]]) -> None:
        """Wait until the files of these slots have grown and stopped growing, but at most STACK_SECONDS: a process
        answers when it gets a core, which may take a while on a busy machine. A rank that has left never answers.
        """
        end = time.monotonic() + STACK_SECONDS
        lengths: list[int] = []
        while time.monotonic() < end:
            last, lengths = lengths, [file.stat().st_size for file, _ in asked.values()]
            grown = [now > before for now, (_, before) in zip(lengths, asked.values(), strict=True)]
            if lengths == last and all(done or self._is_gone(slot) for slot, done in zip(asked, grown, strict=True)):
                return
            time.sleep(STACK_POLL)

    def _is_gone(self, slot: int) -> bool:
        head = read_head(self.table, slot)
        return head.state != IS_RUNNING or not _alive(head.pid)

    def _end(self, stall: Stall) -> None:
        """End the processes of the ranks of this node, as listed in the table."""
        self._keep(replace(stall, ranks=self._with_stacks(stall.ranks)), ended=True)
        _say(f"stalled for {stall.seconds:.3g} s, past the limit of {self.options.end:g} s: the job is ended")
        set_ending(self.table)
        until = time.monotonic() + END_SECONDS * somebody_listens(self.table)
        while time.monotonic() < until and all(_alive(it.pid) for it in stall.ranks.values()):
            time.sleep(STACK_POLL)
        for it in stall.ranks.values():
            if _alive(it.pid):
                with contextlib.suppress(OSError):
                    os.kill(it.pid, signal.SIGKILL)
        self.ended = True


def main(arguments: list[str]) -> None:
    """`FOLDER RANKS LIMIT END KEEP SPARE`, as hpckit.comm.observe.watch starts it."""
    folder, ranks, limit, end, keep, spare = arguments
    kept = Path(keep) if keep else None
    options = Options(Path(folder), int(ranks), float(limit), float(end), kept, spare == "1")
    try:
        if kept is not None:
            (kept / REPORT).unlink(missing_ok=True)  # of an earlier watch in this folder
        Watcher(options).run()
    finally:
        shutil.rmtree(options.folder, ignore_errors=True)


def _frame(line: str, modules: Collection[str]) -> str:
    """`file:line (function)` of a stack line; '' for other lines and for frames of modules that communicate."""
    line = line.strip()
    if not line.startswith('File "') or '", line ' not in line:
        return ""
    file, rest = line[6:].split('", line ', 1)
    launcher = os.path.basename(os.path.dirname(file)) == "mpi4py"
    if launcher or file.startswith("<") or file in modules:
        return ""
    number, _, function = rest.partition(" in ")
    return f"{os.path.basename(file)}:{number} ({function})"


def process_state(pid: int) -> tuple[str, int]:
    """The state letter of a process ('' if it is gone) and its processor time in ticks."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as text:
            fields = text.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return "", 0
    return ("" if fields[0] in "ZX" else fields[0]), int(fields[11]) + int(fields[12])


def _bytes_moved(pid: int) -> int:
    """Bytes that a process has read from and written to file systems; 0 if not known."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as lines:
            return sum(int(line.split()[1]) for line in lines if line.startswith(("read_bytes", "write_bytes")))
    except (OSError, ValueError, IndexError):
        return 0


def _alive(pid: int) -> bool:
    return process_state(pid)[0] != ""


def _write(path: Path, text: str) -> None:
    """Write a file atomically."""
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)


def _say(text: str) -> None:
    print(f"hpckit watch: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
