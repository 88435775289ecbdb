"""What a lead tells an analyst: the question, and the paths of the chunks to read. Never their text.

    Question: QUESTION
    Read: PATH

`Read:` stands once for each path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from outrider.examples.research.citations import normal

_QUESTION = re.compile(r"^Question: *(\S.*)$", re.MULTILINE)
_READ = re.compile(r"^Read: *(/\S+) *$", re.MULTILINE)


@dataclass(frozen=True)
class Brief:
    """What is asked; without `paths`, of the whole folder."""

    question: str
    paths: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The description that `parse_brief` reads back."""
        return "\n".join([f"Question: {normal(self.question)}", *(f"Read: {path}" for path in self.paths)])


def parse_brief(text: str) -> Brief:
    """Read a description; one that is no brief is a question as a whole."""
    asked, paths = _QUESTION.search(text), tuple(_READ.findall(text))
    return Brief(asked[1].strip(), paths) if asked and paths else Brief(text)
