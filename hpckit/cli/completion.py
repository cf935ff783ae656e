"""`hpckit completion bash|zsh|fish`: what a shell completes, made from the parsers, the presets and the settings."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterable, Iterator

from hpckit.cli.parsers import parser_of
from hpckit.settings.apps import apps, find_app
from hpckit.settings.schema import Schema, dotted
from hpckit.settings.table import Parser

SHELLS = {
    "bash": 'eval "$(hpckit completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(hpckit completion zsh)" in ~/.zshrc, after compinit',
    "fish": "hpckit completion fish > ~/.config/fish/completions/hpckit.fish",
}
TAKE_TARGETS = ("run", "submit", "init")  # verbs that take a preset or a run file, and settings

# Words of bash: verbs, the words of each verb, presets, the settings of each app. Files are completed beside them.
BASH = r"""
_hpckit_keys() {  # the settings of the app of a preset, or of a run file
    local app=$1
    if [ -f "$1" ]; then
        app=$(sed -n 's/^app *= *"\([a-z0-9_]*\)".*/\1/p' "$1" | head -n 1)
    fi
    case "$app" in
KEYS
    esac
}
_hpckit() {
    local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} target="" words="" at
    COMPREPLY=()
    if [ "$COMP_CWORD" -le 1 ]; then
        # shellcheck disable=SC2207  # words without blanks; zsh has no mapfile
        COMPREPLY=($(compgen -W "VERBS" -- "$word"))
        return
    fi
    case "$verb" in
WORDS
    esac
    case "$verb" in
    TARGETS)
        for ((at = 2; at < COMP_CWORD; at++)); do
            case ${COMP_WORDS[at]} in
            -* | *=* | [0-9]*) ;;
            *)
                target=${COMP_WORDS[at]}
                break
                ;;
            esac
        done
        if [ -n "$target" ]; then words+=" $(_hpckit_keys "$target")"; else words+=" PRESETS"; fi
        ;;
    esac
    # shellcheck disable=SC2207
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    case "${COMPREPLY[*]}" in
    *=) compopt -o nospace 2>/dev/null ;;
    esac
}
complete -o bashdefault -o default -F _hpckit hpckit
"""
FISH = r"""
function __hpckit_target  # the preset or run file of the line, if it has one
    for word in (commandline -opc)[3..-1]
        if not string match -qr -- '^-|=|^[0-9]' $word
            echo $word
            return 0
        end
    end
    return 1
end
function __hpckit_app  # whether the line's preset or run file is of this app, or one of these presets
    set -l target (__hpckit_target); or return 1
    if test -f $target
        set target (sed -n 's/^app *= *"\([a-z0-9_]*\)".*/\1/p' $target | head -n 1)
    end
    contains -- "$target" $argv
end
"""


def main(arguments: list[str]) -> int:
    """The verb `completion`."""
    lines = "\n".join(f"  {shell}: {line}" for shell, line in SHELLS.items())
    it = Parser(
        prog="hpckit completion",
        description="Print the completion of verbs, options, presets and settings for a shell.",
        epilog=f"To use it:\n{lines}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    it.add_argument("shell", choices=list(SHELLS), help="the shell")
    shell = it.parse_args(arguments).shell
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](), end="")
    return 0


def _bash() -> str:
    keys = "".join(
        f"    {' | '.join(_targets(app))}) echo {shlex.quote(' '.join(_settings(app)))} ;;\n" for app in apps()
    )
    words = "".join(
        f"    {verb}) words={shlex.quote(' '.join(word for word, _ in _options(verb)))} ;;\n" for verb in _verbs()
    )
    parts = {
        "KEYS\n": keys,
        "WORDS\n": words,
        "TARGETS": " | ".join(TAKE_TARGETS),
        "VERBS": " ".join(_verbs()),
        "PRESETS": " ".join(_presets()),
    }
    text = BASH.lstrip()
    for place, part in parts.items():
        text = text.replace(place, part)
    return text


def _zsh() -> str:
    """By zsh's own way to use completions of bash."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash()}"


def _fish() -> str:
    lines = [FISH.strip(), "complete -c hpckit -f -n __fish_use_subcommand"]
    for verb, does in _verbs().items():
        lines.append(f"complete -c hpckit -n __fish_use_subcommand -a {verb} -d {shlex.quote(does)}")
        for word, help in _options(verb):
            kind = "l" if word.startswith("--") else "s" if word.startswith("-") else "a"
            seen = f"-n '__fish_seen_subcommand_from {verb}'"
            lines.append(f"complete -c hpckit {seen} -{kind} {word.lstrip('-')} -d {shlex.quote(help)}")
    takes = f"__fish_seen_subcommand_from {' '.join(TAKE_TARGETS)}"
    lines.append(f"complete -c hpckit -n '{takes}; and not __hpckit_target' -a {shlex.quote(' '.join(_presets()))}")
    for app in apps():
        said = f"'{takes}; and __hpckit_app {' '.join(_targets(app))}'"
        lines.append(f"complete -c hpckit -n {said} -a {shlex.quote(' '.join(_settings(app)))}")
    return "\n".join(lines) + "\n"


def _verbs() -> dict[str, str]:
    """Verb -> what it does."""
    from hpckit.cli.main import VERBS

    return {verb: does for verb, (_, _, does) in VERBS.items()}


def _options(verb: str) -> Iterator[tuple[str, str]]:
    """Options of a verb, and the words that it takes in their place, each with what it does."""
    yield from _of(parser_of(verb))


def _of(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    for action in parser._actions:
        does = " ".join((action.help or "").split()).replace("%%", "%")
        if isinstance(action, argparse._SubParsersAction):
            shown = {choice.dest: choice.help or "" for choice in action._choices_actions}
            yield from shown.items()
            for name in shown:
                yield from ((word, text) for word, text in _of(action.choices[name]) if word.startswith("-"))
        elif action.option_strings:
            yield from ((word, does) for word in action.option_strings)
        elif action.choices:
            yield from ((str(choice), does) for choice in action.choices)


def _presets() -> list[str]:
    """Presets, by their own name and by that of their app and theirs."""
    return [name for app in apps() for name in _targets(app)[1:]]


def _targets(app: str) -> list[str]:
    """What may stand for an app in a line: its name, and its presets."""
    return [app, *(name for preset in find_app(app).presets for name in (preset, f"{app}/{preset}"))]


def _settings(app: str) -> Iterable[str]:
    return [f"{dotted(path)}=" for path in Schema(find_app(app).config).leaves()]
