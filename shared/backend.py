"""Files of a task's tree for deep agents: deepagents' `StoreBackend`, with edits that lose nothing.

Needs the extra `deepagents`; nothing else of outrider imports this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from langgraph.store.base import BaseStore, GetOp, PutOp

from .errors import BadInput, OutriderError
from .filestore import RedisStore
from .tree_files import running_tree

try:
    from deepagents.backends.protocol import EditResult
    from deepagents.backends.store import StoreBackend
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(f"{missing} (pip install 'outrider[deepagents]')", name=missing.name) from None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from langgraph.store.base import Op, Result

    from .file_layout import Namespace

ATTEMPTS = 64  #: of one edit; each that fails means that another edit succeeded


class Conflict(OutriderError):
    """An item was written by somebody else between a read and the write that builds on it."""


class OneEdit(BaseStore):
    """A view of the store for one read and one write that builds on it: the write raises `Conflict` if it came late."""

    def __init__(self, store: RedisStore) -> None:
        self._store = store
        self._versions: dict[tuple[Namespace, str], int] = {}

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do operations one by one."""
        return [await self._do(op) for op in ops]

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do what `abatch` does, from a thread that is not the loop's."""
        return self._store.wait(self.abatch(ops))

    async def _do(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            item, self._versions[op.namespace, op.key] = await self._store.aget_versioned(op.namespace, op.key)
            return item
        if isinstance(op, PutOp) and op.value is not None:
            version = self._versions[op.namespace, op.key]
            if await self._store.aput_if(op.namespace, op.key, op.value, version) is None:
                raise Conflict(f"{op.key} in {op.namespace} was written by somebody else: read it again")
            return None
        return (await self._store.abatch([op]))[0]


class OutriderBackend(StoreBackend):
    """Files that all tasks of a tree share, on all workers.

    `namespace` gets LangGraph's `Runtime` and returns where the files lie (the default: with the running task's tree;
    give one per user for memories that outlive it). `store` is the run's own unless given, and must be a `RedisStore`.
    An edit is made anew on what another agent wrote in between, so of parallel edits none is lost. A write replaces
    the file as a whole, as deepagents has it.
    """

    def __init__(
        self, *, namespace: Callable[[Any], Namespace] = running_tree, store: RedisStore | None = None
    ) -> None:
        super().__init__(namespace=namespace, store=store)

    async def aedit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,  # noqa: FBT001, FBT002 - deepagents' signature
    ) -> EditResult:
        """Replace text in a file. The result's `error` says what did not work."""
        return await self._edit(*self._place(), file_path, old_string, new_string, replace_all)

    def edit(
        self,
        file_path: str,
        old_string: str,
        new_string: str,
        replace_all: bool = False,  # noqa: FBT001, FBT002 - deepagents' signature
    ) -> EditResult:
        """Do what `aedit` does, from a thread that is not the loop's."""
        store, namespace = self._place()
        return store.wait(self._edit(store, namespace, file_path, old_string, new_string, replace_all))

    def _place(self) -> tuple[RedisStore, Namespace]:
        store = self._get_store()
        if not isinstance(store, RedisStore):
            raise BadInput(
                f"{type(self).__name__} keeps parallel edits apart by the versions of outrider's store, but the graph "
                f"has a {type(store).__name__}: run the agent on an outrider worker, or use deepagents' StoreBackend"
            )
        return store, self._get_namespace()

    async def _edit(self, store: RedisStore, namespace: Namespace, file_path: str, *change: Any) -> EditResult:
        for _ in range(ATTEMPTS):
            attempt = StoreBackend(store=OneEdit(store), namespace=lambda _: namespace)
            try:
                return await attempt.aedit(file_path, *change)
            except Conflict:
                continue
        return EditResult(
            error=f"Conflict: {file_path} was changed by others during each of {ATTEMPTS} attempts. Nothing was "
            "written. Read the file again, then repeat the edit."
        )
