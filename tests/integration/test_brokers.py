"""What differs between brokers, and what two namespaces on one server know of each other: nothing."""

import asyncio
import os
import signal

import pytest
from kombu.transport.redis import Channel

from outrider import Outrider
from outrider.orchestrator.embedded import EmbeddedRedis
from outrider.shared import broker
from outrider.shared.bells import Bell
from outrider.shared.broker import BrokerUnreachable, make_app, ring, tell_monitors
from outrider.shared.settings import Settings
from outrider.shared.statuses import Phase, Status
from sites import Monitor, open_site
from workers import AGENTS


async def test_a_bell_that_a_busy_worker_hoards_is_rung_again_for_another(
    redis_url, broker_url, namespace, monkeypatch
):
    """On RabbitMQ a worker takes a message ahead; on Redis it does not, and nothing is rung twice."""
    monkeypatch.setenv("OUTRIDER_REDIS_URL", redis_url)
    quickly = {"OUTRIDER_RING_AGAIN_SECONDS": "0.5"}
    async with open_site(Settings(redis_url=redis_url, broker_url=broker_url, namespace=namespace)) as site:
        site.desk.store._ring_again_ms = 500
        with site.worker("-c", "1", **quickly):
            busy, _ = await site.submit("compiled", state={"gates": ["b"]})
            await site.desk.at(busy, "b")
            waiting, _ = await site.submit("compiled")
            with site.worker("-c", "1", **quickly):
                assert (await site.settled(waiting)).status is Status.SUCCESS
                assert (await site.desk.store.get(busy)).phase is Phase.WORKING
                await site.desk.open(busy, "b")
                assert (await site.settled(busy)).status is Status.SUCCESS
        for task_id in (busy, waiting):  # however often it was rung
            assert await site.desk.did(task_id) == ["a", "b", "c"]


async def test_a_parent_is_woken_and_a_child_cancelled(redis_url, broker_url, namespace, monkeypatch):
    """The worker rings for the parent, on a queue that nobody rang on before."""
    monkeypatch.setenv("OUTRIDER_REDIS_URL", redis_url)
    settings = Settings(redis_url=redis_url, broker_url=broker_url, namespace=namespace, config=str(AGENTS))
    async with open_site(settings) as site, Outrider(settings) as client:
        with site.worker("-c", "4"):
            lead = await client.submit("chat", "hello")
            await client.wait(lead.task_id)
            for agent, status in (("compiled", "success"), ("sleeper", "cancelled")):
                child = await client.submit(agent, "x", parent=lead.task_id)
                await site.desk.until(child.task_id, "run.claimed")
                if status == "cancelled":
                    await client.cancel(child.task_id)
                assert (await client.wait(child.task_id)).status == status
            await site.desk.until(lead.task_id, "task.settled", 2)
            assert (await client.wait(lead.task_id)).status == "success"


@pytest.mark.timeout(300)  # RabbitMQ starts twice, which takes a busy machine a minute each time
async def test_a_restart_of_rabbitmq_is_sat_out(redis_url, rabbitmq, namespace, monkeypatch):
    monkeypatch.setenv("OUTRIDER_REDIS_URL", redis_url)
    async with open_site(Settings(redis_url=redis_url, broker_url=rabbitmq.vhost(), namespace=namespace)) as site:
        with site.worker("-c", "2"):
            held, _ = await site.submit("compiled", state={"gates": ["b"]})
            await site.desk.at(held, "b")
            rabbitmq.restart()  # not in a thread: the server would end with it
            # the client's pooled connection is dead, and the bell is rung all the same
            after, _ = await site.submit("compiled")
            await site.desk.open(held, "b")
            for task_id in (held, after):
                assert (await site.settled(task_id)).status is Status.SUCCESS


async def test_a_broker_that_hangs_holds_nobody_who_rings(namespace, monkeypatch):
    monkeypatch.setattr(broker, "ANSWER_SECONDS", 0.5)
    bell = Bell(task_id="t", run_id="r", queue="subagents", label="label")
    with EmbeddedRedis() as server:
        app = make_app(Settings(broker_url=server.url, namespace=namespace))
        ring(app, bell)  # it is connected
        os.kill(server.pid, signal.SIGSTOP)
        with pytest.raises(BrokerUnreachable, match="Timeout"):
            ring(app, bell)
        os.kill(server.pid, signal.SIGCONT)
        ring(app, bell)
        app.close()


