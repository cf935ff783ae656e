"""Job scripts as texts: what is in them, what shellcheck and the shell make of them, and what gets nothing through."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hpckit.cli.verbs.submit import _parse, main, ready_job
from hpckit.errors import InputError, SetupError
from hpckit.jobs.script import RUN, Job, directives, job_script, seconds
from hpckit.jobs.site import Cpu, Environment, Gpu, Mpi, Scratch, Site, load_site
from tests.slurm.requeue import site_text

ROOT = Path(__file__).parents[2]
LIST = ROOT / "jobscripts" / "jobs.toml"
SITES = {
    "mpich": Site(cpu=Cpu(ranks_per_node=64), gpu=Gpu(gpus_per_node=4)),
    "openmpi": Site(
        account="abc123",
        cpu=Cpu(partition="std", ranks_per_node=128, options=("--exclusive", "--constraint=milan|rome")),
        gpu=Gpu(partition="gpu", gpus_per_node=8, request="gres", kind="a100", bind="closest", cores_per_gpu=16),
        mpi=Mpi(pmi="pmix"),
        environment=Environment(modules=("gcc/13", "openmpi/5"), venv="/home/me/my venv", variables={"UCX_TLS": "a b"}),
    ),
    "mpiexec": Site(
        requeue=False,
        cpu=Cpu(ranks_per_node=2),
        gpu=Gpu(gpus_per_node=1),
        mpi=Mpi(launcher="mpiexec", options=("-bind-to", "core")),
        environment=Environment(venv="~/v v", variables={"LD_LIBRARY_PATH": "/opt/lib:$LD_LIBRARY_PATH"}),
        scratch=Scratch(node_local=""),
    ),
}


@pytest.fixture(autouse=True)
def nowhere(tmp_path, monkeypatch):
    """An empty folder, and no settings of the user."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HPCKIT_CONFIG", os.devnull)
    for name in [name for name in os.environ if name.startswith(("SLURM_", "PMI_")) or name == "HPCKIT_SITE"]:
        monkeypatch.delenv(name)


def app_job(**more) -> Job:
    given = {"name": "it", "nodes": 2, "time": "01:00:00", "ranks_per_node": 4, "runs": ("/home/me/runs/it",)}
    return Job(**{**given, "start": ("hpckit", "run", RUN), "resume": ("hpckit", "resume", RUN), **more})


def site_toml(folder: Path, site: Site) -> Path:
    """A site file that says what `site` does."""
    lines = []
    tree = site.model_dump(mode="json")
    lines += [
        f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}"
        for key, value in tree.items()
        if not isinstance(value, dict)
    ]
    for table, values in tree.items():
        if isinstance(values, dict):
            lines.append(f"[{table}]")
            lines += [f"{key} = {value!r}" for key, value in values.items() if not isinstance(value, dict)]
    lines += ["[environment.variables]", *(f"{key} = {value!r}" for key, value in site.environment.variables.items())]
    path = folder / "site.toml"
    path.write_text("\n".join(lines) + "\n")
    assert load_site(path) == site
    return path


def test_the_ready_scripts_are_those_of_the_list(tmp_path):
    assert (
        main(["--list", str(LIST), "--site", str(ROOT / "jobscripts/site.toml"), "--into", str(tmp_path / "made")]) == 0
    )
    made = {path.name: path.read_text() for path in (tmp_path / "made").iterdir()}
    kept = {path.name: path.read_text() for path in (ROOT / "jobscripts").glob("*.sh") if path.name != "study.sh"}
    assert made == kept, "hpckit submit --list jobscripts/jobs.toml --site jobscripts/site.toml"
    assert len(made) >= 6


