"""Packing: a file of virtual datasets is replaced by one that holds their values, and needs no other file.

A virtual dataset here is as `store_virtual` makes it for frames: each place along its first dim is one dataset of
another file, or the whole of it is. Compressed chunks move as they are where both sides have the same chunks, as with
the drivers "gather" and "mpio". Blocks of ranks are put together and compressed anew, on all ranks at once.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from hpckit.collectives.operations import gather
from hpckit.comm.agree import all_of_ranks, share_json, together
from hpckit.errors import write_error
from hpckit.io.fields import frames as fr
from hpckit.io.fields.hdf5 import FORMAT, chunk_shape, memory_file, options_of, refers_here
from hpckit.io.fields.master import FRAME_NUMBERS, MASTER, VALUES_IN
from hpckit.io.fields.vtkhdf import add_centered
from hpckit.io.files import replace_file, sync_directory

Array = npt.NDArray[Any]
Chunk = tuple[int, bytes]  # HDF5's mask of the filters that were left out, and the bytes as they stand in the file
_REFERENCES = ("CLASS", "NAME", "DIMENSION_LIST", "REFERENCE_LIST")  # attributes of dimension scales, made anew


@dataclass(frozen=True)
class Target:
    """A dataset to fill: `sources` are file and dataset of each place along its first dim, or (`whole`) of all."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    chunks: tuple[int, ...]
    filters: dict[str, Any]
    sources: list[tuple[str, str]]
    whole: bool

    def create(self, file: h5py.File) -> h5py.Dataset:
        """The dataset, still empty."""
        return file.create_dataset(self.name, self.shape, self.dtype, chunks=self.chunks, **self.filters)

    def offsets(self, source: int) -> Iterator[tuple[int, ...]]:
        """Where the chunks begin that the values of a source fill."""
        sizes = [range(0, n, chunk) for n, chunk in zip(self.shape, self.chunks, strict=True)]
        return itertools.product(*(sizes if self.whole else [range(source, source + 1), *sizes[1:]]))


def pack_file(
    path: Path, comm: Any = None, drop: Sequence[str] = (), more: Callable[[h5py.File], None] | None = None
) -> list[Path]:
    """Replace `path` by a file that holds the values of its virtual datasets; collective where `comm` is given.

    drop: global attributes that it does not get. `more(file)` adds to it, on rank 0. Returns the files that it
    referred to, which stay. Killed at any instant, it leaves the old file or the new one. Raises `SetupError` where
    the disk does not take it and `CorruptDataError` where a source is missing, on all ranks; the old file stays.
    """
    rank, size = (0, 1) if comm is None else (comm.rank, comm.size)
    temporary = path.with_name(path.name + ".tmp")
    file: h5py.File | None = None
    targets: list[Target] = []
    problem: Exception | None = None

    def collectively(action: Callable[[], None]) -> None:
        def counted() -> int:
            try:
                action()
            except RuntimeError as error:  # what h5py makes of a write that fails late
                raise write_error(OSError(str(error)), path) from error
            except OSError as error:
                raise write_error(error, path) from error
            return 0

        counted() if comm is None else together(comm, path, counted)

    def begin() -> None:
        nonlocal file
        if rank == 0:
            fr.require_sources(path)
            file = h5py.File(temporary, "w", libver=FORMAT)
            with h5py.File(path, "r") as old:
                targets.extend(_copy(old, file, path.parent, drop))

    def tell() -> None:
        if problem is not None:
            raise problem

    def end() -> None:
        if file is not None:
            if more is not None:
                more(file)
            file.close()
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            os.replace(temporary, path)
            sync_directory(path.parent)

    try:
        collectively(begin)
        if comm is not None:
            told = share_json(comm, [vars(target) for target in targets])
            lists = [{**each, "shape": tuple(each["shape"]), "chunks": tuple(each["chunks"])} for each in told]
            targets = [Target(**each) for each in lists]
        with Sources(path.parent) as sources:
            left = _tasks(targets)
            while tasks := list(itertools.islice(left, size)):
                chunk: Chunk = 0, b""
                if rank < len(tasks) and problem is None:
                    try:
                        chunk = sources.chunk(*tasks[rank])
                    except (OSError, RuntimeError, KeyError) as error:
                        problem = error
                every = [chunk] if size == 1 else _gathered(comm, chunk)
                for (target, _, offset), (mask, content) in zip(tasks, every, strict=False):
                    if content and problem is None and file is not None:
                        try:
                            file[target.name].id.write_direct_chunk(offset, content, mask)
                        except (OSError, RuntimeError) as error:
                            problem = error
        collectively(tell)
        collectively(end)
        return sorted({path.parent / name for target in targets for name, _ in target.sources})
    finally:
        if file is not None:
            _abandon(file, temporary)


