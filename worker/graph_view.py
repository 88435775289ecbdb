"""A run's view of its graph: the input that it gives, and what it takes from the stream: state, questions, events."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from langchain_core.messages import AIMessage
from langgraph.types import Command

from ..shared import events
from ..shared.errors import BadInput, no_fork
from ..shared.fork import FILES, PAYLOADS, preamble, without_names
from ..shared.ids import is_id
from ..shared.input_layout import ANSWERS
from ..shared.messages import agent_input, closing
from ..shared.notification import CURSOR
from ..shared.notification_text import message as notification
from ..shared.records import Interrupt
from ..shared.snapshots import Inherited
from ..shared.text import plain
from .agents import Shape
from .emitter import custom, tokens
from .outcomes import message_of
from .results import result_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from langchain_core.messages import BaseMessage
    from langgraph.pregel import Pregel
    from langgraph.types import Interrupt as Question
    from langgraph.types import StreamMode

    from ..shared.config import AgentEntry
    from ..shared.transitions import Claimed

INTERRUPT = "__interrupt__"
#: The question of a graph that stops at a breakpoint (`interrupt_before`, `interrupt_after`), which asks none itself.
BREAKPOINT = "The agent stopped at a breakpoint of its graph. Any answer lets it go on."
_BREAKPOINT_ID = "breakpoint-"


class View:
    """Takes what a graph streams. One per run, used on the loop."""

    def __init__(self, emit: Callable[[str, dict[str, Any]], None]) -> None:
        self._emit = emit
        self._values: Any = None
        self._output_keys: str | list[str] | tuple[str, ...] = ()
        self._run_id = ""
        self.began = False  #: whether there is a state to read
        self.interrupts: tuple[Interrupt, ...] | None = None  #: what it asks a person; `None` where it does not stop
        self.refused = ""  #: what was wrong with an answer, where it asks again
        self.modes: list[StreamMode] = ["updates", "values", "custom"]

    def input_for(
        self,
        agent: Pregel[Any, Any, Any, Any],
        claimed: Claimed,
        entry: AgentEntry,
        so_far: Sequence[Any],
    ) -> dict[str, Any] | Command[Any] | None:
        """The graph's input for a run, the same for every attempt; `BadInput` where the text has no place.

        `so_far` is the conversation that a run finds: what it leaves open is closed, then comes the news. A run that
        goes on with answers gets those alone.
        """
        shape = Shape.of(agent)
        self._run_id = claimed.run.run_id
        self._output_keys = agent.output_channels  # type: ignore[assignment]  # a sequence of names, or one name
        if shape.has_messages:
            self.modes.append("messages")
        if (answers := claimed.input.get(ANSWERS)) is not None:
            asked = {name: value for name, value in answers.items() if not name.startswith(_BREAKPOINT_ID)}
            return Command(resume=asked) if asked else None
        given = agent_input(
            claimed.input,
            claimed.run.run_id,
            claimed.task.agent,
            text_key=entry.input,
            has_messages=shape.has_messages,
        )
        if claimed.notifications and not shape.has_messages:
            raise BadInput(
                f"agent {claimed.task.agent!r} has no messages, so what its subagents tell has no place: give it a "
                "`messages` state key, or submit with notify_parent=False"
            )
        if shape.has_messages:
            news = [notification(note, tools=CURSOR in agent.channels) for note in claimed.notifications]
            opening = _inherited(claimed, given, agent) or closing(so_far, claimed.run.run_id)
            given["messages"] = [*opening, *news, *given.get("messages", ())]
        elif claimed.snapshot:
            raise no_fork(claimed.task.agent)
        if CURSOR in agent.channels:
            given[CURSOR] = claimed.run.inbox_to
        return given

    def take(self, mode: str, payload: Any) -> None:
        """Take one piece of the stream."""
        match mode:
            case "values":
                self._values, self.began = payload, True
            case "updates":
                self._take_updates(payload)
            case "messages":
                message, metadata = payload
                # Only what a model writes, piece by piece; results of tools are told as such.
                if isinstance(message, AIMessage) and (data := tokens(message, metadata.get("langgraph_node", ""))):
                    self._emit(events.TOKENS, data)
            case "custom":
                self._emit(events.CUSTOM, custom(payload))

    def _take_updates(self, payload: dict[str, Any]) -> None:
        for node, update in payload.items():
            if node == INTERRUPT:
                known = {question.id: question for question in self.interrupts or ()}
                self.interrupts = tuple({**known, **self._asked(update)}.values())
            elif not node.startswith("__"):
                self._emit(events.STEP, {"node": node})

    def ask_again(self, questions: Sequence[Question], error: BaseException) -> None:
        """Ask the open questions once more: the agent did not accept an answer."""
        self.interrupts, self.refused = tuple(self._asked(questions).values()), message_of(error)

    def _asked(self, questions: Sequence[Question]) -> dict[str, Interrupt]:
        if not questions:
            name = f"{_BREAKPOINT_ID}{self._run_id}"
            return {name: Interrupt(id=name, value=BREAKPOINT)}
        named = [(_id(question), plain(question.value)) for question in questions]
        return {name: Interrupt(id=name, value=value) for name, value in named}

    def result(self, limit: int) -> str:
        """The result as JSON text, at most `limit` bytes."""
        values = self._values
        if isinstance(values, dict):
            values = {key: value for key, value in values.items() if key != INTERRUPT}
        return result_of(values, self._output_keys, limit)


def _inherited(claimed: Claimed, given: dict[str, Any], agent: Pregel[Any, Any, Any, Any]) -> list[BaseMessage]:
    """The conversation that a fork begins with; files of its parent's state go into its input."""
    if not claimed.snapshot:
        return []
    inherited = Inherited.of(claimed.snapshot)
    if inherited.files:
        given[FILES] = {**inherited.files, **(given.get(FILES) or {})}
    messages = inherited.messages if PAYLOADS in agent.channels else without_names(inherited.messages)
    return [*messages, preamble(claimed.run.run_id)]


def _id(question: Question) -> str:
    """LangGraph's id of a question; one that a graph made up by itself may be no id at all."""
    return question.id if is_id(question.id) else f"{uuid.uuid5(uuid.NAMESPACE_OID, question.id).hex}"
