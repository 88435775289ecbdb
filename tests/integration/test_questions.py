"""What a task asks a person, in the store. Each test runs on fakeredis and on a real server."""

import asyncio

import pytest

from families import submission
from outrider.shared.errors import AnswerConflict, NotWaiting, SeveralQuestions, UnknownTask
from outrider.shared.records import Interrupt
from outrider.shared.statuses import EndedAs, Phase, RunStatus, Status, Strategy
from outrider.shared.transitions import Ending, Facts

LEASE_MS = 30_000
DONE = Ending(RunStatus.SUCCESS, EndedAs.FINISHED, Status.SUCCESS, result='"done"')
FACTS = Facts("t", "echo", "echo")
CHILD = Facts("c", "echo", "echo", "t", ("t",))


def asks(*ids):
    questions = tuple(Interrupt(id=name, value={"ask": name}) for name in ids)
    return Ending(RunStatus.SUCCESS, EndedAs.PAUSED, Status.WAITING, Phase.ASKING, questions)


async def submit(store, facts=FACTS, **changes):
    path = "/".join((*facts.ancestors, facts.task_id))
    await store.submit(submission(path, **{"queue": "q1", "input": {"text": "go"}} | changes))


async def claim(store, facts=FACTS):
    run_id = (await store.peek(facts.task_id)).run_id
    return await store.claim(facts, run_id, worker="w", lease_ms=LEASE_MS)


async def run(store, ending, facts=FACTS):
    return await store.settle((await claim(store, facts)).claim, ending)


async def waiting(store, *ids, **changes):
    await submit(store, **changes)
    await run(store, asks(*ids))


async def overdue(store):
    """Let the moment pass until which an answer may come."""
    for member in await store.redis.zrange(store.keys.answer_until(), 0, -1):
        await store.redis.zadd(store.keys.answer_until(), {member: 1})


async def snapshot(store):
    """What an answer might change, so that a test can say that nothing did."""
    keys, redis = store.keys, store.redis
    return [
        await redis.hgetall(keys.task("t")),
        await redis.hgetall(keys.answers("t")),
        await redis.xlen(keys.events("t")),
        await redis.lrange(keys.runs("t"), 0, -1),
        await redis.keys(f"{{{keys.namespace}}}:*"),
    ]


async def event_types(store, task_id="t"):
    return [event.type for event in await store.events(task_id, "0", reader=store.redis)]


async def test_the_answer_to_the_only_question_starts_a_run_that_is_given_it(store):
    await waiting(store, "q")
    answered = await store.answer(FACTS, {"yes": [1, None]})
    task = await store.get("t")
    assert (answered.interrupt, answered.open, answered.run_id) == ("q", (), task.run_id)
    assert [(bell.run_id, bell.queue) for bell in answered.bells] == [(task.run_id, "q1")]
    assert (task.status, task.phase, task.interrupts) == (Status.PENDING, Phase.QUEUED, ())
    assert [(one.kind, one.status, one.ended_as) for one in task.runs] == [
        ("agent", "success", "paused"),
        ("agent", "pending", None),
    ]
    assert (await claim(store)).input == {"answers": {"q": {"yes": [1, None]}}}
    assert (await event_types(store))[-3:] == ["task.waiting", "task.answered", "run.claimed"]


async def test_every_attempt_is_given_the_same_answers(store):
    await waiting(store, "q")
    await store.answer(FACTS, "yes")
    first = await claim(store)
    await store.give_back(first.claim)
    assert (await claim(store)).input == first.input == {"answers": {"q": "yes"}}


async def test_several_answers_are_gathered_and_the_last_one_starts_the_run(store):
    await waiting(store, "a", "b", "c")
    with pytest.raises(SeveralQuestions, match=r"asks 3 questions: .* of a, b, c"):
        await store.answer(FACTS, "x")
    first = await store.answer(FACTS, 1, interrupt="b")
    assert (first.open, first.run_id, first.bells) == (("a", "c"), None, ())
    task = await store.get("t")
    assert (task.status, [question.id for question in task.interrupts]) == (Status.WAITING, ["a", "c"])
    await store.answer(FACTS, 2, interrupt="a")
    last = await store.answer(FACTS, 3)
    assert (last.interrupt, last.open) == ("c", ())
    assert (await claim(store)).input == {"answers": {"a": 2, "b": 1, "c": 3}}


