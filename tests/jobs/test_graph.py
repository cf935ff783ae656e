"""Graphs of tasks on this machine: done once, tried again, gone on with, killed and started again."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from conftest import mpi_command, mpiexec, run_limited, wait_until

from hpckit.cli.main import main
from hpckit.errors import InputError
from hpckit.jobs import slurm
from hpckit.jobs.attempt import finish
from hpckit.jobs.graph.draw import _packed, columns, draw_svg, draw_text, draw_timeline
from hpckit.jobs.graph.driver import Driver
from hpckit.jobs.graph.graph import TaskGraph, load_graph, make_graph
from hpckit.jobs.graph.slurm import _limit, chains, clock_limit, submit_graph
from hpckit.jobs.graph.state import ATTEMPT, GraphState, read_json, stragglers, task_states
from hpckit.jobs.site import Site
from hpckit.launch import mpiexec as launch
from hpckit.launch.one_node import SEVERAL_NODES

pytestmark = pytest.mark.usefixtures("quick_ranks")

HPCKIT = [sys.executable, "-m", "hpckit.cli.main"]
WORK = """
import os, pathlib, time

def add(inputs, outputs, value=0, wait=0.0, fails="", log="", until=""):
    "The sum of all inputs and a value, slowly; fails as often as a file outside of the graph says; waits for another."
    if log:
        with open(log, "a") as file:
            file.write(outputs[0].name + "\\n")
    time.sleep(wait)
    while until and not os.path.exists(until):
        time.sleep(0.02)
    if fails:
        count = pathlib.Path(fails)
        left = int(count.read_text())
        if left:
            count.write_text(str(left - 1))
            raise ArithmeticError("not yet")
    total = value + sum(int(path.read_text()) for path in inputs)
    for path in outputs:
        path.write_text(f"{total}\\n")
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("SLURM_", "PMI", "OMPI_", "HPCKIT_"))]:
        monkeypatch.delenv(name)
    Path("work.py").write_text(WORK)
    return tmp_path


def task(*parents: str, name: str, **more) -> dict:
    """A task that adds up the files of its parents."""
    arguments = {"log": os.path.abspath("log"), **more.pop("arguments", {})}
    inputs = [f"{parent}.txt" for parent in parents]
    return {"function": "work.py:add", "inputs": inputs, "outputs": [f"{name}.txt"], "arguments": arguments, **more}


def diamond(wait: float = 0.0, **more) -> dict[str, dict]:
    """Eight tasks: a to d from nothing, e of a and b, f of c and d, g and h of e and f."""
    tables = {name: task(name=name, arguments={"value": i, "wait": wait}) for i, name in enumerate("abcd", 1)}
    for name, parents in (("e", "ab"), ("f", "cd"), ("g", "ef"), ("h", "ef")):
        tables[name] = task(*parents, name=name, arguments={"value": 10, "wait": wait})
    for name, settings in more.items():
        tables[name] = {**tables[name], **settings}
    return tables


