"""The store's contract. Each test runs on fakeredis and on a real server."""

import asyncio
import json
from dataclasses import replace
from functools import partial

import pytest
from redis.exceptions import ResponseError

from outrider.shared import store_clockwork
from outrider.shared.context import Claim
from outrider.shared.errors import BadInput, IdempotencyConflict, UnknownTask
from outrider.shared.limits import Usage
from outrider.shared.records import Fault, Interrupt
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status
from outrider.shared.store import Store
from outrider.shared.transitions import Claimed, Ending, Facts, NotClaimed, Submission

LEASE_MS = 30_000
DONE = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result='"done"')


def submission(name="t", **changes):
    values = {
        "task_id": name,
        "run_id": f"{name}-run",
        "agent": "echo",
        "title": "echo",
        "queue": "subagents",
        "input": {"text": "hello", "state": {}},
    }
    return Submission(**values | changes)


async def submitted(store, name="t", **changes):
    await store.submit(submission(name, **changes))
    return Facts(name, changes.get("agent", "echo"))


async def claimed(store, name="t", lease_ms=LEASE_MS):
    facts = await submitted(store, name)
    held = await store.claim(facts, f"{name}-run", worker="w1", lease_ms=lease_ms)
    return held.claim


async def snapshot(store):
    """All that the namespace holds, so that a test can say that nothing changed."""
    found = {}
    for key in await store.redis.keys(f"{{{store.keys.namespace}}}:*"):
        kind = (await store.redis.type(key)).decode()
        found[key] = {
            "hash": store.redis.hgetall,
            "string": store.redis.get,
            "list": lambda k: store.redis.lrange(k, 0, -1),
            "zset": lambda k: store.redis.zrange(k, 0, -1, withscores=True),
            "stream": store.redis.xrange,
        }[kind](key)
    return {key: await value for key, value in found.items()}


async def event_types(store, task_id="t"):
    return [event.type for event in await store.events(task_id, "0", reader=store.redis)]


async def test_a_submitted_task_is_pending_and_its_bell_is_due_later(store):
    answer = await store.submit(submission(metadata={"who": "me"}))
    task = await store.get("t")
    assert answer.created
    assert (task.status, task.phase, task.run_id, task.metadata) == (
        Status.PENDING,
        Phase.QUEUED,
        "t-run",
        {"who": "me"},
    )
    assert [(run.run_id, run.status, run.queue) for run in task.runs] == [("t-run", RunStatus.PENDING, "subagents")]
    assert [member async for member in members(store, store.keys.ring_at())] == ["t/t-run"]
    assert (await store.sweep(lease_ms=LEASE_MS)).overdue == ()


async def members(store, key):
    for member in await store.redis.zrange(key, 0, -1):
        yield member.decode()


async def test_the_same_submit_again_changes_nothing(store):
    await store.submit(submission())
    before = await snapshot(store)
    assert not (await store.submit(submission())).created
    assert await snapshot(store) == before


async def test_an_idempotency_key_finds_its_task_again(store):
    first = await store.submit(submission("a", idempotency_key="k"))
    again = await store.submit(submission("b", idempotency_key="k"))
    assert first.created
    assert (again.created, again.task_id, again.run_id) == (False, "a", "a-run")
    with pytest.raises(UnknownTask):
        await store.get("b")


async def test_an_idempotency_key_with_another_payload_conflicts_and_changes_nothing(store):
    await store.submit(submission("a", idempotency_key="k"))
    before = await snapshot(store)
    with pytest.raises(IdempotencyConflict, match="belongs to task a with another payload"):
        await store.submit(submission("b", idempotency_key="k", input={"text": "other", "state": {}}))
    assert await snapshot(store) == before


