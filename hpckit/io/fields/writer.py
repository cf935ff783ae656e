"""Fields of a decomposed grid on disk: one file that xarray and VTK open, written by all ranks."""

from __future__ import annotations

import math
import shutil
import time as clock
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from hpckit.collectives.whole import gather_blocks
from hpckit.comm.agree import ClosedTogether, all_of_ranks, share_json, together
from hpckit.errors import CorruptDataError, InputError, SetupError
from hpckit.io.fields import frames as fr
from hpckit.io.fields.hdf5 import write_mpio_frame
from hpckit.io.fields.layout import make_layout
from hpckit.io.fields.master import MASTER, with_history, write_master
from hpckit.io.fields.pack import pack_fields, packed_frames, unpack_frames
from hpckit.io.files import sync_directory
from hpckit.io.probe import problems
from hpckit.plan.grid.decomposition import Decomposition

Array = npt.NDArray[Any]
Blocks = dict[str, Array]
DRIVERS = ("auto", "shards", "gather", "mpio")
ONE_FILE = 4e9  # bytes of frames that `close` puts into one file
SMALL_FRAME = 1 << 20  # bytes: below, one file a frame is less work than a file a rank


class FieldWriter(ClosedTogether):
    """Writes frames of fields below `directory`, visible as `directory/fields.h5` (dims `time`, then the axes).

    `decomposition` says which points each rank owns; `coords` maps dims to their global points (`x`; `x_face` for
    faces), `units` to their units. `variables` maps names to attributes (`units`, `long_name`) and, where it differs,
    `location` ("center", "face", or one a dim). `attributes` become global attributes of the file. `constants` maps the
    names of variables that do not change with time to their `dims`, `values` (on the whole grid) and attributes.
    `corners` gives VTK the corners of cells that are not boxes: [nz + 1, ny + 1, nx + 1, 3] over terrain, [panels, ny +
    1, nx + 1, 3] of a surface in space (m).

    Drivers: "shards", each rank writes a file of its own and rank 0 a virtual dataset over them; "gather", rank 0
    collects the blocks and writes one file a frame; "mpio", all ranks write one file through parallel HDF5. "auto" is
    "gather" on one rank or for frames under 1 MiB, else "shards". A rank needs memory for its compressed blocks
    (with "gather" rank 0 for the whole frame) while it writes.

    While frames are written, `fields.h5` refers to files in the folder `frames` beside it. `close` packs everything
    into one file and removes the folder if they take at most `one_file` bytes and the disk has room; otherwise `hpckit
    pack` does it later. A reader that opened `fields.h5` before must open it again.

    Every file is written under another name, forced to disk and renamed, the master last: a reader of `fields.h5`, at
    any instant and after any kill, sees complete frames only. `append=True` continues after the existing frames,
    whatever number of ranks wrote them; frames at or after the first new time are replaced. `resume` continues from
    the `kept` of an earlier writer, and drops later frames; {} drops all frames.

    All methods are collective. Raises `InputError` for arguments that do not fit and `SetupError` if the disk or
    its permissions do not allow it, on all ranks. `nbytes` and `seconds` count the bytes written so far (all ranks,
    after compression) and the time in `write`.
    """

    def __init__(
        self,
        mesh: Any,
        directory: Path | str,
        decomposition: Decomposition,
        coords: Mapping[str, npt.ArrayLike],
        units: Mapping[str, str],
        variables: Mapping[str, Mapping[str, Any]],
        attributes: Mapping[str, Any] | None = None,
        driver: str = "auto",
        compression: int = 1,
        append: bool = False,
        resume: Mapping[str, Any] | None = None,
        constants: Mapping[str, Mapping[str, Any]] | None = None,
        one_file: float = ONE_FILE,
        corners: Array | None = None,
    ) -> None:
        if not 0 <= compression <= 9:
            raise InputError(f"compression is a gzip level from 0 (none) to 9, not {compression}")
        self.directory = Path(directory)
        self.comm = mesh.comm
        self.layout = make_layout(decomposition, coords, units, variables, with_history(attributes), constants, corners)
        self.one_file = one_file
        self.driver = choose_driver(driver, self.comm.size, self.layout.frame_bytes)
        self.compression = compression
        self.nbytes = 0
        self.seconds = 0.0
        self._open = True
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._frames: list[fr.OutputFrame] = []  # on rank 0 only
        self._last = -math.inf
        self._next = 0
        together(self.comm, self.directory, lambda: self._start(append, resume))
        self._share_start()

    def write(self, time: float, fields: Mapping[str, Array]) -> None:
        """Add a frame at `time` in seconds; `fields` maps each variable to the block this rank owns (float32 or
        float64, shape `owned(rank)` at the variable's location; no halo).
        """
        begin = clock.perf_counter()
        blocks: Blocks = {}
        path = fr.frame_directory(self.directory, self._next)
        together(self.comm, path, lambda: self._check(time, fields, blocks))
        self._agree_on_dtypes(blocks)
        self.nbytes += together(self.comm, path, lambda: self._make_directory(path))
        if self.driver == "gather":
            whole = self._gather(blocks)
            self.nbytes += together(self.comm, path, lambda: self._write_whole(path, time, whole))
        elif self.driver == "mpio":
            self.nbytes += together(self.comm, path, lambda: self._write_parallel(path, time, blocks))
        else:
            self.nbytes += together(self.comm, path, lambda: self._write_shard(path, blocks))
        self.nbytes += together(self.comm, path, lambda: self._publish(path, time))
        self._last = time
        self._next += 1
        self.seconds += clock.perf_counter() - begin

    def close(self, last: bool = True) -> None:
        """Stop writing, and pack the frames into one file (see above); with `last=False` they stay, and more may
        follow.
        """
        if not self._open:
            return
        self._open = False
        kept: str | None = None  # why the files of the frames stay; None: they do not
        if self.comm.rank == 0:
            kept = self._kept_because(last)
        kept = share_json(self.comm, kept)
        if kept is None:
            try:
                pack_fields(self.directory, self.comm)
            except SetupError as problem:
                kept = problem.message
        if kept and self.comm.rank == 0:
            warnings.warn(f"{self.directory / MASTER} needs the folder {fr.FRAMES} beside it: {kept}", stacklevel=2)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._open = False  # other ranks may not come here after an error

    def kept(self) -> dict[str, Any]:
        """On rank 0 the record that a resumed run needs to continue: the frames and their types."""
        frames = [[frame.number, frame.time] for frame in self._frames]
        return {"frames": frames, "dtypes": {name: dtype.str for name, dtype in self._dtypes.items()}}

    def _kept_because(self, last: bool) -> str | None:
        """On rank 0: why `close` leaves the frames in their files; '' if the user knows, None for no reason."""
        if packed_frames(self.directory):
            return None
        if not (last and self._frames and self.one_file):
            return ""
        size, free = fr.nbytes(self.directory), shutil.disk_usage(self.directory).free
        if size > self.one_file:
            return f"with {size / 1e9:.3g} GB the frames stay as they are (hpckit pack makes one file)"
        if free < 1.1 * size:
            return f"the disk has no room for {size / 1e9:.3g} GB more (hpckit pack makes one file)"
        return None

    @property
    def speed(self) -> str:
        """Bytes written and seconds taken as a line of text."""
        rate = self.nbytes / self.seconds / 1e6 if self.seconds else 0.0
        return f"{self.nbytes / 1e6:.1f} MB in {self.seconds:.2f} s ({rate:.0f} MB/s, {self.driver})"

    def _start(self, append: bool, resume: Mapping[str, Any] | None) -> int:
        """Rank 0 makes the directory and examines its frames."""
        if self.comm.rank:
            return 0
        (self.directory / fr.FRAMES).mkdir(parents=True, exist_ok=True)
        packed = [frame.number for frame in packed_frames(self.directory)]
        self._next = 1 + max([*packed, *fr.numbers(self.directory)], default=-1)
        wanted = packed if resume is None else {number for number, _ in resume.get("frames", [])}
        if packed and (append or resume):
            unpack_frames(self.directory, wanted)
        if resume is not None:
            self._go_on(resume)
            return 0
        self._frames = fr.complete_frames(self.directory)
        count = len(packed) or len(self._frames)
        if count and not append:
            raise InputError(
                f"{count} {'frames are' if count > 1 else 'frame is'} in the output directory already",
                where=str(self.directory),
                do="choose an empty directory, or open the writer with append=True",
            )
        if self._frames:
            self._refuse_other_grid()
        return 0

    def _go_on(self, resume: Mapping[str, Any]) -> None:
        """Continue after the frames of an earlier writer; raises `CorruptDataError` if one is gone."""
        self._frames = [fr.OutputFrame(number, time) for number, time in resume.get("frames", [])]
        do = "put it back, or start the run again: hpckit run DIR/run.toml"
        files = [self.directory / frame.file for frame in self._frames]
        for frame, file in zip(self._frames, files, strict=True):
            if not file.is_file():
                raise CorruptDataError(f"the frame at {frame.time:g} s is gone", where=str(file), do=do)
        for frame, file, problem in zip(self._frames, files, problems(files), strict=True):
            absent = [] if problem else fr.missing_sources(file)
            if problem or absent:
                problem = problem or f"{', '.join(absent)} is gone"
                raise CorruptDataError(f"the frame at {frame.time:g} s is damaged: {problem}", where=str(file), do=do)
        self._last = self._frames[-1].time if self._frames else -math.inf
        self._dtypes = {name: np.dtype(text) for name, text in resume.get("dtypes", {}).items()}

    def _refuse_other_grid(self) -> None:
        """Frames to go on after must hold the same variables on the same grid."""
        there = fr.dtypes_of(self.directory, self._frames[-1])
        ours = {name: variable.shape for name, variable in self.layout.variables.items()}
        if {name: shape for name, (_, shape) in there.items()} != ours:
            shapes = {name: shape for name, (_, shape) in there.items()}
            raise InputError(
                f"the frames there hold {shapes}, not {ours}",
                where=str(self.directory),
                do="append to frames of the same variables and grid, or choose another directory",
            )
        self._dtypes = {name: there[name][0] for name in ours}

    def _share_start(self) -> None:
        """Share the numbers and types that only rank 0 has read."""
        types = {name: dtype.str for name, dtype in self._dtypes.items()}
        last = None if math.isinf(self._last) else self._last
        self._next, types, last = share_json(self.comm, [self._next, types, last])
        self._last = -math.inf if last is None else last
        self._dtypes = {name: np.dtype(text) for name, text in types.items()}

    def _check(self, time: float, fields: Mapping[str, Array], blocks: Blocks) -> int:
        """Put the fields into `blocks` in the layout's order, or raise `InputError`."""
        if not self._open:
            raise InputError("the writer is closed")
        if not math.isfinite(time) or time <= self._last:
            raise InputError(f"the time of a frame must rise: {time} s after {self._last} s")
        names = list(self.layout.variables)
        if set(fields) != set(names):
            raise InputError(f"a frame needs the variables {', '.join(names)}, not {', '.join(fields)}")
        for name, variable in self.layout.variables.items():
            values = np.asarray(fields[name])
            owned = variable.decomposition.owned(self.comm.rank)
            if values.shape != owned:
                raise InputError(
                    f"{name} has shape {values.shape}, this rank owns {owned}",
                    where=f"rank {self.comm.rank}",
                    likely="the halo was not stripped, or the location is another",
                    do="give field.interior",
                )
            if values.dtype not in (np.float32, np.float64) or values.dtype != self._dtypes.get(name, values.dtype):
                wanted = self._dtypes.get(name, "float32 or float64")
                raise InputError(f"{name} is {values.dtype}, not {wanted}", where=f"rank {self.comm.rank}")
            blocks[name] = np.ascontiguousarray(values)
        return 0

    def _agree_on_dtypes(self, blocks: Blocks) -> None:
        """The first frame settles the types; other types on a rank are refused: HDF5 would convert them silently."""
        if self._dtypes:
            return
        mine = np.array([values.dtype.itemsize for values in blocks.values()], np.int64)
        for name, sizes in zip(blocks, all_of_ranks(self.comm, mine).T, strict=True):
            if len(set(sizes.tolist())) > 1:
                raise InputError(f"{name} has {sizes.tolist()} bytes a value on ranks 0 to {self.comm.size - 1}")
        self._dtypes = {name: values.dtype for name, values in blocks.items()}

    def _make_directory(self, path: Path) -> int:
        if self.comm.rank == 0:
            path.mkdir(exist_ok=True)  # a write that failed may have made it
        return 0

    def _write_shard(self, path: Path, blocks: Blocks) -> int:
        return fr.write_shard(path / fr.shard_name(self.comm.rank), blocks, self.compression)

    def _write_whole(self, path: Path, time: float, whole: Blocks) -> int:
        if self.comm.rank:
            return 0
        return fr.write_whole_frame(path / fr.FRAME_FILE, time, whole, self.compression)

    def _write_parallel(self, path: Path, time: float, blocks: Blocks) -> int:
        return write_mpio_frame(path / fr.FRAME_FILE, self.comm, time, self.layout, blocks, self.compression)

    def _gather(self, blocks: Blocks) -> Blocks:
        """All blocks on rank 0, put in place."""
        whole: Blocks = {}
        for name, values in blocks.items():
            found = gather_blocks(values, self.layout.variables[name].decomposition, self.comm)
            if found is not None:
                whole[name] = found
        return whole

    def _publish(self, path: Path, time: float) -> int:
        """Rank 0, after all blocks are on disk: complete the frame, then show it in the master."""
        if self.comm.rank:
            return 0
        written = 0
        sync_directory(path)
        if self.driver == "shards":
            written += fr.write_virtual_frame(path / fr.FRAME_FILE, time, self.layout, self._dtypes)
        sync_directory(path.parent)
        kept = fr.drop_from([*self._frames, fr.OutputFrame(self._next, time)], self._next)
        written += write_master(self.directory, self.layout, kept, self._dtypes)
        if len(kept) != len(fr.numbers(self.directory)):
            fr.prune(self.directory, kept)
        self._frames = kept
        return written


def choose_driver(driver: str, ranks: int, frame_bytes: int) -> str:
    """The driver that "auto" stands for here; raises `InputError` for an unknown and `SetupError` for an absent one."""
    if driver not in DRIVERS:
        raise InputError(f"no output driver is called {driver!r}", do=f"choose one of {', '.join(DRIVERS)}")
    if driver == "mpio" and not h5py.get_config().mpi:
        raise SetupError(
            'the output driver "mpio" needs an h5py that is built with MPI',
            likely="h5py came as a wheel, and wheels are built without MPI",
            do='use driver "shards", which needs nothing, or build h5py with HDF5_MPI=ON',
        )
    if driver == "auto":
        return "gather" if ranks == 1 or frame_bytes < SMALL_FRAME else "shards"
    return driver
