"""The client on a fake Redis: what is accepted, what is refused, and that refusing writes nothing."""

import json

import pytest

from outrider import Limits, Outrider, OutriderError, Status
from outrider.orchestrator import links
from outrider.orchestrator.links import Links
from outrider.shared import catalogue
from outrider.shared.broker import BrokerUnreachable
from outrider.shared.catalogue import Published
from outrider.shared.errors import (
    BadInput,
    BrokenAgent,
    ConfigError,
    IdempotencyConflict,
    TaskActive,
    UnknownAgent,
    UnknownTask,
)
from outrider.shared.keys import Keys
from outrider.shared.settings import Settings
from outrider.shared.statuses import EndedAs, RunStatus
from outrider.shared.store import Store
from outrider.shared.transitions import Ending, Facts

AGENTS = {
    "graphs": {"researcher": "./agents.py:researcher", "solver": "./agents.py:solver", "broken": "./agents.py:broken"},
    "outrider": {
        "agents": {"solver": {"input": "question", "queue": "slow", "limits": {"max_turns": 7, "max_tokens": 900}}}
    },
}

PUBLISHED = (
    Published(name="researcher", input_keys=("messages", "files"), has_messages=True),
    Published(name="solver", input_keys=("question", "hint"), has_messages=False, input="question"),
    Published(name="broken", broken="ModuleNotFoundError: no module named 'numpyy'"),
)


class Bells:
    """A ring that notes its bells, or fails."""

    def __init__(self):
        self.rung = []
        self.fault = None

    async def ring(self, bell):
        if self.fault:
            raise self.fault
        self.rung.append(bell)


@pytest.fixture
def bells():
    return Bells()


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "langgraph.json"
    path.write_text(json.dumps(AGENTS))
    return path


@pytest.fixture
async def outrider(fake_redis, bells, config, monkeypatch):
    def open_links(settings):
        store = Store(fake_redis, settings.namespace)
        return Links(store, lambda: fake_redis, bells.ring)

    monkeypatch.setattr(links, "open_links", open_links)
    settings = Settings.load(namespace="test", config=str(config), max_input_bytes=2000)
    async with Outrider(settings) as opened:
        yield opened


@pytest.fixture
async def published(fake_redis):
    await catalogue.publish(fake_redis, Keys("test"), "w", PUBLISHED, 60_000)


async def finish(outrider, task, result='"done"'):
    """End a task as a worker does."""
    store = outrider._session.store
    facts = Facts(task.task_id, "researcher")
    claimed = await store.claim(facts, task.run_id, worker="w", lease_ms=30_000)
    ending = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result=result)
    assert await store.settle(claimed.claim, ending)


async def test_a_submit_writes_a_pending_task_and_rings_once(outrider, bells):
    done = await outrider.submit("researcher", "Find it.", metadata={"team": "a"}, context={"user": "u1"})
    task = await outrider.get(done.task_id)
    assert (done.status, done.created, done.notes) == (Status.PENDING, True, ())
    assert (task.status, task.title, task.metadata) == ("pending", "researcher", {"team": "a"})
    assert [run.run_id for run in task.runs] == [done.run_id]
    [bell] = bells.rung
    assert (bell.task_id, bell.run_id, bell.queue) == (done.task_id, done.run_id, "subagents")


async def test_a_queue_that_no_worker_serves_is_told(outrider, fake_redis):
    for_one = (await outrider.submit("researcher", "x", queue="slow")).notes
    assert for_one == ()  # nobody has told anything
    await catalogue.publish(fake_redis, Keys("test"), "w", PUBLISHED, 60_000, queues=["subagents"])
    assert (await outrider.submit("researcher", "x")).notes == ()
    (note,) = (await outrider.submit("researcher", "x", queue="slow")).notes
    assert note == "no worker serves the queue slow now: the task waits for one (outrider worker -Q slow)"


async def test_nothing_of_the_description_is_in_the_bell(outrider, bells):
    await outrider.submit("researcher", "the password is hunter2", state={}, context={"key": "hunter2"})
    assert "hunter2" not in bells.rung[0].model_dump_json()


async def test_defaults_come_from_the_configuration_and_the_caller_wins(outrider, bells):
    done = await outrider.submit("solver", "2 + 2?", limits={"max_turns": 3})
    task = await outrider.get(done.task_id)
    assert task.limits == Limits(max_turns=3, max_tokens=900)
    assert task.queue is None
    assert bells.rung[0].queue == "slow"
    done = await outrider.submit("solver", "2 + 2?", queue="fast")
    assert (await outrider.get(done.task_id)).queue == "fast"
    assert bells.rung[1].queue == "fast"


