"""H5MD trajectories (de Buyl, Colberg and Höfling 2014; specification 1.1, with its units module).

While a run goes on, every frame is a file of its own, put in place whole, and the trajectory shows them by virtual
datasets: a process killed at any instant leaves a trajectory that opens. At the end all frames move into one file.
"""

from __future__ import annotations

import shutil
import time as clock
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import h5py
import numpy as np

import hpckit
from hpckit.errors import CorruptDataError, InputError, write_error
from hpckit.io.fields.hdf5 import Source, memory_file, store_virtual
from hpckit.io.fields.master import VALUES_IN, beside
from hpckit.io.fields.pack import pack_file
from hpckit.io.files import replace_file
from hpckit.io.probe import problems
from hpckit.plan.particles.snapshot import Snapshot

GROUP = "particles/all"
# Element of the file -> field of the snapshot, and the unit it has.
ELEMENTS = {
    "position": ("positions", "length"),
    "image": ("images", ""),
    "velocity": ("velocities", "velocity"),
    "force": ("forces", "force"),
}
OF_BOX = ("box/edges", "box/lower")  # positions are places in space; readers that know the edges alone shift them
CHUNK_ROWS = 1 << 16
# The table of frames is written anew when that takes at most this share of the time since the last one.
SHARE = 0.05


