"""Runs the blocks of one page in its folder: Python in a session, shell commands by bash, run files by their schema."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import select
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from blocks import ROOT, Block
from conftest import PATIENCE, START, run_limited

sys.path.insert(0, str(ROOT / "docs" / "generate"))
from hpckit.cli.parsers import WrongCommandError, parsed

SESSION = Path(__file__).with_name("session.py")
BLOCK_SECONDS = 200
MOST_RANKS = 1000  # of plans: larger ones take seconds
OPERATORS = ("&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1")
WRITTEN = ("--draw", "--save", "--directory", "--into", "--script")  # what follows is made by the command
SITE = ROOT / "jobscripts" / "site.toml"
SITE_OPTIONS = ("--ranks-per-node", "2", "--site", str(SITE))  # options of the page come after these, and count
ANY = "…"  # stands for anything in what a page says is printed


def environment(folder: Path) -> dict[str, str]:
    """The environment of a page's commands: `hpckit` and this Python first on the path, no settings of the user."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HPCKIT_", "PMI", "SLURM_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", os.defpath)])
    modules = os.pathsep.join([str(folder), START])
    more = {"HPCKIT_CONFIG": os.devnull, "MPLBACKEND": "Agg", "PYTHONPATH": modules, "QUICK_FRONT": "1"}
    return {**kept, **more, "PATH": path}


