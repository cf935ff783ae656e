"""Run files and their layers: good input with its origins, and every kind of mistake with its place."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from cli_command import hpckit, probe_app  # noqa: F401  (a fixture)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpckit.errors import HpckitError, InputError
from hpckit.settings.apps import App, apps, find_preset
from hpckit.settings.config import load
from hpckit.settings.run_file import key_lines

pytestmark = pytest.mark.usefixtures("probe_app")


def file(text: str, name: str = "run.toml") -> str:
    Path(name).write_text(text)
    return name


def mistakes(target: str, *words: str) -> str:
    with pytest.raises(InputError) as caught:
        load(target, list(words))
    assert caught.value.exit_code == 2
    return caught.value.report()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--grid.nx=400"], "give grid.nx=400"),
        (["dynamics.kind=nvt"], "'nose_hoover' or 'bussi' or 'langevin'"),
        (["dynamics.kind=csvr"], "'bussi'"),
        (["dynamics.thermostat=bussi"], "did you mean dynamics.kind?"),
        (["dynamics.friction=1"], "did you mean dynamics.damping?"),
    ],
)
def test_names_of_other_programs_find_ours(words, said, capsys):
    from hpckit.cli.main import main

    assert main(["run", "md/melt", *words, "--show-config"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("text", "shown"), [("15 min", "900.0"), ("1:00:00", "3600.0"), ("7", "7.0"), ("soon", "")])
def test_a_span_is_a_time_of_a_run(text, shown, capsys):
    from hpckit.cli.main import main

    assert main(["run", "diffusion/heat", f"time.end={text}", "--dry-run"]) == (0 if shown else 2)
    if not shown:
        assert "is not a time span" in capsys.readouterr().err
        return
    from hpckit.apps.diffusion.config import Config

    given = 7 if text == "7" else text
    assert str(Config.model_validate({"app": "diffusion", "time": {"end": given}}).time.end) == shown


def test_layers_win_in_order_and_name_their_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    user = file(
        "[probe.grid]\nnx = 11\nnz = 12\n[probe.time]\nsteps = 13\n[probe.input]\nlabel = 'mine'\n", "user.toml"
    )
    run = file("app = 'probe'\n[grid]\nnz = 21\n[time]\nsteps = 22\nseconds_per_step = 0\n")
    monkeypatch.setenv("HPCKIT_CONFIG", user)
    monkeypatch.setenv("HPCKIT_TIME__STEPS", "33")
    monkeypatch.setenv("HPCKIT_FAILURE__RANK", "34")
    configuration = load(run, ["failure.rank=44", "grid.spacing=[1, 2.5]"])
    leaves = {key: (value, origin) for key, value, origin in configuration.leaves()}
    assert leaves["repro"] == (False, "default")
    assert leaves["grid.nx"] == (11, "user.toml:2")
    assert leaves["grid.nz"] == (21, "run.toml:3")
    assert leaves["time.steps"] == (33, "environment HPCKIT_TIME__STEPS")
    assert leaves["time.seconds_per_step"] == (0.0, "run.toml:6")
    assert leaves["failure.rank"] == (44, "command line")
    assert leaves["grid.spacing"] == ([1.0, 2.5], "command line")
    assert leaves["input.label"] == ("mine", "user.toml:7")
    assert configuration.title == "run"


def test_presets_by_name_by_app_and_alone() -> None:
    assert load("short", []).values()["time"]["steps"] == 3
    assert load("probe.short", []).title == "short"
    assert load("probe", []).values()["time"]["steps"] == 5
    assert dict(load("short", []).origins)["time.steps"] == "preset short"
    assert dict(load("short", []).origins)["time.seconds_per_step"] == "default"


def test_settings_that_do_not_go_together_are_told_where_they_were_said() -> None:
    box = file('app = "weather3d"\n[dynamics]\nkind = "hevi"\n[lid]\ndepth = 1e9\n')
    report = mistakes(box, "grid.lowest=1e8")
    assert "2 mistakes" in report
    assert "run.toml:5: lid.depth" in report
    assert "command line: grid.lowest" in report
    liquid = mistakes("md/melt", "dynamics.kind=fire", "dynamics.equilibrate=5", "replicas.temperatures=[1, 2]")
    assert "2 mistakes" in liquid
    plate = mistakes("heat", "walls.z_low=3", "walls.y_high=-4")
    assert "command line: walls.z_low" in plate
    assert "command line: walls.y_high" in plate
    far = 'name = "far"\nx = 1e9\ny = 1.0\n'
    stations = file(f'app = "weather3d"\n[[output.stations]]\nname = "a"\nx = 1.0\ny = 1.0\n[[output.stations]]\n{far}')
    assert "run.toml:6: output.stations.1 " in mistakes(stations)
    assert "command line: output.stations.0 " in mistakes(box, 'output.stations=[{name="far", x=1e9, y=1.0}]')


def test_all_mistakes_in_one_pass_with_line_key_and_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCKIT_GRID__NX", "wide")
    monkeypatch.setenv("HPCKIT_TIME", "{steps=2}")
    monkeypatch.setenv("HPCKIT_TIME__STEPS", "3")
    run = file(
        """app = "probe"