def write(tables: dict[str, dict], file: str = "study.toml") -> Path:
    path = Path(file)
    lines = []
    for name, table in tables.items():
        lines.append(f"[tasks.{name}]")
        for key, value in table.items():
            if isinstance(value, dict):
                pairs = ", ".join(f"{inner} = {json.dumps(item)}" for inner, item in value.items())
                lines.append(f"{key} = {{ {pairs} }}")
            else:
                lines.append(f"{key} = {json.dumps(value)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def done() -> list[str]:
    """What was started, in order, as the tasks themselves wrote it down."""
    return Path("log").read_text().split() if Path("log").exists() else []


def states(path: Path) -> dict[str, str]:
    graph = load_graph(path)
    return task_states(graph, GraphState(graph))


def test_a_graph_keeps_its_state_in_a_folder_of_its_own(here, capsys):
    path = write({"a": task(name="a")})
    state = GraphState(load_graph(path)).folder
    (here / "elsewhere").mkdir()
    for place in (state.parent, state):
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(here / "elsewhere")
        assert main(["graph", "run", str(path)]) == 2
        assert "is a link" in capsys.readouterr().err
        place.unlink()
    assert not any((here / "elsewhere").iterdir())


def test_a_graph_is_done_once_and_again_where_an_input_changed(here, capsys):
    path = write({**diamond(), "first": task("seed", name="first")})
    Path("seed.txt").write_text("7\n")
    assert main(["graph", "run", str(path), "--cores", "3"]) == 0
    assert {name: int(Path(f"{name}.txt").read_text()) for name in "abcdefgh"} == dict(
        zip("abcdefgh", (1, 2, 3, 4, 13, 17, 40, 40), strict=True)
    )
    assert sorted(done()) == sorted(f"{name}.txt" for name in (*"abcdefgh", "first"))
    order = done()
    assert all(order.index(f"{parent}.txt") < order.index("g.txt") for parent in "abcdef")
    Path("log").unlink()
    assert main(["graph", "run", str(path)]) == 0
    assert done() == []
    Path("seed.txt").write_text("8\n")
    assert states(path)["first"] == "changed"
    assert main(["graph", "run", str(path)]) == 0
    assert done() == ["first.txt"]
    Path("log").unlink()
    Path("e.txt").write_text("14\n")  # not what was made: made again, and what follows is as it was
    assert main(["graph", "run", str(path)]) == 0
    assert (done(), Path("e.txt").read_text()) == (["e.txt"], "13\n")
    Path("log").unlink()
    path.write_text(path.read_text().replace("value = 1, ", "value = 2, "))
    assert main(["graph", "run", str(path)]) == 0
    assert sorted(done()) == ["a.txt", "e.txt", "g.txt", "h.txt"]
    assert Path("g.txt").read_text() == "41\n"
    assert not list(Path(".hpckit-graph/study/work").iterdir())


def test_a_failure_stops_what_follows_from_it_only(here, capsys):
    Path("fails").write_text("1")
    path = write(
        diamond(b={"arguments": {"value": 2, "fails": os.path.abspath("fails"), "log": os.path.abspath("log")}})
    )
    assert main(["graph", "run", str(path)]) == 1
    said = capsys.readouterr().out
    assert "ArithmeticError: not yet" in said
    assert states(path) == dict(
        zip("abcdefgh", ("done", "failed", "done", "done", "skipped", "done", "skipped", "skipped"), strict=True)
    )
    assert main(["graph", "status", str(path)]) == 0
    assert "b-001/log" in capsys.readouterr().out.replace("\n", "")
    assert main(["graph", "run", str(path)]) == 0
    assert done().count("b.txt") == 2
    assert done().count("f.txt") == 1
    assert set(states(path).values()) == {"done"}


@pytest.mark.nightly
def test_a_task_is_tried_again_with_longer_and_longer_pauses(here, capsys):
    Path("fails").write_text("2")
    arguments = {"fails": os.path.abspath("fails")}
    path = write({"a": task(name="a", arguments=arguments, retries=3, backoff=0.1)})
    begin = time.monotonic()
    assert main(["graph", "run", str(path)]) == 0
    assert time.monotonic() - begin > 0.3
    said = capsys.readouterr().out
    assert ("tried again in 0.1 s" in said, "tried again in 0.2 s" in said, "try 3" in said) == (True, True, True)


def test_a_task_that_takes_too_long_or_makes_nothing_has_failed(here, capsys):
    commands = {
        "long": {"command": ["sleep", "900"], "timeout": 0.2},
        "nothing": {"command": ["true"], "outputs": ["no.txt"]},
        "absent": {"command": ["no-such-program"]},
    }
    assert main(["graph", "run", str(write(commands))]) == 1
    said = capsys.readouterr().out
    assert ("long: failed (124)" in said, "nothing: failed (65)" in said, "absent: failed (127)" in said) == (True,) * 3
    assert "did not make no.txt" in said


# The first process to come never ends by itself; another one waits until the first has said that it is there.
SLOW = """
import sys, time
seen = sys.argv[1]
try:
    open(seen, "x").write("x")
    first = True
except FileExistsError:
    first = False
    while open(seen).read() != "x":
        time.sleep(0.01)
    open(seen, "a").write("x")
time.sleep(900 if first else 0)
open(seen + (".first" if first else ".second"), "w")
open("slow.txt", "w").write("same")
"""


def test_a_straggler_is_run_twice_and_the_first_to_end_counts(here, capsys):
    Path("slow.py").write_text(SLOW)
    table = {"command": ["python", "slow.py", os.path.abspath("seen")], "inputs": ["slow.py"], "outputs": ["slow.txt"]}
    assert main(["graph", "run", str(write({"slow": {**table, "twice_after": 0.5}})), "--cores", "2"]) == 0
    assert (Path("seen.first").exists(), Path("seen.second").exists()) == (False, True), "the straggler is ended"
    assert (Path("seen").read_text(), Path("slow.txt").read_text()) == ("xx", "same")
    assert not list(Path(".hpckit-graph/study/work").iterdir())


def test_a_copy_starts_though_a_wider_task_waits_and_the_report_shows_both(here, capsys):
    Path("slow.py").write_text(SLOW)
    table = {"command": ["python", "slow.py", os.path.abspath("seen")], "inputs": ["slow.py"], "outputs": ["slow.txt"]}
    tables = {"slow": {**table, "twice_after": 0.5}, "wide": {"command": ["true"], "cores": 3}}
    tables["after"] = {"command": ["cp", "slow.txt", "after.txt"], "inputs": ["slow.txt"], "outputs": ["after.txt"]}
    path = write(tables)
    ended = run_limited([*HPCKIT, "graph", "run", str(path), "--cores", "3"], 60, cwd=here)
    assert (ended.code, "a second copy is started" in ended.stdout) == (0, True), ended.stdout
    journal = GraphState(load_graph(path)).journal()
    assert sorted((row["task"], row["how"]) for row in journal) == [
        ("after", "done"), ("slow", "another copy was first"), ("slow", "done"), ("wide", "done"),
    ]  # fmt: skip
    assert main(["graph", "report", str(path)]) == 0
    page = Path(capsys.readouterr().out.strip()).read_text()
    assert page.count("<title>slow: ") == 2
    assert "3 of 3" in page
    assert main(["graph", "report", str(write({"x": {"command": ["true"]}}, "new.toml"))]) == 2


def test_bars_of_the_report_share_no_core():
    journal = [
        {"task": f"t{i}", "host": f"n{i % 2}", "started": start, "ended": end, "slots": slots, "how": "done"}
        for i, (start, end, slots) in enumerate([(0, 4, 2), (0, 2, 1), (1, 3, 1), (2, 5, 2), (3, 6, 1), (0.5, 1, 2)])
    ]
    for host in ("n0", "n1"):
        packed = _packed([row for row in journal if row["host"] == host])
        for first, row in packed:
            for other, another in packed:
                if row is not another and row["started"] < another["ended"] and another["started"] < row["ended"]:
                    cores = set(range(first, first + row["slots"]))
                    assert not cores & set(range(other, other + another["slots"]))
    assert draw_timeline(journal).count("<rect") == 6


def test_a_task_goes_to_the_node_that_made_most_of_its_inputs(here):
    """Attempts that end at once, on two nodes in name: sizes decide, and `near` comes before them."""
    sizes = {"a": 10, "b": 50_000, "c": 1, "d": 1, "e": 1}
    tables = {name: {"command": ["true"], "outputs": [f"{name}.txt"]} for name in sizes}
    tables["c"]["inputs"] = tables["d"]["inputs"] = tables["e"]["inputs"] = ["a.txt", "b.txt"]
    tables["d"]["near"] = "a"
    graph = make_graph("it", here, tables)
    state = GraphState(graph)
    state.make()
    places: dict[str, str] = {}

    def start(name: str, key: str, host: str) -> SimpleNamespace:
        work = state.begin(name, key, host)
        (work / f"{name}.txt").write_bytes(bytes(sizes[name]))
        places[name] = host
        return SimpleNamespace(work=work, seconds=0.0, kill=lambda: None, poll=lambda: finish(state, work, 0, 0.0))

    driver = Driver(graph, state, {"n1": 1, "n2": 1}, start)
    assert set(driver.run().values()) == {"done"}
    assert places["a"] != places["b"]
    near = {name: row["near"] for row in state.journal() if "near" in row for name in [row["task"]]}
    assert (places["d"], places["c"]) == (places["a"], places["b"]), "both first in line, with both nodes free"
    assert (driver.near, set(near)) == ([3, 2 + near["e"]], {"c", "d", "e"})


def test_of_two_jobs_that_do_the_same_the_first_to_end_counts(here, monkeypatch):
    """As jobs of Slurm do it, each with a driver of its own; the copy leaves what the first has begun."""
    Path("slow.py").write_text(SLOW)
    table = {"command": ["python", "slow.py", os.path.abspath("seen")], "inputs": ["slow.py"], "outputs": ["slow.txt"]}
    path = write({"slow": {**table, "twice_after": 0.5}})
    first = subprocess.Popen([*HPCKIT, "graph", "task", str(path), "slow"], stdout=subprocess.PIPE, text=True)
    wait_until(lambda: Path("seen").exists() and Path("seen").read_text() == "x")
    graph = load_graph(path)
    state = GraphState(graph)
    (work,) = state.attempts("slow")
    for since, late in ((0.4, []), (0.6, ["slow"])):
        now = read_json(work / ATTEMPT)["started"] + since
        monkeypatch.setattr("hpckit.jobs.graph.state.time", SimpleNamespace(time=lambda now=now: now))
        known = task_states(graph, state)
        assert (known, stragglers(graph, state, known)) == ({"slow": "running"}, late)
    assert main(["graph", "task", str(path), "slow", "--copy"]) == 0
    said, _ = first.communicate(timeout=300)
    assert (first.returncode, "another job was first" in said) == (0, True)
    assert (Path("seen").read_text(), Path("slow.txt").read_text()) == ("xx", "same")
    assert not Path("seen.first").exists()
    assert not list(Path(".hpckit-graph/study/work").iterdir())


def test_a_copy_that_fails_leaves_no_record(here):
    path = write({"bad": {"command": ["false"], "twice_after": 0.5}})
    assert main(["graph", "task", str(path), "bad", "--copy"]) == 1
    assert states(path)["bad"] == "ready"
    assert main(["graph", "task", str(path), "bad"]) == 1
    assert states(path)["bad"] == "failed"


def test_the_budget_of_cores_is_kept(here):
    Path("busy.py").write_text(
        "import os, sys, time\n"
        "with open(sys.argv[1], 'a') as file:\n"
        "    file.write('+'); file.flush(); time.sleep(0.3); file.write('-')\n"
    )
    busy = {"command": ["python", "busy.py", os.path.abspath("seen")], "inputs": ["busy.py"]}
    tables = {f"t{i}": {**busy, "cores": 1 + i % 2} for i in range(4)}
    assert main(["graph", "run", str(write(tables)), "--cores", "2"]) == 0
    running = most = 0
    for sign in Path("seen").read_text():
        running += 1 if sign == "+" else -1
        most = max(most, running)
    assert most <= 2


def test_mpi_jobs_of_hpckit_and_of_others_are_tasks(here):
    if mpiexec() is None:
        pytest.skip("no mpiexec")
    Path("size.py").write_text(
        "from mpi4py.MPI import COMM_WORLD as w\nif w.rank == 0:\n    print(w.size, file=open('size.txt', 'w'))\n"
    )
    Path("read.py").write_text(
        "import json, sys\njson.dump(json.load(open('heat/summary.json'))['ranks'], open('ranks.txt', 'w'))\n"
    )
    tables = {
        "heat": {
            "run": ["diffusion/heat", "grid.shape=[16,16]", "time.end=0.001", "report.roofline=false"],
            "ranks": 2,
            "outputs": ["heat/summary.json"],
        },
        "read": {
            "command": ["python", "read.py"],
            "inputs": ["read.py", "heat/summary.json"],
            "outputs": ["ranks.txt"],
        },
        "size": {
            "command": ["python", "-m", "mpi4py", "size.py"],
            "ranks": 2,
            "inputs": ["size.py"],
            "outputs": ["size.txt"],
        },
    }
    path = write(tables)
    assert main(["graph", "run", str(path), "--cores", "2"]) == 0
    assert (Path("ranks.txt").read_text(), Path("size.txt").read_text()) == ("2", "2\n")
    assert Path("heat/report/index.html").exists()
    assert set(states(path).values()) == {"done"}


@pytest.mark.nightly
def test_the_scaling_study_of_jobscripts_runs(here):
    """Shortened: one and two ranks, a small grid."""
    if mpiexec() is None:
        pytest.skip("no mpiexec")
    folder = Path(__file__).parents[2] / "jobscripts"
    tasks = tomllib.loads((folder / "scaling.toml").read_text())["tasks"]
    Path("scaling.py").write_text((folder / "scaling.py").read_text())
    short = {"grid.nx=8000": "grid.nx=40", "grid.nz=4000": "grid.nz=20", "grid.nx=1000": "grid.nx=24"}
    short |= {"grid.nz=500": "grid.nz=12", "1,4,16,64": "1,2"}
    for name in ("strong", "weak"):
        tasks[name]["command"] = [short.get(word, word) for word in tasks[name]["command"]]
        tasks[name]["command"] += ["--steps", "12", "--repeats", "1", "--machine", "infiniband"]
        tasks[name]["cores"] = 2
    assert main(["graph", "run", str(write(tasks)), "--cores", "2"]) == 0
    lines = Path("scaling.txt").read_text().splitlines()
    assert [line.split()[:2] for line in lines if line[0] != " "][1:] == [
        [kind, str(ranks)] for kind in ("strong", "weak") for ranks in (1, 2)
    ]
    assert lines[1].split()[2] == "1.000"


@pytest.mark.nightly
def test_in_an_mpi_job_the_tasks_run_on_its_ranks(here):
    tables = diamond()
    tables["size"] = {
        "command": ["python", "-c", "import os; open('env.txt', 'w').write(str('PMI_SIZE' in os.environ))"],
        "outputs": ["env.txt"],
    }
    path = write(tables)
    Path("named.py").write_text(
        "import os, socket, sys\n"
        "node = 'node%d' % (int(os.environ.get('PMI_RANK', os.environ.get('OMPI_COMM_WORLD_RANK'))) // 2)\n"
        "socket.gethostname = lambda: node\n"
        "from hpckit.cli.main import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )  # two nodes in name: rank 1 on one, ranks 2 and 3 on the other
    ended = run_limited(mpi_command(4, sys.executable, "named.py", "graph", "run", path), 60, cwd=here)
    assert ended.code == 0, ended.stderr
    assert re.search("[0-4] of 4 tasks with inputs of others ran where most of these were made", ended.stdout)
    journal = GraphState(load_graph(path)).journal()
    assert {row["host"] for row in journal} == {"node0", "node1"}
    assert [row["task"] for row in journal if "near" in row].count("g") == 1
    assert (Path("g.txt").read_text(), Path("env.txt").read_text()) == ("40\n", "False")
    assert len(done()) == 8
    wide = write({"a": {"command": ["true"], "ranks": 2}}, "wide.toml")
    ended = run_limited(mpi_command(2, *HPCKIT, "graph", "run", wide), 60, cwd=here)
    assert "each task runs on one rank" in ended.stderr


def kill_a_driver(folder: Path, path: Path, delay: float) -> None:
    """Start a driver and kill it after so many seconds. What was on record stays as it is."""
    driver = subprocess.Popen(
        [*HPCKIT, "graph", "run", str(path), "--cores", "2"], cwd=folder, stdout=subprocess.DEVNULL
    )
    time.sleep(delay)
    assert driver.poll() is None, "it waits for the gate"
    driver.send_signal(signal.SIGKILL)
    driver.wait()


def run_with_kills(folder: Path, path: Path, chance: random.Random, kills: int) -> dict[str, str]:
    """Kill the driver at so many random moments, and let it finish; returns hashes."""
    graph = load_graph(path)
    state = GraphState(graph)
    recorded: dict[str, int] = {}
    Path("gate").unlink()
    for _ in range(kills):
        before = {name: list(done()).count(f"{name}.txt") for name in graph.tasks if state.record(name)}
        recorded.update({name: count for name, count in before.items() if name not in recorded})
        kill_a_driver(folder, path, chance.uniform(0.05, 1.6))
    Path("gate").touch()
    ended = run_limited([*HPCKIT, "graph", "run", str(path), "--cores", "2"], 120, cwd=folder)
    assert ended.code == 0, ended.stdout + ended.stderr
    for name, count in recorded.items():
        assert done().count(f"{name}.txt") == count, f"{name} was on record and was done again"
    return {name: state.record(name)["outputs"] for name in graph.tasks}


def hashes_after_kills(here: Path, rounds: int, seed: int, kills_a_round: int) -> None:
    """Kill the drivers of fresh graphs and compare what they made with an unbroken one. Its last task waits until a
    file is there, a gate, so that no driver comes to its end before it is killed.
    """
    last = {"value": 10, "wait": 0.1, "until": os.path.abspath("gate")}
    path = write(diamond(wait=0.1, h={"arguments": {"log": os.path.abspath("log"), **last}}))
    Path("gate").touch()
    assert run_limited([*HPCKIT, "graph", "run", str(path)], 60, cwd=here).code == 0
    graph = load_graph(path)
    whole = {name: GraphState(graph).record(name)["outputs"] for name in graph.tasks}
    chance = random.Random(seed)
    for _ in range(rounds):
        subprocess.run(["rm", "-rf", ".hpckit-graph", "log", *(f"{name}.txt" for name in graph.tasks)], check=True)
        assert run_with_kills(here, path, chance, kills_a_round) == whole, f"seed {seed}"
        assert set(states(path).values()) == {"done"}


@pytest.mark.nightly
def test_a_driver_that_is_killed_goes_on_where_it_was(here):
    hashes_after_kills(here, rounds=1, seed=11, kills_a_round=5)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_fifty_kills(here):
    for seed in range(2):
        hashes_after_kills(here, rounds=5, seed=seed, kills_a_round=5)


def test_a_second_driver_is_refused(here):
    graph = load_graph(write(diamond()))
    with (
        GraphState(graph).locked(),
        pytest.raises(InputError, match="being run already"),
        GraphState(graph).locked(seconds=0.1),
    ):
        pass


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"a": {"command": ["true"], "inputs": ["b.txt"]}}, "no task makes its input b.txt"),
        ({"a": {"command": ["true"], "outputs": ["/etc/x"]}}, "plain path below"),
        ({"a": {"command": ["true"], "outputs": ["../x"]}}, "plain path below"),
        ({"a": {"command": ["true"], "run": ["x"]}}, "one of run, command and function"),
        ({"a": {"command": ["true"], "after": ["b"]}}, "no task 'b'"),
        ({"a": {"command": ["true"], "rankz": 2}}, "a.rankz: unknown key; did you mean ranks?"),
        ({"a": {"run": "thermal"}}, r'a.run: expected a list in brackets, as in \["a", "b"\]'),
        ({"a": {"command": ["true", 1]}}, "a.command.1: expected a text in quotes"),
        ({"a": {"command": ["true"], "retries": "x"}}, "a.retries: expected a whole number"),
        ({"a": {"command": ["true"], "timeout": -1}}, "a.timeout: must be greater than or equal to 0"),
        ({"a": 3}, r"a: expected a table \[tasks.NAME\]"),
        ({"a": {"command": ["true"], "outputs": 3}}, "a.outputs: expected a list"),
        ({"a b": {"command": ["true"]}}, "not a task name"),
        ({"a": {"function": "os.system"}}, "file.py:name or module:name"),
        ({"a": {"function": "../x.py:f"}}, "plain path below"),
        ({"a": {"command": ["true"], "outputs": ["x"]}, "b": {"command": ["true"], "outputs": ["x"]}}, "by a and by b"),
        ({"a": {"command": ["true"], "after": ["b"]}, "b": {"command": ["true"], "after": ["a"]}}, "in a circle"),
        ({"a": {"command": ["true"]}, "b": {"command": ["true"], "near": "a"}}, "that it needs a file of"),
    ],
)
def test_graphs_that_cannot_be_are_refused(tmp_path, tables, said):
    with pytest.raises(InputError, match=said):
        make_graph("it", tmp_path, tables)