async def test_what_may_be_large_is_not_read_with_the_record(store):
    big = {"key": "x" * 100_000}
    facts = await submitted(store, context=big, configurable=big)
    held = await store.claim(facts, "t-run", worker="w1", lease_ms=LEASE_MS)
    asks = Ending(
        RunStatus.SUCCESS,
        EndedAs.PAUSED,
        Status.WAITING,
        task_phase=Phase.ASKING,
        interrupts=(Interrupt(id="q", value=big),),
        result=json.dumps(big),
    )
    assert await store.settle(held.claim, asks)
    assert sum(map(len, (await store.redis.hgetall(store.keys.task("t"))).values())) < 2_000
    task = await store.get("t")
    assert (task.interrupts, task.result) == (asks.interrupts, None)
    assert json.loads(await store.redis.hget(store.keys.large("t"), "result")) == big
    (listed,) = (await store.list(statuses=[Status.WAITING])).tasks
    assert (listed.interrupts, listed.result) == ((), None)
    await store.cancel("t")
    assert (await store.get("t")).interrupts == ()


async def test_a_bell_is_made_from_the_record_and_there_is_none_of_what_is_gone(store):
    await submitted(store)
    bell = await store.bell_of("t", "t-run")
    assert (bell.task_id, bell.run_id, bell.queue, bell.label) == ("t", "t-run", "subagents", "echo · t")
    assert await store.bell_of("t", "other") is None
    await store.redis.delete(store.keys.task("t"))
    assert await store.bell_of("t", "t-run") is None


async def test_a_claim_hands_out_the_facts(store):
    facts = await submitted(store, context={"user": "u1"}, configurable={"docs": "/d"})
    held = await store.claim(facts, "t-run", worker="w1", lease_ms=LEASE_MS)
    assert held.input == {"text": "hello", "state": {}}
    assert (held.context, held.configurable) == ({"user": "u1"}, {"docs": "/d"})
    assert (held.task.status, held.task.phase, held.run.worker) == (Status.RUNNING, Phase.WORKING, "w1")
    assert held.claim.epoch == held.run.epoch == 1
    assert held.run.started_at is not None


async def test_a_doubled_bell_finds_the_door_open(store):
    claim = await claimed(store)
    before = await snapshot(store)
    assert await store.claim(claim.facts, "t-run", worker="w2", lease_ms=LEASE_MS) == NotClaimed("dropped", "running")
    assert await store.claim(claim.facts, "no-such-run", worker="w2", lease_ms=LEASE_MS) == NotClaimed("dropped")
    unknown = Facts("no-such-task", "echo")
    assert await store.claim(unknown, "r", worker="w2", lease_ms=LEASE_MS) == NotClaimed("dropped")
    assert await snapshot(store) == before


async def test_fifty_claims_at_once_have_one_winner(store):
    facts = await submitted(store)
    answers = await asyncio.gather(*(store.claim(facts, "t-run", worker=f"w{i}", lease_ms=LEASE_MS) for i in range(50)))
    assert sum(isinstance(answer, Claimed) for answer in answers) == 1


async def test_settle_ends_run_and_task_in_one_step(store):
    claim = await claimed(store)
    ending = replace(DONE, usage=Usage(turns=2, total_tokens=9), events=[("step", {"node": "a"})])
    assert await store.settle(claim, ending)
    task = await store.get("t")
    assert (task.status, task.phase, task.result, task.run_id, task.settled) == (
        Status.SUCCESS,
        None,
        "done",
        None,
        True,
    )
    assert (task.usage.turns, task.usage.total_tokens) == (2, 9)
    assert (task.runs[0].status, task.runs[0].ended_as) == (RunStatus.SUCCESS, EndedAs.FINISHED)
    assert task.stopped_at == task.runs[0].ended_at
    assert await event_types(store) == ["task.submitted", "run.claimed", "step", "task.settled"]
    for index in (store.keys.leases(), store.keys.ring_at(), store.keys.slots("echo")):
        assert await store.redis.zcard(index) == 0
    assert await store.redis.exists(store.keys.input("t-run")) == 0


async def test_a_repeated_settle_gets_the_same_answer_and_changes_nothing(store):
    claim = await claimed(store)
    await store.settle(claim, DONE)
    before = await snapshot(store)
    assert await store.settle(claim, DONE)
    assert await snapshot(store) == before


