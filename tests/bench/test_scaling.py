"""Scaling studies: fits on known laws, what apps tell of themselves, the price, the files, and one study for real."""

from __future__ import annotations

import ast
import itertools
import json
import math
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import by_day

from hpckit.apps.common.scaling import Load, halos
from hpckit.bench.measure import CALM, calmest, disturbance
from hpckit.bench.scaling.files import latex, markdown
from hpckit.bench.scaling.fit import Estimate, efficiency, karp_flatt, law, serial_fraction, undisturbed
from hpckit.bench.scaling.model import curve
from hpckit.bench.scaling.ranks import TimedSteps
from hpckit.bench.scaling.reframe import reframe_test
from hpckit.bench.scaling.study import Study, crowded, evaluated, words_with
from hpckit.bench.scaling.verb import run
from hpckit.errors import HpckitError, InputError
from hpckit.plan.machine.machine import Level, Machine

pytestmark = pytest.mark.usefixtures("quick_runs")

APPS = {
    "weather/thermal": ["grid.nx=60", "grid.nz=20"],
    "weather3d/thermal3d": ["grid.nx=24", "grid.ny=24", "grid.nz=8"],
    "shallow_water/adjustment": ["grid.nx=48", "grid.ny=48"],
    "flood/circular_dam_break": [],
    "diffusion/heat3d": ["grid.shape=[24,24,24]"],
    "md/melt": ["system.cells=[12,12,12]"],
    "train/gpt": ["batch.size=4"],
}
ROUNDS = (1.0, 1.3, 0.9, 1.1, 1.7)  # how slow the machine is


def times(law_of_ranks, counts=(1, 2, 4, 8)) -> dict[int, list[float]]:
    return {n: [slow * law_of_ranks(n) for slow in ROUNDS] for n in counts}


@pytest.mark.parametrize("serial", by_day([0.0, 0.03, 0.4, -0.02], 0.03))
@pytest.mark.parametrize("base", by_day([1, 3], 3))
def test_the_fits_find_the_serial_fraction_that_was_put_in(serial, base):
    counts = [base * n for n in (1, 2, 4, 8)]
    strong = times(lambda n: serial + (1 - serial) * base / n, counts)
    weak = times(lambda n: (n / base) / (n / base - serial * (n / base - 1)), counts)
    for measured, is_weak in ((strong, False), (weak, True)):
        found = serial_fraction(measured, is_weak)
        assert found.value == pytest.approx(serial, abs=1e-12)
        assert found.low == pytest.approx(found.high, abs=1e-12), "what slows a whole round cancels"
        for n in counts[1:]:
            expected = law(serial, n / base, is_weak)
            assert efficiency(measured, n, is_weak).value == pytest.approx(float(expected), rel=1e-12)
    assert karp_flatt(strong, counts[-1], False).value == pytest.approx(serial, abs=1e-12)


def test_intervals_hold_the_median_and_widen_with_the_noise():
    generator = np.random.default_rng(3)
    quiet = {n: list((1 + 0.01 * generator.standard_normal(15)) / n) for n in (1, 2)}
    loud = {n: list((1 + 0.1 * generator.standard_normal(15)) / n) for n in (1, 2)}
    narrow, wide = (efficiency(measured, 2, False) for measured in (quiet, loud))
    assert narrow.low < narrow.value < narrow.high
    assert 3 < (wide.high - wide.low) / (narrow.high - narrow.low) < 40
    assert efficiency({1: [1.0], 2: [0.5]}, 2, False) == Estimate(1.0, 1.0, 1.0)
    assert serial_fraction({4: [1.0]}, False) is None


def test_more_ranks_than_cores_are_told_on_each_host():
    one = [{"host": "a", "cores": [0, 1]}] * 3
    assert [crowded(one, n) for n in (1, 2, 3)] == [False, False, True]
    bound = [{"host": "a", "cores": [n]} for n in range(3)]
    assert not crowded(bound, 3)
    assert not crowded([*one[:2], {"host": "b", "cores": [0, 1]}], 3)


