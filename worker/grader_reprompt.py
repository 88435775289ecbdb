"""Tells a grader's model once why its answer is no verdict; a second such answer ends the grading."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware, hook_config
from langchain_core.messages import AIMessage, HumanMessage

from ..shared.grades import Verdict
from ..shared.text import one_line
from .grader_verdict import NoVerdict

if TYPE_CHECKING:
    from langchain.agents.middleware import AgentState
    from langgraph.runtime import Runtime

VERDICT = Verdict.__name__  #: the tool by which a model gives its verdict
NOT_CALLED = f"That is no verdict: give it as a call of `{VERDICT}`, with result, explanation and criteria."
MAX_WHY = 500  #: characters of what was wrong with an answer


class AskingAgain(AgentMiddleware[Any, Any, Any]):
    """Bounds how often a model is told that its answer is no verdict; calls of other tools are not answers."""

    @hook_config(can_jump_to=["model"])
    async def aafter_model(self, state: AgentState[Any], runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """Tell the model what is wrong with its first such answer; `NoVerdict` at the second."""
        said = [message for message in state["messages"] if isinstance(message, AIMessage)]
        if state.get("structured_response") is not None or not said or not _is_answer(said[-1]):
            return None
        if sum(map(_is_answer, said)) > 1:
            why = "it answers in plain text" if not said[-1].tool_calls else state["messages"][-1].text
            raise NoVerdict(
                "the grader's model gave no usable verdict, nor when it was told why "
                f"({one_line(why, MAX_WHY)}): take one that can call tools"
            )
        if said[-1].tool_calls:
            return None  # LangChain told it why
        return {"messages": [HumanMessage(NOT_CALLED)], "jump_to": "model"}


def _is_answer(message: AIMessage) -> bool:
    return not message.tool_calls or any(call["name"] == VERDICT for call in message.tool_calls)
