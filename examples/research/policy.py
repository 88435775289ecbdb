"""What the offline model's two parts, the tools and the prompts have in common: names, and what a reply is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain_core.messages import HumanMessage

from outrider.examples.research.terms import words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import BaseMessage

#: The whole answer to a question that the documents do not answer, for any model.
NOT_ANSWERED = "The documents do not answer this question."

SEARCH, READ, READ_CHUNK = "search_documents", "read_document", "read_chunk"  #: the analyst's tools
FIND, START = "find_chunks", "start_async_task"  #: the lead's
ANALYST = "analyst"  #: the agent that it starts

_MAX_QUERY_WORDS = 24


@dataclass(frozen=True)
class Reply:
    """What a model says next: text, or calls of tools as (name, arguments)."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


def since_asked(messages: Sequence[BaseMessage]) -> Sequence[BaseMessage]:
    """The messages from the last one on that a person, or a parent, wrote; empty where there is none."""
    asked = (at for at, one in enumerate(messages) if isinstance(one, HumanMessage) and not _injected(one))
    last = max(asked, default=None)
    return () if last is None else messages[last:]


def _injected(message: HumanMessage) -> bool:
    return "lc_source" in message.additional_kwargs


def query_words(question: str) -> list[str]:
    """The words of a question that are worth a search, each once, in their order."""
    return list(dict.fromkeys(word for word, _ in words(question)[:_MAX_QUERY_WORDS]))
