"""Commands that graders run: what is told of them, and that nothing of them is left."""

import asyncio
import os
import signal

import pytest

from outrider.shared.grader_config import Command
from outrider.worker.grader_commands import LAST, run_command
from workers import until_gone


@pytest.fixture
def run(tmp_path):
    def run(*words, **fields):
        return run_command(Command(name="x", command=words, **fields), tmp_path, "t1")

    return run


async def test_its_exit_code_and_its_output_are_told(run, tmp_path):
    assert await run("sh", "-c", "echo out; echo err >&2; pwd; echo $OUTRIDER_TASK_ID; cat; exit 7") == (
        f"exit code 7\nout\nerr\n{tmp_path}\nt1\n"
    )


async def test_it_runs_in_its_folder(run, tmp_path):
    (tmp_path / "work").mkdir()
    assert await run("pwd", folder="work") == f"exit code 0\n{tmp_path / 'work'}\n"


async def test_of_a_long_output_the_end_is_told(run):
    told = await run("sh", "-c", "seq 100000; printf '\\377'")
    assert told.startswith(f"exit code 0\n(the last {LAST} characters)\n")
    assert told.endswith("\n99999\n100000\n\N{REPLACEMENT CHARACTER}")
    assert len(told) < LAST + 100


async def test_what_it_wrote_until_its_time_was_over_is_told(run):
    told = await run("sh", "-c", "yes", timeout_seconds=1)
    assert told.startswith(f"it did not end within 1 seconds, and was stopped\n(the last {LAST} characters)\n")


async def test_who_is_cancelled_leaves_nothing_of_it(run, tmp_path):
    os.mkfifo(tmp_path / "pids")
    running = asyncio.create_task(run("sh", "-c", "trap '' TERM; sleep 60 & echo $$ $! > pids; wait"))
    pids = (await asyncio.to_thread((tmp_path / "pids").read_text)).split()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    for pid in pids:
        until_gone(pid)


@pytest.mark.parametrize("name", ["no-such-program", "./no-such-program", "/no-such-program"])
async def test_one_that_is_not_there_is_an_error(run, name):
    with pytest.raises(FileNotFoundError, match=f"no such program.*{name}"):
        await run(name)


async def test_a_program_of_its_folder_runs_there(run, tmp_path):
    (tmp_path / "work").mkdir()
    program = tmp_path / "work" / "program"
    program.write_text("#!/bin/sh\necho $0 $1\n")
    program.chmod(0o755)
    assert await run("./program", "it's", folder="work") == f"exit code 0\n{program} it's\n"


async def test_one_that_a_signal_ended_is_told_as_a_shell_would(run):
    assert await run("sh", "-c", "kill -KILL $$") == "exit code 137\n"


async def test_it_may_be_ended_by_the_signals_that_python_ignores(run):
    ignored = int((await run("grep", "SigIgn", "/proc/self/status")).split()[-1], 16)
    assert not any(ignored >> number - 1 & 1 for number in (signal.SIGPIPE, signal.SIGXFSZ))
