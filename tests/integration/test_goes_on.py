"""After whatever stopped a run, its task goes on with a message, on real workers.

The puppets' model refuses a history in which a call has no result directly after it, or a result no call.
"""

import pytest

import puppets
from outrider.shared.errors import TaskActive
from outrider.shared.statuses import EndedAs, RunStatus, Status
from puppets import called, started

CLOSED = "No result: the run ended before"


async def in_the_middle(site, agent, ns="", **fields):
    """A task that is in the middle of three calls, of which one has its result."""
    task_id = await site.parent(agent, **fields)
    await site.read(task_id)
    await site.hold(task_id, "look b", "look c")
    await site.let_call(task_id, *(called("look", where=where) for where in "abc"))
    await site.pop(task_id, "look b")
    await site.pop(task_id, "look c")
    await site.saved(task_id, "seen a", ns)
    return task_id


async def closed_and_goes_on(site, task_id, message="go on"):
    """The model reads the results there are, the mark that others are missing, and the message; then the task ends."""
    read = await site.read(task_id)
    assert [message["type"] for message in read.messages[-5:]] == ["ai", "tool", "tool", "tool", "human"]
    assert read.last == message
    results = {one["tool_call_id"]: one["content"] for one in read.messages[-4:-1]}
    calls = {call["id"]: call["args"]["where"] for call in read.messages[-5]["tool_calls"]}
    assert {calls[call]: result[: len(CLOSED)] for call, result in results.items()} == {
        "a": "seen a",
        "b": CLOSED,
        "c": CLOSED,
    }
    await site.say(task_id, "done after all")
    task = await site.o.wait(task_id)
    assert (task.status, task.result, task.error) == (Status.SUCCESS, "done after all", None)
    return task


@pytest.mark.parametrize("agent", puppets.AGENTS)
async def test_a_cancelled_task_goes_on(site, agent):
    task_id = await in_the_middle(site, agent)
    await site.o.cancel(task_id)
    await site.o.update(task_id, "go on")
    task = await closed_and_goes_on(site, task_id)
    assert [run.status for run in task.runs] == [RunStatus.CANCELLED, RunStatus.SUCCESS]


@pytest.mark.parametrize("how", ["cancel", "interrupt"])
async def test_an_agent_within_the_agent_that_keeps_its_own_conversation_goes_on_with_it(site, how):
    task_id = await in_the_middle(site, "keeps", ns="inner")
    if how == "cancel":
        await site.o.cancel(task_id)
    await site.o.update(task_id, "go on", strategy="interrupt")
    await closed_and_goes_on(site, task_id)


@pytest.mark.parametrize("agent", puppets.AGENTS)
async def test_a_task_whose_working_time_was_over_goes_on(site, agent):
    # Time enough to come to the calls, and little to wait then.
    task_id = await in_the_middle(site, agent, limits={"timeout_seconds": 4})
    assert (await site.o.wait(task_id)).status is Status.TIMEOUT
    await site.o.update(task_id, "go on")
    await closed_and_goes_on(site, task_id)


@pytest.mark.parametrize("agent", puppets.AGENTS)
async def test_a_task_whose_turns_were_used_up_goes_on_and_counts_anew(site, agent):
    task_id = await site.parent(agent, limits={"max_turns": 1})
    await site.read(task_id)
    await site.let_call(task_id, called("look", where="a"), called("look", where="b"))
    task = await site.o.wait(task_id)
    assert (task.status, task.error.type) == (Status.ERROR, "limit_turns")
    await site.o.update(task_id, "go on")
    read = await site.read(task_id)
    assert [(message["type"], message["content"]) for message in read.messages] == [
        ("human", "lead"),
        ("ai", ""),
        ("tool", "seen a"),
        ("tool", "seen b"),
        ("human", "go on"),
    ]
    await site.say(task_id)
    assert (await site.o.wait(task_id)).status is Status.SUCCESS


