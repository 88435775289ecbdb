"""Errors that are worth another attempt, and what counts as one: on the test's own loop, then with real workers."""

import signal

import pytest

from outrider.shared import store_clockwork
from outrider.shared.notification_text import report
from outrider.shared.settings import Settings
from outrider.shared.statuses import Phase, RunStatus, Status
from outrider.worker.outcomes import Failed, Finished, Retried
from sites import Monitor, open_site

HOUR_MS = 3_600_000


@pytest.fixture
def bench(bench, monkeypatch):
    monkeypatch.setattr(store_clockwork, "FIRST_PAUSE_MS", HOUR_MS)
    monkeypatch.setattr(store_clockwork, "LONGEST_PAUSE_MS", 3 * HOUR_MS)
    return bench


async def let_its_time_come(bench, task_id, run_id):
    await bench.redis.hset(bench.store.keys.run(run_id), "not_before_ms", 1)
    await bench.redis.zadd(bench.store.keys.ring_at(), {f"{task_id}/{run_id}": 1})


async def again(bench, task_id, run_id):
    await let_its_time_come(bench, task_id, run_id)
    return await bench.runner.run(task_id, run_id)


async def test_a_retry_waits_in_the_record_and_goes_on_from_its_last_step(bench):
    task_id, run_id = await bench.submit("flaky", "b=busy")
    outcome = await bench.runner.run(task_id, run_id)
    assert (outcome.type, HOUR_MS / 2000 <= outcome.seconds <= HOUR_MS / 1000) == ("VeryBusy", True)
    task = await bench.store.get(task_id)
    (run,) = task.runs
    assert (task.status, task.phase, task.attempt, task.error) == (Status.PENDING, Phase.QUEUED, 1, None)
    assert (run.status, run.attempt, run.error.type, run.worker) == (RunStatus.PENDING, 1, "VeryBusy", "bench")
    waited = (run.not_before - task.updated_at).total_seconds()
    assert waited == pytest.approx(outcome.seconds, abs=0.01)
    last = (await bench.events(task_id))[-1]
    assert (last.type, last.data["error_type"]) == ("run.retried", "VeryBusy")
    assert last.data["seconds"] == pytest.approx(outcome.seconds, abs=0.1)

    early = await bench.runner.run(task_id, run_id)  # a doubled bell
    assert early == Retried("VeryBusy")
    await bench.sweeper().sweep()
    assert (await bench.did(task_id), bench.bells) == (["a", "b"], [])

    await let_its_time_come(bench, task_id, run_id)
    await bench.sweeper().sweep()
    assert [bell.run_id for bell in bench.bells] == [run_id]
    assert isinstance(await bench.runner.run(task_id, run_id), Finished)
    task = await bench.store.get(task_id)
    assert (task.status, task.result["done"], task.attempt) == (Status.SUCCESS, ["a", "b", "c"], 1)
    assert (task.runs[0].error, task.runs[0].not_before) == (None, None)
    assert await bench.did(task_id) == ["a", "b", "b", "c"]


async def test_the_last_attempt_ends_the_task_in_its_error(bench):
    task_id, run_id = await bench.submit("flaky", "b=away,busy,away,away")
    pauses = [await bench.runner.run(task_id, run_id), await again(bench, task_id, run_id)]
    assert [type(pause) for pause in pauses] == [Retried, Retried]
    outcome = await again(bench, task_id, run_id)
    task = await bench.store.get(task_id)
    assert (task.status, task.error.type, task.attempt) == (Status.ERROR, "ConnectError", 2)
    assert task.error.message == outcome.message == "no route (after 3 attempts)"
    assert await bench.did(task_id) == ["a", "b", "b", "b"]


async def test_a_long_error_of_each_attempt_is_kept_short_and_its_parent_reads_the_type(bench):
    await bench.store.register("p", "me", "me")
    fields = {"max_attempts": 4, "parent_id": "p", "ancestors": ("p",)}
    task_id, run_id = await bench.submit("flaky", "b=wordy,wordy,wordy,wordy", **fields)
    await bench.runner.run(task_id, run_id)
    for _ in range(3):
        outcome = await again(bench, task_id, run_id)
    task, keys = await bench.store.get(task_id), bench.store.keys
    assert isinstance(outcome, Failed)
    assert (task.status, task.attempt) == (Status.ERROR, 3)
    assert task.error.message.endswith("(cut: 500,000 characters in all) (after 4 attempts)")
    kept = [keys.task(task_id), keys.run(run_id), keys.large(task_id), keys.events(task_id), keys.inbox("p")]
    assert sum([await bench.redis.memory_usage(key, 0) or 0 for key in kept]) < 50_000
    (note,) = await bench.store.unread("p", saved=0, after=0)
    assert "The subagent ended as error (VeryBusy)." in note.text
    assert "&amp;" not in note.text
    assert len(note.text) < 1000
    assert "(cut: 500,000 characters in all)" in report(task)


async def test_pauses_double_up_to_the_longest(bench):
    task_id, run_id = await bench.submit("flaky", "b=busy,busy,busy,busy", max_attempts=9)
    pauses = [(await bench.runner.run(task_id, run_id)).seconds]
    pauses += [(await again(bench, task_id, run_id)).seconds for _ in range(3)]
    longest = [1, 2, 3, 3]
    assert all(hours / 2 <= pause / 3600 <= hours for pause, hours in zip(pauses, longest, strict=True))