@pytest.mark.parametrize(
    ("words", "said", "code"),
    [
        (["run", "study.toml", "--cores", "0"], "--cores 0", 2),
        (["run", "study.toml", "--no-wait"], "are for --slurm", 2),
        (["draw", "study.toml", "--svg", "x.png"], "ends in .svg", 2),
        (["draw", "study.toml", "--svg", "nowhere/x.svg"], "there is no such folder", 3),
        (["run", "bytes.toml"], "not UTF-8 text", 2),
    ],
)
def test_options_that_cannot_be(words, said, code, here, capsys):
    write({"a": {"command": ["true"]}})
    Path("bytes.toml").write_bytes(b"\xff\xfe")
    assert main(["graph", *words]) == code
    assert said in capsys.readouterr().err


def test_words_that_the_verb_does_not_know(capsys):
    assert main(["graph", "stauts", "x.toml"]) == 2
    assert "did you mean 'status'?" in capsys.readouterr().err
    assert main(["graph", "--help"]) == 0
    assert "task " not in capsys.readouterr().out  # which is for jobs


def test_a_task_of_more_ranks_than_memory_is_refused(here, monkeypatch, capsys):
    monkeypatch.setattr(launch, "available_bytes", lambda: 8 << 30)
    for name in SEVERAL_NODES:
        monkeypatch.delenv(name, raising=False)
    study = write({"a": {"command": ["true"], "outputs": ["a.txt"]}, "b": {"command": ["true"], "ranks": 3000}})
    assert main(["graph", "run", str(study)]) == 2
    said = capsys.readouterr().err
    assert "3000 ranks take 93.8 GiB" in said
    assert "the task b" in said
    assert states(study)["a"] == "ready", "nothing was started"


