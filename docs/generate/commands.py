"""The page of all commands, made from their parsers."""

from __future__ import annotations

import argparse
import re

from pieces import code, linked, table

from hpckit.bench import BENCHMARKS
from hpckit.cli.main import VERBS
from hpckit.cli.parsers import parser_of

HEAD = """# Commands

`hpckit VERB --help` prints the same. Every command ends with an [exit code](errors.md) that says why.

"""


def page() -> str:
    """All verbs with their options; below `plan` and `bench` what these take beside the common ones."""
    verbs = table(
        ("command", "does"), ((f"[{code('hpckit ' + verb)}](#hpckit-{verb})", VERBS[verb][2]) for verb in VERBS)
    )
    return HEAD + verbs + "\n" + "\n".join(_verb(verb) for verb in VERBS)


def _verb(verb: str) -> str:
    _, takes, does = VERBS[verb]
    text = f"## hpckit {verb}\n\n{_sentence(does)}\n\n{_parser(parser_of(verb), takes)}"
    if verb == "plan":
        for operation in ("pipeline", "halo"):
            text += f"\n### hpckit plan {operation}\n\n{_parser(parser_of(f'plan {operation}'))}"
    if verb == "bench":
        text += _benchmarks()
    return text


def _parser(parser: argparse.ArgumentParser, takes: str = "", level: int = 3) -> str:
    """Usage, description, options and subcommands of one parser."""
    parts = [f"```text\n{_usage(parser, takes)}\n```\n"]
    parts += [linked(parser.description, "../") + "\n"] if parser.description else []
    parts += [_options(parser._actions)]
    parts += [linked(_sentence(_commands_as_code(parser.epilog)), "../") + "\n"] if parser.epilog else []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, inner in action.choices.items():
                parts.append(f"{'#' * level} {inner.prog}\n\n{_sentence(helps.get(name, ''))}\n")
                parts.append(_parser(inner, level=level + 1))
    return "\n".join(part for part in parts if part.strip())


def _usage(parser: argparse.ArgumentParser, takes: str) -> str:
    if parser.usage:
        return parser.usage
    return f"{parser.prog} {takes}" if takes else parser.format_usage().removeprefix("usage: ").rstrip()


def _options(actions: list[argparse.Action]) -> str:
    """A table of what can be given; options that belong to the machinery (help suppressed) are left out."""
    rows = []
    for action in actions:
        if isinstance(action, (argparse._HelpAction, argparse._SubParsersAction)) or action.help == argparse.SUPPRESS:
            continue
        value = "" if action.nargs == 0 else _value(action)
        names = ", ".join(action.option_strings)
        rows.append((code(f"{names} {value}".strip()), linked(_sentence(_help(action)), "../")))
    return table(("option", "meaning"), rows) if rows else ""


def _value(action: argparse.Action) -> str:
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    if action.metavar:
        return action.metavar
    if action.choices:
        return " / ".join(map(str, action.choices))
    return action.dest.upper() if action.option_strings else action.dest


def _help(action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": ""} if action.help else ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "." if text and not text.endswith((".", ")")) else text[:1].upper() + text[1:]


def _commands_as_code(text: str) -> str:
    return re.sub(r"example: (hpckit .*)", r"Example: `\1`", text)


def _benchmarks() -> str:
    """The benchmarks, with the options that only one of them takes."""
    common = {action.dest for action in parser_of("bench")._actions}
    rows, texts = [], []
    for name, (_, line) in BENCHMARKS.items():
        rows.append((code(f"hpckit bench {name}"), line))
        own = [action for action in parser_of(f"bench {name}")._actions if action.dest not in common]
        if own:
            texts.append(f"\n### hpckit bench {name}\n\n{line}\n\n{_options(own)}")
    return "\n" + table(("benchmark", "measures"), rows) + "".join(texts)
