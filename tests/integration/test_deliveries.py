"""What webhooks are sent, in the store. Each test runs on fakeredis and on a real server."""

import json

import pytest

from families import submission
from outrider.shared import store_deliveries
from outrider.shared.records import Interrupt
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status
from outrider.shared.transitions import Ending, Facts

URL = "https://example.com/hook"
LEASE_MS = 30_000
FACTS = Facts("t", "echo", "echo", webhook=True)
DONE = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result='"done"')
FAILED = Ending(RunStatus.ERROR, EndedAs.FAILED, Status.ERROR, error_type="Boom", error_message="secret")
ASKS = Ending(RunStatus.SUCCESS, EndedAs.PAUSED, Status.WAITING, Phase.ASKING, (Interrupt(id="q", value="?"),))


async def submit(store, facts=FACTS, **changes):
    path, webhook = "/".join((*facts.ancestors, facts.task_id)), URL if facts.webhook else None
    await store.submit(submission(path, **{"queue": "q1", "input": {"text": "go"}, "webhook": webhook} | changes))


async def run(store, ending, facts=FACTS):
    run_id = (await store.peek(facts.task_id)).run_id
    claimed = await store.claim(facts, run_id, worker="w", lease_ms=LEASE_MS)
    for _ in range(2):
        assert await store.settle(claimed.claim, ending)


async def take(store, run_id="t-1"):
    return await store.take_delivery("t", run_id, lease_ms=LEASE_MS)


async def now_due(store):
    """Let the moment of each next attempt come."""
    for member in await store.redis.zrange(store.keys.deliveries(), 0, -1):
        await store.redis.zadd(store.keys.deliveries(), {member: 1})


async def test_the_facts_say_that_a_task_has_a_webhook(store):
    await submit(store)
    assert await store.facts("t") == FACTS == Facts.of(await store.peek("t"))
    await submit(store, Facts("plain", "echo", "echo"))
    assert not (await store.facts("plain")).webhook


@pytest.mark.parametrize(("ending", "status"), [(DONE, "success"), (FAILED, "error")])
async def test_an_end_is_due_at_once_with_one_id_and_one_body(store, ending, status):
    await submit(store)
    assert await store.due_deliveries() == ()
    await run(store, ending)
    assert await store.due_deliveries() == (("t", "t-1"),)
    attempt = await take(store)
    assert (attempt.number, attempt.url, attempt.delivery_id) == (1, URL, f"t:t-1:{status}")
    told = json.loads(attempt.body)["data"]
    assert (told["status"], told["error_type"], told["result"]) == (
        status,
        ending.error_type or None,
        "done" if ending is DONE else "",
    )
    assert b"secret" not in attempt.body
    assert await take(store) is None
    assert (await store.not_delivered(attempt, "HTTP 500")).value == "pending"
    await now_due(store)
    again = await take(store)
    assert (again.number, again.delivery_id, again.body) == (2, attempt.delivery_id, attempt.body)
    shown = (await store.get("t")).runs[0].delivery
    assert (shown.status, shown.tries, shown.error) == ("pending", 2, "HTTP 500")
    assert await store.delivered(again)
    shown = (await store.get("t")).runs[0].delivery
    assert (shown.status, shown.tries, shown.error, shown.next_at) == ("delivered", 2, None, None)
    assert await store.due_deliveries() == ()
    assert await take(store) is None


async def test_an_attempt_that_another_has_replaced_notes_nothing(store):
    await submit(store)
    await run(store, DONE)
    slow = await take(store)
    await now_due(store)
    quick = await take(store)
    assert await store.not_delivered(slow, "late") is None
    assert await store.delivered(quick)
    assert not await store.delivered(quick)
    assert await store.not_delivered(quick, "late") is None


async def test_after_the_last_try_it_is_given_up_and_told(store):
    await submit(store)
    await run(store, DONE)
    for _ in range(store_deliveries.MAX_TRIES):
        await now_due(store)
        status = await store.not_delivered(await take(store), "HTTP 410")
    assert status.value == "failed"
    assert await store.due_deliveries() == ()
    assert (await store.troubles()) == store_deliveries.Troubles(given_up=1, failing=0, error="", waiting=0)
    assert (await store.get("t")).runs[0].delivery.error == "HTTP 410"


async def test_only_a_real_end_is_told(store):
    """Not a question, nor a rest, nor what a follow-up or news goes on from."""
    await submit(store)
    await run(store, ASKS)
    assert await store.due_deliveries() == ()
    await store.update("t", {"text": "x", "state": {}})
    child = Facts("c", "echo", "echo", "t", ("t",))
    await submit(store, child)
    await run(store, DONE)
    assert (await store.peek("t")).phase is Phase.RESTING
    assert await store.due_deliveries() == ()
    await run(store, DONE, child)
    await run(store, DONE)
    woken = (await store.get("t")).runs[-1].run_id
    assert await store.due_deliveries() == (("t", woken),)


async def test_a_cancel_is_told_once(store):
    await submit(store)
    for _ in range(2):
        await store.cancel("t")
    assert await store.due_deliveries() == (("t", "t-1"),)
    assert (await take(store)).delivery_id == "t:t-1:cancelled"


async def test_a_question_that_expired_is_told(store):
    await submit(store, answer_within_ms=1000)
    await run(store, ASKS)
    await store.redis.zadd(store.keys.answer_until(), {"t/t-1": 1})
    assert await store.expire(FACTS, "t-1")
    assert (await take(store)).delivery_id == "t:t-1:timeout"


async def test_each_end_is_told(store):
    await submit(store)
    await run(store, DONE)
    second = (await store.update("t", {"text": "more", "state": {}})).run_id
    await run(store, FAILED)
    assert set(await store.due_deliveries()) == {("t", "t-1"), ("t", second)}


async def test_what_is_forgotten_is_not_sent(store):
    await submit(store)
    await run(store, DONE)
    await store.redis.hset(store.keys.task("t"), "updated_ms", 1)
    assert await store.condemn("t", older_than_ms=1000)
    assert await take(store) is None
    await store.erase(await store.remains("t"))
    assert not await store.redis.exists(store.keys.delivery("t-1"), store.keys.deliveries())


async def test_deliveries_that_nobody_sends_are_noticed(store):
    await submit(store)
    await run(store, DONE)
    assert (await store.troubles()).waiting == 0
    await now_due(store)
    assert (await store.troubles()) == store_deliveries.Troubles(given_up=0, failing=0, error="", waiting=1)