async def test_a_second_answer_conflicts_and_changes_nothing(store):
    await waiting(store, "a", "b")
    await store.answer(FACTS, 1, interrupt="a")
    before = await snapshot(store)
    with pytest.raises(AnswerConflict, match=r"does not ask a, or it was answered before: open are b"):
        await store.answer(FACTS, 2, interrupt="a")
    with pytest.raises(AnswerConflict, match="does not ask other"):
        await store.answer(FACTS, 2, interrupt="other")
    assert await snapshot(store) == before
    await store.answer(FACTS, 2)
    before = await snapshot(store)
    with pytest.raises(NotWaiting, match=r"task t is pending: it asks nothing"):
        await store.answer(FACTS, 3)
    assert await snapshot(store) == before
    with pytest.raises(UnknownTask):
        await store.answer(Facts("nobody", "echo"), 1)


async def test_an_answer_to_an_earlier_question_conflicts(store):
    await waiting(store, "a")
    await store.answer(FACTS, 1)
    await run(store, asks("b"))
    with pytest.raises(AnswerConflict, match="does not ask a"):
        await store.answer(FACTS, 2, interrupt="a")


async def test_of_fifty_answers_at_once_one_is_taken(store):
    await waiting(store, "q")
    answers = await asyncio.gather(*(store.answer(FACTS, n, interrupt="q") for n in range(50)), return_exceptions=True)
    taken = [n for n, answer in enumerate(answers) if not isinstance(answer, Exception)]
    assert len(taken) == 1
    assert all(isinstance(answer, NotWaiting) for n, answer in enumerate(answers) if n not in taken)
    assert (await claim(store)).input == {"answers": {"q": taken[0]}}
    assert len((await store.get("t")).runs) == 2


class Twice:
    """Calls each script twice, as a client does that lost the first answer."""

    def __init__(self, scripts):
        self.scripts = scripts
        self.between = None

    async def __call__(self, name, keys, *args):
        first = await self.scripts(name, keys, *args)
        if self.between:
            between, self.between = self.between, None
            await between()
            await self.scripts(name, keys, *args)
            return first
        again = await self.scripts(name, keys, *args)
        assert again == first
        return again


async def test_an_answer_whose_reply_was_lost_is_taken_once(store):
    await waiting(store, "a", "b", answer_within_ms=1)
    store._scripts = Twice(store._scripts)
    assert (await store.answer(FACTS, 1, interrupt="a")).open == ("b",)
    assert (await store.answer(FACTS, 2)).bells
    assert len((await store.get("t")).runs) == 2


async def test_a_repeated_answer_does_not_answer_the_next_question(store):
    await waiting(store, "a")
    inner = store._scripts
    store._scripts = twice = Twice(inner)

    async def work():
        store._scripts = inner
        await run(store, asks("b"))

    twice.between = work
    await store.answer(FACTS, 1)
    assert [question.id for question in (await store.get("t")).interrupts] == ["b"]


async def test_news_does_not_ride_on_an_answer(store):
    await submit(store)
    held = await claim(store)
    await submit(store, CHILD)
    await store.settle(held.claim, asks("q"))
    assert (await run(store, DONE, CHILD)).bells == (), "a task that waits for a person is left alone"
    assert [question.id for question in (await store.get("t")).interrupts] == ["q"]
    await store.answer(FACTS, "yes")
    resumed = await claim(store)
    assert (resumed.notifications, resumed.input) == ((), {"answers": {"q": "yes"}})
    assert (await store.settle(resumed.claim, DONE)).bells, "what came meanwhile wakes it"
    assert [note.task_id for note in (await claim(store)).notifications] == ["c"]