@pytest.mark.parametrize("agent", puppets.AGENTS)
async def test_a_failed_task_goes_on(site, agent):
    task_id = await site.parent(agent)
    await site.read(task_id)
    await site.let_call(task_id, called("boom"), called("look", where="there"))
    await site.pop(task_id, "boom")
    await site.saved(task_id, "seen there")
    await site.answer(task_id, "boom")
    assert (await site.o.wait(task_id)).status is Status.ERROR
    await site.o.update(task_id, "go on")
    read = await site.read(task_id)
    assert sorted(message["content"][: len(CLOSED)] for message in read.messages[-3:-1]) == [CLOSED, "seen there"]
    await site.say(task_id)
    assert (await site.o.wait(task_id)).error is None


async def test_tasks_whose_worker_was_lost_go_on(redis_url, namespace):
    env = puppets.QUICK | {"OUTRIDER_LEASE_SECONDS": "1.5", "OUTRIDER_MAX_ATTEMPTS": "1"}
    async with puppets.site(redis_url, namespace) as site:
        with puppets.worker(redis_url, namespace, **env) as worker:
            task_ids = [await in_the_middle(site, agent) for agent in puppets.AGENTS]
            worker.process.kill()
        with puppets.worker(redis_url, namespace, **env):
            for task_id in task_ids:
                task = await site.o.wait(task_id)
                assert (task.status, task.error.type) == (Status.ERROR, "WorkerLost")
                await site.o.update(task_id, "go on")
                await closed_and_goes_on(site, task_id)


@pytest.mark.parametrize("agent", puppets.AGENTS)
async def test_a_question_is_dropped_and_its_call_is_closed(site, agent):
    task_id = await site.parent(agent)
    await site.read(task_id)
    await site.let_call(task_id, called("person"), called("look", where="there"))
    task = await site.o.wait(task_id)
    assert task.status is Status.WAITING
    updated = await site.o.update(task_id, "never mind")
    assert [one.value for one in updated.dropped] == ["go on?"]
    read = await site.read(task_id)
    assert sorted(message["content"][: len(CLOSED)] for message in read.messages[-3:-1]) == [CLOSED, "seen there"]
    assert read.last == "never mind"
    await site.say(task_id)
    assert (await site.o.wait(task_id)).status is Status.SUCCESS


async def test_what_was_given_before_an_agent_could_begin_is_not_lost(site):
    task_id = await site.parent("agent", queue="nobody")
    await site.o.cancel(task_id)
    keys = site.store.keys
    await site.redis.hset(keys.task(task_id), "work_queue", "subagents")
    await site.o.update(task_id, "go on")
    assert [message["content"] for message in (await site.read(task_id)).messages] == ["lead\n\ngo on"]
    await site.say(task_id)
    await site.o.wait(task_id)


async def test_a_task_whose_agent_is_gone_ends_in_a_clear_error(site):
    task_id = await site.parent("leaf")
    await site.o.wait(task_id)
    await site.redis.hset(site.store.keys.task(task_id), "agent", "gone")
    await site.o.update(task_id, "go on")
    task = await site.o.wait(task_id)
    assert (task.status, task.error.type) == (Status.ERROR, "UnknownAgent")


# Interrupts and follow-ups


@pytest.mark.parametrize("agent", puppets.AGENTS)
async def test_an_interrupt_in_the_middle_of_calls_keeps_what_is_done_and_goes_on_at_once(site, agent):
    task_id = await in_the_middle(site, agent)
    with pytest.raises(TaskActive):
        await site.o.update(task_id, "go on")
    updated = await site.o.update(task_id, "go on", strategy="interrupt")
    task = await closed_and_goes_on(site, task_id)
    assert [(run.run_id, run.status, run.ended_as) for run in task.runs] == [
        (updated.overtaken, RunStatus.CANCELLED, EndedAs.OVERTAKEN),
        (updated.run_id, RunStatus.SUCCESS, EndedAs.FINISHED),
    ]


