"""`BackgroundSubagents` on a real worker: its tools, its prompt part, its state."""

import asyncio
import json
import re
import subprocess
import sys
import uuid

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver

import puppets
from outrider import BackgroundSubagents, OutriderError
from outrider.orchestrator import home, tools
from outrider.shared.fork import PREAMBLE
from outrider.shared.notification import NOTE_LIMIT, Notification, note_of
from outrider.shared.notification_text import message
from outrider.shared.on_loop import await_on
from outrider.shared.statuses import EndedAs, Status
from outrider.shared.transitions import Facts
from puppets import called, started

CLI = "from outrider.orchestrator.cli.main import main; main()"


class Calls(GenericFakeChatModel):
    def bind_tools(self, tools, **kwargs):
        return self


def prompt(middleware):
    return middleware._prompt


def test_subagents_are_described_by_the_caller_or_by_the_file(monkeypatch):
    monkeypatch.setenv("OUTRIDER_CONFIG", str(puppets.CONFIG))
    assert "- `leaf`: as I say\n" in prompt(BackgroundSubagents({"leaf": "as I say"}))
    named = prompt(BackgroundSubagents(["leaf", "bare"]))
    assert "- `leaf`: finds one thing\n- `bare`: a subagent\n" in named
    assert "`deep`" not in named
    everyone = prompt(BackgroundSubagents())
    assert all(f"- `{name}`: " in everyone for name in json.loads(puppets.CONFIG.read_text())["graphs"])
    with pytest.raises(OutriderError, match=r"names no agent stranger, other \(it has .*leaf"):
        BackgroundSubagents(["leaf", "stranger", "other"])
    with pytest.raises(OutriderError, match="'leaf' is one name: give a list of names"):
        BackgroundSubagents("leaf")
    for nobody in ({}, []):
        with pytest.raises(OutriderError, match="no subagent is named"):
            BackgroundSubagents(nobody)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"description": "x", "descripton": "y"}, "leaf: unknown setting 'descripton' (known: description, mode, "),
        ({"description": "x", "mode": "copy"}, "leaf: mode 'copy' must be 'isolated' or 'fork'"),
        ({"description": "x", "update_strategy": "later"}, "update_strategy 'later' must be of interrupt, enqueue"),
        ({"description": "x", "notify_parent": "no"}, "leaf: notify_parent 'no' must be True or False"),
        ({"description": "x", "webhook": "/hook"}, "leaf: webhook '/hook' must be a whole http:// or https:// URL"),
    ],
)
def test_a_setting_that_is_not_known_is_named(settings, told):
    with pytest.raises(OutriderError) as refused:
        BackgroundSubagents({"leaf": settings})
    assert told in str(refused.value)


def test_what_is_special_about_a_subagent_is_said_where_its_model_reads_it(monkeypatch):
    monkeypatch.setenv("OUTRIDER_CONFIG", str(puppets.CONFIG))
    made = BackgroundSubagents({"leaf": {"mode": "fork", "notify_parent": False}, "bare": "plain"})
    for text in prompt(made), made.tools[0].description:
        assert "- `leaf`: finds one thing (begins with your conversation as it is then) (does not report: " in text
        assert "- `bare`: plain\n" in f"{text}\n"


@pytest.fixture
async def own_process(place, monkeypatch):
    """The environment of a process that has nothing to do with a worker."""
    url, namespace = place
    for name, value in {"REDIS_URL": url, "NAMESPACE": namespace, "CONFIG": str(puppets.CONFIG)}.items():
        monkeypatch.setenv(f"OUTRIDER_{name}", value)
    home._own.cache_clear()
    yield
    at = home._own()
    await await_on(at.loop, at.session.close())
    at.loop.call_soon_threadsafe(at.loop.stop)
    home._own.cache_clear()


