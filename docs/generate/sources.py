"""Pages for files outside of docs/ that pages link to: the source with its lines, or what a folder holds."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
LANGUAGES = {".py": "python", ".toml": "toml", ".sh": "sh", ".json": "json", ".c": "c", ".md": "markdown"}
LINK = re.compile(r"(\]\()([^)#\s]+)(#[^)\s]*)?(\))")


def outside(page: str, target: str) -> PurePosixPath | None:
    """The path below the root of the checkout that `target`, a link on `page` (a path below docs/), leads to.

    None where it stays in docs/, or leads out of the checkout or to nothing.
    """
    if "://" in target or target.startswith(("/", "mailto:")):
        return None
    place = (ROOT / "docs" / page).parent / target
    path = Path(*_normal(place.parts))
    if not path.exists() or not path.is_relative_to(ROOT) or path == ROOT:
        return None
    inside = path.relative_to(ROOT)
    return None if inside.parts[:1] == ("docs",) and inside.parts[1:2] != ("figures",) else PurePosixPath(inside)


def page_of(path: PurePosixPath) -> str:
    """The page, below docs/, that shows `path`."""
    project = {"CONTRIBUTING.md": "project/contributing.md", "CHANGELOG.md": "project/changelog.md"}
    return project.get(str(path), "index.md" if str(path) == "README.md" else f"source/{path}.md")


def relinked(text: str, page: str) -> str:
    """The text of `page` with links that leave docs/ turned to the pages made for them."""
    up = "../" * (len(PurePosixPath(page).parts) - 1)

    def turned(found: re.Match[str]) -> str:
        path = outside(page, found[2])
        return found[0] if path is None else f"{found[1]}{up}{page_of(path)}{found[4]}"

    return LINK.sub(turned, text)


def linked_paths(texts: dict[str, str]) -> list[PurePosixPath]:
    """Whatever the pages (path below docs/ -> text) link to outside of docs/, and the files of folders among it."""
    found = {outside(page, link[2]) for page, text in texts.items() for link in LINK.finditer(text)} - {None}
    for folder in [path for path in found if path and (ROOT / path).is_dir()]:
        found |= {PurePosixPath(path.relative_to(ROOT)) for path in (ROOT / folder).iterdir() if _shown(path)}
    return sorted(path for path in found if path is not None and page_of(path).startswith("source/"))


def source(path: PurePosixPath) -> str:
    """The page of a file or folder."""
    place = ROOT / path
    if place.is_dir():
        names = sorted(inner.name for inner in place.iterdir() if _shown(inner))
        return f"# {path}\n\n" + "".join(f"- [{name}]({path.name}/{name}.md)\n" for name in names)
    text = place.read_text(encoding="utf-8")
    ticks = "`" * max(3, 1 + max(map(len, re.findall(r"`+", text)), default=0))
    return f"# {path}\n\n{ticks}{LANGUAGES.get(place.suffix, 'text')}\n{text.rstrip()}\n{ticks}\n"


def _shown(path: Path) -> bool:
    return path.is_file() and path.suffix in LANGUAGES and path.name != "__init__.py"


def _normal(parts: tuple[str, ...]) -> list[str]:
    """A path without its `..`, links left as they are."""
    kept: list[str] = []
    for part in parts:
        if part == "..":
            kept.pop()
        elif part != ".":
            kept.append(part)
    return kept
