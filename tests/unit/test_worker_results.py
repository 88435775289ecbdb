"""The result of a task, whatever its state holds."""

import json

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from pydantic import BaseModel

from outrider.worker.results import result_of

LIMIT = 10_000


class Answer(BaseModel):
    text: str
    sure: bool


def result(values, keys=("messages",)):
    return json.loads(result_of(values, keys, LIMIT))


def chat(*messages, **state):
    return {"messages": list(messages), **state}


IMAGE = {"type": "image", "base64": "aGk=", "mime_type": "image/png"}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (chat(AIMessage("first"), HumanMessage("more"), AIMessage("last")), "last"),
        (chat(AIMessage("said"), AIMessage("")), "said"),
        (chat(AIMessage("said"), AIMessage("  \n")), "said"),
        (chat(AIMessage("said"), ToolMessage("seen", tool_call_id="1")), "said"),
        (chat(AIMessage([{"type": "text", "text": "in "}, {"type": "text", "text": "parts"}])), "in parts"),
        (chat(AIMessage([{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "so"}])), "so"),
        (chat(HumanMessage("asked")), None),
        (chat(AIMessage("said"), structured_response=Answer(text="42", sure=True)), {"text": "42", "sure": True}),
        (chat(AIMessage("said"), structured_response=None), "said"),
        ("a value of an entrypoint", "a value of an entrypoint"),
        (None, None),
    ],
)
def test_what_counts_as_the_result(values, expected):
    assert result(values) == expected


def test_media_stays_as_content_blocks():
    blocks = result(chat(AIMessage([{"type": "text", "text": "see"}, IMAGE])))
    assert [block["type"] for block in blocks] == ["text", "image"]
    assert blocks[1]["base64"] == "aGk="


def test_without_messages_it_is_the_output_state():
    assert result({"question": "q", "answer": "a"}, ("answer",)) == {"answer": "a"}


@pytest.mark.parametrize("text", ["x" * 50_000, "\n" * 50_000, "€" * 50_000, "\N{GRINNING FACE}" * 20_000])
def test_a_long_text_is_cut_within_the_limit_and_says_so(text):
    cut = result_of(chat(AIMessage(f"start {text} end")), (), LIMIT)
    assert len(cut.encode()) <= LIMIT
    assert json.loads(cut).startswith("start ")
    assert json.loads(cut).endswith(f"… (cut: {len(text) + 10:,} characters in all)")


def test_a_long_value_is_cut_to_a_text():
    cut = result_of({"numbers": list(range(10_000))}, ("numbers",), LIMIT)
    assert len(cut.encode()) <= LIMIT
    assert json.loads(cut).startswith('{"numbers": [0, 1, 2')


def test_a_result_at_the_limit_is_whole():
    assert json.loads(result_of("x" * (LIMIT - 2), (), LIMIT)) == "x" * (LIMIT - 2)