def test_names_of_files_may_hold_blanks_and_a_mistake_is_told_once(here):
    Path("my work.py").write_text(WORK)
    tables = {
        "a": {"function": "my work.py:add", "outputs": ["out put/the sum.txt"], "arguments": {"value": 3}},
        "b": {
            "command": ["cp", "out put/the sum.txt", "b.txt"],
            "inputs": ["out put/the sum.txt"],
            "outputs": ["b.txt"],
        },
    }
    assert main(["graph", "run", str(write(tables, "my study.toml"))]) == 0
    assert Path("b.txt").read_text() == "3\n"
    tables["a"]["retries"] = -1
    with pytest.raises(InputError, match="retries") as caught:
        make_graph("it", here, {**tables, "c": {"command": ["true"], "after": ["a"]}})
    assert len(caught.value.message.splitlines()) == 1


def test_tasks_that_want_to_be_near_share_a_job_unless_they_would_wait_for_themselves():
    def graph(**parents: tuple[tuple[str, ...], str]) -> TaskGraph:
        tables = {
            name: {"command": ["true"], "inputs": [f"{p}.txt" for p in needs], "outputs": [f"{name}.txt"], "near": near}
            for name, (needs, near) in parents.items()
        }
        return make_graph("it", Path("/nonexistent"), tables)

    one = graph(a=((), ""), b=(("a",), "a"), c=(("b",), "b"), d=(("a",), "a"))
    assert chains(one, one.order) == [["a", "b", "c"], ["d"]]
    two = graph(a=((), ""), c=(("a",), ""), b=(("a", "c"), "a"))
    assert chains(two, two.order) == [["a"], ["c"], ["b"]]
    # `fine` would have to wait for `coarse`, which it does not need; not once that is done.
    study = graph(coarse=((), ""), fine=((), ""), compare=(("coarse", "fine"), "fine"))
    assert chains(study, study.order) == [["coarse"], ["fine"], ["compare"]]
    assert chains(study, ["fine", "compare"]) == [["fine", "compare"]]
    late = graph(a=((), ""), b=(("a",), ""), c=(("a", "b"), "b"))
    assert chains(late, late.order) == [["a"], ["b", "c"]]


