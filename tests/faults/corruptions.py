"""Checkpoints changed behind our back: the loader finds each change, and takes the generation before."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from mpi4py import MPI

from hpckit.errors import HpckitError
from hpckit.io.checkpoint.choose import choose
from hpckit.io.checkpoint.writer import Writer
from tests.faults.stepping import SHAPE, state_of, values

GENERATIONS = 3
LONGEST = 5.0  # s of processor time: what holds the process up is no work of the loader
KINDS = ("bit", "bit", "bit", "cut", "longer", "zeros", "swap", "stale", "gone", "empty", "digit")


def corruptions(random: Random, count: int, kinds: Sequence[str] = KINDS) -> Iterator[dict[str, Any]]:
    """`count` changes of these kinds; a row each, `silent` where a wrong value came, `crash` for an untyped error."""
    with tempfile.TemporaryDirectory(prefix="hpckit-faults-") as folder:
        good = Path(folder, "good")
        writer = Writer(MPI.COMM_SELF, good, keep=9)
        for step in range(1, GENERATIONS + 1):
            writer.save(step, state_of(values(step), step))
        writer.close()
        for number in range(count):
            root = Path(folder, f"changed-{number}")
            shutil.copytree(good, root)
            case = _change(random, root, kinds)
            begin = time.process_time()
            ending, problem = _loaded(root)
            seconds = time.process_time() - begin
            if not problem and seconds > LONGEST:
                ending, problem = "crash", f"took {seconds:.1f} s"
            shutil.rmtree(root)
            yield {
                "what": "corruption",
                "case": case,
                "passed": not problem,
                "problem": problem,
                "ending": ending,
                "seconds": round(seconds, 2),
            }


def _loaded(root: Path) -> tuple[str, str]:
    """How the loading ended, and what is wrong with that."""
    try:
        generation, notes = choose(MPI.COMM_SELF, root)
        if generation is None:
            return "silent", "nothing was loaded and nothing said"
        if generation.step < GENERATIONS and not notes:
            return "silent", f"step {generation.step} was loaded, and nothing said of newer ones"
        field = generation.read("field", (0, 0), SHAPE)
        right = generation.step == generation.values["step"] and np.array_equal(field, values(generation.step))
        return ("loaded", "") if right else ("silent", f"step {generation.step} is wrong")
    except HpckitError as error:
        return f"refused {error.code}", ""
    except Exception as error:
        return "crash", f"{type(error).__name__}: {error}"


def _change(random: Random, root: Path, kinds: Sequence[str]) -> str:
    """Change something of one generation, often of the newest; what it was."""
    kind = random.choice(kinds)
    number = random.choice((GENERATIONS, GENERATIONS, random.randint(1, GENERATIONS)))
    folder = root / f"g{number:06d}"
    path = folder / "manifest.json" if kind == "digit" else random.choice(sorted(folder.iterdir()))
    other = root / f"g{random.choice([each for each in range(1, GENERATIONS + 1) if each != number]):06d}" / path.name
    data = path.read_bytes()
    at = random.randrange(len(data))
    if kind == "bit":
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << random.randrange(8)]) + data[at + 1 :])
    elif kind == "digit":  # a bit of a number: the manifest is as good as before, and says something else
        at = random.choice([found.start() for found in re.finditer(rb"(?<=[ \[])[0-9]", data)])
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    elif kind == "cut":
        path.write_bytes(data[:at])
    elif kind == "longer":
        path.write_bytes(data + random.randbytes(random.randint(1, 4096)))
    elif kind == "zeros":
        path.write_bytes(data[:at] + bytes(min(512, len(data) - at)) + data[at + 512 :])
    elif kind == "swap":
        mine, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs)
        other.write_bytes(mine)
    elif kind == "stale":  # manifest and COMMIT of another generation: sound by themselves
        for name in ("manifest.json", "COMMIT", *random.choice(((), (path.name,)))):
            shutil.copyfile(other.with_name(name), folder / name)
    elif kind == "gone":
        path.unlink()
    else:
        path.write_bytes(b"")
    return f"{kind} of g{number:06d}/{path.name}"
