"""Files made to do harm, given to every verb that reads such a file: one refusal, soon, and nothing for the terminal
to obey.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import struct
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from hpckit.cli.main import main

SECONDS = 2.0  # of processor time in which a file is refused
LIVE = "\x1b]0;owned\x07\x1b[2J\x1b[31m"  # what a terminal obeys
REFUSED = (2, 5)  # exit codes: bad input, damaged data
# What may be good, is read only when ranks have started, or needs a package that may be missing (3).
ANYTHING = ("training text", "topography", "compared files", "tokenizer")
Make = Callable[[Path, Random], object]


def text(content: Callable[[Random], str | bytes]) -> Make:
    """What writes a file."""

    def make(path: Path, random: Random) -> None:
        found = content(random)
        path.write_bytes(found if isinstance(found, bytes) else found.encode("utf-8", "surrogateescape"))

    return make


CONTENTS: dict[str, Make] = {
    "brackets": text(lambda random: "a = " + "[" * random.randint(10_000, 300_000)),
    "braces": text(lambda random: '{"a":' * random.randint(10_000, 300_000)),
    "closed brackets": text(lambda random: "[" * 50_000 + "]" * 50_000),
    "inline tables": text(lambda random: "a = " + "{a = " * random.randint(1000, 100_000)),
    "digits": text(lambda random: "a = " + "9" * random.randint(5000, 1_000_000)),
    "only digits": text(lambda random: "9" * random.randint(5000, 1_000_000)),
    "dotted key": text(lambda random: "a." * random.randint(1000, 100_000) + "a = 1"),
    "quoted dotted key": text(lambda random: '"a" . ' * random.randint(1000, 100_000) + "a = 1"),
    "many keys": text(lambda random: "".join(f"a{n}.b.c = 1\n" for n in range(random.randint(30_000, 100_000)))),
    "many tables": text(lambda random: "".join(f"[a{n}.b.c]\nx = 1\n" for n in range(random.randint(9_000, 50_000)))),
    "long line": text(lambda random: "x" * random.randint(1 << 20, 1 << 25)),
    "many lines": text(lambda random: "1 2 3\n" * random.randint(100_000, 1_000_000)),
    "terminal": text(lambda random: f'app = "{LIVE}"\n{LIVE} = 1\n'),
    "terminal in JSON": text(lambda random: json.dumps({"app": LIVE, "status": LIVE, "error": {"title": LIVE}})),
    "terminal, bare": text(lambda random: f"{LIVE}\n{LIVE}\n{LIVE}\n"),
    "zeros": text(lambda random: bytes(random.randint(1, 1 << 20))),
    "noise": text(lambda random: random.randbytes(random.randint(1, 4096))),
    "nothing": text(lambda random: b""),
    "not UTF-8": text(lambda random: b"app = \xff\xfe\n"),
    "huge atoms": text(
        lambda random: '999999999999999999\nLattice="1 0 0 0 1 0 0 0 1" Properties=species:S:1:pos:R:3\n'
    ),
    "wide columns": text(lambda random: f"1\nProperties=species:S:{10 ** random.randint(9, 30)}:pos:R:3\nAr 0 0 0\n"),
    "safetensors brackets": text(lambda random: struct.pack("<Q", 100_000) + b"[" * 100_000),
    "safetensors types": text(lambda random: _tensors(random)),
    "sizes": text(
        lambda random: (
            f"x\n\n{10 ** random.randint(9, 18)} atoms\n1 atom types\n0 1 xlo xhi\n0 1 ylo yhi\n0 1 zlo zhi\n"
        )
    ),
    "dump of many": text(lambda random: f"ITEM: TIMESTEP\n0\nITEM: NUMBER OF ATOMS\n{10 ** random.randint(9, 40)}\n"),
    "pipe": lambda path, random: os.mkfifo(path),
    "memory": lambda path, random: path.symlink_to("/proc/self/mem"),
    "endless": lambda path, random: path.symlink_to("/dev/zero"),
    "full": lambda path, random: path.symlink_to("/dev/full"),
    "terminal device": lambda path, random: path.symlink_to("/dev/tty"),
    "a folder": lambda path, random: path.mkdir(),
    "a circle": lambda path, random: path.symlink_to(path),
    "a link to nothing": lambda path, random: path.symlink_to("/nowhere/at/all"),
    "positions of text": lambda path, random: _h5md(path),
}


def _tensors(random: Random) -> bytes:
    entry = random.choice(
        (
            {"dtype": "F32", "shape": [10**18], "data_offsets": [0, 4]},
            {"dtype": "F32", "shape": "x", "data_offsets": [0, 4]},
            {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]},
            {"dtype": "F32", "shape": [-1], "data_offsets": [0, -4]},
            {"dtype": "F32", "shape": [1], "data_offsets": [0]},
            {"dtype": LIVE, "shape": [1], "data_offsets": [0, 4]},
            [],
            7,
        )
    )
    header = json.dumps({random.choice(("x", LIVE, "__metadata__")): entry}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


def _h5md(path: Path) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_group("h5md")
        file["particles/all/position/value"] = [[[b"x", b"y", b"z"]]]
        file["particles/all/box/edges"] = [1.0, 1.0, 1.0]
        file["particles/all/box"].attrs["boundary"] = [LIVE.encode()] * 3


# Where a file is given -> (its name, the words of the verb).
GIVEN: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "run file": ("run.toml", lambda path: ["run", str(path), "--dry-run"]),
    "site file": ("site.toml", lambda path: ["submit", "heat", "--dry-run", "--time", "10", "--site", str(path)]),
    "list of jobs": ("jobs.toml", lambda path: ["submit", "--list", str(path), "--into", str(path.parent / "into")]),
    "graph": ("graph.toml", lambda path: ["graph", "status", str(path)]),
    "drawn graph": ("graph.toml", lambda path: ["graph", "draw", str(path)]),
    "machine": ("machine.toml", lambda path: ["plan", "allreduce", "--ranks", "4", "--machine", str(path)]),
    "schedule": ("stages.csv", lambda path: ["plan", "pipeline", "--schedule", str(path)]),
    "layers": ("layers.csv", lambda path: ["plan", "pipeline", "--layers", str(path)]),
    "dump": ("a.dump", lambda path: ["analyze", str(path)]),
    "extended XYZ": ("a.xyz", lambda path: ["analyze", str(path)]),
    "H5MD": ("a.h5", lambda path: ["analyze", str(path)]),
    "any trajectory": ("trajectory", lambda path: ["analyze", str(path)]),
    "atoms": ("a.data", lambda path: ["run", "melt", f"system.file={path}", "--dry-run"]),
    "script of LAMMPS": ("in.x", lambda path: ["run", str(path), "--dry-run"]),
    "atoms of a script": ("a.data", lambda path: ["run", _script(path), "--dry-run"]),
    "pair table": (
        "a.table",
        lambda path: ["run", "melt", "interaction.kind=table", f"interaction.file={path}", "--dry-run"],
    ),
    "sounding": ("s.txt", lambda path: ["run", "sounding", f"base.file={path}", "--dry-run"]),
    "topography": (
        "h.npy",
        lambda path: ["run", "lake_at_rest", "bottom.kind=file", f"bottom.file={path}", "--dry-run"],
    ),
    "training text": ("t.txt", lambda path: ["run", "gpt", f"data.file={path}", "--dry-run"]),
    "tokenizer": ("tokenizer.json", lambda path: ["run", "gpt", f"data.tokenizer={path}", "--dry-run"]),
    "weights": ("model.safetensors", lambda path: ["run", "gpt", f"model.weights={path}", "--dry-run"]),
    "compared files": ("a.h5", lambda path: ["compare", str(path), str(path)]),
    "settings": ("x", lambda path: ["run", "heat", f"time.limit={_some(path)}", "--dry-run"]),
    "key": ("x", lambda path: ["run", "heat", f"{_some(path)}=1", "--dry-run"]),
    "word": ("x", lambda path: ["run", _some(path), "--dry-run"]),
    "option": ("x", lambda path: ["run", "heat", f"--{_some(path)}", "--dry-run"]),
}
RECORDS = ("resolved.json", "summary.json", "provenance.json", "progress.json", "metrics.jsonl", "job.json",
           "attempts/000/failure.json", "trace.json", "run.toml", "output/fields.h5", "stop")  # fmt: skip
VERBS = ("ls", "report", "resume", "compare", "watch", "ckpt")


def _script(data: Path) -> str:
    """A script of LAMMPS that reads these atoms."""
    script = data.with_name("in.lj")
    lines = [
        "units lj",
        f"read_data {data.name}",
        "pair_style lj/cut 2.5",
        "pair_coeff 1 1 1 1",
        "fix 1 all nve",
        "run 1",
    ]
    script.write_text("\n".join(lines))
    return str(script)


def _some(path: Path) -> str:
    """The content of a file as a word of the command line."""
    with contextlib.suppress(OSError):
        if path.is_file() and path.stat().st_size:
            return path.read_bytes()[:100_000].decode("utf-8", "replace").replace("\x00", "").strip() or "x"
    return LIVE


def random_hostile(random: Random, folder: Path) -> str:
    """One file of one kind in one place. Raises `AssertionError` if it is not refused, or not as it should be."""
    place = folder / "hostile"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    name = random.choice(sorted(CONTENTS))
    if random.random() < 0.35:
        return _in_a_run(random, place, name)
    return given(name, random.choice(sorted(GIVEN)), place, random)


def given(name: str, where: str, place: Path, random: Random) -> str:
    """Give a file of this content in a place of `GIVEN`. Raises `AssertionError` unless it is refused well."""
    file, words = GIVEN[where]
    CONTENTS[name](place / file, random)
    _judge(f"{name} as {where}", words(place / file), (*REFUSED, 0, 3) if where in ANYTHING else REFUSED)
    return f"{name} as {where}: refused"


def _in_a_run(random: Random, place: Path, name: str) -> str:
    """A record of a run: the verbs that read it tell so, or do without it."""
    from hpckit.run.directory import RunDirectory
    from hpckit.settings.config import load

    run = RunDirectory.create(place / "runs/one").path
    values = load("heat", []).values()
    record = {"app": "diffusion", "package": "hpckit.apps.diffusion", "title": "heat", "ranks": 1, "values": values}
    (run / "resolved.json").write_text(json.dumps(record))
    (run / "summary.json").write_text(json.dumps({"status": "done", "app": "diffusion", "ranks": 1, "exit_code": 0}))
    record_name, verb = random.choice(RECORDS), random.choice(VERBS)
    path = run / record_name
    path.unlink(missing_ok=True)
    CONTENTS[name](path, random)
    words = {
        "ls": ["ls", str(run.parent)],
        "watch": ["watch", str(run), "--once"],
        "compare": ["compare", str(run), str(run)],
        "ckpt": ["ckpt", "ls", str(run)],
    }.get(verb, [verb, str(run)])
    if verb == "resume" and record_name != "resolved.json":
        words.append("time.end=7")  # which it refuses: no run is started
    _judge(f"{name} in place of {record_name} for {verb}", words, (0, 1, 75, *REFUSED, 3))
    return f"{name} in place of {record_name}: {verb} went on"


def _judge(what: str, words: list[str], codes: tuple[int, ...]) -> None:
    """Raise `AssertionError` unless the verb ends with one of these codes, soon, and prints nothing to obey."""
    out, error = io.StringIO(), io.StringIO()
    begin = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        code = main(words)
    seconds = time.process_time() - begin
    said = out.getvalue() + error.getvalue()
    assert code in codes, f"{what}: exit code {code}: {said[-300:]!r}"
    assert seconds <= SECONDS, f"{what}: took {seconds:.1f} s of processor time"
    bad = sorted({character for character in said if not character.isprintable() and character not in "\n\t"})
    assert not bad, f"{what}: printed {bad}"
    assert max(map(len, said.splitlines()), default=0) < 5000, f"{what}: a line of {max(map(len, said.splitlines()))}"
