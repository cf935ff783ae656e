"""`hpckit VERB …`: finds the verb, and turns every error into its message and exit code."""

from __future__ import annotations

import errno
import importlib
import io
import sys

import hpckit
from hpckit.errors import HpckitError, InputError, SetupError
from hpckit.settings.table import silence

# What other programs call a verb, or one may guess -> how it is said here.
ELSEWHERE = {
    **dict.fromkeys(("picture", "plot", "draw"), "report DIR --picture FILE"),
    **dict.fromkeys(("checkpoint", "checkpoints"), "ckpt ls DIR"),
    **dict.fromkeys(("restart", "continue"), "resume DIR"),
    **dict.fromkeys(("list", "runs"), "ls"),
    "status": "watch DIR --once",
    "validate": "run weather/validate",
}
# Verb -> (module with `main(arguments) -> int`, what it does, what it takes).
VERBS = {
    "init": (
        "hpckit.cli.verbs.init",
        "APP|PRESET [FILE] [key=value …] | --app NAME",
        "write a commented run file, list apps and presets, or write a small app of your own",
    ),
    "run": (
        "hpckit.cli.verbs.run",
        "FILE|PRESET|PROGRAM.py|FOLDER [key=value …] [-n RANKS]",
        "run an app or a program on MPI ranks",
    ),
    "resume": (
        "hpckit.cli.verbs.resume",
        "DIR [-n RANKS]",
        "go on with a run from its checkpoint, on any number of ranks",
    ),
    "ckpt": ("hpckit.cli.verbs.files.ckpt", "ls|verify|prune DIR", "list, check or remove the checkpoints of a run"),
    "submit": (
        "hpckit.cli.verbs.submit",
        "FILE|PRESET|PROGRAM.py|DIR --nodes N --time T [--dry-run]",
        "put a run into Slurm's queue, or print its job script",
    ),
    "report": (
        "hpckit.cli.verbs.report",
        "DIR [--picture FILE]",
        "build the HTML report of a run, or draw a picture of it",
    ),
    "analyze": (
        "hpckit.cli.verbs.analyze",
        "FILE [--k-max K] [--report PAGE.html]",
        "g(r), S(k), diffusion and more from a LAMMPS dump, extended XYZ or H5MD trajectory",
    ),
    "pack": ("hpckit.cli.verbs.files.pack", "DIR", "make one file of the frames of an output, to copy it"),
    "export": (
        "hpckit.cli.verbs.files.export",
        "wrf DIR [FILE]",
        "write the fields of a weather3d run as a wrfout file, for wrf-python, MetPy and other tools for WRF",
    ),
    "watch": (
        "hpckit.cli.verbs.watch",
        "DIR [--once]",
        "follow queued and running jobs: state, progress, time left, metrics",
    ),
    "ls": ("hpckit.cli.verbs.ls", "[DIR]", "list runs"),
    "compare": (
        "hpckit.cli.verbs.compare.verb",
        "A B [C …] [--json] [--report PAGE.html]",
        "differences of two runs: settings, time per phase, fields in ulp; several runs in one chart",
    ),
    "sample": (
        "hpckit.apps.train.sample",
        'DIR ["PROMPT"]',
        "text that a trained language model writes after a prompt",
    ),
    "generate": (
        "hpckit.cli.serving.generate",
        "MODEL PROMPTS.jsonl [-n RANKS] [--out FILE]",
        "what a language model writes after many prompts, on one rank or several",
    ),
    "serve": (
        "hpckit.cli.serving.serve",
        "MODEL [-n RANKS] [--port P]",
        "an OpenAI server for a language model, on one rank or several",
    ),
    "graph": (
        "hpckit.cli.verbs.graph",
        "run|status|draw|report FILE",
        "run a graph of tasks whose edges are files",
    ),
    "doctor": (
        "hpckit.cli.verbs.doctor.verb",
        "",
        "test MPI, HDF5, GPU, file system and Slurm, and say how to fix what fails",
    ),
    "bench": ("hpckit.cli.verbs.bench", "[NAME] [--json] [--quick]", "measure against rivals"),
    "plan": (
        "hpckit.cli.verbs.plan.verb",
        "OPERATION|pipeline|halo [--ranks N] [--bytes SIZE] [--machine FILE]",
        "prove, price and draw collectives, training pipelines and halo exchanges, at any scale and without MPI",
    ),
    "completion": ("hpckit.cli.completion", "bash|zsh|fish", "print what a shell completes, to be sourced"),
    "explain": ("hpckit.cli.verbs.explain", "[CODE]", "what an error or exit code means and what to do"),
}


