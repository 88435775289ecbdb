"""The parent that calls one of its tools: which tasks are its own, and what its state keeps of each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypedDict, cast

from langchain_core.messages import ToolMessage
from langchain_core.tools import ToolException
from langgraph.types import Command

from ..shared.errors import UnknownTask
from ..shared.ids import derived_id, is_id, shorten
from ..shared.text import clean
from .home import home
from .listing import page
from .reading import read_task

if TYPE_CHECKING:
    from langchain.tools import ToolRuntime

    from ..shared.records import Task
    from .home import Home

LISTED = 100  #: tasks that `list_async_tasks` shows at most


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


@dataclass(frozen=True, slots=True)
class Caller:
    """A parent in a call of one of its tools."""

    at: Home
    runtime: ToolRuntime[Any, Any]

    @classmethod
    def of(cls, runtime: ToolRuntime[Any, Any]) -> Caller:
        """Return the parent whose code runs here."""
        return cls(home(), runtime)

    @property
    def parent_id(self) -> str | None:
        """The parent's task; `None` where none was made for it yet."""
        return self.at.parent_id(self._thread_id, self.runtime.state)

    @property
    def key(self) -> str | None:
        """An id of this call, the same each time its step runs; `None` where the parent's thread has no id."""
        thread_id = self.at.parent.task_id if self.at.parent else self._thread_id
        if not thread_id:
            return None
        return derived_id(*(clean(str(part)) for part in (thread_id, self._message_id, self.runtime.tool_call_id)))

    @property
    def _message_id(self) -> str | None:
        """Id of the message that holds this call: some models number their calls anew in each message."""
        for message in reversed(self.runtime.state.get("messages") or ()):
            if any(call["id"] == self.runtime.tool_call_id for call in getattr(message, "tool_calls", ())):
                return cast("str | None", message.id)
        return None

    async def task(self, task_id: str) -> Task:
        """The task, where it descends from this parent; else an error that a model can act on."""
        task = await self._there(task_id) if is_id(task_id) else None
        if task is None:
            raise ToolException(
                f"there is no task {shorten(repr(task_id))}: list_async_tasks shows those that are yours"
            )
        if task_id in self._known or self.parent_id in task.ancestors:
            return task
        raise ToolException(f"task {task_id} is not one of yours: list_async_tasks shows those that are")

    async def tasks(self, wanted: str | None) -> tuple[list[Task], bool]:
        """The parent's tasks of this status, newest first, without results, and whether there are more."""
        if self.at.parent:
            status = (wanted,) if wanted else ()
            listed = await page(self.at.session, parent=self.at.parent.task_id, status=status, limit=LISTED)
            return list(listed.tasks), listed.more
        ids = list(reversed(self._known))
        tasks = [task for task_id in ids[:LISTED] if (task := await self._there(task_id))]
        return [task for task in tasks if wanted is None or task.status == wanted], len(ids) > LISTED

    def answer(self, text: str, *tasks: Task) -> Command[Any]:
        """The tool's answer, and what the parent's state keeps of the tasks that it is about."""
        answer, known = ToolMessage(text, tool_call_id=self.runtime.tool_call_id), self._known
        entries = {task.task_id: _entry(task, known.get(task.task_id)) for task in tasks}
        return Command(update={"messages": [answer], "async_tasks": entries})

    @property
    def _thread_id(self) -> str | None:
        thread_id: str | None = self.runtime.config.get("configurable", {}).get("thread_id")
        return thread_id

    @property
    def _known(self) -> dict[str, AsyncTask]:
        known: dict[str, AsyncTask] = self.runtime.state.get("async_tasks") or {}
        return known

    async def _there(self, task_id: str) -> Task | None:
        """The task; `None` where there is none: one that ended long ago may have been removed."""
        try:
            return await read_task(self.at.session, task_id)
        except UnknownTask:
            return None


def _entry(task: Task, known: AsyncTask | None) -> AsyncTask:
    """What the state keeps of a task; of one that was read without its runs, the last run that is known."""
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
