"""`outrider dev` as a person runs it: everything up, found by other commands, stopped in order, nothing left."""

import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from redis import Redis

from flowers import CLI
from outrider.shared.devfile import DevFolder

AGENTS = """
import asyncio
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

def echo_node(state):
    return {"messages": [AIMessage("heard " + state["messages"][-1].text)]}

async def hang_node(state):
    await asyncio.Event().wait()

def stuck_node(state):
    import time
    time.sleep(600)

def graph(node):
    return StateGraph(MessagesState).add_node("node", node).add_edge(START, "node").compile()

echo, hang, stuck = graph(echo_node), graph(hang_node), graph(stuck_node)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "agents.py").write_text(AGENTS)
    graphs = {name: f"./agents.py:{name}" for name in ("echo", "hang", "stuck")}
    (tmp_path / "langgraph.json").write_text(json.dumps({"graphs": graphs}))
    return tmp_path


def outrider(folder, *args):
    """A command in the folder, with nothing set."""
    return subprocess.run([*CLI, *args], cwd=folder, capture_output=True, text=True, check=False, timeout=60)


#: Runs a command on a terminal of its own; what comes on stdin is typed there.
TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


class DevProcess:
    """`outrider dev` in a session of its own, its lines read."""

    def __init__(self, folder, *, terminal=False, **env):
        self.lines, self._more = [], threading.Condition()
        self._process = subprocess.Popen(
            [*((sys.executable, "-c", TERMINAL) if terminal else ()), *CLI, "dev"],
            cwd=folder,
            env=os.environ | env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            with self._more:
                self.lines.append(line.rstrip("\n"))
                self._more.notify_all()

    def says(self, text):
        """Return the line, once it was said."""
        with self._more:
            self._more.wait_for(lambda: any(text in line for line in self.lines) or not self._reader.is_alive(), 60)
            return next((line for line in self.lines if text in line), None) or pytest.fail("\n".join(self.lines))

    def up(self):
        """What it tells other commands, once all is up."""
        self.says("ready in")
        return self

    def children(self):
        """Ids of the processes that it started."""
        return [int(pid) for pid in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()]

    def send(self, number):
        self._process.send_signal(number)

    def type(self, text):
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def ends(self):
        code = self._process.wait(60)
        self._reader.join()
        self._process.stdin.close()
        self._process.stdout.close()
        return code


@contextmanager
def dev(folder, *, terminal=False, **env):
    process = DevProcess(folder, terminal=terminal, **env)
    try:
        yield process
    finally:
        if process._process.poll() is None:
            process.send(signal.SIGKILL)
            process.ends()


def gone(pidfds):
    """Return once all of these processes have ended."""
    for pidfd in pidfds:
        assert select.select([pidfd], [], [], 30)[0]
        os.close(pidfd)


def told(folder):
    return json.loads((folder / ".outrider" / "dev.json").read_text())


def at_work(folder, task_id):
    """Return when a worker has claimed the task."""
    with Redis.from_url(told(folder)["redis_url"], decode_responses=True) as redis:
        while redis.hget(f"{{outrider}}:task:{task_id}", "status") != "running":
            redis.xread({f"{{outrider}}:events:{task_id}": "$"}, block=100)


def test_all_is_up_found_stopped_and_there_again(folder):
    with dev(folder) as server:
        server.up()
        known = told(folder)
        assert (known["pid"], known["namespace"]) == (server.pid, "outrider")
        assert (folder / ".outrider" / "dev.json").stat().st_mode & 0o777 == 0o600
        with urllib.request.urlopen(known["flower_url"]) as page:  # noqa: S310 loopback
            assert page.status == 200
        done = outrider(folder, "submit", "echo", "hello", "--wait")
        assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "heard hello"), done.stderr
        task_id = done.stdout.split()[0]
        doctor = outrider(folder, "doctor", "--json")
        assert doctor.returncode == 0
        (worker,) = json.loads(doctor.stdout)["facts"]["workers"]
        (run,) = json.loads(outrider(folder, "show", task_id, "--json").stdout)["runs"]
        assert run["worker"] == worker["name"]

        second = outrider(folder, "dev")
        assert second.returncode == 2
        assert f"process {server.pid}" in second.stderr
        assert len(second.stderr.splitlines()) == 1

        pidfds = [os.pidfd_open(pid) for pid in server.children()]
        assert len(pidfds) == 3
        server.send(signal.SIGINT)
        assert server.ends() == 0
        gone(pidfds)
    assert not (folder / ".outrider" / "dev.json").exists()
    assert all(re.match(r"(dev   |worker|flower) \|", line) for line in server.lines)
    assert outrider(folder, "show", task_id).returncode == 3
    with dev(folder) as server:
        server.up()
        assert told(folder)["redis_url"] == known["redis_url"]  # whoever followed it finds it again
        assert outrider(folder, "show", task_id, "--result").stdout == "heard hello\n"
        server.send(signal.SIGTERM)
        assert server.ends() == 0


def test_what_is_at_work_when_it_stops_goes_on_at_the_next_start(folder):
    with dev(folder, OUTRIDER_GRACE_SECONDS="1") as server:
        server.up()
        task_id = outrider(folder, "submit", "hang", "x").stdout.strip()
        at_work(folder, task_id)
        server.send(signal.SIGINT)
        assert server.ends() == 0
    with dev(folder, OUTRIDER_GRACE_SECONDS="1") as server:
        server.up()
        assert json.loads(outrider(folder, "show", task_id, "--json").stdout)["status"] in {"pending", "running"}
        assert outrider(folder, "cancel", task_id).returncode == 0
        server.send(signal.SIGINT)
        assert server.ends() == 0


def test_a_second_ctrl_c_ends_all_at_once(folder):
    """An agent's sync code cannot be stopped: the worker would wait for it until its grace is over."""
    with dev(folder, OUTRIDER_GRACE_SECONDS="600") as server:
        server.up()
        task_id = outrider(folder, "submit", "stuck", "x").stdout.strip()
        at_work(folder, task_id)
        pidfds = [os.pidfd_open(pid) for pid in server.children()]
        server.send(signal.SIGINT)
        server.says("worker.drains")
        server.send(signal.SIGINT)
        assert server.ends() == 130
        gone(pidfds)


