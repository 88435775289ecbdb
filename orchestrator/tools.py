"""The parents' tools: start, check, update, cancel and list background tasks, with answers that a model can act on."""

from __future__ import annotations

import html
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool, ToolException
from langgraph.types import Command
from pydantic import BaseModel, ConfigDict, Field

from ..shared.errors import ClaimLost, OutriderError, UnknownTask
from ..shared.ids import is_id, shorten
from ..shared.notifications import FOR_A_PERSON, report
from ..shared.on_loop import await_on, wait_on
from ..shared.snapshots import Snapshot
from ..shared.statuses import Status, Strategy
from ..shared.text import one_line
from .home import home
from .submit import FORK, Asked

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from ..shared.records import Task
    from .home import Home
    from .subagents import Subagent
    from .updating import Updated

LISTED = 100  #: tasks that the list shows; more are said to be more
TITLE_LENGTH = 80
TOLD = "You will be told when it has ended."
NOT_TOLD = "You are not told when it has ended: read its result with check_async_task."
NOT_FOR_FORKS = "You are a subagent that began with this conversation, and cannot start tasks: do the work yourself."

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

    description: str = Field(description="All that the subagent needs to know.")
    subagent_type: str = Field(description="The name of the subagent to start.")


class OneTask(_Arguments):
    """Arguments of tools that are about one task."""

    task_id: TaskId


class Check(OneTask):
    """Arguments of `check_async_task`."""

    offset: int = Field(default=0, ge=0, description="The character of its result to begin with, to read on.")


class Update(OneTask):
    """Arguments of `update_async_task`."""

    message: str = Field(description="What it is told: it still has all that it did and read before.")


class List(_Arguments):
    """Arguments of `list_async_tasks`."""

    status_filter: Filter | None = Field(default=None, description="Only tasks of this status; all where left out.")