@pytest.mark.usefixtures("own_process")
@pytest.mark.parametrize("way", ["async", "sync"])
async def test_an_agent_in_a_process_of_the_users_own_starts_tasks_and_reads_what_became_of_them(site, way):
    mine = {"leaf": "finds", "forker": {"description": "goes on from here", "mode": "fork"}}
    said = []
    model = Calls(messages=iter(said.pop, None))
    agent = create_agent(
        model, middleware=[BackgroundSubagents(mine)], checkpointer=InMemorySaver(), context_schema=dict
    )

    async def turn(*calls):
        """Let the model make calls; return what the tools answered."""
        made = [{"id": uuid.uuid4().hex, **call} for call in calls]
        said[:] = [AIMessage("done"), AIMessage("", tool_calls=made)]
        given = {"messages": [HumanMessage("go")]}, {"configurable": {"thread_id": way}}
        state = await agent.ainvoke(*given) if way == "async" else await asyncio.to_thread(agent.invoke, *given)
        assert state["messages"][-1].text == "done"
        return [message.text for message in state["messages"][-1 - len(calls) : -1]], state["async_tasks"]

    (told,), tasks = await turn(started("wait"))
    (task_id,) = tasks
    assert told == f"Started task {task_id} (leaf). {tools.TOLD}"
    assert (await site.o.get(task_id)).parent_id == way
    assert (await site.o.get(way)).home == "external"
    await site.end(task_id)
    stranger = await site.parent("leaf")
    (report, listed, refused), tasks = await turn(
        called("check_async_task", task_id=task_id),
        called("list_async_tasks", status_filter="success"),
        called("check_async_task", task_id=stranger),
    )
    assert "<result>leaf: wait</result>" in report
    assert listed == f"- {task_id} leaf success leaf"
    assert "is not one of yours" in refused
    assert tasks[task_id]["status"] == "success"
    (told,), tasks = await turn(started("a brief", "forker"))
    fork = next(iter(tasks.keys() - {task_id}))
    read = await site.read(fork)
    assert [message["content"] for message in read.messages][-4:] == ["done", "go", PREAMBLE, "a brief"]
    (told,), _ = await turn(called("cancel_async_task", task_id=fork))
    assert told == f"Task {fork} is cancelled."
    removed = {"removed": {**tasks[task_id], "task_id": "removed"}}
    await agent.aupdate_state({"configurable": {"thread_id": way}}, {"async_tasks": removed})
    (listed, told), _ = await turn(called("list_async_tasks"), called("check_async_task", task_id="removed"))
    assert listed == f"- {fork} forker cancelled forker\n- {task_id} leaf success leaf"
    assert told.startswith("there is no task 'removed': ")
    (told,), _ = await turn(called("update_async_task", task_id=task_id, message="wait\0"))
    assert told.splitlines()[1:] == ["text: NUL and lone surrogates cannot be stored and were replaced"]
    await site.o.cancel(task_id)


class Own:
    """An agent in a process of the user's own; the test says what its model says, and sees what it read."""

    def __init__(self, saver=None, **config):
        self.said, self.read = [], []
        reader = self

        class Reads(Calls):
            def _generate(self, messages, *args, **kwargs):
                reader.read.append(messages)
                return super()._generate(messages, *args, **kwargs)

        self.agent = create_agent(
            Reads(messages=iter(self.next, None)),
            middleware=[BackgroundSubagents({"leaf": "finds"})],
            checkpointer=saver,
        )
        self.config = {"configurable": config}

    def next(self):
        said = self.said.pop(0)
        if isinstance(said, Exception):
            raise said
        return said() if callable(said) else said

    async def turn(self, *said, given=()):
        """Let the model say these in turn; the state after that."""
        self.said[:] = said
        return await self.agent.ainvoke({"messages": list(given) or [HumanMessage("go")]}, self.config)

    @property
    def told(self):
        """Ids of the notifications that the model read in its last call."""
        return puppets.notified(self.read[-1])


def calls(*tools):
    return AIMessage("", tool_calls=[{"id": uuid.uuid4().hex, **tool} for tool in tools])


async def ended(site, state):
    """Let the tasks in a state end; return their notifications' ids."""
    await site.end(*state["async_tasks"])
    return [f"{task_id}:{(await site.o.wait(task_id)).runs[-1].run_id}:success" for task_id in state["async_tasks"]]


@pytest.mark.usefixtures("own_process")
@pytest.mark.parametrize("thread_id", ["own-1", "my thread/1"])
async def test_an_agent_in_a_process_of_the_users_own_hears_of_each_end_once(site, thread_id):
    own = Own(InMemorySaver(), thread_id=thread_id)
    state = await own.turn(calls(started("wait"), started("wait")), AIMessage("handed out"))
    ids = await ended(site, state)
    parent_id = (await site.o.get(next(iter(state["async_tasks"])))).parent_id
    assert (parent_id == thread_id) == (thread_id == "own-1")
    state = await own.turn(AIMessage("heard"))
    assert sorted(own.told) == sorted(ids)
    assert {task["status"] for task in state["async_tasks"].values()} == {"success"}
    # They are in the state; that it was saved is known when it is loaded.
    assert (await site.o.get(parent_id)).cursor == 0
    state = await own.turn(AIMessage("nothing new"))
    assert sorted(puppets.notified(state["messages"])) == sorted(ids)
    assert (await site.o.get(parent_id)).cursor == 2
    assert await site.redis.xlen(site.store.keys.inbox(parent_id)) == 0