async def test_the_input_reaches_the_claim_cleaned(outrider):
    done = await outrider.submit("researcher", "half \ud835 nul \x00", state={"files": {"a\x00": ["\ud800"]}})
    store = outrider._session.store
    claimed = await store.claim(Facts(done.task_id, "researcher"), done.run_id, worker="w", lease_ms=30_000)
    assert claimed.input == {"text": "half \ufffd nul \ufffd", "state": {"files": {"a\ufffd": ["\ufffd"]}}}
    assert [note.split(":")[0] for note in done.notes if "surrogates" in note] == [
        "text",
        "state.files.a\x00",
        "state.files.a\x00[0]",
    ]


BAD = {
    "unknown agent": (("nobody", "text"), {}, "unknown agent 'nobody'.*researcher, solver"),
    "agent of another type": ((None, "text"), {}, "unknown agent None"),
    "empty text": (("researcher", " \n"), {}, "text is empty"),
    "text that is none": (("researcher", b"text"), {}, "text is a bytes"),
    "too long": (("researcher", "é" * 1500), {}, r"3,000 bytes \(text 3,000\).*OUTRIDER_MAX_INPUT_BYTES = 2,000"),
    "too long together": (
        ("researcher", "x" * 1000),
        {"state": {"files": "x" * 600}, "context": {"a": "x" * 600}},
        "text 1,000, state 613, context 609",
    ),
    "state that is no object": (("researcher", "text"), {"state": ["a"]}, r"state is \['a'\]: must be an object"),
    "state with a typo": (
        ("researcher", "text"),
        {"state": {"fils": {}}},
        "'researcher' has no key 'fils'.*files, messages",
    ),
    "state in the text's place": (
        ("solver", "text"),
        {"state": {"question": "other"}},
        "state.question is where the text",
    ),
    "messages where there are none": (("solver", "text"), {"state": {"messages": []}}, "has no key 'messages'"),
    "messages that are no list": (
        ("researcher", "text"),
        {"state": {"messages": "hi"}},
        "state.messages is 'hi': must be",
    ),
    "state that is no JSON": (
        ("researcher", "text"),
        {"state": {"files": {"a": [1, {2}]}}},
        r"state.files.a\[1\] is a set",
    ),
    "bytes": (("researcher", "text"), {"context": {"a": b"x"}}, "context.a is a bytes"),
    "NaN": (("researcher", "text"), {"metadata": {"a": float("nan")}}, "metadata.a is nan"),
    "a key that is no text": (("researcher", "text"), {"metadata": {1: 2}}, "metadata has the key 1"),
    "a thread id": (("researcher", "text"), {"configurable": {"thread_id": "x"}}, "configurable.thread_id is set by"),
    "no limit": (("researcher", "text"), {"limits": {"max_turns": 0}}, "max_turns = 0: must be a number above zero"),
    "a negative limit": (("researcher", "text"), {"limits": {"timeout_seconds": -1}}, "timeout_seconds = -1"),
    "a boolean limit": (("researcher", "text"), {"limits": {"max_tokens": True}}, "max_tokens = True"),
    "a limit that is text": (("researcher", "text"), {"limits": {"max_tokens": "9"}}, "max_tokens = '9'"),
    "a limit with a typo": (("researcher", "text"), {"limits": {"max_turn": 1}}, "unknown key 'max_turn'.*max_turns"),
    "an empty title": (("researcher", "text"), {"title": " "}, "title ' ' must be"),
    "a queue with a blank": (("researcher", "text"), {"queue": "a b"}, "queue 'a b' must match"),
    "an empty key": (("researcher", "text"), {"idempotency_key": ""}, "idempotency key '' must be"),
    "a long key": (("researcher", "text"), {"idempotency_key": "k" * 201}, "1 to 200"),
    "a mode that is no text": (("researcher", "text"), {"mode": []}, r"mode \[\] must be 'isolated' or 'fork'"),
    "a switch that is none": (("researcher", "text"), {"notify_parent": None}, "notify_parent None must be True or"),
    "state that is empty text": (("researcher", "text"), {"state": ""}, "state is '': must be an object"),
    "metadata that is a list": (("researcher", "text"), {"metadata": []}, r"metadata is \[\]: must be an object"),
    "a broken agent": (("broken", "text"), {}, "agent 'broken' is broken: ModuleNotFoundError"),
}