class Session:
    """A process that runs Python blocks, a page after another; its imports and compiled kernels stay."""

    def __init__(self) -> None:
        self._process: subprocess.Popen | None = None

    def run(self, code: str, name: str, folder: Path, fresh: bool) -> str:
        """What the code prints; fails the test where it raises, ends the process or takes too long."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, SESSION], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env=environment(folder),
            )  # fmt: skip
        request = {"code": code, "name": name, "folder": str(folder), "fresh": fresh}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE * BLOCK_SECONDS)
        line = self._process.stdout.readline() if ready else ""
        if not line:
            self.close()
            pytest.fail(f"{name} ended the interpreter, or took more than {PATIENCE * BLOCK_SECONDS} s", pytrace=False)
        answer = json.loads(line)
        if answer["error"]:
            pytest.fail(f"{name} raised\n{answer['error']}", pytrace=False)
        return answer["printed"]

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


class PageRun:
    """The blocks of one page, run in order in `folder`; `long`: also blocks that only nightly tests run."""

    def __init__(self, page: str, folder: Path, session: Session, long: bool = False) -> None:
        self.page, self.folder, self.session, self.long = page, folder, session, long
        self.printed: str | None = ""  # by the last block; None where it is not for this run
        self.fresh = True

    def run(self, block: Block) -> None:
        """Run or check one block."""
        where = f"{self.page}:{block.line}"
        if block.language == "python":
            self._python(block, where)
        elif block.language == "toml":
            self._toml(block, where)
        elif block.is_shell:
            self._shell(block, where)
        elif "file" in block.marks:
            self._write(block)
        elif "output" in block.marks and self.printed is not None:
            compare(block.text, self.printed, where)

    def _write(self, block: Block) -> Path:
        path = self.folder / block.marks.get("file", f"block{block.line}.{block.language}")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        return path

    def _python(self, block: Block, where: str) -> None:
        """A file is written for the command that follows; a program has names of its own; else names are kept."""
        compile(block.text, where, "exec", dont_inherit=True)
        if "file" in block.marks:
            self._write(block)
        elif "long" in block.marks and not self.long:
            self.printed = None
        elif not (lacking(block) or {"fragment", "theirs"} & set(block.marks)):
            fresh = self.fresh or "program" in block.marks
            self.printed = self.session.run(block.text, where, self.folder, fresh)
            self.fresh = False

    def _toml(self, block: Block, where: str) -> None:
        """A run file goes through the schema of its app, as `hpckit run FILE --show-config` does; others as theirs."""
        value = tomllib.loads(block.text)
        path = self._write(block)
        if "adds" in block.marks:
            path.write_text((self.folder / block.marks["adds"]).read_text(encoding="utf-8") + block.text)
        kind = block.marks.get("toml", "")
        if kind == "graph":
            self._verb(["graph", "status", str(path)], where)
        elif kind == "site":
            self._verb(["submit", "heat", "--nodes", "1", "--time", "60", "--ranks-per-node", "1", "--dry-run",
                        "--site", str(path)], where)  # fmt: skip
        elif kind == "machine":
            self._verb(["plan", "allreduce", "--ranks", "4", "--machine", str(path)], where)
        else:
            assert kind or "app" in value, (
                f"{where}: what is this? app = …, or <!-- toml: APP -->, graph, site, machine"
            )
            if kind:
                path.write_text(f'app = "{kind}"\n{block.text}', encoding="utf-8")
            self._verb(["run", str(path), "--show-config"], where)

    def _shell(self, block: Block, where: str) -> None:
        """Run by bash where the block is marked `run` (or `long`, and those are wanted); else check each command."""
        wanted = "run" in block.marks or (self.long and "long" in block.marks)
        if wanted and not lacking(block):
            self.printed = self._bash(block.text, where)
            return
        if "long" in block.marks or lacking(block):
            self.printed = None
        self._bash_syntax(block.text, where)
        for words in commands(block.text):
            self._check(words, where)

    def _check(self, words: list[str], where: str) -> None:
        """One `hpckit …`: its verb takes these options; what is quick and where its files are there is done."""
        try:
            parsed(words)
        except WrongCommandError as error:
            pytest.fail(f"{where}: hpckit {' '.join(words)}\n{error}", pytrace=False)
        if not self._is_there(words[1:2] + words[3:] if words[0] == "init" else words[1:]):
            return
        if words[:2] == ["plan", "serve"] and not (self.folder / words[2]).exists():
            return  # a model that a long block makes
        for before, word in pairwise(words):
            if before in WRITTEN:
                (self.folder / word).parent.mkdir(parents=True, exist_ok=True)
        large = any(word.isdigit() and int(word) > MOST_RANKS for word in words)
        if words[0] in ("init", "explain") or (words[0] == "plan" and not large):
            self._verb(words, where)
        elif words[0] == "run" and not any(word.endswith(".py") for word in words):
            looks = {"--dry-run", "--show-config"} & set(words)
            self._verb(words if looks else [*words, "--show-config"], where)
        elif words[0] == "submit" and words[1] not in ("DIR", "--list"):
            self._verb([*words[:2], "--dry-run", *SITE_OPTIONS, *words[2:]], where)

    def _is_there(self, words: list[str]) -> bool:
        """The run file, if it is one, and every file that a setting names, as far as they can be told from presets."""
        read = [word for before, word in zip(["", *words], words, strict=False) if before not in WRITTEN]
        names = [word.partition("=")[2] if "=" in word else word for word in read if not word.startswith("-")]
        files = [name for name in names if re.fullmatch(r"[\w./-]+\.[a-z0-9]{2,5}(:\w+)?|[\w-]+/", name)]
        return all((self.folder / name.partition(":")[0]).exists() for name in files)

    def _verb(self, words: list[str], where: str) -> str:
        """What `hpckit WORDS` prints, run in this process; fails the test where its exit code is not 0."""
        from hpckit.cli.main import main

        told = io.StringIO()
        with inside(self.folder), contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            code = main(words)
        if code:
            pytest.fail(f"{where}: hpckit {' '.join(words)}: exit code {code}\n{told.getvalue()}", pytrace=False)
        return told.getvalue()

    def _bash(self, text: str, where: str) -> str:
        outcome = run_limited(
            ["bash", "-euo", "pipefail", "-c", text], BLOCK_SECONDS, cwd=self.folder, env=environment(self.folder)
        )
        if outcome.code:
            pytest.fail(f"{where} ended with {outcome.code}\n{text}\n{outcome.stdout}\n{outcome.stderr}", pytrace=False)
        return outcome.stdout

    def _bash_syntax(self, text: str, where: str) -> None:
        outcome = run_limited(["bash", "-n", "-c", text], 60, cwd=self.folder)
        assert outcome.code == 0, f"{where}: {outcome.stderr}"


def commands(text: str) -> Iterator[list[str]]:
    """The words after `hpckit` of each plain command of a shell block: no pipes, variables or other shell about it."""
    for line in text.replace("\\\n", " ").splitlines():
        line = line.strip().removeprefix("$ ")
        if "$" in line or "`" in line or "*" in line:
            continue
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words.pop(0)
        if words[:1] == ["hpckit"] and words[1:2] != ["--version"] and not set(words) & set(OPERATORS):
            yield words[1:]


def lacking(block: Block) -> str:
    """What a block needs (`<!-- needs: gpu -->`) and is not here; empty where all is."""
    wanted = block.marks.get("needs", "").replace(",", " ").split()
    return ", ".join(name for name in wanted if not HERE[name]())


def compare(expected: str, printed: str, where: str) -> None:
    """Fail unless the lines of `expected` come in `printed` in this order; white space counts once, `…` is anything."""
    lines = iter(" ".join(line.split()) for line in printed.splitlines())
    for line in filter(None, (" ".join(line.split()) for line in expected.splitlines())):
        pattern = re.compile(".*?".join(map(re.escape, line.split(ANY))))
        if not any(pattern.fullmatch(found) for found in lines):
            pytest.fail(f"{where}: not printed in this place: {line}\n{printed}", pytrace=False)


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """`folder` as the current one, and the environment of a page's commands."""
    kept, here = dict(os.environ), Path.cwd()
    os.environ.clear()
    os.environ.update(environment(folder))
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(kept)


def _gpu() -> bool:
    from hpckit.comm.gpu import missing

    return not missing()


def _slurm() -> bool:
    return False  # a real one is started by tests/jobs/test_real_slurm.py, which submits the same commands


HERE: dict[str, Callable[[], bool]] = {
    "gpu": _gpu,
    "slurm": _slurm,
    "lammps": lambda: importlib.util.find_spec("lammps") is not None,
    "torch": lambda: importlib.util.find_spec("torch") is not None,
}
