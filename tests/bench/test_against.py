"""`hpckit bench weather --against`: what is read from a program's output, what is refused, the ratio."""

from __future__ import annotations

import json
import math
import shlex
import sys
import time

import pytest

from hpckit.bench.rivals.program import Rival, in_turn
from hpckit.bench.weather import verb as weather
from hpckit.cli.verbs import bench
from hpckit.errors import InputError


def python(program: str) -> str:
    """A command line that runs a Python program."""
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(program)}"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("CPU Time: 1.23", 1.23),
        ("nx_global: 400\nCPU Time: 4.5e-1\nd_mass: 1.2e-14", 0.45),
        ("Elapsed wall time = 7", 7.0),
        ("done 300 steps in 2.5 sec", 2.5),
        ("took 12 seconds", 12.0),
        ("total seconds: .75", 0.75),
        ("Elapsed Time: 49.8 / 50.0\nElapsed Time: 50.0 / 50.0\nCPU Time: 3.25 sec", 3.25),
        ("step 1: 0.5 sec\nstep 2: 0.75 sec", 0.75),
        ("Elapsed: 4.5 s", 4.5),
    ],
)
def test_the_seconds_a_program_prints_are_found(text, seconds):
    assert Rival(python(f"print({text!r})")).seconds() == (seconds, True)


def test_a_pattern_of_ones_own_finds_them_and_silence_is_wall_time():
    assert Rival(python("print('x=5 t=0.5')"), r"t=([0-9.]+)").seconds() == (0.5, True)
    assert Rival(python("import sys; print('t=0.5', file=sys.stderr)"), r"t=([0-9.]+)").seconds() == (0.5, True)
    begin = time.perf_counter()
    seconds, printed = Rival(python("import time; time.sleep(0.2); print('x=5')")).seconds()
    assert not printed
    assert 0.2 <= seconds <= time.perf_counter() - begin
    assert not Rival(python("print('Elapsed Time: 50.0 / 50.0')")).seconds()[1]  # simulated


@pytest.mark.parametrize(
    ("command", "pattern", "message"),
    [
        ("/nowhere/miniWeather", None, "does not start: No such file"),
        ("/", None, "does not start: "),
        ("", None, "no command"),
        ("'half", None, "cannot be read"),
        (python("import sys; print('no grid', file=sys.stderr); sys.exit(3)"), None, "ended with 3: no grid"),
        (python("pass"), "CPU: ([0-9.]+)", "printed nothing that"),
        (python("pass"), "CPU: [0-9.]+", "has no group"),
        (python("pass"), "CPU: (", "not a regular expression"),
        (python("print('CPU: many')"), "CPU: (.*)", "not a number of seconds"),
        (python("print('CPU Time: 0.0')"), None, "too short or too long"),
    ],
)
def test_a_program_that_cannot_be_compared_with_is_refused(command, pattern, message):
    rival = Rival(command, pattern)

    def compared() -> None:
        rival.check()
        rival.seconds()

    with pytest.raises(InputError, match=message):
        compared()


def test_rounds_are_in_turn(tmp_path):
    log = tmp_path / "log"
    rival = Rival(python(f"open({str(log)!r}, 'a').write('T'); print('CPU Time: 2.0')"))

    def ours() -> None:
        with log.open("a") as file:
            file.write("o")

    theirs, own, printed = in_turn(rival, ours, 3)
    assert log.read_text() == "oToToTo"  # the first compiles
    assert (theirs, len(own), printed) == ([2.0] * 3, 3, True)


def test_the_ratio_is_of_the_same_case(capfd):
    """Against a program that claims 100 s: steps of the case as the mini-app takes them."""
    command = python("print('CPU Time: 100.0')")
    arguments = ["weather", "--json", "--against", command, "--against-cells", "40x20", "--against-time", "7"]
    assert bench.main(arguments) == 0
    result = json.loads(capfd.readouterr().out)
    ours, theirs = result["results"]
    steps = math.ceil(7 / (500 / 450 * 1.5))
    assert theirs["ns_per_cell_step"] == pytest.approx(100e9 / steps / 800, rel=1e-3)
    assert theirs["time"] == "as it prints"
    ratio = result["ratios"]["weather_vs_against"]
    assert ratio["rounds"] == 3
    assert ratio["low"] <= 100e9 / (ours["ns_per_cell_step"] * 800 * steps) * 1.01  # as it is rounded
    assert list(result["ratios"]) == ["weather_vs_against"]


@pytest.mark.parametrize("names", ["nx_global, nz_global:      ", "nx_glob, nz_glob:"])  # Fortran's form, C++'s
def test_the_case_that_a_program_tells_of_is_taken(names, capfd):
    printed = f"{names} 40 20\nElapsed Time: 6.0 / 9.0\nElapsed Time: 9.0 / 9.0\nCPU Time: 5 sec"
    assert Rival(python(f"print({printed!r})")).case() == ("40x20", 9.0)
    assert Rival(python("print('nothing')")).case() == (None, None)
    assert bench.main(["weather", "--json", "--against", python(f"print({printed!r})")]) == 0
    theirs = json.loads(capfd.readouterr().out)["results"][1]
    assert theirs["ns_per_cell_step"] == pytest.approx(5e9 / math.ceil(9 / (500 / 450 * 1.5)) / 800, rel=1e-3)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"against_cells": "400"}, "is not NXxNZ"),
        ({"against_cells": "4x200"}, "NX of at least 6"),
        ({"against_time": 0.0}, "must be above 0"),
        ({"against_time": math.nan}, "must be above 0"),
        ({"against_rounds": 2}, "at least 3"),
    ],
)
def test_a_case_that_cannot_be_is_refused(more, message):
    with pytest.raises(InputError, match=message):
        weather.run(against=python("print('CPU Time: 1.0')"), **more)


def test_options_that_do_not_go_together_are_refused_before_anything_is_timed():
    with pytest.raises(InputError, match="--against-cells, --against-rounds: which program"):
        weather.run(against_cells="40x20", against_rounds=5)
    with pytest.raises(InputError, match="nothing else"):
        weather.run(against=python("print('CPU Time: 1.0')"), only=["weather_vs_c"])
