"""What a grader can gather evidence with: the files of the task's tree, commands, and LangChain's tools by name."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, StructuredTool, tool

from ..shared.grader_config import FILES, Command
from ..shared.text import clean
from ..shared.trees import tree_namespace
from .loading import load

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..shared.filestore import RedisStore
    from ..shared.records import Task

PAGE = 20_000  #: characters of a file, or of a command's output, that a grader reads at once
LISTED = 200  #: files


def tools_for(wanted: Iterable[str | Command], task: Task, files: RedisStore, folder: Path) -> list[BaseTool]:
    """The tools by what `langgraph.json` says of them; `TypeError` where a name is no tool."""
    found: list[BaseTool] = []
    for one in wanted:
        if isinstance(one, Command):
            found.append(_command(one, task, folder))
        elif one == FILES:
            found += _files(task, files)
        else:
            found += _loaded(one, folder)
    return found


def _loaded(target: str, folder: Path) -> list[BaseTool]:
    named = load(target, folder)
    several = named if isinstance(named, list | tuple) else [named]
    return [one if isinstance(one, BaseTool) else _as_tool(one, target) for one in several]


def _as_tool(value: Any, target: str) -> BaseTool:
    if not callable(value):
        raise TypeError(f"{target} is a {type(value).__name__}, not a tool")
    made: BaseTool = tool(value)
    return made


def _files(task: Task, files: RedisStore) -> list[BaseTool]:
    namespace = tree_namespace(task.ancestors[0] if task.ancestors else task.task_id)

    async def list_files() -> str:
        entries = await files.aentries(namespace, LISTED)
        return "\n".join(f"{entry.key} ({entry.size} bytes)" for entry in entries) or "(there are no files)"

    async def read_file(path: str, offset: int = 0) -> str:
        item = await files.aget(namespace, path)
        if item is None:
            return f"there is no file {path}: see list_files"
        content = item.value.get("content", "")
        text = clean("\n".join(map(str, content)) if isinstance(content, list) else str(content))
        page = text[max(offset, 0) : max(offset, 0) + PAGE]
        rest = len(text) - max(offset, 0) - len(page)
        return f"{page}\n({rest} more characters: read on at offset {len(text) - rest})" if rest > 0 else page

    return [
        StructuredTool.from_function(
            coroutine=list_files, name="list_files", description="List the files of the work."
        ),
        StructuredTool.from_function(
            coroutine=read_file,
            name="read_file",
            description="Read a file of the work, from a character on.",
        ),
    ]


def _command(command: Command, task: Task, folder: Path) -> BaseTool:
    async def run() -> str:
        process = await asyncio.create_subprocess_exec(
            *command.command,
            cwd=folder / command.folder,
            env={**os.environ, "OUTRIDER_TASK_ID": task.task_id},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,  # its children too are ended with it
        )
        try:
            async with asyncio.timeout(command.timeout_seconds):
                output = await _last(process)
        except TimeoutError:
            return f"it did not end within {command.timeout_seconds:g} seconds, and was stopped"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.shield(process.wait())
        return f"exit code {process.returncode}\n{output}"

    return StructuredTool.from_function(coroutine=run, name=command.name, description=command.description)


async def _last(process: asyncio.subprocess.Process) -> str:
    """The end of what a process writes: a test suite tells there how it went. Returns when it has ended."""
    kept = b""
    if process.stdout is not None:
        while piece := await process.stdout.read(65_536):
            kept = (kept + piece)[-4 * PAGE :]
    await process.wait()
    text = clean(kept.decode(errors="replace"))
    return text if len(text) <= PAGE else f"(the last {PAGE} characters)\n{text[-PAGE:]}"
