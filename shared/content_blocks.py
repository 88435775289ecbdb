"""Content blocks of a result for another model: text, media that go along, and a mark for each other block."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import Any, TypeAlias

from .text import clean, one_line, render_json

Block: TypeAlias = dict[str, Any]

MEDIA = frozenset({"image", "audio", "video", "file"})
MEDIA_LIMIT = 4_000_000  #: characters of all media that go along with one result
#: The fields of a media block that go along: the others are for the agent itself, or for its provider.
MEDIA_FIELDS = ("base64", "url", "file_id", "mime_type")
#: Blocks of LangChain that are no words of an answer.
OMITTED = frozenset(
    {
        "reasoning",
        "refusal",
        "tool_call",
        "tool_call_chunk",
        "invalid_tool_call",
        "server_tool_call",
        "server_tool_call_chunk",
        "server_tool_result",
        "non_standard",
    }
)
_MIME_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+(; ?[\w=.+-]+)*", re.ASCII)
KNOWN = MEDIA | OMITTED | {"text", "text-plain"}
LABEL = 100  #: characters of what a block says of its own kind


def text_and_media(value: Any) -> tuple[str, tuple[Block, ...]]:
    """The text of a result, and the media that go along with it. Each of the media is named in the text too."""
    if isinstance(value, str):
        return clean(value), ()
    if not _are_blocks(value):
        return render_json(value), ()
    parts: list[str] = []
    media: list[Block] = []
    room = MEDIA_LIMIT
    for block in value:
        kind = block["type"]
        if kind in MEDIA:
            kept = {"type": kind} | {name: block[name] for name in MEDIA_FIELDS if isinstance(block.get(name), str)}
            size = sum(map(len, kept.values()))
            goes = len(kept) > 1 and size <= room and _is_sound(kept)
            room -= size if goes else 0
            media += [kept] if goes else []
            parts.append(_named(kept, len(media) if goes else 0))
        elif kind in OMITTED or not isinstance(block.get("text"), str):
            parts.append(f"({kind} omitted)")
        else:
            parts.append(clean(block["text"]))
    return "\n".join(parts), tuple(media)


def _is_sound(block: Block) -> bool:
    """Whether a provider can take it: a block that it refuses stays in the conversation, and fails each later call."""
    if not _MIME_TYPE.fullmatch(block.get("mime_type", "x/y")):
        return False
    try:
        b64decode(block.get("base64", ""), validate=True)
    except ValueError:
        return False
    return True


def _named(block: Block, number: int) -> str:
    what = one_line(str(block.get("mime_type", block["type"])), LABEL)
    return f"({block['type']} {number}: {what})" if number else f"({block['type']} omitted: {what})"


def _are_blocks(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(item, dict) and isinstance(item.get("type"), str) and item["type"] in KNOWN for item in value
        )
    )