@pytest.mark.parametrize("agent", puppets.AGENTS)
async def test_an_interrupt_in_the_middle_of_a_model_call_drops_that_call_alone(site, agent):
    task_id = await site.parent(agent)
    await site.read(task_id)
    await site.call(task_id, called("look", where="a"))
    await site.o.update(task_id, "rather this", strategy="interrupt")
    read = await site.read(task_id)
    assert [message["content"] for message in read.messages] == ["lead", "", "seen a", "rather this"]
    await site.say(task_id)
    assert (await site.o.wait(task_id)).status is Status.SUCCESS


@pytest.mark.parametrize("agent", puppets.AGENTS)
async def test_interrupts_one_after_the_other_leave_a_valid_history(site, agent):
    task_id = await in_the_middle(site, agent)
    for at in range(5):
        await site.o.update(task_id, f"message {at}", strategy="interrupt")
    task = await closed_and_goes_on(site, task_id, "\n\n".join(f"message {at}" for at in range(5)))
    assert len(task.runs) == 6


@pytest.mark.parametrize("agent", puppets.AGENTS)
async def test_follow_ups_come_in_order_and_the_last_ending_counts(site, agent):
    task_id = await site.parent(agent)
    await site.read(task_id)
    for at in range(3):
        assert (await site.o.update(task_id, f"message {at}", strategy="enqueue")).run_id is None
    assert (await site.o.get(task_id)).follow_ups == 3
    for at in range(3):
        await site.say(task_id, f"answer {at}")
        assert (await site.read(task_id)).last == f"message {at}"
    await site.say(task_id, "the last answer")
    task = await site.o.wait(task_id)
    assert (task.result, task.follow_ups, len(task.runs)) == ("the last answer", 0, 4)
    kinds = [event.type async for event in site.o.follow(task_id)]
    assert (kinds.count("task.settled"), kinds.count("run.ended"), kinds.count("task.updated")) == (1, 3, 3)


async def test_a_cancel_with_follow_ups_starts_none(site):
    task_id = await site.parent("agent")
    await site.read(task_id)
    for at in range(3):
        await site.o.update(task_id, f"message {at}", strategy="enqueue")
    assert (await site.o.cancel(task_id)).follow_ups == 3
    task = await site.o.wait(task_id)
    assert (task.status, len(task.runs)) == (Status.CANCELLED, 1)


async def test_a_child_that_is_updated_is_told_of_once_more(site):
    parent = await site.parent("agent")
    await site.read(parent)
    await site.call(parent, started("wait"))
    (child,) = await site.children(parent)
    await site.rest(parent)
    await site.end(child)
    assert (await site.read(parent)).notes == [child]
    await site.say(parent)
    await site.o.wait(parent)
    await site.o.update(child, "more")
    await site.end(child)
    read = await site.read(parent)
    assert read.notes == [child, child]
    await site.say(parent)
    await site.o.wait(parent)
    assert len((await site.o.get(child)).runs) == 2


async def test_a_message_to_a_resting_parent_is_read_at_once_and_it_rests_again(site):
    parent = await site.parent("agent")
    await site.read(parent)
    await site.call(parent, started("wait"))
    (child,) = await site.children(parent)
    await site.rest(parent)
    await site.o.update(parent, "how far are you?", strategy="enqueue")
    assert (await site.read(parent)).last == "how far are you?"
    await site.rest(parent)
    await site.end(child)
    assert (await site.read(parent)).notes == [child]
    await site.say(parent)
    assert (await site.o.wait(parent)).status is Status.SUCCESS


async def test_a_note_that_a_message_has_overtaken_says_so(site):
    parent = await site.parent("agent")
    await site.read(parent)
    await site.call(parent, started("wait"))
    (child,) = await site.children(parent)
    await site.end(child)
    await site.o.update(child, "more")
    await site.let_call(parent, called("look", where="there"))
    read = await site.read(parent)
    assert read.notes == [child]
    assert "That is not its last word" in read.last
    await site.rest(parent)
    await site.end(child)
    read = await site.read(parent)
    assert read.notes == [child, child]
    assert "That is not its last word" not in read.last
    await site.say(parent)
    await site.o.wait(parent)