@pytest.mark.usefixtures("own_process")
async def test_news_that_comes_with_the_final_answer_is_read_before_the_turn_ends(site):
    own = Own(InMemorySaver(), thread_id="own-2")
    state = await own.turn(calls(started("wait")), AIMessage("handed out"))
    (task_id,) = state["async_tasks"]

    loop = asyncio.get_running_loop()

    def late():
        """A final answer during which the child ends."""
        asyncio.run_coroutine_threadsafe(site.end(task_id), loop).result()
        return AIMessage("bye")

    state = await own.turn(late, AIMessage("heard"))
    assert [message.text for message in state["messages"][-3:] if message.type == "ai"] == ["bye", "heard"]
    (run,) = (await site.o.get(task_id)).runs
    assert puppets.notified(state["messages"]) == [f"{task_id}:{run.run_id}:success"]


@pytest.mark.usefixtures("own_process")
async def test_what_a_turn_took_in_and_did_not_save_comes_again(site):
    own = Own(InMemorySaver(), thread_id="own-3")
    ids = await ended(site, await own.turn(calls(started("wait")), AIMessage("handed out")))
    own.said[:] = [ConnectionError("the model is away")]
    with pytest.raises(ConnectionError):
        await own.agent.ainvoke({"messages": [HumanMessage("go")]}, own.config, durability="exit")
    state = await own.turn(AIMessage("heard"))
    assert puppets.notified(state["messages"]) == ids


@pytest.mark.usefixtures("own_process")
async def test_a_message_that_the_program_gave_itself_is_not_told_twice(site):
    own = Own(InMemorySaver(), thread_id="own-4")
    ids = await ended(site, await own.turn(calls(started("wait"), started("wait")), AIMessage("handed out")))
    async for note in site.o.inbox("own-4"):
        state = await own.agent.aget_state(own.config)
        if note.seq > state.values.get("outrider_cursor", 0):
            state = await own.turn(AIMessage("heard"), given=[note.message()])
            assert sorted(puppets.notified(state["messages"])) == sorted(ids)
        if note.seq == 2:
            break
    assert len(own.read) == 3


@pytest.mark.usefixtures("own_process")
async def test_an_agent_whose_state_nobody_saves_hears_while_it_is_called(site):
    own = Own()
    state = await own.turn(calls(started("wait")), AIMessage("handed out"))
    (ids, parent_id) = await ended(site, state), state["outrider_parent"]
    own.said[:] = [AIMessage("heard")]
    state = await own.agent.ainvoke(state)
    assert (own.told, puppets.notified(state["messages"])) == (ids, ids)
    assert (await site.o.get(parent_id)).cursor == 1


@pytest.mark.usefixtures("own_process")
async def test_without_redis_an_agent_of_the_users_own_goes_on_without_news(monkeypatch):
    monkeypatch.setenv("OUTRIDER_REDIS_URL", "redis://127.0.0.1:1/0")
    state = await Own(InMemorySaver(), thread_id="own-5").turn(AIMessage("done"))
    assert state["messages"][-1].text == "done"


async def test_tools_refuse_what_is_not_theirs_in_words_that_a_model_can_act_on(site, parent):
    stranger = await site.parent("leaf")
    cases = {
        "is not one of yours": called("check_async_task", task_id=stranger),
        "is not one of yours: list_async_tasks": called("cancel_async_task", task_id=stranger),
        "there is no task 'unknown': list_async_tasks": called("check_async_task", task_id="unknown"),
        "there is no task 'unknown-too'": called("cancel_async_task", task_id="unknown-too"),
        "there is no task '../x'": called("check_async_task", task_id="../x"),
        "xxx…: list_async_tasks": called("check_async_task", task_id="x" * 50_000),
        "there is no subagent 'stranger': use one of leaf, no-such": started("x", "stranger"),
        "no-such": started("x", "no-such"),
        "xxx…: use one of leaf": started("x", "x" * 50_000),
        "text is empty": started(" "),
    }
    read = await site.call(parent, *cases.values())
    assert len(read.results) == len(cases)
    for told, result in zip(cases, read.results, strict=True):
        assert told in result
        assert len(result) < 300
    assert {message["status"] for message in read.messages if message["type"] == "tool"} == {"error"}
    assert await site.children(parent) == []
    assert (await site.o.wait(stranger)).status is Status.SUCCESS


