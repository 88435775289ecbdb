"""Grade runs in the store: when work is graded, what a verdict makes of its task, and what its parent is told."""

from dataclasses import replace

import pytest

from families import ASKS, FAILED, LEASE_MS, Tree
from outrider.shared.context import Claim
from outrider.shared.grades import Grade
from outrider.shared.queues import GRADERS
from outrider.shared.rubric import PER_MESSAGE, Rubric
from outrider.shared.statuses import EndedAs, Phase, RunKind, RunStatus, Status
from outrider.shared.store import Store
from outrider.shared.transitions import CancelReply, Cut, Ending, NotClaimed, Settled


class Tasks(Tree):
    """A tree whose tasks are graded, unless their submit says otherwise."""

    async def submit(self, name="t", parent=None, **changes):
        return await super().submit(
            name, parent, **{"rubric": Rubric("is found"), "grade_queue": GRADERS, "queue": "slow"} | changes
        )

    async def grade(self, name="t", result="satisfied"):
        """Claim the grade run and settle it with a verdict."""
        held = await self.claim(name)
        return await self.settle(held.claim, self.graded(held, result))

    @staticmethod
    def graded(held, result="satisfied"):
        grade = Grade(
            result=result,
            explanation="because",
            iteration=0,
            criteria=({"name": "is found", "passed": result == "satisfied", "gap": "it is not"},),
            grading_run_id="g",
            graded_run_id=held.run.of_run,
            result_sha256="",
        )
        revises = result == "needs_revision"
        return Ending(
            RunStatus.SUCCESS,
            EndedAs.GRADED,
            Status.PENDING if revises else Status.SUCCESS,
            Phase.QUEUED if revises else None,
            result='"found it"',
            grade=grade,
            feedback="mend it" if revises else "",
        )


@pytest.fixture
def tasks(any_redis, namespace):
    return Tasks(Store(any_redis, namespace))


async def test_work_with_a_rubric_is_graded_in_the_step_that_ends_it(tasks):
    await tasks.submit()
    settled = await tasks.run()
    task = await tasks.store.get("t")
    assert (task.status, task.phase, task.settled) == (Status.RUNNING, Phase.GRADING, False)
    assert task.rubric == Rubric("is found")
    agent, grade = task.runs
    assert (agent.status, agent.ended_as) == (RunStatus.SUCCESS, EndedAs.FINISHED)
    assert (grade.kind, grade.status, grade.queue, grade.of_run) == (RunKind.GRADE, RunStatus.PENDING, GRADERS, "t-1")
    (bell,) = settled.bells
    assert (bell.run_id, bell.queue, bell.kind) == (grade.run_id, GRADERS, RunKind.GRADE)


async def test_work_without_a_rubric_is_not_graded(tasks):
    await tasks.submit(rubric=None, grade_queue=None)
    assert await tasks.run() == Settled()
    assert await tasks.state() == Status.SUCCESS


async def test_the_beginning_of_the_request_is_kept_for_the_grader_alone(tasks):
    given = {"text": "x" * 10_000 + "\ud800", "state": {}}
    await tasks.submit(input=given)
    await tasks.submit("plain", input=given, rubric=None, grade_queue=None)
    await tasks.submit("itself", input=given, grade_queue=None)
    kept = [await tasks.store.request(name) for name in ("t", "plain", "itself")]
    assert [len(text) for text in kept] == [PER_MESSAGE + 1, 0, 0]
    assert (await tasks.claim()).input == given


@pytest.mark.parametrize(("ending", "state"), [(FAILED, Status.ERROR), (ASKS, Phase.ASKING)])
async def test_a_run_that_does_not_end_well_is_not_graded(tasks, ending, state):
    await tasks.submit()
    await tasks.run("t", ending)
    assert await tasks.state() == state
    assert len((await tasks.store.get("t")).runs) == 1


async def test_a_parent_is_graded_when_its_last_wake_ends(tasks):
    await tasks.submit("p")
    held = await tasks.claim("p")
    for child in ("a", "b", "c"):
        await tasks.submit(child, "p", rubric=None, grade_queue=None)
    await tasks.settle(held.claim)
    for child in ("a", "b", "c"):
        assert await tasks.state("p") == Phase.RESTING
        await tasks.run(child)
        await tasks.run("p")
    runs = (await tasks.store.get("p")).runs
    assert [run.kind for run in runs] == [RunKind.AGENT] * 4 + [RunKind.GRADE]
    await tasks.grade("p")
    assert await tasks.state("p") == Status.SUCCESS


