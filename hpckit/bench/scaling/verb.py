"""Scaling studies of any app: time, efficiency and phases on more and more ranks, fits, and the price of 4,096."""

from __future__ import annotations

import argparse
import math
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpckit.bench.measure import machine, result
from hpckit.bench.scaling.files import write_files
from hpckit.bench.scaling.model import machine_for
from hpckit.bench.scaling.study import Study, evaluated, studied
from hpckit.comm.gpu import missing, no_gpu
from hpckit.errors import InputError
from hpckit.jobs.process import cores
from hpckit.launch import mpiexec
from hpckit.launch.provenance import provenance
from hpckit.run.directory import run_name

# What `all` stands for: the sizes of the benchmarks against others; training grows with the ranks, as data-parallel
# training does.
ALL: dict[str, tuple[str, tuple[str, ...], bool]] = {
    "weather": ("weather/thermal", ("grid.nx=2000", "grid.nz=1000"), False),
    "md": ("md/melt", (), False),
    "train": ("train/gpt", ("batch.size=8",), True),
}
ROUNDS, QUICK_ROUNDS = 11, 5
SECONDS, QUICK_SECONDS = 0.8, 0.4
OPTIONS = ("words", "ranks", "weak", "strong", "repeats", "steps", "seconds", "out", "machine", "launcher", "gpu")


def add_options(it: argparse.ArgumentParser) -> tuple[str, ...]:
    """The options of this benchmark; their names."""
    it.add_argument(
        "words", nargs="*", metavar="APP [key=value …]", help="an app, preset or run file, or all: weather, md, train"
    )
    it.add_argument("--ranks", type=_counts, metavar="1,2,4", help="numbers of ranks (powers of two up to the cores)")
    how = it.add_mutually_exclusive_group()
    how.add_argument("--strong", action="store_true", help="the same problem on all numbers of ranks")
    how.add_argument("--weak", action="store_true", help="the same problem for each rank")
    it.add_argument("--repeats", type=int, metavar="R", help=f"rounds, each a turn of every number of ranks ({ROUNDS})")
    it.add_argument("--steps", type=int, metavar="N", help="steps of a turn (as many as take --seconds)")
    it.add_argument("--seconds", type=float, metavar="S", help=f"of a turn on the fewest ranks ({SECONDS:g})")
    it.add_argument("--out", type=Path, metavar="DIR", help="where results go (a new folder in runs/)")
    it.add_argument("--machine", metavar="FILE", help="priced on this machine, a file or a name (this node, measured)")
    it.add_argument("--launcher", default="", metavar="WORDS", help='what starts ranks: "srun --mpi=pmix" (mpiexec)')
    it.add_argument("--gpu", action="store_true", help="compute on GPUs")
    it.add_argument("--no-ceiling", action="store_true", help="leave out the runs on one rank each at once")
    return (*OPTIONS, "no_ceiling")


def run(quick: bool = False, **options: Any) -> dict[str, Any]:
    """One study, or those of `all`; ratios: APP_eff at the most ranks that have a core each, and APP_ceiling, what as
    many independent runs on one rank each leave of one.
    """
    name, *settings = options["words"] or ["all"]
    counts = options["ranks"] or _default_counts()
    rounds, seconds = (QUICK_ROUNDS, QUICK_SECONDS) if quick else (ROUNDS, SECONDS)
    rounds = rounds if options["repeats"] is None else options["repeats"]
    seconds = seconds if options["seconds"] is None else options["seconds"]
    if rounds < 1 or not 0 < seconds < math.inf or (options["steps"] is not None and options["steps"] < 1):
        raise InputError("nothing is measured so", do="--repeats 1 or more, --seconds above 0, --steps 1 or more")
    _check_start(options["launcher"], options["gpu"])
    if not options["launcher"]:
        mpiexec.require_room(max(counts))
    rest = {"counts": counts, "gpu": options["gpu"], "launcher": options["launcher"]}
    if name.endswith(".py"):
        raise InputError(
            f"{name} is a program: a study must know its steps, and how its problem grows",
            do="make it an app of your own (docs/scaling.md), or time it whole:  hpckit run PROGRAM.py -n 1, -n 2, …",
        )
    if name == "all":
        if settings:
            raise InputError("settings belong to one app", do=f"hpckit bench scaling {next(iter(ALL))} {settings[0]}")
        cases = {key: (*case[:2], options["weak"] or (case[2] and not options["strong"])) for key, case in ALL.items()}
    else:
        cases = {"": (name, tuple(settings), options["weak"])}
    studies = {key: Study(case[0], case[1], weak=case[2], **rest) for key, case in cases.items()}
    for study in studies.values():
        study.check()
    folder = _folder(options["out"], name, max(counts))
    named = None if options["machine"] is None else machine_for(options["machine"], 0, quick)
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{folder}\n", file=sys.stderr, flush=True)
    if max(counts) > cores():
        mpiexec.warn_if_crowded(max(counts))
    model = named or machine_for(None, cores(), quick)
    rows: list[dict[str, Any]] = []
    ratios: dict[str, Any] = {}
    for key, study in studies.items():
        steps, made = studied(study, folder, rounds, seconds, options["steps"], not options["no_ceiling"])
        record = {**evaluated(study, made, rounds, model), "steps": steps}
        again, environment = _again(study, record, options["machine"]), mpiexec.rank_environment(max(counts))
        about = provenance(again, max(counts), environment)
        write_files(folder / key if key else folder, {**record, "machine": machine(), "provenance": about})
        rows += [_row(record, point) for point in record["points"]]
        ratios |= _ratios(key or study.base.app.name, record)
    return result("scaling", rows, ratios, about={"results": str(folder)})


