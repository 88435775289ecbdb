"""Graders in processes of their own, on real Celery: none up, killed, told to stop, cancelled."""

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from outrider import Outrider, Rubric
from outrider.shared.settings import Settings
from outrider.shared.statuses import Phase, RunKind, RunStatus, Status
from workers import Desk, WorkerProcess, plain, until_gone

CONFIG = Path(__file__).parent / "graded" / "langgraph.json"
RUBRIC = "- It is the second draft"
MET = {"name": "It is the second draft", "passed": True}
SATISFIED = {"result": "satisfied", "explanation": "It was read.", "criteria": [MET]}


class Site(Desk):
    """A namespace with a client, and the workers that a test starts."""

    def __init__(self, o, redis):
        super().__init__(o._session.store, redis)
        self.o = o

    def worker(self, queues, **env):
        settings = self.o.settings
        env = {"OUTRIDER_CONFIG": str(CONFIG), "OUTRIDER_GRACE_SECONDS": "20"} | env
        return WorkerProcess(settings.redis_url, settings.namespace, "-c", "8", "-Q", queues, **env)

    async def reads(self, task_id):
        """Return what the grader's model reads, once it does."""
        while not (came := await self.redis.blpop(self._key(task_id, "at", "grader"), 1)):
            pass
        return json.loads(came[1])

    async def says(self, task_id, answer):
        await self.redis.rpush(self._key(task_id, "open", "grader"), json.dumps(answer))

    async def graded_by_hand(self, rubric=RUBRIC):
        """Submit and wait until a grader's model is asked; the task's id."""
        task_id = (await self.o.submit("writer", "write", rubric=rubric)).task_id
        await self.reads(task_id)
        return task_id


@pytest.fixture
async def site(redis_url, namespace):
    async with site_on(Settings(redis_url=redis_url, namespace=namespace, config=str(CONFIG))) as site:
        yield site


@asynccontextmanager
async def site_on(settings):
    async with Outrider(settings) as o, plain(settings.redis_url) as reader:
        yield Site(o, reader)


async def test_agents_go_on_without_graders_and_all_settle_once_one_starts(site):
    with site.worker("subagents"):
        ids = [(await site.o.submit("fair", f"{i}")).task_id for i in range(5)]
        for task_id in ids:
            await site.until(task_id, "task.grading")
        tasks = [await site.o.get(task_id) for task_id in ids]
        assert {(task.status, task.phase) for task in tasks} == {(Status.RUNNING, Phase.GRADING)}
        assert {task.result for task in tasks} == {None}
        # The worker of the agents is free: it takes more.
        assert (await site.o.wait((await site.o.submit("writer", "ungraded")).task_id)).result == "draft 1"
        with site.worker("graders"):
            tasks = [await site.o.wait(task_id) for task_id in ids]
    assert {(task.status, task.grade.result, task.result) for task in tasks} == {
        (Status.SUCCESS, "satisfied", "draft 2")
    }
    for task in tasks:
        by_kind = {kind: {run.worker for run in task.runs if run.kind is kind} for kind in RunKind}
        assert len(task.runs) == 4
        assert by_kind[RunKind.AGENT].isdisjoint(by_kind[RunKind.GRADE])
        assert await site.did(task.task_id) == ["draft", "draft"]


