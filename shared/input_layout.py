"""A run's input as it lies in Redis: one line of JSON for each message that is not in the saved state yet."""

from __future__ import annotations

import json
from typing import Any

ANSWERS = "answers"  #: key in the input of a run that goes on with answers: values by the ids of the questions
FEEDBACK = "feedback"  #: key in the input of a run that revises graded work


def joined(lines: bytes) -> dict[str, Any]:
    """`{"text": …, "state": {…}}` of all lines together: texts and messages in their order, of other keys the last.

    There are several where a run ended before it had saved its input. Answers among them are left out: their question
    is gone.
    """
    inputs = [json.loads(line) for line in lines.split(b"\n") if line]
    if len(inputs) <= 1:
        return inputs[0] if inputs else {}
    texts = [text for one in inputs if (text := one.get("text")) is not None]
    state = {key: value for one in inputs for key, value in (one.get("state") or {}).items()}
    messages = [message for one in inputs for message in (one.get("state") or {}).get("messages", ())]
    return {
        **{key: value for one in inputs for key, value in one.items() if key != ANSWERS},
        **({"text": "\n\n".join(texts)} if texts else {}),
        "state": {**state, **({"messages": messages} if messages else {})},
    }