@pytest.mark.parametrize("name", SITES)
def test_shellcheck_finds_nothing_in_the_ready_scripts_of_any_site(tmp_path, name):
    if shutil.which("shellcheck") is None:
        pytest.skip("no shellcheck: apt-get install shellcheck")
    site = site_toml(tmp_path, SITES[name])
    main(["--list", str(LIST), "--site", str(site), "--into", str(tmp_path / "made")])
    scripts = [*sorted((tmp_path / "made").glob("*.sh")), ROOT / "jobscripts" / "study.sh"]
    done = subprocess.run(["shellcheck", *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_what_a_site_says_is_in_the_script():
    text = job_script(
        app_job(gpu=True, after="17", array=[("a=1",), ("a=2",)], runs=(), array_limit=1), SITES["openmpi"]
    )
    for words in (
        "#SBATCH --partition=gpu",
        "#SBATCH --account=abc123",
        "#SBATCH --gres=gpu:a100:8",
        "#SBATCH --cpus-per-task=16",
        "#SBATCH --array=0-1%1",
        "#SBATCH --dependency=afterok:17",
        "#SBATCH --signal=B:USR1@120",
        "module load openmpi/5",
        "source '/home/me/my venv/bin/activate'",
        "export UCX_TLS='a b'",
        "srun --mpi=pmix --kill-on-bad-exit=1 --cpus-per-task=",
        "--cpu-bind=cores --gpu-bind=closest",
        "settings=(a=2)",
    ):
        assert words in text
    text = job_script(app_job(after="afterany:17:18"), SITES["mpiexec"])
    assert 'mpiexec -bind-to core -n "$SLURM_NTASKS" "$@"' in text
    assert "--dependency=afterany:17:18" in text
    assert """source "${HOME}"'/v v/bin/activate' || exit 3""" in text
    assert "requeue" not in text
    assert "gres" not in text


def test_runs_that_are_there_hold_their_settings():
    text = job_script(app_job(array=[("a=1",), ("a=2",)], runs=("/home/me/x/000", "/home/me/x/001")), Site())
    assert "1) run=/home/me/x/001 ;;" in text
    assert "settings" not in text


@pytest.mark.parametrize(
    ("text", "limit"),
    [("30", 1800), ("1:30", 90), ("01:00:00", 3600), ("2-0", 172800), ("1-12:30", 131400), ("0-0:0:5", 5)],
)
def test_time_limits_are_those_of_sbatch(text, limit):
    assert seconds(text) == limit


@pytest.mark.parametrize("text", ["", "0", "soon", "1:2:3:4", "1 hour", "-5", "10;reboot", "00:00:00"])
def test_other_time_limits_are_refused(text):
    with pytest.raises(InputError, match="time"):
        job_script(app_job(time=text), Site())


def test_a_limit_before_the_checkpoint_is_refused():
    with pytest.raises(InputError, match="leaves no time before the checkpoint"):
        job_script(app_job(time="00:02:00"), Site())


# What a hostile or unlucky text looks like; MARK would make a file if a shell ran it, HOOKS would be options of sbatch.
MARK = "touch MARK"
BREAKS = ("\n", "\r", "\r\n", "\x0b", "\x0c", "\x00", "\x1b", "\x85", "\u2028", "\u2029")
SHAPES = (
    "; {}", "&& {}", "| {}", "& {} &", "$({})", "`{}`", "'; {}; '", '"; {}; "', "' $({}) '", '" $({}) "', "\\'; {}; #",
    "${{IFS}}$({})", "a b; {}", "> MARK", "<( {} )", "$(({}))", "*; {}", "~; {}", "!!; {}", "# \\\n {}", ")); {}",
    "]]; {}", "}}; {}", "done; {}", "fi; {}", "esac; {}", "EOF {}", "FILL\n{}", "-c '{}'", "--wrap={}", "x=$({})",
    "%(touch MARK)s", "{{run}}; {}", "$run; {}", '"$run"; {}', "\\$({})", "\\`{}\\`", "'\"'\"'; {}; '", "$'\\n{}'",
    "a\tb; {}",
)  # fmt: skip
HOOKS = ("#SBATCH --uid=0", "#SBATCH --wrap='touch MARK'", "#SBATCH -o /etc/passwd", "#BSUB -o MARK", "#PBS -S MARK")
INJECTIONS = [
    *(shape.format(MARK) for shape in SHAPES),
    *(f"a{sign}{MARK}" for sign in BREAKS),
    *(f"a{sign}{hook}" for sign in BREAKS for hook in HOOKS),
    *(f"a{sign}{sign}{MARK}{sign}" for sign in BREAKS),
    *(f"{shape.format(MARK)} {hook}" for shape in SHAPES[:24] for hook in HOOKS[:1]),
    *(f"{quote}{sign}{MARK}{sign}{quote}" for quote in ("'", '"', "`", ")") for sign in BREAKS),
    *(f"{opening}{MARK}{end}" for opening in ("$(", "${x:-$(", "`", "<(", ">(") for end in (")", ")}", "`", "", "))")),
    *(f"{hook} {MARK}" for hook in HOOKS),
    *(f"runs/{text}" for text in ("$HOME", "~root", "../../etc", "a b", "a'b", 'a"b', "a\\b", "ä ö", "%j", "-rf", "*")),
    *(f"k={text}" for text in ("$(id)", "`id`", "';id;'", '";id;"', "{a,b}", "[1, 2]", '"x"', "a=b", "|", "&", ";")),
]  # fmt: skip


def test_there_are_two_hundred_injections():
    assert len(set(INJECTIONS)) >= 200


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory) -> Path:
    """A folder with programs in place of Slurm's and ours: `hpckit` writes down its words."""
    folder = tmp_path_factory.mktemp("bin")
    programs = {
        "hpckit": 'printf "%s\\0" "$@" >"$WORDS"',
        "srun": 'while [ $# -gt 0 ] && [ "$1" != hpckit ]; do shift; done; [ $# -eq 0 ] || exec "$@"',
        "scontrol": "exit 1",
    }
    for name, body in programs.items():
        (folder / name).write_text(f"#!/bin/bash\n{body}\n")
        (folder / name).chmod(0o755)
    return folder


def ended(text: str, folder: Path, stand_ins: Path, **more: str) -> subprocess.CompletedProcess:
    """Run the script without Slurm, with more variables, to its end."""
    script = folder / "job.sh"
    script.write_text(text)
    environment = {"PATH": f"{stand_ins}:/usr/bin:/bin", "WORDS": f"{folder}/words", "SLURM_SUBMIT_DIR": str(folder)}
    environment |= {"SLURM_JOB_ID": "1", "SLURM_CPUS_PER_TASK": "1", "SLURM_NTASKS": "2", "HOME": str(folder), **more}
    return subprocess.run(["bash", script], env=environment, cwd=folder, capture_output=True, timeout=120, check=False)


def run_script(text: str, folder: Path, stand_ins: Path) -> list[str]:
    """The words that reach hpckit from the script."""
    ended(text, folder, stand_ins)
    words = folder / "words"
    return words.read_text().split("\0")[:-1]


# In place of hpckit: the first starts fail before the ranks write the lock, or with it; each is counted.
STARTING = """
n=$(($(cat "$WORDS.starts" 2>/dev/null || echo 0) + 1)); echo $n >"$WORDS.starts"
[ $n -gt {fails} ] && {{ mkdir -p "$RUN"; echo $n >"$RUN/lock"; exit {code}; }}
exit 15
"""


@pytest.mark.parametrize(
    ("fails", "code", "starts", "last"), [(0, 1, 1, 1), (1, 0, 2, 0), (2, 4, 3, 4), (9, 0, 3, 15), (1, 2, 2, 2)]
)
def test_ranks_that_do_not_start_are_started_again_and_others_are_not(tmp_path, stand_ins, fails, code, starts, last):
    programs = tmp_path / "programs"
    shutil.copytree(stand_ins, programs)
    (programs / "hpckit").write_text(f"#!/bin/bash\n{STARTING.format(fails=fails, code=code)}")
    run = tmp_path / "a run"
    script = job_script(app_job(runs=(str(run),)), Site(scratch=Scratch(node_local="")))
    assert ended(script, tmp_path, programs, RUN=str(run)).returncode == last
    assert int((tmp_path / "words.starts").read_text()) == starts


def test_the_limit_itself_requeues_where_a_checkpoint_came_and_a_cancel_does_not(tmp_path, stand_ins):
    """The script gets SIGTERM, as the ranks do; Slurm's word on the job tells the one from the other."""
    run, programs = tmp_path / "run", tmp_path / "programs"
    script = job_script(app_job(runs=(str(run),)), Site(scratch=Scratch(node_local="")))
    shutil.copytree(stand_ins, programs)
    stop = 'mkdir -p "$RUN/ckpt"; echo "$CHECKPOINT" >"$RUN/ckpt/LATEST"; kill "$(cat job.pid)"; sleep 0.3; exit 143'
    state = '[ "$1" = requeue ] && echo "$2" >>"$RUN/queued"; echo "JobState=COMPLETING Reason=$REASON"'
    for name, body in (("hpckit", stop), ("scontrol", state)):
        (programs / name).write_text(f"#!/bin/bash\n{body}\n")
    script = script.replace("\n", "\necho $$ >job.pid\n", 1)
    for reason, checkpoint, code, queued in (
        ("TimeLimit", "g000003", 0, ["1"]),
        ("TimeLimit", "g000003", 143, []),  # nothing new
        ("None", "g000004", 143, []),  # canceled
    ):
        (run / "queued").unlink(missing_ok=True)
        done = ended(script, tmp_path, programs, RUN=str(run), REASON=reason, CHECKPOINT=checkpoint)
        assert done.returncode == code, done.stderr
        assert ((run / "queued").read_text().split() if (run / "queued").exists() else []) == queued


def test_a_warning_that_comes_before_the_run_is_ready_does_not_end_the_job(tmp_path, stand_ins):
    """Under a short limit Slurm warns while nodes are prepared: the run starts, and the limit itself requeues it."""
    programs = tmp_path / "programs"
    shutil.copytree(stand_ins, programs)
    warn = '[ "$1" = --mpi=none ] || exec hpckit begun\nkill -USR1 "$(cat job.pid)"; sleep 0.2'
    (programs / "srun").write_text(f"#!/bin/bash\n{warn}\n")
    script = job_script(app_job(runs=(str(tmp_path / "run"),)), Site(scratch=Scratch(node_local="")))
    done = ended(script.replace("\n", "\necho $$ >job.pid\n", 1), tmp_path, programs, SLURM_RESTART_COUNT="1")
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert (tmp_path / "words").read_text() == "begun\0"


def test_no_text_of_a_user_becomes_a_command(tmp_path, stand_ins):
    """Each text reaches hpckit as the one word that it was, or is refused; nothing else happens."""
    site = Site(scratch=Scratch(node_local=""))
    refused = 0
    for text in INJECTIONS:
        job = Job(name="it", nodes=1, time="10", start=("hpckit", "run", text, f"k={text}"), about=f"run {text}")
        try:
            script = job_script(job, site)
        except InputError:
            assert re.search(r"[\x00-\x1f\x7f\x85\u2028\u2029]", text), f"{text!r} needs no refusal"
            refused += 1
            continue
        assert [line for line in script.splitlines() if line.startswith("#SBATCH")] == [
            f"#SBATCH {option}" for option in directives(job, site)
        ]
        if len(text) > 3:  # each a shell to start
            assert run_script(script, tmp_path, stand_ins) == ["run", text, f"k={text}"]
        assert not list(tmp_path.rglob("MARK")), f"{text!r} was run"
    assert 60 < refused < len(INJECTIONS) - 60


def test_a_run_directory_is_one_word(tmp_path, stand_ins):
    for text in ("/a b/$(touch MARK)", "/x'; touch MARK; '", '/"; touch MARK; "', "/`touch MARK`"):
        script = job_script(app_job(runs=(text,)), Site(scratch=Scratch(node_local="")))
        assert run_script(script, tmp_path, stand_ins) == ["run", text]
        assert not list(tmp_path.rglob("MARK"))


@pytest.mark.parametrize("field", ["name", "output", "after"])
def test_what_stands_on_a_directive_has_harmless_signs_only(field):
    accepted = [text for text in INJECTIONS if _passes(lambda text=text: job_script(app_job(**{field: text}), Site()))]
    assert all(re.fullmatch(r"[\w./@+=,:% -]+", text) for text in accepted)
    assert len(accepted) <= (0 if field != "output" else 12)


@pytest.mark.parametrize(
    "key", ["account", "cpu.partition", "cpu.options", "gpu.kind", "mpi.pmi", "mpi.options", "environment.venv"]
)
def test_a_site_file_lets_nothing_through(key):
    table, _, name = key.rpartition(".")
    for text in INJECTIONS:
        value = {name: [text] if name == "options" else text}
        if table == "gpu":
            value["gpus_per_node"] = 1
        try:
            site = Site.model_validate({table: value} if table else value)
        except ValueError:
            continue
        script = job_script(app_job(gpu=table == "gpu"), site)
        for line in [line for line in script.splitlines() if MARK in line or "--uid" in line]:
            assert key in ("environment.venv", "mpi.options"), line
            if key == "environment.venv":
                named = re.sub(r"\$(\w+)", r"${\1}", text.rstrip("/"))
                assert shlex.split(line) == ["source", f"{named}/bin/activate", "||", "exit", "3"]
            else:
                assert text in shlex.split(line)


def test_variables_of_a_site_are_those_of_the_job(tmp_path, stand_ins):
    """$NAME and ~ are what they are on the node; what else a shell would do with the text is not done."""
    (tmp_path / "v '1/bin").mkdir(parents=True)
    (tmp_path / "v '1/bin/activate").write_text("export VENV=yes\n")
    values = {"A": "/opt:$PATH", "B": "${HOME}/x y", "C": "$(touch MARK) `touch MARK` $1 ~/", "D": "$GONE", "E": ""}
    environment = Environment(venv="~/v '1", variables=values)
    shown = 'printf "%s|" "$VENV" "$A" "$B" "$C" "$D" "$E" "$NUMBA_CACHE_DIR" >shown\n'
    script = job_script(app_job(), Site(environment=environment, scratch=Scratch(node_local="$HOME/t m/")))
    run_script(script.replace("mark=$(mktemp)", shown + "mark=$(mktemp)"), tmp_path, stand_ins)
    found = (tmp_path / "shown").read_text().split("|")
    assert found[1] == f"/opt:{stand_ins}:/usr/bin:/bin"
    assert found[0::2][:3] == ["yes", f"{tmp_path}/x y", ""]
    assert found[3] == values["C"]
    assert found[6].startswith(f"{tmp_path}/t m/hpckit-")
    assert not list(tmp_path.rglob("MARK"))


def test_a_job_whose_environment_is_not_there_does_not_start(tmp_path, stand_ins):
    (tmp_path / "words").touch()
    for environment in (Environment(venv="/none"), Environment(modules=("gcc/13",))):
        script = job_script(app_job(), Site(environment=environment, scratch=Scratch(node_local="")))
        assert run_script(script, tmp_path, stand_ins) == []


def test_words_for_mpiexec_reach_it_and_a_scaling_study():
    site = Site(mpi=Mpi(launcher="mpiexec", options=("-bind-to", "core", "a&b")))
    assert """mpiexec -bind-to core 'a&b' -n""" in job_script(app_job(), site)
    options, words = _parse(["bench", "scaling", "md", "--ranks-per-node", "2", "--time", "10"])
    start = list(ready_job(options, words, site).start)
    assert shlex.split(start[start.index("--launcher") + 1]) == ["mpiexec", "-bind-to", "core", "a&b"]
    with pytest.raises(ValueError, match="one word of the command line"):
        Mpi(options=("--bind-to core",))


def test_what_a_site_binds_by_is_one_word():
    site = Site(mpi=Mpi(pmi="a|id"), gpu=Gpu(gpus_per_node=1, bind="b&id"))
    text = job_script(app_job(gpu=True), site)
    assert "'--mpi=a|id'" in text
    assert "'--gpu-bind=b&id'" in text


def _passes(call) -> bool:
    try:
        call()
    except InputError:
        return False
    return True


def test_a_site_file_tells_all_its_mistakes_at_once(tmp_path):
    path = tmp_path / "site.toml"
    path.write_text(
        'acount = "x"\n[cpu]\nranks_per_node = -1\n[mpi]\nlauncher = "mpirun"\n[environment.variables]\n"a b" = "x"\n'
    )
    with pytest.raises(InputError) as error:
        load_site(path)
    assert all(word in error.value.message for word in ("acount", "ranks_per_node", "launcher", "a b"))
    with pytest.raises(InputError, match="cannot be read"):
        load_site(tmp_path / "none.toml")


def test_a_dry_run_prints_the_script_and_makes_nothing(tmp_path, capsys):
    assert (
        main(["weather/thermal", "grid.nx=40", "--nodes", "2", "--ranks-per-node", "3", "--time", "10", "--dry-run"])
        == 0
    )
    text = capsys.readouterr().out
    assert "#SBATCH --ntasks-per-node=3" in text
    assert "hpckit run weather/thermal grid.nx=40" in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("version", "pmi"), [("mpirun (Open MPI) 5.0.11", "pmix"), ("HYDRA build details:", "pmi2")])