async def test_a_bell_is_rung_though_its_channel_is_closed_meanwhile(redis_url, namespace, monkeypatch):
    app = make_app(Settings(redis_url=redis_url, namespace=namespace))
    publish = Channel.basic_publish

    def closed_meanwhile(self, *args, **kwargs):
        monkeypatch.undo()
        self.close()
        self._disconnect_pools()
        return publish(self, *args, **kwargs)

    monkeypatch.setattr(Channel, "basic_publish", closed_meanwhile)
    ring(app, Bell(task_id="t", run_id="r", queue="subagents", label="label"))
    with app.connection_for_read() as connection:
        assert connection.SimpleQueue("subagents").get(timeout=10).headers["id"] == "r"
    monkeypatch.setattr(Channel, "basic_publish", closed_meanwhile)
    tell_monitors(app, "task-retried", "r", node="n")  # which meets the same
    assert Channel.basic_publish is publish
    app.close()


async def test_a_broker_out_of_reach_is_one_line_without_the_password(namespace):
    app = make_app(Settings(broker_url="amqp://outrider:hush@127.0.0.1:1/v", namespace=namespace))
    with pytest.raises(BrokerUnreachable) as error:
        await asyncio.to_thread(ring, app, Bell(task_id="t", run_id="r", queue="subagents", label="label"))
    assert str(error.value).startswith("cannot reach the broker at amqp://outrider:***@127.0.0.1:1/v: ")
    assert "hush" not in repr(error.value)
    app.close()


def test_a_worker_looks_for_its_broker_until_it_is_back():
    assert make_app(Settings()).conf.broker_connection_max_retries is None, "Celery's 100 are over within an hour"


@pytest.mark.timeout(240)  # two workers that start one after the other, and pings that wait for more answers
async def test_two_namespaces_on_one_redis_never_meet(monkeypatch):
    """Neither by bells, records, monitors' events and Celery's commands, nor by any key or channel."""
    with EmbeddedRedis() as server:
        monkeypatch.setenv("OUTRIDER_REDIS_URL", server.url)
        one, two = (open_site(Settings(redis_url=server.url, namespace=name)) for name in ("one", "one.2"))
        async with one as one, two as two:
            with Monitor(one.app) as monitor, one.worker("-c", "2") as first:
                elsewhere, foreign_run = await two.submit("compiled", state={"gates": ["b"]})
                here, here_run = await one.submit("compiled")
                assert (await one.settled(here)).status is Status.SUCCESS
                # one's worker has been at work, and two's bell still lies there
                assert (await two.desk.store.get(elsewhere)).status is Status.PENDING
                assert await one.desk.store.get_run(foreign_run) is None
                with two.worker("-c", "2") as second:
                    await two.desk.at(elsewhere, "b")
                    assert len(await one.online()) == len(await two.online()) == 1
                    assert await one.online() != await two.online()
                    held, held_run = await one.submit("compiled", state={"gates": ["b"]})
                    await one.desk.at(held, "b")
                    for site, foreign in ((one, foreign_run), (two, held_run)):
                        await asyncio.to_thread(site.app.control.revoke, foreign, terminate=True)
                        await site.online()  # commands are heard in the order in which they were sent
                    channels = await one.desk.redis.pubsub_channels("*")
                    for site, task_id in ((one, held), (two, elsewhere)):
                        await site.desk.open(task_id, "b")
                        assert (await site.settled(task_id)).status is Status.SUCCESS
                    second.process.terminate()
                    assert await second.ends() == 0
                first.process.terminate()
                assert await first.ends() == 0
            assert "task-succeeded" in monitor.of(here_run)
            assert monitor.of(foreign_run) == []
            names = [*channels, *await one.desk.redis.keys("*")]
            strays = [name for name in names if not name.startswith((b"{one}:", b"{one.2}:")) and b":test:" not in name]
            assert strays == []
            assert {name.split(b":")[0] for name in channels} == {b"{one}", b"{one.2}"}