async def test_a_killed_grader_repeats_nothing_of_the_agents_work(site):
    with site.worker("subagents"), site.worker("graders") as worker:
        task_id = await site.graded_by_hand()
        worker.process.kill()
        with site.worker("graders"):
            await site.reads(task_id)
            await site.says(task_id, SATISFIED)
            task = await site.o.wait(task_id)
    assert (task.status, task.grade.result) == (Status.SUCCESS, "satisfied")
    assert (len(task.runs), task.runs[1].attempt) == (2, 1)
    assert await site.did(task_id) == ["draft"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent's life")
async def test_a_command_and_its_children_end_with_a_worker_that_is_killed(site, tmp_path):
    os.mkfifo(tmp_path / "pids")
    with site.worker("subagents,graders", PIDS=str(tmp_path / "pids")) as worker:
        task_id = await site.graded_by_hand()
        await site.says(task_id, {"call": "stay", "args": {}})
        pids = (await asyncio.to_thread((tmp_path / "pids").read_text)).split()
        worker.process.kill()
        for pid in pids:
            await asyncio.to_thread(until_gone, pid)


async def test_a_grader_that_kills_its_workers_ends_as_an_error_of_its_own(site):
    with site.worker("subagents"):
        task_id = (await site.o.submit("writer", "write", rubric=RUBRIC)).task_id
        for _ in range(3):
            with site.worker("graders"):
                await site.reads(task_id)
                await site.says(task_id, {"exit": signal.SIGKILL})
                await site.until(task_id, "run.claimed")
        task = await site.o.wait(task_id)
    assert (task.status, task.result, task.grade.result) == (Status.SUCCESS, "draft 1", "grader_error")
    assert "WorkerLost" in task.grade.explanation
    assert (task.error, task.runs[1].status, task.runs[1].error.type) == (None, RunStatus.ERROR, "WorkerLost")


async def test_a_grader_that_is_told_to_stop_gives_its_run_back(site):
    with site.worker("subagents"), site.worker("graders") as worker:
        task_id = await site.graded_by_hand()
        worker.process.send_signal(signal.SIGTERM)
        await worker.says("worker.drains")
        await site.says(task_id, {"call": "run_tests", "args": {}})
        assert await worker.ends() == 0
        await site.until(task_id, "run.given_back")
        assert (await site.o.get(task_id)).phase is Phase.GRADING
        with site.worker("graders"):
            seen = await site.reads(task_id)
            await site.says(task_id, SATISFIED)
            task = await site.o.wait(task_id)
    assert seen[-1] == ["tool", f"exit code 3\n{task_id}\n"]
    assert (task.grade.result, len(task.runs), task.runs[1].attempt) == ("satisfied", 2, 0)


async def test_a_cancel_ends_a_grading_at_once_and_its_worker_goes_on(site):
    with site.worker("subagents,graders"):
        task_id = await site.graded_by_hand()
        assert (await site.o.cancel(task_id)).outcome == "cancelled"
        task = await site.o.wait(task_id)
        assert (task.status, task.grade, task.runs[1].status) == (Status.CANCELLED, None, RunStatus.CANCELLED)
        other = await site.o.wait((await site.o.submit("checked", "write")).task_id)
    assert (other.status, other.grade.result, other.result) == (Status.SUCCESS, "satisfied", "draft 2")


async def test_a_limit_ends_a_grading_and_its_worker_goes_on(site):
    with site.worker("subagents,graders"):
        turns, time = [
            (await site.o.submit("writer", "write", rubric=RUBRIC, limits=limits)).task_id
            for limits in ({"max_turns": 1}, {"timeout_seconds": 3})
        ]
        await site.reads(turns)
        await site.says(turns, {"call": "run_tests", "args": {}})
        tasks = [await site.o.wait(task_id) for task_id in (turns, time)]
        other = await site.o.wait((await site.o.submit("checked", "write")).task_id)
    assert {(task.status, task.result, task.grade.result) for task in tasks} == {
        (Status.SUCCESS, "draft 1", "grader_error")
    }
    assert [task.runs[1].error.type for task in tasks] == ["limit_turns", "timeout"]
    assert other.grade.result == "satisfied"


async def test_a_parent_is_told_the_grade_of_its_child(site):
    parent = (await site.o.submit("itself", "lead", parent=False)).task_id
    child = (await site.o.submit("fair", "write", parent=parent, rubric=Rubric(RUBRIC, max_iterations=1))).task_id
    with site.worker("subagents,graders,parents"):
        await site.o.wait(child)
        await site.o.wait(parent)
    (note,) = [m for m in (await site.o.state(parent))["messages"] if "outrider_notification" in m.additional_kwargs]
    assert note.additional_kwargs["outrider_notification"]["grade"] == "max_iterations_reached"
    assert "<grade>max_iterations_reached</grade>" in note.text
    assert "<open-gap>It is the second draft: it is the first</open-gap>" in note.text
