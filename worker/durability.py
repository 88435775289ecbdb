"""The one place for a bug of LangGraph: a graph compiled with `checkpointer=False` fails under `durability="sync"`.

Its loop waits for the checkpoint it never wrote (`_put_checkpoint_fut` is missing), also when such a graph runs inside
ours, which hands its durability down. A class attribute that has always been done stands in for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from langgraph.pregel._loop import PregelLoop  # there is no public name for it

if TYPE_CHECKING:
    from collections.abc import Iterator

ATTRIBUTE = "_put_checkpoint_fut"


class _Written:
    """A checkpoint that nobody has to wait for, to `await` or to ask."""

    def __await__(self) -> Iterator[None]:
        return iter(())

    def result(self) -> None:
        """Nothing was written, so there is nothing to tell."""


def allow_graphs_without_checkpoints() -> None:
    """Give LangGraph's loops the attribute that they lack. On a mended one, or a second time, this does nothing."""
    if not hasattr(PregelLoop, ATTRIBUTE):
        setattr(PregelLoop, ATTRIBUTE, _Written())