@pytest.mark.parametrize("case", BAD)
async def test_what_is_wrong_is_named_and_nothing_is_written(case, outrider, published, fake_redis, bells):
    arguments, options, message = BAD[case]
    before = await fake_redis.keys("*")
    with pytest.raises((BadInput, BrokenAgent, UnknownAgent), match=message) as caught:
        await outrider.submit(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert await fake_redis.keys("*") == before
    assert bells.rung == []


async def test_a_value_that_contains_itself_is_refused(outrider):
    loop = {}
    loop["again"] = loop
    with pytest.raises(BadInput, match="nested more than 100 deep"):
        await outrider.submit("researcher", "text", context=loop)


async def test_an_agent_without_a_place_for_text_is_refused(outrider, fake_redis):
    wordless = Published(name="researcher", input_keys=("x",), has_messages=False)
    await catalogue.publish(fake_redis, Keys("test"), "w", [wordless], 60_000)
    with pytest.raises(BadInput, match=r'"researcher": \{"input": "question"\}'):
        await outrider.submit("researcher", "text")


async def test_state_keys_that_nobody_could_check_are_told(outrider, published, fake_redis, monkeypatch):
    monkeypatch.setattr(catalogue, "CACHED_SECONDS", 0)
    assert (await outrider.submit("researcher", "text", state={"files": {}})).notes == ()
    await fake_redis.delete(Keys("test").catalogue())
    [note] = (await outrider.submit("researcher", "text", state={"fils": {}})).notes
    assert "fils not checked" in note


async def test_a_long_title_is_cut_and_the_answer_says_so(outrider):
    done = await outrider.submit("researcher", "text", title="a " * 150)
    assert done.notes == ("title cut to 200 of 299 characters",)
    assert len((await outrider.get(done.task_id)).title) == 200


async def test_a_missing_configuration_is_told_in_one_line(outrider, config):
    config.unlink()
    with pytest.raises(ConfigError, match=r"no langgraph.json in .*OUTRIDER_CONFIG"):
        await outrider.submit("researcher", "text")


async def test_a_broker_out_of_reach_does_not_lose_the_task(outrider, bells):
    bells.fault = BrokerUnreachable("amqp://me:secret@nowhere//", "refused")
    done = await outrider.submit("researcher", "text")
    [note] = done.notes
    assert "sweeper" in note
    assert "secret" not in note
    assert (await outrider.get(done.task_id)).status == "pending"


async def test_an_idempotency_key_gives_the_first_task_again(outrider, bells):
    first = await outrider.submit("researcher", "text", idempotency_key="k")
    await outrider.cancel(first.task_id)
    second = await outrider.submit("researcher", "text", idempotency_key="k")
    assert (second.task_id, second.run_id, second.created) == (first.task_id, first.run_id, False)
    assert second.status is Status.CANCELLED
    assert len(bells.rung) == 1
    with pytest.raises(IdempotencyConflict, match=first.task_id):
        await outrider.submit("researcher", "other text", idempotency_key="k")


@pytest.mark.parametrize("bad", ["../x", "a\x00b", "", " ", "x" * 300, "-a", "a\n", None, 7, "é"])
@pytest.mark.parametrize("method", ["get", "wait", "cancel", "result", "state"])
async def test_a_bad_id_is_refused_before_anything_is_read(method, bad, outrider, monkeypatch):
    monkeypatch.setattr(outrider._session, "links", None)  # whatever looks for Redis now fails in another way
    with pytest.raises(BadInput, match="must match"):
        await getattr(outrider, method)(bad)
    with pytest.raises(BadInput, match="must match"):
        await outrider.update(bad, "text")
    with pytest.raises(BadInput, match="must match"):
        await anext(outrider.follow(bad))


async def test_an_unknown_id_is_told(outrider):
    for method in (outrider.get, outrider.wait, outrider.cancel, outrider.result):
        with pytest.raises(UnknownTask, match="no task nobody"):
            await method("nobody")
    with pytest.raises(UnknownTask):
        await anext(outrider.follow("nobody"))


async def test_an_update_goes_on_where_a_task_ended(outrider, bells):
    done = await outrider.submit("researcher", "text", queue="fast")
    await finish(outrider, done)
    updated = await outrider.update(done.task_id, "more \ud835", state={"files": None})
    assert (updated.status, updated.overtaken, updated.dropped) == (Status.PENDING, None, ())
    assert any("lone surrogates" in note for note in updated.notes)
    assert any("files not checked" in note for note in updated.notes)
    assert (bells.rung[-1].run_id, bells.rung[-1].queue) == (updated.run_id, "fast")
    kinds = [
        event.type
        for event in await outrider._session.store.events(
            done.task_id, updated.event_id, reader=outrider._session.store.redis
        )
    ]
    assert kinds == ["task.updated"]


async def test_an_update_of_an_active_task_needs_a_strategy(outrider, bells):
    done = await outrider.submit("researcher", "text")
    with pytest.raises(TaskActive, match=done.run_id):
        await outrider.update(done.task_id, "more")
    queued = await outrider.update(done.task_id, "more", strategy="enqueue")
    assert (queued.run_id, queued.status, len(bells.rung)) == (None, Status.PENDING, 1)
    updated = await outrider.update(done.task_id, "rather this", strategy="interrupt")
    assert updated.overtaken == done.run_id
    assert (await outrider.cancel(done.task_id)).follow_ups == 1


@pytest.mark.usefixtures("published")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": " "}, "text is empty"),
        ({"text": 7}, "text is a int"),
        ({"text": "x" * 3000}, "OUTRIDER_MAX_INPUT_BYTES"),
        ({"state": {"wrong": 1}}, "has no key 'wrong'"),
        ({"state": {"messages": 1}}, "must be a list"),
        ({"strategy": "later"}, "strategy 'later' must be of interrupt, enqueue"),
        ({"task_id": "nobody"}, "no task nobody"),
    ],
)
async def test_a_bad_update_is_refused_and_changes_nothing(arguments, message, outrider):
    done = await outrider.submit("researcher", "text")
    await finish(outrider, done)
    before = await outrider.get(done.task_id)
    with pytest.raises(OutriderError, match=message) as refused:
        await outrider.update(**{"task_id": done.task_id, "text": "more", **arguments})
    assert "\n" not in str(refused.value)
    assert await outrider.get(done.task_id) == before