def test_srun_speaks_what_the_mpi_of_this_environment_does(tmp_path, capsys, monkeypatch, version, pmi):
    program = tmp_path / "mpiexec"
    program.write_text(f"#!/bin/sh\necho '{version}'\n")
    program.chmod(0o755)
    monkeypatch.setattr("hpckit.launch.mpiexec.find_mpiexec", lambda: str(program))
    (tmp_path / "site.toml").write_text('[mpi]\npmi = "own"\n')
    words = ["diffusion/heat", "--ranks-per-node", "1", "--time", "10", "--dry-run"]
    assert main(words) == 0
    assert f"srun --mpi={pmi} " in capsys.readouterr().out
    assert main([*words, "--site", str(tmp_path / "site.toml")]) == 0
    assert "srun --mpi=own " in capsys.readouterr().out


@pytest.mark.parametrize("words", [{}, {"seconds": 10, "ranks": 1}, {"variables": 'PYTHONPATH = "/a b"'}])
def test_site_files_of_the_benchmark_on_slurm_can_be_read(tmp_path, words):
    """Its longer runs are nightly ones: without this one they once failed unseen."""
    (tmp_path / "site.toml").write_text(site_text(**words))
    site = load_site(tmp_path / "site.toml")
    assert site.signal_seconds == words.get("seconds", 20)
    assert site.environment.variables == ({"PYTHONPATH": "/a b"} if "variables" in words else {})


