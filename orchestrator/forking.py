"""The snapshot that a fork begins with: its parent's conversation as it was saved last."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from ..shared.errors import BadInput
from .files import file_store

if TYPE_CHECKING:
    from ..shared.filestore import RedisStore
    from ..shared.snapshots import Snapshot
    from ..shared.transitions import Submission
    from .session import Session

BLOBS = "/blobs/"  #: folder of media that deepagents put away, each named by the SHA-256 of its bytes


async def snapshot_for(submission: Submission, session: Session) -> Snapshot:
    """The snapshot of the parent's saved state, with the media in it that lie in files of its tree.

    Media that lie elsewhere keep their name: a child with the same files reads them, for another a mark stands there.
    """
    from ..shared.fork import PAYLOADS, names_of_media  # noqa: PLC0415 LangGraph takes its time to import
    from ..shared.snapshots import Snapshot  # noqa: PLC0415
    from ..shared.thread_state import read_state  # noqa: PLC0415

    parent_id = submission.parent_id
    if parent_id is None:
        raise BadInput("a fork needs a parent whose conversation it begins with: name one (parent=…, --parent ID)")
    state = await read_state(session.store.redis, session.store.keys, parent_id)
    if not state.get("messages"):
        raise BadInput(f"parent {parent_id} has no conversation yet: wait for its first step, or submit isolated")
    files = file_store(session)
    read = {name: await _media(files, submission.ancestors[0], name) for name in names_of_media(state)}
    return Snapshot.of({**state, PAYLOADS: {name: media for name, media in read.items() if media}})


async def _media(files: RedisStore, root_id: str, name: str) -> str | None:
    """Base64 of media in the tree's files; `None` where there is no such file, or its content has another hash."""
    from ..shared.tree_files import tree_namespace  # noqa: PLC0415

    item = await files.aget(tree_namespace(root_id), f"{BLOBS}{name}")
    data = _bytes(item.value) if item else b""
    return base64.b64encode(data).decode() if sha256(data).hexdigest() == name else None


def _bytes(file: dict[str, Any]) -> bytes:
    content = file.get("content")
    if not isinstance(content, str):
        return b""
    try:
        return base64.b64decode(content) if file.get("encoding") == "base64" else content.encode()
    except ValueError:
        return b""