repro = 1
nz = 3

[grid]
nxx = 3
nz = 100_000
spacing = [1.0,
  "a",
]
[time]
stps = 4
seconds_per_step = "fast"
[failure]
kind = "kil"
rank = -1
[other]
x = 1
"""
    )
    report = mistakes(run, "input.table=nix.txt", "x", "grid.nz.deep=2", "failure.step=1.5")
    expected = [
        "run.toml:2: repro = 1: expected true or false",
        "run.toml:3: nz: unknown key; did you mean grid.nz?",
        "run.toml:6: grid.nxx: unknown key; did you mean grid.nx?",
        "run.toml:7: grid.nz = 100000: expected a whole number, at least 1, at most 1000",
        'run.toml:8: grid.spacing.1 = "a": expected a number',
        "run.toml:12: time.stps: unknown key; did you mean time.steps?",
        'run.toml:13: time.seconds_per_step = "fast": expected a number, at least 0',
        'run.toml:15: failure.kind = "kil": expected "none", "raise"',
        "did you mean 'kill'?",
        "run.toml:16: failure.rank = -1: expected a whole number, at least 0",
        "run.toml:17: other: unknown key; known here: app, repro, grid, time, failure, input",
        'environment HPCKIT_GRID__NX: grid.nx = "wide": expected a whole number',
        "environment HPCKIT_TIME__STEPS: another variable gives time.steps a value",
        "command line: 'x': expected key=value",
        "command line: grid.nz: a table here and a value in run.toml:7",
        "command line: failure.step = 1.5: expected a whole number",
    ]
    for part in expected:
        assert part in report
    assert "there is no file" in report
    assert report.count("\n") == int(report.split(" mistakes")[0].split()[-1])


def test_contradictions_are_told_with_the_wrong_values() -> None:
    """Settings that do not go together, and values that cannot be, in one pass; the latter count as their defaults."""
    run = file("app = 'probe'\nrepro = 1\n[failure]\nkind = 'kill'\nstep = 9\n[grid]\nspacing = ['a', 1.0]\n")
    report = mistakes(run, "grid.nxx=3")
    assert "4 mistakes" in report
    assert "run.toml:5: failure.step 9 is after the last step" in report
    assert report.endswith("(with repro and grid.spacing and grid.nxx as by default)")
    assert "after the last" not in mistakes(run, "time.steps=9"), "what settles it is not told"


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("app = 'probe'\n[failure]\nkind = 'kill'\nstep = 9\n", [], "run.toml:4: failure.step 9 is after the last"),
        ("[grid]\nnx = 1\n", [], "run.toml does not say which app"),
        ("\napp = 'prob'\n", [], "run.toml:2: no app 'prob'"),
        ("app = 3\n", [], "run.toml:1: no app 3"),
        ("app = 'probe'\n[grid]\nnx = \n", [], "run.toml:3: Invalid value, in: nx ="),
        ("app = 'probe'\n[grid\nnx = 1\n", [], "run.toml:2: "),
        ("app = 'probe'\nrepro = true\nrepro = false\n", [], "run.toml:3: Cannot overwrite a value"),
        ("app = 'probe'\n[grid]\nnx = 1\n[grid]\n", [], "run.toml:4: "),
        ("app = 'probe'\nlabel = 'open\n", [], "run.toml:2: "),
        ("app = 'probe'\ngrid = 3\n", [], "run.toml:2: grid = 3: expected a table"),
        ("app = 'probe'\n[time]\nseconds_per_step = inf\n", [], "run.toml:3: time.seconds_per_step: must be finite"),
        ("app = 'probe'\n", ["grid.nx"], "command line: 'grid.nx': expected key=value"),
        ("app = 'probe'\n", ["=3"], "command line: '=3': expected key=value"),
        ("app = 'probe'\n", ["grid..nx=3"], "command line: 'grid..nx=3': expected key=value"),
        ("app = 'probe'\n", ["grid.nx=3", "grid.nx.y=3"], "another word gives grid.nx.y or a part of it a value"),
        ("app = 'probe'\n", ["grid.nx=3", "grid.nx=4"], "command line: 'grid.nx=4': 'grid.nx=3' gives grid.nx a value"),
        ("app = 'probe'\n", ["grid.nx=3", "grid={ny=4}"], "another word gives grid or a part of it a value"),
        ("app = 'probe'\n", ["gird.nx=3"], "command line: gird: unknown key; did you mean grid?"),
        ("app = 'probe'\n", ["repro=1"], "command line: repro = 1: expected true or false"),
        ("app = 'probe'\n", ["grid.spacing=[1]"], "command line: grid.spacing"),
        ("app = 'probe'\n", ["input.table=."], "is a folder; give a file"),
        ("app = 'probe'\n", ["input.table=" + "x" * 300], "cannot be read: File name too long"),
        ("app = 'probe'\n", ["input.label=" + "x" * 21], "expected a text, of at most 20 characters"),
        ("app = 'probe'\ngrid.nz = 3\n", ["grid=5"], "line: grid = 5: expected a table, as in grid.nz"),
        ("app = 'probe'\n", ["grid={nxx=1}"], "command line: grid.nxx: unknown key; did you mean grid.nx?"),
        ("app = 'probe'\ngrid.nx = 2\ngrid.nzz = 3", [], "run.toml:3: grid.nzz: unknown key"),
    ],
)
def test_each_mistake(text: str, words: list[str], expected: str) -> None:
    assert expected in mistakes(file(text), *words)


def test_a_number_that_is_not_finite_is_one_mistake() -> None:
    assert mistakes("weather/thermal", "time.cfl=nan") == "HPK-200 bad input: command line: time.cfl: must be finite"
    assert mistakes("weather/thermal", "time.cfl=inf", "grid.nx=3").count("time.cfl") == 1
    assert mistakes("weather/thermal", "grid.nosuch=nan").count("grid.nosuch") == 1
    assert mistakes("weather/thermal", "grid.nosuch=inf", "grid.nx=nan").count("must be finite") == 1
    assert "grid.lengths.0 = inf: expected a number" in mistakes("heat", "grid.lengths=[inf,1.0]")


def test_targets_that_are_no_run_file(tmp_path: Path) -> None:
    assert "did you mean 'short'?" in mistakes("shrt")
    assert "there is no file nowhere.toml" in mistakes("nowhere.toml")
    assert "there is no file some/where" in mistakes("some/where")
    assert f"{tmp_path} is a folder" in mistakes(str(tmp_path))
    Path("run.toml").write_text("app = 'probe'\n")
    assert f"hpckit run {tmp_path}/run.toml" in mistakes(str(tmp_path))
    (tmp_path / "short").mkdir()
    assert "the preset was meant, which is probe/short" in mistakes("short")
    Path("latin.toml").write_bytes("app = 'probe'\n# caf\xe9\n".encode("latin-1"))
    assert "latin.toml, line 2" in mistakes("latin.toml")
    Path("marked.toml").write_bytes(b"\xef\xbb\xbfapp = 'probe'\n")
    assert load("marked.toml", []).title == "marked"


def test_a_user_file_that_is_named_must_be_there_and_know_its_apps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPCKIT_CONFIG", "none.toml")
    assert "there is no file none.toml" in mistakes("short")
    monkeypatch.setenv("HPCKIT_CONFIG", file("[prob.grid]\nnx = 1\n", "user.toml"))
    assert "user.toml:1: no app 'prob'" in mistakes("short")
    monkeypatch.setenv("HPCKIT_CONFIG", file("probe = 3\n", "user.toml"))
    assert "user.toml:1: probe is a table here" in mistakes("short")
    monkeypatch.setenv("HPCKIT_CONFIG", file("\n[probe.grid]\nnx = 0\n", "user.toml"))
    assert "user.toml:3: grid.nx = 0: expected" in mistakes("short")


def test_a_table_of_a_list_by_its_number() -> None:
    """What it does not name stays, in the other tables too; the preset itself is not touched."""
    found = load("collision", ["bubbles.1.amplitude=-5", "bubbles.0.of=temperature"])
    assert [bubble["amplitude"] for bubble in found.values()["bubbles"]] == [20.0, -5.0]
    assert [bubble["z"] for bubble in found.values()["bubbles"]] == [2000.0, 8000.0]
    assert found.values()["bubbles"][0]["of"] == "temperature"
    assert found.origins["bubbles"] == "command line"
    assert load("collision", []).values()["bubbles"][1]["amplitude"] == -20.0
    for word, reason in {
        "bubbles.2.x=1": "bubbles.2: bubbles has 0 to 1; give the whole list",
        "bubbles.0.y=1": "bubbles.0.y: unknown key",
        "bubbles.x=1": "bubbles: a table here and a value in preset collision",
        "bubbles={}": "bubbles: a table here",
    }.items():
        with pytest.raises(InputError, match=reason):
            load("collision", [word])


def test_words_of_the_command_line_are_toml_or_bare_text() -> None:
    values = load("short", ["input.label=two words", "repro=true", "grid.nx=1_000", "time.seconds_per_step=1"]).values()
    assert values["input"]["label"] == "two words"
    assert values["repro"] is True
    assert values["grid"]["nx"] == 1000
    assert values["time"]["seconds_per_step"] == 1.0
    assert load("short", ["input.label=100"]).values()["input"]["label"] == "100"
    assert load("short", ['input.label="100"']).values()["input"]["label"] == "100"


def test_files_are_relative_to_the_source_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("here", "there"):
        Path(folder).mkdir()
        Path(folder, "table.txt").write_text(folder)
    Path("there/run.toml").write_text("app = 'probe'\n[input]\ntable = 'table.txt'\n")
    monkeypatch.chdir("here")
    assert load("../there/run.toml", []).values()["input"]["table"] == str(tmp_path / "here/../there/table.txt")
    assert load("../there/run.toml", ["input.table=table.txt"]).values()["input"]["table"] == str(
        tmp_path / "here/table.txt"
    )
    monkeypatch.setenv("HPCKIT_INPUT__TABLE", "table.txt")
    assert load("short", []).values()["input"]["table"] == str(tmp_path / "here/table.txt")
    monkeypatch.delenv("HPCKIT_INPUT__TABLE")
    assert load("with-table", []).values()["input"]["table"].endswith("probe_app/table.txt")


@pytest.mark.parametrize("name", ["probe", "short", "with-table", "diffusion", "weather", "weather3d"])
def test_generated_run_files_validate_and_say_what_they_came_from(name: str) -> None:
    made = load(name, [])
    again = load(file(made.run_file), [])
    assert again.config == made.config
    if name in apps():
        assert again.config == made.app.config.model_validate({"app": name}), "the file equals the defaults"
    for key, value, origin in again.leaves():
        assert origin.startswith("run.toml:") or value is None, key


def test_every_preset_of_every_app_is_valid() -> None:
    for app in apps().values():
        assert app.summary
        for preset, (description, _) in app.presets.items():
            assert description
            assert app.may_have(preset), "found without the modules of other apps"
            if not preset.startswith("sounding"):  # asks for the user's own file
                load(f"{app.name}.{preset}", [])


def test_settings_of_all_apps_are_read_and_grids_are_priced_without_what_computes() -> None:
    """The front end's start: Numba alone would take longer than all of it, and each app's settings a while."""
    code = (
        "import sys\nfrom hpckit.settings.apps import apps, find_preset\n"
        "assert find_preset('heat')[0].name == 'diffusion'\n"
        "known = {name for name in sys.modules if name.startswith('hpckit.apps.') and name.endswith('.config')}\n"
        "assert known == {'hpckit.apps.diffusion.config'}, known\n"
        "assert len([app.config for app in apps().values()]) > 8\n"
        "for name in ('diffusion', 'flood', 'shallow_water', 'sphere', 'weather', 'weather3d'):\n"
        "    assert apps()[name].dry_run(apps()[name].config(), 2).steps\n"
        "print({'numba', 'scipy', 'h5py', 'mpi4py.MPI', 'matplotlib'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_presets_that_a_program_makes_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An app of another package need not have the name of a preset in its text: two apps have `heat` here."""
    (tmp_path / "made_app").mkdir()
    (tmp_path / "made_app" / "__init__.py").touch()
    (tmp_path / "made_app" / "config.py").write_text("PRESETS = {'he' + 'at': ('', {}), 'li' + 'ght': ('', {})}")
    every = {**apps(), "made": App("made", "made_app", str(tmp_path))}
    monkeypatch.setattr("hpckit.settings.apps.apps", lambda: every)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert find_preset("light") == (every["made"], "light")
    with pytest.raises(InputError, match="in several apps"):
        find_preset("heat")


