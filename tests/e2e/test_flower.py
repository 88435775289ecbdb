"""A real Flower beside real workers: what it shows, what its buttons do, and whom it answers."""

import asyncio
import json
import subprocess
import uuid
from contextlib import contextmanager, suppress

import pytest

import browser
from flowers import CLI, PLAIN, Flower, until
from outrider import Outrider
from workers import AGENTS, WorkerProcess

SECRET = "sk-SECRET-description"
EVERYWHERE = "0.0.0.0"  # noqa: S104 nobody connects to it from outside
EVIL = "http://evil.example"


@contextmanager
def _house(redis_url, namespace):
    with Flower(redis_url, namespace) as flower, WorkerProcess(redis_url, namespace) as worker:
        asyncio.run(worker.says("ready"))
        asyncio.run(flower.knows_workers())
        yield flower, worker, redis_url, namespace


@pytest.fixture(scope="module")
def house(redis_server):
    """A worker, a Flower that has seen it, their Redis and namespace: for all tests that leave them as they were."""
    with _house(redis_server.url, f"t-{uuid.uuid4().hex[:12]}") as made:
        yield made


@pytest.fixture
def own_house(redis_url, namespace):
    """The same, for a test that kills the worker."""
    with _house(redis_url, namespace) as made:
        yield made


def client_of(house):
    _, _, redis_url, namespace = house
    return Outrider(redis_url=redis_url, namespace=namespace, config=str(AGENTS))


async def begin(client, *tasks):
    """Return when agents are at work on the tasks."""
    for task in tasks:

        async def works(task_id=task.task_id):
            return (await client.get(task_id)).status == "running"

        await until(works)


async def test_states_agree_and_nothing_secret_is_shown(house):
    flower, *_ = house
    async with client_of(house) as client:
        wanted = {"compiled": "SUCCESS", "asks": "SUCCESS", "raises": "FAILURE"}
        for agent, state in wanted.items():
            text = "value" if agent == "raises" else SECRET
            task = await client.submit(agent, text, title=f"about {agent}", context={"key": SECRET})
            job = await flower.shows(task.run_id, state)
            assert job["args"] == f"{agent} · about {agent} · {task.task_id}"
            assert (job["name"], job["kwargs"]) == ("outrider.run", "{}")
            assert job["worker"] == (await client.get(task.task_id)).runs[0].worker
            if state == "FAILURE":
                assert job["exception"] == "AgentFailed('ValueError')"
        for path in ("/api/tasks", "/api/workers?refresh=1", "/tasks", f"/task/{task.run_id}", "/workers"):
            status, shown = await flower.ask(path)
            assert status == 200
            assert "SECRET" not in shown


async def test_revoke_cancels_the_task_and_its_children(house):
    flower, *_ = house
    async with client_of(house) as client:
        lead = await client.submit("held_chat", SECRET)
        child = await client.submit("sleeper", SECRET, parent=lead.task_id)
        await begin(client, lead, child)
        status, text = await flower.ask(f"/api/task/revoke/{lead.run_id}?terminate=true", "POST")
        assert (status, json.loads(text)) == (200, {"message": f"Revoked '{lead.run_id}'"})
        for one in (lead, child):
            assert (await client.wait(one.task_id)).status == "cancelled"
            await flower.shows(one.run_id, "REVOKED")
        task = await client.submit("compiled", "the worker goes on")
        await flower.shows(task.run_id, "SUCCESS")


async def test_revoking_a_child_wakes_a_parent_that_rests(house):
    """The parent's bell is rung at once, not when a sweeper finds it overdue."""
    flower, worker, *_ = house
    async with client_of(house) as client:
        lead = await client.submit("chat", "hello")
        await client.wait(lead.task_id)
        child = await client.submit("sleeper", "x", parent=lead.task_id)
        await begin(client, child)
        await flower.ask(f"/api/task/revoke/{child.run_id}?terminate=true", "POST")
        await client.wait(child.task_id)

        async def woken():
            return len((await client.get(lead.task_id)).runs) == 2

        await until(woken)
        assert (await client.wait(lead.task_id)).status == "success"
        assert not any("bell.rung_again" in line for line in worker.lines)


async def test_a_lost_workers_job_does_not_stay_started(own_house):
    flower, worker, redis_url, namespace = own_house
    async with client_of(own_house) as client:
        task = await client.submit("sleeper", SECRET)
        await flower.shows(task.run_id, "STARTED")
        await until(lambda: client.state(task.task_id))  # a step that is saved later would begin the count anew
        worker.process.kill()
        await worker.ends()
        with WorkerProcess(redis_url, namespace, OUTRIDER_MAX_ATTEMPTS="2", OUTRIDER_RING_AGAIN_SECONDS="5") as second:
            await flower.shows(task.run_id, "STARTED", "retried")
            await begin(client, task)
            second.process.kill()
            await second.ends()
        with WorkerProcess(redis_url, namespace, OUTRIDER_MAX_ATTEMPTS="2", OUTRIDER_RING_AGAIN_SECONDS="5"):
            job = await flower.shows(task.run_id, "FAILURE")
            assert job["exception"] == "AgentFailed('WorkerLost')"


async def test_a_cancelled_job_of_a_lost_worker_does_not_stay_started(own_house):
    flower, worker, redis_url, namespace = own_house
    async with client_of(own_house) as client:
        task = await client.submit("sleeper", SECRET)
        await flower.shows(task.run_id, "STARTED")
        await begin(client, task)
        worker.process.kill()
        await worker.ends()
        assert (await client.cancel(task.task_id)).outcome == "cancelled"
        with WorkerProcess(redis_url, namespace):
            await flower.shows(task.run_id, "REVOKED")


