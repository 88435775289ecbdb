"""The offline lead: plans searches, hands each chunk to an analyst, judges what they report, and writes it together.

It sees paths, sources, scores and what analysts reported, never a document. What comes next shows in the messages.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from outrider.examples.research.briefs import Brief, parse_brief
from outrider.examples.research.chunk_tools import parse_found
from outrider.examples.research.citations import parse
from outrider.examples.research.evidence import best
from outrider.examples.research.frame import parse_counts
from outrider.examples.research.policy import ANALYST, FIND, NOT_ANSWERED, START, Reply, query_words, since_asked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from langchain_core.messages import BaseMessage

    from outrider.examples.research.chunk_tools import Source
    from outrider.examples.research.citations import Citation

ROUNDS = 2  #: of searching
_RARE_WORDS = 2  #: with which the second round searches, each by itself
_STARTED = re.compile(r"Started task (\S+) ")
_RESULT = re.compile(r"<result>(.*?)</result>", re.DOTALL)


def lead(messages: Sequence[BaseMessage]) -> Reply:
    """Search, hand out, rest, judge; search once more where the evidence does not suffice; report."""
    asked, *later = since_asked(messages) or (None,)
    question = asked.text if asked else ""
    at = _Place(question, later)
    if fresh := at.fresh():
        return Reply(calls=tuple((START, _task(question, source)) for source in fresh))
    if at.open:
        return Reply(f"{at.open} of the analysts that I started are at work.")
    claims = at.claims()
    if not claims and at.rounds < ROUNDS and (queries := at.queries()):
        return Reply(calls=tuple((FIND, {"query": query}) for query in queries))
    return Reply("\n".join(map(str, claims)) or NOT_ANSWERED)


def _task(question: str, source: Source) -> dict[str, Any]:
    return {"description": str(Brief(question, (source.path,))), "subagent_type": ANALYST}


class _Place:
    """Where a lead stands with its question, read from the messages since it was asked."""

    def __init__(self, question: str, messages: Sequence[BaseMessage]) -> None:
        self._question, self._messages = question, messages
        self._results = {one.tool_call_id: one for one in messages if isinstance(one, ToolMessage)}
        self._turns = [one.tool_calls for one in messages if isinstance(one, AIMessage) and one.tool_calls]
        self.rounds = sum(any(call["name"] == FIND for call in calls) for calls in self._turns)

    @property
    def open(self) -> int:
        """How many tasks were started and are not known to have ended."""
        started = {task for text in self._texts(START) for task in _STARTED.findall(text)}
        return len(started - {note["task_id"] for note, _ in self._notes()})

    def fresh(self) -> list[Source]:
        """The chunks that the last turn found and that no analyst was given: no two of them overlap."""
        if not self._turns or self._turns[-1][0]["name"] != FIND:
            return []
        known = [source for text in self._texts(FIND) for source in parse_found(text)]
        briefs = (parse_brief(call["args"]["description"]) for call in self._calls(START))
        given = {path for brief in briefs for path in brief.paths}
        taken = [source for source in known if source.path in given]
        new = []
        for source in known:
            if not any(_same(source, other) for other in taken):
                taken.append(source)
                new.append(source)
        return new

    def queries(self) -> list[str]:
        """All words of the question first; then the rarest that the documents have, each by itself."""
        words = query_words(self._question)
        if not self.rounds:
            return [" ".join(words)] if words else []
        _, counts = self._counts()
        known = sorted((word for word in words if counts.get(word)), key=lambda word: counts[word])
        return known[:_RARE_WORDS] if len(known) > 1 else []

    def claims(self) -> list[Citation]:
        """What the analysts claim, best first."""
        results = (html.unescape(found) for note, text in self._notes() for found in _RESULT.findall(text))
        total, counts = self._counts()
        return best(self._question, [claim for result in results for claim in parse(result)], counts, total)

    def _counts(self) -> tuple[int, dict[str, int]]:
        """Of the first search, which asked for all words of the question."""
        return next(map(parse_counts, self._texts(FIND)), (0, {}))

    def _notes(self) -> Iterator[tuple[dict[str, Any], str]]:
        for message in self._messages:
            if isinstance(message, HumanMessage) and (note := message.additional_kwargs.get("outrider_notification")):
                yield note, message.text

    def _calls(self, name: str) -> Iterator[Any]:
        return (call for calls in self._turns for call in calls if call["name"] == name)

    def _texts(self, name: str) -> Iterable[str]:
        """What a tool answered, in the order of the calls; refusals are left out."""
        answers = (self._results.get(call["id"]) for call in self._calls(name))
        return [one.text for one in answers if one is not None and one.status != "error"]


def _same(one: Source, other: Source) -> bool:
    """Whether the smaller chunk stands in the other but for a few lines."""
    if one.file != other.file:
        return False
    shared = min(one.last, other.last) - max(one.first, other.first) + 1
    return 4 * shared >= 3 * (min(one.last - one.first, other.last - other.first) + 1)
