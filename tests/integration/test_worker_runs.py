"""One run from claim to settle, on the test's own loop: how it can end, and what it may not do."""

import asyncio
import gc
import warnings

import pytest
from structlog.testing import capture_logs

import workers
from outrider.shared.checkpoints import RedisSaver
from outrider.shared.context import Claim
from outrider.shared.refusals import TooLarge
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status
from outrider.shared.store import Store
from outrider.worker import activation
from outrider.worker.control import Stop
from outrider.worker.outcomes import Cancelled, Failed, Finished, GivenBack, NotOurs, Paused, TimedOut


def types(events):
    return [event.type for event in events]


async def thread_of(bench, task_id):
    """Read a task's saved state as the world sees it: the values of its channels."""
    saver = RedisSaver(bench.redis, bench.store.keys)
    saved = await saver.aget_tuple({"configurable": {"thread_id": task_id}})
    return {} if saved is None else saved.checkpoint["channel_values"]


async def test_a_run_goes_from_bell_to_settle(bench):
    outcome, task = await bench.do("compiled", "hello")
    assert isinstance(outcome, Finished)
    assert (task.status, task.result) == (Status.SUCCESS, {"text": "hello", "done": ["a", "b", "c"]})
    assert (task.runs[0].status, task.runs[0].ended_as, task.runs[0].worker) == (
        RunStatus.SUCCESS,
        EndedAs.FINISHED,
        "bench",
    )
    events = await bench.events(task.task_id)
    assert types(events) == ["task.submitted", "run.claimed", "step", "step", "step", "task.settled"]
    assert [event.data for event in events if event.type == "step"] == [{"node": name} for name in "abc"]


async def test_a_doubled_bell_finds_the_door_open(bench):
    task_id, run_id = await bench.submit("compiled")
    outcomes = await asyncio.gather(*(bench.runner.run(task_id, run_id) for _ in range(5)))
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Finished"] + ["NotOurs"] * 4
    assert await bench.did(task_id) == ["a", "b", "c"]
    assert isinstance(await bench.runner.run("no-such-task", "no-such-run"), NotOurs)


@pytest.mark.parametrize(
    ("agent", "done"),
    [
        ("compiled", ["a", "b", "c"]),
        ("builder", ["a", "b", "c"]),
        ("factory", ["a", "b", "c"]),
        ("factory_with_config", ["hi"]),
        ("async_factory", ["hi"]),
        ("context_factory", ["a", "b", "c"]),
    ],
)
async def test_every_form_of_an_agent_runs(bench, agent, done):
    _, task = await bench.do(agent, configurable={"greeting": "hi"})
    assert (task.status, task.result["done"]) == (Status.SUCCESS, done)


async def test_what_a_factory_opened_is_closed(bench):
    _, task = await bench.do("context_factory")
    assert await bench.did(task.task_id) == ["opened", "a", "b", "c", "closed"]


@pytest.mark.parametrize(
    ("agent", "kind", "message"),
    [
        ("broken", "BrokenAgent", "this module cannot be imported"),
        ("missing", "BrokenAgent", "has no 'nothing'"),
        ("retried", "BrokenAgent", "RunnableRetry is no agent"),
        ("wrong_factory", "BrokenAgent", "gave a dict, not a graph"),
        ("gone", "UnknownAgent", "unknown agent 'gone'"),
        ("textless", "BadInput", "has no messages"),
    ],
)
async def test_an_agent_that_cannot_run_ends_its_run_in_a_clear_error(bench, agent, kind, message):
    _, task = await bench.do(agent)
    assert (task.status, task.error.type) == (Status.ERROR, kind)
    assert message in task.error.message


@pytest.mark.parametrize("agent", ["raises", "sync_raises"])
@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("timeout", "TimeoutError"),
        ("cancelled", "CancelledError"),
        ("value", "ValueError"),
        ("unprintable", "Unprintable"),
        ("unreadable", "Unreadable"),
        ("drained", "GraphDrained"),  # nobody asked for it: it would be given back for ever
    ],
)
async def test_an_agents_own_error_keeps_its_name(bench, agent, text, kind):
    outcome, task = await bench.do(agent, text)
    assert isinstance(outcome, Failed)
    assert (task.status, task.error.type, task.runs[0].ended_as) == (Status.ERROR, kind, EndedAs.FAILED)
    assert len(task.error.message) <= 10_000
    assert "\x00" not in task.error.message


