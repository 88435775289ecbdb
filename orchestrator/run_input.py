"""The input of a run: checked before anything is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared.errors import BadInput, BrokenAgent, no_place_for_text
from ..shared.ids import shorten
from .jsonable import cleaned, json_object, replaced, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..shared.catalogue import Published


def check_input(
    agent: str,
    text: Any,
    state: Mapping[str, Any] | None,
    known: Published | None,
    *,
    added: Mapping[str, Any],
    text_key: str | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """What a run is given, `{"text": …, "state": {…}}`, and notes; `BadInput` or `BrokenAgent` names the fault.

    `added` is what goes into the state beside the caller's. `text_key` is the state key that takes the text, where
    `langgraph.json` names one; else what workers have published counts.
    """
    changed: list[str] = []
    words, more = _text(text, changed), {**json_object({} if state is None else state, "state", changed), **added}
    _fits(agent, text_key, known, more)
    notes = replaced(changed)
    if more and (known is None or known.input_keys is None):
        notes.append(f"no worker has told which state keys {agent} has: {', '.join(more)} not checked")
    return {"text": words, "state": more}, notes


def _text(text: Any, changed: list[str]) -> str:
    if not isinstance(text, str):
        raise BadInput(f"text is a {type(text).__name__}: must be text that says what the agent shall do")
    safe = cleaned(text, "text", changed)
    if not safe.strip():
        raise BadInput("text is empty: say what the agent shall do")
    return safe


def _fits(agent: str, text_key: str | None, known: Published | None, state: Mapping[str, Any]) -> None:
    """Check that the agent can be built, has a place for the text, and has the keys of the state."""
    if known is not None:
        if known.broken:
            raise BrokenAgent(agent, f"{known.broken} (mend it, and start the workers anew)")
        text_key = text_key or known.input
        if known.has_messages is False and text_key is None:
            raise no_place_for_text(agent)
        if known.input_keys is not None:
            keys = {*known.input_keys, *(("messages",) if known.has_messages else ())}
            for key in state:
                if key not in keys:
                    raise BadInput(
                        f"state: agent {agent!r} has no key {shorten(repr(key))} "
                        f"(it has {', '.join(sorted(keys)) or 'none'})"
                    )
    if not isinstance(state.get("messages", []), list):
        raise BadInput(f"state.messages is {shorten(repr(state['messages']))}: must be a list of messages")
    if text_key is not None and text_key in state:
        raise BadInput(f"state.{text_key} is where the text of agent {agent!r} goes: give it as the text alone")


def check_size(bound: int, **parts: Any) -> None:
    """Check that the parts of an input have no more than `bound` bytes together; `BadInput` gives their sizes."""
    sizes = {name: size(part) for name, part in parts.items() if part}
    whole = sum(sizes.values())
    if whole > bound:
        told = ", ".join(f"{name} {count:,}" for name, count in sizes.items())
        raise BadInput(
            f"the input has {whole:,} bytes ({told}), more than OUTRIDER_MAX_INPUT_BYTES = {bound:,}: "
            "shorten it, or give the agent a file to read"
        )


def is_deaf(known: Published | None) -> bool:
    """Whether workers say that the agent has no messages: then it cannot take in news."""
    return known is not None and known.has_messages is False
