"""What the user sees: tables, and a live bar on a terminal. The only module that imports rich, and only when needed."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, Protocol, TextIO

from hpckit.errors import InputError, visible
from hpckit.run.progress import clock_text


def _not_a_number(found: re.Match[str]) -> str:
    return f"{found[2]} is not a {'whole ' if found[1] == 'int' else ''}number"


class Parser(argparse.ArgumentParser):
    """A command-line parser that reports its errors in the form of all others."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and where the usage stands, and exit with 2."""
        message = message.replace("the following arguments are required:", "it needs")
        message = re.sub(r"invalid (float|int) value: ('.*')$", _not_a_number, message, flags=re.DOTALL)
        told = InputError(f"{self.prog}: {visible(message)}", do=f"see {self.prog} --help")
        self.exit(told.exit_code, told.report() + "\n")


class Display(Protocol):
    """Where the lines of a running job go."""

    def __enter__(self) -> Display: ...
    def __exit__(self, *unused: object) -> None: ...

    def line(self, text: str, is_error: bool = False) -> None:
        """Show one line."""

    def update(self, state: dict[str, Any] | None) -> None:
        """Show how far the run is: the content of `progress.json`."""


class PlainLines:
    """Lines as they come; progress is among them."""

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(self, *unused: object) -> None:
        pass

    def line(self, text: str, is_error: bool = False) -> None:
        """Print one line; if the reader has gone, the job goes on without output."""
        try:
            print(text, file=sys.stderr if is_error else sys.stdout, flush=True)
        except BrokenPipeError:
            silence(sys.stderr if is_error else sys.stdout)

    def update(self, state: dict[str, Any] | None) -> None:
        """Nothing: the ranks print progress lines."""


class LiveBar:
    """A bar that stays at the bottom while lines scroll above it."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.percentage:5.1f} %"),
            BarColumn(bar_width=None),
            TextColumn("{task.description}"),
            expand=True,
        )
        self._task = self._bar.add_task("starting", total=1.0)

    def __enter__(self) -> LiveBar:
        self._bar.start()
        return self

    def __exit__(self, *unused: object) -> None:
        self._bar.stop()

    def line(self, text: str, is_error: bool = False) -> None:
        """Print one line above the bar."""
        self._bar.console.print(text, style="red" if is_error else None, markup=False, highlight=False, soft_wrap=True)

    def update(self, state: dict[str, Any] | None) -> None:
        """Move the bar."""
        if state and "fraction" in state:
            parts = [f"step {state['step']}", state["rate"]]
            if state["eta_seconds"] is not None:
                parts.append(f"{clock_text(state['eta_seconds'])} left")
            self._bar.update(self._task, completed=state["fraction"], description="  ".join(filter(None, parts)))


def display() -> Display:
    """A live bar on a terminal, plain lines elsewhere."""
    return LiveBar() if sys.stdout.isatty() else PlainLines()


def silence(stream: TextIO) -> None:
    """Discard what `stream` holds in its buffer, and all that is written to it from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "", error: bool = False) -> None:
    """Print a table: whole on a terminal's width, unbroken lines elsewhere."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    class Plain(Console):
        """A console that raises `BrokenPipeError` when its reader has gone, where rich's ends the process."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    stream = sys.stderr if error else sys.stdout
    console = Plain(file=stream, width=None if stream.isatty() else 200, highlight=False)
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    cells = [[_cell(value) for value in row] for row in rows]
    for index, name in enumerate(columns):
        numeric = bool(cells) and all(is_number(row[index]) for row in cells if row[index])
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in cells:
        table.add_row(*row)
    console.print(table)


def bytes_text(count: float) -> str:
    """Bytes as `512 B`, `1.5 MiB`."""
    units = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = 0
    while abs(count) >= 1023.5 and power < len(units) - 1:
        count, power = count / 1024, power + 1
    return f"{count:.0f} {units[power]}" if power == 0 or 100 <= abs(count) < 1e6 else f"{count:.3g} {units[power]}"


def rate_text(rate: float, unit: str) -> str:
    """A rate with its prefix: `84.2 M cell-steps/s`."""
    for prefix, scale in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if rate >= scale:
            return f"{rate / scale:.3g} {prefix} {unit}"
    return f"{rate:.3g} {unit}"


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_cell, value))
    return f"{value:.4g}" if isinstance(value, float) else visible(str(value))


def is_number(text: str) -> bool:
    """Whether a text is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True
