"""What `doctor` finds: each fault by itself, with its remedy; and nothing where nothing is wrong."""

import pytest

from outrider.orchestrator.doctor import check_agents, check_latency
from outrider.orchestrator.doctor_tasks import check_tasks, read_tasks
from outrider.orchestrator.doctor_workers import Fleet, LiveWorker, Queue, check_fleet
from outrider.shared.catalogue import Published
from outrider.shared.redis_checks import Level, check_redis
from outrider.shared.settings import Settings
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status
from outrider.shared.store import Store
from outrider.shared.transitions import Ending, Facts, NotClaimed, Submission

SOUND = {
    "redis_version": "7.2.4",
    "role": "master",
    "aof_enabled": 1,
    "aof_last_write_status": "ok",
    "aof_last_bgrewrite_status": "ok",
    "rdb_last_bgsave_status": "ok",
    "maxmemory_policy": "noeviction",
    "maxmemory": 0,
    "used_memory": 10**6,
}


def test_a_sound_redis_has_no_findings():
    assert list(check_redis(SOUND)) == []
    assert list(check_redis(SOUND | {"redis_version": "6.2.14"})) == []
    assert list(check_redis({})) == []


@pytest.mark.parametrize(
    ("fault", "level", "said", "remedy"),
    [
        ({"redis_version": "6.0.16"}, Level.ERROR, "version 6.0.16", "6.2"),
        ({"redis_version": "5.0"}, Level.ERROR, "version 5.0", "6.2"),
        ({"role": "slave"}, Level.ERROR, "replica", "primary"),
        ({"aof_enabled": 0}, Level.WARNING, "append-only", "appendonly yes"),
        ({"aof_last_write_status": "err"}, Level.ERROR, "cannot write", "disk"),
        ({"aof_last_bgrewrite_status": "err"}, Level.ERROR, "cannot rewrite", "disk"),
        ({"rdb_last_bgsave_status": "err"}, Level.ERROR, "snapshots", "disk"),
        ({"maxmemory_policy": "allkeys-lru"}, Level.WARNING, "allkeys-lru", "noeviction"),
        ({"maxmemory_policy": "allkeys-lru", "maxmemory": 2**30}, Level.ERROR, "memory is full", "noeviction"),
        ({"maxmemory": 100, "used_memory": 90}, Level.WARNING, "90%", "maxmemory"),
        ({"maxmemory": 100, "used_memory": 100}, Level.ERROR, "100%", "maxmemory"),
    ],
)
def test_a_fault_of_redis_is_found_with_its_remedy(fault, level, said, remedy):
    [finding] = check_redis(SOUND | fault)
    assert finding.level == level
    assert said in finding.what
    assert remedy in finding.remedy


def test_a_slow_redis_is_found():
    assert list(check_latency([0.2] * 49 + [400.0])) == []
    [finding] = check_latency([25.0] * 50)
    assert "25 ms" in finding.what


def test_a_broken_agent_is_found_with_its_reason():
    agents = [Published(name="good"), Published(name="bad", broken="No module named 'x'")]
    [finding] = check_agents({agent.name: agent for agent in agents})
    assert finding.what == "agent bad is broken: No module named 'x'"


def test_no_worker_is_one_finding():
    queues = tuple(Queue(name, 0, 0, pending=False) for name in ("parents", "subagents"))
    [finding] = check_fleet(Fleet((), queues))
    assert (finding.level, "outrider worker" in finding.remedy) == (Level.ERROR, True)


@pytest.mark.parametrize(
    ("bells", "pending", "level"), [(0, False, Level.WARNING), (3, False, Level.ERROR), (0, True, Level.ERROR)]
)
def test_a_queue_that_nobody_serves_is_found(bells, pending, level):
    worker = LiveWorker("w@h", ("subagents",), 10, "threads")
    fleet = Fleet((worker,), (Queue("subagents", 9, 1, pending=True), Queue("slow", bells, 0, pending=pending)))
    [finding] = check_fleet(fleet)
    assert finding.level == level
    assert "slow" in finding.what
    assert finding.remedy == "start one: outrider worker -Q slow"


class Shelf:
    """A store with tasks in it."""

    def __init__(self, redis):
        self.store, self.settings = Store(redis, "t"), Settings(namespace="t")

    async def submit(self, task_id, *, queue="subagents", grade_queue=None):
        await self.store.submit(
            Submission(
                task_id=task_id,
                run_id=f"{task_id}-1",
                agent="a",
                title="a",
                queue=queue,
                input={"text": "x"},
                grade_queue=grade_queue,
            )
        )
        return Facts(task_id, "a")

    async def claim(self, task_id):
        facts = await self.submit(task_id)
        claimed = await self.store.claim(facts, f"{task_id}-1", worker="w", lease_ms=30_000)
        return claimed.claim

    async def findings(self, **fleet):
        return list(check_tasks(await read_tasks(self.store), self.settings, **{"workers": True, **fleet}))


