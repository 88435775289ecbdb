"""A Redis behind TLS and a password: one URL for redis-py and kombu; the password is shown by nothing."""

import asyncio
import json
import logging
import signal
from pathlib import Path

import pytest

import servers
from flowers import Flower
from outrider import Outrider, OutriderError
from outrider.shared.bells import Bell
from outrider.shared.broker import BrokerUnreachable, make_app, ring
from outrider.shared.settings import Settings
from outrider.shared.statuses import Status
from sites import open_site
from workers import AGENTS

pytest.importorskip("cryptography", reason="cryptography makes this test's certificates")


@pytest.fixture(scope="module")
def tls_redis(tmp_path_factory):
    with servers.GuardedRedis(tmp_path_factory.mktemp("tls"), tls=True) as server:
        if server.url is None:
            pytest.skip("no Redis with TLS on this machine")
        yield server


def commands_of_all_processes():
    """The command lines that everyone on the machine sees."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes()
        except OSError:  # it has ended
            continue


async def test_a_task_goes_its_way_and_the_password_is_nowhere(tls_redis, namespace, monkeypatch):
    monkeypatch.setenv("OUTRIDER_REDIS_URL", tls_redis.url)
    async with open_site(Settings(redis_url=tls_redis.url, namespace=namespace)) as site:
        with (
            Flower(tls_redis.url, namespace) as flower,
            site.worker("-P", "prefork", "-c", "1", OUTRIDER_LOG_LEVEL="debug") as worker,
        ):
            await worker.says("ready")
            async with Outrider(redis_url=tls_redis.url, namespace=namespace, config=str(AGENTS)) as client:
                task = await client.submit("compiled", "hello")
                assert (await client.wait(task.task_id)).status is Status.SUCCESS
            held, _ = await site.submit("compiled", state={"gates": ["b"]})
            await site.desk.at(held, "b")
            await flower.knows_workers()
            shown = [text for _, text in [await flower.ask(path) for path in ("/broker", "/workers", "/api/workers")]]
            assert "subagents" in shown[0]
            shown += [json.dumps(await asyncio.to_thread(site.app.control.inspect().conf), default=str)]
            assert "broker_read_url" in shown[-1]
            processes = list(commands_of_all_processes())
            await site.desk.open(held, "b")
            assert (await site.settled(held)).status is Status.SUCCESS
            worker.process.send_signal(signal.SIGTERM)
            assert await worker.ends() == 0
    ours = [command for command in processes if b"redis-server" not in command]  # the test's own is started with it
    assert any(b"outrider.worker.main" in command for command in ours)
    for text in (*shown, *worker.lines, *map(bytes.decode, ours)):
        assert servers.PASSWORD not in text


@pytest.mark.parametrize("query", ["", "?ssl_check_hostname=true&ssl_cert_reqs=required"])
async def test_a_server_whose_certificate_is_not_known_is_refused(tls_redis, namespace, caplog, query):
    """By both clients: kombu's own default is to trust whoever answers."""
    caplog.set_level(logging.DEBUG)
    url = tls_redis.url.partition("?")[0] + query
    with pytest.raises(OutriderError, match="certificate verify failed") as error:
        async with Outrider(redis_url=url, namespace=namespace) as client:
            await client.list()
    app = make_app(Settings(redis_url=url, namespace=namespace))
    with pytest.raises(BrokerUnreachable, match="certificate verify failed") as refused:
        await asyncio.to_thread(ring, app, Bell(task_id="t", run_id="r", queue="subagents", label="label"))
    app.close()
    for text in (str(error.value), str(refused.value), caplog.text):
        assert servers.PASSWORD not in text
