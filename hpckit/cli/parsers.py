"""The parsers of the command line as the verbs make them: for the reference, and to check written commands."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
from collections.abc import Callable, Iterator

from hpckit.cli.main import VERBS
from hpckit.errors import HpckitError


class Parsed(Exception):
    """Raised in place of the work of a verb: its parser, and the options that it read."""

    def __init__(self, parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
        super().__init__(parser.prog)
        self.parser, self.options = parser, options


class WrongCommandError(Exception):
    """A command line that its verb refuses, with what the verb says."""


LAST_STEPS = ("parse_args", "parse_intermixed_args", "parse_known_args")
KNOWN_IS_LAST = ("hpckit submit",)  # hands what it does not know to another parser; others only look with it


@contextlib.contextmanager
def _only_parsing() -> Iterator[None]:
    """Let verbs come as far as their options: the last step of parsing raises `Parsed`."""
    kept = {name: getattr(argparse.ArgumentParser, name) for name in LAST_STEPS}

    def stopping(name: str, parse: Callable) -> Callable:
        def parse_and_stop(self: argparse.ArgumentParser, *arguments: object, **named: object) -> object:
            result = parse(self, *arguments, **named)
            if name == "parse_known_args" and self.prog not in KNOWN_IS_LAST:
                return result
            raise Parsed(self, result[0] if isinstance(result, tuple) else result)

        return parse_and_stop

    try:
        for name, parse in kept.items():
            setattr(argparse.ArgumentParser, name, stopping(name, parse))
        yield
    finally:
        for name, parse in kept.items():
            setattr(argparse.ArgumentParser, name, parse)


def parsed(words: list[str]) -> Parsed:
    """The parser and options of `hpckit WORDS`; nothing is run. Raises `WrongCommandError` where it is refused."""
    if not words or words[0] not in VERBS:
        raise WrongCommandError(f"hpckit has no verb {' '.join(words[:1])!r}")
    told = io.StringIO()
    try:
        with _only_parsing(), contextlib.redirect_stderr(told):
            importlib.import_module(VERBS[words[0]][0]).main(words[1:])
    except Parsed as found:
        return found
    except SystemExit:
        raise WrongCommandError(told.getvalue()) from None
    except HpckitError as error:
        raise WrongCommandError(error.report()) from None
    raise WrongCommandError(f"hpckit {' '.join(words)}: refused before its options are read\n{told.getvalue()}")


# What the verbs need beside their name until they have made their parsers.
SAMPLES = {
    "run": ["run", "heat"],
    "resume": ["resume", "DIR"],
    "submit": ["submit", "heat", "--nodes", "1", "--time", "10"],
    "ckpt": ["ckpt", "ls", "DIR"],
    "report": ["report", "DIR"],
    "watch": ["watch", "DIR"],
    "analyze": ["analyze", "FILE"],
    "compare": ["compare", "A", "B"],
    "sample": ["sample", "DIR"],
    "generate": ["generate", "DIR", "FILE"],
    "serve": ["serve", "DIR"],
    "pack": ["pack", "DIR"],
    "export": ["export", "wrf", "DIR"],
    "graph": ["graph", "status", "FILE"],
    "plan": ["plan", "allreduce"],
    "completion": ["completion", "bash"],
}


def parser_of(command: str) -> argparse.ArgumentParser:
    """The parser of a command such as `run`, `plan pipeline` or `bench md`."""
    return parsed(SAMPLES.get(command, command.split())).parser
