"""The files that the tasks of a tree share, for people to see."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..shared.ids import check_id
from ..shared.record_base import Moment, Record

if TYPE_CHECKING:
    from ..shared.filestore import RedisStore
    from .session import Session

LISTED = 1000  #: files that are listed at most


class File(Record):
    """A file of a tree, without its content."""

    path: str
    bytes: int  #: of the stored value
    updated_at: Moment


class Files(Record):
    """Files of a tree, in order of arrival."""

    files: tuple[File, ...] = ()
    more: bool = False  #: whether there are others


def file_store(session: Session) -> RedisStore:
    """Return what `Outrider.store` is."""
    from ..shared.filestore import RedisStore  # noqa: PLC0415 LangGraph takes its time to import

    return RedisStore(session.store.redis, session.store.keys)


async def files_of(session: Session, task_id: str) -> Files:
    """Do what `Outrider.files` does."""
    from ..shared.tree_files import tree_namespace  # noqa: PLC0415 LangGraph takes its time to import

    check_id(task_id)
    with session.reachable():
        root_id = (await session.store.peek(task_id)).root_id
        entries = await file_store(session).aentries(tree_namespace(root_id), LISTED + 1)
    files = tuple(File(path=entry.key, bytes=entry.size, updated_at=entry.updated_at) for entry in entries[:LISTED])
    return Files(files=files, more=len(entries) > LISTED)