def test_tasks_share_a_job_with_what_makes_most_of_their_inputs_without_being_told(here):
    def task(*parents: str, **more) -> dict:
        return {"command": ["true"], "inputs": [f"{parent}.txt" for parent in parents], **more}

    def grouped(**tables: dict) -> list[list[str]]:
        graph = make_graph("it", here, {n: {**table, "outputs": [f"{n}.txt"]} for n, table in tables.items()})
        return chains(graph, graph.order, GraphState(graph).home)

    Path("b.txt").write_text("larger than nothing")
    assert grouped(a=task(), b=task("a")) == [["a", "b"]]
    assert grouped(a=task(), b=task("a"), c=task("a")) == [["a"], ["b"], ["c"]], "c would wait for b, and fail with it"
    assert grouped(a=task(), b=task("a"), c=task("b"), d=task("a")) == [["a"], ["b", "c"], ["d"]]
    assert grouped(a=task(), b=task("a"), c=task("a", near="a")) == [["a", "c"], ["b"]], "who asks goes first"
    assert grouped(a=task(), b=task("a", cores=2)) == [["a"], ["b"]], "no core would be idle"
    assert grouped(a=task(time="03:00:00"), b=task("a", time="02:00:00")) == [["a"], ["b"]], "the job would be long"
    assert grouped(a=task(), b=task("a"), c=task("a", "b")) == [["a", "b", "c"]]