async def test_a_model_is_told_what_limit_refused_its_task(site):
    parent = await site.parent("agent", limits={"max_open_children": 1})
    await site.read(parent)
    await site.call(parent, started())
    read = await site.call(parent, started())
    assert "limits.max_open_children = 1 allows: wait until one has ended, or cancel one" in read.last
    (child,) = await site.children(parent)
    await site.end(child)
    await site.call(parent, started())
    await site.o.cancel(parent)


@pytest.mark.parametrize(
    "call",
    [
        {"name": "start_async_task", "args": {"description": "x", "subagent_type": "leaf", "prompt": "y"}},
        {"name": "start_async_task", "args": {"prompt": "y", "subagent_type": "leaf"}},
        called("check_async_task", id="x"),
        called("list_async_tasks", status="running"),
        called("list_async_tasks", status_filter="resting"),
    ],
    ids=lambda call: f"{call['name']}-{'-'.join(call['args'])}",
)
async def test_an_argument_that_is_not_known_is_named_and_nothing_is_submitted(site, call):
    parent = await site.parent("agent")
    await site.read(parent)
    read = await site.call(parent, call)
    (wrong,) = {"prompt", "id", "status", "status_filter"} & call["args"].keys()
    assert wrong in read.last.split("rror", 1)[1]
    assert "runtime" not in read.last.split("rror", 1)[1]
    assert await site.children(parent) == []
    await site.o.cancel(parent)


async def test_check_tells_the_whole_of_a_task_and_escapes_it(site, parent):
    await site.call(parent, started("wait </result></task> & more"))
    (child,) = await site.children(parent)
    read = await site.call(parent, called("check_async_task", task_id=child))
    assert "<result>(none yet)</result>" in read.last
    await site.end(child)
    read = await site.call(parent, called("check_async_task", task_id=child))
    assert "leaf: wait &lt;/result&gt;&lt;/task&gt; &amp; more" in next(r for r in read.results if "<task>" in r)


async def test_a_parent_gives_its_child_a_message_whatever_it_is_at(site, parent):
    await site.call(parent, started("wait"))
    (child,) = await site.children(parent)
    message = {"task_id": child, "message": "wait for this"}
    read = await site.call(parent, called("update_async_task", **message))
    assert read.last == (
        f"Task {child} was stopped at what it did, and goes on with your message. You will be told when it has ended."
    )
    task = await site.o.get(child)
    assert [run.ended_as for run in task.runs] == [EndedAs.OVERTAKEN, None]
    await site.rest(parent)
    assert (await site.o.state(parent))["async_tasks"][child]["run_id"] == task.runs[1].run_id
    await site.end(child)
    assert (await site.read(parent)).notes == [child]
    read = await site.call(parent, called("update_async_task", **message))
    assert f"Task {child} goes on with your message. You will be told" in read.last
    await site.rest(parent)
    await site.end(child)
    assert (await site.read(parent)).notes == [child, child]
    read = await site.call(parent, called("update_async_task", task_id=child))
    assert "message" in read.last
    read = await site.call(parent, called("update_async_task", task_id="unknown-too", message="x"))
    assert "there is no task 'unknown-too'" in read.last


async def test_a_model_may_number_its_calls_anew_in_each_message(site, parent):
    await site.call(parent, {**started("wait here"), "id": "call_0"})
    await site.call(parent, {**started("wait there"), "id": "call_0"})
    first, second = await site.children(parent)
    for text in ("wait for this", "wait for that"):
        message = called("update_async_task", task_id=first, message=text)
        read = await site.call(parent, {**message, "id": "call_0"})
        assert "goes on with your message" in read.last
    assert len((await site.o.get(first)).runs) == 3
    await site.rest(parent)
    await site.end(first, second)


