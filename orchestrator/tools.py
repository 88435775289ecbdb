"""The parents' tools: start, check, cancel and list background tasks, with answers that a model can act on."""

from __future__ import annotations

import html
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field

from ..shared.context import running
from ..shared.errors import ClaimLost, OutriderError
from ..shared.notifications import report
from ..shared.text import one_line
from .client import Outrider

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ..shared.context import Running
    from ..shared.records import Task

LISTED = 100  #: tasks that the list shows; more are said to be more
TITLE_LENGTH = 80

TaskId = Annotated[str, Field(description="The task id as start_async_task returned it.")]
Filter = Literal["running", "pending", "waiting", "success", "error", "timeout", "cancelled", "all"]


class AsyncTask(TypedDict):
    """A task as the parent's state keeps it, in the shape that deepagents uses."""

    task_id: str
    agent_name: str
    thread_id: str  #: the same as `task_id`
    run_id: str
    status: str
    created_at: str
    last_checked_at: str
    last_updated_at: str


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)

    runtime: ToolRuntime[Any, Any]


class Start(_Arguments):
    """Arguments of `start_async_task`."""

    description: str = Field(description="All that the subagent needs to know: it sees nothing of this conversation.")
    subagent_type: str = Field(description="The name of the subagent to start.")


class OneTask(_Arguments):
    """Arguments of tools that are about one task."""

    task_id: TaskId


class Check(OneTask):
    """Arguments of `check_async_task`."""

    offset: int = Field(default=0, ge=0, description="The character of its result to begin with, to read on.")


class List(_Arguments):
    """Arguments of `list_async_tasks`."""

    status_filter: Filter | None = Field(default=None, description="Only tasks of this status; all where left out.")


def background_tools(subagents: Mapping[str, str]) -> list[BaseTool]:
    """The tools of a parent that may start these subagents."""

    async def start(description: str, subagent_type: str, runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        if subagent_type not in subagents:
            raise ToolException(f"there is no subagent {subagent_type!r}: use one of {', '.join(subagents)}")
        client, parent = _client(), _run()
        call_id = runtime.tool_call_id
        submitted = await client.submit(
            subagent_type,
            description,
            context=parent.context,
            configurable=parent.configurable,
            # A step that runs again after a crash finds the task that it started before.
            idempotency_key=f"{_task_id()}:{call_id}",
        )
        task = await client.get(submitted.task_id)
        text = f"Started task {task.task_id} ({subagent_type}). You will be told when it has ended."
        return _told(call_id, text, {task.task_id: _entry(task)})

    async def check(task_id: str, runtime: ToolRuntime[Any, Any], offset: int = 0) -> Command[Any]:
        task = await _own(task_id)
        return _told(runtime.tool_call_id, report(task, offset), {task.task_id: _entry(task)})

    async def cancel(task_id: str, runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        await _own(task_id)
        answer = await _client().cancel(task_id)
        task = await _client().get(task_id)
        already = f"Task {task_id} had already ended: {answer.status.value}. Nothing was changed."
        text = f"Task {task_id} is cancelled." if answer.outcome == "cancelled" else already
        return _told(runtime.tool_call_id, text, {task_id: _entry(task)})

    async def list_tasks(runtime: ToolRuntime[Any, Any], status_filter: Filter | None = None) -> Command[Any]:
        wanted = () if status_filter in {None, "all"} else (status_filter,)
        page = await _client().list(parent=_task_id(), status=wanted, limit=LISTED)
        lines = [f"- {task.task_id} {task.agent} {task.status.value} {_title(task)}" for task in page.tasks]
        nothing = "No task was started." if not wanted else f"No task is {status_filter}."
        if page.more:
            lines.append(f"(only the {LISTED} newest are shown)")
        known = runtime.state.get("async_tasks") or {}
        tasks = {task.task_id: _entry(task, known.get(task.task_id)) for task in page.tasks}
        return _told(runtime.tool_call_id, "\n".join(lines) or nothing, tasks)

    agents = "\n".join(f"- {name}: {text}" for name, text in subagents.items())
    return [
        _tool(start, "start_async_task", f"Start a subagent in the background and return at once.\n\n{agents}", Start),
        _tool(check, "check_async_task", "Read what a background task is at, and its whole result or error.", Check),
        _tool(cancel, "cancel_async_task", "End a background task, and all that it started, now.", OneTask),
        _tool(list_tasks, "list_async_tasks", "List the background tasks that you started, newest first.", List),
    ]


def _tool(
    call: Callable[..., Awaitable[Any]], name: str, description: str, arguments: type[BaseModel]
) -> StructuredTool:
    async def guarded(**given: Any) -> Any:
        try:
            return await call(**given)
        except ClaimLost:
            raise  # this run was replaced: nothing of it goes on
        except OutriderError as error:
            raise ToolException(str(error)) from error

    return StructuredTool.from_function(
        coroutine=guarded,
        name=name,
        description=description,
        args_schema=arguments,
        infer_schema=False,
        handle_tool_error=True,
    )


def _run() -> Running:
    run = running.get()
    if run is None:
        raise ToolException("background tasks work only in an outrider worker: submit this agent as a task")
    return run


def _client() -> Outrider:
    return Outrider.inside(_run())


def _task_id() -> str:
    return _run().claim.task_id


async def _own(task_id: str) -> Task:
    """The task, where it descends from the running one; else an error that a model can act on."""
    task = await _client().get(task_id)
    if _task_id() not in task.ancestors:
        raise ToolException(f"task {task_id} is not one of yours: list_async_tasks shows those that are")
    return task


def _title(task: Task) -> str:
    return html.escape(one_line(task.title, TITLE_LENGTH), quote=False)


def _entry(task: Task, known: AsyncTask | None = None) -> AsyncTask:
    """What the parent's state keeps of a task; of one that was read without its runs, the last run that is known."""
    shown = task.to_json()
    last_run_id = task.runs[-1].run_id if task.runs else known["run_id"] if known else ""
    return AsyncTask(
        task_id=task.task_id,
        agent_name=task.agent,
        thread_id=task.task_id,
        run_id=task.run_id or last_run_id,
        status=task.status.value,
        created_at=shown["created_at"],
        last_checked_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        last_updated_at=shown["updated_at"],
    )


def _told(call_id: str | None, text: str, tasks: Mapping[str, AsyncTask]) -> Command[Any]:
    return Command(update={"messages": [ToolMessage(text, tool_call_id=call_id)], "async_tasks": dict(tasks)})