def test_the_site_file_of_the_environment_is_taken(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my_site.toml").write_text('account = "mine"\n')
    monkeypatch.setenv("HPCKIT_SITE", "my_site.toml")
    assert main(["diffusion/heat", "--ranks-per-node", "1", "--time", "10", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "#SBATCH --account=mine" in text
    assert "1 node, 1 rank on each" in text


def test_a_server_is_a_job_of_all_ranks_of_a_node(tmp_path, capsys):
    model = tmp_path / "my model"
    model.mkdir()
    words = ["serve", str(model), "--ranks-per-node", "4", "--time", "04:00:00", "--dry-run", "--", "--replicas", "2"]
    assert main([*words, "--host", "0.0.0.0", "--record", "runs/serving"]) == 0
    text = capsys.readouterr().out
    assert "#SBATCH --job-name=serve-my-model" in text
    assert "4 ranks" in text
    started = [line for line in text.splitlines() if line.startswith("launch hpckit serve")]
    assert started == [f"launch hpckit serve '{model}' --replicas 2 --host 0.0.0.0 --record runs/serving"]
    names = ["--name", "serve", "serve", str(model), "--name", "llama", "--name=mine", *words[2:7]]
    assert main(names) == 0  # the job's name, and those of the model
    text = capsys.readouterr().out
    assert "#SBATCH --job-name=serve\n" in text
    assert f"launch hpckit serve '{model}' --name llama --name=mine\n" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["diffusion/heat", "grid.nxx=40", "--ranks-per-node", "1", "--time", "10"], "grid.nxx"),
        (["diffusion/heat", "--time", "10"], "the number of ranks per node"),
        (["diffusion/heat", "--ranks-per-node", "1"], "no time limit"),
        (["--time", "10"], "nothing to submit"),
        (["missing.toml"], "no file missing.toml"),
        (["missing.py", "--time", "10"], "no file missing.py"),
        (["hete"], "not a file, preset or app"),
        (["diffusion/heat", "-n", "4", "--ranks-per-node", "1", "--time", "10"], "-n is for hpckit run"),
        (["diffusion/heat", "--ranks-per-node", "1", "--time", "10", "--array", "grid.nx"], "not a list of settings"),
        (["diffusion/heat", "--ranks-per-node", "0", "--time", "10"], "number of ranks per node"),
        (["diffusion/heat", "--ranks-per-node", "1", "--nodes", "0", "--time", "10"], "0 nodes"),
        (["diffusion/heat", "--ranks-per-node", "1", "--time", "10", "--after", "job"], "names no jobs"),
        (["serve", "--ranks-per-node", "1", "--time", "10"], "serve what"),
        (["serve", "none", "--ranks-per-node", "1", "--time", "10"], "no model none"),
        (["serve", "/", "-n", "2", "--ranks-per-node", "1", "--time", "10"], "-n is for"),
    ],
)
def test_mistakes_are_told_before_anything_is_made(tmp_path, words, said):
    with pytest.raises(InputError, match=said):
        main(words)
    assert list(tmp_path.iterdir()) == []


