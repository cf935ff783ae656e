"""The run directory of a program of the user's own: metrics, output, checkpoints, report, `hpckit ls` and `resume`."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy.typing as npt

from hpckit.comm.agree import share_json, together
from hpckit.comm.mesh import Mesh, world
from hpckit.errors import InputError
from hpckit.io.checkpoint.manifest import committed
from hpckit.io.fields.writer import FieldWriter
from hpckit.launch.failure import failure_file, failure_record
from hpckit.launch.lock import locked
from hpckit.launch.provenance import provenance, record_places
from hpckit.plan.grid.decomposition import Decomposition
from hpckit.run.context import Run
from hpckit.run.directory import RunDirectory

if TYPE_CHECKING:
    from mpi4py import MPI

__communicates__ = True  # its frames are not call sites


class ProgramRun(Run):
    """A run of your own program (`hp.Run`): everything that it writes is in one folder, as for an app.

        with hp.Run("plate", title="a hot plate", units={"warmest": "K"}) as run:
            saved = hp.Checkpoints(mesh, run, T, every="10 min")
            writer = run.writer(mesh, T.decomposition, coords, {"y": "m", "x": "m"}, {"T": {"units": "K"}})
            ...
                run.metric(step=step, time=time, warmest=T.max())

    `hpckit ls` lists the folder, `hpckit report` draws it, `hpckit resume` runs the program again, which continues from
    its newest checkpoint (`hp.Checkpoints(mesh, run, …)`), or starts from the beginning if there is none. The end of
    the block writes `summary.json`: "done", or "stopped" after an `edge` that was True. Pass figures for it to
    `run.finish({...})`.

    folder: created if it does not exist. comm: a communicator or mesh, by default all ranks. settings: JSON values that
    the report shows; units: of the metrics by name. Collective. Raises `InputError` for a folder with other files or
    with a run that is done, and `InUseError` while another process runs in it.
    """

    def __init__(
        self,
        folder: Path | str,
        comm: MPI.Intracomm | Mesh | None = None,
        *,
        title: str = "",
        settings: Mapping[str, Any] | None = None,
        units: Mapping[str, str] | None = None,
    ) -> None:
        ranks: Any = comm.comm if isinstance(comm, Mesh) else comm or world()
        title = title or Path(sys.argv[0]).stem
        record = {"title": title, "ranks": ranks.size, "units": dict(units or {}), "values": dict(settings or {})}
        self._held = contextlib.ExitStack()  # the lock, on rank 0
        together(ranks, Path(folder), lambda: 0 if ranks.rank else _begin(Path(folder), record, self._held))
        super().__init__(ranks, RunDirectory(share_json(ranks, os.path.abspath(folder))), title=title)
        record_places(self.directory, ranks)
        self._begun = time.monotonic()
        runs_here.append(self.directory.path)

    def writer(
        self,
        mesh: Mesh,
        decomposition: Decomposition,
        coords: Mapping[str, npt.ArrayLike],
        units: Mapping[str, str],
        variables: Mapping[str, Mapping[str, Any]],
        **options: Any,
    ) -> FieldWriter:
        """A `hp.FieldWriter` for the run's folder `output`, with the same arguments except `directory`.

        Make it after the checkpoints: in a resumed run it continues after the frames of the checkpoint.
        """
        folder, kept = self.directory.output, self.kept("fields")
        made = FieldWriter(mesh, folder, decomposition, coords, units, variables, resume=kept, **options)
        self.keep("fields", made.kept)
        return made

    def kept(self, name: str) -> Any:
        """As for any run; in a resumed one without checkpoints {}: its files start anew."""
        if self._keeper is None and self.directory.attempt_number and not committed(self.directory.checkpoints):
            return {}
        return super().kept(name)

    def metric(self, **values: Any) -> None:
        """Append the values to `metrics.jsonl`, from rank 0; give `step` and `time` first."""
        self.step = values.get("step", self.step)
        super().metric(**values)

    def finish(self, summary: Mapping[str, Any] | None = None, status: str = "") -> None:
        """Collective: write `summary.json` with the figures given; the end of the block does so if you do not."""
        facts = {"steps": self.step or 0, "wall_seconds": time.monotonic() - self._begun}
        super().finish({**facts, **(summary or {})}, status or ("stopped" if self.is_stopped else "done"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None and self.status == "running":
            self.finish()
        elif isinstance(error, Exception):
            path = failure_file(self.directory)
            failed = failure_record(error, self.rank, self.size, self.step, self.directory.path / path)
            with contextlib.suppress(OSError):  # the disk may be what failed
                self.directory.create_json(path, failed)
        self._held.close()


runs_here: list[Path] = []  # the folders of this process's runs: the front end draws their reports at its end


def _begin(path: Path, record: dict[str, Any], held: contextlib.ExitStack) -> int:
    """Rank 0: make the folder, or begin another attempt in it, and write what is known of the run."""
    program = [os.path.abspath(sys.argv[0]), *sys.argv[1:]]
    if (path / "resolved.json").is_file():
        directory = RunDirectory(path)
        if "program" not in (directory.read_json("resolved.json") or {}):
            raise InputError(f"{path} is the run of an app", do="give a folder of the program's own")
        if directory.is_done():
            raise InputError(f"the run in {path} is done", do="give another folder, or remove this one to run it again")
        held.enter_context(locked(directory, f"run {program[0]}"))
        number = directory.begin_attempt()
    else:
        directory, number = RunDirectory.create(path), 0
        held.enter_context(locked(directory, f"run {program[0]}"))
    known = {"app": "", "package": "", "program": program, "folder": os.getcwd(), "attempt": number}
    directory.write_json("resolved.json", {**known, **record})
    words = ["run", *program, "-n", str(record["ranks"])]
    directory.write_json("provenance.json", provenance(words, record["ranks"], dict(os.environ)))
    return 0
