"""What runs beside the runs of a worker process: heartbeat, sweeper, listener, events."""

import asyncio
import threading
from contextlib import asynccontextmanager
from unittest.mock import AsyncMock, Mock

import pytest
from structlog.testing import capture_logs

import workers
from outrider.shared.broker import BrokerUnreachable, make_app
from outrider.shared.limits import Usage
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status
from outrider.shared.store import Store
from outrider.worker.bell_thread import BellThread
from outrider.worker.cancel_listener import listen
from outrider.worker.control import Control, Held, Stop
from outrider.worker.emitter import Emitter
from outrider.worker.heartbeat import Heartbeat
from outrider.worker.outcomes import Finished, ending
from outrider.worker.sweeper import Sweeper


@pytest.fixture
async def bench(redis_url, namespace):
    async with workers.bench(redis_url, namespace, lease_seconds=60, heartbeat_seconds=0.1, max_attempts=2) as bench:
        yield bench


async def claimed(bench, worker="w", lease_ms=60_000):
    task_id, run_id = await bench.submit("compiled")
    facts = await bench.store.facts(task_id)
    return await bench.store.claim(facts, run_id, worker=worker, lease_ms=lease_ms)


async def lapse(bench, claim):
    """Let a lease have run out."""
    await bench.redis.hset(bench.store.keys.run(claim.run_id), "lease_until_ms", 1)
    await bench.redis.zadd(bench.store.keys.leases(), {f"{claim.task_id}/{claim.run_id}": 1})


async def test_a_lost_run_is_pending_again_and_rung_then_given_up(bench):
    got = await claimed(bench)
    await bench.sweeper().sweep()
    assert bench.bells == []  # its lease is good
    await lapse(bench, got.claim)
    await asyncio.gather(*(bench.sweeper().sweep() for _ in range(5)))
    task = await bench.store.get(got.task.task_id)
    assert (task.status, task.phase, task.attempt) == (Status.PENDING, Phase.QUEUED, 1)
    assert [bell.run_id for bell in bench.bells] == [got.run.run_id]

    again = await bench.store.claim(got.claim.facts, got.run.run_id, worker="w2", lease_ms=60_000)
    await lapse(bench, again.claim)
    await asyncio.gather(*(bench.sweeper().sweep() for _ in range(5)))
    task = await bench.store.get(got.task.task_id)
    assert (task.status, task.error.type, task.runs[0].ended_as) == (Status.ERROR, "WorkerLost", EndedAs.LOST)
    assert "2 times in 2 attempts; the last was w2" in task.error.message
    assert len(bench.bells) == 1


async def test_the_parent_of_a_task_that_is_given_up_hears_of_it_and_is_woken(bench):
    parent = await claimed(bench)
    child_id, run_id = await bench.submit(
        "compiled", parent_id=parent.task.task_id, ancestors=(parent.task.task_id,), max_attempts=1
    )
    facts = await bench.store.facts(child_id)
    held = await bench.store.claim(facts, run_id, worker="w", lease_ms=60_000)
    await bench.store.settle(parent.claim, ending(Finished('"so far"')))
    await lapse(bench, held.claim)
    await bench.sweeper().sweep()
    (wake,) = bench.bells
    woken = await bench.store.claim(parent.claim.facts, wake.run_id, worker="w", lease_ms=60_000)
    (note,) = woken.notifications
    assert (note.task_id, note.status, note.error_type) == (child_id, Status.ERROR, "WorkerLost")


async def test_a_cancelled_run_of_a_dead_worker_comes_to_rest(bench):
    got = await claimed(bench)
    await bench.store.cancel(got.task.task_id)
    await bench.sweeper().sweep()
    assert (await bench.store.get(got.task.task_id)).stopped_at is None  # its worker may be at it still
    await lapse(bench, got.claim)
    await bench.sweeper().sweep()
    task = await bench.store.get(got.task.task_id)
    assert (task.status, task.stopped_at is None) == (Status.CANCELLED, False)
    assert not await bench.redis.exists(bench.store.keys.leases())


async def test_a_cancelled_run_is_not_at_rest_while_its_worker_lives(bench):
    got = await claimed(bench)
    await bench.store.cancel(got.task.task_id)
    await lapse(bench, got.claim)
    assert await bench.store.heartbeat([got.claim], lease_ms=60_000) == [False]
    await bench.sweeper().sweep()
    assert (await bench.store.get(got.task.task_id)).stopped_at is None


async def test_an_overdue_bell_is_rung_once_by_many_sweepers(bench):
    task_id, run_id = await bench.submit("compiled")
    await bench.redis.zadd(bench.store.keys.ring_at(), {f"{task_id}/{run_id}": 1})
    await asyncio.gather(*(bench.sweeper().sweep() for _ in range(5)))
    assert [(bell.task_id, bell.run_id, bell.queue) for bell in bench.bells] == [(task_id, run_id, "subagents")]
    assert "go" not in bench.bells[0].label.split()


