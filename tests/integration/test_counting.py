"""What limits bound goes on counting through all that is not a submit, an update or a wake."""

from dataclasses import replace

import pytest

from families import DONE, LEASE_MS, Tree
from outrider.shared.context import Claim
from outrider.shared.grades import Grade
from outrider.shared.limits import Usage
from outrider.shared.queues import GRADERS
from outrider.shared.records import Fault, Interrupt
from outrider.shared.rubric import Rubric
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status
from outrider.shared.store import Store
from outrider.shared.transitions import Ending

WORKED_MS = 50_000
USED = Usage(turns=2, total_tokens=20)
ASKS = Ending(
    RunStatus.SUCCESS,
    EndedAs.PAUSED,
    Status.WAITING,
    Phase.ASKING,
    (Interrupt(id="q", value="go on?"),),
    usage=USED,
)


@pytest.fixture
def tree(any_redis, namespace):
    return Tree(Store(any_redis, namespace))


async def worked(tree):
    """A claim that has worked for a while."""
    held = await tree.claim()
    key = tree.store.keys.run(held.run.run_id)
    await tree.store.redis.hincrby(key, "claimed_ms", -WORKED_MS)
    return held


async def given_back(tree, held):
    assert await tree.store.give_back(held.claim, USED)


async def retried(tree, held):
    error = Fault(type="Passing", message="not now")
    await tree.store.retry(held.claim, error, least_ms=0, max_attempts=3, usage=USED)
    await tree.store.redis.hset(tree.store.keys.run(held.run.run_id), "not_before_ms", 1)


async def lost(tree, held):
    await tree.store.heartbeat([held.claim], lease_ms=LEASE_MS, used={held.run.run_id: USED})
    until = await tree.store.now_ms() - 1
    await tree.store.redis.hset(tree.store.keys.run(held.run.run_id), "lease_until_ms", until)
    run = await tree.store.get_run(held.run.run_id)
    assert await tree.store.take_lost(Claim.of(tree.facts("t"), run), max_attempts=3) == "released"


async def answered(tree, held):
    await tree.settle(held.claim, ASKS)
    await tree.store.answer(tree.facts("t"), "yes")


async def revised(tree, held):
    await tree.settle(held.claim, replace(DONE, usage=USED))
    grading = await tree.claim()
    grade = Grade(
        result="needs_revision",
        explanation="",
        iteration=0,
        grading_run_id="g",
        graded_run_id=held.run.run_id,
        result_sha256="",
    )
    verdict = Ending(RunStatus.SUCCESS, EndedAs.GRADED, Status.PENDING, Phase.QUEUED, grade=grade, feedback="mend it")
    await tree.settle(grading.claim, verdict)


@pytest.mark.parametrize("goes_on", [given_back, retried, lost, answered, revised])
async def test_a_run_that_goes_on_goes_on_counting(tree, goes_on):
    graded = {"rubric": Rubric("is found"), "grade_queue": GRADERS} if goes_on is revised else {}
    await tree.submit("t", **graded)
    await goes_on(tree, await worked(tree))
    task = (await tree.claim()).task
    assert (task.usage.turns, task.usage_before.turns) == (USED.turns, 0)
    assert task.working_ms == pytest.approx(WORKED_MS, abs=WORKED_MS / 2)
