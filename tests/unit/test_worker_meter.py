"""Counting turns and tokens, and refusing the turn that a limit forbids."""

import contextlib
import uuid

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.errors import GraphInterrupt

from outrider.shared.limits import Limits, Usage
from outrider.shared.records import Task
from outrider.worker.control import Stop
from outrider.worker.meter import Meter, NoMoreTurns


class Told(list):
    def __call__(self, *what):
        self.append(what)


def meter(usage=None, before=None, **limits):
    task = Task(
        task_id="t",
        agent="talker",
        title="t",
        status="running",
        phase="working",
        created_at=1,
        updated_at=1,
        limits=Limits(**limits),
        usage=usage or Usage(),
        usage_before=before or Usage(),
    )
    made = Meter(task, stops := Told(), events := Told())
    made.stops, made.events = stops, events
    return made


def turn(a_meter, tokens=10, model="small", **metadata):
    run_id = uuid.uuid4()
    a_meter.on_chat_model_start({"name": "Chat"}, [[]], run_id=run_id, metadata={"ls_model_name": model})
    usage = {"input_tokens": tokens - 3, "output_tokens": 3, "total_tokens": tokens} if tokens else None
    message = AIMessage("text", usage_metadata=usage, response_metadata=metadata)
    a_meter.on_llm_end(LLMResult(generations=[[ChatGeneration(message=message)]]), run_id=run_id)


def test_usage_is_summed_by_model_on_top_of_what_was_before():
    a_meter = meter(Usage(turns=2, total_tokens=5, by_model={"small": {"total_tokens": 5}}))
    turn(a_meter)
    turn(a_meter, model_name="small-2026")
    turn(a_meter, tokens=0)
    usage = a_meter.usage
    assert (usage.turns, usage.input_tokens, usage.output_tokens, usage.total_tokens) == (5, 14, 6, 25)
    assert usage.by_model["small"]["total_tokens"] == 15
    assert usage.by_model["small-2026"]["total_tokens"] == 10


@pytest.mark.parametrize(
    ("usage", "total"),
    [
        ({"total_tokens": None}, 0),
        ({"total_tokens": "12"}, 12),
        ({"total_tokens": "many", "output_tokens": float("nan"), "input_tokens": float("inf")}, 0),
        ({"total_tokens": -7}, 0),
        ({"total_tokens": 10**400}, 2**53),
        ({"total_tokens": [3]}, 0),
        ([1, 2], 0),
        (object(), 0),
    ],
)
def test_odd_usage_of_a_model_counts_for_what_it_says_and_fails_nothing(usage, total):
    a_meter, run_id = meter(), uuid.uuid4()
    a_meter.on_chat_model_start({}, [[]], run_id=run_id, metadata={"ls_model_name": "m\ud835" * 200})
    message = AIMessage("text")
    message.usage_metadata = usage
    a_meter.on_llm_end(LLMResult(generations=[[ChatGeneration(message=message)]]), run_id=run_id)
    assert (a_meter.usage.turns, a_meter.usage.total_tokens, a_meter.usage.output_tokens) == (1, total, 0)
    assert all(len(name) == 200 and name.isprintable() for name in a_meter.usage.by_model)
    assert Usage.model_validate_json(a_meter.usage.model_dump_json()) == a_meter.usage


def test_a_turn_that_failed_counts_as_one():
    a_meter, run_id = meter(), uuid.uuid4()
    a_meter.on_chat_model_start({}, [[]], run_id=run_id)
    a_meter.on_llm_error(ValueError(), run_id=run_id)
    assert (a_meter.usage.turns, a_meter._models) == (1, {})


@pytest.mark.parametrize(
    ("limits", "before", "made", "stop"),
    [
        ({"max_turns": 2}, 0, 2, Stop.LIMIT_TURNS),
        ({"max_turns": 3}, 2, 1, Stop.LIMIT_TURNS),
        ({"max_tokens": 15}, 0, 2, Stop.LIMIT_TOTAL_TOKENS),
        ({"max_tokens": 20}, 0, 2, Stop.LIMIT_TOTAL_TOKENS),
        ({"max_output_tokens": 7}, 0, 3, Stop.LIMIT_OUTPUT_TOKENS),
        ({"max_turns": 2, "max_tokens": 20, "max_output_tokens": 6}, 0, 2, Stop.LIMIT_TURNS),
        ({"max_turns": 3, "max_tokens": 20, "max_output_tokens": 6}, 0, 2, Stop.LIMIT_TOTAL_TOKENS),
    ],
)
def test_the_turn_beyond_a_limit_is_refused(limits, before, made, stop):
    a_meter = meter(Usage(turns=before), **limits)
    for _ in range(made):
        turn(a_meter)
    assert a_meter.stops == []
    for _ in range(2):  # an agent that goes on is refused again
        with pytest.raises(NoMoreTurns):
            turn(a_meter)
    assert a_meter.stops == [(stop,)] * 2
    assert a_meter.usage.turns == before + made


def test_what_was_used_before_the_last_submit_update_or_wake_does_not_count():
    a_meter = meter(Usage(turns=9, total_tokens=90), Usage(turns=8, total_tokens=85), max_turns=2, max_tokens=100)
    turn(a_meter)
    with pytest.raises(NoMoreTurns):
        turn(a_meter)
    assert a_meter.stops == [(Stop.LIMIT_TURNS,)]
    assert a_meter.why(Stop.LIMIT_TURNS) == "it used 2 turns, and limits.max_turns = 2"
    assert a_meter.usage.turns == 10


def test_an_except_for_errors_does_not_swallow_the_refusal():
    a_meter = meter(max_turns=1)
    turn(a_meter)

    def as_agents_write_it():
        with contextlib.suppress(Exception):
            turn(a_meter)

    with pytest.raises(NoMoreTurns):
        as_agents_write_it()


def test_tools_are_told_with_short_arguments():
    a_meter, one, two = meter(), uuid.uuid4(), uuid.uuid4()
    a_meter.on_tool_start({"name": "look"}, "x" * 9000, run_id=one, tool_call_id="call-1")
    a_meter.on_tool_end(ToolMessage("seen", tool_call_id="call-1"), run_id=one)
    a_meter.on_tool_start(None, "a page", run_id=two, name="find")
    a_meter.on_tool_error(ValueError("secret"), run_id=two)
    (started, first), (ended, second), (_, third), (_, fourth) = a_meter.events
    assert (started, first["name"], first["id"], len(first["args"])) == ("tool.started", "look", "call-1", 500)
    assert (ended, second) == ("tool.ended", {"name": "look", "id": "call-1", "ok": True})
    assert (third["name"], third["args"]) == ("find", "a page")
    assert fourth == {"name": "find", "id": str(two), "ok": False}


def test_a_tool_that_asks_a_person_is_not_told_as_failed():
    a_meter, one = meter(), uuid.uuid4()
    a_meter.on_tool_start({"name": "ask"}, "{}", run_id=one, tool_call_id="call-1")
    a_meter.on_tool_error(GraphInterrupt(), run_id=one)
    assert [name for name, _ in a_meter.events] == ["tool.started"]
