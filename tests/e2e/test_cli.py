"""The command line as people use it: processes, a real Redis, a real worker."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

AGENTS = """
import asyncio
from typing import TypedDict

from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import interrupt

from outrider import progress


def graph(node, state=MessagesState):
    return StateGraph(state).add_node("work", node).add_edge(START, "work")


def echo_node(state):
    progress(1, 2, "half")
    return {"messages": [AIMessage(f"echo: {state['messages'][-1].text}")]}


def fail_node(state):
    raise ValueError("no such luck")


def ask_node(state):
    return {"messages": [AIMessage(interrupt({"ask": "which?"}))]}


async def hang_node(state):
    await asyncio.Event().wait()


class Sum(TypedDict):
    question: str
    numbers: list[int]
    total: int


def sum_node(state):
    return {"total": sum(state["numbers"])}


echo, fail, ask, hang, add = (
    graph(echo_node), graph(fail_node), graph(ask_node), graph(hang_node), graph(sum_node, Sum)
)
"""
NAMES = ("echo", "fail", "ask", "hang", "add")
CLI = (sys.executable, "-c", "from outrider.orchestrator.cli.main import main; main()")


@pytest.fixture(scope="module")
def env(redis_server, tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents")
    (folder / "agents.py").write_text(AGENTS)
    config = {
        "graphs": {name: f"./agents.py:{name}" for name in NAMES},
        "outrider": {"agents": {"add": {"input": "question"}}},
    }
    (folder / "langgraph.json").write_text(json.dumps(config))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OUTRIDER_", "CELERY_"))}
    return kept | {
        "OUTRIDER_REDIS_URL": redis_server.url,
        "OUTRIDER_NAMESPACE": f"e2e-{os.getpid()}",
        "OUTRIDER_CONFIG": str(folder / "langgraph.json"),
        "OUTRIDER_GRACE_SECONDS": "5",
    }


@pytest.fixture(scope="module")
def outrider(env):
    def run(*arguments, **options):
        done = subprocess.run(
            [*CLI, *arguments], env=env | options, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture(scope="module")
def worker(env, tmp_path_factory):
    log = tmp_path_factory.mktemp("worker") / "log"
    with log.open("wb") as out:
        process = subprocess.Popen([*CLI, "worker", "-c", "8"], env=env, stdout=out, stderr=out)
    yield process
    process.terminate()
    assert process.wait(30) == 0, log.read_text()


pytestmark = pytest.mark.usefixtures("worker")


def submit(outrider, *arguments):
    done = outrider("submit", *arguments, "--json")
    return done.returncode, json.loads(done.stdout)


def test_a_task_from_submit_to_its_transcript(outrider):
    done = outrider("submit", "echo", "Hello.", "--wait")
    task_id, result = done.stdout.splitlines()
    assert (done.returncode, result, done.stderr) == (0, "echo: Hello.", "")
    shown = json.loads(outrider("show", task_id, "--transcript", "--json").stdout)
    assert [message["data"]["content"] for message in shown["messages"]] == ["Hello.", "echo: Hello."]
    assert [run["status"] for run in shown["runs"]] == ["success"]
    followed = [json.loads(line) for line in outrider("follow", task_id, "--json").stdout.splitlines()]
    kinds = [event["type"] for event in followed]
    assert (kinds[0], kinds[-1]) == ("task.submitted", "task.settled")
    assert {"run.claimed", "progress", "step"} <= set(kinds)


def test_state_reaches_an_agent_without_messages(outrider):
    code, task = submit(outrider, "add", "Add them.", "--state", '{"numbers": [1, 2, 3]}', "--wait")
    assert (code, task["result"]["total"]) == (0, 6)
    refused = outrider("submit", "add", "Add them.", "--state", '{"numbrs": [1]}')
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "has no key 'numbrs'" in refused.stderr


def test_a_question_is_shown_answered_and_followed_to_the_end(outrider, env):
    asked = outrider("submit", "ask", "text", "--wait")
    task_id = asked.stdout.splitlines()[0]
    assert '"ask": "which?"' in asked.stdout
    command = f"outrider answer {task_id} VALUE"
    assert (asked.returncode, asked.stderr) == (4, f"outrider: task {task_id} waits for a person: {command}\n")
    assert f"answer\t{command}" in outrider("show", task_id).stdout
    with subprocess.Popen([*CLI, "follow", task_id], env=env, stdout=subprocess.PIPE, text=True) as following:
        for line in following.stdout:
            if line.startswith("answer it: "):
                break
        done = outrider("answer", task_id, "the first", "--wait", "--json")
        shown = json.loads(done.stdout)
        assert (done.returncode, shown["status"], shown["result"]) == (0, "success", "the first")
        assert following.stdout.read().endswith("\nthe first\n")
    assert following.returncode == 0
    assert [run["ended_as"] for run in shown["runs"]] == ["paused", "finished"]
    again = outrider("answer", task_id, "the second")
    assert (again.returncode, again.stdout) == (2, "")
    assert again.stderr == f"outrider: task {task_id} is success: it asks nothing (see `outrider show {task_id}`)\n"


def test_the_exit_codes_of_endings(outrider):
    code, task = submit(outrider, "fail", "text", "--wait")
    assert (code, task["status"], task["error"]) == (1, "error", {"type": "ValueError", "message": "no such luck"})
    code, task = submit(outrider, "ask", "text", "--wait")
    assert (code, task["status"], task["interrupts"][0]["value"]) == (4, "waiting", {"ask": "which?"})
    code, task = submit(outrider, "hang", "text", "--wait-timeout", "0.2s")
    assert (code, task["status"] in {"pending", "running"}) == (5, True)
    done = outrider("cancel", task["task_id"], "--json")
    assert json.loads(done.stdout)[0]["outcome"] == "cancelled"
    followed = outrider("follow", task["task_id"])
    assert followed.returncode == 1
    assert "ended as cancelled" in followed.stderr


def test_ctrl_c_detaches_and_the_task_goes_on(outrider, env):
    _, task = submit(outrider, "hang", "text")
    with subprocess.Popen(
        [*CLI, "follow", task["task_id"]], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as following:
        assert any("running" in line for line in following.stdout)
        following.send_signal(signal.SIGINT)
        _, said = following.communicate()
    assert (following.returncode, "goes on" in said, "Traceback" in said) == (0, True, False)
    assert json.loads(outrider("show", task["task_id"], "--json").stdout)["status"] == "running"
    with subprocess.Popen(
        [*CLI, "submit", "hang", "text", "--wait"], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as waiting:
        other = waiting.stdout.readline().strip()
        waiting.send_signal(signal.SIGINT)
        _, said = waiting.communicate()
    assert (waiting.returncode, said.count("\n")) == (130, 1)
    assert outrider("cancel", task["task_id"], other).returncode == 0


def test_a_reader_that_has_enough_is_no_error(outrider, env):
    submit(outrider, "echo", "text", "--wait")
    for verb in (["list"], ["list", "--json"]):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([*CLI, *verb], env=env, stdout=write, stderr=subprocess.PIPE, check=False)
        os.close(write)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("arguments", [("list",), ("follow", "x"), ("submit", "echo", "text", "--wait")])
def test_redis_out_of_reach_is_exit_3(arguments, outrider):
    done = outrider(*arguments, OUTRIDER_REDIS_URL="redis://:hunter2@127.0.0.1:1/0")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("outrider: cannot reach Redis at redis://:***@127.0.0.1:1/0: ")
    assert done.stderr.count("\n") == 1


def test_the_worker_is_the_process_itself(env, redis_server, tmp_path):
    """Its pid takes the signals."""
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            [*CLI, "worker", "-Q", "mine", "-c", "2"], env=env | {"OUTRIDER_NAMESPACE": "own"}, stdout=log, stderr=log
        )
    with subprocess.Popen(
        [*CLI, "submit", "echo", "x", "--queue", "mine", "--wait", "--json"],
        env=env | {"OUTRIDER_NAMESPACE": "own"},
        stdout=subprocess.PIPE,
    ) as submitting:
        task = json.loads(submitting.communicate()[0])
    assert task["status"] == "success"
    if Path("/proc").is_dir():
        assert b"celery" in Path(f"/proc/{process.pid}/cmdline").read_bytes()
    process.terminate()
    assert process.wait(30) == 0