class H5mdWriter:
    """Writes frames, sorted by id, into an H5MD file.

    units: names of the units of length, time, velocity, force and mass as the units module spells them ("Angstrom",
    "ps", "Angstrom ps-1"); empty for reduced units. All frames hold the same particles; which of velocities and forces
    they have is decided by the first, as is whether the edges of the box are three lengths or, of a tilted one, a
    matrix; tilted: a matrix in any case, for a box that will be tilted. `resume` goes on where a writer was whose
    `kept` said so, and forgets later frames; {} forgets all. Raises `InputError` for frames that are unlike the first,
    `SetupError` where the file cannot be written, `CorruptDataError` where frames to go on after are gone.
    """

    def __init__(
        self,
        path: str | Path,
        units: Mapping[str, str] | None = None,
        author: str = "unknown",
        resume: Mapping[str, Any] | None = None,
        tilted: bool = False,
    ) -> None:
        self.path = Path(path)
        self._tilted = tilted
        self._units = dict(units or {})
        self._author = author
        self._frames: list[tuple[int, float]] = []
        self._first: Snapshot | None = None
        self._folder = self.path.with_name(self.path.name + ".frames")
        self._listed = self._cost = 0.0
        try:
            if resume:
                self._frames = [(int(step), float(time)) for step, time in resume["frames"]]
                self._folder.mkdir(parents=True, exist_ok=True)
                self._find_frames()
            else:
                shutil.rmtree(self._folder, ignore_errors=True)
                self._folder.mkdir(parents=True)
        except OSError as error:
            raise write_error(error, self._folder) from error

    def kept(self) -> dict[str, Any]:
        """What a resumed run needs to go on here."""
        return {"frames": [list(frame) for frame in self._frames]}

    def _find_frames(self) -> None:
        """Every frame to go on after has its file; one that is in the trajectory already is taken out of it."""
        do = "put it back, or start the run again: hpckit run DIR/run.toml"
        paths = [self._folder / _name(number) for number in range(len(self._frames))]
        there = [path for path in paths if path.is_file()]
        for path, problem in zip(there, problems(there), strict=True):
            if problem:
                raise CorruptDataError(
                    f"frame {paths.index(path)} of {self.path.name} is damaged: {problem}", where=str(path), do=do
                )
        for number, path in enumerate(paths):
            if path in there:
                continue
            try:
                with h5py.File(self.path, "r") as moved, memory_file() as made:
                    group = moved[GROUP]
                    for name in (*ELEMENTS, *OF_BOX):
                        if name in group:
                            values = group[f"{name}/value"][number]
                            chunk = _chunk(values.shape)
                            made.file.create_dataset(_value(name), data=values, chunks=chunk, fletcher32=True)
            except (OSError, KeyError, ValueError) as error:
                raise CorruptDataError(
                    f"frame {number} of {self.path.name} is gone", where=str(path), likely=str(error), do=do
                ) from None
            replace_file(path, made.image, sync_parent=False)

    def write(self, snapshot: Snapshot) -> None:
        """Append a frame."""
        first = self._first = self._first or snapshot
        if not np.array_equal(snapshot.ids, first.ids) or not np.array_equal(snapshot.types, first.types):
            raise InputError(f"the frame of step {snapshot.step} holds other particles than the first one")
        with memory_file() as made:
            for name, values in self._values(snapshot).items():
                made.file.create_dataset(_value(name), data=values, chunks=_chunk(values.shape), fletcher32=True)
        try:
            replace_file(self._folder / _name(len(self._frames)), made.image, sync_parent=False)
            self._frames.append((snapshot.step, snapshot.time))
            begin = clock.monotonic()
            if self._cost <= SHARE * (begin - self._listed):
                self._list()
                self._listed = clock.monotonic()
                self._cost = self._listed - begin
        except OSError as error:
            raise write_error(error, self.path) from error

    def close(self, last: bool = True) -> None:
        """Put all frames into one file, which replaces the table of them.

        Without `last` more may come: the table stays, as it does where a writer that was to go on wrote nothing.
        """
        if self._first is not None and not last:
            self._list()
        if self._frames and (self._first is None or not last):
            return
        if self._first is None:
            shutil.rmtree(self._folder, ignore_errors=True)
            return
        self._list()  # whole, also where the move into one file fails
        pack_file(self.path, drop=(VALUES_IN,))
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *unused: object) -> None:
        self.close()

    def _values(self, snapshot: Snapshot) -> dict[str, np.ndarray]:
        assert self._first is not None
        whole = self._tilted or self._first.cell.tilted
        if snapshot.cell.tilted and not whole:
            raise InputError(f"the box is tilted at step {snapshot.step}, but was not at the first frame")
        values = {"box/edges": snapshot.cell.matrix if whole else snapshot.edges, "box/lower": snapshot.lower}
        for name, (field, _) in ELEMENTS.items():
            if getattr(self._first, field) is not None:
                given = getattr(snapshot, field)
                if given is None:
                    raise InputError(f"the frame of step {snapshot.step} has no {field}, the first one has")
                values[name] = given
        return values

    def _list(self) -> None:
        """The trajectory as it stands: virtual datasets over the files of the frames."""
        assert self._first is not None
        with memory_file() as made:
            made.file.attrs[VALUES_IN] = beside(self._folder.name)
            self._put_common(made.file)
            for name, like in self._values(self._first).items():
                zeros = (0,) * like.ndim
                sources: list[Source] = [
                    ((number, *zeros), (1, *like.shape), f"{self._folder.name}/{_name(number)}", like.shape)
                    for number in range(len(self._frames))
                ]
                shape = (len(self._frames), *like.shape)
                store_virtual(made.file, _value(name), shape, like.dtype, sources)
            self._put_units(made.file)
        replace_file(self.path, made.image)

    def _put_common(self, file: h5py.File) -> None:
        """All but the values: metadata, box, steps and times, and what does not change with time."""
        first = self._first
        assert first is not None
        root = file.create_group("h5md")
        root.attrs["version"] = np.array([1, 1], np.int32)
        root.create_group("author").attrs["name"] = self._author
        creator = root.create_group("creator")
        creator.attrs["name"], creator.attrs["version"] = "hpckit", hpckit.__version__
        if self._units:
            root.create_group("modules/units").attrs["version"] = np.array([1, 0], np.int32)
        group = file.create_group(GROUP)
        box = group.create_group("box")
        box.attrs["dimension"] = 3
        box.attrs["boundary"] = np.array(["periodic" if wraps else "none" for wraps in first.periodic], "S8")
        group["species"] = (first.types + 1).astype(np.int32)
        group["id"] = first.ids
        if first.particle_masses is not None:
            group["mass"] = first.particle_masses
        if first.charges is not None:
            group["charge"] = first.charges
        position = group.create_group("position")
        position["step"] = np.array([step for step, _ in self._frames], np.int64)
        position["time"] = np.array([time for _, time in self._frames])
        for name in self._values(first):
            element = group.require_group(name)
            if name != "position":  # hard links: the elements are sampled together
                element["step"], element["time"] = position["step"], position["time"]
        file.create_group("parameters/hpckit")  # whose types count from 1
        if first.names:
            file["parameters/hpckit/type_names"] = np.array(first.names, h5py.string_dtype())

    def _put_units(self, file: h5py.File) -> None:
        """The unit of every dataset that has one, as an attribute."""
        units = self._units
        group = file[GROUP]
        given = {"position/time": "time", "mass": "mass"}
        given |= {f"{name}/value": "length" for name in OF_BOX}
        given |= {f"{name}/value": kind for name, (_, kind) in ELEMENTS.items() if kind}
        for name, kind in given.items():
            if name in group and units.get(kind):
                group[name].attrs["unit"] = units[kind]


def _name(number: int) -> str:
    return f"{number:08d}.h5"


def _value(name: str) -> str:
    return f"{GROUP}/{name}/value"


def _chunk(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (max(1, min(shape[0], CHUNK_ROWS)), *shape[1:])
