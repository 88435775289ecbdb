"""What a run gives to its agent: the description as a message, or under the agent's own text key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import HumanMessage

from .errors import BadInput
from .text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping


def description(run_id: str, text: str) -> HumanMessage:
    """The text of a run as a message. Its id is the run's, so that a second attempt gives the same message."""
    return HumanMessage(content=clean(text), id=f"{run_id}-input")


def agent_input(
    given: Mapping[str, Any], run_id: str, agent: str, *, text_key: str | None, has_messages: bool
) -> dict[str, Any]:
    """Build the graph's input from `{"text": …, "state": {…}}`; `BadInput` where the text has no place."""
    state = dict(given.get("state") or {})
    text = given.get("text", "")
    if text_key is not None:
        return {**state, text_key: clean(text)}
    if not has_messages:
        raise BadInput(
            f"agent {agent!r} has no messages, so the text has no place: name the state key that takes it, as "
            f'{{"outrider": {{"agents": {{"{agent}": {{"input": "question"}}}}}}}} in langgraph.json'
        )
    return {**state, "messages": [*state.get("messages", ()), description(run_id, text)]}