async def test_an_error_is_kept_with_its_type(store):
    claim = await claimed(store)
    failed = Ending(
        RunStatus.ERROR, EndedAs.FAILED, Status.ERROR, error_type="ValueError", error_message="no such page"
    )
    await store.settle(claim, failed)
    task = await store.get("t")
    assert (task.error.type, task.error.message) == ("ValueError", "no such page")
    assert task.runs[0].error == task.error


@pytest.mark.parametrize(
    "change", [{"epoch": 2}, {"epoch": 0}, {"token": "0" * 16}, {"token": ""}, {"run_id": "other"}]
)
async def test_every_write_of_another_claim_is_refused_and_changes_nothing(store, change):
    claim = await claimed(store)
    stale = replace(claim, **change)
    before = await snapshot(store)
    assert not await store.settle(stale, DONE)
    assert not await store.emit(stale, [("step", {})])
    assert not await store.give_back(stale)
    assert await store.heartbeat([stale], lease_ms=LEASE_MS) == [False]
    assert await snapshot(store) == before


async def test_heartbeats_renew_many_leases_in_one_call(store):
    claims = [await claimed(store, f"t{i}", lease_ms=1) for i in range(3)]
    await store.cancel("t1")
    assert await store.heartbeat(claims, lease_ms=LEASE_MS) == [True, False, True]
    assert (await store.sweep(lease_ms=LEASE_MS)).lost == ()


async def expire(store, name="t"):
    """Put a lease into the past on Redis' own clock."""
    await store.redis.zadd(store.keys.leases(), {f"{name}/{name}-run": 1})
    await store.redis.hset(store.keys.run(f"{name}-run"), "lease_until_ms", "1")


async def test_a_lost_lease_returns_the_run_with_one_more_attempt(store):
    old = await claimed(store)
    await expire(store)
    assert (await store.sweep(lease_ms=LEASE_MS)).lost == (("t", "t-run"),)
    run = await store.get_run("t-run")
    assert await store.take_lost(Claim.of(old.facts, run), max_attempts=3) == "released"
    assert await store.take_lost(Claim.of(old.facts, run), max_attempts=3) == "refused"
    task = await store.get("t")
    assert (task.status, task.attempt, task.runs[0].attempt) == (Status.PENDING, 1, 1)
    new = await store.claim(old.facts, "t-run", worker="w2", lease_ms=LEASE_MS)
    assert new.input == {"text": "hello", "state": {}}
    assert not await store.settle(old, DONE)
    assert await store.settle(new.claim, DONE)


async def test_a_worker_whose_run_was_taken_gives_nothing_back(store):
    claim = await claimed(store)
    await expire(store)
    assert await store.take_lost(Claim.of(claim.facts, await store.get_run("t-run")), max_attempts=3) == "released"
    before = await store.get("t")
    assert not await store.give_back(claim)
    answer, _ = await store.retry(claim, Fault(type="Flaky", message=""), least_ms=0, max_attempts=3)
    assert (answer, await store.get("t")) == ("refused", before)


async def test_a_renewed_lease_is_not_lost(store):
    claim = await claimed(store)
    await expire(store)
    run = await store.get_run("t-run")
    await store.heartbeat([claim], lease_ms=LEASE_MS)
    assert await store.take_lost(Claim.of(claim.facts, run), max_attempts=3) == "refused"
    assert not await store.settle(claim, DONE, only_expired=True)


async def test_a_run_that_was_lost_too_often_is_left_to_be_settled(store):
    claim = await claimed(store)
    await expire(store)
    run = await store.get_run("t-run")
    assert await store.take_lost(Claim.of(claim.facts, run), max_attempts=1) == "exhausted"
    lost = Ending(RunStatus.ERROR, EndedAs.LOST, Status.ERROR, error_type="WorkerLost", error_message="1 attempt")
    assert await store.settle(claim, lost, only_expired=True)
    assert (await store.get("t")).error.type == "WorkerLost"


