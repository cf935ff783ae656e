"""Every code block of the README and of the docs is run, or where it cannot be here, checked; a page is a test."""

from __future__ import annotations

import pytest
from blocks import blocks, name_of, pages
from running import PageRun, Session

LANGUAGES = {"python", "py", "toml", "text", "csv", "json", "julia", "c", "html", ""}


@pytest.fixture(scope="module")
def session(prepared):
    it = Session()
    yield it
    it.close()


@pytest.mark.parametrize("page", [page for page in pages() if blocks(page)], ids=name_of)
def test_the_blocks_of_a_page(page, session, tmp_path):
    run = PageRun(name_of(page), tmp_path, session)
    for block in blocks(page):
        assert block.is_shell or block.language in LANGUAGES, f"{page}:{block.line}: {block.language}"
        run.run(block)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "page", [page for page in pages() if any("long" in block.marks for block in blocks(page))], ids=name_of
)
def test_the_long_blocks_of_a_page(page, session, tmp_path):
    run = PageRun(name_of(page), tmp_path, session, long=True)
    for block in blocks(page):
        run.run(block)