# System errors caused by the user's paths or permissions, not by the program.
NO_PATH = {errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR}
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
NO_PLACE = {errno.EFBIG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE}


def main(argv: list[str] | None = None) -> int:
    """Run one verb; returns the exit code (`hpckit explain` lists them)."""
    arguments = sys.argv[1:] if argv is None else argv
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # not every locale has all characters
            stream.reconfigure(errors="replace")
    try:
        return _verb(arguments)
    except HpckitError as error:
        return _told(error)
    except SystemExit as error:  # argparse has said what is wrong
        return error.code if isinstance(error.code, int) else 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output, `head` or `less`, has gone
        silence(sys.stdout)
        return 0
    except MemoryError as error:
        return _told(
            InputError(
                f"out of memory{f': {error}' if str(error) else ''}",
                likely="a setting is far too large",
            )
        )
    except OSError as error:
        if error.filename is None and error.errno in FULL:  # a write has no name
            return _told(SetupError(f"a file cannot be written: {error.strerror}", do="free some space there"))
        if error.filename is None or error.errno not in NO_PATH | NO_PLACE:
            raise
        kind = InputError if error.errno in NO_PATH else SetupError
        return _told(kind(f"{error.filename}: {error.strerror}"))


def _told(error: HpckitError) -> int:
    """Print the error; returns its exit code."""
    print(error.report(), file=sys.stderr, flush=True)
    return error.exit_code


def _verb(arguments: list[str]) -> int:
    """Run the verb named by the first argument."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage(), flush=True)
        return 0 if arguments else 2
    if arguments[0] in ("--version", "-V"):
        print(f"hpckit {hpckit.__version__}")
        return 0
    verb = arguments[0]
    if verb not in VERBS:
        return _unknown(verb)
    try:
        return importlib.import_module(VERBS[verb][0]).main(arguments[1:])
    except RuntimeError as error:  # mpi4py without a library, from wherever it is first imported
        if "cannot load MPI library" not in str(error):
            raise
        raise SetupError(
            "mpi4py finds no MPI library",
            likely="the module of its MPI is not loaded",
            do='load it, or install one: pip install "hpckit[mpi]"; hpckit doctor says more',
        ) from error


def usage() -> str:
    """The verbs, a line each."""
    lines = [f"  {f'hpckit {verb} {takes}'.strip()}\n      {does}" for verb, (_, takes, does) in VERBS.items()]
    return "\n".join(
        [
            "An MPI toolkit for scientific HPC in Python.",
            "",
            *lines,
            "",
            "hpckit VERB --help says more; hpckit --version prints the version.",
        ]
    )


def _unknown(verb: str) -> int:
    """Suggest a verb; for a file or preset without a verb, `run`."""
    from hpckit.errors import did_you_mean

    hint = did_you_mean(verb, VERBS, f"verbs: {', '.join(VERBS)}")
    if verb in ELSEWHERE:
        hint = f"it is hpckit {ELSEWHERE[verb]}"
    elif verb.endswith((".toml", ".py")) or _is_preset(verb):
        hint = f"did you mean: hpckit run {verb}"
    print(f"HPK-200 bad input: no verb {verb!r}; {hint}", file=sys.stderr)
    return 2


def _is_preset(name: str) -> bool:
    """Whether `hpckit run` knows the name."""
    from hpckit.settings.apps import find_preset

    try:
        find_preset(name)
    except HpckitError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