async def test_losses_count_since_the_last_new_checkpoint_up_to_a_ceiling_in_all(store, monkeypatch):
    monkeypatch.setattr(store_clockwork, "MAX_LOSSES", 4)
    facts = await submitted(store)
    answers = []
    for saves in (1, 0, 1, 1):
        await store.claim(facts, "t-run", worker="w", lease_ms=LEASE_MS)
        await store.redis.hincrby(store.keys.task("t"), "saves", saves)
        await expire(store)
        answers.append(await store.take_lost(Claim.of(facts, await store.get_run("t-run")), max_attempts=3))
    run = await store.get_run("t-run")
    assert (answers, run.attempt, run.losses) == (["released"] * 3 + ["exhausted"], 3, 3)


async def test_the_tasks_own_attempts_go_before_the_sweepers(store):
    facts = await submitted(store, max_attempts=2)
    for answer in ("released", "exhausted"):
        await store.claim(facts, "t-run", worker="w", lease_ms=LEASE_MS)
        await expire(store)
        assert await store.take_lost(Claim.of(facts, await store.get_run("t-run")), max_attempts=1) == answer


async def test_a_retry_is_not_claimed_before_its_time(store):
    claim = await claimed(store)
    error = Fault(type='Od"d', message="come again")
    retry = partial(store.retry, claim, error, max_attempts=3, usage=Usage(turns=2))
    answers = [await retry(least_ms=60_000) for _ in range(2)]
    assert [answer for answer, _ in answers] == ["released"] * 2  # the first answer was lost
    assert 59_000 < answers[1][1] <= answers[0][1] == 60_000
    assert await store.claim(claim.facts, "t-run", worker="w", lease_ms=LEASE_MS) == NotClaimed("early", error.type)
    assert (await store.sweep(lease_ms=LEASE_MS)).overdue == ()
    task = await store.get("t")
    assert (task.status, task.waits_for, task.attempt, task.runs[0].error) == (Status.PENDING, "retry", 1, error)
    assert (await store.events("t", "0-0", reader=store.redis))[-1].data == {"error_type": 'Od"d', "seconds": 60.0}
    await store.redis.hset(store.keys.run("t-run"), "not_before_ms", 1)
    again = await store.claim(claim.facts, "t-run", worker="w", lease_ms=LEASE_MS)
    assert (again.run.error, again.run.not_before, again.run.attempt, again.task.waits_for) == (None, None, 1, None)
    assert (again.task.usage.turns, again.task.usage_before.turns) == (2, 0)  # limits go on counting
    assert await retry(least_ms=0) == ("refused", 0)


async def test_nobody_is_lost_for_one_lease_after_nobody_swept(store):
    await claimed(store)
    await expire(store)
    await store.sweep(lease_ms=LEASE_MS)
    await store.redis.hset(store.keys.last_sweep(), "at", "1")
    assert (await store.sweep(lease_ms=LEASE_MS)).lost == ()
    await store.redis.hset(store.keys.last_sweep(), "grace_until", "1")
    assert (await store.sweep(lease_ms=LEASE_MS)).lost == (("t", "t-run"),)


async def test_sweeps_that_are_rarer_than_leases_still_find_who_is_lost(store):
    await claimed(store)
    await expire(store)
    await store.sweep(lease_ms=LEASE_MS)
    at = int(await store.redis.hget(store.keys.last_sweep(), "at")) - LEASE_MS
    await store.redis.hset(store.keys.last_sweep(), "at", at)
    assert (await store.sweep(lease_ms=LEASE_MS, every_ms=LEASE_MS)).lost == (("t", "t-run"),)


async def test_a_given_back_run_keeps_its_attempt_and_input(store):
    claim = await claimed(store)
    assert await store.give_back(claim)
    task = await store.get("t")
    assert (task.status, task.phase, task.attempt) == (Status.PENDING, Phase.QUEUED, 0)
    again = await store.claim(claim.facts, "t-run", worker="w2", lease_ms=LEASE_MS)
    assert (again.claim.epoch, again.input) == (3, {"text": "hello", "state": {}})


