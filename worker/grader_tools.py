"""The tools of graders: the files of the task's tree, commands, and LangChain's tools by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, StructuredTool, tool

from ..shared.grader_config import FILES, Command
from ..shared.text import clean
from ..shared.tree_files import tree_namespace
from .grader_commands import run_command
from .loading import load

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from ..shared.filestore import RedisStore
    from ..shared.records import Task

PAGE = 20_000  #: characters of a file that a grader reads at once
LISTED = 200  #: files


def tools_for(wanted: Iterable[str | Command], task: Task, files: RedisStore, folder: Path) -> list[BaseTool]:
    """The tools that `langgraph.json` names; `TypeError` where a name is no tool."""
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
    namespace = tree_namespace(task.root_id)

    async def list_files() -> str:
        entries = await files.aentries(namespace, LISTED + 1)
        lines = [f"{entry.key} ({entry.size} bytes)" for entry in entries[:LISTED]]
        more = [f"(there are more than these {LISTED} files)"] if len(entries) > LISTED else []
        return "\n".join([*lines, *more]) or "(there are no files)"

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
        return await run_command(command, folder, task.task_id)

    return StructuredTool.from_function(coroutine=run, name=command.name, description=command.description)
