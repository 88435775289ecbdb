r"""Citations: one fixed form of a claim, read exactly and checked against the file it names.

    - CLAIM [FILE:LINES] "QUOTE"

stands on a line of its own. LINES is `N` or `N-M`, counted from 1. QUOTE is a JSON string: a double quote in it is
written `\"` and a backslash `\\`. Its text stands in these lines, whitespace apart. FILE is relative to the folder
and has no bracket in it. Since no bare double quote can stand inside QUOTE, the form has one reading only, whatever
CLAIM holds.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outrider.examples.research.folder import FolderError

if TYPE_CHECKING:
    from outrider.examples.research.folder import DocumentFolder

_LINES = re.compile(r"([1-9]\d{0,8})(?:-([1-9]\d{0,8}))?")
_CLAIM = re.compile(r'- (\S.*) \[([^\[\]]+):([\d-]+)\] ("(?:[^"\\]|\\.)*")')


@dataclass(frozen=True)
class Citation:
    """A claim and where it stands: `line` is `N` or `N-M`, `quote` the words of the file."""

    claim: str
    file: str
    line: str
    quote: str

    def json(self) -> dict[str, str]:
        """The public form."""
        return {"file": self.file, "line": self.line, "quote": self.quote}

    def __str__(self) -> str:
        """The line of an answer that `parse` reads back."""
        quoted = json.dumps(self.quote, ensure_ascii=False)
        return f"- {normal(self.claim)} [{self.file}:{self.line}] {quoted}"


def normal(text: str) -> str:
    """One space wherever there is white space, none at the ends."""
    return " ".join(text.split())


def parse(text: str) -> list[Citation]:
    """Each citation of an answer, in its order; lines of any other form are left out."""
    found: list[Citation] = []
    for line in text.split("\n"):
        matched = _CLAIM.fullmatch(line.strip())
        if matched is None or not _LINES.fullmatch(matched[3]):
            continue
        try:
            quote = json.loads(matched[4], strict=False)
        except ValueError:  # an escape that JSON does not know
            continue
        found.append(Citation(matched[1].rstrip(), matched[2], matched[3], quote))
    return found


def verify(folder: DocumentFolder, citation: Citation) -> str | None:
    """None when the quote stands in the lines of the file that it names, else why it does not."""
    matched = _LINES.fullmatch(citation.line)
    if matched is None:
        return f"{citation.line!r} is no line: N or N-M, counted from 1"
    first, last = int(matched[1]), int(matched[2] or matched[1])
    try:
        lines = folder.lines(citation.file)
    except FolderError as error:
        return str(error)
    if not first <= last <= len(lines):
        return f"lines {citation.line} do not exist: {citation.file} has {len(lines)}"
    quote = normal(citation.quote)
    if not quote:
        return "the quote is empty"
    if quote not in normal(" ".join(lines[first - 1 : last])):
        return f"the quote does not stand in {citation.file}:{citation.line}"
    return None