async def test_an_overdue_bell_is_rung_by_one_and_then_ever_later(any_redis, namespace):
    store = Store(any_redis, namespace, ring_again_ms=10_000)
    facts = await submitted(store)
    gaps = []
    for _ in range(3):
        await store.redis.zadd(store.keys.ring_at(), {"t/t-run": 1})
        assert (await store.sweep(lease_ms=LEASE_MS)).overdue == (("t", "t-run"),)
        assert [await store.ring_again(facts, "t-run") for _ in range(2)] == [True, False]
        seconds, micros = await store.redis.time()
        due = await store.redis.zscore(store.keys.ring_at(), "t/t-run")
        gaps.append(round((due - seconds * 1000 - micros / 1000) / 10_000))
    assert gaps == [2, 4, 8]


async def test_a_bell_of_a_run_that_is_not_pending_is_not_rung(store):
    claim = await claimed(store)
    await store.redis.zadd(store.keys.ring_at(), {"t/t-run": 1})
    assert not await store.ring_again(claim.facts, "t-run")
    assert (await store.sweep(lease_ms=LEASE_MS)).overdue == ()


async def test_cancel_of_a_pending_task_is_final_and_it_is_never_claimed(store):
    facts = await submitted(store)
    answer = await store.cancel("t")
    assert (answer.outcome, answer.status) == ("cancelled", Status.CANCELLED)
    assert await store.claim(facts, "t-run", worker="w1", lease_ms=LEASE_MS) == NotClaimed("dropped", "cancelled")
    task = await store.get("t")
    assert task.settled
    assert task.stopped_at is not None
    assert task.runs[0].ended_as == EndedAs.CANCELLED
    assert await store.redis.zcard(store.keys.ring_at()) == 0


async def test_cancel_of_a_running_task_refuses_what_its_code_still_writes(store):
    claim = await claimed(store)
    await store.cancel("t")
    assert not await store.settle(claim, DONE)
    assert not await store.emit(claim, [("step", {})])
    assert not await store.give_back(claim)
    task = await store.get("t")
    assert (task.status, task.result, task.stopped_at) == (Status.CANCELLED, None, None)
    assert await store.redis.zcard(store.keys.slots("echo")) == 1
    assert await store.stopped(claim)
    assert (await store.get("t")).stopped_at is not None
    assert await store.redis.zcard(store.keys.slots("echo")) == 0


async def test_a_claim_that_was_replaced_does_not_say_that_a_cancelled_run_stopped(store):
    old = await claimed(store)
    await expire(store)
    assert await store.take_lost(Claim.of(old.facts, await store.get_run("t-run")), max_attempts=3) == "released"
    new = (await store.claim(old.facts, "t-run", worker="w2", lease_ms=LEASE_MS)).claim
    await store.cancel("t")
    assert not await store.stopped(old, Usage(turns=9))
    assert not await store.stopped(new, only_expired=True)
    assert await store.redis.zcard(store.keys.leases()) == 1
    assert ((await store.get("t")).stopped_at, (await store.get("t")).usage.turns) == (None, 0)
    assert await store.stopped(new, Usage(turns=2))
    task = await store.get("t")
    assert (task.stopped_at is not None, task.usage.turns) == (True, 2)
    assert await store.stopped(new)
    assert await store.get("t") == task


async def test_what_was_not_written_yet_goes_with_a_run_that_is_given_back(store):
    claim = await claimed(store)
    assert await store.give_back(claim, events=[("step", {"node": "a"})])
    events = await store.events("t", "0-0", reader=store.redis)
    assert [(event.type, event.data) for event in events[-2:]] == [("step", {"node": "a"}), ("run.given_back", {})]


async def test_cancel_tells_the_worker(store):
    await claimed(store)
    async with store.redis.pubsub() as channel:
        await channel.subscribe(store.keys.control())
        await channel.get_message(timeout=5)
        await store.cancel("t")
        message = await channel.get_message(timeout=5)
    assert message["data"] == b"t-run"


