"""What an app adds to its report, and the settings of the report."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from made_run import LEAN, make_run

from hpckit.cli.main import main
from hpckit.errors import InputError
from hpckit.report import build_report
from hpckit.report.extension import ReportSection, app_sections
from hpckit.report.page import escape, table
from hpckit.report.settings import Report, settings_of
from hpckit.settings.apps import App, apps

pytestmark = pytest.mark.usefixtures("quick_runs")

pytest.importorskip("matplotlib")


def record_of(directory):
    return json.loads((directory / "report/report.json").read_text())


def test_an_app_brings_a_section(tmp_path):
    def sections(run):
        rows = [(escape("front"), "14.5 km", "14.53 km")]
        yield ReportSection(
            "published", "Beside published numbers", table(("what", "ours", "theirs"), rows), {"front": 14.5}
        )

    directory = make_run(tmp_path / "run")
    page = build_report(directory, SimpleNamespace(sections=sections), **LEAN).read_text()
    assert page.index("<h2>Fields</h2>") < page.index("<h2>Beside published numbers</h2>")
    assert page.index("<h2>Beside published numbers</h2>") < page.index("<h2>Conservation</h2>")
    assert record_of(directory)["sections"] == {"published": {"front": 14.5}}
    with pytest.raises(ValueError, match="after one of"):
        ReportSection("a", "b", "c", after="nowhere")


@pytest.mark.nightly
def test_metrics_that_an_app_draws_have_no_second_chart(tmp_path):
    directory = make_run(tmp_path / "run")
    for metrics, charts in (((), 1), (("w_max",), 0)):
        brought = SimpleNamespace(sections=lambda run, drawn=metrics: [ReportSection("a", "A", "", metrics=drawn)])
        page = build_report(directory, brought, **LEAN).read_text()
        assert page.count('aria-label="w max (m/s) over time"') == charts
        assert page.count('aria-label="CFL number over time"') == 1
        assert ">w max (m/s)</td>" in page


@pytest.mark.nightly
def test_an_app_that_fails_does_not_end_the_report(tmp_path):
    def front(run):
        yield ReportSection("speed", "Speed", "14 m/s")
        raise KeyError("<front>")

    def sections(run):
        yield front(run)
        yield ["no section"]
        yield ReportSection("late", "Late", "after all")
        raise ValueError("all of it")

    directory = make_run(tmp_path / "run")
    page = build_report(directory, SimpleNamespace(sections=sections), **LEAN).read_text()
    assert "front of the report failed: KeyError" in page
    assert "sections of the report failed: ValueError: all of it" in page
    assert "expected a ReportSection, not" in page
    assert "<front>" not in page
    for title in ("Speed", "Late", "Conservation"):
        assert f"<h2>{title}</h2>" in page
    told: list[str] = []
    assert app_sections(SimpleNamespace(sections=lambda run: 1 / 0), SimpleNamespace(tell=told.append)) == []
    assert "ZeroDivisionError" in told[0]


def test_the_module_report_of_an_app_is_found_by_name(tmp_path, monkeypatch):
    (tmp_path / "made_app_beside").mkdir()
    for name, text in (("__init__", ""), ("config", "SUMMARY = ''"), ("report", "def sections(run): return []")):
        (tmp_path / "made_app_beside" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert App("made", "made_app_beside").report_module.sections(None) == []
    (tmp_path / "made_app_without").mkdir()
    (tmp_path / "made_app_without" / "__init__.py").touch()
    assert App("made", "made_app_without").report_module is None


def test_settings_come_from_the_run_file_and_then_from_options():
    problems: list[str] = []
    resolved = {"values": {"report": {"times": 3, "cut": "center"}}}
    assert settings_of(resolved, problems, times=4) == Report(times=4, cut="center")
    assert not problems
    assert settings_of({"values": {"report": {"times": 300}}}, problems) == Report()
    assert "less than or equal to 24" in problems[0]
    assert settings_of({"values": []}, []) == Report()
    for name in ("weather", "weather3d", "shallow_water", "diffusion"):
        assert apps()[name].config.model_fields["report"].annotation is Report


@pytest.mark.nightly
def test_options_of_the_verb(tmp_path, capsys):
    directory = make_run(tmp_path / "run")
    assert main(["report", str(directory), "--times", "3", "--frames", "0", "--no-spectra", "--no-roofline"]) == 0
    assert len(record_of(directory)["fields"]["theta"]["times_shown"]) == 3
    assert main(["report", str(directory), "--times", "0"]) == 2
    assert main(["report", str(directory), "--frames", "-1"]) == 2
    assert main(["report", str(directory), "--variable", "thta"]) == 2
    assert "theta" in capsys.readouterr().err
    with pytest.raises(InputError, match="thta"):
        build_report(directory, variable="thta")
