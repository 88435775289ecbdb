"""The meter counts what a run's models consume and enforces limits: a LangChain callback for every model and tool."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.outputs import ChatGeneration
from langgraph.errors import GraphInterrupt

from ..shared import events
from ..shared.limits import MOST, Usage
from ..shared.text import counted, one_line
from .control import Stop
from .emitter import arguments

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import LLMResult

    from ..shared.records import Task

# LangChain makes the coroutines of all callbacks before it awaits the first: where that one refuses a turn, the others
# are never awaited, and Python would warn of it.
warnings.filterwarnings("ignore", "coroutine 'ahandle_event' was never awaited", RuntimeWarning)

MAX_MODEL = 200  #: characters of a model's name
COUNTS = ("input_tokens", "output_tokens", "total_tokens")
#: What bounds the models, in the order in which it is looked at: why a run is stopped, the limit, and what it counts.
BOUNDS = {
    Stop.LIMIT_TURNS: ("max_turns", "turns"),
    Stop.LIMIT_TOTAL_TOKENS: ("max_tokens", "total_tokens"),
    Stop.LIMIT_OUTPUT_TOKENS: ("max_output_tokens", "output_tokens"),
}


class NoMoreTurns(asyncio.CancelledError):
    """No further model call: a limit of the task is reached. The run ends whatever the agent makes of this.

    It is a cancellation, and passes an agent's `except Exception` as one.
    """


class Meter(BaseCallbackHandler):
    """Counts turns and tokens, stops the run at the top of the turn that a limit forbids, and tells of tools.

    Limits are soft: the tools that this agent's last turn asked for have finished by then. What other agents of the run
    are at is cut off, their tools too.
    """

    run_inline = True  # in order, and before the model is called
    raise_error = True  # a limit must reach the caller
    ignore_chain = ignore_retriever = ignore_retry = ignore_custom_event = True

    def __init__(self, task: Task, stop: Callable[[Stop], None], emit: Callable[[str, dict[str, Any]], None]) -> None:
        self._task, self._stop, self._emit = task, stop, emit
        self._used = Usage()
        self._lock = threading.Lock()  # sync nodes call models from threads
        self._tools: dict[UUID, tuple[str, str]] = {}
        self._models: dict[UUID, str] = {}

    @property
    def usage(self) -> Usage:
        """Of the whole task, earlier runs included."""
        return self._task.usage_counted.plus(self._used)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],  # noqa: ARG002 LangChain's signature
        **kwargs: Any,
    ) -> None:
        """Begin a turn, or refuse it."""
        self._turn(serialized, **kwargs)

    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],  # noqa: ARG002 LangChain's signature
        **kwargs: Any,
    ) -> None:
        """Begin a turn of a model without messages, or refuse it."""
        self._turn(serialized, **kwargs)

    def _turn(self, serialized: dict[str, Any] | None, *, run_id: UUID, **kwargs: Any) -> None:
        with self._lock:
            for reason in BOUNDS:
                used, limit = self._count_of(reason)
                if limit is not None and used >= limit:
                    self._refuse(reason)
            self._used = self._used.plus(Usage(turns=1))
        name = (kwargs.get("metadata") or {}).get("ls_model_name") or (serialized or {}).get("name")
        self._models[run_id] = str(name or "unknown")

    def _count_of(self, reason: Stop) -> tuple[int, int | None]:
        """What a limit bounds has come to since the last submit, update or wake, and the limit."""
        limit, unit = BOUNDS[reason]
        before = getattr(self._task.usage_before, unit)
        return getattr(self.usage, unit) - before, getattr(self._task.limits, limit)

    def why(self, reason: Stop) -> str:
        """Why a limit on models ended the run."""
        (used, limit), (name, unit) = self._count_of(reason), BOUNDS[reason]
        noun = unit.replace("_", " ").removesuffix("s")
        return f"it used {counted(used, noun)}, and limits.{name} = {limit}"

    def _refuse(self, limit: Stop) -> None:
        # The exception alone could be swallowed by the agent's own `except`.
        self._stop(limit)
        raise NoMoreTurns(limit.value)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_: Any) -> None:
        """Count the tokens of a turn."""
        model = self._models.pop(run_id, "unknown")
        for batch in response.generations:
            for generation in batch:
                if isinstance(generation, ChatGeneration):
                    self._count(model, generation.message)

    def _count(self, model: str, message: BaseMessage) -> None:
        usage = getattr(message, "usage_metadata", None)
        if not usage or not isinstance(usage, Mapping):
            return
        counts = {name: _whole(usage.get(name)) for name in COUNTS}
        named = one_line(str(message.response_metadata.get("model_name") or model), MAX_MODEL)
        with self._lock:
            self._used = self._used.plus(Usage(**counts, by_model={named: counts}))

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:  # noqa: ARG002
        """Forget a turn that failed; it counts as one."""
        self._models.pop(run_id, None)

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, *, run_id: UUID, **kwargs: Any) -> None:
        """Tell that a tool was called."""
        name = str(kwargs.get("name") or (serialized or {}).get("name") or "tool")
        call_id = str(kwargs.get("tool_call_id") or run_id)
        self._tools[run_id] = (name, call_id)
        self._emit(events.TOOL_STARTED, {"name": name, "id": call_id, "args": arguments(input_str)})

    def on_tool_end(self, output: Any, *, run_id: UUID, **_: Any) -> None:
        """Tell that a tool has ended."""
        self._tool_ended(run_id, ok=getattr(output, "status", "success") != "error")

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> None:
        """Tell that a tool has failed; one that asks a person has not: it starts again with the answer."""
        if isinstance(error, GraphInterrupt):
            self._tools.pop(run_id, None)
        else:
            self._tool_ended(run_id, ok=False)

    def _tool_ended(self, run_id: UUID, *, ok: bool) -> None:
        name, call_id = self._tools.pop(run_id, ("tool", str(run_id)))
        self._emit(events.TOOL_ENDED, {"name": name, "id": call_id, "ok": ok})


def _whole(value: Any) -> int:
    """A number of tokens. Whatever else a model tells counts for none: its answer is no worse for that."""
    try:
        return min(max(int(value or 0), 0), MOST)
    except (TypeError, ValueError, OverflowError):
        return 0