async def test_a_verdict_ends_the_task_with_its_grade(tasks):
    await tasks.submit()
    await tasks.run()
    await tasks.grade("t", "failed")
    task = await tasks.store.get("t")
    assert (task.status, task.grade.result, task.result, task.run_id) == (Status.SUCCESS, "failed", "found it", None)
    assert task.runs[1].grade == task.grade
    assert (task.runs[1].status, task.runs[1].ended_as) == (RunStatus.SUCCESS, EndedAs.GRADED)


async def test_needs_revision_sends_the_work_back_in_the_same_step(tasks):
    await tasks.submit()
    await tasks.run()
    settled = await tasks.grade("t", "needs_revision")
    assert await tasks.state() == Phase.QUEUED
    (bell,) = settled.bells
    assert (bell.kind, bell.queue) == (RunKind.AGENT, "slow")
    held = await tasks.claim()
    assert held.input == {"feedback": "mend it"}
    assert held.task.grade.result == "needs_revision"
    await tasks.settle(held.claim)
    await tasks.grade()
    task = await tasks.store.get("t")
    assert (task.status, task.grade.result) == (Status.SUCCESS, "satisfied")
    assert [run.grade.result if run.grade else None for run in task.runs] == [None, "needs_revision", None, "satisfied"]


async def test_all_gradings_of_a_task_share_an_id_until_it_ends(tasks):
    async def grading_run():
        return (await tasks.store.redis.hget(tasks.store.keys.task("t"), "grading_run_id") or b"").decode()

    await tasks.submit()
    await tasks.run()
    first = (await tasks.store.peek("t")).run_id
    assert await grading_run() == first
    await tasks.grade("t", "needs_revision")
    await tasks.run()
    assert await grading_run() == first
    await tasks.grade()
    assert await grading_run() == ""


async def test_a_parent_hears_the_grade_once_at_the_real_end(tasks):
    await tasks.submit("p", rubric=None, grade_queue=None)
    held = await tasks.claim("p")
    await tasks.submit("t", "p")
    await tasks.settle(held.claim)
    await tasks.run()
    await tasks.grade("t", "needs_revision")
    assert (await tasks.store.peek("p")).seq == 0
    await tasks.run()
    agent_run = (await tasks.store.get("t")).runs[2].run_id
    settled = await tasks.grade("t", "max_iterations_reached")
    assert [bell.task_id for bell in settled.bells] == ["p"]
    (note,) = (await tasks.claim("p")).notifications
    assert (note.id, note.run_id, note.status) == (f"t:{agent_run}:success", agent_run, Status.SUCCESS)
    assert note.result == "found it"
    assert (note.grade.result, note.grade.gaps) == ("max_iterations_reached", ("is found: it is not",))


async def test_a_grade_run_takes_no_slot_no_news_and_no_working_time(tasks):
    await tasks.submit()
    await tasks.run()
    held = await tasks.claim()
    assert await tasks.state() == Phase.GRADING
    store = tasks.store
    assert await store.redis.zcard(store.keys.slots("echo")) == 0
    assert held.notifications == ()
    assert (await store.heartbeat([held.claim], lease_ms=LEASE_MS)) == [True]
    await store.redis.hset(store.keys.run(held.run.run_id), "claimed_ms", 1)
    before = (await store.peek("t")).working_ms
    await tasks.settle(held.claim, tasks.graded(held))
    assert (await store.peek("t")).working_ms == before


async def test_a_grade_run_is_claimed_once_and_a_repeated_settle_changes_nothing(tasks):
    await tasks.submit()
    await tasks.run()
    run_id = (await tasks.store.peek("t")).run_id
    held = await tasks.claim()
    dropped = await tasks.store.claim(tasks.facts("t"), run_id, worker="w2", lease_ms=LEASE_MS)
    assert dropped == NotClaimed("dropped", "running")
    assert await tasks.settle(held.claim, tasks.graded(held)) == Settled()
    assert await tasks.settle(held.claim, tasks.graded(held)) == Settled()
    assert len((await tasks.store.get("t")).runs) == 2


