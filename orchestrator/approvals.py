"""Answers to the questions of LangChain's human-in-the-loop middleware."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..shared.errors import BadInput

if TYPE_CHECKING:
    from ..shared.records import Interrupt

APPROVE, REJECT = "approve", "reject"
DECISIONS = (APPROVE, "edit", REJECT, "respond")


def is_approval(question: Interrupt) -> bool:
    """Whether a question is a request to review tool calls, for one tool call or for several."""
    return isinstance(question.value, dict) and (
        isinstance(question.value.get("action_requests"), list) or question.value.get("type") == "tool_approval"
    )


def decide(question: Interrupt, decision: str, text: str | None = None) -> dict[str, Any]:
    """Return the answer that approves, or rejects for the reason `text`, all that a question requests.

    `BadInput` where it is no such request.
    """
    if not is_approval(question):
        raise BadInput(f"question {question.id} requests no approval: answer it with a VALUE")
    given: dict[str, Any] = {"type": decision, **({"message": text} if text else {})}
    if "action_requests" not in question.value:
        return given
    return {"decisions": [given] * len(question.value["action_requests"])}


def calls_to_review(question: Interrupt) -> list[dict[str, Any]]:
    """The tool calls that a question lists, each with its `name` and `args`; none where it is no such request."""
    if not is_approval(question):
        return []
    calls = question.value.get("action_requests", [question.value])
    return [call for call in _list(calls) if isinstance(call, dict)]


def allowed(question: Interrupt) -> list[list[Any]]:
    """The decisions that a question allows for each of the tool calls that it lists; none named: any is."""
    if not is_approval(question):
        return []
    reviews = [review for review in _list(question.value.get("review_configs")) if isinstance(review, dict)]
    by_name = {str(review.get("action_name")): _list(review.get("allowed_decisions")) for review in reviews}
    return [by_name.get(str(call.get("name")), []) for call in calls_to_review(question)]


def example(question: Interrupt) -> str:
    """A VALUE that decides each tool call in the first way that is allowed; what it must hold besides is left out."""
    firsts = [next((one for one in DECISIONS if one in possible), APPROVE) for possible in allowed(question)]
    return f'{{"decisions": [{", ".join(f"""{{"type": "{first}", …}}""" for first in firsts)}]}}'


def check(question: Interrupt, answer: Any) -> None:
    """Check that an answer decides each tool call that a question lists: LangChain's middleware fails on any other.

    `BadInput` where it does not. The answer to a question with a schema of its own is checked where that was asked.
    """
    if not is_approval(question) or "action_requests" not in question.value:
        return
    calls = calls_to_review(question)
    decisions = _list(answer.get("decisions") if isinstance(answer, dict) else None)
    if len(decisions) != len(calls) or not all(isinstance(one, dict) and "type" in one for one in decisions):
        raise BadInput(
            f"question {question.id} requests {len(calls)} decision{'s' * (len(calls) != 1)}, one for each tool call: "
            'approve or reject them, or answer {"decisions": [{"type": "approve"}, …]}'
        )
    for call, possible, decision in zip(calls, allowed(question), decisions, strict=True):
        if possible and decision["type"] not in possible:
            raise BadInput(
                f"question {question.id} allows {', '.join(map(str, possible))} for {call.get('name')}, "
                f"not {decision['type']}: answer it with a VALUE such as {example(question)}"
            )
        if decision["type"] == "edit" and not _is_call(decision.get("edited_action")):
            raise BadInput(f'question {question.id}: an edit holds "edited_action": {{"name": …, "args": {{…}}}}')
        if decision["type"] == "respond" and not isinstance(decision.get("message"), str):
            raise BadInput(f'question {question.id}: a respond holds "message", the text that the tool answers')


def _is_call(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("name"), str) and isinstance(value.get("args"), dict)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
