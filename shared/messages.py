"""The input of a run's graph: its text as a message, or under the agent's own text key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

from .errors import no_place_for_text
from .input_layout import FEEDBACK
from .text import clean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GRADER = "rubric_grader"  #: marks what a grader says, as deepagents marks it
LC_SOURCE = "outrider_closing"  #: marks messages that we put into a conversation, which no person wrote


def input_id(run_id: str) -> str:
    """Id of the message that a run was given."""
    return f"{run_id}-input"


def description(run_id: str, text: str) -> HumanMessage:
    """The text of a run as a message. Its id is the run's, so that a second attempt gives the same message."""
    return HumanMessage(content=clean(text), id=input_id(run_id))


def feedback(run_id: str, text: str) -> HumanMessage:
    """A grader's feedback as a message to the agent."""
    return HumanMessage(
        content=clean(text), id=f"{run_id}-feedback", name=GRADER, additional_kwargs={"lc_source": GRADER}
    )


def agent_input(
    given: Mapping[str, Any], run_id: str, agent: str, *, text_key: str | None, has_messages: bool
) -> dict[str, Any]:
    """Build the graph's input from `{"text": …, "state": {…}}`; `BadInput` where the text has no place."""
    state = dict(given.get("state") or {})
    text, said = given.get("text"), given.get(FEEDBACK)
    if text is None and said is None:  # a wake: the news is all there is
        return state
    if text is not None and text_key is not None:
        return {**state, text_key: clean(text)}
    if not has_messages:
        raise no_place_for_text(agent)
    own = [*([feedback(run_id, said)] if said else ()), *([description(run_id, text)] if text is not None else ())]
    return {**state, "messages": [*state.get("messages", ()), *own]}


def calls_of(message: AIMessage) -> dict[str, str]:
    """The names of its tool calls by their ids, those too whose arguments nobody can read: each wants an answer."""
    calls = (*message.tool_calls, *message.invalid_tool_calls)
    return {call["id"]: call["name"] or "unknown" for call in calls if call["id"] is not None}


def closing(messages: Sequence[Any], run_id: str) -> list[ToolMessage]:
    """Answers to the tool calls at the end of a conversation that have none: providers refuse such a history.

    A call is left open by a run that was stopped or failed while its tools worked. The ids are the run's, so that a
    second attempt gives the same messages.
    """
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return [
                ToolMessage(
                    "No result: the run ended before this call did.",
                    tool_call_id=call_id,
                    name=name,
                    status="error",
                    id=f"{run_id}-closed-{call_id}",
                    additional_kwargs={"lc_source": LC_SOURCE},
                )
                for call_id, name in calls_of(message).items()
                if call_id not in answered
            ]
        else:
            break
    return []