def test_a_job_of_several_tasks_is_found_by_the_next_driver_though_the_first_of_them_is_done(here, monkeypatch):
    """Two jobs with the same task would clear each other's attempts."""
    tables = {name: {"command": ["true"], "outputs": [f"{name}.txt"]} for name in "abcd"}
    for name, parent in (("b", "a"), ("d", "b")):
        tables[name]["inputs"] = [f"{parent}.txt"]
    tables["d"]["near"] = "b"
    graph = make_graph("it", here, tables)
    alive: dict[str, str] = {}
    monkeypatch.setattr(slurm, "jobs_with_comment", lambda mark: dict(alive))
    monkeypatch.setattr(slurm, "submit", lambda script, options, folder: 7 + (script.stem == "c"))

    def jobs(*tasks: str) -> dict[str, str]:
        return submit_graph(graph, GraphState(graph), list(tasks), Site(), lambda names: ["true"], lambda line: None)

    assert jobs("a", "b", "c", "d") == {"a": "7", "b": "7", "d": "7", "c": "8"}
    alive = {"it.a": "3", "it.a.copy": "4"}
    assert jobs("b", "c", "d") == {"b": "3", "d": "3", "c": "8"}
    alive = {"it.c": "3"}
    assert jobs("b", "c", "d") == {"b": "7", "d": "7", "c": "3"}


