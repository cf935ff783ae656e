"""Verbs that start nothing: init, ls, explain, bench, report, and words that are no verbs."""

from __future__ import annotations

import errno
import importlib
import inspect
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from cli_command import hpckit, probe_app  # noqa: F401  (a fixture)
from conftest import run_limited

import hpckit as package
from hpckit import errors
from hpckit.bench import BENCHMARKS
from hpckit.cli.main import VERBS, main
from hpckit.cli.verbs import bench
from hpckit.cli.verbs.explain import EXPLANATIONS
from hpckit.launch import mpiexec
from hpckit.launch.one_node import SEVERAL_NODES
from hpckit.run.directory import RunDirectory

pytestmark = pytest.mark.usefixtures("probe_app")


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"hpckit {package.__version__}\n"
    assert main(["--help"]) == 0
    assert main([]) == 2
    out = capsys.readouterr().out
    assert all(f"hpckit {verb}" in out for verb in VERBS)
    for verb in set(VERBS) - {"doctor"}:
        assert main([verb, "--help"]) == 0
        assert f"usage: hpckit {verb}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["rnu"], "did you mean 'run'?"),
        (["x.toml"], "did you mean: hpckit run x.toml"),
        (["--nix"], "no verb '--nix'"),
        (["run"], "nothing to run"),
        (["run", "shrt"], "did you mean 'short'?"),
        (["run", "short", "-n", "0"], "'0' is not a number of ranks"),
        (["run", "short", "-n", "abc"], "'abc' is not a number of ranks"),
        (["run", "short", "-n", "-1"], "is not a number of ranks"),
        (["run", "short", "-n"], "expected one argument"),
        (["run", "short", "--ranks", "2.5"], "is not a number of ranks"),
        (["run", "short", "--nix"], "unrecognized arguments: --nix"),
        (["run", "none.py"], "there is no program none.py"),
        (["run", "short", "grid.nx=1", "short"], "'short': expected key=value"),
        (["init", "prob"], "did you mean 'probe'?"),
        (["init", "probe", "/proc/none/x.toml"], "cannot be written"),
        (["report", "none"], "no run directory"),
        (["report", "."], "is not a run directory: it has no resolved.json"),
        (["ls", "none"], "none is not a folder"),
        (["bench", "none"], "no benchmark 'none'"),
        (["short"], "did you mean: hpckit run short"),
        (["picture", "x"], "it is hpckit report DIR --picture FILE"),
        (["run", "short", "grid.nx", "7"], "did you mean grid.nx=7?"),
        (["run", "short", "grid.directory=x"], "--directory DIR"),
        (["run", "short", "nprocs=2"], "-n RANKS"),
        (["run", "."], "without an app's config.py"),
        (["watch", ".", "--json"], "--json is for one look"),
        (["watch", ".", "--every", "soon"], "'soon' is not a number"),
        (["compare", "."], "it needs B\n"),
        (["pack", "none"], "there is no folder none"),
        (["sample"], "it needs DIR"),
        (["run", ""], "nothing to run"),
        (["run", "/dev/zero"], "cannot be read: it is not a regular file"),
        (["plan", "allreduce", "--ranks", "99999999999"], "give at most 10000000"),
        (["plan", "allreduce", "--node-size", "0"], "nodes of 0 ranks"),
        (["plan", "allreduce", "--ranks", "4", "--algorithm", "ring", "--draw", "x.png"], "ends in .svg"),
        (["plan", "halo", "--shape", "9x9", "--ranks", "4", "--draw", "x.png"], "ends in .svg"),
        (["plan", "pipeline", "--schedule", "gpipe", "--draw", "x.png"], "ends in .svg"),
        (["submit", "short", "--time", "5", "--ranks-per-node", "2", "--array-limit", "3"], "without --array"),
        (["submit", "--list", "/dev/null"], "is not a regular file"),
        (["submit", "--list", "none"], "cannot be read: there is no such file\n"),
        (["graph", "run", "none/x.toml"], "there is no folder none either"),
        (["analyze", "x.xyz", "--report", ""], "'' is not a file name"),
        (["explain", "HPK-201x"], "did you mean 'HPK-201'?"),
    ],
)
def test_mistakes_of_the_user(words: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(words)
    assert expected in capsys.readouterr().err
    assert code == (3 if expected == "cannot be written" else 2)
    assert not Path("runs").exists()
    assert not list(Path().iterdir())


def test_memory_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(words: list[str]) -> int:
        raise MemoryError("Unable to allocate 8 TiB")

    monkeypatch.setattr("hpckit.cli.verbs.ls.main", refuse)
    assert main(["ls"]) == 2
    assert "out of memory: Unable to allocate 8 TiB" in capsys.readouterr().err


def test_init_lists_writes_and_overwrites_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init"]) == 0
    out = capsys.readouterr().out
    assert "probe: counts steps" in out
    assert "short       three steps" in out
    assert main(["init", "short"]) == 0
    assert "wrote short.toml" in capsys.readouterr().out
    written = Path("short.toml").read_text()
    assert "steps = 3" in written
    assert main(["init", "probe", "short.toml"]) == 2
    assert "nothing was overwritten" in capsys.readouterr().err
    assert Path("short.toml").read_text() == written
    os.environ["HPCKIT_TIME__STEPS"] = "99"
    assert main(["init", "probe", "mine.toml"]) == 0
    del os.environ["HPCKIT_TIME__STEPS"]
    assert "steps = 5" in Path("mine.toml").read_text(), "a run file holds the defaults, not this shell's settings"
    assert main(["init", "probe", "new/folder/mine.toml"]) == 0
    assert "steps = 5" in Path("new/folder/mine.toml").read_text()
    Path("link.toml").symlink_to("elsewhere.toml")
    assert main(["init", "probe", "link.toml"]) == 2
    assert not Path("elsewhere.toml").exists()


def test_show_config_prints_values_with_origins(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run.toml").write_text("app = 'probe'\n[time]\nsteps = 7\n")
    assert main(["run", "run.toml", "--show-config", "grid.nx=9"]) == 0
    rows = [line.split(None, 2) for line in capsys.readouterr().out.splitlines()]
    found = {row[0]: " ".join(row[1:]).split() for row in rows if len(row) > 1}
    assert found["time.steps"] == ["7", "run.toml:3"]
    assert found["grid.nx"] == ["9", "command", "line"]
    assert found["grid.nz"] == ["20", "default"]
    assert not Path("runs").exists()


def test_explain_knows_every_code(capsys: pytest.CaptureFixture[str]) -> None:
    codes = {
        value.code
        for value in vars(errors).values()
        if inspect.isclass(value) and issubclass(value, errors.HpckitError)
    }
    assert codes == set(EXPLANATIONS)
    assert main(["explain"]) == 0
    out = capsys.readouterr().out
    assert all(f"{number:>7}  {text}" in out for number, text in errors.EXIT_CODES.items())
    for code in codes:
        assert main(["explain", code.lower()]) == 0
        assert main(["explain", code.removeprefix("HPK-")]) == 0
        assert "do:" in capsys.readouterr().out
    assert main(["explain", "75"]) == 0
    assert "hpckit resume DIR" in capsys.readouterr().out


def test_ls_tells_the_state_of_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ls"]) == 0
    assert "no runs here yet" in capsys.readouterr().out
    gone = subprocess.Popen(["true"])
    gone.wait()
    states = {
        "a-done": {"summary.json": {"status": "done", "cell_steps_per_second": 84.2e6}},
        "b-failed": {"attempts/000/failure.json": {"exit_code": 4, "error": {"title": "blow-up"}}},
        "c-going": {"progress.json": {"fraction": 0.25, "rate": "3 cells/s"}},
        "d-silent": {"progress.json": {"fraction": 0.5}},
        "g-here": {"provenance.json": {"front_end": {"host": socket.gethostname(), "pid": os.getpid()}}},
        "h-gone": {"provenance.json": {"front_end": {"host": socket.gethostname(), "pid": gone.pid}}},
        "i-away": {"provenance.json": {"front_end": {"host": "elsewhere", "pid": gone.pid}}},
    }
    for name, files in states.items():
        directory = RunDirectory.create(Path("runs", name))
        for file, value in {"resolved.json": {"app": "probe", "ranks": 2}, **files}.items():
            directory.write_json(file, value)
    for path in [Path("runs/d-silent"), *Path("runs/d-silent").glob("*.json")]:
        os.utime(path, (1e9, 1e9))
    Path("runs/other").mkdir()
    Path("runs/e-link").symlink_to("a-done")
    RunDirectory.create(Path("runs/f-torn")).write_text("resolved.json", "{")
    assert main(["ls"]) == 0
    rows = {row.split()[0]: row for row in capsys.readouterr().out.splitlines() if row.startswith(" ") and row.split()}
    assert {"a-done", "b-failed", "c-going", "d-silent", "f-torn"} <= set(rows)
    assert not {"other", "e-link"} & set(rows)
    assert "done" in rows["a-done"]
    assert "84.2 M cell-steps/s" in rows["a-done"]
    assert "failed (4, blow-up)" in rows["b-failed"]
    assert "running" in rows["c-going"]
    assert "25 %" in rows["c-going"]
    assert "lost?" in rows["d-silent"]
    assert "running" in rows["g-here"]
    assert "lost?" in rows["h-gone"]
    assert "running" in rows["i-away"]
    assert "unreadable" in rows["f-torn"]


def test_bench_prints_one_object_and_everything_else_on_error(tmp_path: Path) -> None:
    program = """
import sys, types, subprocess, hpckit.bench as bench
made = types.ModuleType("hpckit.bench.made")
def run(quick=False):
    print("noise of ours")
    subprocess.run(["echo", "noise of a child"])
    row = {"case": "a", "seconds": 0.5, "quick": quick}
    ratio = {"median": 2.0, "low": 1.5, "high": 2.5, "rounds": 3, "interval": [1.75, 2.123456]}
    return {"bench": "made", "machine": {"cores": 2}, "results": [row], "ratios": {"key": ratio}}
made.run = run
sys.modules["hpckit.bench.made"] = made
bench.BENCHMARKS["made"] = bench.Benchmark("hpckit.bench.made", "a line")
from hpckit.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
    Path("program.py").write_text(program)
    outcome = run_limited([sys.executable, "program.py", "bench", "made", "--json", "--quick"], 30)
    assert outcome.code == 0, outcome.stderr
    assert outcome.stdout.count("\n") == 1
    assert json.loads(outcome.stdout)["results"] == [{"case": "a", "seconds": 0.5, "quick": True}]
    assert "noise of ours" in outcome.stderr
    assert "noise of a child" in outcome.stderr
    table = run_limited([sys.executable, "program.py", "bench", "made"], 30)
    assert "seconds" in table.stdout
    assert "1.5" in table.stdout
    assert "1.75 to 2.123" in table.stdout
    assert "a line" in run_limited([sys.executable, "program.py", "bench"], 30).stdout


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_has_its_module_and_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        bench.main([name, "--help"])
    assert ended.value.code == 0
    assert "--quick" in capsys.readouterr().out


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    outcome = hpckit("explain", cwd=tmp_path)
    assert outcome.code == 0
    for words in ("explain", ""):
        line = f"{sys.executable} -m hpckit.cli.main {words} | true"
        done = subprocess.run(
            line, shell=True, capture_output=True, text=True, timeout=90, check=False, executable="/bin/bash"
        )
        assert "Traceback" not in done.stderr


def test_a_terminal_that_knows_few_letters_is_no_error(tmp_path: Path) -> None:
    outcome = hpckit("init", "probe", "ü.toml", cwd=tmp_path, PYTHONIOENCODING="ascii")
    assert outcome.code == 0
    assert "wrote ?.toml" in outcome.stdout
    assert hpckit(cwd=tmp_path, PYTHONIOENCODING="latin-1").stdout.startswith("An MPI toolkit")


def test_init_takes_settings_and_refuses_wrong_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "probe", "set.toml", "time.steps=7"]) == 0
    assert "steps = 7" in Path("set.toml").read_text()
    capsys.readouterr()
    assert main(["init", "probe", "other.toml", "time.stps=7"]) == 2
    assert "steps" in capsys.readouterr().err
    assert not Path("other.toml").exists()


def test_printed_commands_can_be_pasted(capsys: pytest.CaptureFixture[str]) -> None:
    Path("sp ace").mkdir()
    assert main(["init", "probe", "sp ace/run.toml"]) == 0
    assert "hpckit run 'sp ace/run.toml' -n 2" in capsys.readouterr().out
    assert main(["run", "sp ace", "--dry-run"]) == 2
    assert "hpckit run 'sp ace/run.toml'" in capsys.readouterr().err


@pytest.mark.parametrize(("given", "message"), [("", "--directory is empty"), ("afile/sub/deep", "afile is a file")])
def test_a_directory_that_cannot_be_is_named(given: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("afile").touch()
    assert main(["run", "probe", "--directory", given]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "module"),
    [
        (["run", "md/melt", "--dry-run"], "hpckit.apps.md.run"),
        (["bench", "watch"], "hpckit.bench.overhead.watch"),
        (["analyze", "trajectory.h5md"], "hpckit.cli.verbs.analyze"),
    ],
)
def test_no_mpi_library_is_a_bad_environment(command, module, monkeypatch, capsys):
    def broken(name, package=None):
        if name == module:
            raise RuntimeError("cannot load MPI library\nlibmpi.so: no such file")
        return load(name, package)

    load = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", broken)
    assert main(command) == 3
    assert "no MPI library" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command",
    [["run"], ["ls"], ["watch"], ["compare", "a"], ["submit"], ["bench", "scaling"], ["doctor", "--directory"]],
    ids=" ".join,
)
def test_a_name_too_long_is_said_so(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    name = "a" * 300
    assert main([*command, name]) == 2
    said = capsys.readouterr().err
    assert name in said
    assert "too long" in said


def test_what_no_user_did_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(arguments: list[str]) -> int:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr("hpckit.cli.verbs.ls.main", broken)
    with pytest.raises(OSError, match="Bad file"):
        main(["ls"])


@pytest.mark.parametrize(
    "command",
    [
        ["run", "probe", "-n", "3000"],
        ["run", "program.py", "-n", "3000"],
        ["bench", "scaling", "probe", "--ranks", "1,3000"],
        ["bench", "collectives", "--operation", "broadcast", "--sizes", "4KiB", "--ranks", "3000"],
    ],
    ids=" ".join,
)
def test_more_ranks_than_memory_are_refused(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(mpiexec, "available_bytes", lambda: 8 << 30)
    monkeypatch.setattr(mpiexec, "run_job", None)
    monkeypatch.setattr(subprocess, "run", None)
    for name in SEVERAL_NODES:
        monkeypatch.delenv(name, raising=False)
    Path("program.py").touch()
    assert main(command) == 2
    assert "3000 ranks take 93.8 GiB before they have any data" in capsys.readouterr().err
    assert not Path("runs").exists()
    monkeypatch.setenv("PBS_JOBID", "3")
    mpiexec.require_room(3000)  # on its other nodes, too


SHELL = """
source {script}
complete_() {{ COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _hpckit; echo "${{COMPREPLY[@]}}"; }}
complete_ hpckit re
complete_ hpckit run md/me
complete_ hpckit run md/melt dynamics.eq
complete_ hpckit run mine.toml grid.n
complete_ hpckit run therm
complete_ hpckit run -n 2 heat grid.sh
complete_ hpckit doctor --cl
complete_ hpckit graph re
"""


def test_a_shell_completes_verbs_options_presets_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('app = "weather"\n')
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    done = subprocess.run(["bash", "-c", SHELL.format(script="./script")], capture_output=True, text=True, check=True)
    found = [
        "resume report",
        "md/melt",
        "dynamics.equilibrate=",
        "grid.nx= grid.nz=",
        "thermal thermal3d thermal3d_hevi",
    ]
    assert (done.stderr, done.stdout.splitlines()) == ("", [*found, "grid.shape=", "--clean", "report"])
    for shell in ("zsh", "fish"):
        assert main(["completion", shell]) == 0
        (tmp_path / shell).write_text(capsys.readouterr().out)
        assert "md/melt" in (tmp_path / shell).read_text()
        if shutil.which(shell):
            subprocess.run([shell, "-n", shell], check=True)
    if shutil.which("fish"):
        asked = ("run therm", "run -n 2 heat grid.sh", "run mine.toml grid.n", "ckpt pr")
        lines = "; ".join(["source fish", *(f"complete -C 'hpckit {words}'" for words in asked)])
        done = subprocess.run(["fish", "--no-config", "-c", lines], capture_output=True, text=True, check=True)
        words = [line.split("\t")[0] for line in done.stdout.splitlines()]
        found = ["thermal", "thermal3d", "thermal3d_hevi", "grid.shape=", "grid.nx=", "grid.nz=", "prune"]
        assert (done.stderr, words) == ("", found)


def test_ls_looks_below_the_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a", "deep/er/b", "a/cases/inner", ".hidden/c"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "resolved.json").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "deep")
    assert main(["ls", str(tmp_path)]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if "20" in line] == ["a", "deep/er/b"]


def test_spaces_before_units_are_shown_and_what_a_terminal_obeys_is_not():
    assert errors.visible("1.1\u202f% of 3\u00a0GB\t\x1b[31m") == "1.1\u202f% of 3\u00a0GB\t\\x1b[31m"
    assert len(errors.visible("\x00" * 3000)) == 2000


@pytest.mark.parametrize("words", ["pack", "completion bash", "plan redistribute --shape 4 --mesh a=2"])
def test_escapes_in_wrong_words_are_shown_by_every_verb(words, capsys):
    assert main([*words.split(), "DIR", "\x1b[31mred"]) == 2
    said = capsys.readouterr().err
    assert "\\x1b[31mred" in said
    assert "\x1b" not in said