async def test_a_grade_run_that_is_given_back_or_lost_stays_grading(tasks):
    await tasks.submit()
    await tasks.run()
    held = await tasks.claim()
    assert await tasks.store.give_back(held.claim)
    assert await tasks.state() == Phase.GRADING
    assert await tasks.settle(held.claim, tasks.graded(held)) is None
    held = await tasks.claim()
    await tasks.store.redis.hset(tasks.store.keys.run(held.run.run_id), "lease_until_ms", "1")
    run = await tasks.store.get_run(held.run.run_id)
    assert await tasks.store.take_lost(Claim.of(tasks.facts("t"), run), max_attempts=3) == "released"
    assert (await tasks.state(), (await tasks.store.peek("t")).attempt) == (Phase.GRADING, 1)
    await tasks.grade()
    assert await tasks.state() == Status.SUCCESS


async def test_a_cancel_ends_a_grading_and_is_told_by_the_agents_run(tasks):
    await tasks.submit("p", rubric=None, grade_queue=None)
    await tasks.claim("p")
    await tasks.submit("t", "p")
    await tasks.run()
    held = await tasks.claim()
    assert (await tasks.store.cancel("t")).outcome == "cancelled"
    assert await tasks.settle(held.claim, tasks.graded(held)) is None
    task = await tasks.store.get("t")
    assert (task.status, task.grade, task.runs[1].status) == (Status.CANCELLED, None, RunStatus.CANCELLED)
    note = await tasks.store.take(Claim.of(tasks.facts("p"), await tasks.store.get_run("p-1")), 0)
    assert note[0].id == "t:t-1:cancelled"


async def test_a_grading_below_a_cancelled_task_ends_with_it(tasks):
    await tasks.submit("p", rubric=None, grade_queue=None)
    await tasks.submit("t", "p", notify_parent=False)
    await tasks.run()
    held = await tasks.claim()
    assert isinstance(
        await tasks.store._cancel_one(await tasks.store.peek("p"), keep_children=False, tell_parent=True), CancelReply
    )
    assert isinstance(await tasks.settle(held.claim, tasks.graded(held)), Cut)
    assert await tasks.state() == Status.CANCELLED


@pytest.mark.parametrize("result", ["satisfied", "needs_revision"])
async def test_news_that_comes_while_work_is_graded_is_read_before_the_end(tasks, result):
    await tasks.submit("p")
    await tasks.run("p")
    held = await tasks.claim("p")
    await tasks.submit("c", "p", rubric=None, grade_queue=None)
    await tasks.run("c")
    assert await tasks.state("p") == Phase.GRADING
    settled = await tasks.settle(held.claim, tasks.graded(held, result))
    assert [bell.kind for bell in settled.bells] == [RunKind.AGENT]
    held = await tasks.claim("p")
    assert [note.task_id for note in held.notifications] == ["c"]
    await tasks.settle(held.claim)
    await tasks.grade("p")
    assert await tasks.state("p") == Status.SUCCESS


async def test_a_task_with_a_new_child_rests_after_its_grading(tasks):
    await tasks.submit("p")
    await tasks.run("p")
    held = await tasks.claim("p")
    await tasks.submit("c", "p", rubric=None, grade_queue=None)
    assert await tasks.settle(held.claim, tasks.graded(held)) == Settled()
    assert await tasks.state("p") == Phase.RESTING


async def test_what_woke_a_task_that_had_ended_is_graded_anew(tasks):
    await tasks.submit("p")
    await tasks.run("p")
    await tasks.grade("p")
    await tasks.submit("c", "p", rubric=None, grade_queue=None)
    await tasks.run("c")
    assert (await tasks.store.peek("p")).grade is None
    await tasks.run("p")
    assert await tasks.state("p") == Phase.GRADING


async def test_a_grader_that_is_lost_too_often_ends_nothing_but_itself(tasks):
    await tasks.submit()
    await tasks.run()
    held = await tasks.claim()
    await tasks.store.redis.hset(tasks.store.keys.run(held.run.run_id), "lease_until_ms", "1")
    lost = replace(tasks.graded(held, "grader_error"), run_status=RunStatus.ERROR, ended_as=EndedAs.LOST)
    assert await tasks.settle(held.claim, lost, only_expired=True) == Settled()
    task = await tasks.store.get("t")
    assert (task.status, task.grade.result, task.error) == (Status.SUCCESS, "grader_error", None)
    assert task.runs[1].status is RunStatus.ERROR
