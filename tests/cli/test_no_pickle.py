"""No run takes a pickle from anywhere: unpickling is hooked in every process of runs that write, read and resume."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cli_command import SITE, hpckit
from conftest import mpiexec, run_limited

# Numba keeps compiled kernels as pickles in the cache folder of the user, which no run and no file of a run names.
HOOK = """
import pickle, sys

def refuse(what):
    frame = sys._getframe(2)
    while frame is not None:
        if "numba" in frame.f_code.co_filename.split("/"):
            return
        frame = frame.f_back
    with open({log!r}, "a") as log:
        print(what, file=log)
    raise RuntimeError("unpickled: " + what)

def hooked(what, call):
    def function(*words, **options):
        refuse(what)
        return call(*words, **options)
    return function

class Unpickler(pickle.Unpickler):
    def __init__(self, *words, **options):
        refuse("Unpickler")
        super().__init__(*words, **options)

pickle.load, pickle.loads, pickle.Unpickler = hooked("load", pickle.load), hooked("loads", pickle.loads), Unpickler
sys.addaudithook(lambda event, words: refuse(event) if event == "pickle.find_class" else None)
"""


@pytest.fixture
def hook(tmp_path: Path) -> tuple[dict[str, str], Path]:
    """What the environment needs for the hook, and the file that names every unpickling."""
    log, folder = tmp_path / "unpickled", tmp_path / "hook"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HOOK.format(log=str(log)))
    return {"PYTHONPATH": f"{folder}:{SITE}"}, log


@pytest.mark.parametrize("call", ["pickle.loads(text)", "numpy.load(file, allow_pickle=True)"])
def test_the_hook_sees_an_unpickling(hook, tmp_path, call):
    environment, log = hook
    program = f"""if True:
    import io, pickle, numpy
    text, file = pickle.dumps([1]), io.BytesIO()
    numpy.save(file, numpy.array([[]], object))
    file.seek(0)
    {call}
    """
    outcome = run_limited([sys.executable, "-c", program], 60, cwd=tmp_path, env=environment)
    assert outcome.code == 1
    assert log.read_text().split() == ["loads" if "loads" in call else "load"]


@pytest.mark.nightly
@pytest.mark.skipif(mpiexec() is None, reason="no mpiexec: install the extra `mpi`")
@pytest.mark.parametrize(
    "words",
    [
        ("heat", "grid.shape=[23,17]", "time.steps=40", "output.frames=3", "--check", "--no-report"),
        pytest.param(
            ("md/melt", "system.cells=[4,4,4]", "time.steps=20", "time.thermo=10", "output.every=10"),
            marks=pytest.mark.nightly,
        ),
        pytest.param(("train/digits_mlp", "time.steps=8", "mesh.pp=2"), marks=pytest.mark.nightly),
    ],
    ids=["heat", "md", "train"],
)
def test_no_run_and_no_resumed_run_unpickles(hook, tmp_path, words):
    environment, log = hook
    outcome = hpckit("run", *words, "checkpoint.every=4", "-n", 2, "--directory", "it", cwd=tmp_path, **environment)
    assert outcome.code == 0, outcome.stderr
    (tmp_path / "it" / "summary.json").unlink()  # as if it had been lost at its end
    outcome = hpckit("resume", "it", cwd=tmp_path, **environment)
    assert outcome.code == 0, outcome.stderr
    assert "resumed from" in outcome.stdout
    assert not log.exists(), log.read_text()
