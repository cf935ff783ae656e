"""What mkdocs calls while it builds the site (mkdocs.yml): pages that are made, links that leave docs/, tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import architecture
import commands
import errors
import figures
import mpi4py
import python
import settings
import sources
from mkdocs.structure.files import File, Files

from hpckit.settings.apps import apps

mpi4py.rc.initialize = False  # modules that import MPI are read for their docstrings, no MPI is started
DOCS = Path(__file__).parents[1]
NAMED_BLOCK = re.compile(r"^(<!-- file: (\S+) -->\n)((?:<!-- .* -->\n)*)```(\w+)$", re.M)

REFERENCE = """# Reference

Look up any command, setting, error or public name. The build of the site makes these pages from parsers, schemas and
docstrings.

- [Commands](commands.md): every verb of `hpckit` and every option.
- [Settings](settings/index.md): every key of every app's run file, and the presets.
- [Errors](errors.md): error codes and exit codes.
- [Python](python/index.md): `import hpckit as hp`, and the modules below.
"""


def on_config(config: Any) -> Any:
    """List the pages of the reference in the navigation: which there are is known to the code alone."""
    pages: list[Any] = [{"Commands": "reference/commands.md"}, {"Errors and exit codes": "reference/errors.md"}]
    apps_pages = [{app.name: f"reference/settings/{settings.file_name(app.name)}"} for app in _own_apps()]
    modules = [{title: f"reference/python/{name}.md"} for name, (title, _) in python.PAGES.items()]
    pages.append({"Settings": ["reference/settings/index.md", *apps_pages]})
    pages.append({"Python": ["reference/python/index.md", *modules]})
    for entry in config.nav:
        entry.get("Reference", []).extend(pages)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made, and those of files outside of docs/ that pages link to."""
    made = {
        "reference/index.md": REFERENCE,
        "reference/commands.md": commands.page(),
        "reference/settings/index.md": settings.index(),
        "reference/errors.md": errors.page(),
        "reference/python/index.md": python.index(),
        "project/contributing.md": _project("CONTRIBUTING.md"),
        "project/changelog.md": _project("CHANGELOG.md"),
    }
    made |= {f"reference/settings/{settings.file_name(app.name)}": settings.page(app) for app in _own_apps()}
    made |= {f"reference/python/{name}.md": python.page(name) for name in python.PAGES}
    written = {file.src_uri: (DOCS / file.src_uri).read_text(encoding="utf-8") for file in files.documentation_pages()}
    written["project/changelog.md"], written["project/contributing.md"] = (
        made["project/changelog.md"],
        made["project/contributing.md"],
    )
    made |= {sources.page_of(path): sources.source(path) for path in sources.linked_paths(written)}
    for path, text in made.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links that leave docs/, and fill in tables of figures."""
    if page.file.src_uri.startswith("source/"):
        return markdown
    return _titled(architecture.filled(figures.filled(sources.relinked(markdown, page.file.src_uri))))


def _titled(text: str) -> str:
    """Code that is written to a file (`<!-- file: mine.py -->`) with the name of the file above it."""
    return NAMED_BLOCK.sub(r'\1\3```\4 title="\2"', text)


def _own_apps() -> list[Any]:
    """The apps of hpckit; not those of other packages that happen to be installed."""
    return [app for app in apps().values() if app.package.startswith("hpckit.")]


def _project(name: str) -> str:
    """A file from the root of the checkout, as a page of project/: links below docs/ become links on the site."""
    text = (sources.ROOT / name).read_text(encoding="utf-8")
    return sources.LINK.sub(_from_root, text)


def _from_root(link: Any) -> str:
    """A link of a file in the root, as the page that is one folder deep in docs/ has it."""
    inside = link[2].startswith("docs/")
    up = "" if "://" in link[2] else "../" if inside else "../../"
    return f"{link[1]}{up}{link[2].removeprefix('docs/') if inside else link[2]}{link[3] or ''}{link[4]}"