async def test_attempts_count_since_the_last_new_checkpoint(bench):
    task_id, run_id = await bench.submit("flaky", "a=busy b=busy c=busy", max_attempts=2)
    assert isinstance(await bench.runner.run(task_id, run_id), Retried)
    for _ in "bc":
        assert isinstance(await again(bench, task_id, run_id), Retried)
    assert isinstance(await again(bench, task_id, run_id), Finished)
    task = await bench.store.get(task_id)
    assert (task.status, task.attempt, task.result["done"]) == (Status.SUCCESS, 3, ["a", "b", "c"])


@pytest.mark.parametrize("agent", ["flaky_inside", "flaky_called", "flaky_deep"])
async def test_a_graph_within_that_comes_no_further_is_no_new_checkpoint(bench, agent):
    task_id, run_id = await bench.submit(agent, "b=busy,busy,busy,busy,busy")
    outcomes = [await bench.runner.run(task_id, run_id)] + [await again(bench, task_id, run_id) for _ in range(2)]
    assert [type(outcome) for outcome in outcomes] == [Retried, Retried, Failed]
    assert len(await bench.did(task_id)) == (3 if agent == "flaky_deep" else 4)  # `a` is not done again


async def test_the_tasks_own_bound_goes_before_the_workers(bench):
    outcome, task = await bench.do("flaky", "b=busy", max_attempts=1)
    assert (type(outcome), task.error.message, task.attempt) == (Failed, "come again", 0)


@pytest.mark.parametrize("error", ["own", "endless", "long"])
async def test_others_end_the_task_at_once(bench, error):
    outcome, task = await bench.do("flaky", f"b={error}")
    assert (type(outcome), task.status, task.attempt) == (Failed, Status.ERROR, 0)


async def test_a_cancel_ends_a_run_that_waits(bench):
    task_id, run_id = await bench.submit("flaky", "b=busy")
    await bench.runner.run(task_id, run_id)
    await bench.store.cancel(task_id)
    task = await bench.store.get(task_id)
    assert (task.status, task.runs[0].not_before) == (Status.CANCELLED, None)
    assert await bench.redis.zcard(bench.store.keys.ring_at()) == 0


# --- real workers ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def site(redis_url, namespace, monkeypatch):
    monkeypatch.setenv("OUTRIDER_REDIS_URL", redis_url)
    async with open_site(Settings(redis_url=redis_url, namespace=namespace)) as site:
        yield site


async def test_the_process_that_gave_a_run_back_rings_when_its_time_comes(site):
    """No sweep comes for an hour: it looks just then."""
    with Monitor(site.app) as monitor, site.worker("-c", "2", OUTRIDER_SWEEP_SECONDS="3600"):
        task_id, run_id = await site.submit("flaky", "b=busy")
        task = await site.settled(task_id)
        assert (task.status, task.attempt) == (Status.SUCCESS, 1)
        await monitor.hears("task-succeeded", run_id)
    assert "task-retried" in monitor.of(run_id)
    events = await site.desk.events(task_id)
    [retried] = [event for event in events if event.type == "run.retried"]
    claimed = [event for event in events if event.type == "run.claimed"][-1]
    assert (claimed.at - retried.at).total_seconds() >= retried.data["seconds"] - 0.05  # it is told in tenths


async def test_an_agent_that_kills_its_process_is_given_up_and_those_beside_it_are_not(site):
    killer, _ = await site.submit("flaky", "b=kill,kill,kill", state={"gates": ["b"]})
    beside, _ = await site.submit("flaky", "x", state={"gates": ["a", "b"]}, max_attempts=2)
    for step in "ab":
        with site.worker("-c", "2") as worker:
            await site.desk.at(beside, step)
            await site.desk.open(beside, step)  # and so it is lost in its next step
            await site.desk.until(beside, "step", "ab".index(step) + 1)
            await site.desk.at(killer, "b")
            await site.desk.open(killer, "b")
            assert await worker.ends() == -signal.SIGKILL
    with site.worker("-c", "2") as worker:
        assert (await site.settled(beside)).status is Status.SUCCESS
        await site.desk.open(killer, "b")
        assert await worker.ends() == -signal.SIGKILL
    with site.worker("-c", "2"):
        lost = await site.settled(killer)
    assert (lost.status, lost.error.type, lost.attempt) == (Status.ERROR, "WorkerLost", 2)
    assert "3 times in 3 attempts" in lost.error.message
    assert await site.desk.did(killer) == ["a", "b", "b", "b"]


async def test_a_run_that_saves_a_step_between_losses_goes_on(site):
    task_id, _ = await site.submit("flaky", "a=kill b=kill c=kill", max_attempts=2)
    for _ in "abc":
        with site.worker("-c", "1") as worker:
            assert await worker.ends() == -signal.SIGKILL
    with site.worker("-c", "1"):
        task = await site.settled(task_id)
    assert (task.status, task.attempt, task.result["done"]) == (Status.SUCCESS, 3, ["a", "b", "c"])