async def test_a_message_that_is_to_wait_comes_once_though_its_step_runs_again(redis_url, namespace):
    env = puppets.QUICK | {"OUTRIDER_LEASE_SECONDS": "1.5"}
    async with puppets.site(redis_url, namespace) as site:
        with puppets.worker(redis_url, namespace, "-Q", "subagents", **puppets.STEADY):
            with puppets.worker(redis_url, namespace, "-Q", "parents", **env) as doomed:
                parent = await site.parent("patient", queue="parents")
                await site.read(parent)
                await site.call(parent, started("wait"))
                (child,) = await site.children(parent)
                await site.at(child, "leaf")
                await site.hold(parent, "called")
                await site.let_call(parent, called("update_async_task", task_id=child, message="and then this"))
                await site.pop(parent, "called")
                doomed.process.kill()
            await site.release(parent, "called")
            with puppets.worker(redis_url, namespace, "-Q", "parents", **env):
                (answer,) = (await site.read(parent)).results
                assert answer.startswith(f"Task {child} reads your message when it is done with what it is at.")
                assert (await site.o.get(child)).follow_ups == 1
                await site.rest(parent)
                await site.answer(child, "leaf")
                await site.end(child)
                assert (await site.read(parent)).notes == [child]
                assert len((await site.o.get(child)).runs) == 2
                await site.say(parent)
                assert (await site.o.wait(parent)).status is Status.SUCCESS


async def test_every_tool_works_for_an_agent_that_code_in_a_thread_calls(site):
    parent = await site.parent("threaded")
    await site.read(parent)
    read = await site.call(parent, started("wait"))
    (child,) = await site.children(parent)
    assert read.last == f"Started task {child} (leaf). {tools.TOLD}"
    on_it = {"task_id": child}
    read = await site.call(
        parent,
        called("check_async_task", **on_it),
        called("list_async_tasks"),
        called("update_async_task", message="wait for this", **on_it),
        called("check_async_task", task_id="no-such"),
    )
    report, listed, updated, refused = read.results
    assert "<result>(none yet)</result>" in report
    assert listed.startswith(f"- {child} leaf ")
    assert f"Task {child} " in updated
    assert "there is no task 'no-such'" in refused
    read = await site.call(parent, called("cancel_async_task", **on_it))
    assert read.results == [f"Task {child} is cancelled."]
    await site.say(parent)
    assert (await site.o.wait(parent)).result == "done"


async def test_a_message_to_a_child_that_asks_waits_for_a_person(site):
    parent = await site.parent("patient")
    await site.read(parent)
    await site.call(parent, started("now", "bare"))
    (child,) = await site.children(parent)
    await site.read(child)
    await site.let_call(child, called("person"))
    await site.until(child, "task.waiting")
    read = await site.call(parent, called("update_async_task", task_id=child, message="and then this"))
    (told,) = [text for text in read.results if "your message" in text]
    assert told == f"Task {child} reads your message when a person has answered what it asks. {tools.TOLD}"
    await site.o.answer(child, "yes")
    await site.read(child)
    await site.say(child)
    assert (await site.read(child)).last == "and then this"
    await site.o.cancel(parent)


async def test_a_parent_that_cancels_its_child_is_not_told_of_it(site, parent):
    await site.call(parent, started("wait"))
    (child,) = await site.children(parent)
    await site.call(parent, started("now"))
    _, other = await site.children(parent)
    await site.o.wait(other)
    read = await site.call(parent, called("cancel_async_task", task_id=child))
    assert f"Task {child} is cancelled." in read.results
    read = await site.call(
        parent, called("cancel_async_task", task_id=child), called("cancel_async_task", task_id=other)
    )
    assert ["had already ended: cancelled" in read.results[0], "had already ended: success" in read.results[1]] == [
        True
    ] * 2
    assert read.notes == [other]
    tasks = (await site.o.state(parent))["async_tasks"]
    assert {name: task["status"] for name, task in tasks.items()} == {child: "cancelled", other: "success"}
    await site.say(parent)
    task = await site.o.wait(parent)
    assert (task.status, task.seq) == (Status.SUCCESS, 1)


async def test_the_list_shows_the_parents_own_tasks_newest_first_or_those_of_a_status(site, parent):
    await site.call(parent, started("now"))
    (done,) = await site.children(parent)
    await site.o.wait(done)
    await site.call(parent, started("wait"))
    waits = (await site.children(parent))[-1]
    read = await site.call(
        parent,
        called("list_async_tasks"),
        called("list_async_tasks", status_filter="all"),
        called("list_async_tasks", status_filter="success"),
        called("list_async_tasks", status_filter="error"),
    )
    whole, same, success, error = read.results
    assert [line.split()[1] for line in whole.splitlines()] == [waits, done]
    assert same == whole
    assert success == f"- {done} leaf success leaf"
    assert error == "No task is error."
    run_ids = {name: task["run_id"] for name, task in (await site.o.state(parent))["async_tasks"].items()}
    assert run_ids == {name: (await site.o.get(name)).runs[-1].run_id for name in (done, waits)}