async def test_cancel_says_what_is_true(outrider):
    done = await outrider.submit("researcher", "text")
    answer = await outrider.cancel(done.task_id)
    assert (answer.outcome, answer.status) == ("cancelled", "cancelled")
    answer = await outrider.cancel(done.task_id)
    assert (answer.outcome, answer.status) == ("already_finished", "cancelled")
    other = await outrider.submit("researcher", "text")
    await finish(outrider, other)
    answer = await outrider.cancel(other.task_id)
    assert (answer.outcome, answer.status) == ("already_finished", "success")
    assert await outrider.result(other.task_id) == "done"


async def test_a_page_tells_exactly_whether_there_is_more(outrider):
    made = [(await outrider.submit("researcher", "text")).task_id for _ in range(3)]
    assert not (await outrider.list(limit=3)).more
    page = await outrider.list(limit=2)
    assert page.more
    rest = await outrider.list(limit=2, before=page.next)
    assert not rest.more
    assert {task.task_id for task in page.tasks + rest.tasks} == set(made)
    none = await outrider.list(limit=0)
    assert (none.tasks, none.more) == ((), True)
    assert not (await outrider.list(limit=0, status="waiting")).more
    assert not (await outrider.list(agent="solver")).tasks


@pytest.mark.parametrize(
    "options",
    [
        {"limit": -1},
        {"limit": 1001},
        {"limit": True},
        {"limit": "3"},
        {"status": "done"},
        {"status": [3]},
        {"agent": "a b"},
        {"before": "../x"},
        {"before": "nobody"},
    ],
)
async def test_a_bad_page_is_refused(options, outrider):
    with pytest.raises(BadInput):
        await outrider.list(**options)


@pytest.mark.parametrize("bad", [-1, True, "5", float("nan"), float("inf"), 10**400])
async def test_a_bad_timeout_is_refused(bad, outrider):
    with pytest.raises(BadInput, match="timeout"):
        await outrider.wait("some-task", timeout=bad)


@pytest.mark.parametrize("bad", ["", "x", "1-2-3", "-", "$", None, "1-"])
async def test_a_bad_event_id_is_refused(bad, outrider):
    with pytest.raises(BadInput, match="event id"):
        await anext(outrider.follow("some-task", after=bad))


async def test_a_client_that_is_not_open_says_so():
    with pytest.raises(OutriderError, match="async with"):
        await Outrider().get("some-task")


def test_settings_and_single_values_do_not_mix():
    with pytest.raises(BadInput, match="namespace, not both"):
        Outrider(Settings.load(), namespace="other")
