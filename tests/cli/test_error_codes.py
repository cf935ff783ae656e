"""Every error code is provoked by what a user, a disk or a machine may do, and is told with its exit code."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from cli_command import hpckit
from conftest import Outcome, by_day, mpiexec

import hpckit as package
from hpckit import errors
from hpckit.cli.main import main
from hpckit.cli.verbs.explain import EXPLANATIONS
from hpckit.errors import HpckitError

needs_mpiexec = pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra `mpi`")
DIFFER = """\
import sys
import numpy as np
from mpi4py import MPI
from hpckit.errors import HpckitError
comm = MPI.COMM_WORLD
try:
    comm.Allreduce(MPI.IN_PLACE, np.ones(3)) if comm.rank else comm.Bcast(np.ones(3), 0)
except HpckitError as error:
    print(error.report(), flush=True)
    sys.exit(error.exit_code)
"""


def bad_input(folder: Path) -> None:
    from hpckit.settings.config import load

    load("heat", ["grid.shape=[0, 3]"], {})


def bad_decomposition(folder: Path) -> None:
    from hpckit.plan.grid.factor import best_factorization

    best_factorization(7, (3, 2), None, [True, True], (1, 1))


def wrong_plan(folder: Path) -> None:
    from hpckit.plan.pipeline.table import read_schedule

    table = folder / "stages.csv"
    table.write_text("0F0,0B1\n", encoding="utf-8")
    package.prove(read_schedule(table))


def bad_environment(folder: Path) -> None:
    """A disk that is full in the middle of a checkpoint."""
    from mpi4py import MPI

    from hpckit.io import failpoints
    from hpckit.io.checkpoint.writer import Writer
    from tests.faults.stepping import state_of, values

    failpoints.install(failpoints.breaking("shard.write:ENOSPC"))
    try:
        Writer(MPI.COMM_SELF, folder / "ckpt").save(1, state_of(values(1), 1))
    finally:
        failpoints.install(None)


def in_use(folder: Path) -> None:
    from hpckit.launch.lock import locked
    from hpckit.run.directory import RunDirectory

    directory = RunDirectory.create(folder / "run")
    with locked(directory, "run"), locked(directory, "resume"):
        pass


def blow_up(folder: Path) -> None:
    """A time step three times as long as the scheme takes."""
    from mpi4py import MPI

    from hpckit.apps.diffusion.config import Config
    from hpckit.apps.diffusion.run import run
    from hpckit.run.context import Run

    settings = {"grid": {"shape": [11, 7]}, "time": {"steps": 50, "monitor": 1, "safety": 3.0}}
    run(Config.model_validate(settings), Run(MPI.COMM_SELF, folder / "run", app="diffusion", lines=False))


def corrupt_data(folder: Path) -> None:
    """The only checkpoint lost its end."""
    from mpi4py import MPI

    from hpckit.io.checkpoint.choose import choose
    from hpckit.io.checkpoint.writer import Writer
    from tests.faults.stepping import state_of, values

    writer = Writer(MPI.COMM_SELF, folder / "ckpt")
    writer.save(1, state_of(values(1), 1))
    writer.close()
    shard = folder / "ckpt" / "g000001" / "shard-00000.h5"
    shard.write_bytes(shard.read_bytes()[:-100])
    choose(MPI.COMM_SELF, folder / "ckpt")


def silent_corruption(folder: Path) -> None:
    """A step whose result is another one the first time."""
    from mpi4py import MPI

    from hpckit.io.checkpoint.state import Piece, State
    from hpckit.run.redundant_step import Replay

    field, times = np.arange(6.0), []

    def advance() -> None:
        times.append(1)
        field[...] += 1.0
        field[4] += 1e-15 * (len(times) == 1)

    def restore(kept) -> None:
        field[...] = kept.read("field", (0,), (6,))

    Replay(MPI.COMM_SELF, 1).twice(1, advance, lambda: State([Piece("field", (6,), (0,), field)]), restore)


def unknown(folder: Path) -> Outcome:
    return hpckit("run", "probe", "failure.kind=raise", "failure.step=1", "failure.rank=0", "--no-report", cwd=folder)


def stall(folder: Path) -> Outcome:
    """Under a launcher of the user's: nobody stands above the ranks, and their own threads tell the end."""
    limits = ("watch.warn=2", "watch.abort=6")  # a busy machine may hold up the other rank for a while, too
    words = ("run", "probe", "failure.kind=stuck", "failure.step=2", "failure.rank=1", *limits, "--directory", "run")
    done = hpckit(*words, cwd=folder, under=2)
    assert "rank 1 has not come to Barrier" in (folder / "run/attempts/000/failure.json").read_text(encoding="utf-8")
    return done


def mismatch(folder: Path) -> Outcome:
    program = folder / "differ.py"
    program.write_text(DIFFER, encoding="utf-8")
    return hpckit("run", program, "-n", 2, "--check", cwd=folder)


def rank_lost(folder: Path) -> Outcome:
    return hpckit("run", "probe", "failure.kind=kill", "failure.step=1", "failure.rank=0", "--no-report", cwd=folder)


RAISED: dict[str, Callable[[Path], None]] = {
    "HPK-200": bad_input,
    "HPK-201": bad_decomposition,
    "HPK-202": wrong_plan,
    "HPK-300": bad_environment,
    "HPK-301": in_use,
    "HPK-400": blow_up,
    "HPK-500": corrupt_data,
    "HPK-501": silent_corruption,
}
TOLD: dict[str, Callable[[Path], Outcome]] = {
    "HPK-000": unknown,
    "HPK-600": stall,
    "HPK-601": mismatch,
    "HPK-700": rank_lost,
}


def all_kinds(kind: type[HpckitError] = HpckitError) -> dict[str, type[HpckitError]]:
    found = {kind.code: kind}
    for below in kind.__subclasses__():
        found = {**all_kinds(below), **found}
    return found


def test_every_code_has_a_provocation_and_an_explanation(capsys) -> None:
    for module in pkgutil.iter_modules(package.__path__, "hpckit."):  # a code of its own may hide in any of them
        if not module.ispkg and "gpu" not in module.name and "device" not in module.name:
            importlib.import_module(module.name)
    codes = set(all_kinds())
    assert codes == {*RAISED, *TOLD} == set(EXPLANATIONS)
    for code, kind in all_kinds().items():
        assert kind.exit_code in errors.EXIT_CODES
        assert main(["explain", code]) == 0
        assert code in capsys.readouterr().out


@pytest.mark.parametrize("code", RAISED)
def test_codes_are_raised(code: str, tmp_path: Path) -> None:
    with pytest.raises(HpckitError) as caught:
        RAISED[code](tmp_path)
    error = caught.value
    assert error.code == code, error.report()
    assert error.message
    assert error.where or error.do or code == "HPK-200", "where it is, or what to do"


@needs_mpiexec
@pytest.mark.parametrize("code", by_day(TOLD, *list(TOLD)[:1]))
def test_codes_are_told_with_their_exit_code(code: str, tmp_path: Path) -> None:
    outcome = TOLD[code](tmp_path)
    told = outcome.stdout + outcome.stderr
    assert set(re.findall(r"HPK-\d{3}", told)) == {code}, told
    assert outcome.code == all_kinds()[code].exit_code, told
