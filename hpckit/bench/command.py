"""A benchmark as a command: its options, its output, its exit code; for `hpckit bench` and for `python -m`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

from hpckit.comm.agree import plain
from hpckit.errors import EXIT_MISSED, HpckitError
from hpckit.settings.table import Parser, print_table


def add_common(parser: argparse.ArgumentParser) -> None:
    """The options of all benchmarks."""
    parser.add_argument("--json", action="store_true", help="print one JSON object, all else on standard error")
    parser.add_argument("--quick", action="store_true", help="smaller and fewer, within a minute")


def add_only(parser: Any, parts: Sequence[str], metavar: str = "KEY") -> tuple[str, ...]:
    """`--only PART`, which may be repeated; the option's name, for `run`."""
    told = f"one part, of: {', '.join(parts)}"
    parser.add_argument("--only", metavar=metavar, action="append", choices=parts, help=told)
    return ("only",)


def main_of(module: Any, prog: str, arguments: Sequence[str]) -> int:
    """Run a benchmark that has no verb; errors are printed as `hpckit` prints them. Returns the exit code."""
    parser = Parser(prog=prog, description=(module.__doc__ or "").partition("\n")[0])
    add_common(parser)
    try:
        return perform(module, parser, parser.parse_args, arguments)
    except HpckitError as error:
        print(error.report(), file=sys.stderr, flush=True)
        return error.exit_code


def perform(module: ModuleType, parser: argparse.ArgumentParser, parse: Any, arguments: Sequence[str]) -> int:
    """Add the options of a benchmark, read them by `parse`, run it and print the result; returns its exit code."""
    own = module.add_options(parser) if hasattr(module, "add_options") else ()
    options = parse(arguments)
    with _standard_output_to_error():
        result = module.run(quick=options.quick, **{name: getattr(options, name) for name in own})
    show(result, options.json)
    return exit_code(result)


def exit_code(result: dict[str, Any]) -> int:
    """The exit code of a benchmark; prints which results are wrong."""
    for line in result.get("missed", ()):
        print(f"missed: {line}", file=sys.stderr, flush=True)
    return EXIT_MISSED if result.get("missed") else 0


def show(result: dict[str, Any], as_json: bool) -> None:
    """Print the result of a benchmark: one JSON object, or machine, results and ratios as tables."""
    if as_json:
        print(json.dumps(plain(result)))
        return
    print(f"{result['bench']} on {', '.join(f'{key} {value}' for key, value in result.get('machine', {}).items())}")
    rows = result.get("results", [])
    if rows:
        columns = list(dict.fromkeys(key for row in rows for key in row))
        print_table(columns, [[row.get(column) for column in columns] for row in rows])
    ratios = result.get("ratios", {})
    if ratios:
        print("ratios (above 1 is better for hpckit, but for costs and times, as docs/benchmarks.md says of each)")
        columns = ["median", "low", "high", "rounds"]
        if any("interval" in ratio for ratio in ratios.values()):
            columns.append("interval")
            ratios = {key: {**ratio, "interval": _ends(ratio.get("interval"))} for key, ratio in ratios.items()}
        print_table(["key", *columns], [[key, *(ratio.get(name) for name in columns)] for key, ratio in ratios.items()])


def _ends(interval: list[float] | None) -> str:
    """The ends of an interval, for a table."""
    return "" if interval is None else " to ".join(f"{end:.4g}" for end in interval)


@contextlib.contextmanager
def _standard_output_to_error() -> Iterator[None]:
    """Redirect standard output, also of child processes, to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
