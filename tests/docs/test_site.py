"""The site: what is made from the code is whole, it builds without a warning, and its pages fetch nothing."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import sys
from collections import defaultdict
from pathlib import Path

import pytest
from blocks import ROOT
from conftest import run_limited

sys.path.insert(0, str(ROOT / "docs" / "generate"))
import commands
import errors
import figures
import python
import settings
import sources

import hpckit
from hpckit.bench.train.serving.perplexity import FORMATS
from hpckit.bench.train.serving.verb import CASES, ratios
from hpckit.cli.main import VERBS
from hpckit.settings.apps import apps
from hpckit.settings.schema import Schema

FETCHED = re.compile(
    r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*href=["']?(?:https?:)?//"""
)
CSS_FETCHES = re.compile(r"""(?:@import\s|url\()["']?(?:https?:)?//""")


def test_every_verb_and_every_benchmark_has_its_options_on_the_page_of_commands():
    page = commands.page()
    for verb in VERBS:
        assert f"\n## hpckit {verb}\n" in page
    for words in (
        "`--show-config`",
        "--array-limit",
        "--against",
        "### hpckit plan pipeline",
        "### hpckit plan halo",
        "ckpt verify",
    ):
        assert words in page
    assert "==SUPPRESS==" not in page


def test_every_key_of_every_app_is_on_its_page():
    for app in apps().values():
        page = settings.page(app)
        for path in Schema(app.config).leaves():
            assert path == ("app",) or f"| `{path[-1]}` |" in page, (app.name, path)
        assert all(f"| `{preset}` |" in page for preset in app.presets)


def test_every_public_name_is_in_the_reference():
    page = python.index()
    names = {*hpckit.__all__} - {*hpckit.NAMESPACES, "__version__"}
    for name in (*names, *(f"plan.{name}" for name in hpckit.plan.__all__), "bc.mirror", "training.LocalSGD"):
        assert f"### `hp.{name}`" in page, name
    assert "## Others" not in page  # a new name belongs to a group of docs/generate/python.py
    for name in python.PAGES:
        assert python.page(name).count("\n## hpckit.") >= 1


def test_every_error_code_is_explained():
    page = errors.page()
    assert len(re.findall(r"^## HPK-\d+: ", page, re.M)) == len(errors.EXPLANATIONS) > 10


def test_the_readme_has_the_numbers_of_the_figures():
    rows = figures.readme_rows()
    assert len(rows) >= 15
    for key, (words, printed, bench) in rows.items():
        ratio = figures.ratios(bench)[key]["median"]
        digits = len(printed.partition(".")[2])
        assert printed in (f"{ratio:.{digits}f}", f"{1 / ratio:.{digits}f}"), (
            f"{words}: {key} is {ratio:.4g} in {bench}.json"
        )


def test_every_ratio_of_the_figures_says_what_it_is():
    rows = figures.readme_rows()
    for path in figures.FIGURES.glob("*.json"):
        nameless = [key for key in figures.ratios(path.stem) if key not in rows and key not in figures.WORDS]
        assert not nameless, f"{path.name}: docs/generate/figures.py has no words for {nameless}"
    prompts = {"our_prompt": [1.0], "their_prompt": [1.0]}
    read = {**prompts, "read": [1.0]}
    timed = {"theirs": prompts, "llama_cpp": read, "openvino": read}
    found = {"perplexity": dict.fromkeys(FORMATS, 1.0), "gain": [1.0]}
    every = {
        key
        for case, (name, *_) in CASES.items()
        for key in ratios(case, name, defaultdict(lambda: [1.0], timed.get(name, {})), found)
    }
    assert every > {"tp2_decode_ceiling", "prefill_q8_vs_xllamacpp", "perplexity_q4_0", "speculation_where_it_fails"}
    assert sorted(every - {*figures.WORDS} - {*rows}) == []


def test_links_that_leave_the_docs_become_pages():
    text = "[a](../kernels/stencil/reference.py) [b](grids.md#plans) [c](../jobscripts) [d](https://example.org)"
    found = sources.relinked(text, "gpu.md")
    assert found == (
        "[a](source/kernels/stencil/reference.py.md) [b](grids.md#plans) [c](source/jobscripts.md) [d](https://example.org)"
    )
    assert sources.relinked("[a](../../jobscripts)", "how-to/slurm.md") == "[a](../source/jobscripts.md)"


def test_the_readme_links_to_what_is_there():
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", (ROOT / name).read_text(encoding="utf-8")):
            assert (ROOT / target).exists(), f"{name}: {target}"


BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
LONE = ("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking")


def check_that_its_search_finds(site: Path, words: str, page: str) -> None:
    """In a browser, without a server."""
    address = f"{(site / 'index.html').as_uri()}?q={words}"
    options = [*LONE, f"--user-data-dir={site.parent / 'browser'}", "--virtual-time-budget=30000", "--dump-dom"]
    outcome = run_limited([BROWSER, *options, address], 100)
    assert re.search(r"\d+ matching documents", outcome.stdout), outcome.stderr
    found = re.findall(r'<a href="([^"]+)" class="md-search-result__link', outcome.stdout)
    assert any(page in each for each in found), found


@pytest.mark.skipif(
    importlib.util.find_spec("material") is None, reason="mkdocs-material is not installed: extra `docs`"
)
def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    outcome = run_limited(command, 200, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    assert outcome.code == 0, outcome.stderr  # --quiet would count no warning
    made = {path: path.read_text(encoding="utf-8") for path in (tmp_path / "site").rglob("*.html")}
    assert len(made) > 60
    for path, text in made.items():
        assert not FETCHED.search(text), f"{path} fetches {FETCHED.search(text)[0]}"
    for path in (tmp_path / "site").rglob("*.css"):
        assert not CSS_FETCHES.search(path.read_text(encoding="utf-8")), path
    if BROWSER:
        check_that_its_search_finds(tmp_path / "site", "requeue", "cluster.html")