@pytest.mark.parametrize(
    ("run_status", "status"),
    [
        (RunStatus.SUCCESS, Status.SUCCESS),
        (RunStatus.ERROR, Status.ERROR),
        (RunStatus.TIMEOUT, Status.TIMEOUT),
        (RunStatus.CANCELLED, Status.CANCELLED),
    ],
)
async def test_cancel_of_what_has_ended_tells_how_and_changes_nothing(store, run_status, status):
    claim = await claimed(store)
    if status is Status.CANCELLED:
        await store.cancel("t")
    else:
        await store.settle(claim, Ending(run_status, EndedAs.FINISHED, status))
    before = await snapshot(store)
    answer = await store.cancel("t")
    assert (answer.outcome, answer.status) == ("already_finished", status)
    assert await snapshot(store) == before


async def test_cancel_of_an_unknown_task_is_an_error(store):
    with pytest.raises(UnknownTask, match="no task nope"):
        await store.cancel("nope")


async def test_a_move_that_is_not_in_the_table_fails_loudly(store):
    claim = await claimed(store)
    with pytest.raises(ResponseError, match="MOVE task t"):
        await store.settle(claim, replace(DONE, task_status=Status.IDLE))
    assert (await store.get("t")).status is Status.RUNNING


@pytest.mark.parametrize("limit", [1, 3, 7, 50])
async def test_pages_hold_every_task_once_newest_first(store, limit):
    for i in range(7):
        await submitted(store, f"t{i}")
    seen, before = [], None
    while True:
        page = await store.list(limit=limit, before=before)
        seen += [task.task_id for task in page.tasks]
        assert page.more == (len(seen) < 7)
        if not page.more:
            break
        before = page.next
    created = [(await store.peek(task_id)).created_at for task_id in seen]
    assert sorted(seen) == [f"t{i}" for i in range(7)]
    assert created == sorted(created, reverse=True)


async def test_lists_by_status_and_agent(store):
    await claimed(store, "running")
    await submitted(store, "pending")
    await submitted(store, "other", agent="fox")
    await store.cancel("other")

    async def ids(**filters):
        return {task.task_id for task in (await store.list(**filters)).tasks}

    assert await ids(statuses=[Status.PENDING]) == {"pending"}
    assert await ids(statuses=[Status.PENDING, Status.CANCELLED]) == {"pending", "other"}
    assert await ids(agent="echo") == {"pending", "running"}
    assert await ids(agent="echo", statuses=[Status.RUNNING]) == {"running"}
    assert await ids(agent="none") == set()
    page = await store.list(statuses=[Status.PENDING, Status.CANCELLED], limit=1)
    assert (len(page.tasks), page.more) == (1, True)
    assert "result" not in page.tasks[0].to_json()


async def test_a_cursor_that_names_no_task_is_refused(store):
    with pytest.raises(BadInput, match="cursor nope names no task"):
        await store.list(before="nope")


async def test_events_come_in_order_and_from_where_one_was(store):
    claim = await claimed(store)
    await store.emit(claim, [("tokens", {"text": "a"}), ("tokens", {"text": "b"})])
    events = await store.events("t", "0", reader=store.redis)
    assert [(event.type, event.data.get("text")) for event in events[2:]] == [("tokens", "a"), ("tokens", "b")]
    assert {event.run_id for event in events} == {"t-run"}
    assert [e.id for e in await store.events("t", events[1].id, reader=store.redis)] == [e.id for e in events[2:]]
    assert await store.last_event_id("t") == events[-1].id


async def test_two_namespaces_never_meet(any_redis, namespace):
    one, two = Store(any_redis, namespace), Store(any_redis, f"{namespace}-b")
    await submitted(one)
    assert (await two.list()).tasks == ()
    with pytest.raises(UnknownTask):
        await two.get("t")


async def test_times_are_redis_time_in_rfc3339(store):
    await submitted(store)
    shown = (await store.get("t")).to_json()
    assert shown["created_at"].endswith("Z")
    assert len(shown["created_at"]) == len("2026-03-01T12:00:00.000Z")
    assert json.loads(json.dumps(shown)) == shown
