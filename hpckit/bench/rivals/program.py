"""Any external program as a rival: it is run in turn with ours, and its own time is read from what it prints."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from hpckit.bench.measure import seconds_of
from hpckit.errors import InputError

NUMBER = r"([0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+)"
# Tried in this order. "Elapsed Time: 40.0 / 50.0" is simulated time, so only an elapsed time alone on its line counts.
DEFAULT_PATTERNS = (
    rf"(?im)\bcpu[ _-]?time[^\n0-9]*?[:=]\s*{NUMBER}",
    rf"(?im)\b(?:wall|run|total)[ _-]?(?:clock)?[ _-]?(?:time|seconds)[^\n0-9]*?[:=]\s*{NUMBER}",
    rf"(?im)\belapsed\b[^\n0-9]*?[:=]\s*{NUMBER}\s*(?:s|sec|secs|seconds)?\s*$",
    rf"(?im)\b{NUMBER}\s*(?:sec|secs|second|seconds)\b",
)
# What the mini-app says of its case: its cells, and at every step how far it has come in simulated seconds.
CELLS = r"nx_glob(?:al)?, nz_glob(?:al)?:\s*(\d+)\s+(\d+)"
SIMULATED = rf"Elapsed Time:\s*{NUMBER}\s*/\s*{NUMBER}"
MOST_SECONDS = 3600.0
LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Rival:
    """An external program. command: quoted as in a shell. pattern: its first group holds the seconds."""

    command: str
    pattern: str | None = None

    def check(self) -> None:
        """Raise `InputError` for a command or a pattern that cannot be read."""
        try:
            words = shlex.split(self.command)
        except ValueError as error:
            raise InputError(f"--against {self.command!r} cannot be read: {error}", do="check its quotes") from None
        if not words:
            raise InputError("--against was given no command", do="as in --against './miniWeather'")
        try:
            groups = re.compile(self.pattern or DEFAULT_PATTERNS[0]).groups
        except re.error as error:
            raise InputError(f"--against-pattern {self.pattern!r} is not a regular expression: {error}") from None
        if not groups:
            raise InputError(
                f"--against-pattern {self.pattern!r} has no group for the seconds",
                do="put parentheses around the number, as in 'CPU Time: ([0-9.]+)'",
            )

    def seconds(self) -> tuple[float, bool]:
        """Run it once: the seconds that it prints, or else those from its start to its end; whether it printed them.

        Raises `InputError` where it is not found, fails, runs for over an hour, or prints nothing that a pattern of
        the user's finds.
        """
        text, wall = self._run()
        found = self._printed(text)
        if found is None and self.pattern:
            raise InputError(
                f"{self.command!r} printed nothing that {self.pattern!r} finds",
                do="leave out --against-pattern to take its whole wall time",
            )
        return (wall, False) if found is None else (found, True)

    def case(self) -> tuple[str | None, float | None]:
        """Run it once: the cells ("400x200") and the simulated seconds of its case, None for what it does not say."""
        text, _ = self._run()
        cells, simulated = re.search(CELLS, text), re.search(SIMULATED, text)
        return f"{cells[1]}x{cells[2]}" if cells else None, float(simulated[2]) if simulated else None

    def _run(self) -> tuple[str, float]:
        """What it prints in a run, and the seconds from its start to its end."""
        begin = time.perf_counter()
        try:
            done = subprocess.run(
                shlex.split(self.command), capture_output=True, text=True, errors="replace", check=False,
                stdin=subprocess.DEVNULL, timeout=MOST_SECONDS,
            )  # fmt: skip
        except (FileNotFoundError, PermissionError, OSError) as error:
            raise InputError(
                f"{self.command!r} does not start: {error.strerror or error}",
                do="give the program's path, and mpiexec before it where it needs that",
            ) from None
        except subprocess.TimeoutExpired:
            raise InputError(f"{self.command!r} ran for more than {MOST_SECONDS:g} s") from None
        wall = time.perf_counter() - begin
        if done.returncode:
            tail = (done.stderr.strip() or done.stdout.strip())[-300:]
            raise InputError(f"{self.command!r} ended with {done.returncode}: {tail or 'it printed nothing'}")
        return done.stdout + "\n" + done.stderr, wall

    def _printed(self, text: str) -> float | None:
        patterns = (self.pattern,) if self.pattern else DEFAULT_PATTERNS
        matches = (list(re.finditer(pattern, text)) for pattern in patterns)
        digits = next((found[-1][1] for found in matches if found), None)
        if digits is None:
            return None
        try:
            seconds = float(digits)
        except ValueError:
            raise InputError(f"{self.command!r} printed {digits!r}, which is not a number of seconds") from None
        if not 0 < seconds < MOST_SECONDS:
            raise InputError(f"{self.command!r} printed {seconds:g} s, which is too short or too long to compare with")
        return seconds


def in_turn(rival: Rival, ours: Callable[[], object], rounds: int) -> tuple[list[float], list[float], bool]:
    """Seconds of the rival and of ours, round by round, and whether the rival printed its own in all of them.

    Ours runs once before, which compiles it and touches its memory.
    """
    ours()
    theirs, own, printed = [], [], True
    for _ in range(rounds):
        seconds, told = rival.seconds()
        printed &= told
        theirs.append(seconds)
        own.append(seconds_of(ours))
    return theirs, own, printed
