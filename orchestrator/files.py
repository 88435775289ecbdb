"""The files that the tasks of a tree share, as people are shown them."""

from __future__ import annotations

from ..shared.record import Moment, Record

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
