"""The file store: LangGraph's `BaseStore` on plain Redis, shared by all agents of a namespace on all workers.

One batch is one script, so it is wholly done or not at all. Every item has a version, so that a reader who writes back
can find out that somebody else wrote in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.store.base import (
    BaseStore,
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    validate_op_namespace,
)

from .errors import BadInput
from .file_layout import (
    Call,
    Entry,
    Head,
    Namespace,
    SearchPage,
    lifetime_ms,
    literal_prefix,
    matches,
    matches_namespace,
    pack,
    pack_namespace,
    pack_value,
    script,
    unpack_namespace,
    unpack_value,
)
from .on_loop import current_loop, wait_on

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping, Sequence

    import redis.asyncio

    from .keys import Keys

T = TypeVar("T")

SCANNED_PER_CALL = 100  #: items that one call brings when a filter picks from them
NOT_YET = -1  #: the script's answer while it is still removing what has expired


class RedisStore(BaseStore):
    """Items of LangGraph in Redis.

    Make it on the loop that uses it. `redis` returns bytes (`decode_responses=False`). Values are JSON objects. Order
    is that of arrival, by namespace and within it. `query` and `index` have no effect, as in any store without an
    index. `ttl` counts in minutes from the last put, get or search that met the item.
    """

    supports_ttl = True

    def __init__(self, redis: redis.asyncio.Redis, keys: Keys) -> None:
        self._redis, self._keys = redis, keys.files()
        self._loop = current_loop()

    # LangGraph's interface: all its other methods come down to these two
    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Do operations: all reads before all writes; of several writes to one key, the last.

        One call to Redis. A search may need further ones (it filters here, and a reply is bounded in bytes), so then
        the writes are a call of their own. Raise `BadInput` or `InvalidNamespaceError`, and write nothing, where an
        operation is not usable.
        """
        asked = list(ops)
        for op in asked:
            validate_op_namespace(op)
        reads = {at: op for at, op in enumerate(asked) if not isinstance(op, PutOp)}
        last_puts = {(op.namespace, op.key): op for op in asked if isinstance(op, PutOp)}
        first, then = [_read_call(op) for op in reads.values()], [_write_call(op) for op in last_puts.values()]
        if not any(isinstance(op, SearchOp) for op in reads.values()):
            first, then = first + then, []
        results: list[Result] = [None] * len(asked)
        for (at, op), reply in zip(reads.items(), await self._call(first), strict=False):
            results[at] = await self._answer(op, reply)
        await self._call(then)
        return results

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do what `abatch` does, from a thread that is not the loop's."""
        return self.wait(self.abatch(ops))

    # what LangGraph's interface does not have
    async def aget_versioned(self, namespace: Namespace, key: str) -> tuple[Item | None, int]:
        """Return an item and its version; `(None, 0)` where there is none."""
        op = GetOp(namespace, key)
        validate_op_namespace(op)
        [reply] = await self._call([_read_call(op)])
        return (_item(op, reply), Head.read(reply[0]).version) if reply else (None, 0)

    async def aput_if(self, namespace: Namespace, key: str, value: Mapping[str, Any], version: int) -> int | None:
        """Put a value if the item still has a version (0: if there is no item), and return the new version.

        `None` means that somebody else wrote or deleted in between, and that nothing was written. No version is ever
        given out twice, also not after a deletion. The item keeps its `ttl`, which starts anew.
        """
        validate_op_namespace(PutOp(namespace, key, value))
        if not namespace or namespace[0] == "langgraph":
            raise InvalidNamespaceError(f"namespace {namespace} is empty or LangGraph's own: give it a root label")
        packed = pack_value(namespace, key, value)
        [reply] = await self._call([("put_if", pack_namespace(namespace), pack(key), packed, version)])
        return int(reply[0]) if reply else None

    async def aentries(self, prefix: Namespace, limit: int = 1000) -> list[Entry]:
        """Return at most `limit` items at and below a namespace without their values, in order of arrival."""
        op = SearchOp(prefix, limit=limit, refresh_ttl=False)
        validate_op_namespace(op)
        [reply] = await self._call([_read_call(op, what="sizes")])
        return [
            Entry(namespace, key, size, head.version, head.created_at, head.updated_at)
            for namespace, key, head, size in SearchPage.read(reply).items
        ]

    async def adelete_namespace(self, prefix: Namespace, limit: int = 500) -> int:
        """Delete at most `limit` items at and below a namespace. Return how many; 0 when nothing is left."""
        validate_op_namespace(SearchOp(prefix))
        [reply] = await self._call([("drop", pack_namespace(prefix), limit)])
        return int(reply[0])

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run an async method of this store on its loop and wait in this thread: the sync face of them all."""
        return wait_on(self._loop, work)

    # inside
    async def _call(self, calls: Sequence[Call]) -> list[list[Any]]:
        """Run operations as one step, once all expired items are removed."""
        if not calls:
            return []
        args = [part for name, *arguments in calls for part in (name, len(arguments), *arguments)]
        while True:
            replies: Any = await script().run(self._redis, self._keys, args)
            if replies != NOT_YET:
                return list(replies)

    async def _answer(self, op: Op, reply: list[Any]) -> Result:
        match op:
            case GetOp():
                return _item(op, reply)
            case SearchOp():
                return await self._search(op, SearchPage.read(reply))
            case ListNamespacesOp():
                return _namespaces(op, map(unpack_namespace, reply))
        raise BadInput(f"{type(op).__name__} is no read of a store")

    async def _search(self, op: SearchOp, page: SearchPage) -> list[SearchItem]:
        """Read on from a first page until enough was found or nothing is left."""
        skip = op.offset if op.filter else 0
        enough = skip + op.limit
        found: list[tuple[SearchItem, Head]] = []
        while True:
            for namespace, key, head, body in page.items:
                value = unpack_value(body)
                if not op.filter or all(matches(value.get(name), wanted) for name, wanted in op.filter.items()):
                    found.append((SearchItem(namespace, key, value, head.created_at, head.updated_at), head))
            if len(found) >= enough or not page.more:
                break
            [reply] = await self._call([_search_call(op, page.cursor, 0, enough - len(found))])
            page = SearchPage.read(reply)
        found = found[skip:enough]
        if op.filter and op.refresh_ttl:  # only what is returned starts anew, not what the filter looked at
            mortal = [item for item, head in found if head.mortal]
            await self._call([("touch", pack_namespace(item.namespace), pack(item.key)) for item in mortal])
        return [item for item, _ in found]


def _search_call(op: SearchOp, cursor: tuple[bytes, bytes], offset: int, limit: int, what: str = "values") -> Call:
    prefix = pack_namespace(op.namespace_prefix)
    if op.filter:
        return ("search", prefix, *cursor, 0, SCANNED_PER_CALL, 0, what)
    return ("search", prefix, *cursor, offset, limit, int(op.refresh_ttl), what)


def _read_call(op: Op, what: str = "values") -> Call:
    match op:
        case GetOp():
            return ("get", pack_namespace(op.namespace), pack(op.key), int(op.refresh_ttl))
        case SearchOp():
            if op.limit < 0 or op.offset < 0:
                raise BadInput(f"limit {op.limit} and offset {op.offset} of a search must not be negative")
            return _search_call(op, (b"", b""), op.offset, op.limit, what)
        case ListNamespacesOp():
            return ("spaces", pack_namespace(literal_prefix(op.match_conditions or ())))
    raise BadInput(f"{type(op).__name__} is no operation of a store: use GetOp, PutOp, SearchOp or ListNamespacesOp")


def _write_call(op: PutOp) -> Call:
    name = pack_namespace(op.namespace), pack(op.key)
    if op.value is None:
        return ("delete", *name)
    value = pack_value(op.namespace, op.key, op.value)
    return ("put", *name, value, lifetime_ms(op.namespace, op.key, op.ttl))


def _item(op: GetOp, reply: list[Any]) -> Item | None:
    if not reply:
        return None
    head = Head.read(reply[0])
    return Item(
        value=unpack_value(reply[1]),
        key=op.key,
        namespace=op.namespace,
        created_at=head.created_at,
        updated_at=head.updated_at,
    )


def _namespaces(op: ListNamespacesOp, namespaces: Iterable[Namespace]) -> list[Namespace]:
    conditions = op.match_conditions or ()
    found = {
        namespace[: op.max_depth]
        for namespace in namespaces
        if all(matches_namespace(namespace, condition) for condition in conditions)
    }
    return sorted(found)[op.offset : op.offset + op.limit]
