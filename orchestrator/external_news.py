"""News for an external parent: the middleware reads the inbox of its task.

A notification is dealt with once a state that holds it was saved. The state that an invocation begins with was saved;
what was taken in since may not be.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from ..shared.errors import BadInput, RedisUnreachable, UnknownTask
from ..shared.ids import new_id
from ..shared.notification import CURSOR
from ..shared.on_loop import await_on
from . import inbox
from .home import PARENT, home

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from langgraph.runtime import Runtime

    from ..shared.notification import Notification

#: State key that is never saved: this invocation has looked into the inbox.
LOOKED = "outrider_looked"


async def arrived(state: Mapping[str, Any], runtime: Runtime[Any]) -> tuple[dict[str, Any], Sequence[Notification]]:
    """The state's update, and the notifications that came since the last model call."""
    thread_id, at = _thread_id(runtime), home()
    parent_id, cursor = at.parent_id(thread_id, state), state.get(CURSOR, 0)
    keep: dict[str, Any] = {} if state.get(LOOKED) else {LOOKED: True}
    if parent_id is None:
        return {**keep, PARENT: new_id()}, ()
    saved = 0 if state.get(LOOKED) else cursor
    notes = await _unread(parent_id, saved, cursor)
    # The program may have put one into the state itself, by `Notification.message()`.
    there = {message.id for message in state["messages"]}
    new = [note for note in notes if note.id not in there]
    return ({**keep, CURSOR: notes[-1].seq} if notes else keep), new


async def is_there_more(state: Mapping[str, Any], runtime: Runtime[Any]) -> bool:
    """Whether something came while the model wrote its final answer.

    If nothing did and no thread keeps the state, the caller gets it now: what it holds is dealt with.
    """
    thread_id, cursor = _thread_id(runtime), state.get(CURSOR, 0)
    parent_id = home().parent_id(thread_id, state)
    if parent_id is None:
        return False
    return bool(await _unread(parent_id, 0 if thread_id else cursor, cursor))


def _thread_id(runtime: Runtime[Any]) -> str | None:
    return runtime.execution_info.thread_id if runtime.execution_info else None


async def _unread(parent_id: str, saved: int, after: int) -> tuple[Notification, ...]:
    """What is new in the inbox; nothing where no task was started yet, or while Redis is away."""
    at = home()
    with suppress(UnknownTask, BadInput, RedisUnreachable):
        return await await_on(at.loop, inbox.unread(at.session, parent_id, saved=saved, after=after))
    return ()