def background_tools(subagents: Mapping[str, Subagent]) -> list[BaseTool]:
    """The tools of a parent that may start these subagents."""

    def start(
        description: str, subagent_type: str, runtime: ToolRuntime[Any, Any]
    ) -> Coroutine[Any, Any, Command[Any]]:
        subagent, at = subagents.get(subagent_type), home()
        if subagent is None:
            raise ToolException(
                f"there is no subagent {shorten(repr(subagent_type))}: use one of {', '.join(subagents)}"
            )
        if at.parent and at.parent.mode == FORK and not at.parent.limits.max_children:
            raise ToolException(NOT_FOR_FORKS)
        # At once: whatever goes on beside this call, the child begins with what its parent read when it called.
        snapshot = Snapshot.of(runtime.state) if subagent.mode == FORK else None
        return _start(at, subagent, description, runtime, snapshot)

    async def check(task_id: str, runtime: ToolRuntime[Any, Any], offset: int = 0) -> Command[Any]:
        task = await _own(home(), task_id, runtime)
        return _told(runtime, report(task, offset), {task.task_id: _entry(task)})

    async def update(task_id: str, message: str, runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        at = home()
        task = await _own(at, task_id, runtime)
        subagent = subagents.get(task.agent)
        strategy = subagent.update_strategy if subagent else Strategy.INTERRUPT
        # A step that runs again after a crash gives the message once.
        updated = await at.client.update_once(task_id, message, strategy, key=_key(at, runtime))
        task = await at.client.get(task_id)
        return _told(runtime, _what_became_of(updated, task, _parent_id(at, runtime)), {task_id: _entry(task)})

    async def cancel(task_id: str, runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        at = home()
        await _own(at, task_id, runtime)
        answer = await at.client.cancel_by(_parent_id(at, runtime), task_id)
        task = await at.client.get(task_id)
        already = f"Task {task_id} had already ended: {answer.status.value}. Nothing was changed."
        text = f"Task {task_id} is cancelled." if answer.outcome == "cancelled" else already
        return _told(runtime, text, {task_id: _entry(task)})

    async def list_tasks(runtime: ToolRuntime[Any, Any], status_filter: Filter | None = None) -> Command[Any]:
        wanted = None if status_filter == "all" else status_filter
        tasks, more = await _listed(home(), wanted, runtime)
        lines = [f"- {task.task_id} {task.agent} {task.status.value} {_title(task)}" for task in tasks]
        nothing = "No task was started." if wanted is None else f"No task is {wanted}."
        if any(task.status is Status.WAITING for task in tasks):
            lines.append(f"(what is waiting: {FOR_A_PERSON})")
        if more:
            lines.append(f"(only the {LISTED} newest are shown)")
        known = _known(runtime)
        told = {task.task_id: _entry(task, known.get(task.task_id)) for task in tasks}
        return _told(runtime, "\n".join(lines) or nothing, told)

    agents = "\n".join(subagent.line for subagent in subagents.values())
    return [
        _tool(start, "start_async_task", f"Start a subagent in the background and return at once.\n\n{agents}", Start),
        _tool(check, "check_async_task", "Read what a background task is at, and its whole result or error.", Check),
        _tool(update, "update_async_task", "Give a background task a message, also one that has ended.", Update),
        _tool(cancel, "cancel_async_task", "End a background task, and all that it started, now.", OneTask),
        _tool(list_tasks, "list_async_tasks", "List the background tasks that you started, newest first.", List),
    ]


async def _start(
    at: Home, subagent: Subagent, description: str, runtime: ToolRuntime[Any, Any], snapshot: Snapshot | None
) -> Command[Any]:
    asked = Asked(
        subagent.name,
        description,
        context=at.context,
        configurable=at.configurable,
        # A step that runs again after a crash finds the task that it started before.
        idempotency_key=_key(at, runtime),
        notify_parent=subagent.notify_parent,
        mode=subagent.mode,
        webhook=subagent.webhook,
    )
    parent_id = _parent_id(at, runtime)
    if at.parent is None and parent_id is not None:
        await at.client.register(task_id=parent_id)
    submitted = await at.client.submit_asked(asked, parent_id, snapshot)
    task = await at.client.get(submitted.task_id)
    told = _whether_told(task, parent_id)
    text = "\n".join((f"Started task {task.task_id} ({subagent.name}). {told}", *submitted.notes))
    return _told(runtime, text, {task.task_id: _entry(task)})


def _key(at: Home, runtime: ToolRuntime[Any, Any]) -> str | None:
    """Name this call of a tool, the same each time its step runs; `None` where the parent's thread has no name."""
    thread_id = at.parent.task_id if at.parent else _thread_id(runtime)
    return f"{thread_id}:{runtime.tool_call_id}" if thread_id else None


def _parent_id(at: Home, runtime: ToolRuntime[Any, Any]) -> str | None:
    return at.parent_id(_thread_id(runtime), runtime.state)


def _thread_id(runtime: ToolRuntime[Any, Any]) -> str | None:
    thread_id: str | None = runtime.config.get("configurable", {}).get("thread_id")
    return thread_id


def _whether_told(task: Task, parent_id: str | None) -> str:
    return TOLD if task.parent_id is not None and task.parent_id == parent_id and task.notify_parent else NOT_TOLD


def _what_became_of(updated: Updated, task: Task, parent_id: str | None) -> str:
    if updated.run_id is None:
        text = f"Task {task.task_id} reads your message when it is done with what it is at."
    elif updated.overtaken:
        text = f"Task {task.task_id} was stopped at what it did, and goes on with your message."
    else:
        text = f"Task {task.task_id} goes on with your message."
    dropped = "The question that it asked a person is dropped." if updated.dropped else ""
    return "\n".join((" ".join(filter(None, (text, dropped, _whether_told(task, parent_id)))), *updated.notes))


def _tool(
    call: Callable[..., Coroutine[Any, Any, Any]], name: str, description: str, arguments: type[BaseModel]
) -> StructuredTool:
    async def guarded(**given: Any) -> Any:
        with _in_words():
            return await await_on(home().loop, call(**given))

    def guarded_sync(**given: Any) -> Any:
        with _in_words():
            return wait_on(home().loop, call(**given))

    return StructuredTool.from_function(
        func=guarded_sync,
        coroutine=guarded,
        name=name,
        description=description,
        args_schema=arguments,
        infer_schema=False,
        handle_tool_error=True,
    )


@contextmanager
def _in_words() -> Iterator[None]:
    """Tell the model what went wrong, where it can do something about it."""
    try:
        yield
    except ClaimLost:
        raise  # this run was replaced: nothing of it goes on
    except OutriderError as error:
        raise ToolException(str(error)) from error


async def _own(at: Home, task_id: str, runtime: ToolRuntime[Any, Any]) -> Task:
    """The task, where it descends from this parent; else an error that a model can act on."""
    task = await _there(at, task_id) if is_id(task_id) else None
    if task is None:
        raise ToolException(f"there is no task {shorten(repr(task_id))}: list_async_tasks shows those that are yours")
    if task_id in _known(runtime) or _parent_id(at, runtime) in task.ancestors:
        return task
    raise ToolException(f"task {task_id} is not one of yours: list_async_tasks shows those that are")


async def _listed(at: Home, wanted: str | None, runtime: ToolRuntime[Any, Any]) -> tuple[list[Task], bool]:
    """The parent's tasks, newest first, without results, and whether there are more."""
    if at.parent:
        page = await at.client.list(parent=at.parent.task_id, status=(wanted,) if wanted else (), limit=LISTED)
        return list(page.tasks), page.more
    ids = list(reversed(_known(runtime)))
    tasks = [task for task_id in ids[:LISTED] if (task := await _there(at, task_id))]
    return [task for task in tasks if wanted is None or task.status == wanted], len(ids) > LISTED


async def _there(at: Home, task_id: str) -> Task | None:
    """The task; `None` where there is none, or none any more: what ended long ago is removed."""
    try:
        return await at.client.get(task_id)
    except UnknownTask:
        return None


def _known(runtime: ToolRuntime[Any, Any]) -> dict[str, AsyncTask]:
    known: dict[str, AsyncTask] = runtime.state.get("async_tasks") or {}
    return known


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


def _told(runtime: ToolRuntime[Any, Any], text: str, tasks: Mapping[str, AsyncTask]) -> Command[Any]:
    answer = ToolMessage(text, tool_call_id=runtime.tool_call_id)
    return Command(update={"messages": [answer], "async_tasks": dict(tasks)})
