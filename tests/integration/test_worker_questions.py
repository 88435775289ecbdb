"""Runs that ask a person, and runs that go on with the answers, on the test's own loop and in real workers."""

import pytest

import sites
from outrider.shared import store_clockwork
from outrider.shared.settings import Settings
from outrider.shared.statuses import EndedAs, Phase, Status
from outrider.shared.transitions import Facts
from outrider.worker.outcomes import Paused


async def answer(bench, task, *values, **by_value):
    """Answer the open questions in turn, or each by what it asks; run what that starts, and give the task."""
    facts = Facts.of(task)
    for question in task.interrupts if by_value else ():
        answered = await bench.store.answer(facts, by_value[question.value], interrupt=question.id)
    for question, value in zip(task.interrupts, values, strict=False):
        answered = await bench.store.answer(facts, value, interrupt=question.id)
    await bench.runner.run(task.task_id, answered.run_id)
    return await bench.store.get(task.task_id)


def asked(task):
    return [question.value for question in task.interrupts]


async def test_an_answer_goes_where_the_question_was_asked(bench):
    outcome, task = await bench.do("asks")
    assert isinstance(outcome, Paused)
    assert (task.status, task.phase, asked(task)) == (Status.WAITING, Phase.ASKING, [{"question": "go on?"}])
    task = await answer(bench, task, {"yes": True})
    assert (task.status, task.result["done"]) == (Status.SUCCESS, [{"yes": True}])
    assert [run.ended_as for run in task.runs] == [EndedAs.PAUSED, EndedAs.FINISHED]


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}, {"resume": 1}, "null"])
async def test_any_json_value_is_an_answer(bench, value):
    _, task = await bench.do("asks")
    task = await answer(bench, task, value)
    assert task.result["done"] == [value]


@pytest.mark.parametrize("agent", ["in_a_row", "below", "called"])
async def test_questions_of_one_node_come_one_after_the_other(bench, agent):
    _, first = await bench.do(agent)
    second = await answer(bench, first, "yes")
    assert (asked(first), asked(second)) == (["first?"], ["second?"])
    assert first.interrupts[0].id != second.interrupts[0].id
    done = await answer(bench, second, "no")
    assert done.result["done"] == ["yes", "no"]


async def test_questions_of_parallel_branches_are_asked_at_once_and_what_asked_nothing_is_not_done_again(bench):
    _, task = await bench.do("at_once")
    assert sorted(question["from"] for question in asked(task)) == ["a", "b"]
    values = {question.id: question.value["from"].upper() for question in task.interrupts}
    task = await answer(bench, task, *values.values())
    assert sorted(task.result["done"]) == ["a A", "b B", "worked"]
    assert sorted(await bench.did(task.task_id)) == ["a A", "b B", "worked"]


async def test_tasks_that_were_sent_out_each_get_their_own_answer(bench):
    _, task = await bench.do("sends")
    task = await answer(bench, task, **{f"number {n}?": n * n for n in range(3)})
    assert sorted(task.result["done"]) == [[0, 0], [1, 1], [2, 4]]


async def test_each_round_of_a_loop_asks_anew(bench):
    _, task = await bench.do("rounds")
    seen = set()
    for n in range(3):
        assert asked(task) == [f"round {n}?"]
        seen.add(task.interrupts[0].id)
        task = await answer(bench, task, n)
    assert (task.result["done"], len(seen)) == ([0, 1, 2], 3)


async def test_a_functional_agent_asks_too(bench):
    _, task = await bench.do("functional")
    for n, question in enumerate(("one?", "two?", "all?")):
        assert asked(task) == [question]
        task = await answer(bench, task, n)
    assert task.result == [["one", 0], ["two", 1], 2]


async def test_a_breakpoint_is_a_question_that_any_answer_answers(bench):
    _, task = await bench.do("stops")
    assert ["breakpoint" in question for question in asked(task)] == [True]
    assert await bench.did(task.task_id) == []
    task = await answer(bench, task, "whatever")
    assert (task.status, await bench.did(task.task_id)) == (Status.SUCCESS, ["worked"])


