"""Who acts in a storm. An actor is an async function of the storm that stops when the storm is over.

A new one joins by its name in `ACTORS`; what it does and sees it notes in the history, and the checker reads it.
"""

import asyncio
import json
import time
from contextlib import suppress
from uuid import uuid4

from outrider.shared.broker import BrokerUnreachable
from outrider.shared.errors import AnswerConflict, NotWaiting, TaskActive, UnknownTask
from outrider.shared.statuses import Status
from storm.ground import insist

#: And how often each is submitted.
AGENTS = {"steps": 20, "graded": 15, "talker": 15, "asker": 10, "lead": 30, "deep_lead": 10, "fork": 0}
QUEUES = ("subagents", "parents", "graders")


async def submit(storm):
    """Submit roots until there are as many tasks as planned, children among them, and wait for each."""
    chance, room = storm.chance("submit"), asyncio.Semaphore(storm.plan.at_once)
    async with asyncio.TaskGroup() as waits:
        while await storm.tasks() < storm.plan.tasks:
            await room.acquire()
            agent = chance.choices(list(AGENTS), list(AGENTS.values()))[0]
            # Redis may go before the answer comes: the same key asks again for the same task.
            bounds = _bounds(agent, chance)
            made = await insist(storm.o.submit, agent, _orders(chance), idempotency_key=uuid4().hex, **bounds)
            storm.note("submitter", "accepted", task=made.task_id, agent=agent, bounds=bounds.get("limits", bounds))
            waits.create_task(_see_the_end(storm, made.task_id, room))


def _orders(chance):
    return json.dumps(
        {"steps": chance.randint(1, 5), "seconds": chance.uniform(0, 0.2), "fails": chance.random() < 0.1}
    )


def _bounds(agent, chance):
    """What some tasks may take: turns, working time, open children, and how long a question waits."""
    if chance.random() < 0.7:
        return {}
    match agent:
        case "asker":
            return {"answer_within": chance.uniform(0.01, 0.5)}
        case "talker":
            return {"limits": {"max_turns": 1}}
        case "steps":
            return {"limits": {"timeout_seconds": chance.uniform(0.1, 0.5)}}
        case "lead" | "deep_lead":
            return {"limits": {"max_open_children": 1}}
    return {}


async def _see_the_end(storm, task_id, room):
    while (task := await insist(storm.o.wait, task_id)).status is Status.WAITING:
        await _answer(storm, task)
    if task.status.terminal:
        storm.note("submitter", "ended", task=task_id, run=task.runs[-1].run_id, status=task.status)
        storm.ended.append(task_id)
    room.release()


async def cancel(storm):
    """Cancel a task now and then: any one, of any generation, whatever it does."""
    chance = storm.chance("cancel")
    while await storm.rest(chance.expovariate(1)):
        task_id = await _any_task(storm, chance)
        if task_id is None:
            continue
        keep = chance.random() < 0.2
        try:
            answer = await insist(storm.o.cancel, task_id, keep_children=keep)
        except UnknownTask:  # it was removed meanwhile
            continue
        storm.note("canceller", "cancel", task=task_id, outcome=answer.outcome, status=answer.status, keep=keep)


async def update(storm):
    """Give a task one more message now and then, also where it has ended, and whatever it does."""
    chance = storm.chance("update")
    while await storm.rest(chance.expovariate(1)):
        task_id = await _any_task(storm, chance)
        if task_id is None:
            continue
        strategy, called_at = chance.choice((None, "interrupt", "enqueue")), time.monotonic()
        try:
            updated = await insist(storm.o.update, task_id, _orders(chance), strategy=strategy)
        except (TaskActive, UnknownTask):
            continue
        storm.note("updater", "update", task=task_id, run=updated.run_id, strategy=strategy, called_at=called_at)


async def answer(storm):
    """Answer what tasks ask."""
    while await storm.rest(0.5):
        await answer_all(storm)


async def answer_all(storm):
    """Answer all that is asked now."""
    for task_id in await storm.redis.zrange(storm.store.keys.status(Status.WAITING), 0, -1):
        await _answer(storm, await insist(storm.o.get, task_id.decode()))


async def _answer(storm, task):
    for question in task.interrupts:
        value = uuid4().hex
        try:
            answered = await insist(storm.o.answer, task.task_id, value, interrupt=question.id)
        except (NotWaiting, AnswerConflict):  # another one was quicker, or it was cancelled or updated
            continue
        storm.note("answerer", "answer", task=task.task_id, run=answered.run_id, value=value)


async def watch(storm):
    """Look at a task, as it is at one moment."""
    chance = storm.chance("watch")
    while await storm.rest(0.05):
        task_id = await _any_task(storm, chance)
        with suppress(UnknownTask):
            if task_id is not None:
                storm.note("watcher", "saw", **facts(await storm.store.peek(task_id)))


async def double_bells(storm):
    """Ring again for runs that were rung for, whatever became of them."""
    chance = storm.chance("double")
    while await storm.rest(chance.expovariate(3)):
        task_id = await _any_task(storm, chance)
        if task_id is None:
            continue
        run_id = await storm.redis.lindex(storm.store.keys.runs(task_id), -1) or b"removed"
        try:
            await storm.site.ring(task_id, run_id.decode(), queue=chance.choice(QUEUES))
        except BrokerUnreachable:
            continue
        storm.fault("bell doubled")


async def drop_bells(storm):
    """Take bells out of the queue."""
    chance = storm.chance("drop")
    while await storm.rest(chance.expovariate(1)):
        queue = f"{{{storm.store.keys.namespace}}}:{chance.choice(QUEUES)}"
        if await storm.redis.rpop(queue):
            storm.fault("bell dropped")


#: Lets a task look as if nothing had happened to it for years, if it is there.
AGE = "return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('HSET', KEYS[1], 'updated_ms', '1')"


async def age(storm):
    """Let a tree of which the root has ended look old now and then, so that it is removed, if all of it has ended."""
    chance = storm.chance("age")
    while await storm.rest(chance.expovariate(0.3)):
        if not storm.ended:
            continue
        root_id, keys = storm.ended.pop(chance.randrange(len(storm.ended))), storm.store.keys
        tree, runs = [root_id], {}
        for task_id in tree:  # it grows
            tree += [child.decode() for child in await storm.redis.zrange(keys.children(task_id), 0, -1)]
            runs[task_id] = [run_id.decode() for run_id in await storm.redis.lrange(keys.runs(task_id), 0, -1)]
            await storm.redis.eval(AGE, 1, keys.task(task_id))
        await storm.redis.zadd(keys.trees(), {root_id: 1}, xx=True)
        storm.note("age", "aged", runs=runs)
        storm.aged |= runs


async def _any_task(storm, chance):
    """Any of the tasks that were submitted lately, or `None` where there is none yet."""
    newest = await storm.redis.zrevrange(storm.store.keys.tasks(), 0, 2 * storm.plan.at_once)
    return chance.choice(newest).decode() if newest else None


def facts(task):
    return {
        "task": task.task_id,
        "status": task.status,
        "phase": task.phase,
        "run": task.run_id,
        "seq": task.seq,
        "given": task.given,
    }