async def test_a_member_whose_task_is_gone_is_forgotten(bench):
    await bench.redis.zadd(bench.store.keys.ring_at(), {"gone/gone-run": 1})
    await bench.redis.zadd(bench.store.keys.leases(), {"gone/gone-run": 1})
    await bench.sweeper().sweep()
    assert not await bench.redis.exists(bench.store.keys.ring_at(), bench.store.keys.leases())


async def test_an_odd_record_stops_no_rescue_and_comes_again_later(bench, monkeypatch):
    monkeypatch.setattr("outrider.shared.store_clockwork.SWEEP_PAGE", 1)
    monkeypatch.setattr("outrider.worker.sweeper.SWEEP_PAGE", 1)
    keys = bench.store.keys
    odd, good = [await claimed(bench) for _ in range(2)]
    await bench.redis.hset(keys.run(odd.run.run_id), "kind", "of a later version")
    for at, got in enumerate((odd, good), 1):
        await lapse(bench, got.claim)
        await bench.redis.zadd(keys.leases(), {f"{got.task.task_id}/{got.run.run_id}": at})
    await bench.redis.zadd(keys.ring_at(), {"odd-member": 1})
    a_sweeper = bench.sweeper()
    while await a_sweeper.sweep():
        pass
    assert (await bench.store.get_run(good.run.run_id)).status is RunStatus.PENDING
    now_ms = (await bench.redis.time())[0] * 1000
    assert await bench.redis.zscore(keys.leases(), f"{odd.task.task_id}/{odd.run.run_id}") > now_ms


@pytest.mark.parametrize("is_told", [False, True])
async def test_a_broker_that_is_away_stops_no_rescue(bench, is_told):
    got = [await claimed(bench) for _ in range(3)]
    waiting = [await bench.submit("compiled") for _ in range(2)]
    for each in got:
        await lapse(bench, each.claim)
    await bench.redis.zadd(bench.store.keys.ring_at(), {f"{task_id}/{run_id}": 1 for task_id, run_id in waiting})
    tried = []

    async def fail(*what):
        tried.append(what)
        raise BrokerUnreachable("redis://localhost", "refused")

    away = Sweeper(bench.settings, bench.store, fail, fail if is_told else AsyncMock(), {})
    await away.sweep()
    runs = [await bench.store.get_run(each.run.run_id) for each in got]
    assert [run.status for run in runs] == [RunStatus.PENDING] * 3
    assert len(tried) == 1 + is_told  # a bell, and an event for monitors
    await bench.sweeper().sweep()
    assert {bell.run_id for bell in bench.bells} == {run_id for _, run_id in waiting}


async def test_bells_that_waited_while_the_broker_did_not_answer_are_not_tried(bench, monkeypatch):
    tried, asked = [], threading.Event()

    def hang(_app, bell):
        asked.wait()
        tried.append(bell)
        raise BrokerUnreachable("redis://localhost", "Timeout reading from socket")

    monkeypatch.setattr("outrider.worker.bell_thread.ring", hang)
    thread = BellThread(make_app(bench.settings), "node")
    rings = [asyncio.create_task(thread.ring(bell)) for bell in "abc"]
    asyncio.get_running_loop().call_soon(asked.set)  # after the first step of each
    rung = await asyncio.gather(*rings, return_exceptions=True)
    assert [type(error) for error in rung] == [BrokerUnreachable] * 3
    with pytest.raises(BrokerUnreachable):
        await thread.ring("d")
    thread.stop()
    assert tried == ["a", "d"]


async def test_a_tree_that_its_canceller_left_open_is_closed(bench, monkeypatch):
    got = await claimed(bench)
    child, _ = await bench.submit("compiled", parent_id=got.task.task_id, ancestors=(got.task.task_id,))
    with monkeypatch.context() as patch:

        async def die(store, task_id):
            raise ConnectionError

        patch.setattr(Store, "close_below", die)
        with pytest.raises(ConnectionError):
            await bench.store.cancel(got.task.task_id)
    await bench.redis.zadd(bench.store.keys.closing(), {got.task.task_id: 1})
    await bench.sweeper().sweep()
    assert (await bench.store.peek(child)).status is Status.CANCELLED
    assert not await bench.redis.exists(bench.store.keys.closing())


async def test_more_than_a_page_is_swept_at_once(bench):
    ids = [await bench.submit("compiled") for _ in range(120)]
    await bench.redis.zadd(bench.store.keys.ring_at(), {f"{task_id}/{run_id}": 1 for task_id, run_id in ids})
    a_sweeper = bench.sweeper()
    while await a_sweeper.sweep():
        pass
    assert {bell.run_id for bell in bench.bells} == {run_id for _, run_id in ids}


async def test_the_heartbeat_renews_what_is_held_and_tells_what_is_not(bench):
    loop = asyncio.get_running_loop()
    held = Held()
    controls = []
    for _ in range(2):
        got = await claimed(bench)
        control = Control(got.run.run_id, loop)
        control.held(got.claim)
        controls.append(control)
    kept, replaced = controls
    await lapse(bench, kept.claim)
    await bench.redis.hincrby(bench.store.keys.task(replaced.claim.task_id), "epoch", 1)
    with held.holding(kept), held.holding(replaced):
        heartbeat = Heartbeat(bench.settings, held, loop)
        heartbeat.start()
        await replaced.stopped
        await asyncio.to_thread(heartbeat.stop)
    assert (replaced.reason, replaced.claim.stale) == (Stop.STALE, True)
    assert (kept.reason, kept.claim.stale) == (None, False)
    assert (await bench.store.get_run(kept.run_id)).lease_until_ms > 1


