"""The client for sync code: the same methods, carried out on a loop in a thread of its own."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from anyio.from_thread import start_blocking_portal

from ..shared.errors import OutriderError
from .client import Outrider

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
    from concurrent.futures import Future

    from anyio.from_thread import BlockingPortal

    from ..shared.filestore import RedisStore
    from ..shared.notification import Notification
    from ..shared.records import Event
    from ..shared.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Outrider, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[SyncOutrider, P], R]:
    """The method for sync code. An exception in the calling thread, such as Ctrl-C, ends the call on the loop too."""

    @wraps(method)
    def call(self: SyncOutrider, /, *args: P.args, **kwargs: P.kwargs) -> R:
        async def run() -> R:
            return await method(self._client, *args, **kwargs)

        return self._run(run)

    return call


class SyncOutrider:
    """What `Outrider` is, for sync code; made by `connect()`, closed by `with` or `close()`.

    Safe from many threads. Not for code on an event loop: use `Outrider` there.
    """

    def __init__(self, client: Outrider) -> None:
        self._client = client
        self._exit = ExitStack()
        self._portal: BlockingPortal | None = self._exit.enter_context(start_blocking_portal())
        self._exit.enter_context(self._portal.wrap_async_context_manager(client))

    submit = _blocking(Outrider.submit)
    register = _blocking(Outrider.register)
    acknowledge = _blocking(Outrider.acknowledge)
    get = _blocking(Outrider.get)
    list = _blocking(Outrider.list)
    wait = _blocking(Outrider.wait)
    tree = _blocking(Outrider.tree)
    answer = _blocking(Outrider.answer)
    update = _blocking(Outrider.update)
    cancel = _blocking(Outrider.cancel)
    result = _blocking(Outrider.result)
    state = _blocking(Outrider.state)
    files = _blocking(Outrider.files)

    def follow(self, task_id: str, after: str = "0") -> Iterator[Event]:
        """Every event of the task after the event id `after`, as it comes; ends when the task has settled."""
        with self._following(self._client.follow(task_id, after)) as following:
            while (event := self._run(following)) is not None:
                yield event

    def inbox(self, parent_id: str) -> Iterator[Notification]:
        """The notifications of a registered parent, as they come; each is acknowledged when the next is asked for."""
        with self._following(self._client.inbox(parent_id)) as following:
            while (note := self._run(following)) is not None:
                yield note

    @property
    def store(self) -> RedisStore:
        """What `Outrider.store` is: use its sync methods, while this client is open."""

        async def store() -> RedisStore:
            return self._client.store

        return self._run(store)

    @property
    def settings(self) -> Settings:
        """The client's settings."""
        return self._client.settings

    def close(self) -> None:
        """Close the connections and end the thread. A second call does nothing."""
        self._portal = None
        self._exit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, call: Callable[[], Coroutine[Any, Any, R]]) -> R:
        if self._portal is None:
            raise OutriderError("the client is closed: make another one with connect()")
        future: Future[R] = self._portal.start_task_soon(call)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    @contextmanager
    def _following(self, events: AsyncGenerator[T, None]) -> Iterator[Callable[[], Coroutine[Any, Any, T | None]]]:
        async def following() -> T | None:
            return await anext(events, None)

        try:
            yield following
        finally:
            if self._portal is not None:
                self._run(events.aclose)


def connect(
    settings: Settings | None = None,
    *,
    redis_url: str | None = None,
    namespace: str | None = None,
    config: str | None = None,
) -> SyncOutrider:
    """Open a client for sync code; `with` closes it. The arguments are those of `Outrider`."""
    return SyncOutrider(Outrider(settings, redis_url=redis_url, namespace=namespace, config=config))
