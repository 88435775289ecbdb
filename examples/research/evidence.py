"""Which sentences of some passages answer a question, and whether any does."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import Enum, auto
from itertools import pairwise
from typing import TYPE_CHECKING

from outrider.examples.research.citations import Citation, normal
from outrider.examples.research.search import Passage
from outrider.examples.research.terms import terms

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence


MAX_CLAIMS = 3
MAX_QUOTE = 480  #: characters
#: Shares of the question's weight: what the sentence and its surroundings must hold together, what it must hold itself.
ENOUGH, ENOUGH_OWN = 0.62, 0.4
_NEXT_BEST = 0.75  #: a further claim has at least this share of the best one's score
_AROUND = 0.4  #: what a word in the surroundings counts, one in the sentence being 1
_TOGETHER = 0.25  #: what it counts that words which stand together in the question do so in the sentence
_FIRST = 0.1  #: what it counts that a sentence begins with a word of the question, as definitions do
_LENGTH = 240  #: characters from which a sentence loses some of its score
_CODE_COUNTS = 0.7
_MIN_TERMS = 3  #: a sentence of fewer different words says nothing by itself

_FENCE = re.compile(r"\s*(```|~~~)")
_ITEM = re.compile(r"\s*(?:[-*+] +|\d+[.)] +|\|)")
_HEADING = re.compile(r"\s*#{1,6} +\S")
_RULE = re.compile(r"[\s|:=~^*#_+-]*|\s*(?:\"\"\"|''')")
_CODE = re.compile(
    r"\s*(?:@\w|(?:async |await |def |class |import |from |return|raise |yield |with |for |while |if |elif |else|try|"
    r"except|assert |pass\b).*|[\w.\[\]]+(?:: [\w\[\], |.]+)? [-+*/|]?= .*|[\w.]+\(.*|[\])}].*)"
)
_PROSE = re.compile(r"\s*#.*|.*[A-Za-z,] [a-z]+ [a-z].*|[\w ,'-]+[.:]")
_ENDS = re.compile(
    r"(?<![ (]e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<! vs\.)(?<! cf\.)(?<=[.!?])[\"')\]*_`]*(?=\s+(?:`|[\"'(\[*_]*[A-Z0-9]))"
)
_WHOLE = re.compile(r"[.!?:;|)\]}\"'`*_]$")
_OUTSIDE = re.compile(r"^(?:(?:[-*+>#]|#:|\d+[.)]) +|[rRfFbBuU]?(?:\"\"\"|'''))|(?:\"\"\"|''')$")
_LINK = re.compile(r"!?\[([^\[\]]*)\]\([^()\s]*\)")
_MARKS = re.compile(r"`+|\*\*|(?<![\w*])\*(?=\w)|(?<=\w)\*(?![\w*])")


class _Kind(Enum):
    TEXT = auto()
    CODE = auto()
    HEADING = auto()


@dataclass(frozen=True)
class Sentence:
    """One sentence as it stands in its file, or one line of a table or of code."""

    file: str
    first: int
    last: int
    text: str  #: white space apart, the very words of these lines
    around: frozenset[str]  #: the terms of its heading and of the sentences beside it
    code: bool


def answer(question: str, passages: Sequence[Passage], counts: Mapping[str, int], total: int) -> list[Citation]:
    """The claims that answer a question, best first, each its own proof; none where the passages do not answer it.

    `counts` says of each word of the question how many of the `total` passages of the whole folder have it: a rare
    word weighs more, and a word that no document knows weighs most, so that nothing is answered past it.
    """
    weights = weigh(question, counts, total)
    scored = ((score(one, weights), order, one) for order, one in enumerate(sentences(passages)))
    ranked = sorted((one for one in scored if one[0]), key=lambda one: (-one[0], one[1]))
    chosen: dict[str, Sentence] = {}
    for value, _, sentence in ranked:
        if value >= _NEXT_BEST * ranked[0][0] and len(chosen) < MAX_CLAIMS:
            chosen.setdefault(sentence.text.casefold(), sentence)
    return [_cite(sentence) for sentence in chosen.values()]


def best(question: str, claims: Iterable[Citation], counts: Mapping[str, int], total: int) -> list[Citation]:
    """Of the claims of several answers those whose quotes tell most, best first, each quote once."""
    weights = weigh(question, counts, total)
    each: dict[str, Citation] = {}
    # In an order of their own: which answer came first is chance.
    for claim in sorted(claims, key=lambda one: (one.file, int(one.line.partition("-")[0]))):
        each.setdefault(normal(claim.quote).casefold(), claim)
    valued = [(_value(terms(one.quote), (), len(one.quote), weights), one) for one in each.values()]
    valued.sort(key=lambda pair: -pair[0])
    return [one for value, one in valued if value >= _NEXT_BEST * valued[0][0]][:MAX_CLAIMS]


def score(sentence: Sentence, weights: Mapping[str, float]) -> float:
    """How well a sentence answers; 0 where it does not hold enough of what is asked."""
    inside = terms(sentence.text)
    whole = sum(weights.values())
    own = sum(weight for term, weight in weights.items() if term in inside)
    around = sum(weight for term, weight in weights.items() if term in sentence.around and term not in inside)
    if not whole or own < ENOUGH_OWN * whole or own + around < ENOUGH * whole:
        return 0
    value = _value(inside, sentence.around, len(sentence.text), weights)
    return value * (_CODE_COUNTS if sentence.code else 1)


def _value(inside: Sequence[str], around: Collection[str], length: int, weights: Mapping[str, float]) -> float:
    share = {term: 1 if term in inside else _AROUND if term in around else 0 for term in weights}
    value = sum(weight * share[term] for term, weight in weights.items()) / (sum(weights.values()) or 1)
    value += _FIRST * (inside[0] in weights if inside else 0)
    value += _TOGETHER * _together(_pairs(list(weights)), _pairs(inside))
    return value * (1 - max(0, length - _LENGTH) / MAX_QUOTE / 2)


def _pairs(ordered: Sequence[str]) -> set[tuple[str, str]]:
    return {(one, other) for at, one in enumerate(ordered) for other in ordered[at + 1 : at + 3] if one != other}


def _together(asked: set[tuple[str, str]], said: set[tuple[str, str]]) -> float:
    """The share of the neighbours in a question that are neighbours in a sentence; half where turned round."""
    found = sum(1 if pair in said else 0.5 if pair[::-1] in said else 0 for pair in asked)
    return found / len(asked) if asked else 0


def weigh(question: str, counts: Mapping[str, int], total: int) -> dict[str, float]:
    """Each term of a question → how much it tells, from how few passages have it."""
    known: dict[str, int] = {}
    for word, number in counts.items():
        for term in terms(word):
            known[term] = max(number, known.get(term, 0))
    return {term: math.log(1 + (total + 1) / (known.get(term, 0) + 0.5)) for term in dict.fromkeys(terms(question))}


def sentences(passages: Sequence[Passage]) -> Iterator[Sentence]:
    """Each sentence of the passages that can be quoted, once; passages that meet or overlap are read as one."""
    for passage in _joined(passages):
        found = [(kind, *one) for kind, block in _blocks(passage) for one in _sentences(block)]
        heading = terms(f"{passage.file} {passage.heading}")
        for at, (kind, first, last, text) in enumerate(found):
            near = " ".join(one[-1] for one in found[max(0, at - 1) : at + 2])
            cut = (at == 0 and first > 1 and text[0].islower()) or (at == len(found) - 1 and not _WHOLE.search(text))
            if kind is not _Kind.HEADING and not cut and _can_be_quoted(text):
                around = frozenset([*heading, *terms(near)])
                yield Sentence(passage.file, first, last, text, around, code=kind is _Kind.CODE)


def _joined(passages: Sequence[Passage]) -> Iterator[Passage]:
    """One passage for each run of lines that is known, in the order in which the runs were first seen."""
    known: dict[str, dict[int, str]] = {}
    for passage in passages:
        known.setdefault(passage.file, {}).update(enumerate(passage.lines, passage.start))
    done: set[tuple[str, int]] = set()
    for passage in passages:
        lines, start, end = known[passage.file], passage.start, passage.end
        while start - 1 in lines:
            start -= 1
        while end + 1 in lines:
            end += 1
        if (passage.file, start) not in done:
            done.add((passage.file, start))
            yield Passage(passage.file, start, tuple(lines[at] for at in range(start, end + 1)), passage.heading)


def _can_be_quoted(text: str) -> bool:
    # A question answers nothing by itself, nor does a row of three cells or more without the heads of its columns;
    # U+FFFD stands for what the frame took out.
    if text.startswith("|") and text.strip("| ").count(" | ") > 1:
        return False
    long_enough = len(set(terms(text))) >= _MIN_TERMS and len(text) <= MAX_QUOTE
    return long_enough and not text.endswith("?") and "\ufffd" not in text


def _blocks(passage: Passage) -> Iterator[tuple[_Kind, list[tuple[int, str]]]]:
    """Runs of lines that read on: a paragraph, a list item, a row of a table; a heading or a line of code alone."""
    block: list[tuple[int, str]] = []
    fenced = False
    for number, line in enumerate(passage.lines, passage.start):
        fence = bool(_FENCE.match(line))
        fenced ^= fence
        border = fence or bool(_RULE.fullmatch(line))
        kind = _Kind.TEXT if border else _kind(passage.file, line, fenced=fenced)
        if block and (border or kind is not _Kind.TEXT or _ITEM.match(line)):
            yield _Kind.TEXT, block
            block = []
        if kind is _Kind.TEXT and not border:
            block.append((number, line))
        elif not border:
            yield kind, [(number, line)]
    if block:
        yield _Kind.TEXT, block


def _kind(file: str, line: str, *, fenced: bool) -> _Kind:
    if file.endswith(".py"):
        return _Kind.TEXT if _PROSE.fullmatch(line) and not _CODE.fullmatch(line) else _Kind.CODE
    if fenced:
        return _Kind.CODE
    return _Kind.HEADING if _HEADING.match(line) else _Kind.TEXT


def _sentences(block: list[tuple[int, str]]) -> Iterator[tuple[int, int, str]]:
    """(first line, last line, text) of each sentence of a block, without the mark before it."""
    text = "\n".join(line for _, line in block)
    cuts = [0, *(found.end() for found in _ENDS.finditer(text)), len(text)]
    for start, end in pairwise(cuts):
        piece = text[start:end]
        if piece.strip():
            lead = len(piece) - len(piece.lstrip())
            first = text.count("\n", 0, start + lead)
            last = text.count("\n", 0, start + len(piece.rstrip()))
            yield block[first][0], block[last][0], _OUTSIDE.sub("", normal(piece))


def _cite(sentence: Sentence) -> Citation:
    line = str(sentence.first) if sentence.first == sentence.last else f"{sentence.first}-{sentence.last}"
    return Citation(_plain(sentence.text), sentence.file, line, sentence.text)


def _plain(text: str) -> str:
    """A sentence without the marks of Markdown and the like."""
    cells = [cell.strip() for cell in text.strip("| ").split(" | ")] if text.startswith("|") else [text]
    bare = _LINK.sub(r"\1", ": ".join(filter(None, [cells[0], "; ".join(filter(None, cells[1:]))])))
    return normal(_MARKS.sub("", bare)) or text