class Sources:
    """The files that hold the values, the last one kept open: `with Sources(directory) as sources`."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.name = directory, ""
        self.file: h5py.File | None = None

    def __enter__(self) -> Sources:
        return self

    def __exit__(self, *unused: object) -> None:
        if self.file is not None:
            self.file.close()

    def chunk(self, target: Target, source: int, offset: tuple[int, ...]) -> Chunk:
        """A chunk of the target as it stands in a file; copied, or put together and compressed."""
        name, dataset = target.sources[source]
        file = self.file
        if name != self.name or file is None:
            self.__exit__()
            self.name, self.file = name, (file := h5py.File(self.directory / name, "r"))
        values = file[dataset]
        skip = len(target.shape) - values.ndim
        alike = not values.is_virtual and values.chunks == target.chunks[skip:]
        if alike and _pipeline(options_of(values)) == _pipeline(target.filters):
            mask, content = values.id.read_direct_chunk(offset[skip:])
            return mask, content
        ends = zip(offset[skip:], target.chunks[skip:], values.shape, strict=True)
        return compressed(target, values[tuple(slice(start, min(start + n, most)) for start, n, most in ends)])


def compressed(target: Target, values: Array) -> Chunk:
    """The values as a chunk of the target; a chunk at the end of a dim is filled up with zeros."""
    with h5py.File("chunk", "w", driver="core", backing_store=False) as file:
        one = file.create_dataset("chunk", target.chunks, target.dtype, chunks=target.chunks, **target.filters)
        values = values.reshape((1,) * (len(target.chunks) - values.ndim) + values.shape)
        one[tuple(slice(0, n) for n in values.shape)] = values
        mask, content = one.id.read_direct_chunk((0,) * len(target.chunks))
        return mask, bytes(content)


def _pipeline(options: dict[str, Any]) -> dict[str, Any]:
    """What a reader undoes: it needs no level of the compression."""
    return {name: value for name, value in options.items() if name != "compression_opts"}


def packed_frames(directory: Path) -> list[fr.OutputFrame]:
    """The frames in `directory/fields.h5` itself; none if it is not there, or refers to files of frames."""
    path = directory / MASTER
    if not path.is_file():
        return []
    try:
        with h5py.File(path, "r") as file:
            if VALUES_IN in file.attrs or FRAME_NUMBERS not in file.attrs:
                return []
            return [
                fr.OutputFrame(int(n), float(t)) for n, t in zip(file.attrs[FRAME_NUMBERS], file["time"], strict=True)
            ]
    except (OSError, KeyError, ValueError) as problem:
        raise fr.unreadable(path, problem) from problem


def unpack_frames(directory: Path, numbers: Collection[int]) -> None:
    """Write frames of a packed `directory/fields.h5` to files of their own again, for a writer that goes on."""
    places = {frame.number: place for place, frame in enumerate(packed_frames(directory))}
    with h5py.File(directory / MASTER, "r") as packed:
        names = str(packed.attrs["variable_order"]).split()
        for number in sorted(places.keys() & numbers):
            place = places[number]
            with memory_file() as made:
                made.file.attrs["time"] = packed["time"][place]
                for name in names:
                    old = packed[name]
                    shape, chunks = old.shape[1:], old.chunks[1:]
                    new = made.file.create_dataset(name, shape, old.dtype, chunks=chunks, **options_of(old))
                    steps = (range(0, n, chunk) for n, chunk in zip(shape, chunks, strict=True))
                    for offset in itertools.product(*steps):
                        mask, content = old.id.read_direct_chunk((place, *offset))
                        new.id.write_direct_chunk(offset, content, mask)
            folder = fr.frame_directory(directory, number)
            folder.mkdir(parents=True, exist_ok=True)
            replace_file(folder / fr.FRAME_FILE, made.image)


def pack_fields(directory: Path, comm: Any = None) -> None:
    """Make `directory/fields.h5` one file of all its frames, and remove their own files; see `pack_file`."""
    if not packed_frames(directory):
        pack_file(directory / MASTER, comm, drop=(VALUES_IN,), more=add_centered)
    if comm is None or comm.rank == 0:
        shutil.rmtree(directory / fr.FRAMES, ignore_errors=True)


def _tasks(targets: Sequence[Target]) -> Iterator[tuple[Target, int, tuple[int, ...]]]:
    """All chunks, those of one frame together: target, source, offset."""
    for source in range(max((len(target.sources) for target in targets), default=0)):
        for target in targets:
            if source < len(target.sources):
                yield from ((target, source, offset) for offset in target.offsets(source))


def _copy(old: h5py.File, new: h5py.File, directory: Path, drop: Sequence[str]) -> list[Target]:
    """Everything but the values of virtual datasets, which are returned as targets, in place but empty."""
    targets: list[Target] = []
    names: dict[int, str] = {}  # address in the old file -> name: hard links stay links
    _copy_attributes(old, new, drop)

    def visit(name: str, item: h5py.Group | h5py.Dataset) -> None:
        address = h5py.h5o.get_info(item.id).addr
        names[address] = name
        if isinstance(item, h5py.Group):
            _copy_attributes(item, new.create_group(name))
        elif item.is_virtual and not refers_here(item):
            targets.append(_target(item, directory))
            _copy_attributes(item, targets[-1].create(new))
        else:
            old.copy(item, new, name, without_attrs=True)
            _copy_attributes(item, new[name])

    old.visititems(visit)

    def link(group: h5py.Group) -> None:
        for name in group:
            item, place = group[name], f"{group.name.rstrip('/')}/{name}"
            if place not in new:
                new[place] = new[names[h5py.h5o.get_info(item.id).addr]]
            if isinstance(item, h5py.Group):
                link(item)

    link(old)
    datasets = [name for name in names.values() if isinstance(old[name], h5py.Dataset)]
    for name in datasets:
        if old[name].is_scale:
            new[name].make_scale(name.rpartition("/")[2])
    for name in datasets:
        for place, dim in enumerate(old[name].dims):
            for scale in dim.values():
                new[name].dims[place].attach_scale(new[scale.name])
    return targets


def _copy_attributes(old: h5py.Group | h5py.Dataset, new: h5py.Group | h5py.Dataset, drop: Sequence[str] = ()) -> None:
    for name in old.attrs:
        if name not in _REFERENCES and name not in drop:
            kind = old.attrs.get_id(name)
            new.attrs.create(name, old.attrs[name], kind.shape, kind.dtype)


def _target(dataset: h5py.Dataset, directory: Path) -> Target:
    """The dataset that a virtual one becomes."""
    sources = [(it.file_name, it.dset_name) for it in sorted(dataset.virtual_sources(), key=_first_place)]
    with h5py.File(directory / sources[0][0], "r") as file:
        like = file[sources[0][1]]
        skip = dataset.ndim - like.ndim
        shape, leaf = like.shape, _leaf(like, (directory / sources[0][0]).parent)
        chunks = like.chunks if not like.is_virtual else chunk_shape(shape, like.dtype.itemsize)
    return Target(
        dataset.name.lstrip("/"),
        dataset.shape,
        dataset.dtype.str,
        (1,) * skip + (chunks or shape),
        leaf,
        sources,
        whole=skip == 0,
    )


def _first_place(source: Any) -> tuple[int, ...]:
    return tuple(source.vspace.get_select_bounds()[0])


def _leaf(dataset: h5py.Dataset, directory: Path) -> dict[str, Any]:
    """The filters of the dataset that holds values for this one."""
    if not dataset.is_virtual:
        return options_of(dataset)
    source = dataset.virtual_sources()[0]
    with h5py.File(directory / source.file_name, "r") as file:
        return _leaf(file[source.dset_name], directory)


def _gathered(comm: Any, chunk: Chunk) -> list[Chunk]:
    """Collective: the chunks of all ranks on rank 0; one without content is none."""
    own = np.frombuffer(np.int64(chunk[0]).tobytes() + chunk[1], np.uint8)
    counts = all_of_ranks(comm, np.array(own.size, np.int64))
    every = gather(own, comm, root=0, counts=counts).wait()
    if comm.rank:
        return []
    parts = np.split(every, np.cumsum(counts)[:-1])
    return [(int(part[:8].view(np.int64)[0]), part[8:].tobytes()) for part in parts]


def _abandon(file: h5py.File, temporary: Path) -> None:
    """Close and remove what did not become the file."""
    with contextlib.suppress(OSError, RuntimeError):  # the disk took no more
        file.close()
    temporary.unlink(missing_ok=True)