async def test_the_log_tells_where_an_agents_error_came_from(bench):
    with capture_logs() as lines:
        await bench.do("raises", "value")
    [line] = [line for line in lines if line["event"] == "agent.failed"]
    assert (line["error"], line["at"][-1].split()[-1]) == ("ValueError", "_raise")


async def test_an_agents_own_recursion_limit_stands(bench):
    _, task = await bench.do("looper")
    assert (task.status, task.error.type) == (Status.ERROR, "GraphRecursionError")
    assert await bench.did(task.task_id) == ["again"] * 4


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("bytes", {"base64": "/wA="}),
        ("set", ["a", "b"]),
        ("nan", "nan"),
        ("surrogate", "\N{REPLACEMENT CHARACTER} and \N{REPLACEMENT CHARACTER}"),
    ],
)
async def test_an_odd_result_settles(bench, text, result):
    _, task = await bench.do("odd", text)
    assert (task.status, task.result) == (Status.SUCCESS, result)


@pytest.mark.parametrize("text", ["object", "class", "cycle"])
async def test_a_value_that_no_checkpoint_can_hold_ends_its_run_in_an_error(bench, text):
    _, task = await bench.do("odd", text)
    assert (task.status, task.runs[0].attempt) == (Status.ERROR, 0)
    assert task.error.type


async def test_a_long_result_is_cut_and_says_so(redis_url, namespace):
    async with workers.bench(redis_url, namespace, max_result_bytes=2000) as bench:
        _, task = await bench.do("odd", "big")
    assert task.result.endswith("… (cut: 5,000,000 characters in all)")
    assert len(task.result.encode()) <= 2000


async def test_a_question_leaves_the_task_waiting(bench):
    outcome, task = await bench.do("asks")
    assert isinstance(outcome, Paused)
    assert (task.status, task.phase, task.run_id) == (Status.WAITING, Phase.ASKING, None)
    assert [question.value for question in task.interrupts] == [{"question": "go on?"}]
    assert (task.runs[0].status, task.runs[0].ended_as) == (RunStatus.SUCCESS, EndedAs.PAUSED)
    assert types(await bench.events(task.task_id))[-1] == "task.waiting"


async def test_progress_and_custom_events_are_told(bench):
    _, task = await bench.do("tells")
    told = [(event.type, event.data) for event in await bench.events(task.task_id)]
    assert ("custom", {"data": {"seen": 3}}) in told
    assert ("progress", {"done": 0.5, "total": None, "fraction": 0.5, "note": "half"}) in told
    assert ("progress", {"done": 3, "total": 4, "fraction": 0.75, "note": None}) in told


async def test_no_event_of_an_agent_can_fail_its_run(bench):
    outcome, task = await bench.do("counts")
    assert isinstance(outcome, Finished)
    told = [event.data for event in await bench.events(task.task_id) if event.type in {"progress", "custom"}]
    assert told == [
        {"done": 3.0, "total": 10.0, "fraction": 0.3, "note": None},
        {"data": {"1": "nan", "who": "<object>", "half": "\N{REPLACEMENT CHARACTER}"}},
    ]


async def test_a_chat_tells_of_tools_and_tokens_and_counts_them(bench):
    _, task = await bench.do("chat", "look around")
    assert (task.status, task.result) == (Status.SUCCESS, "the final answer")
    assert (task.usage.turns, task.usage.total_tokens) == (2, 20)
    assert sum(counts["total_tokens"] for counts in task.usage.by_model.values()) == 20
    told = [(event.type, event.data) for event in await bench.events(task.task_id)]
    started, ended = (next(data for kind, data in told if kind == f"tool.{how}") for how in ("started", "ended"))
    assert (started["name"], started["id"], ended) == ("look", "call-0", {"name": "look", "id": "call-0", "ok": True})
    assert "".join(data["text"] for kind, data in told if kind == "tokens") == "the final answer"
    messages = (await thread_of(bench, task.task_id))["messages"]
    assert (messages[0].id, messages[0].content) == (f"{task.runs[0].run_id}-input", "look around")


