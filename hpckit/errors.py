"""Errors that a user can meet: each says what is wrong, where, why and what to do, and has an exit code."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

LONGEST_LINE = 2000  # characters
SPACES = "\t\u00a0\u2009\u202f"  # between a number and its unit; Python counts them as not printable


class HpckitError(Exception):
    """A failure with a code of its own (`HPK-…`), reported in four parts: message, where, likely cause, what to do.

    `where`, `likely` and `do` may be empty; `exit_code` is the exit code of the process (table in docs/run-files.md).
    """

    code = "HPK-000"
    title = "error"
    exit_code = 1

    def __init__(self, message: str, *, where: str = "", likely: str = "", do: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.likely = likely
        self.do = do

    def report(self) -> str:
        """The error as the terminal shows it: a sentence, then a line for each part that is not empty."""
        lines = [f"{self.code} {self.title}: {self.message}"]
        lines += [
            f"  {name + ':':8s}{text}"
            for name, text in (("where", self.where), ("likely", self.likely), ("do", self.do))
            if text
        ]
        return visible("\n".join(lines))

    def to_dict(self) -> dict[str, object]:
        """The same as plain values, for `failure.json`."""
        return {
            "code": self.code,
            "title": self.title,
            "message": self.message,
            "where": self.where,
            "likely": self.likely,
            "do": self.do,
            "exit_code": self.exit_code,
        }


def visible(text: str) -> str:
    """`text` as a terminal may get it: escapes in place of characters that it obeys or does not show, except ends of
    lines and tabs; long lines are cut short.
    """
    return "\n".join(map(_visible_line, text.split("\n")))


def _visible_line(line: str) -> str:
    if not line.isprintable():
        line = "".join(map(_visible, line[:LONGEST_LINE]))
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 1] + "…"


def _visible(character: str) -> str:
    return character if character.isprintable() or character in SPACES else ascii(character)[1:-1]


def nearest(name: object, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known name that is most like `name`; "" where none is."""
    near = get_close_matches(str(name), list(known), n=1, cutoff=cutoff)
    return near[0] if near else ""


def did_you_mean(name: object, known: Iterable[str], otherwise: str = "") -> str:
    """The nearest of the known names as a question; `otherwise` where none is near."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else otherwise


class InputError(HpckitError):
    """A run file, an option or a data file that cannot be used."""

    code = "HPK-200"
    title = "bad input"
    exit_code = 2


class Mistakes:
    """The mistakes that several checks find, told as one error: `it(check)` gives what `check()` does, None where that
    raises `InputError`; `tell()` raises.
    """

    def __init__(self) -> None:
        self.found: list[InputError] = []

    def __call__(self, check: Callable[[], Any]) -> Any:
        """What the check gives, None where it raises."""
        try:
            return check()
        except InputError as mistake:
            self.found.append(mistake)
            return None

    def tell(self) -> None:
        """Raise the mistake, or one `InputError` of all of them."""
        if not self.found:
            return
        if len(self.found) == 1:
            raise self.found[0]
        hints = [mistake.do for mistake in self.found if mistake.do]
        raise InputError(
            "\n".join(dict.fromkeys(mistake.message for mistake in self.found)),
            where=next((mistake.where for mistake in self.found if mistake.where), ""),
            likely=next((mistake.likely for mistake in self.found if mistake.likely), ""),
            do="; ".join(dict.fromkeys(hints)),
        )


class DecompositionError(InputError, ValueError):
    """A grid that cannot be cut over the given ranks; the message lists the numbers of ranks that work."""

    code = "HPK-201"
    title = "bad decomposition"


class PlanError(InputError, ValueError):
    """A plan that does not do what it claims; the message names the rank, the phase and the wrong message."""

    code = "HPK-202"
    title = "wrong plan"


class SetupError(HpckitError):
    """The machine lacks something: an MPI library, a launcher, a package, a writable folder."""

    code = "HPK-300"
    title = "bad environment"
    exit_code = 3


class InUseError(SetupError):
    """Another process uses the run directory; the message names it."""

    code = "HPK-301"
    title = "in use"


class BlowUpError(HpckitError):
    """The solution is no longer finite, or the time step breaks its CFL limit."""

    code = "HPK-400"
    title = "blow-up"
    exit_code = 4


class CorruptDataError(HpckitError):
    """A file that was complete when it was written and is damaged now."""

    code = "HPK-500"
    title = "corrupt data"
    exit_code = 5


class SilentCorruptionError(CorruptDataError):
    """A wrong value in memory or in a message: a step computed twice gave two results, or a checksum differs."""

    code = "HPK-501"
    title = "silent corruption"


class StallError(HpckitError):
    """Ranks wait for a rank that does not arrive; names that rank, its operation and line, and the ranks that wait."""

    code = "HPK-600"
    title = "stall"
    exit_code = 6


class MismatchError(HpckitError):
    """Ranks called different collective operations, which never end or give wrong values; names the calls."""

    code = "HPK-601"
    title = "collectives differ"
    exit_code = 6


class RankLostError(HpckitError):
    """A rank ended without a report: it was killed, crashed, or raised outside of hpckit."""

    code = "HPK-700"
    title = "rank lost"
    exit_code = 7


EXIT_STOPPED = 75  # ended early on purpose, with complete files: hpckit resume DIR
EXIT_MISSED = 1  # a validation found numbers outside of their accepted range
EXIT_CODES = {
    0: "done",
    1: "unexpected error (a defect of hpckit or of user code; the traceback is kept), or a validation missed a number",
    2: "bad input: run file, option or data file",
    3: "bad environment: MPI, launcher, package or folder",
    4: "blow-up: a field is not finite, or the CFL limit is broken",
    5: "corrupt data in a file, or found by [checks] in memory or in a message",
    6: "stall",
    7: "rank lost",
    EXIT_STOPPED: "stopped early on purpose, files complete: hpckit resume DIR",
}


_WRITE_PROBLEMS = {
    errno.ENOSPC: ("the disk is full", "free some space, or choose another directory or a longer output interval"),
    errno.EDQUOT: ("the quota is used up", "free some space, or choose a directory with a larger quota"),
    errno.EFBIG: ("the file would pass the size limit", "raise the limit (ulimit -f) or use more ranks"),
    errno.EACCES: ("no permission to write here", "choose a directory you may write to"),
    errno.EPERM: ("no permission to write here", "choose a directory you may write to"),
    errno.EROFS: ("the file system is read-only", "choose a directory on a writable file system"),
    errno.ENOTDIR: ("a file stands where a directory should be", "remove that file or choose another directory"),
    errno.ENOENT: ("there is no such folder", "make the folder first, or choose another one"),
    errno.EISDIR: ("a directory stands where the file should be", "remove that directory or choose another one"),
    errno.EEXIST: ("a file stands where a directory should be", "remove that file or choose another directory"),
    errno.EIO: ("the disk reports an error", "run again on another disk, and tell the administrator"),
}


def write_error(error: OSError, path: Path) -> HpckitError:
    """The error for the user, with advice, for an `OSError` while writing a file."""
    reason, advice = _WRITE_PROBLEMS.get(
        error.errno or 0, (error.strerror or str(error), "check the directory with `hpckit doctor`")
    )
    return SetupError(f"cannot write {path.name}: {reason}", where=str(path), likely=reason, do=advice)