async def test_a_parent_at_rest_is_told_of_the_question_and_stays_open_for_the_child(store):
    await submit(store)
    held = await claim(store)
    await submit(store, CHILD)
    await store.settle(held.claim, DONE)
    asked = await run(store, asks("q"), CHILD)
    assert [bell.task_id for bell in asked.bells] == ["t"]
    woken = await claim(store)
    (note,) = woken.notifications
    assert (note.id, note.status, note.result) == ("c:c-1:waiting", "waiting", '[{"id": "q", "value": {"ask": "q"}}]')
    assert note.open_children == 1
    await store.settle(woken.claim, DONE)
    assert (await store.peek("t")).phase is Phase.RESTING
    await store.answer(CHILD, "yes")
    await run(store, DONE, CHILD)
    assert [note.status for note in (await claim(store)).notifications][-1] == "success"


async def test_a_question_that_nobody_answers_in_time_ends_the_task_and_its_parent_hears_of_it(store):
    await submit(store)
    held = await claim(store)
    await submit(store, CHILD, answer_within_ms=60_000)
    await store.settle(held.claim, DONE)
    await run(store, asks("a", "b"), CHILD)
    await run(store, DONE)
    assert (await store.sweep(lease_ms=LEASE_MS)).unanswered == ()
    assert await store.expire(CHILD, "c-1") is None, "there is time left"
    await store.answer(CHILD, 1, interrupt="a")
    await overdue(store)
    assert (await store.sweep(lease_ms=LEASE_MS)).unanswered == (("c", "c-1"),)
    store._scripts = Twice(store._scripts)
    expired = await store.expire(CHILD, "c-1")
    assert [bell.task_id for bell in expired.bells] == ["t"]
    task = await store.get("c")
    assert (task.status, task.phase, task.error.type, task.interrupts) == ("timeout", None, "Unanswered", ())
    told = [(note.id, note.open_children) for note in (await claim(store)).notifications]
    assert told == [("c:c-1:waiting", 1), ("c:c-1:timeout", 0)]
    assert (await store.sweep(lease_ms=LEASE_MS)).unanswered == ()
    with pytest.raises(NotWaiting, match="task c is timeout"):
        await store.answer(CHILD, 2)


async def test_a_follow_up_that_waits_for_the_answer_comes_when_there_is_none_in_time(store):
    await waiting(store, "q", answer_within_ms=60_000)
    assert (await store.update("t", {"text": "go on"}, Strategy.ENQUEUE)).run_id is None
    await overdue(store)
    store._scripts = Twice(store._scripts)
    (bell,) = (await store.expire(FACTS, "t-1")).bells
    task = await store.get("t")
    assert (task.status, task.run_id, task.interrupts, task.error) == ("pending", bell.run_id, (), None)
    assert (await claim(store)).input == {"text": "go on"}


@pytest.mark.parametrize("end", ["answer", "cancel", "ask again"])
async def test_what_came_before_the_expiry_beats_it(store, end):
    await waiting(store, "q", answer_within_ms=60_000)
    await overdue(store)
    if end == "cancel":
        await store.cancel("t")
    else:
        await store.answer(FACTS, "yes")
    if end == "ask again":
        await run(store, asks("r"))
    status = (await store.peek("t")).status
    assert await store.expire(FACTS, "t-1") is None
    assert (await store.peek("t")).status is status
    assert (await store.sweep(lease_ms=LEASE_MS)).unanswered == ()


async def test_a_question_without_a_bound_never_expires(store):
    await waiting(store, "q")
    assert await store.redis.zcard(store.keys.answer_until()) == 0


async def test_a_waiting_task_is_cancelled_at_once(store):
    await waiting(store, "q")
    assert (await store.cancel("t")).outcome == "cancelled"
    task = await store.get("t")
    assert (task.status, task.interrupts, task.stopped_at is not None) == (Status.CANCELLED, (), True)
    with pytest.raises(NotWaiting, match="is cancelled"):
        await store.answer(FACTS, 1)
