"""Reads HDF5 files, each in a process within limits: `python -m hpckit.io.probe_child MEMORY FILE …`, as `probe` does.

Prints a line of JSON for each file: what is wrong with it, or ''. A crash of HDF5 ends only that file's process.
"""

from __future__ import annotations

import json
import math
import os
import resource
import signal
import sys
from collections.abc import Iterator
from typing import Any

PART = 8 << 20  # bytes read at once
MOST_READ = 1 << 30  # bytes of values that are read of a file; beyond them only the structure is read
FREE = 64 << 20  # bytes that a dataset may declare, however little is stored
RATIO = 2000  # bytes declared for a byte of the file: deflate reaches 1032
MOST_OBJECTS = 100_000
SECONDS, BYTES_A_SECOND = 4, 50_000_000  # processor time for a file: a fixed part, and a part by its size
WAITING = 10  # times as long by the wall clock: a slow disk, or a machine that is busy, is not the file's fault
TOO_LONG = (signal.SIGALRM, signal.SIGXCPU)


class Refused(Exception):
    """Why a file is not read."""


def main(memory: int, paths: list[str]) -> None:
    """Read the files, each in a process of its own; what is wrong is printed."""
    import h5py  # noqa: F401  (once, before the processes part)

    for path in paths:
        answer, said = os.pipe()
        seconds = SECONDS + min(os.path.getsize(path), MOST_READ) // BYTES_A_SECOND
        child = os.fork()
        if child == 0:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            # With equal limits the process would end by SIGKILL, which does not name the limit.
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            signal.alarm(WAITING * seconds)
            os.write(said, problem_of(path, memory).encode())
            os._exit(0)  # what is left of a broken file is not closed
        os.close(said)
        with open(answer, "rb") as lines:
            problem = lines.read().decode()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if -status in TOO_LONG:
            problem = f"reading it takes more than {seconds} s"
        elif status:
            problem = f"it crashes the HDF5 library (exit code {status})"
        print(json.dumps(problem), flush=True)


def problem_of(path: str, memory: int) -> str:
    """Read a file; what is wrong with it, '' for nothing."""
    try:
        read(path)
    except Refused as error:
        return str(error)
    except MemoryError:
        return f"it takes more than {memory >> 20} MiB to read it"
    except Exception as error:
        return f"HDF5 cannot read it: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return ""


def read(path: str) -> None:
    """Every object of a file, its attributes and values. Raises `Refused`, and whatever HDF5 does."""
    import h5py

    if not os.path.isfile(path):  # a pipe would wait for a writer
        raise Refused("it is not a regular file")
    done = 0
    with h5py.File(path, "r") as file:
        for item in objects(file):
            for name in item.attrs:
                kind = item.attrs.get_id(name)
                _require_size(f"the attribute {name} of {item.name}", kind.shape, kind.dtype, FREE)
                item.attrs[name]
            if isinstance(item, h5py.Dataset):
                check(item, path)
                for place in parts(item.shape, max(item.dtype.itemsize, 1)):
                    if done < MOST_READ:
                        done += sys.getsizeof(item[place])


def objects(file: Any) -> Iterator[Any]:
    """Groups and datasets, each once. Soft links are not followed, so that no circle of links is followed."""
    import h5py

    seen, left = set(), [file["/"]]
    while left:
        item = left.pop()
        address = h5py.h5o.get_info(item.id).addr
        if address in seen:
            continue
        seen.add(address)
        if len(seen) > MOST_OBJECTS:
            raise Refused(f"it has more than {MOST_OBJECTS} objects")
        yield item
        if isinstance(item, h5py.Group):
            for name in item:
                link = item.get(name, getlink=True)
                if isinstance(link, h5py.ExternalLink):
                    raise Refused(f"{item.name.rstrip('/')}/{name} is a link to another file, {link.filename!r}")
                if isinstance(link, h5py.HardLink):
                    left.append(item[name])


def check(dataset: Any, path: str) -> None:
    """Refuse a dataset that declares more than could be stored, lies in other files, or needs missing filters."""
    import h5py

    plist = dataset.id.get_create_plist()
    stored = os.path.getsize(path)
    if plist.get_external_count():
        raise Refused(f"{dataset.name} lies in another file, {os.fsdecode(plist.get_external(0)[0])!r}")
    if plist.get_layout() == h5py.h5d.VIRTUAL:
        folder = os.path.dirname(os.path.realpath(path))
        for number in range(plist.get_virtual_count()):
            source = plist.get_virtual_filename(number)
            place = os.path.realpath(os.path.join(folder, source))
            if source != "." and os.path.commonpath([folder, place]) != folder:
                raise Refused(f"{dataset.name} has values in a file outside of its folder, {source!r}")
            stored += os.path.getsize(place) if os.path.isfile(place) else 0
    else:
        for number in range(plist.get_nfilters()):
            code, _, _, name = plist.get_filter(number)
            if not h5py.h5z.filter_avail(code):
                raise Refused(f"{dataset.name} needs the filter {code} ({name.decode('latin-1')}), which is not here")
    _require_size(dataset.name, dataset.shape, dataset.dtype, max(FREE, RATIO * stored))
    if dataset.chunks is not None:
        _require_size(f"a chunk of {dataset.name}", dataset.chunks, dataset.dtype, max(FREE, RATIO * stored))


def parts(shape: tuple[int, ...] | None, itemsize: int) -> Iterator[Any]:
    """Indices of parts of an array, of about `PART` bytes each."""
    if not shape or 0 in shape:
        if shape == ():
            yield ()
        return
    rows = max(1, PART // max(1, math.prod(shape[1:]) * itemsize))
    for first in range(0, shape[0], rows):
        if rows == 1 and len(shape) > 1:
            for inner in parts(shape[1:], itemsize):
                yield first, *inner
        else:
            yield (slice(first, first + rows),)


def _require_size(what: str, shape: tuple[int, ...] | None, dtype: Any, most: int) -> None:
    nbytes = math.prod(shape or (1,)) * dtype.itemsize
    if nbytes > most:
        raise Refused(f"{what} declares {nbytes} bytes, which the file cannot hold")


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
