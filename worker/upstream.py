"""The one place for what LangGraph 1.2 does not do right, with what stands in for it.

- A graph compiled with `checkpointer=False` fails under `durability="sync"`: its loop waits for the checkpoint that it
  never wrote, also when such a graph runs inside ours, which hands its durability down.
- `copy` forgets which classes of the graph's state a checkpoint may revive: under strict msgpack a dataclass would come
  back as a dict after a resume.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.pregel._loop import PregelLoop  # there is no public name for it

if TYPE_CHECKING:
    from collections.abc import Iterator

    from langgraph.checkpoint.base import BaseCheckpointSaver
    from langgraph.pregel import Pregel
    from langgraph.store.base import BaseStore

WRITTEN = "_put_checkpoint_fut"
REVIVED = "_serde_allowlist"


class _Written:
    """A checkpoint that nobody has to wait for, to `await` or to ask."""

    def __await__(self) -> Iterator[None]:
        return iter(())

    def result(self) -> None:
        """Nothing was written, so there is nothing to tell."""


def allow_graphs_without_checkpoints() -> None:
    """Give LangGraph's loops the attribute that they lack. On a mended one, or a second time, this does nothing."""
    if not hasattr(PregelLoop, WRITTEN):
        setattr(PregelLoop, WRITTEN, _Written())


def attached(
    agent: Pregel[Any, Any, Any, Any], saver: BaseCheckpointSaver[Any], store: BaseStore
) -> Pregel[Any, Any, Any, Any]:
    """A copy of the agent for one run, with a saver and a store of ours; the agent itself is not changed."""
    graph = agent.copy({"checkpointer": saver, "store": store})
    setattr(graph, REVIVED, getattr(agent, REVIVED, None))
    return graph