def _again(study: Study, record: dict[str, Any], priced_on: str | None) -> list[str]:
    """The words after `hpckit` that make the study again."""
    counts = ",".join(map(str, study.counts))
    words = ["bench", "scaling", study.target, *study.settings, "--ranks", counts, f"--{record['kind']}"]
    words += ["--steps", str(record["steps"]), "--repeats", str(record["rounds"])]
    for option, value in (("--machine", priced_on), ("--launcher", study.launcher)):
        words += [option, value] if value else []
    return [*words, *(["--gpu"] if study.gpu else [])]


def _ratios(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """Efficiency and ceiling at the most ranks with a core each; of all where even the fewest share cores."""
    fair = [point for point in record["points"] if not point["oversubscribed"]] or record["points"]
    best, found = fair[-1], {}
    for key, field in (("eff", "efficiency"), ("ceiling", "ceiling")):
        if field in best:
            it = best[field]
            found[f"{name}_{key}"] = {"median": it["value"], "low": it["low"], "high": it["high"]}
            found[f"{name}_{key}"] |= {"rounds": record["rounds"], "disturbed": record["rounds_disturbed"]}
    return found


def _row(record: dict[str, Any], point: dict[str, Any]) -> dict[str, Any]:
    priced = {each["ranks"]: each for each in (record["model"] or {"points": []})["points"]}.get(point["ranks"])
    seconds, effective = point["seconds"], point["efficiency"]
    disturbed = f"{record['rounds_disturbed']} of {record['rounds']} rounds disturbed"
    told = disturbed if record["rounds_disturbed"] else ""
    return {
        "study": f"{record['title']}, {record['kind']}",
        "ranks": point["ranks"],
        "ms_a_step": round(1e3 * seconds["value"], 4),
        "interval": f"{1e3 * seconds['low']:.4g} to {1e3 * seconds['high']:.4g}",
        "speedup": round(point["speedup"]["value"], 3),
        "efficiency": round(effective["value"], 3),
        "eff_interval": f"{effective['low']:.3f} to {effective['high']:.3f}",
        "undisturbed": round(point["undisturbed"], 3) if "undisturbed" in point else None,
        "ceiling": round(point["ceiling"]["value"], 3) if "ceiling" in point else None,
        "karp_flatt": round(point["karp_flatt"]["value"], 4) if "karp_flatt" in point else None,
        "priced_ms": round(1e3 * priced["seconds"], 4) if priced else None,
        "note": "oversubscribed: more ranks than cores" if point["oversubscribed"] else told,
    }


def _folder(given: Path | None, name: str, ranks: int) -> Path:
    """A folder that is yet to be made, or an empty one that is there."""
    folder = given or Path("runs", run_name("scaling", name.replace("/", "-"), ranks))
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise InputError(f"{folder} is there already, and not empty", do="--out with a new folder")
    return folder


def _check_start(launcher: str, gpu: bool) -> None:
    """Raise for ranks that cannot be started, or would find no GPU where they start here."""
    try:
        words = shlex.split(launcher)
    except ValueError as error:
        raise InputError(f"--launcher {launcher!r}: {error}", do="--launcher 'srun --mpi=pmix'") from None
    if words and shutil.which(words[0]) is None:
        raise InputError(
            f"--launcher: there is no program {words[0]!r}", do="leave it out for mpiexec, or load its module"
        )
    if gpu and not words and not os.environ.get("NUMBA_ENABLE_CUDASIM", "").strip("0") and (problem := missing()):
        raise no_gpu(problem)


def _counts(text: str) -> tuple[int, ...]:
    """`1,2,4`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of rank counts; give 1,2,4")
    return tuple(sorted({int(part) for part in parts}))


def _default_counts() -> Sequence[int]:
    """Powers of two up to the tasks of the allocation, or the cores of this machine."""
    tasks = os.environ.get("SLURM_NTASKS", "")
    most = int(tasks) if tasks.isdigit() and int(tasks) > 0 else cores()
    return tuple(sorted({*(2**power for power in range(most.bit_length())), most}))
