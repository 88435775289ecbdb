"""Chunks: passages as files that all tasks of a tree can read, each headed by where it stands in the documents.

The first line of such a file is `# Source: FILE:FIRST-LAST`; where the passage stands under headings, they are the
second one, `# Under: HEADING > HEADING`. Then come an empty line, and the lines of FILE from FIRST to LAST.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from langgraph.store.base import PutOp

from outrider.examples.research.folder import FolderError
from outrider.examples.research.search import MAX_LINE, Passage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langgraph.store.base import BaseStore

    from outrider.examples.research.folder import DocumentFolder
    from outrider.examples.research.search import Found

Namespace = tuple[str, ...]

AROUND_LINES = 4  #: before and after a passage that was found: what answers may begin or end beside it
_PATH = re.compile(r"/retrieved/[0-9a-f]{16}/chunk_\d{1,3}\.md")
# Whoever wrote the file: what stands between the brackets and quotes of a frame or a citation has none itself.
_HEAD = re.compile(r'# Source: ([^\[\]"<>&\\\n]+):([1-9]\d*)-([1-9]\d*)\n(?:# Under: (.+)\n)?\n')


class ChunkError(Exception):
    """A chunk cannot be read; the text says why and what to do, for a model."""


def cut(folder: DocumentFolder, found: Found) -> list[tuple[Passage, float]]:
    """What was found as (chunk, score), best first: with some lines around, and one chunk where passages meet."""
    spans: list[tuple[Passage, float]] = []
    for passage, score in sorted(zip(found.passages, found.scores, strict=True), key=lambda one: _place(one[0])):
        with suppress(FolderError):  # the file went away a moment ago
            wide = _lines(folder, passage, passage.start - AROUND_LINES, passage.end + AROUND_LINES)
            before, best = spans[-1] if spans else (None, 0.0)
            if before and _place(before)[:2] == _place(wide)[:2] and wide.start <= before.end + 1:
                spans[-1] = _lines(folder, before, before.start, wide.end), max(score, best)
            else:
                spans.append((wide, score))
    return sorted(spans, key=lambda one: -one[1])


def _place(passage: Passage) -> tuple[str, str, int]:
    return passage.file, passage.heading, passage.start


def _lines(folder: DocumentFolder, passage: Passage, first: int, last: int) -> Passage:
    first = max(1, first)
    shown = tuple(line[:MAX_LINE] for line in folder.lines(passage.file)[first - 1 : last])
    return Passage(passage.file, first, shown, passage.heading)


async def offload(store: BaseStore, namespace: Namespace, batch: str, passages: Iterable[Passage]) -> list[str]:
    """Write passages as files; their paths, in their order.

    `batch` tells one search from all others of the tree. A second call with it writes the same files again.
    """
    folder = hashlib.sha256(batch.encode()).hexdigest()[:16]
    files = {f"/retrieved/{folder}/chunk_{number}.md": one for number, one in enumerate(passages)}
    # The shape in which deep agents keep files in a store, so that they can read these too.
    await store.abatch(
        [PutOp(namespace, path, {"content": render(one), "encoding": "utf-8"}) for path, one in files.items()]
    )
    return list(files)


async def load(store: BaseStore, namespace: Namespace, path: str) -> Passage:
    """The passage that a path leads to; `ChunkError` where there is none."""
    if not _PATH.fullmatch(path):
        raise ChunkError(f"{path[:40]!a} is no path of a chunk: give one that your task names: /retrieved/…/chunk_N.md")
    item = await store.aget(namespace, path)
    if item is None:
        raise ChunkError(f"there is no file {path}: give a path as your task names it")
    passage = parse(str(item.value.get("content")))
    if passage is None:
        raise ChunkError(f"{path} is not headed by its source: it cannot be cited, leave it out")
    return passage


def render(passage: Passage) -> str:
    """The text of a chunk's file."""
    head = [f"# Source: {passage.file}:{passage.start}-{passage.end}"]
    under = [f"# Under: {passage.heading}"] if passage.heading else []
    return "\n".join([*head, *under, "", *passage.lines])


def parse(text: str) -> Passage | None:
    """The passage of a chunk's file; `None` where the head and the number of lines do not go together."""
    matched = _HEAD.match(text)
    if matched is None:
        return None
    file, first, last, heading = matched.groups("")
    passage = Passage(file, int(first), tuple(text[matched.end() :].split("\n")), heading)
    return passage if passage.end == int(last) else None
