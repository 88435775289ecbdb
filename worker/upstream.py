"""Workarounds for faults of LangGraph 1.2, all in this one file.

- A graph compiled with `checkpointer=False` fails under `durability="sync"`: its loop waits for the checkpoint that it
  never wrote, also when such a graph runs inside ours, which hands its durability down.
- An answer to a task's first question answers the next one too where the run that carried it is executed once more,
  since older versions gave all questions of a task one id.
- Where a step is executed once more, an agent within it that keeps its state (`checkpointer=True`) is taken for one
  that had begun, also where it had not: its input would be dropped, and what it said before be its answer.
- `copy` forgets which classes of the graph's state a checkpoint may revive: under strict msgpack a dataclass would come
  back as a dict after a resume.
- `interrupt()` outside a graph's node fails with a bare `KeyError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph._internal._config import patch_configurable
from langgraph._internal._constants import (
    CONFIG_KEY_CHECKPOINT_MAP,
    CONFIG_KEY_CHECKPOINT_NS,
    CONFIG_KEY_RESUMING,
    CONFIG_KEY_SCRATCHPAD,
    RESUME,
)
from langgraph.pregel import _algo
from langgraph.pregel._loop import PregelLoop  # there is no public name for it
from langgraph.types import Interrupt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.pregel import Pregel
    from langgraph.store.base import BaseStore

WRITTEN = "_put_checkpoint_fut"
REVIVED = "_serde_allowlist"
SCRATCHPAD = "_scratchpad"
FIRST = "_first"


class _Written:
    """A checkpoint that nobody has to wait for, to `await` or to ask."""

    def __await__(self) -> Iterator[None]:
        return iter(())

    def result(self) -> None:
        """Return at once: nothing was written."""


def allow_graphs_without_checkpoints() -> None:
    """Give LangGraph's loops the attribute that they lack. Where they have it, or at a second call, nothing is done."""
    if not hasattr(PregelLoop, WRITTEN):
        setattr(PregelLoop, WRITTEN, _Written())


def answer_each_question_once() -> None:
    """Let an answer count only for the question whose id it names. A second call does nothing."""
    given = getattr(_algo, SCRATCHPAD)
    if getattr(given, "exact", False):
        return

    def exactly(above: Any, writes: list[Any], task_id: str, ns: str, answers: Any, *bounds: int) -> Any:
        if answers and any(write[0] == task_id and write[1] == RESUME for write in writes):
            first = Interrupt.from_ns(None, ns).id
            answers = {name: value for name, value in answers.items() if name != first}
        return given(above, writes, task_id, ns, answers, *bounds)

    setattr(exactly, "exact", True)  # noqa: B010 a function has no such attribute by itself
    setattr(_algo, SCRATCHPAD, exactly)


def begin_what_had_not_begun() -> None:
    """Let an agent that keeps its state take its input, unless this very step gave it before. Twice does nothing."""
    first = getattr(PregelLoop, FIRST)
    if getattr(first, "exact", False):
        return

    def exactly(self: PregelLoop, **given: Any) -> Any:
        at = self.config.get("configurable", {})
        keeps_its_state = self.is_nested and ":" not in at.get(CONFIG_KEY_CHECKPOINT_NS, "")
        step = at.get(CONFIG_KEY_CHECKPOINT_MAP, {})
        if keeps_its_state and at.get(CONFIG_KEY_RESUMING) and self.checkpoint_metadata.get("parents", {}) != step:
            self.config = patch_configurable(self.config, {CONFIG_KEY_RESUMING: False})
        return first(self, **given)

    setattr(exactly, "exact", True)  # noqa: B010 a function has no such attribute by itself
    setattr(PregelLoop, FIRST, exactly)


def attached(
    agent: Pregel[Any, Any, Any, Any], saver: BaseCheckpointSaver[Any], store: BaseStore
) -> Pregel[Any, Any, Any, Any]:
    """A copy of the agent for one run, with a saver and a store of ours; the agent itself is not changed."""
    graph = agent.copy({"checkpointer": saver, "store": store})
    setattr(graph, REVIVED, getattr(agent, REVIVED, None))
    return graph


def is_question_outside_node(error: KeyError) -> bool:
    """Whether the error comes from an `interrupt()` that was called where no graph runs."""
    return error.args == (CONFIG_KEY_SCRATCHPAD,)
