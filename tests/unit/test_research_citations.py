import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.examples.research.citations import Citation, normal, parse, verify
from outrider.examples.research.folder import open_folder

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(normal)
HARD = st.lists(st.sampled_from(['"', "\\", "[a.md:1]", "[a.md:1] ", '"q"', "- ", "x", " ", "\n", "]", ":"])).map(
    "".join
)
FILES = st.text(st.characters(exclude_characters='[]"<>&\\', categories=["L", "N", "P", "Zs"]), min_size=1)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a.md").write_text('# Title\n\nA heron\n  stands   "still".\nIt waits.\n')
    return open_folder(str(tmp_path))


@given(claim=TEXT | HARD.filter(normal), file=FILES, quote=TEXT | HARD, first=st.integers(1, 10**8))
def test_what_is_written_is_read_back_exactly(claim, file, quote, first):
    one = Citation(normal(claim), file, f"{first}-{first + 1}", quote)
    other = Citation("x", "b.md", str(first), "y")
    assert parse(f"{one}\n{other}\n") == [one, other]


def test_the_public_form_has_file_line_and_quote():
    assert Citation("c", "a.md", "3-4", 'say "x"').json() == {"file": "a.md", "line": "3-4", "quote": 'say "x"'}


@pytest.mark.parametrize(
    "line",
    [
        "The documents do not answer this question.",
        "- no citation",
        '- claim [a.md:0] "x"',
        '- claim [a.md:x] "x"',
        '- claim [a.md:1-] "x"',
        '- claim [a.md] "x"',
        "- claim [a.md:1] x",
        '- claim [a.md:1] "x" and more',
        '- claim [a.md:1] "x',
        '- claim [a.md:1] "\\q"',
        '* claim [a.md:1] "x"',
        '- [a.md:1] "x"',
        "",
    ],
)
def test_another_form_is_no_citation(line):
    assert parse(line) == []


def test_a_model_may_indent_its_lines():
    assert parse('  - c [a.md:1] "x"  \r\n') == [Citation("c", "a.md", "1", "x")]


def test_an_escaped_quote_is_a_json_string():
    quote = 'a "b" \\ \u00e9'
    assert parse(f"- c [a.md:1] {json.dumps(quote)}")[0].quote == quote


@pytest.mark.parametrize(
    ("line", "quote"),
    [
        ("1", "# Title"),
        ("3-4", 'A heron stands "still".'),
        ("4", 'stands "still"'),
        ("1-5", "It\twaits."),
        ("5", "waits"),
    ],
)
def test_a_quote_that_stands_there_is_verified(folder, line, quote):
    assert verify(folder, Citation("c", "a.md", line, quote)) is None


@pytest.mark.parametrize(
    ("file", "line", "quote", "why"),
    [
        ("a.md", "3", 'stands "still"', "does not stand in a.md:3"),
        ("a.md", "1-5", "a heron stands", "does not stand"),
        ("a.md", "5-3", "It waits.", "do not exist"),
        ("a.md", "6", "It waits.", "has 5"),
        ("a.md", "0", "# Title", "is no line"),
        ("a.md", "1-2-3", "# Title", "is no line"),
        ("a.md", "1\n", "# Title", "is no line"),
        ("a.md", "1", " ", "empty"),
        ("b.md", "1", "x", "does not exist"),
        ("../a.md", "1", "x", "leads out"),
        ("/etc/passwd", "1", "root", "absolute"),
    ],
)
def test_a_quote_that_does_not_stand_there_is_refused_with_the_reason(folder, file, line, quote, why):
    assert why in verify(folder, Citation("c", file, line, quote))