@pytest.mark.parametrize("agent", ["stumbles", "stumbles_below"])
async def test_an_answer_is_good_for_every_attempt_and_for_no_other_question(bench, monkeypatch, agent):
    monkeypatch.setattr(store_clockwork, "FIRST_PAUSE_MS", 0)
    _, task = await bench.do(agent)
    task = await answer(bench, task, "yes")
    assert (task.status, task.attempt, asked(task)) == (Status.PENDING, 1, [])
    await bench.redis.hset(bench.store.keys.run(task.run_id), "not_before_ms", "1")
    await bench.runner.run(task.task_id, task.run_id)
    task = await bench.store.get(task.task_id)
    assert (task.status, asked(task)) == (Status.WAITING, ["second?"])
    assert (await answer(bench, task, "no")).result["done"] == ["yes", "no"]


async def test_a_question_whose_id_the_graph_made_up_is_asked_too(bench):
    _, task = await bench.do("made_up")
    assert asked(task) == ["really?"]
    assert asked(await answer(bench, task, "yes")) == ["really?"], "as in LangGraph: it asks again and again"


async def test_code_that_catches_every_exception_goes_on_as_in_langgraph(bench):
    _, task = await bench.do("catches")
    assert (task.status, task.result["done"]) == (Status.SUCCESS, ["GraphInterrupt"])


async def test_of_parallel_tools_one_asks_and_the_others_are_called_once(bench):
    _, task = await bench.do("ask_tools")
    assert asked(task) == ["what about 1?"]
    task = await answer(bench, task, "fine")
    assert task.result == "seen 0 | told fine | seen 2"
    assert sorted(await bench.did(task.task_id)) == ["look 0", "look 2", "person 1", "person 1"]


@pytest.mark.parametrize(
    ("decisions", "done"),
    [
        ([{"type": "approve"}, {"type": "approve"}], ["look 0", "look 1"]),
        ([{"type": "approve"}, {"type": "reject", "message": "not that"}], ["look 0"]),
        (
            [{"type": "edit", "edited_action": {"name": "look", "args": {"what": "else"}}}, {"type": "reject"}],
            ["look else"],
        ),
    ],
)
async def test_langchain_s_middleware_works_unchanged(bench, decisions, done):
    _, task = await bench.do("reviewed")
    (request,) = asked(task)
    assert [action["args"] for action in request["action_requests"]] == [{"what": "0"}, {"what": "1"}]
    task = await answer(bench, task, {"decisions": decisions})
    assert (task.status, sorted(await bench.did(task.task_id))) == (Status.SUCCESS, done)


async def test_langchain_s_middleware_asks_for_each_call(bench):
    _, task = await bench.do("reviewed_each")
    assert [question["type"] for question in asked(task)] == ["tool_approval"] * 2
    task = await answer(bench, task, {"type": "approve"}, {"type": "approve"})
    assert sorted(await bench.did(task.task_id)) == ["look 0", "look 1"]


async def test_a_deep_agent_s_review_works_unchanged(bench):
    _, task = await bench.do("reviewed_deep")
    assert await bench.did(task.task_id) == []
    task = await answer(bench, task, {"decisions": [{"type": "approve"}]})
    assert (task.status, await bench.did(task.task_id)) == (Status.SUCCESS, ["look 0"])


async def test_an_answer_that_the_agent_does_not_take_is_asked_for_again(bench):
    _, task = await bench.do("schema")
    (question,) = task.interrupts
    for wrong in ({"unit": "m", "number": 3}, "long"):
        task = await answer(bench, task, wrong)
        assert (task.status, task.interrupts, task.error.type) == (Status.WAITING, (question,), "InvalidAnswer")
        assert "Size" in task.error.message
    task = await answer(bench, task, {"unit": "cm", "number": 3})
    assert (task.status, task.error, task.result["done"]) == (Status.SUCCESS, None, [3, "cm"])


