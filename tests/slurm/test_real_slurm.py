"""Jobs on a real Slurm on this machine: what hpckit submits, and the scripts of jobscripts/, shortened."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from conftest import is_open_mpi, mpiexec

from hpckit.cli.verbs.graph import main as graph
from hpckit.cli.verbs.ls import main as ls
from hpckit.cli.verbs.submit import main
from hpckit.cli.verbs.watch import main as watch
from tests.serving.models import write_model
from tests.slurm.loopback import Cluster, cluster, missing
from tests.slurm.requeue import limited, outlived, requeued, same_bits

ROOT = Path(__file__).parents[2]
OPEN_MPI = is_open_mpi()
# Several nodes of Slurm on one machine cannot start PMIx steps together; a node alone can.
WHY_NOT = (
    missing() or ("" if mpiexec() else "no mpiexec") or ("Open MPI, whose PMIx needs real nodes" if OPEN_MPI else "")
)
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=f"no Slurm can be started here: {WHY_NOT}")
SITE = """
signal_seconds = 20
[cpu]
ranks_per_node = 2
[mpi]
launcher = "{launcher}"
[environment]
venv = "{venv}"
variables = {{ MPIR_CVAR_CH4_NETMOD = "ofi" }}  # docs/cluster.md: MPICH's UCX and Slurm's pmi2
[scratch]
node_local = "{scratch}"
"""
SMALL = ("grid.shape=[16,16]", "time.end=0.001", "report.roofline=false", "--no-report")


@pytest.fixture(scope="module")
def slurm():
    """Four virtual nodes for the tests of this file."""
    with cluster(4) as it:
        yield it


@pytest.fixture
def here(slurm: Cluster, tmp_path, monkeypatch):
    """An empty folder, from which jobs are submitted to the cluster."""
    for name in [name for name in os.environ if name.startswith(("SLURM_", "PMI_", "HPCKIT_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    monkeypatch.setenv("HPCKIT_CONFIG", os.devnull)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_site(folder: Path, launcher: str = "srun", scratch: str = "") -> Path:
    path = folder / "site.toml"
    path.write_text(SITE.format(launcher=launcher, venv=sys.prefix, scratch=scratch))
    return path


def submitted(capsys) -> tuple[str, Path]:
    """Number and run directory of the job that was just submitted."""
    words = capsys.readouterr().out.splitlines()[0].split()
    return words[1].rstrip(":"), Path(words[2])


def output(directory: Path) -> str:
    return "".join(path.read_text() for path in sorted(directory.glob("attempts/000/job-*.out")))


def check_a_submitted_run(slurm: Cluster, here: Path, capsys, nodes: int, launcher: str) -> None:
    site = write_site(here, launcher, scratch=str(here) if launcher == "srun" else "")
    main(["diffusion/heat", *SMALL, "--nodes", str(nodes), "--time", "5", "--site", str(site)])
    number, directory = submitted(capsys)
    assert json.loads((directory / "job.json").read_text())["job"] == number
    state = slurm.wait(number)
    assert state["ExitCode"] == "0:0", output(directory)
    assert json.loads((directory / "summary.json").read_text())["ranks"] == 2 * nodes
    assert not (directory / "report" / "index.html").exists()  # as asked for


@pytest.mark.nightly
def test_a_run_on_two_nodes_under_srun_keeps_the_kernels_that_it_compiled(slurm, here, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(here / "cache"))
    check_a_submitted_run(slurm, here, capsys, 2, "srun")
    kept = here / "cache/hpckit/kernels.tar"
    assert ".nbc" in subprocess.run(["tar", "-tf", kept], capture_output=True, text=True, check=True).stdout
    assert not list(here.glob("hpckit-*"))  # the nodes' disks are clean


def test_a_run_on_one_node_under_mpiexec(here, capsys, monkeypatch):
    with cluster(1) as alone:
        monkeypatch.setenv("SLURM_CONF", alone.environment["SLURM_CONF"])
        check_a_submitted_run(alone, here, capsys, 1, "mpiexec")


@pytest.mark.nightly
def test_an_array_makes_a_run_of_each_setting_and_a_job_waits_for_it(slurm, here, capsys):
    site = str(write_site(here))
    main(["diffusion/heat", *SMALL[1:], "--array", "grid.shape=[16,16],[24,16]", "--time", "5", "--site", site])
    number, folder = submitted(capsys)
    (here / "after.py").write_text(
        f"import os\nassert os.path.exists({str(folder / '001/summary.json')!r})\nprint('after')\n"
    )
    main(["after.py", "--after", number, "--time", "5", "--site", site])
    after, script = submitted(capsys)
    assert slurm.wait(after)["ExitCode"] == "0:0", "".join(path.read_text() for path in here.glob("slurm-*"))
    shapes = [
        json.loads((folder / name / "resolved.json").read_text())["values"]["grid"]["shape"] for name in ("000", "001")
    ]
    assert shapes == [[16, 16], [24, 16]]
    assert [json.loads((folder / name / "job.json").read_text())["job"] for name in ("000", "001")] == [
        f"{number}_0",
        f"{number}_1",
    ]
    assert "after" in (here / f"slurm-after-{after}.out").read_text()
    assert "after.py" in script.read_text()


@pytest.mark.nightly
def test_a_queued_run_is_watched_to_its_end(slurm, here, capsys):
    site = write_site(here)
    site.write_text(site.read_text().replace("[cpu]", '[cpu]\noptions = ["--hold"]'))
    main(["diffusion/heat", *SMALL, "--time", "5", "--site", str(site)])
    number, directory = submitted(capsys)
    assert watch([str(directory), "--once", "--json"]) == 0
    [state] = json.loads(capsys.readouterr().out)
    assert (state["status"], state["job"], state["job_state"]) == ("queued (JobHeldUser)", number, "PENDING")
    slurm.run("scontrol", "release", number)
    assert watch([str(directory), "--every", "0.2"]) == 0
    assert " done  job " in capsys.readouterr().out.splitlines()[-2]
    assert ls([]) == 0
    assert number in capsys.readouterr().out


def test_a_mistake_of_sbatch_is_told(slurm, here, capsys):
    from hpckit.errors import SetupError

    site = write_site(here)
    site.write_text(site.read_text().replace("[cpu]", '[cpu]\npartition = "gold"'))
    with pytest.raises(SetupError, match="sbatch"):
        main(["diffusion/heat", *SMALL, "--time", "5", "--site", str(site)])
    assert not list(here.glob("runs/*"))


SHORT = {
    "weather_cpu.sh": "weather/thermal grid.nx=40 grid.nz=20 time.end=4.0",
    "md_cpu.sh": "md/melt system.cells=[6,6,6] time.steps=20",
    "train_cpu.sh": "train/gpt model.layers=1 model.width=32 model.heads=2 time.steps=2 optimizer.warmup=1",
}
ARRAY = {"weather_array.sh": "weather/straka --array grid.nx=64,128 grid.nz=16 time.end=2.0 --array-limit 1"}


@pytest.mark.parametrize("short", [SHORT, pytest.param(ARRAY, marks=pytest.mark.nightly)], ids=["apps", "array"])
def test_the_ready_scripts_run(slurm, here, capsys, short):
    """The scripts of jobscripts/, made with small settings, all in the queue at once."""
    (here / "jobs.toml").write_text(
        "\n".join(f'"{name}" = "{words} --time 5 --no-report"' for name, words in short.items())
    )
    main(["--list", "jobs.toml", "--site", str(write_site(here)), "--into", "made"])
    capsys.readouterr()
    numbers = {name: slurm.run("sbatch", "--parsable", f"made/{name}", cwd=here).strip() for name in short}
    for name, number in numbers.items():
        for task in ("_0", "_1") if "array" in name else ("",):
            state = slurm.wait(number + task, 500)
            assert state["ExitCode"] == "0:0", "".join(path.read_text() for path in here.glob("slurm-*"))
    done = [json.loads(path.read_text()) for path in here.glob("runs/*/summary.json")]
    assert sorted(summary["app"] for summary in done) == (
        ["md", "train", "weather"] if short is SHORT else ["weather"] * 2
    )
    assert {summary["ranks"] for summary in done} == {2}


@pytest.mark.nightly
def test_the_ready_scripts_are_accepted_with_gpus_and_a_rank_gets_each(here, capsys, monkeypatch):
    """On nodes that have GPUs in name: what GPU sites ask for, by both kinds of request, and the GPU of each rank."""
    (here / "show.py").write_text(
        "import os\nfrom mpi4py import MPI\nworld = MPI.COMM_WORLD\n"
        "open(f'rank{world.rank}', 'w').write(str(os.environ.get('CUDA_VISIBLE_DEVICES')))\n"
    )
    with cluster(2, gpus=2) as slurm:
        monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
        for request, bind in (("gpus-per-node", "single:1"), ("gres", "map_gpu:1,0")):
            site = write_site(here)
            gpu = f'[gpu]\ngpus_per_node = 2\nrequest = "{request}"\nbind = "{bind}"\n[mpi]'
            site.write_text(site.read_text().replace("[mpi]", gpu))
            main(["--list", str(ROOT / "jobscripts/jobs.toml"), "--site", str(site), "--into", "made"])
            for name in ("weather_gpu", "md_gpu", "train_gpu"):
                slurm.run("sbatch", "--test-only", f"made/{name}.sh", cwd=here)  # raises where it is refused
            capsys.readouterr()
            main(["show.py", "--gpu", "--nodes", "2", "--time", "5", "--site", str(site)])
            number, _ = submitted(capsys)
            assert slurm.wait(number)["ExitCode"] == "0:0", "".join(path.read_text() for path in here.glob("slurm-*"))
            seen = [(here / f"rank{rank}").read_text() for rank in range(4)]
            assert seen == (["0", "1"] * 2 if bind == "single:1" else ["1", "0"] * 2)


@pytest.mark.nightly
def test_a_model_writes_and_is_served_under_srun(slurm, here):
    """On two ranks: the text of one rank, by generate and over HTTP; SIGTERM to its step ends the server."""
    model = write_model(here / "model", "llama", vocab_size=256)
    (here / "p.jsonl").write_text('{"prompt": "To be", "max_tokens": 8}\n')
    words = [sys.executable, "-m", "hpckit.cli.main"]
    alone = subprocess.run([*words, "generate", model, "p.jsonl"], capture_output=True, text=True, check=True, cwd=here)
    ranks = ["srun", "-N", "1", "-n", "2", "--mpi=pmi2", *words]
    environment = slurm.environment | {"MPIR_CVAR_CH4_NETMOD": "ofi"}
    options = {"env": environment, "cwd": here, "text": True, "stdout": subprocess.PIPE}
    beside = subprocess.run([*ranks, "generate", model, "p.jsonl"], check=True, timeout=200, **options)
    assert beside.stdout == alone.stdout
    with subprocess.Popen([*ranks, "serve", model, "--port", "0"], **options) as server:
        try:
            line = server.stdout.readline()
            assert "2 rank(s)" in line
            port = line.split("http://127.0.0.1:")[1].split(":")[0]
            body = json.dumps({"prompt": "To be", "max_tokens": 8, "temperature": 0}).encode()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/completions", body, timeout=100) as answer:
                assert json.load(answer)["choices"][0]["text"] == json.loads(alone.stdout)["text"]
            step = slurm.run("squeue", "-h", "-s", "-o", "%i").split()[0]
            slurm.run("scancel", "--signal=TERM", step)  # srun itself would kill all ranks at once
            assert server.wait(60) == 0
        finally:
            server.kill()


@pytest.mark.nightly
def test_a_scaling_study_starts_its_ranks_in_the_job(slurm, here, capsys):
    """The ready script, shortened: one task of the job starts the ranks of the study by srun."""
    words = "bench scaling diffusion/heat grid.shape=[24,24] --ranks 1,2 --steps 12 --repeats 1 --machine infiniband"
    (here / "jobs.toml").write_text(f'"scaling.sh" = "{words} --out study --nodes 1 --time 5"')
    main(["--list", "jobs.toml", "--site", str(write_site(here)), "--into", "made"])
    number = slurm.run("sbatch", "--parsable", "made/scaling.sh", cwd=here).strip()
    assert slurm.wait(number)["ExitCode"] == "0:0", "".join(path.read_text() for path in here.glob("slurm-*"))
    record = json.loads((here / "study/scaling.json").read_text())
    assert [point["ranks"] for point in record["points"]] == [1, 2]
    assert "srun --mpi=pmi2" in record["provenance"]["command"]
    assert record["provenance"]["environment"]["SLURM_JOB_ID"] == number


@pytest.mark.nightly
@pytest.mark.parametrize("limits", [2, 3])
def test_a_run_that_needs_several_time_limits_ends_with_the_same_bits(slurm, here, limits):
    found = requeued(slurm, here, limits)
    assert (found["starts"], found["exit"]) == (limits, "0:0"), output(here / "broken")
    assert any("temperature" in row["field"] for row in found["fields"])
    assert {row["verdict"] for row in found["fields"]} == {"same bits"}


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_limits_that_slurm_keeps_itself_change_no_bit(slurm, here):
    """Its own signal and its own end of a job, at a limit of a minute."""
    found = limited(slurm, here)
    for name, one in found.items():
        assert one["exit"] == "0:0", output(here / name)
        assert one["starts"] > 1, name
        assert same_bits(one["fields"]), name


@pytest.mark.nightly
def test_a_run_whose_node_died_starts_again_though_the_dead_left_their_memory(here, monkeypatch):
    with cluster(1) as alone:
        monkeypatch.setenv("SLURM_CONF", alone.environment["SLURM_CONF"])
        found = outlived(alone, here)
        assert (found["starts"], found["exit"]) == (2, "0:0"), output(here / "broken")
        assert same_bits(found["fields"])


def test_a_graph_is_a_chain_of_jobs(slurm, here, capsys):
    """Jobs wait for those before them, and hold tasks that follow alone; one that fails takes only its descendants."""
    for name, body in (("sum.py", SUM), ("size.py", SIZE)):
        (here / name).write_text(body)
    (here / "study.toml").write_text(STUDY)
    site = str(write_site(here))
    assert graph(["run", "study.toml", "--slurm", "--site", site]) == 1
    said = capsys.readouterr().out
    assert "size, near: job" in said
    assert "bad: failed (3), " in said
    assert "4 done; 1 failed; 1 skipped" in said
    assert ((here / "size.txt").read_text(), (here / "near.txt").read_text()) == ("3\n", "3")
    assert (here / "sum.txt").read_text() == "8"
    assert not (here / "never.txt").exists()
    assert "failed" in said
    assert graph(["run", "study.toml", "--slurm", "--site", site, "--no-wait"]) == 0
    again = capsys.readouterr().out
    assert "bad, never: job" in again
    assert "sum" not in again


@pytest.mark.nightly
def test_a_straggler_gets_a_second_job_and_jobs_that_are_ended_are_named(slurm, here, capsys):
    (here / "slow.py").write_text(
        "import sys, time\n"
        "try:\n"
        "    open(sys.argv[1], 'x')\n"
        "    time.sleep(900)\n"  # the first of the two to come, longer than this test may take
        "except FileExistsError:\n"
        "    pass\n"
        "open('slow.txt', 'w').write('same')\n"
    )
    words = json.dumps(["python", "slow.py", str(here / "seen")])
    (here / "study.toml").write_text(
        f"[tasks.slow]\ncommand = {words}\ninputs = ['slow.py']\noutputs = ['slow.txt']\ntwice_after = 2\n"
        "[tasks.next]\ncommand = ['cp', 'slow.txt', 'next.txt']\ninputs = ['slow.txt']\noutputs = ['next.txt']\n"
        "[tasks.ended]\ncommand = ['bash', '-c', 'scancel $SLURM_JOB_ID; sleep 900']\noutputs = ['no.txt']\n"
    )
    assert graph(["run", "study.toml", "--slurm", "--site", str(write_site(here))]) == 1
    said = capsys.readouterr().out
    assert ("slow: takes long, job" in said, (here / "next.txt").read_text()) == (True, "same")
    assert "ended: not done, its job" in said
    assert "CANCELLED" in said
    assert "2 done; 1 failed" in said


SUM = """
import sys
total = 0
for path in sys.argv[2:]:
    total += int(open(path).read())
open(sys.argv[1], "w").write(str(total))
"""
SIZE = """
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    print(MPI.COMM_WORLD.size, file=open("size.txt", "w"))
"""
STUDY = """
[tasks.size]
command = ["python", "-m", "mpi4py", "size.py"]
ranks = 3
inputs = ["size.py"]
outputs = ["size.txt"]

[tasks.near]
command = ["python", "sum.py", "near.txt", "size.txt"]
inputs = ["sum.py", "size.txt"]
outputs = ["near.txt"]
near = "size"

[tasks.five]
command = ["bash", "-c", "echo 5 > five.txt"]
outputs = ["five.txt"]

[tasks.sum]
command = ["python", "sum.py", "sum.txt", "five.txt", "near.txt"]
inputs = ["sum.py", "five.txt", "near.txt"]
outputs = ["sum.txt"]

[tasks.bad]
command = ["bash", "-c", "exit 3"]
inputs = ["five.txt"]
outputs = ["bad.txt"]

[tasks.never]
command = ["cp", "bad.txt", "never.txt"]
inputs = ["bad.txt"]
outputs = ["never.txt"]
"""