@pytest.fixture
def shelf(fake_redis):
    return Shelf(fake_redis)


async def test_tasks_on_their_way_are_no_findings(shelf):
    await shelf.submit("waits")
    await shelf.claim("works")
    tasks = await read_tasks(shelf.store)
    facts = tasks.facts()
    assert (facts["by_status"]["pending"], facts["by_status"]["running"], facts["looked_at"]) == (1, 1, 2)
    assert (facts["oldest_pending"]["task_id"], facts["oldest_pending"]["queue"]) == ("waits", "subagents")
    assert tasks.queues() == {"subagents"}
    assert await shelf.findings() == []


async def test_no_tasks_are_no_findings(shelf):
    assert await shelf.findings() == []
    assert (await read_tasks(shelf.store)).facts()["oldest_pending"] is None


async def test_work_that_no_grader_takes_is_found(shelf):
    facts = await shelf.submit("t", grade_queue="graders")
    claimed = await shelf.store.claim(facts, "t-1", worker="w", lease_ms=30_000)
    done = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result='"r"')
    (bell,) = (await shelf.store.settle(claimed.claim, done)).bells
    await shelf.store.redis.hset(shelf.store.keys.run(bell.run_id), "rings", 1)
    assert (await read_tasks(shelf.store)).queues() == {"graders"}
    (finding,) = await shelf.findings()
    assert finding.what.startswith("task t waits for the queue graders")


async def test_tasks_that_wait_for_a_slot_are_counted_and_are_no_finding(shelf):
    await shelf.claim("works")
    facts = await shelf.submit("waits")
    assert await shelf.store.claim(facts, "waits-1", worker="w", lease_ms=30_000, slots=1) == NotClaimed("waits")
    await shelf.store.redis.hset(shelf.store.keys.run("waits-1"), "rings", 1)
    assert (await read_tasks(shelf.store)).facts()["wait_for_slots"] == {"a": 1}
    assert await shelf.findings() == []


async def test_bells_that_nobody_answers_are_found_for_each_queue(shelf):
    redis, keys = shelf.store.redis, shelf.store.keys
    for number in range(5):
        await shelf.submit(f"many-{number}")
        await redis.hset(keys.run(f"many-{number}-1"), "rings", 1)
    await shelf.submit("one", queue="slow")
    await redis.hset(keys.run("one-1"), "rings", 2)
    many, one = await shelf.findings()
    assert many.what.startswith("tasks many-0, many-1, many-2 and 2 more wait for the queue subagents")
    assert one.what.startswith("task one waits for the queue slow")
    assert one.remedy == "start more workers for it: outrider worker -Q slow"
    assert await shelf.findings(unserved={"slow"}) == [many], "that no worker serves it is a finding itself"
    assert await shelf.findings(workers=False) == []


@pytest.mark.parametrize("index", ["leases", "ring_at"])
async def test_what_no_sweeper_takes_up_is_found(shelf, index):
    if index == "leases":
        await shelf.claim("x")
    else:
        await shelf.submit("x")
    await shelf.store.redis.zadd(getattr(shelf.store.keys, index)(), {"x/x-1": 1000})
    [finding] = await shelf.findings()
    assert finding.level == Level.ERROR
    assert "task x lost its worker" in finding.what
    assert await shelf.findings(workers=False) == []


async def test_a_last_attempt_is_found(shelf):
    await shelf.claim("x")
    await shelf.store.redis.hset(shelf.store.keys.run("x-1"), "failures", shelf.settings.max_attempts - 2)
    assert await shelf.findings() == []
    await shelf.store.redis.hset(shelf.store.keys.run("x-1"), "failures", shelf.settings.max_attempts - 1)
    [finding] = await shelf.findings()
    assert "task x is at the last attempt" in finding.what
    await shelf.store.redis.hset(shelf.store.keys.task("x"), "saves", 1)  # it came further since
    assert await shelf.findings() == []


async def test_a_task_that_rests_for_nothing_is_found(shelf):
    claim = await shelf.claim("lead")
    child = Submission(
        task_id="child",
        run_id="child-1",
        agent="a",
        title="a",
        queue="subagents",
        input={"text": "x"},
        parent_id="lead",
        ancestors=("lead",),
    )
    await shelf.store.submit(child, claim)
    await shelf.store.settle(claim, Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result='"x"'))
    assert (await shelf.store.peek("lead")).phase is Phase.RESTING
    assert await shelf.findings() == []
    await shelf.store.redis.delete(shelf.store.keys.open_children("lead"))
    [finding] = await shelf.findings()
    assert "task lead rests with no child" in finding.what
    assert "outrider cancel" in finding.remedy
