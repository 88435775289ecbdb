"""The offline analyst: reads the chunks of a brief, or searches by itself, and answers with sentences that it read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.messages import ToolMessage

from outrider.examples.research.briefs import parse_brief
from outrider.examples.research.evidence import answer
from outrider.examples.research.frame import parse_counts, parse_passages
from outrider.examples.research.policy import (
    NOT_ANSWERED,
    READ,
    READ_CHUNK,
    SEARCH,
    Reply,
    query_words,
    since_asked,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from langchain_core.messages import BaseMessage

    from outrider.examples.research.citations import Citation

_AROUND_LINES = 8


def analyse(messages: Sequence[BaseMessage], tools: Collection[str]) -> Reply:
    """What comes next shows in the messages: read or search, read around the best passage, answer."""
    asked, *later = since_asked(messages) or (None,)
    brief = parse_brief(asked.text if asked else "")
    results = [one for one in later if isinstance(one, ToolMessage)]
    if not results:
        if brief.paths and READ_CHUNK in tools:
            return Reply(calls=tuple((READ_CHUNK, {"path": path}) for path in brief.paths))
        query = " ".join(query_words(brief.question))
        if query and SEARCH in tools:
            return Reply(calls=((SEARCH, {"query": query}),))
    passages = [passage for result in results for passage in parse_passages(result.text)]
    total, counts = parse_counts(results[0].text) if results else (0, {})
    claims = answer(brief.question, passages, counts, total)
    if claims and len(results) == 1 and READ in tools and not brief.paths:
        return _read_around(claims[0])
    return Reply("\n".join(map(str, claims)) or NOT_ANSWERED)


def _read_around(best: Citation) -> Reply:
    first, _, last = best.line.partition("-")
    start, end = max(1, int(first) - _AROUND_LINES), int(last or first) + _AROUND_LINES
    return Reply(calls=((READ, {"path": best.file, "start_line": start, "end_line": end}),))