@pytest.mark.parametrize("target", APPS)
def test_apps_grow_with_the_ranks_and_tell_their_halos(target):
    study = Study(target, tuple(APPS[target]), (1, 2, 4), weak=True)
    alone = study.load(1)
    assert alone.traffic == ()
    for ranks in (2, 4):
        assert study.load(ranks).work == alone.work
        assert study.load(ranks).traffic
    strong = Study(target, tuple(APPS[target]), (1, 2), weak=False)
    assert strong.load(2).work == pytest.approx(alone.work / 2, rel=0.05)
    stepped = strong.configuration(1, 7)
    if not target.startswith("flood"):
        assert stepped.app.dry_run(stepped.config, 1).steps == 7
    if target.startswith(("weather", "diffusion")):
        halo = strong.load(2).traffic[0]
        sent = max(halo.plans[0].nbytes(rank, halo.itemsize) for rank in range(2))
        base = strong.configuration(2)
        assert halo.calls * sent == base.app.dry_run(base.config, 2).halo_bytes


def test_a_problem_that_cannot_grow_or_be_cut_is_refused(tmp_path):
    with pytest.raises(HpckitError, match="at most"):
        Study("weather/thermal", ("grid.nx=12",), (4,), weak=False).check()
    with pytest.raises(InputError, match="no scaling studies"):
        _ = Study("weather/validate", (), (2,), weak=False).module
    data = tmp_path / "few.data"
    data.write_text(
        "few\n\n1 atoms\n1 atom types\n\n0 9 xlo xhi\n0 9 ylo yhi\n0 9 zlo zhi\n\nAtoms # atomic\n\n1 1 1 1 1\n"
    )
    with pytest.raises(InputError, match="do not grow"):
        Study("md/melt", (f"system.file={data}",), (2,), weak=True).load(2)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"repeats": 0}, "nothing is measured"),
        ({"seconds": 0.0}, "nothing is measured"),
        ({"launcher": "no-such-launcher -x"}, "no program 'no-such-launcher'"),
        ({"launcher": "srun '--mpi=pmix"}, "No closing quotation"),
        ({"machine": "no-such-machine"}, "no machine"),
        ({"words": ["mine.py"]}, "is a program"),
        ({"words": ["all", "grid.nx=9"]}, "settings belong to one app"),
    ],
)
def test_mistakes_are_told_before_anything_is_made(tmp_path, changed, said):
    options = dict.fromkeys(("weak", "strong", "gpu", "no_ceiling"), False) | {"launcher": "", "seconds": None}
    options |= {"words": ["diffusion/heat"], "ranks": (1,), "repeats": None, "steps": None, "machine": None}
    with pytest.raises(InputError, match=said):
        run(**{**options, **changed}, out=tmp_path / "study")
    assert not (tmp_path / "study").exists()


def test_settings_of_the_study_come_before_those_of_the_user():
    assert words_with(["a=1", "b.c = 2"], {"b.c": 3.5, "d": [1, 2]}) == ["a=1", "b.c=3.5", "d=[1, 2]"]


def machine(latency: float) -> Machine:
    return Machine("toy", (Level("node", 0, latency, 1e9),), 0.0, 1e9)


def test_the_model_is_computing_plus_exchanges_and_its_band_holds_the_measured_points():
    study = Study("diffusion/heat", ("grid.shape=[512,512]",), (1, 2), weak=False)
    sure = {1: Estimate(1.0, 1.0, 1.0), 2: Estimate(0.61, 0.61, 0.61)}
    found = curve(study.load, sure, {2: Estimate(1.1, 1.1, 1.1)}, machine(1e-3), 2)
    by_ranks = {point.ranks: point for point in found.points}
    assert by_ranks[2].compute == pytest.approx(0.55)
    assert by_ranks[2].communicate == study.load(2).seconds(machine(1e-3)) > 1e-3
    assert found.missed == pytest.approx(0.61 / by_ranks[2].seconds - 1)
    assert by_ranks[2].low < 0.61 <= by_ranks[2].high
    assert by_ranks[4096].seconds == pytest.approx(1.1 / 4096 + study.load(4096).seconds(machine(1e-3)))
    assert not found.ends
    small = Study("diffusion/heat", ("grid.shape=[20,20]",), (1, 2), weak=False)
    ended = curve(small.load, sure, {}, machine(1e-3), 2)
    assert ended.points[-1].ranks == 256
    assert "at most" in ended.ends or "cannot" in ended.ends


