"""The files that the tasks of a tree share, as people are shown them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..shared.record import Moment, Record
from ..shared.transitions import Facts

if TYPE_CHECKING:
    from ..shared.filestore import RedisStore
    from ..shared.records import Task

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


async def files_of(store: RedisStore, task: Task) -> Files:
    """The files of a task's tree, and whether there are more than are listed."""
    from ..shared.trees import tree_namespace  # noqa: PLC0415 LangGraph takes its time to import

    entries = await store.aentries(tree_namespace(Facts.of(task).root_id), LISTED + 1)
    files = tuple(File(path=entry.key, bytes=entry.size, updated_at=entry.updated_at) for entry in entries[:LISTED])
    return Files(files=files, more=len(entries) > LISTED)
