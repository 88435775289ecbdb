"""Nothing that a lead says of the documents is shown before its citations were looked up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain.agents.middleware import AgentMiddleware
from langchain_core.messages import AIMessage, ToolMessage

from outrider.examples.research.citations import parse, verify
from outrider.examples.research.policy import FIND, NOT_ANSWERED, START

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langgraph.runtime import Runtime

    from outrider.examples.research.folder import DocumentFolder

OPEN = frozenset({"pending", "running", "waiting"})


class CheckedReport(AgentMiddleware[Any, Any, Any]):
    """Leaves of a lead's report what the documents bear out, and says what it left out.

    A report is an answer with claims, or one that comes when no task is open any more. It is replaced before it is
    saved. What is said while analysts work is left alone as long as it claims nothing.
    """

    def __init__(self, folder: DocumentFolder) -> None:
        super().__init__()
        self._folder = folder

    def after_model(self, state: Any, runtime: Runtime[Any]) -> dict[str, Any] | None:  # noqa: ARG002
        """Check an answer that calls no tool."""
        last = state["messages"][-1]
        if not isinstance(last, AIMessage) or last.tool_calls or last.invalid_tool_calls:
            return None
        statuses = [task["status"] for task in (state.get("async_tasks") or {}).values()]
        if OPEN.intersection(statuses) and not parse(last.text):
            return None
        refused = [one for one in state["messages"] if isinstance(one, ToolMessage) and one.status == "error"]
        statuses += ["refused" for one in refused if one.name == START]
        searches = sum(one.name == FIND for one in refused)
        report = "\n".join([*self._borne_out(last.text), *_unfinished(statuses), *_rejected(searches)])
        return {"messages": [last.model_copy(update={"content": report})]}

    def _borne_out(self, text: str) -> list[str]:
        lines = [line.strip() for line in text.split("\n") if line.strip() not in {"", NOT_ANSWERED}]
        kept = [line for line in lines if any(verify(self._folder, one) is None for one in parse(line))]
        left_out = len(lines) - len(kept)
        said = f"({left_out} of the report's lines left out: what they say is not borne out by a citation that stands.)"
        return [*(kept or [NOT_ANSWERED]), *([said] if left_out else [])]


def _unfinished(statuses: Sequence[str]) -> list[str]:
    count = sum(status not in {"success", *OPEN} for status in statuses)
    return [f"({count} of {len(statuses)} analysts did not finish: what they read is not in this.)"] if count else []


def _rejected(count: int) -> list[str]:
    return [f"(Searches that were rejected or failed: {count}. What they would find is not in this.)"] if count else []
