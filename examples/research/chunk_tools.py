"""The lead's search, which shows no text, and the analyst's tool that reads what it found."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from langchain.tools import ToolRuntime  # noqa: TC002 - LangChain reads the tools' annotations
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException

from outrider import running_tree
from outrider.examples.research.briefs import parse_brief
from outrider.examples.research.chunks import ChunkError, cut, load, offload
from outrider.examples.research.frame import NOTHING_FOUND, render_counts, render_passages, render_skipped
from outrider.examples.research.policy import FIND, READ_CHUNK, since_asked
from outrider.examples.research.search import count, search
from outrider.examples.research.tools import MAX_QUERY

if TYPE_CHECKING:
    from langgraph.store.base import BaseStore

    from outrider.examples.research.folder import DocumentFolder
    from outrider.examples.research.search import Found, Passage

PASSAGES = 5  #: that one search offloads; those that meet are one chunk
MAX_SEARCHES = 6  #: for one question
_FOUND = re.compile(r"^(/retrieved/\S+) \[([^\[\]]+):(\d+)-(\d+)\] score [\d.]+$", re.MULTILINE)


@dataclass(frozen=True)
class Source:
    """Where an offloaded chunk is, and where it stands in the documents."""

    path: str
    file: str
    first: int
    last: int


def find_tool(folder: DocumentFolder) -> BaseTool:
    """`find_chunks` over a folder; it writes what it found into the files of the running task's tree."""

    async def find_chunks(query: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Find the passages of the documents that fit the words of the query best, and put them into files.

        Shows of each the path of the file, its source and its score, and of how many passages each word of the query
        is part; never the text. An analyst can read the files.
        """
        _bound(runtime)
        found, chunks = await asyncio.to_thread(_search, folder, query[:MAX_QUERY])
        batch = f"{runtime.config['configurable']['thread_id']} {runtime.tool_call_id}"
        paths = await offload(_store(runtime), running_tree(), batch, [chunk for chunk, _ in chunks])
        shown = [
            f"{path} [{chunk.file}:{chunk.start}-{chunk.end}] score {score:.2f}"
            for path, (chunk, score) in zip(paths, chunks, strict=True)
        ]
        return "\n".join(
            [render_counts(found.total, found.counts), *(shown or [NOTHING_FOUND]), *render_skipped(found.skipped)]
        )

    return StructuredTool.from_function(coroutine=find_chunks, name=FIND, handle_tool_error=True)


def read_chunk_tool(folder: DocumentFolder) -> BaseTool:
    """`read_chunk` over the files of the running task's tree; the folder is asked how rare the words are."""

    async def read_chunk(path: str, runtime: ToolRuntime[Any, Any]) -> str:
        """Read a file that a search put away, such as /retrieved/0123456789abcdef/chunk_0.md.

        Shows the document that it was taken from, with the numbers of its lines there, and of how many passages of all
        documents each word of the question is part.
        """
        try:
            passage = await load(_store(runtime), running_tree(), path)
        except ChunkError as error:
            raise ToolException(str(error)) from None
        asked = since_asked(runtime.state["messages"])
        question = parse_brief(asked[0].text).question if asked else ""
        total, counts = await asyncio.to_thread(count, folder, question)
        return "\n".join([render_counts(total, counts), render_passages(passage)])

    return StructuredTool.from_function(coroutine=read_chunk, name=READ_CHUNK, handle_tool_error=True)


def parse_found(text: str) -> list[Source]:
    """What a result of `find_chunks` names, best first."""
    return [Source(path, file, int(first), int(last)) for path, file, first, last in _FOUND.findall(text)]


def _search(folder: DocumentFolder, query: str) -> tuple[Found, list[tuple[Passage, float]]]:
    found = search(folder, query, PASSAGES)
    return found, cut(folder, found)


def _bound(runtime: ToolRuntime[Any, Any]) -> None:
    """Hold that a lead which is never content comes to an end: an endless search costs an analyst for each chunk."""
    calls = [
        call["id"]
        for message in since_asked(runtime.state["messages"])
        if isinstance(message, AIMessage)
        for call in message.tool_calls
        if call["name"] == FIND
    ]
    if runtime.tool_call_id not in calls[:MAX_SEARCHES]:
        raise ToolException(f"{MAX_SEARCHES} searches were made for this question: report what the analysts found")


def _store(runtime: ToolRuntime[Any, Any]) -> BaseStore:
    if runtime.store is None:
        raise RuntimeError("this graph has no store to put files into: submit the agent as a task")
    return runtime.store