async def test_the_part_of_the_prompt_and_the_tools_are_the_same_bytes_on_every_turn_and_wake(site, parent):
    prefixes = []
    for _ in range(3):
        read = await site.call(parent, started("wait"))
        prefixes.append(read.prefix)
        await site.rest(parent)
        await site.end((await site.children(parent))[-1])
        prefixes.append((await site.read(parent)).prefix)
    assert len({json.dumps(prefix) for prefix in prefixes}) == 1
    system, tools = json.dumps(prefixes[0][0]), [one["function"] for one in prefixes[0][1]]
    assert system.count("## Background subagents") == 1
    named = {"start_async_task", "check_async_task", "update_async_task", "cancel_async_task", "list_async_tasks"}
    assert named <= {one["name"] for one in tools}
    for one in tools:
        if one["name"] in named:
            assert "runtime" not in one["parameters"]["properties"]


async def test_context_and_configurable_reach_the_run_its_wake_and_its_children(site):
    given = {"context": {"user": "ada"}, "configurable": {"mark": "m"}}
    told = json.dumps({"context": {"user": "ada"}, "mark": "m"})
    parent = await site.parent("agent", **given)
    await site.read(parent)
    assert (await site.call(parent, called("facts"))).last == told
    await site.call(parent, started("wait"))
    await site.rest(parent)
    (child,) = await site.children(parent)
    kept = await site.redis.hgetall(site.store.keys.large(child))
    assert {name.decode(): json.loads(value) for name, value in kept.items()} == given
    await site.end(child)
    await site.read(parent)
    assert (await site.call(parent, called("facts"))).last == told
    await site.say(parent)
    assert (await site.o.wait(parent)).status is Status.SUCCESS


async def test_the_command_line_lists_children_of_a_parent(site, place, parent):
    await site.call(parent, started("wait"), started("wait"))
    children = await site.children(parent)
    url, namespace = place
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", CLI, "list", "--parent", parent, "--json"],
        env={"OUTRIDER_REDIS_URL": url, "OUTRIDER_NAMESPACE": namespace},
        capture_output=True,
        text=True,
        check=True,
    )
    listed = json.loads(done.stdout)["tasks"]
    assert [task["task_id"] for task in reversed(listed)] == children
    assert {task["parent_id"] for task in listed} == {parent}


async def test_a_result_of_five_megabytes_is_told_in_part_and_read_on(site, parent):
    await site.call(parent, started("wait for what is big"))
    (child,) = await site.children(parent)
    await site.end(child)
    read = await site.call(parent, called("facts"))
    assert len(read.last) <= NOTE_LIMIT
    offset = int(re.search(r"of 5,000,006: check_async_task with offset=(\d+) reads on", read.last)[1])
    read = await site.call(parent, called("check_async_task", task_id=child, offset=offset))
    assert "<result>&amp;" in read.last
    assert int(re.search(r"with offset=(\d+) reads on", read.last)[1]) > offset
    read = await site.call(parent, called("check_async_task", task_id=child, offset=4_999_996))
    assert f"<result>{'&amp;' * 10}</result>" in read.last


@pytest.mark.parametrize(("profile", "kinds"), [({"image_inputs": False}, ["text"]), ({}, ["text", "image"])])
async def test_a_model_that_takes_text_alone_is_not_sent_what_it_refuses(profile, kinds):
    sent = []

    class Model(Calls):
        def _generate(self, messages, *args, **kwargs):
            sent.append(messages)
            return super()._generate(messages, *args, **kwargs)

    model = Model(messages=iter([AIMessage("done")]), profile=profile)
    agent = create_agent(model, middleware=[BackgroundSubagents({"leaf": "x"})])
    result = [{"type": "text", "text": "see"}, {"type": "image", "base64": "aGk=", "mime_type": "image/png"}]
    note = json.loads(note_of(Facts("t", "leaf", "leaf", "p"), "r", Status.SUCCESS, json.dumps(result), ""))
    told = message(Notification(seq=1, **note), tools=True)
    state = await agent.ainvoke({"messages": [told]})
    assert [block["type"] for block in sent[0][-1].content] == kinds
    assert "(image 1: image/png)" in sent[0][-1].content[0]["text"]
    assert [block["type"] for block in state["messages"][0].content] == ["text", "image"]
