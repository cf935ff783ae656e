"""`hpckit bench NAME`: measure, and print a table or one JSON object."""

from __future__ import annotations

import importlib

from hpckit.bench import BENCHMARKS
from hpckit.bench.command import add_common, perform
from hpckit.errors import InputError, did_you_mean
from hpckit.settings.table import Parser


def main(arguments: list[str]) -> int:
    """The verb `bench`."""
    it = Parser(prog="hpckit bench", description="Measure hpckit against its rivals on this machine.")
    it.add_argument("name", nargs="?", metavar="NAME", help="which benchmark; left out: list them")
    add_common(it)
    options, _ = it.parse_known_args([word for word in arguments if word not in ("-h", "--help")])
    if options.name in BENCHMARKS:
        module = importlib.import_module(BENCHMARKS[options.name].module)
        return perform(module, it, it.parse_intermixed_args, arguments)
    it.parse_intermixed_args(arguments)
    if options.name is not None:
        near = did_you_mean(options.name, BENCHMARKS)
        raise InputError(f"no benchmark {options.name!r}", likely=near, do=f"benchmarks: {', '.join(BENCHMARKS)}")
    width = max(map(len, BENCHMARKS))
    for name, (_, measures) in BENCHMARKS.items():
        print(f"{name:{width}}  {measures}")
    return 0
