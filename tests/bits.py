"""The bits of every preset, at two commits: final fields, particles, weights, and all metrics of shortened runs.

`python -m tests.bits COMMIT [APP/PRESET ...] [--ranks 1,2,3]` runs them at COMMIT and as they are here, and prints what
differs, with the largest relative difference.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]
STEPS = 6
SMALL = {"nx": 30, "ny": 24, "n": 9}  # cells at most; along z as the preset has them, whose levels may grow
# What else makes a run short, for each app.
SHORT = {
    "assimilate": {"window": {"steps": 10}, "method": {"iterations": 2, "inner": 3}},
    "train": {"model": {"layers": 2}, "batch": {"size": 12}, "time": {"validate_every": 0}, "sample": {"tokens": 8}},
    "weather": {"grid": {"nz": 24}},
    "shallow_water": {"start": {"mode": 2}},
}
SOUNDING = "1000.0 300.0 14.0\n" + "".join(
    f"{z}.0 {300 + 0.004 * z:.2f} {14.0 * 0.9996**z:.3f} {0.002 * z:.2f} {0.001 * z:.2f}\n"
    for z in range(100, 21000, 400)
)
CELLS = {"melt": [6, 6, 6]}  # particles; the others are few, or come in layers
TIMES = re.compile(r"second|per_s|rate|elapsed|wall|wait|speed_of|flops|_s$|memory|bytes|mfu|communication")


def known(schema, tree):
    """The part of a tree of settings that a schema has."""
    found = {}
    for key, value in tree.items():
        if key in schema.model_fields:
            inner = schema.model_fields[key].annotation
            found[key] = known(inner, value) if isinstance(value, dict) and hasattr(inner, "model_fields") else value
    return found


def merged(tree, more):
    """A tree of settings with others on top."""
    found = dict(tree)
    for key, value in more.items():
        found[key] = merged(found.get(key) or {}, value) if isinstance(value, dict) else value
    return found


def shortened(app, name, folder):
    """The settings of a preset on few cells and for few steps; files that it reads are the same at both commits."""
    tree = app.presets[name][1]
    if name.startswith("sounding"):
        tree = merged(tree, {"base": {"file": str(folder / "sounding")}})
    full = app.config.model_validate(tree).model_dump()
    smaller = {} if app.name == "assimilate" else SMALL  # whose basins are small, and hold several scales
    grid = {key: min(most, full["grid"][key]) for key, most in smaller.items() if key in (full.get("grid") or {})}
    more = merged({"grid": grid, "time": {"steps": STEPS, "monitor": 1, "thermo": 1}}, SHORT.get(app.name, {}))
    if shape := full.get("grid", {}).get("shape"):
        more["grid"]["shape"] = [min(20, n) for n in shape]
    if app.name == "train" and not name.startswith("digits"):
        more["data"] = {"file": str(ROOT / "LICENSE")}
    if name in CELLS:
        more["system"] = {"cells": CELLS[name]}
    tree = merged(tree, known(app.config, more))
    if "end" in app.config.model_fields["time"].annotation.model_fields:
        steps = app.dry_run(app.config.model_validate(tree), 1).steps
        if steps > STEPS:
            end = app.config.model_validate(tree).time.end
            tree = merged(tree, {"time": {"end": end * STEPS / steps}})
    return tree


def run_all(folder, wanted):
    """On these ranks: each wanted preset in a folder of its own; what cannot run says why."""
    from mpi4py import MPI

    from hpckit.errors import HpckitError
    from hpckit.run.context import Run
    from hpckit.settings.apps import apps

    comm = MPI.COMM_WORLD
    for app in apps().values():
        for name in app.presets:
            if wanted and not {app.name, name, f"{app.name}/{name}"} & wanted:
                continue
            here = folder / f"{app.name.replace('/', '-')}-{name}-{comm.size}"
            try:
                config = app.config.model_validate(shortened(app, name, folder.parent))
                app.run_module.run(config, Run(comm, here, app=app.name, title=name, lines=False))
            except (HpckitError, ValueError, FileNotFoundError) as error:  # refused alike on every rank
                if comm.rank == 0:
                    here.mkdir(parents=True, exist_ok=True)
                    (here / "refused.txt").write_text(f"{type(error).__name__}: {error}"[:400])
            comm.Barrier()


def values(run):
    """Name -> array of all that a run left: datasets, tensors, metrics; times of the machine are left out."""
    import h5py

    from hpckit.io.safetensors import Safetensors

    found = {}
    for path in sorted((run / "output").rglob("*")) if (run / "output").exists() else ():
        name = str(path.relative_to(run / "output"))
        if path.suffix in (".h5", ".h5md"):
            with h5py.File(path) as file:
                file.visititems(
                    lambda key, it, name=name: (
                        found.update({f"{name}:{key}": it[()]}) if isinstance(it, h5py.Dataset) else None
                    )
                )
        elif path.suffix == ".npy":
            found[name] = np.load(path)
        elif path.suffix == ".csv":
            found[name] = np.array(path.read_text())
    if (run / "output" / "model").is_dir():
        found |= {
            f"weights:{name}": np.asarray(tensor) for name, tensor in Safetensors(run / "output" / "model").items()
        }
    if (run / "metrics.jsonl").exists():
        for number, line in enumerate((run / "metrics.jsonl").read_text().splitlines()):
            for key, value in json.loads(line).items():
                if not TIMES.search(key):
                    found[f"metrics:{number}:{key}"] = np.array(
                        json.dumps(value) if not isinstance(value, float) else value
                    )
    if (run / "refused.txt").exists():
        found["refused"] = np.array((run / "refused.txt").read_text())
    return found


def differences(before, after):
    """Name -> how two runs differ there: the largest relative difference, or what is missing."""
    one, other, found = values(before), values(after), {}
    for name in sorted(one.keys() | other.keys()):
        if name not in one or name not in other:
            found[name] = "only " + ("before" if name in one else "after")
        elif one[name].shape != other[name].shape or one[name].tobytes() != other[name].tobytes():
            a, b = one[name], other[name]
            if a.shape == b.shape and a.dtype.kind in "fiu" and b.dtype.kind in "fiu":
                scale = max(float(np.abs(a).max(initial=0)), 1e-300)
                found[name] = f"{float(np.abs(a - b).max(initial=0)) / scale:.2g}"
            else:
                found[name] = f"{a.dtype} {a.shape} and {b.dtype} {b.shape}"
    return found


def checkout(commit, folder):
    """A worktree of the commit, or the folder that is there; its `hpckit` holds its own kernels and apps."""
    if not Path(commit).is_dir():
        subprocess.run(["git", "-C", ROOT, "worktree", "add", "-q", "--detach", folder, commit], check=True)
    else:
        folder = Path(commit).absolute()
    for name in ("kernels", "apps"):
        if not (folder / "hpckit" / name).exists():
            (folder / "hpckit" / name).symlink_to(folder / name)
    return folder


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.bits", description=__doc__)
    parser.add_argument("commit", help="or the folder of a checkout")
    parser.add_argument("presets", nargs="*", help="apps, presets, or APP/PRESET; all, if none is named")
    parser.add_argument("--ranks", default="1,2,3")
    parser.add_argument("--folder", type=Path, default=Path("bits"), help="where the runs are left")
    options = parser.parse_args()
    from hpckit.launch.mpiexec import on_ranks

    folder = options.folder.absolute()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "sounding").write_text(SOUNDING)
    tree = checkout(options.commit, folder / "commit")
    paths = {"before": {"PYTHONPATH": str(tree)}, "after": {}}
    for ranks in map(int, options.ranks.split(",")):
        for which, path in paths.items():
            (folder / which).mkdir(exist_ok=True)
            begin = time.monotonic()
            words = [sys.executable, "-m", "mpi4py", __file__, "--here", str(folder / which), *options.presets]
            environment = {**os.environ, "HPCKIT_CONFIG": os.devnull, **path}
            with open(folder / f"{which}-{ranks}.log", "w") as log:
                subprocess.run([*on_ranks(ranks), *words], env=environment, cwd=folder, stdout=log, check=True)
            print(f"{which}, {ranks} ranks: {time.monotonic() - begin:.0f} s", flush=True)
    if tree == folder / "commit":
        subprocess.run(["git", "-C", ROOT, "worktree", "remove", "--force", tree], check=False)
    return told(folder)


def told(folder):
    """Print how each run differs; 1 where one does."""
    wrong, refused, runs = (
        0,
        0,
        sorted({each.name for which in ("before", "after") for each in (folder / which).iterdir()}),
    )
    for run in runs:
        found, held = differences(folder / "before" / run, folder / "after" / run), values(folder / "before" / run)
        wrong, refused = wrong + bool(found), refused + ("refused" in held)
        worst = ", ".join(f"{name} {how}" for name, how in list(found.items())[:4])
        said = "; ".join(str(held["refused"]).splitlines()[:2]) if "refused" in held else ""
        print(f"{run:42s} {len(held):4d} values: {f'{len(found)} differ: {worst}' if found else 'same bits'} {said}")
    print(f"{wrong} of {len(runs)} runs differ, {refused} were refused")
    return int(wrong > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        run_all(Path(sys.argv[2]), set(sys.argv[3:]))
    else:
        sys.exit(main())
