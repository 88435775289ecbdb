"""The arguments of the parents' tools, as models see them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from langchain.tools import ToolRuntime
from pydantic import BaseModel, ConfigDict, Field

TaskId = Annotated[str, Field(description="The task id as start_async_task returned it.")]
Filter = Literal["running", "pending", "waiting", "success", "error", "timeout", "cancelled", "all"]


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