async def test_what_a_task_used_is_noted_before_its_worker_can_die(bench):
    held = Held()
    heartbeat = Heartbeat(bench.settings, held, asyncio.get_running_loop())
    got = await claimed(bench)
    control = Control(got.run.run_id, asyncio.get_running_loop())
    control.held(got.claim)
    with held.holding(control):
        await heartbeat._beat(bench.store)
        for turns in (1, 2):
            control.usage = lambda turns=turns: Usage(turns=turns)
            await heartbeat._beat(bench.store)
            assert (await bench.store.peek(got.task.task_id)).usage.turns == turns
        await lapse(bench, got.claim)
        await bench.sweeper().sweep()
        again = await bench.store.claim(got.claim.facts, got.run.run_id, worker="w2", lease_ms=60_000)
        assert again.task.usage.turns == 2
        control.usage = lambda: Usage(turns=9)
        await heartbeat._beat(bench.store)
    assert (await bench.store.peek(got.task.task_id)).usage.turns == 2


async def test_a_loop_that_hangs_loses_its_claims(bench):
    loop = asyncio.get_running_loop()
    got = await claimed(bench)
    control = Control(got.run.run_id, loop)
    control.held(got.claim)
    await lapse(bench, got.claim)
    held = Held()
    with held.holding(control):
        heartbeat = Heartbeat(bench.settings, held, loop)
        heartbeat._answered -= 1000
        await heartbeat._beat(bench.store)
    assert (await bench.store.get_run(control.run_id)).lease_until_ms == 1


async def test_a_published_cancel_stops_the_run_it_names(bench):
    loop = asyncio.get_running_loop()
    held = Held()
    one, other = Control("one", loop), Control("other", loop)
    listening = loop.create_task(listen(bench.settings, bench.store.keys, held))
    with held.holding(one), held.holding(other):
        while not await bench.redis.publish(bench.store.keys.control(), "one"):
            pass
        await one.stopped
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    assert (one.reason, other.reason) == (Stop.CANCELLED, None)


async def test_a_control_channel_that_is_lost_is_logged_once_for_each_time(bench, monkeypatch):
    """Redis is away for two tries, loses the third one's subscription, and is away again."""
    tries, over = 0, asyncio.Event()

    async def lost():
        raise ConnectionError
        yield

    @asynccontextmanager
    async def connecting(settings):
        nonlocal tries
        tries += 1
        if tries != 3:
            over.set() if tries == 5 else None
            raise ConnectionError
        channel = AsyncMock(listen=lost)
        channel.__aenter__.return_value = channel
        yield Mock(pubsub=Mock(return_value=channel))

    monkeypatch.setattr("outrider.worker.cancel_listener.connect_blocking", connecting)
    monkeypatch.setattr("outrider.worker.cancel_listener.PAUSE_SECONDS", (0, 0))
    with capture_logs() as lines:
        listening = asyncio.create_task(listen(bench.settings, bench.store.keys, Held()))
        await over.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    assert [(one["event"], one["error"]) for one in lines] == [("cancels.not_heard", "ConnectionError")] * 2


async def test_cancelled_in_a_claim_s_shadow(bench):
    """A cancel that comes before the agent's code was started stops it all the same."""
    task_id, run_id = await bench.submit("compiled")
    claim = bench.store.claim

    async def claim_and_cancel(*args, **kwargs):
        got = await claim(*args, **kwargs)
        await bench.store.cancel(task_id)
        bench.held.stop(run_id, Stop.CANCELLED)
        return got

    bench.store.claim = claim_and_cancel
    outcome = await bench.runner.run(task_id, run_id)
    assert type(outcome).__name__ == "Cancelled"
    assert await bench.did(task_id) == []


async def test_events_are_batched_merged_and_fenced(bench):
    got = await claimed(bench)
    written = []

    async def write(batch):
        written.append(len(batch))
        return await bench.store.emit(got.claim, batch)

    emitter = Emitter(write)
    for word in ("one ", "two ", "three"):
        emitter.emit("tokens", {"text": word, "node": "model", "message_id": "m"})
    await asyncio.to_thread(emitter.emit, "step", {"node": "model"})
    await bench.until(got.task.task_id, "step")
    assert written == [2]
    events = await bench.events(got.task.task_id)
    assert [event.data["text"] for event in events if event.type == "tokens"] == ["one two three"]
    emitter.emit("step", {"node": "last"})
    assert await emitter.close() == [("step", {"node": "last"})]
    emitter.emit("step", {"node": "late"})
    assert await emitter.close() == []
    await bench.store.cancel(got.task.task_id)
    assert not await write([("step", {"node": "stale"})])