async def test_pages_of_others_are_refused(house):
    flower, *_ = house
    async with client_of(house) as client:
        task = await client.submit("sleeper", "x")
        await begin(client, task)
        port = flower.url.rpartition(":")[2]
        revoke = f"/api/task/revoke/{task.run_id}?terminate=true"
        foreign = (
            ("POST", revoke, {"Sec_Fetch_Site": "cross-site"}),
            ("POST", revoke, {"Sec_Fetch_Site": "same-site"}),  # another port of this machine
            ("POST", revoke, {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "document"}),  # a form
            ("POST", revoke, {"Origin": EVIL}),  # an older browser
            ("POST", revoke, {"Origin": "null"}),
            ("POST", revoke, {"Host": f"evil.example:{port}", "Origin": f"http://evil.example:{port}"}),
            ("OPTIONS", revoke, {"Sec_Fetch_Site": "cross-site", "Origin": EVIL}),
            ("GET", "/api/tasks", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "empty"}),
            ("GET", "/tasks", {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "iframe"}),
            ("GET", "/api/tasks", {"Host": "evil.example"}),
        )
        for method, path, headers in foreign:
            status, text = await flower.ask(path, method, **headers)
            assert (status, "FLOWER_BASIC_AUTH" in text) == (403, True), headers
        own = (
            {},
            {"Sec_Fetch_Site": "same-origin", "Origin": flower.url},
            {"Sec_Fetch_Site": "none"},
            {"Origin": flower.url},
            {"Host": f"localhost:{port}"},
            {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Dest": "document"},  # a link
        )
        for headers in own:
            assert (await flower.ask("/api/tasks", **headers))[0] == 200, headers
        assert (await client.cancel(task.task_id)).outcome == "cancelled"


async def test_plain_celery_starts_the_same_flower(redis_url, namespace):
    with Flower(redis_url, namespace, command=PLAIN) as flower:
        assert flower.url.startswith("http://127.0.0.1:")
        assert (await flower.ask("/api/tasks"))[0] == 200
        assert (await flower.ask("/api/tasks", Sec_Fetch_Site="cross-site"))[0] == 403


def test_plain_celery_does_not_open_it_to_everyone(redis_url, namespace):
    env = Flower(redis_url, namespace)._env
    command = [*PLAIN, f"--address={EVERYWHERE}"]
    ended = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert (ended.returncode, "FLOWER_BASIC_AUTH" in ended.stderr) == (2, True)


async def test_with_a_login_nobody_gets_in_without(redis_url, namespace):
    with Flower(redis_url, namespace, "--address", EVERYWHERE, "--basic-auth", "ada:secret") as flower:
        flower.url = flower.url.replace(EVERYWHERE, "127.0.0.1")
        assert (await flower.ask("/tasks"))[0] == 401
        assert (await flower.ask("/api/tasks"))[0] == 401
        assert (await flower.ask("/api/tasks", Authorization="Basic YWRhOnNlY3JldA=="))[0] == 200


@pytest.mark.parametrize(
    ("args", "env", "said"),
    [
        (("--address", EVERYWHERE), {}, "FLOWER_BASIC_AUTH"),
        (("--address", "::"), {}, "FLOWER_BASIC_AUTH"),
        ((), {"FLOWER_ADDRESS": "example.org"}, "FLOWER_BASIC_AUTH"),
        (("--basic-auth", "ada"), {}, "user:password"),
        (("--address", "192.0.2.1", "--basic-auth", "a:b"), {}, "cannot listen on 192.0.2.1"),
    ],
)
def test_a_flower_open_to_everyone_does_not_start(redis_url, namespace, args, env, said):
    flower = Flower(redis_url, namespace, **env)
    ended = subprocess.run([*CLI, "flower", *args], env=flower._env, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert len(ended.stderr.splitlines()) == 1
    assert said in ended.stderr


@pytest.mark.skipif(bool(browser.missing()), reason=f"not on this machine: {browser.missing()}")
async def test_in_a_browser(house):
    flower, *_ = house
    async with client_of(house) as client:
        lead = await client.submit("held_chat", SECRET, title="the lead")
        child = await client.submit("sleeper", SECRET, title="its child", parent=lead.task_id)
        done = await client.submit("compiled", SECRET, title="a quick one")
        await flower.shows(done.run_id, "SUCCESS")
        await begin(client, lead, child)
        with browser.Browser() as page:
            await _sees(
                page, f"{flower.url}/tasks", "#tasks-table", "the lead", "its child", "a quick one", lead.task_id
            )
            await _sees(page, f"{flower.url}/workers", "body", "outrider-", "Online")
            await _sees(
                page, f"{flower.url}/task/{lead.run_id}", "#task-page", f"held_chat · the lead · {lead.task_id}"
            )
            page.click("#task-terminate")
            for one in (lead, child):
                assert (await client.wait(one.task_id)).status == "cancelled"
                await flower.shows(one.run_id, "REVOKED")
            # The very page of a stranger, in a real browser: it neither reads nor changes anything.
            page.open("about:blank")
            fetched = "try { return (await fetch(arguments[0], {method: arguments[1]})).status } catch { return 0 }"
            for method in ("GET", "POST"):
                assert page.run(fetched, f"{flower.url}/api/task/revoke/{done.run_id}", method) == 0


async def _sees(page, url, css, *texts):
    """Open a page and return when it shows these texts, and no secret."""
    page.open(url)

    async def shown():
        with suppress(LookupError):  # it is not there yet
            text = page.text(css)
            assert "SECRET" not in text
            return all(_packed(wanted) in _packed(text) for wanted in texts)

    await until(shown)


def _packed(text):
    """Without what depends on the width of columns and on the style."""
    return "".join(text.lower().split())