# --- real workers ----------------------------------------------------------------------------------------------------


@pytest.fixture
async def site(redis_url, namespace):
    async with sites.open_site(Settings(redis_url=redis_url, namespace=namespace)) as site:
        yield site


async def give(site, task_id, value, asks):
    """Answer the question that asks this, and ring."""
    task = await site.desk.store.get(task_id)
    interrupt = next(question.id for question in task.interrupts if question.value == asks)
    answered = await site.desk.store.answer(Facts.of(task), value, interrupt=interrupt)
    for bell in answered.bells:
        await site.ring(bell.task_id, bell.run_id, bell.queue)


async def until_did(site, task_id, what):
    """Return when the agent noted that it did this."""
    while what not in await site.desk.did(task_id):
        pass


@pytest.mark.parametrize("agent", ["in_a_row", "below", "called"])
async def test_a_worker_that_dies_after_an_answer_answers_nothing_twice_and_nothing_unasked(site, agent):
    with site.worker() as worker:
        task_id, _ = await site.submit(agent, state={"gates": ["between"]})
        await site.desk.until(task_id, "task.waiting")
        await give(site, task_id, "yes", "first?")
        await site.desk.at(task_id, "between")
        worker.process.kill()
    await site.desk.open(task_id, "between")
    with site.worker():
        await site.desk.until(task_id, "task.waiting", 2)
        task = await site.desk.store.get(task_id)
        assert (asked(task), task.attempt, len(task.runs)) == (["second?"], 1, 2)
        await site.desk.open(task_id, "between")
        await give(site, task_id, "no", "second?")
        assert (await site.settled(task_id)).result["done"] == ["yes", "no"]
    assert [what for what in await site.desk.did(task_id) if what.startswith("second")] == ["second no"]


async def test_of_two_answers_one_is_used_up_when_the_worker_dies(site):
    with site.worker() as worker:
        task_id, _ = await site.submit("at_once", state={"gates": ["b"]})
        await site.desk.until(task_id, "task.waiting")
        await give(site, task_id, "A", {"from": "a"})
        await give(site, task_id, "B", {"from": "b"})
        await site.desk.at(task_id, "b")
        await until_did(site, task_id, "a A")
        worker.process.kill()
    await site.desk.open(task_id, "b")
    with site.worker():
        task = await site.settled(task_id)
    assert sorted(task.result["done"]) == ["a A", "b B", "worked"]
    assert (await site.desk.did(task_id)).count("worked") == 1


async def test_a_question_outlives_every_worker_and_holds_none(site):
    with site.worker("-c", "1"):
        task_id, _ = await site.submit("ask_tools")
        await site.desk.until(task_id, "task.waiting")
        other, _ = await site.submit("compiled")
        assert (await site.settled(other)).status is Status.SUCCESS
    with site.worker("-c", "1"):
        await give(site, task_id, "fine", "what about 1?")
        assert (await site.settled(task_id)).result == "seen 0 | told fine | seen 2"
    assert sorted(await site.desk.did(task_id)) == ["look 0", "look 2", "person 1", "person 1"]


async def test_a_sweeper_ends_a_wait_that_was_too_long(site):
    with site.worker() as worker:
        task_id, _ = await site.submit("asks", answer_within_ms=1)
        task = await site.settled(task_id)
        await worker.says("task.unanswered")
    assert (task.status, task.error.type, task.interrupts) == (Status.TIMEOUT, "Unanswered", ())


async def test_a_wait_for_a_person_counts_in_no_limit(bench):
    task_id, run_id = await bench.submit("asks", limits={"timeout_seconds": 5})
    await bench.runner.run(task_id, run_id)
    await bench.redis.hset(bench.store.keys.run(run_id), "ended_ms", "1")  # it asked long ago
    task = await answer(bench, await bench.store.get(task_id), "yes")
    assert task.status is Status.SUCCESS
