"""`hpckit ckpt ls|verify|prune|export DIR`: the checkpoints of a run, or those in a folder of a program's own."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from argparse import Namespace
from pathlib import Path

from hpckit.errors import CorruptDataError, HpckitError, InputError, SetupError
from hpckit.io.checkpoint.manifest import committed, generations, is_refused, prune
from hpckit.io.checkpoint.reader import open_generation
from hpckit.launch.lock import locked
from hpckit.run.directory import RunDirectory
from hpckit.settings.table import Parser, bytes_text, print_table

PRECISIONS = ("float32", "float64", "bfloat16", "float16")
RUN = ("resolved.json", "attempts", "ckpt")  # a run has one of these


def main(arguments: list[str]) -> int:
    """The verb `ckpt`."""
    it = Parser(prog="hpckit ckpt", description="List, check, remove or export the checkpoints of a run.")
    verbs = it.add_subparsers(dest="verb", required=True, metavar="ls|verify|prune|export")
    listing = verbs.add_parser("ls", help="the generations, each with its step, size and state")
    verify = verbs.add_parser("verify", help="read every byte and compare it with its hash; exit code 5 if one differs")
    verify.add_argument("generations", nargs="*", metavar="gNNNNNN", help="which (all that were finished)")
    pruning = verbs.add_parser("prune", help="remove old and unfinished generations")
    pruning.add_argument("--keep", type=int, default=1, metavar="N", help="how many of the newest stay (1)")
    exporting = verbs.add_parser("export", help="write a language model of `train` as transformers opens it")
    exporting.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="where model.safetensors goes")
    exporting.add_argument("--precision", choices=PRECISIONS, default="", help="of the tensors (the run's)")
    exporting.add_argument("--generation", metavar="gNNNNNN", default="", help="which (the newest that was finished)")
    for verb in (listing, verify, pruning, exporting):
        verb.add_argument("directory", metavar="DIR", help="the run directory, or a program's folder of checkpoints")
    options = it.parse_args(_directory_last(arguments))
    directory = RunDirectory(options.directory)
    root = directory.checkpoints
    if not any((directory.path / name).exists() for name in RUN):
        if not generations(directory.path):
            raise InputError(
                f"{directory.path} is not a run directory, and holds no checkpoints",
                do="give a directory that `hpckit run` made (`hpckit ls` lists them), or the folder of hp.Checkpoints",
            )
        root = directory.path
    if options.verb == "ls":
        return _list(root)
    if options.verb == "export":
        return _export(directory, root, options)
    return _verify(root, options.generations) if options.verb == "verify" else _prune(directory, root, options.keep)


def _directory_last(arguments: list[str]) -> list[str]:
    """`verify DIR g000012` as well as `verify g000012 DIR`: argparse takes many before one, not after it."""
    if arguments[:1] != ["verify"]:
        return arguments
    words = [word for word in arguments[1:] if not word.startswith("-")]
    others = [word for word in arguments[1:] if word.startswith("-")]
    names = [word for word in words if _is_name(word)]
    return ["verify", *others, *names, *(word for word in words if not _is_name(word))]


def _is_name(word: str) -> bool:
    return word[:1] == "g" and word[1:].isdigit()


def _list(root: Path) -> int:
    """A line for each generation; the manifest is read and checked, the shards are not."""
    rows = [row for number in generations(root) if (row := _row(root, number))]
    if rows:
        print_table(("generation", "step", "written (UTC)", "ranks", "size", "took", "state"), rows)
    else:
        print(f"no checkpoints in {root}")
    return 0


def _row(root: Path, number: int) -> tuple[object, ...] | None:
    """What there is to say of a generation; None for one that a run removes meanwhile."""
    name = f"g{number:06d}"
    if number not in committed(root):
        if number not in generations(root):
            return None
        return name, "", "", "", "", "", "refused" if is_refused(root, number) else "unfinished"
    try:
        it = open_generation(root, number)
    except HpckitError as error:
        if number not in committed(root):
            return None
        return name, "", "", "", "", "", f"damaged: {error.message}"
    facts, took = it.manifest, f"{it.manifest['seconds']:.2f} s"
    return name, it.step, facts["written"], facts["ranks"], bytes_text(it.nbytes), took, "complete"


def _verify(root: Path, names: list[str]) -> int:
    """Check the generations; the exit code is that of corrupt data where one is not whole.

    What a run under way removes meanwhile, its COMMIT first, is not damaged.
    """
    there = _finished(root)
    chosen = [int(name[1:]) for name in names] if names else there
    missing = [name for name in names if int(name[1:]) not in generations(root)]
    if missing or not chosen:
        raise InputError(f"no {', '.join(missing) or 'checkpoint'} in {root}", do=f"hpckit ckpt ls {root}")
    code = 0
    for number in chosen:
        try:
            it = open_generation(root, number)
            it.verify()
            shards = len(it.manifest["shards"])
            print(f"g{number:06d}: whole, {bytes_text(it.nbytes)} in {shards} shards, step {it.step}", flush=True)
        except HpckitError as error:
            if number in there and number not in committed(root):
                print(f"g{number:06d}: removed meanwhile", flush=True)
                continue
            code = max(code, error.exit_code, CorruptDataError.exit_code)
            print(f"g{number:06d}: {error.message}", file=sys.stderr, flush=True)
    return code


def _finished(root: Path) -> list[int]:
    """The generations that count; looked for again where a run has removed all that were listed meanwhile."""
    while True:
        listed, found = generations(root), committed(root)
        if found or listed == generations(root):
            return found


def _export(directory: RunDirectory, root: Path, options: Namespace) -> int:
    """Have the app write a checkpoint of its run in a format of others."""
    record = directory.read_json("resolved.json") or {}
    package = str(record.get("package", ""))
    found = bool(package) and importlib.util.find_spec(f"{package}.models") is not None
    export = getattr(importlib.import_module(f"{package}.models"), "export", None) if found else None
    if export is None:
        raise InputError(
            f"{directory.path} is not a run whose app exports checkpoints", do="give a run of `train` with a checkpoint"
        )
    there = _finished(root)
    chosen = [n for n in there if not options.generation or f"g{n:06d}" == options.generation]
    if not chosen:
        raise InputError(f"no {options.generation or 'checkpoint'} in {root}", do=f"hpckit ckpt ls {directory.path}")
    it = open_generation(root, chosen[-1])
    nbytes = export(record["values"], it, options.to, options.precision)
    print(f"g{chosen[-1]:06d}, step {it.step}: {bytes_text(nbytes)} to {options.to}")
    return 0


def _prune(directory: RunDirectory, root: Path, keep: int) -> int:
    """Remove under the lock: a run that goes on removes by itself."""
    if keep < 1:
        raise InputError(f"--keep {keep}: at least one generation stays", do="remove the folder ckpt by hand for none")
    with locked(directory, "ckpt prune"):
        try:
            gone = prune(root, keep)
        except OSError as error:
            raise SetupError(
                f"a generation cannot be removed: {error.strerror}", where=str(error.filename or root)
            ) from None
    print(f"removed {', '.join(f'g{number:06d}' for number in gone) or 'nothing'}")
    return 0