def test_every_setting_of_every_app_is_described() -> None:
    from hpckit.settings.schema import Schema, dotted

    for app in apps().values():
        schema = Schema(app.config)
        missing = [dotted(path) for path in schema.leaves() if not schema.description(path) and path != ("app",)]
        assert not missing, f"{app.name}: no description of {', '.join(missing)}"


def test_lines_of_keys() -> None:
    text = '''a = 1 # [no]
"b c".d = """
x = 1
[t]
"""
[t]
list = [
  1, # ]
  "]",
]
e.f = 'x = "[" '
[[u]]
k = 1
[[u]]
k = { x = 1,
  y = 2 }
[u.v]
z = 1
'''
    assert key_lines(text) == {
        ("a",): 1,
        ("b c",): 2,
        ("b c", "d"): 2,
        ("t",): 6,
        ("t", "list"): 7,
        ("t", "e"): 11,
        ("t", "e", "f"): 11,
        ("u",): 12,
        ("u", 0): 12,
        ("u", 0, "k"): 13,
        ("u", 1): 14,
        ("u", 1, "k"): 15,
        ("u", "v"): 17,
        ("u", "v", "z"): 18,
    }


toml_words = st.text(st.sampled_from("abginrdtxz.=[]{}'\"#\n 01-_,\\\u00e9"), max_size=60)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(toml_words, st.lists(toml_words, max_size=3))
def test_any_text_gives_a_configuration_or_an_error_with_a_code(text: str, words: list[str]) -> None:
    Path("fuzz.toml").write_text(f'app = "probe"\n{text}')
    with suppress(HpckitError):
        load("fuzz.toml", words)


@pytest.mark.parametrize("name", ['["probe"]', "{ a = 1 }", "3"])
def test_an_app_that_is_no_text_is_refused(name: str) -> None:
    Path("odd.toml").write_text(f"app = {name}\n")
    with pytest.raises(InputError, match=r"odd.toml:1: no app") as caught:
        load("odd.toml", [])
    assert "apps: " in caught.value.do


def test_settings_beyond_floating_point_are_bad_input(tmp_path: Path) -> None:
    for words in (
        ["heat", "grid.shape=[3,3]", "grid.lengths=[1e-300,1]"],
        ["jet", "grid.width=1e-300", "jet.speed=0"],
        ["droplet", f"system.density={10**400}"],
    ):
        outcome = hpckit("run", *words, "--dry-run", cwd=tmp_path)
        assert (outcome.code, outcome.stderr[:7]) == (2, "HPK-200"), outcome.stderr
        assert "Traceback" not in outcome.stderr