@pytest.mark.parametrize("colour", [True, False])
def test_ctrl_c_in_a_terminal_reaches_dev_alone(folder, colour):
    """A worker that it reached too would take what `dev` sends for a second signal, and leave what it has."""
    with dev(folder, terminal=True, TERM="xterm", NO_COLOR="" if colour else "1") as server:
        server.up()
        server.type("\x03")
        assert server.ends() == 0
    assert server.says("worker.drains").startswith("\x1b[36mworker |\x1b[0m " if colour else "worker | ")
    assert not any("worker.leaves" in line for line in server.lines)


@pytest.mark.parametrize("name", ["worker", "flower", "redis"])
def test_a_program_that_ends_by_itself_is_named_and_ends_all(folder, name):
    with dev(folder) as server:
        server.up()
        pids = server.children()
        pidfds = [os.pidfd_open(pid) for pid in pids]
        os.kill(next(pid for pid in pids if _is(pid, name)), signal.SIGKILL)
        assert server.ends() == 1
        assert f"{name} has ended by itself, by SIGKILL" in server.says("by itself")
        gone(pidfds)


def _is(pid, name):
    command = Path(f"/proc/{pid}/cmdline").read_text()
    return {"worker": "outrider.worker", "flower": "flower", "redis": "redis-server"}[name] in command


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ties a process to its parent's life")
def test_nothing_is_left_of_one_that_was_killed(folder):
    with dev(folder) as server:
        server.up()
        pidfds = [os.pidfd_open(pid) for pid in server.children()]
        server.send(signal.SIGKILL)
        server.ends()
        gone(pidfds)
    # Its file is still there, and nobody takes it for one that lives.
    assert told(folder)["pid"] == server.pid
    assert DevFolder(folder).live() is None
    assert outrider(folder, "list").returncode == 3
    with dev(folder) as server:
        server.up()
        server.send(signal.SIGINT)
        assert server.ends() == 0


@pytest.fixture
def _taken_port():
    """Hold that someone else has Flower's usual port."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):  # somebody has it: as good
            other.bind(("127.0.0.1", 5555))
            other.listen()
        yield


@pytest.mark.usefixtures("_taken_port")
def test_a_redis_that_is_named_is_used_and_a_port_that_is_taken_is_not(folder, redis_url, namespace):
    with dev(folder, OUTRIDER_REDIS_URL=redis_url, OUTRIDER_NAMESPACE=namespace) as server:
        server.up()
        assert (told(folder)["redis_url"], told(folder)["namespace"]) == (redis_url, namespace)
        assert not told(folder)["flower_url"].endswith(":5555")
        assert len(server.children()) == 2
        # The namespace is found too.
        assert outrider(folder, "submit", "echo", "hello", "--wait").returncode == 0
        server.send(signal.SIGINT)
        assert server.ends() == 0
    with Redis.from_url(redis_url) as redis:
        assert redis.ping()
    assert not (folder / ".outrider" / "appendonlydir").exists()


@pytest.mark.parametrize("text", [None, "{", '{"graphs": {}}'])
def test_a_bad_configuration_is_told_before_anything_starts(tmp_path, text):
    if text is not None:
        (tmp_path / "langgraph.json").write_text(text)
    ended = outrider(tmp_path, "dev")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "langgraph.json" in ended.stderr
    assert not (tmp_path / ".outrider").exists()


def test_a_named_redis_out_of_reach_is_told_before_anything_starts(folder, monkeypatch):
    monkeypatch.setenv("REDIS_URL", "redis://127.0.0.1:1/0")
    ended = outrider(folder, "dev")
    assert (ended.returncode, ended.stdout) == (3, "")
    assert not (folder / ".outrider").exists()
