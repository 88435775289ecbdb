"""`docker-compose.yml` without Docker: each service's very command, environment and health check, as processes here."""

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

import servers
from flowers import CLI
from outrider import Outrider
from outrider.examples.research.questions import QUESTIONS
from outrider.orchestrator.embedded import find_server
from outrider.shared.settings import Settings

ROOT = Path(__file__).parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
LOGIN = "ada:secret"
PING = "import redis, sys; sys.exit(not redis.Redis(port=int(sys.argv[1])).ping())"
PAUSE_SECONDS = 0.1  # between two health checks: a process tells nobody when it is up


def interpolate(text, given):
    """What compose makes of `${NAME}`, `${NAME:-default}` and `${NAME:?message}`."""

    def value(found):
        name, how, rest = found[1], found[2], found[3]
        if name in given:
            return given[name]
        if how == ":-":
            return rest
        raise LookupError(f"{name}: {rest}")

    return re.sub(r"\$\{(\w+)(:[-?])?([^}]*)\}", value, text)


class Host(servers.Server):
    """This machine in the place of the containers: what a container is given is translated to what is here."""

    def __init__(self, folder):
        super().__init__(folder)
        self.redis_port, self.flower_port = servers.free_ports(2)

    def here(self, text, service):
        text = interpolate(text, {"FLOWER_BASIC_AUTH": LOGIN})
        for volume in service.get("volumes", ()):
            source, target = interpolate(volume, {}).split(":")[:2]
            if source.startswith("."):
                text = re.sub(rf"^{target}(?=/|$)", str((ROOT / source).resolve()), text)
        text = text.replace("redis://redis:6379", f"redis://127.0.0.1:{self.redis_port}")
        return text.replace("127.0.0.1:5555", f"127.0.0.1:{self.flower_port}").replace("0.0.0.0", "127.0.0.1")  # noqa: S104 is replaced

    def environment(self, service):
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("OUTRIDER_", "FLOWER_"))}
        return ours | {name: self.here(value, service) for name, value in service.get("environment", {}).items()}

    def up(self, name):
        """Start a service once, and wait until its health check finds it well."""
        service = SERVICES[name]
        words = [self.here(word, service) for word in service["command"]]
        if words[0] == "redis-server":
            words = [find_server(), *words[1:], "--port", self.redis_port, "--bind", "127.0.0.1", "--dir", self.folder]
        else:
            assert json.loads(re.search(r"^ENTRYPOINT (.*)$", DOCKERFILE, re.MULTILINE)[1]) == ["outrider"]
            words = [*CLI, *words, *(("--port", self.flower_port) if name == "flower" else ())]
        program = self.start(*words, **self.environment(service))
        assert self.answers(program, lambda: self.check(service)), self.output()
        return program

    def check(self, service):
        kind, *words = service["healthcheck"]["test"]
        words = words if kind == "CMD" else shlex.split(words[0].partition("|")[0])
        words = [self.here(word, service) for word in words]
        if words == ["redis-cli", "ping"]:
            words = ["python", "-c", PING, str(self.redis_port)]
        assert words[0] == "python"
        done = subprocess.run(
            [sys.executable, *words[1:]], env=self.environment(service), capture_output=True, check=False, timeout=60
        )
        if done.returncode:
            raise ConnectionError(done.stderr.decode())

    def output(self):
        return (self.folder / "output.log").read_text(errors="replace")


@pytest.mark.slow
@pytest.mark.timeout(300)  # a lost run is found when its lease of 30 s runs out
async def test_the_services_do_the_demos_tasks_though_one_is_killed(tmp_path):
    with ExitStack() as stack:
        host = stack.enter_context(Host(tmp_path))
        host.up("redis")
        workers = [host.up("worker") for _ in range(2)]
        for name in ("grader", "flower"):
            host.up(name)
        environment = host.environment(SERVICES["worker"])
        settings = Settings(
            redis_url=environment["OUTRIDER_REDIS_URL"], namespace="outrider", config=environment["OUTRIDER_CONFIG"]
        )
        async with Outrider(settings) as client:
            tasks = [await client.submit("lead", question) for question in QUESTIONS]
            while not (killed := await kill_one_at_work(client, workers)):
                tasks.append(await client.submit("lead", QUESTIONS[0]))
            ended = [await client.wait(task.task_id) for task in tasks]
            children = [child for task in tasks for child in (await client.list(parent=task.task_id)).tasks]
            assert Counter(task.status for task in ended) == {"success": len(tasks)}, host.output()
            assert Counter(child.status for child in children) == {"success": len(children)}
            assert children
            assert found_again(killed, [await client.get(task.task_id) for task in [*tasks, *children]])
            assert any("[" in str(task.result) for task in ended), "an answer has citations"
        output = host.output()
    assert LOGIN not in output
    for question in QUESTIONS:
        assert question not in output


def found_again(lost, tasks):
    """Whether the runs that a worker took with it were begun again."""
    return all(run.attempt for task in tasks for run in task.runs if run.run_id in lost)


async def kill_one_at_work(client, workers):
    """Kill -9 a worker that holds runs, and give these: it is stopped first, so that they cannot end meanwhile.

    None where all had ended before.
    """
    while (await client.list(status=["pending", "running"])).tasks:
        for worker in workers:
            worker.send_signal(signal.SIGSTOP)
            for task in (await client.list(status=["running"], limit=1000)).tasks:
                runs = (await client.get(task.task_id)).runs
                if any(
                    str(run.worker).startswith(f"outrider-{worker.pid}@") and run.status == "running" for run in runs
                ):
                    worker.kill()
                    return [run.run_id for run in runs if run.status == "running"]
            worker.send_signal(signal.SIGCONT)
            await asyncio.sleep(PAUSE_SECONDS)
    return []


def seconds(text):
    return float(text.removesuffix("s"))


def test_a_container_is_given_more_time_than_its_worker_takes():
    for name in ("worker", "grader"):
        assert seconds(SERVICES[name]["stop_grace_period"]) > Settings.model_fields["grace_seconds"].default


def test_a_worker_can_be_scaled():
    assert not {"container_name", "ports", "hostname", "deploy"} & set(SERVICES["worker"])


def test_one_image_serves_all():
    ours = {name: service for name, service in SERVICES.items() if name != "redis"}
    assert set(ours) == {"worker", "grader", "flower"}
    for service in ours.values():
        assert (service["image"], service["build"]["dockerfile"]) == ("outrider", "deploy/Dockerfile")
        assert service["depends_on"]["redis"]["condition"] == "service_healthy"
        assert (service["cap_drop"], service["init"]) == (["ALL"], True)
        assert service["healthcheck"]["test"]


def test_flower_asks_who_one_is_and_no_password_stands_in_the_file():
    with pytest.raises(LookupError, match="FLOWER_BASIC_AUTH"):
        interpolate(SERVICES["flower"]["environment"]["FLOWER_BASIC_AUTH"], {})
    for service in SERVICES.values():
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