async def test_a_deep_agent_runs(bench):
    _, task = await bench.do("deep", "look around", state={"files": {}})
    assert (task.status, task.result, task.usage.turns) == (Status.SUCCESS, "the final answer", 4)
    assert await bench.did(task.task_id) == ["look"] * 3


async def test_a_step_that_the_state_does_not_take_fails_no_later_run(bench):
    """LangGraph takes one value in a step for a key without a reducer."""
    outcome, task = await bench.do("torn", "both write")
    assert (outcome.type, task.status) == ("InvalidUpdateError", Status.ERROR)
    updated = await bench.store.update(task.task_id, {"text": "go on"})
    with capture_logs() as lines:
        assert isinstance(await bench.runner.run(task.task_id, updated.run_id), Finished)
    assert [line["error"] for line in lines if line["event"] == "run.step_dropped"] == ["InvalidUpdateError"]
    assert (await bench.store.get(task.task_id)).result["done"] == ["left", "right"]


async def test_a_run_that_lost_only_its_settle_gets_the_same_result(bench):
    """A worker that dies after the last step: the next one has nothing to do but to settle."""
    task_id, run_id = await bench.submit("chat", "look around")
    settle = bench.store.settle

    async def lost(*_args, **_kwargs):
        return None

    bench.store.settle = lost
    await bench.runner.run(task_id, run_id)
    bench.store.settle = settle
    task = await bench.store.get(task_id)
    (run,) = task.runs
    await bench.redis.hset(bench.store.keys.run(run_id), "lease_until_ms", 1)
    assert await bench.store.take_lost(Claim.of(await bench.store.facts(task_id), run), max_attempts=3) == "released"
    assert isinstance(await bench.runner.run(task_id, run_id), Finished)
    task = await bench.store.get(task_id)
    assert (task.status, task.result, task.attempt) == (Status.SUCCESS, "the final answer", 1)
    assert await bench.did(task_id) == ["look"]