def test_a_load_without_exchanges_costs_nothing():
    assert Load(1.0).seconds(machine(1.0)) == 0.0
    assert halos([], 8) == ()


@pytest.fixture(scope="module")
def made() -> dict:
    """What the ranks would tell of a study of 1, 2 and 4 ranks on 2 cores."""
    runs = [
        {
            "kind": kind,
            "ranks": n,
            "turn": turn,
            "seconds": seconds * slow,
            "steps": 9,
            "waited": 0.0,
        }
        for turn, slow in enumerate(ROUNDS)
        for kind, n, seconds in (
            ("together", 1, 0.1),
            ("together", 2, 0.055),
            ("together", 4, 0.06),
            ("apart", 2, 0.104),
        )
    ]
    study = Study("diffusion/heat", ("walls.x_low=300",), (1, 2, 4), weak=False)
    phases = {str(n): {"core": [0.02 + 0.01 * rank for rank in range(n)]} for n in (1, 2, 4)}
    places = [{"host": "a", "cores": [0, 1]}] * 4
    # Rounds with another program on a core of two ranks: too slow by half. Four ranks take each other's cores.
    runs += [
        {**each, "turn": turn, "seconds": 1.5 * each["seconds"], "waited": 0.3 if each["ranks"] == 2 else 0.0}
        for turn, each in itertools.product((5, 6), runs[:4])
    ]
    runs = [{**each, "waited": 0.5} if each["ranks"] == 4 else each for each in runs]
    found = evaluated(study, {"places": places, "runs": runs, "phases": phases}, 5, machine(1e-6))
    about = {"command": 'hpckit bench scaling "quoted" \\ text', "hpckit": "0", "started": "now"}
    return {**found, "steps": 9, "machine": {"cpu": "a_b & c"}, "provenance": about}


def test_fits_leave_out_what_shares_cores(made):
    points = {point["ranks"]: point for point in made["points"]}
    assert [point["oversubscribed"] for point in points.values()] == [False, False, True]
    assert points[2]["efficiency"]["value"] == pytest.approx(0.1 / 0.055 / 2)
    assert points[2]["ceiling"]["value"] == pytest.approx(0.1 / 0.104)
    assert undisturbed({1: [1.0, 9.0, 1.0], 2: [0.9, 0.5, 0.9]}, 2, False) == 1.0
    assert undisturbed({1: [1.0, 9.0], 2: [2.0, 1.25]}, 2, True) == 0.8
    assert points[2]["phases"]["core"] == pytest.approx({"mean": 0.025, "least": 0.02, "most": 0.03})
    assert points[2]["phases"]["other"]["mean"] == pytest.approx(points[2]["seconds"]["value"] - 0.025)
    assert made["fit"]["serial"]["value"] == pytest.approx(0.1, abs=1e-12)
    assert "4*" in markdown(made)
    assert "oversubscribed" in markdown(made)
    text = latex(made)
    assert r"a\_b \& c" in text
    assert text.count(r"\\") == 4
    assert r"\toprule" in text


def test_a_fit_that_is_no_fraction_says_so(made):
    assert "not a fraction" not in markdown(made)
    slow = {"law": "Amdahl", "serial": {"value": 1.5, "low": 1.1, "high": 1.6}}
    assert "is not a fraction: more ranks take longer" in markdown({**made, "fit": slow})


def test_rounds_that_other_programs_disturb_are_left_out_and_told(made):
    assert (made["rounds"], made["rounds_made"], made["rounds_disturbed"], made["disturbance"]) == (5, 7, 0, 0.0)
    assert [run["turn"] for run in made["runs"] if not run["used"]] == [5] * 4 + [6] * 4
    assert "Of 7 rounds these" in markdown(made)
    turns = [
        {"ranks": n, "turn": turn, "waited": w} for n, turn, w in ((1, 0, 0.2), (2, 0, 0.0), (1, 1, 0.5), (2, 2, 0.1))
    ]
    assert calmest(turns, 2, ()) == {0: 0.2, 2: 0.1}
    assert calmest(turns, 9, [1]) == {0: 0.0, 1: 0.0, 2: 0.1}
    assert disturbance(turns[:1], [1]) == 0.0 < CALM < disturbance(turns[:1], [])
    text = markdown({**made, "rounds_disturbed": 3, "disturbance": 0.25})
    assert "In 3 of them a rank waited for its core, at most 25% of a turn" in text


