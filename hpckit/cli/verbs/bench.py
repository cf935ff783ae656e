"""`hpckit bench NAME`: measure, and print a table or one JSON object."""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hpckit.comm.json_bytes import plain
from hpckit.errors import EXIT_MISSED, InputError, did_you_mean
from hpckit.settings.table import print_table


def main(arguments: list[str]) -> int:
    """The verb `bench`."""
    it = argparse.ArgumentParser(prog="hpckit bench", description="Measure hpckit against its rivals on this machine.")
    it.add_argument("name", nargs="?", metavar="NAME", help="which benchmark; left out: list them")
    it.add_argument("--json", action="store_true", help="print one JSON object on standard output, all else on error")
    it.add_argument("--quick", action="store_true", help="smaller and fewer, within a minute")
    options, _ = it.parse_known_args([word for word in arguments if word not in ("-h", "--help")])
    known = benchmarks()
    module: Any = importlib.import_module(f"hpckit.bench.{options.name}") if options.name in known else None
    own = module.add_options(it) if hasattr(module, "add_options") else ()
    options = it.parse_intermixed_args(arguments)
    if options.name is None:
        width = max(map(len, known), default=0)
        for name, line in known.items():
            print(f"{name:{width}}  {line}")
        return 0
    if options.name not in known:
        near = did_you_mean(options.name, known)
        raise InputError(f"no benchmark {options.name!r}", likely=near, do=f"benchmarks: {', '.join(known)}")
    with _standard_output_to_error():
        result = module.run(quick=options.quick, **{name: getattr(options, name) for name in own})
    show(result, options.json)
    return exit_code(result)


def exit_code(result: dict[str, Any]) -> int:
    """That of a benchmark's end; says which figures are not what they must be."""
    for line in result.get("missed", ()):
        print(f"missed: {line}", file=sys.stderr, flush=True)
    return EXIT_MISSED if result.get("missed") else 0


def show(result: dict[str, Any], as_json: bool) -> None:
    """What a benchmark found, on standard output."""
    if as_json:
        print(json.dumps(plain(result)))
    else:
        _print_result(result)


def benchmarks() -> dict[str, str]:
    """Name -> first docstring line of each module of hpckit.bench that has a function `run`; none is imported."""
    found = {}
    folder = Path(str(importlib.import_module("hpckit.bench").__file__)).parent
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        if any(isinstance(node, ast.FunctionDef) and node.name == "run" for node in tree.body):
            found[path.stem] = (ast.get_docstring(tree) or "").split("\n")[0]
    return found


@contextlib.contextmanager
def _standard_output_to_error() -> Iterator[None]:
    """Whatever is printed meanwhile, by child processes too, goes to standard error."""
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


def _print_result(result: dict[str, Any]) -> None:
    """Machine, results and ratios as tables."""
    machine = result.get("machine", {})
    print(f"{result['bench']} on {', '.join(f'{key} {value}' for key, value in machine.items())}")
    rows = result.get("results", [])
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if rows:
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
    """Where a median lies, for a table."""
    return "" if interval is None else " to ".join(f"{end:.4g}" for end in interval)