async def test_a_graph_without_checkpoints_inside_one_of_ours(bench):
    _, task = await bench.do("no_checkpoints_inside")
    assert (task.status, task.result["done"]) == (Status.SUCCESS, ["inner", "after"])


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def refusing():
    """Ignore, as the worker does, that LangChain never awaits a callback where another refused a turn."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine 'ahandle_event' was never awaited", RuntimeWarning)
        yield
        gc.collect()


@pytest.mark.usefixtures("refusing")
async def test_the_turn_that_a_limit_forbids_is_not_made_and_its_tools_finish(bench):
    outcome, task = await bench.do("talker", limits={"max_turns": 2})
    assert isinstance(outcome, Failed)
    assert (task.status, task.error.type, task.usage.turns) == (Status.ERROR, "limit_turns", 2)
    assert await bench.did(task.task_id) == ["look", "look"]


@pytest.mark.usefixtures("refusing")
async def test_tokens_are_limited_at_the_top_of_a_turn(bench):
    _, task = await bench.do("talker", limits={"max_tokens": 15})
    assert (task.error.type, task.usage.turns, task.usage.total_tokens) == ("limit_total_tokens", 2, 20)


@pytest.mark.usefixtures("refusing")
async def test_an_agent_cannot_swallow_a_limit(bench):
    _, task = await bench.do("swallower", limits={"max_turns": 3})
    assert (task.status, task.error.type, task.usage.turns) == (Status.ERROR, "limit_turns", 3)


@pytest.mark.usefixtures("refusing")
async def test_a_turn_that_is_refused_cuts_off_what_works_beside_it(bench):
    task_id, run_id = await bench.submit("beside", limits={"max_turns": 1})
    running = asyncio.create_task(bench.runner.run(task_id, run_id))
    await bench.at(task_id, "dig")
    await bench.open(task_id, "talk")
    assert (await running).type == "limit_turns"
    assert await bench.did(task_id) == ["cut"]


async def test_working_time_ends_a_run_as_timeout(bench):
    outcome, task = await bench.do("sleeper", limits={"timeout_seconds": 0.05})
    assert isinstance(outcome, TimedOut)
    assert (task.status, task.runs[0].status, task.runs[0].ended_as) == (
        Status.TIMEOUT,
        RunStatus.TIMEOUT,
        EndedAs.TIMED_OUT,
    )
    assert task.error.type == "timeout"
    assert task.working_ms >= 50


async def test_working_time_of_earlier_attempts_counts(bench):
    task_id, run_id = await bench.submit("sleeper", limits={"timeout_seconds": 10})
    await bench.redis.hset(bench.store.keys.task(task_id), "working_ms", 10_000)
    assert isinstance(await bench.runner.run(task_id, run_id), TimedOut)


async def test_a_run_that_tells_nothing_for_too_long_is_ended(bench):
    outcome, task = await bench.do("sleeper", limits={"idle_seconds": 0.05})
    assert isinstance(outcome, Failed)
    assert (task.status, task.error.type) == (Status.ERROR, "limit_idle")
    assert task.error.message == "nothing came from it for limits.idle_seconds = 0.05"


@pytest.mark.parametrize(
    ("limit", "status", "why"),
    [("timeout_seconds", Status.TIMEOUT, "timeout"), ("idle_seconds", Status.ERROR, "limit_idle")],
)
async def test_what_a_run_had_when_its_time_was_over_is_kept_and_an_update_goes_on(bench, limit, status, why):
    await bench.do("compiled")  # the agents are loaded by now
    _, task = await bench.do("compiled", state={"gates": ["b"]}, limits={limit: 1})
    assert (task.status, task.error.type, task.result["done"]) == (status, why, ["a"])
    updated = await bench.store.update(task.task_id, {"text": "go on", "state": {"gates": [], "done": []}})
    await bench.runner.run(task.task_id, updated.run_id)
    task = await bench.store.get(task.task_id)
    assert (task.status, task.error) == (Status.SUCCESS, None)
    assert task.result["done"][-1] == "c"


@pytest.mark.usefixtures("refusing")
async def test_what_limits_bound_is_counted_anew_from_each_wake(bench):
    """The turns and the working time of the runs before it are told in the record, and bound nothing any more."""
    task_id, run_id = await bench.submit("talker", limits={"max_turns": 2, "timeout_seconds": 100})
    child = await bench.submit("compiled", parent_id=task_id, ancestors=(task_id,))
    await bench.runner.run(task_id, run_id)
    await bench.redis.hset(bench.store.keys.task(task_id), "working_ms", 100_000)
    await bench.runner.run(*child)
    (wake,) = bench.bells
    outcome = await bench.runner.run(wake.task_id, wake.run_id)
    assert (outcome.type, (await bench.store.get(task_id)).usage.turns) == ("limit_turns", 4)


async def test_code_that_does_not_stop_is_left_behind_and_fenced(bench, monkeypatch):
    monkeypatch.setattr(activation, "STOP_SECONDS", 0.05)
    task_id, run_id = await bench.submit("stubborn", limits={"timeout_seconds": 0.05})
    running = asyncio.create_task(bench.runner.run(task_id, run_id))
    await bench.until(task_id, "task.settled")
    assert not running.done()  # its slot is taken until its code has ended
    await bench.open(task_id, "still")
    await bench.open(task_id, "stubborn")
    assert isinstance(await running, TimedOut)
    assert "done" not in await thread_of(bench, task_id)
    assert await bench.did(task_id) == []


@pytest.mark.parametrize("agent", ["compiled", "factory"])
async def test_news_for_an_agent_without_messages_is_an_error_of_its_run(bench, agent):
    task_id, run_id = await bench.submit(agent)
    child = await bench.submit("compiled", parent_id=task_id, ancestors=(task_id,))
    await bench.runner.run(task_id, run_id)
    await bench.runner.run(*child)
    wake = bench.bells[-1]
    outcome = await bench.runner.run(wake.task_id, wake.run_id)
    assert (outcome.type, (await bench.store.get(task_id)).status) == ("BadInput", Status.ERROR)
    assert "what its subagents tell has no place" in outcome.message


async def test_a_result_that_redis_does_not_take_is_an_error_of_its_run(bench, monkeypatch):
    settle = Store.settle

    async def refuse(store, claim, ending):
        if ending.result:
            raise TooLarge("EVALSHA with 3,000,000 bytes ends its connection each time")
        return await settle(store, claim, ending)

    monkeypatch.setattr(Store, "settle", refuse)
    outcome, task = await bench.do("compiled")
    assert isinstance(outcome, Failed)
    assert (task.status, task.error.type) == (Status.ERROR, "TooLarge")


# --- cancel ----------------------------------------------------------------------------------------------------------


async def test_a_cancelled_pending_run_never_calls_its_agent(bench):
    task_id, run_id = await bench.submit("compiled")
    await bench.store.cancel(task_id)
    assert isinstance(await bench.runner.run(task_id, run_id), Cancelled)
    assert await bench.did(task_id) == []


async def test_a_bell_below_a_cut_closes_what_rests_above_it(bench):
    """The canceller died between its first step and its walk."""
    root, _ = await bench.submit("compiled")
    middle, middle_run = await bench.submit("chat", parent_id=root, ancestors=(root,))
    leaf = await bench.submit("chat", parent_id=middle, ancestors=(root, middle))
    await bench.runner.run(middle, middle_run)
    await bench.store.cancel(root, keep_children=True)
    await bench.redis.hincrby(bench.store.keys.task(root), "cut", 1)
    assert isinstance(await bench.runner.run(*leaf), Cancelled)
    (wake,) = bench.bells
    assert isinstance(await bench.runner.run(wake.task_id, wake.run_id), Cancelled)
    assert [(await bench.store.peek(one)).status for one in (middle, leaf[0])] == [Status.CANCELLED] * 2
    assert await bench.did(leaf[0]) == []


async def _cancelled_at(bench, task_id, run_id, gate):
    running = asyncio.create_task(bench.runner.run(task_id, run_id))
    await bench.at(task_id, gate)
    await bench.store.cancel(task_id)
    bench.held.stop(run_id, activation.Stop.CANCELLED)
    return running


async def test_a_cancel_stops_a_running_agent_and_keeps_nothing_of_its_late_output(bench):
    task_id, run_id = await bench.submit("held_chat")
    running = await _cancelled_at(bench, task_id, run_id, "model")
    assert bench.held.used()[run_id].turns == 1
    assert isinstance(await running, Cancelled)
    task = await bench.store.get(task_id)
    assert (task.status, task.runs[0].ended_as) == (Status.CANCELLED, EndedAs.CANCELLED)
    assert task.stopped_at is not None
    assert task.usage.turns == 1
    assert [message.type for message in (await thread_of(bench, task_id))["messages"]] == ["human"]


async def test_what_a_model_said_is_kept_where_its_step_was_cut_off_before_its_checkpoint(bench, monkeypatch):
    """Its write is saved, and its step looks done: without it, the answer to its call would answer nothing."""
    put, cut_off = RedisSaver.aput, asyncio.Event()

    async def cut(saver, config, checkpoint, *more):
        messages = checkpoint["channel_values"].get("messages")
        if messages and messages[-1].type == "ai":
            cut_off.set()
            await asyncio.Event().wait()
        return await put(saver, config, checkpoint, *more)

    with monkeypatch.context() as patched:
        patched.setattr(RedisSaver, "aput", cut)
        task_id, run_id = await bench.submit("chat")
        running = asyncio.create_task(bench.runner.run(task_id, run_id))
        await cut_off.wait()
        await bench.store.cancel(task_id)
        bench.held.stop(run_id, Stop.CANCELLED)
        assert isinstance(await running, Cancelled)
    updated = await bench.store.update(task_id, {"text": "go on", "state": {}})
    assert isinstance(await bench.runner.run(task_id, updated.run_id), Finished)
    human, said, closed, more, answer = (await thread_of(bench, task_id))["messages"]
    assert [one.type for one in (human, said, closed, more, answer)] == ["human", "ai", "tool", "human", "ai"]
    assert closed.tool_call_id == said.tool_calls[0]["id"]


async def test_the_late_write_of_code_that_swallows_a_cancel_is_refused(bench):
    task_id, run_id = await bench.submit("stubborn")
    running = await _cancelled_at(bench, task_id, run_id, "stubborn")
    await bench.at(task_id, "still")
    await bench.open(task_id, "still")
    assert isinstance(await running, Cancelled)
    assert "done" not in await thread_of(bench, task_id)
    assert await bench.did(task_id) == []


async def test_sync_code_is_stopped_only_when_it_has_ended(bench):
    task_id, run_id = await bench.submit("slow_sync")
    running = await _cancelled_at(bench, task_id, run_id, "sync")
    (control,) = bench.held._controls
    await asyncio.wait([control._work])  # the coroutine has ended, its thread has not
    assert (await bench.store.get(task_id)).stopped_at is None
    assert not running.done()
    await bench.open(task_id, "sync")
    assert isinstance(await running, Cancelled)
    assert (await bench.store.get(task_id)).stopped_at is not None
    assert await bench.did(task_id) == []


async def test_a_replaced_claim_ends_its_run_quietly(bench):
    task_id, run_id = await bench.submit("compiled", state={"gates": ["b"]})
    running = asyncio.create_task(bench.runner.run(task_id, run_id))
    await bench.at(task_id, "b")
    await bench.redis.hincrby(bench.store.keys.task(task_id), "epoch", 1)
    await bench.open(task_id, "b")
    assert isinstance(await running, NotOurs)
    assert (await bench.store.get(task_id)).status is Status.RUNNING
    assert await bench.did(task_id) == ["a", "b"]


async def test_a_run_goes_on_from_what_redis_has_where_that_has_lost_its_last_step(bench):
    """As where a replica takes over that had not heard of it yet."""
    client, pattern = bench.redis, f"{{{bench.store.keys.namespace}}}:*"
    task_id, run_id = await bench.submit("compiled", state={"gates": ["a", "b"]})
    running = asyncio.create_task(bench.runner.run(task_id, run_id))
    await bench.at(task_id, "a")
    kept = {key: await client.dump(key) async for key in client.scan_iter(pattern)}
    await bench.open(task_id, "a")
    await bench.at(task_id, "b")
    for key in [key async for key in client.scan_iter(pattern)]:
        await client.delete(key)
    for key, value in kept.items():
        await client.restore(key, 0, value)
    await bench.open(task_id, "b")
    assert isinstance(await running, GivenBack)

    for gate in "ab":
        await bench.open(task_id, gate)
    assert isinstance(await bench.runner.run(task_id, run_id), Finished)
    task = await bench.store.get(task_id)
    assert (task.status, task.attempt, task.result["done"]) == (Status.SUCCESS, 0, ["a", "b", "c"])
    assert await bench.did(task_id) == ["a", "b", "a", "b", "c"]


# --- drain -----------------------------------------------------------------------------------------------------------


async def test_a_drained_run_goes_on_where_it_stood(bench):
    task_id, run_id = await bench.submit("compiled", state={"gates": ["b"]})
    running = asyncio.create_task(bench.runner.run(task_id, run_id))
    await bench.at(task_id, "b")
    bench.held.drain()
    await bench.open(task_id, "b")
    assert isinstance(await running, GivenBack)
    task = await bench.store.get(task_id)
    assert (task.status, task.phase, task.attempt) == (Status.PENDING, Phase.QUEUED, 0)

    bench.held.__init__()  # another worker's
    assert isinstance(await bench.runner.run(task_id, run_id), Finished)
    assert await bench.did(task_id) == ["a", "b", "c"]
    events = await bench.events(task_id)
    assert [event.data["node"] for event in events if event.type == "step"] == ["a", "b", "c"]
    assert types(events).count("task.settled") == 1