def test_the_reframe_test_is_a_program_with_the_measured_references(made, tmp_path):
    text = reframe_test(made)
    tree = ast.parse(text)
    values = {node.targets[0].id: ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign)}
    assert values["COUNTS"] == [1, 2]
    assert values["WORDS"] == ["diffusion/heat", "walls.x_low=300"]
    assert values["REFERENCES"]["*"][2][0] == pytest.approx(55 * 1.1)
    reframe = Path(sys.executable).parent / "reframe"
    if not reframe.exists():
        pytest.skip("no ReFrame: pip install ReFrame-HPC")
    (tmp_path / "made.py").write_text(text)
    done = subprocess.run(
        [reframe, "-c", "made.py", "--list", "--prefix", tmp_path],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Found 2 check(s)" in done.stdout, done.stdout + done.stderr


class Still:
    """A device, and a barrier, of which nothing is to be waited for."""

    def wait(self) -> None:
        pass

    Barrier = wait


@pytest.mark.parametrize("many", [1, 2, 3])
def test_turns_count_steps_where_an_app_takes_several_at_once(many, monkeypatch):
    monkeypatch.setattr("hpckit.bench.scaling.ranks.time.perf_counter", lambda: float(made))
    monkeypatch.setattr("hpckit.bench.scaling.ranks.core_wait", lambda: 0.0)
    turn, made = TimedSteps(Still(), skipped=4, steps=6), 0
    while True:
        made += many  # a second a step
        if turn.step(Still(), many):
            break
    assert made == math.ceil(4 / many) * many + math.ceil(6 / many) * many
    assert turn.seconds == 1.0


@pytest.mark.nightly
def test_a_study_for_real(tmp_path, monkeypatch):
    """Both kinds of runs on 1 and 2 ranks, of an app that takes two steps at once; the files hold what was printed."""
    if shutil.which("mpiexec") is None and not (Path(sys.executable).parent / "mpiexec").exists():
        pytest.skip("no mpiexec")
    monkeypatch.chdir(tmp_path)
    options = dict.fromkeys(("weak", "strong", "gpu", "no_ceiling"), False) | {"launcher": "", "seconds": None}
    options |= {
        "words": ["shallow_water/adjustment", "grid.nx=24", "grid.ny=24"],
        "ranks": (1, 2),
        "repeats": 2,
        "steps": 5,
    }
    found = run(**options, out=tmp_path / "study", machine="infiniband")
    assert [row["ranks"] for row in found["results"]] == [1, 2]
    assert set(found["ratios"]) == {"shallow_water_eff", "shallow_water_ceiling"}
    record = json.loads((tmp_path / "study" / "scaling.json").read_text())
    used = [each for each in record["runs"] if each["used"]]
    assert len(used) == 6
    assert all(0 <= each["waited"] <= 1 for each in record["runs"])
    assert all(each["seconds"] > 0 and each["steps"] == 5 for each in record["runs"])
    order = [(each["kind"], each["ranks"]) for each in record["runs"][:6]]
    assert order == [*(kinds := [("together", 1), ("together", 2), ("apart", 2)]), *kinds[::-1]]
    assert {"halo", "wait", "other"} <= set(record["points"][1]["phases"])
    with h5py.File(tmp_path / "study" / "scaling.h5") as file:
        assert file["ranks"][:].tolist() == [1, 2]
        assert file["seconds"][1, 0] == record["points"][1]["seconds"]["value"]
        assert json.loads(file.attrs["provenance"])["hpckit"]
        assert file["model/seconds"].shape == file["model/ranks"].shape
    page = (tmp_path / "study" / "index.html").read_text()
    assert page.count("<svg") == 3
    assert not [path for path in (tmp_path / "study").iterdir() if path.is_dir()], "the runs are removed"
