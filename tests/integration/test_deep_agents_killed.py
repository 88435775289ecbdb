"""Deep agents whose worker is killed or drained: another one goes on with what they read, pinned and put away."""

import signal

import puppets
from deep_puppets import BROKEN, READ_SHOP, SHIP, SHOP, finished, keen, offered, pinned, put
from puppets import called

LAST_ROW = "row 19999"
LARGE = "a long story\n" * 20_000


async def large_results(site, task_id):
    return [file.path for file in (await site.o.files(task_id)).files]


async def told(site, task_id, kind, text):
    """Messages of a kind in the state that hold a text."""
    messages = (await site.o.state(task_id))["messages"]
    return [message for message in messages if message.type == kind and text in message.text]


# Each is a task of the worker that is killed where it says `yield`.


async def read_and_not_called(site):
    """Killed while the model that has read a skill is asked: it is asked again, with the skill's tool."""
    task_id, _ = await keen(site)
    await site.call(task_id, READ_SHOP)
    yield
    assert "ship" in offered(await site.read(task_id))
    assert (await site.call(task_id, SHIP)).last == "a book shipped for ada"
    await finished(site, task_id)


async def called_and_not_done(site):
    """Killed while the skill's tool is called: the call is done again, since the model was shown the tool."""
    task_id, _ = await keen(site)
    await site.call(task_id, READ_SHOP)
    await site.hold(task_id, "before ship")
    await site.let_call(task_id, SHIP)
    await site.pop(task_id, "before ship")
    yield
    await site.pop(task_id, "before ship")
    await site.answer(task_id, "before ship")
    assert (await site.read(task_id)).last == "a book shipped for ada"
    await finished(site, task_id)


async def called_unread(site):
    """Killed while a model calls a tool in the same turn in which it reads the skill: the call is refused again."""
    task_id, _ = await keen(site)
    await site.hold(task_id, "before ship")
    await site.let_call(task_id, READ_SHOP, SHIP)
    await site.pop(task_id, "before ship")
    await site.saved(task_id, "Always be polite.")
    yield
    await site.pop(task_id, "before ship")
    await site.answer(task_id, "before ship")
    read = await site.read(task_id)
    assert "Always be polite." in read.results[0]
    assert "ship is not a valid tool" in read.results[1]
    assert "ship" in offered(read)
    await finished(site, task_id)


async def pinned_once(site):
    """Killed when the model has a pinned skill before it: it is not pinned again."""
    task_id, read = await keen(site, state={"pinned_skills": ["shop"]})
    yield
    assert pinned(await site.read(task_id)) == pinned(read) != []
    await finished(site, task_id)
    assert len(await told(site, task_id, "human", "Always be polite.")) == 1


async def put_away_and_not_saved(site):
    """Killed when a large result lies in its file, and nothing of it in the state: one message, one file."""
    task_id, _ = await keen(site)
    await site.hold(task_id, "written")
    await site.let_call(task_id, called("rows"))
    await site.pop(task_id, "written")
    await site.release(task_id, "written")
    yield
    await reads_on(site, task_id, await site.read(task_id))


async def put_away_and_saved(site):
    """Killed when a large result is put away and saved, and another tool of the turn is at work."""
    task_id, _ = await keen(site)
    await site.hold(task_id, "look there")
    await site.let_call(task_id, called("rows"), called("look", where="there"))
    await site.pop(task_id, "look there")
    await site.saved(task_id, "Tool result too large")
    await site.release(task_id, "look there")
    await site.hold(task_id, "rows")  # it would stop here if it were done again
    yield
    await reads_on(site, task_id, await site.read(task_id))


async def reads_on(site, task_id, read):
    (path,) = await large_results(site, task_id)
    stub = read.results[0]
    assert "Tool result too large" in stub
    assert path in stub
    assert len(stub) < 5_000
    read = await site.call(task_id, called("read_file", file_path=path, offset=19_999, limit=1))
    assert LAST_ROW in read.last
    await finished(site, task_id)
    assert len(await told(site, task_id, "tool", "Tool result too large")) == 1


async def large_text(site):
    """Killed when a large message was put away: the model reads its beginning, the state holds it once."""
    task_id = (await site.o.submit("keen", LARGE, context={"user": "ada"})).task_id
    read = await site.read(task_id)
    await site.call(task_id, called("look", where="here"))
    yield
    again = await site.read(task_id)
    assert again.messages[0]["content"] == read.messages[0]["content"]
    assert len(again.messages[0]["content"]) < 5_000
    await finished(site, task_id)
    assert len(await told(site, task_id, "human", LARGE)) == 1


SCENES = [
    read_and_not_called,
    called_and_not_done,
    called_unread,
    pinned_once,
    put_away_and_not_saved,
    put_away_and_saved,
    large_text,
]


async def test_what_deep_agents_had_when_their_worker_was_killed_is_there_on_another(redis_url, namespace):
    async with puppets.site(redis_url, namespace) as site:
        await put(site, "skills", {"/shop/SKILL.md": SHOP})
        scenes = [scene(site) for scene in SCENES]
        with puppets.worker(redis_url, namespace, **puppets.QUICK) as worker:
            for scene in scenes:
                await anext(scene)
            worker.process.kill()
        with puppets.worker(redis_url, namespace, **puppets.QUICK):
            for scene in scenes:
                assert await anext(scene, "its end") == "its end"
        tasks = (await site.o.list()).tasks
        assert [task.attempt for task in tasks] == [1] * len(SCENES)


async def test_what_deep_agents_had_when_their_worker_drained_is_there_on_another(redis_url, namespace):
    async with puppets.site(redis_url, namespace) as site:
        await put(site, "skills", {"/shop/SKILL.md": SHOP, "/broken/SKILL.md": BROKEN})
        with puppets.worker(redis_url, namespace, **puppets.STEADY | {"OUTRIDER_GRACE_SECONDS": "30"}) as worker:
            task_id, read = await keen(site, state={"pinned_skills": ["shop"]})
            await worker.says("/skills/broken/SKILL.md")  # its warning: all else goes on
            await site.call(task_id, called("rows"))
            worker.process.send_signal(signal.SIGTERM)
            await worker.says("worker.drains")
            await site.let_call(task_id, SHIP)
            assert await worker.ends() == 0
        with puppets.worker(redis_url, namespace, **puppets.STEADY):
            again = await site.read(task_id)
            assert again.results == ["a book shipped for ada"]
            assert pinned(again) == pinned(read)
            assert "ship" in offered(again)
            (path,) = await large_results(site, task_id)
            assert LAST_ROW in (await site.call(task_id, called("read_file", file_path=path, offset=19_999))).last
            task = await finished(site, task_id)
        assert (len(task.runs), task.attempt) == (1, 0)
