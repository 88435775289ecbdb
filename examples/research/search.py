"""BM25 over the passages of a folder, the index kept in the process until a file changes."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import bm25s

from outrider.examples.research.folder import FolderError
from outrider.examples.research.terms import terms, words

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from outrider.examples.research.folder import DocumentFolder, Listing

PASSAGE_LINES, MAX_PASSAGE_LINES = 7, 28  #: cut at the next good place after so many, anywhere after so many
MAX_LINE = 1_000  #: characters of one line that are indexed and shown
MAX_QUERY_TERMS = 40
_GOOD_PLACE = re.compile(r"\s*|(?:[-*+]|\d+[.)]|\|) .*")
_HEADING = re.compile(r"#{1,6} +(\S.*)")


@dataclass(frozen=True)
class Passage:
    """Some lines of one document, in their order; `start` is the number of the first one, counted from 1."""

    file: str
    start: int
    lines: tuple[str, ...]
    heading: str = ""  #: the headings above it, outermost first, joined by ` > `

    @property
    def end(self) -> int:
        """The number of the last line."""
        return self.start + len(self.lines) - 1


@dataclass(frozen=True)
class Found:
    """What a search found, best first; `counts` says of each word asked how many of the `total` passages have it."""

    passages: tuple[Passage, ...]
    counts: dict[str, int]
    total: int
    skipped: tuple[str, ...]
    scores: tuple[float, ...] = ()  #: of the passages, by BM25


@dataclass(frozen=True)
class _Index:
    passages: tuple[Passage, ...]
    terms: tuple[frozenset[str], ...]
    bm25: bm25s.BM25 | None  #: None where no passage has a term: bm25s indexes no empty corpus
    skipped: tuple[str, ...]


def search(folder: DocumentFolder, query: str, limit: int = 8) -> Found:
    """The best `limit` passages for the words of `query`; of equal ones the earlier in the folder comes first."""
    index = _current(folder)
    asked = dict(words(query)[:MAX_QUERY_TERMS])
    counts = _count(index, asked)
    query_terms = list(dict.fromkeys(term for word, term in asked.items() if counts[word]))
    if index.bm25 is None or not query_terms:
        return Found((), counts, len(index.passages), index.skipped)
    # Rounded, so that equal passages stay equal in floating point and the order is the same everywhere.
    scores = [round(float(score), 4) for score in index.bm25.get_scores(query_terms)]
    best = sorted((at for at, score in enumerate(scores) if score > 0), key=lambda at: (-scores[at], at))[:limit]
    found, values = tuple(index.passages[at] for at in best), tuple(scores[at] for at in best)
    return Found(found, counts, len(index.passages), index.skipped, values)


def count(folder: DocumentFolder, text: str) -> tuple[int, dict[str, int]]:
    """(number of passages, word of the text → number of passages that have it), as `search` counts them."""
    index = _current(folder)
    return len(index.passages), _count(index, dict(words(text)[:MAX_QUERY_TERMS]))


def _count(index: _Index, asked: Mapping[str, str]) -> dict[str, int]:
    return {word: sum(term in have for have in index.terms) for word, term in asked.items()}


def _current(folder: DocumentFolder) -> _Index:
    listing = folder.listing()
    with _building:  # many runs start at once: one of them builds, the others find it built
        return _index(folder, listing)


_building = threading.Lock()


@lru_cache(maxsize=4)
def _index(folder: DocumentFolder, listing: Listing) -> _Index:
    """Built anew when a listing differs in any name, time, size or inode; the old one falls out of the cache."""
    passages: list[Passage] = []
    skipped = list(listing.skipped)
    for document in listing.documents:
        try:
            passages += split(document.name, folder.lines(document.name))
        except FolderError as error:
            skipped.append(str(error))
    bags = [terms(f"{passage.file} {passage.heading} {' '.join(passage.lines)}") for passage in passages]
    bm25 = None
    if any(bags):
        bm25 = bm25s.BM25()
        bm25.index(bags, show_progress=False)
    return _Index(tuple(passages), tuple(frozenset(bag) for bag in bags), bm25, tuple(skipped))


def split(file: str, lines: tuple[str, ...]) -> Iterator[Passage]:
    """Cut a document at headings and, where a passage grows long, at blank lines and items of a list."""
    headings: list[str] = []
    start, first = 0, True
    for at, line in enumerate(lines):
        matched = _HEADING.fullmatch(line.strip()) if not file.endswith(".py") else None
        long = at - start >= MAX_PASSAGE_LINES
        full = at - start >= PASSAGE_LINES and _GOOD_PLACE.fullmatch(line)
        if (matched or long or full) and not first:
            yield from _passage(file, lines, start, at, headings)
            start = at
        if matched:
            depth = len(line.strip()) - len(line.strip().lstrip("#"))
            headings = [*(headings + [""] * depth)[: depth - 1], matched[1]]
        first = False
    yield from _passage(file, lines, start, len(lines), headings)


def _passage(file: str, lines: tuple[str, ...], start: int, end: int, headings: list[str]) -> Iterator[Passage]:
    while start < end and not lines[start].strip():
        start += 1
    while start < end and not lines[end - 1].strip():
        end -= 1
    if start < end:
        shown = tuple(line[:MAX_LINE] for line in lines[start:end])
        yield Passage(file, start + 1, shown, " > ".join(filter(None, headings)))