def test_a_job_of_several_tasks_has_the_time_of_all():
    assert [clock_limit(number) for number in (90, 3600, 90061)] == ["00:01:30", "01:00:00", "1-01:01:01"]
    tables = {"a": {"command": ["true"], "time": "30"}, "b": {"command": ["true"], "time": "01:00:00", "after": ["a"]}}
    graph = make_graph("it", Path("/nonexistent"), tables)
    assert clock_limit(_limit(graph, ["a", "b"])) == "01:30:00"


def test_pictures_show_every_task_and_edge(here):
    graph = load_graph(write(diamond()))
    known = task_states(graph, GraphState(graph))
    text = draw_text(graph, known)
    assert text.splitlines()[0].split() == ["a", "ready"]
    assert "g  waiting   after e, f" in text
    svg = draw_svg(graph, known)
    assert (svg.count("<rect"), svg.count("marker-end")) == (8, 8)
    assert main(["graph", "draw", "study.toml", "--svg", "it.svg"]) == 0
    assert Path("it.svg").read_text() == svg


def test_pictures_show_whole_names_and_cross_no_arrows_without_need():
    names = [f"simulate-with-a-resolution-of-{n}" for n in (128, 256, 512)]
    tables = {name: {"command": ["true"]} for name in names}
    tables |= {f"of-{i}": {"command": ["true"], "after": [names[i]]} for i in (2, 0, 1)}
    graph = make_graph("it", Path("/nonexistent"), tables)
    svg = draw_svg(graph, {})
    assert all(f">{name}<" in svg for name in names)
    assert columns(graph) == [names, ["of-0", "of-1", "of-2"]]
    width = float(re.search(r'<rect[^>]* width="(\d+)"', svg)[1])
    assert width > 7 * len(names[0])
