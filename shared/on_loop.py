"""Async methods for sync code: they run on the loop that they belong to while the calling thread waits."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar

from .errors import OutriderError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class OnLoop(Protocol):
    """What belongs to a loop; `None` where it was made outside of any."""

    loop: asyncio.AbstractEventLoop | None


P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S", bound=OnLoop)


def current_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs in this thread, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def wait_on(loop: asyncio.AbstractEventLoop | None, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` on a loop of another thread and return its result; on the loop's own thread that is an error."""
    if loop is None or loop is current_loop():
        work.close()
        raise OutriderError(
            "sync methods of a saver or a store block: call them from another thread than that of the loop on which it "
            "was made (on the loop itself, await the method whose name begins with an `a`)"
        )
    return asyncio.run_coroutine_threadsafe(work, loop).result()


async def await_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` on its loop, from any loop."""
    if loop is current_loop():
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def blocking(method: Callable[Concatenate[S, P], Coroutine[Any, Any, T]]) -> Callable[Concatenate[S, P], T]:
    """Make a sync method of an async one."""

    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return wait_on(self.loop, method(self, *args, **kwargs))

    # LangGraph looks at the signature of `put_writes`.
    functools.update_wrapper(call, method)
    return call
