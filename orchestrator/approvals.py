"""Answers to the questions of LangChain's human-in-the-loop middleware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared.errors import BadInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..shared.records import Interrupt

APPROVE, REJECT = "approve", "reject"


def is_approval(question: Interrupt) -> bool:
    """Whether a question is a request to review tool calls, for one tool call or for several."""
    return isinstance(question.value, dict) and (
        isinstance(question.value.get("action_requests"), list) or question.value.get("type") == "tool_approval"
    )


def decide(question: Interrupt, decision: str, text: str | None = None) -> dict[str, Any]:
    """Return the answer that approves, or rejects for the reason `text`, all that a question requests.

    `BadInput` where it is no such request, or does not allow this.
    """
    if not is_approval(question):
        raise BadInput(f"question {question.id} requests no approval: answer it with a VALUE")
    given: dict[str, Any] = {"type": decision, **({"message": text} if text else {})}
    if "action_requests" not in question.value:
        return given
    for review in question.value.get("review_configs") or ():
        _allowed(question, review, decision)
    return {"decisions": [given] * len(question.value["action_requests"])}


def _allowed(question: Interrupt, review: Mapping[str, Any], decision: str) -> None:
    allowed = review.get("allowed_decisions")
    if allowed and decision not in allowed:
        raise BadInput(
            f"question {question.id} allows {', '.join(map(str, allowed))} for {review.get('action_name')}, "
            f'not {decision}: answer it with a VALUE such as {{"decisions": [{{"type": "{allowed[0]}", …}}]}}'
        )
