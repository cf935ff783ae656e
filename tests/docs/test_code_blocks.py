"""Every code block of the README and of the docs is run, or where it cannot be here, checked; a page is a test."""

from __future__ import annotations

import pytest
from blocks import Block, blocks, name_of, pages
from running import PageRun, Session, commands, compare

LANGUAGES = {"python", "toml", "text", "csv", "json", "julia", "c", "html", ""}


@pytest.fixture(scope="module")
def session():
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


def test_a_block_that_does_not_do_what_the_page_says_fails(session, tmp_path):
    run = PageRun("made.md", tmp_path, session)
    run.run(Block("python", "x = 7\nprint('seven', x)\n", 1))
    run.run(Block("text", "seven …\n", 4, {"output": ""}))
    run.run(Block("python", "assert x == 7\n", 6))  # names live on
    wrong = [
        Block("python", "assert x == 8\n", 1),
        Block("python", "x =\n", 1, {"fragment": ""}),
        Block("text", "eight …\n", 1, {"output": ""}),
        Block("toml", 'app = "weather"\n[grid]\nnxx = 7\n', 1),
        Block("sh", "hpckit run thermal --no-such-option\n", 1),
        Block("sh", "hpckit run thermal grid.nxx=7\n", 1),
        Block("sh", "hpckit nothing\n", 1),
        Block("sh", "if true\n", 1),
        Block("sh", "exit 3\n", 1, {"run": ""}),
    ]
    for block in wrong:
        with pytest.raises((pytest.fail.Exception, AssertionError, SyntaxError)):
            run.run(block)


def test_commands_are_read_as_bash_reads_them():
    text = "hpckit ls | head\nhpckit run $x\n"
    text += "hpckit run heat \\\n  'a.b=[1, 2]'   # words\nPATH=x hpckit ls\necho hpckit ls\n"
    assert list(commands(text)) == [["run", "heat", "a.b=[1, 2]"], ["ls"]]


def test_printed_lines_come_in_order():
    compare("a …\nc\n", "a  1\nb\n c \n", "here")
    with pytest.raises(pytest.fail.Exception):
        compare("c\na …\n", "a 1\nb\nc\n", "here")