def test_all_mistakes_of_a_job_are_told_at_once(tmp_path):
    """Of the target, the options, the script and the settings of every task, each once."""
    words = ["diffusion/heat", "grid.nxx=40", "-n", "4", "--nodes", "0", "--after", "job", "--array-limit", "0"]
    with pytest.raises(InputError) as caught:
        main([*words, "--array", "time.steps=1,-2"])
    options = ("no time limit", "number of ranks per node", "-n is for", "0 nodes", "names no jobs", "--array-limit 0")
    for part in (*options, "grid.nxx", "time.steps = -2"):
        assert part in caught.value.message
    assert caught.value.message.count("no time limit") == 1
    with pytest.raises(InputError, match=r"(?s)no model none.*--array is for.*0 nodes"):
        main(["serve", "none", "--nodes", "0", "--ranks-per-node", "1", "--time", "10", "--array", "a=1"])


def test_without_slurm_nothing_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(SetupError, match="no sbatch here"):
        main(["diffusion/heat", "--ranks-per-node", "1", "--time", "10"])
    assert not list(tmp_path.glob("runs/*"))


def test_scripts_that_were_not_made_here_are_not_overwritten(tmp_path):
    words = ["diffusion/heat", "--ranks-per-node", "1", "--time", "10", "--script", "mine.sh"]
    Path("mine.sh").write_text("echo mine\n")
    with pytest.raises(InputError, match="was not made by"):
        main(words)
    Path("mine.sh").unlink()
    assert main(words) == 0
    assert main(words) == 0
    assert os.access("mine.sh", os.X_OK)


def test_the_list_names_files_that_exist():
    assert set(tomllib.loads(LIST.read_text())) == {path.name for path in LIST.parent.glob("*.sh")} - {"study.sh"}
    assert sys.version_info >= (3, 11)
