"""The parents' tools: start, check, update, cancel and list background tasks, with answers that a model can act on."""

from __future__ import annotations

import html
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException

from ..shared.errors import ClaimLost, OutriderError
from ..shared.ids import shorten
from ..shared.notification_text import FOR_A_PERSON, report
from ..shared.on_loop import await_on, wait_on
from ..shared.snapshots import Snapshot
from ..shared.statuses import Status, Strategy
from ..shared.text import one_line
from . import cancelling, registering, submitting, updating
from .caller import LISTED, Caller
from .home import home
from .reading import read_task
from .submit_request import FORK, SubmitRequest
from .tool_arguments import Check, Filter, List, OneTask, Start, Update

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping

    from langchain.tools import ToolRuntime
    from langgraph.types import Command
    from pydantic import BaseModel

    from ..shared.records import Task
    from .subagents import Subagent
    from .updating import Updated

TITLE_LENGTH = 80
TOLD = "You will be told when it has ended."
NOT_TOLD = "You are not told when it has ended: read its result with check_async_task."
NOT_FOR_FORKS = "You are a subagent that began with this conversation, and cannot start tasks: do the work yourself."


def background_tools(subagents: Mapping[str, Subagent]) -> list[BaseTool]:
    """The tools of a parent that may start these subagents."""

    def start(
        description: str, subagent_type: str, runtime: ToolRuntime[Any, Any]
    ) -> Coroutine[Any, Any, Command[Any]]:
        subagent, caller = subagents.get(subagent_type), Caller.of(runtime)
        if subagent is None:
            raise ToolException(
                f"there is no subagent {shorten(repr(subagent_type))}: use one of {', '.join(subagents)}"
            )
        parent = caller.at.parent
        if parent and parent.mode == FORK and not parent.limits.max_children:
            raise ToolException(NOT_FOR_FORKS)
        # At once: whatever goes on beside this call, the child begins with what its parent read when it called.
        snapshot = Snapshot.of(runtime.state) if subagent.mode == FORK else None
        return _start(caller, subagent, description, snapshot)

    async def check(task_id: str, runtime: ToolRuntime[Any, Any], offset: int = 0) -> Command[Any]:
        caller = Caller.of(runtime)
        task = await caller.task(task_id)
        return caller.answer(report(task, offset), task)

    async def update(task_id: str, message: str, runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        caller = Caller.of(runtime)
        subagent = subagents.get((await caller.task(task_id)).agent)
        strategy = subagent.update_strategy if subagent else Strategy.INTERRUPT
        # A step that runs again after a crash gives the message once.
        updated = await updating.update(caller.at.session, task_id, message, strategy, key=caller.key)
        task = await read_task(caller.at.session, task_id)
        return caller.answer(_what_became_of(updated, task, caller.parent_id), task)

    async def cancel(task_id: str, runtime: ToolRuntime[Any, Any]) -> Command[Any]:
        caller = Caller.of(runtime)
        await caller.task(task_id)
        answer = await cancelling.cancel(caller.at.session, task_id, by=caller.parent_id)
        already = f"Task {task_id} had already ended: {answer.status.value}. Nothing was changed."
        text = f"Task {task_id} is cancelled." if answer.outcome == "cancelled" else already
        return caller.answer(text, await read_task(caller.at.session, task_id))

    async def list_tasks(runtime: ToolRuntime[Any, Any], status_filter: Filter | None = None) -> Command[Any]:
        caller, wanted = Caller.of(runtime), None if status_filter == "all" else status_filter
        tasks, more = await caller.tasks(wanted)
        lines = [f"- {task.task_id} {task.agent} {task.status.value} {_title(task)}" for task in tasks]
        nothing = "No task was started." if wanted is None else f"No task is {wanted}."
        if any(task.status is Status.WAITING for task in tasks):
            lines.append(f"(what is waiting: {FOR_A_PERSON})")
        if more:
            lines.append(f"(only the {LISTED} newest are shown)")
        return caller.answer("\n".join(lines) or nothing, *tasks)

    agents = "\n".join(subagent.line for subagent in subagents.values())
    return [
        _tool(start, "start_async_task", f"Start a subagent in the background and return at once.\n\n{agents}", Start),
        _tool(check, "check_async_task", "Read what a background task is at, and its whole result or error.", Check),
        _tool(update, "update_async_task", "Give a background task a message, also one that has ended.", Update),
        _tool(cancel, "cancel_async_task", "End a background task, and all that it started, now.", OneTask),
        _tool(list_tasks, "list_async_tasks", "List the background tasks that you started, newest first.", List),
    ]


async def _start(caller: Caller, subagent: Subagent, description: str, snapshot: Snapshot | None) -> Command[Any]:
    at, parent_id = caller.at, caller.parent_id
    request = SubmitRequest(
        subagent.name,
        description,
        context=at.context,
        configurable=at.configurable,
        # A step that runs again after a crash finds the task that it started before.
        idempotency_key=caller.key,
        notify_parent=subagent.notify_parent,
        mode=subagent.mode,
        webhook=subagent.webhook,
    )
    if at.parent is None and parent_id is not None:
        await registering.register(at.session, task_id=parent_id)
    submitted = await submitting.submit(at.session, request, parent_id, snapshot)
    task = await read_task(at.session, submitted.task_id)
    told = _whether_told(task, parent_id)
    return caller.answer("\n".join((f"Started task {task.task_id} ({subagent.name}). {told}", *submitted.notes)), task)


def _whether_told(task: Task, parent_id: str | None) -> str:
    return TOLD if task.parent_id is not None and task.parent_id == parent_id and task.notify_parent else NOT_TOLD


def _what_became_of(updated: Updated, task: Task, parent_id: str | None) -> str:
    if updated.run_id is None:
        asks = updated.status is Status.WAITING
        until = "a person has answered what it asks" if asks else "it is done with what it is at"
        text = f"Task {task.task_id} reads your message when {until}."
    elif updated.overtaken:
        text = f"Task {task.task_id} was stopped at what it did, and goes on with your message."
    else:
        text = f"Task {task.task_id} goes on with your message."
    dropped = "The question that it asked a person is dropped." if updated.dropped else ""
    return "\n".join((" ".join(filter(None, (text, dropped, _whether_told(task, parent_id)))), *updated.notes))


def _title(task: Task) -> str:
    return html.escape(one_line(task.title, TITLE_LENGTH), quote=False)


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
    """Turn errors into answers that the model can act on."""
    try:
        yield
    except ClaimLost:
        raise  # this run was replaced: nothing of it goes on
    except OutriderError as error:
        raise ToolException(str(error)) from error
