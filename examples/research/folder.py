"""A folder of documents: which files it has, and reading one without ever leaving it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePosixPath

SUFFIXES = frozenset({".md", ".txt", ".rst", ".py"})
MAX_FILES = 2_000
MAX_FILE_BYTES = 1_000_000
MAX_BYTES = 32_000_000  #: of all files together
MAX_NAME = 300
ENV = "OUTRIDER_DEMO_DOCS"

#: Frames and citations write names between these; control characters would break a line or a terminal.
_ODD = frozenset('[]"<>&\\')
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})


class FolderError(Exception):
    """A folder or a path in it cannot be used; the text says why and what to do, for a person or a model."""


@dataclass(frozen=True)
class Document:
    """One readable file: its name relative to the folder, and what tells that it changed."""

    name: str
    mtime_ns: int
    size: int  #: bytes
    inode: int


@dataclass(frozen=True)
class Listing:
    """What a folder holds, sorted by name, and what was left out with the reason."""

    documents: tuple[Document, ...]
    skipped: tuple[str, ...]


@dataclass(frozen=True)
class DocumentFolder:
    """`root` (absolute, resolved); `within` restricts it to these entries of the root, none = all of it."""

    root: Path
    within: tuple[str, ...] = ()

    def listing(self) -> Listing:
        """Walk the folder: files of `SUFFIXES`, without hidden ones and caches, up to the bounds above."""
        found: dict[Path, Document] = {}
        skipped: list[str] = []
        names = self._names()
        if len(names) > MAX_FILES:
            skipped.append(f"this folder has more files than the {MAX_FILES} that are read")
        left = MAX_BYTES
        for name in names[:MAX_FILES]:
            try:
                path = self.safe_path(name)
                facts = path.stat()
            except FolderError as error:
                skipped.append(str(error))
                continue
            except OSError as error:
                skipped.append(f"{name!r} cannot be read: {error.strerror}")
                continue
            if facts.st_size > MAX_FILE_BYTES:
                skipped.append(f"{name!r} has {facts.st_size} bytes: a file is read up to {MAX_FILE_BYTES}")
            elif facts.st_size > left:
                skipped.append(f"{name!r} is too much: a folder is read up to {MAX_BYTES} bytes")
            elif path not in found:
                left -= facts.st_size
                found[path] = Document(name, facts.st_mtime_ns, facts.st_size, facts.st_ino)
        return Listing(tuple(sorted(found.values(), key=lambda one: one.name)), tuple(skipped))

    def _names(self) -> list[str]:
        """The names of what may be documents, in a fixed order, one more than `MAX_FILES` at most."""
        tops = [self.root / name for name in self.within] or [self.root]
        names = [top.name for top in tops if self.within and top.is_file()]
        for here, folders, files in chain.from_iterable(os.walk(top, followlinks=False) for top in tops):
            folders[:] = sorted(name for name in folders if self._is_walked(Path(here, name)))
            names += [
                Path(here, name).relative_to(self.root).as_posix()
                for name in sorted(files)
                if not name.startswith(".") and Path(name).suffix.lower() in SUFFIXES
            ]
            if len(names) > MAX_FILES:
                break
        # A link to a file of the folder is the same document: the file's own name comes first.
        return sorted(names[: MAX_FILES + 1], key=lambda name: ((self.root / name).is_symlink(), name))

    @staticmethod
    def _is_walked(folder: Path) -> bool:
        return not (folder.name.startswith(".") or folder.name in _LEFT_OUT or (folder / "pyvenv.cfg").exists())

    def safe_path(self, name: str) -> Path:
        """The resolved path of a document; raises `FolderError` for a name that is odd, hidden, leads out or is absent.

        `..` is judged by component, so `foo..bar.txt` is a fine name. A link counts as what it leads to.
        """
        if not name or len(name) > MAX_NAME or not name.isprintable() or _ODD & set(name):
            shown = ascii(name[:80])
            raise FolderError(f"{shown} is no usable path: give a relative path as search_documents shows it")
        pure = PurePosixPath(name)
        if pure.is_absolute():
            raise FolderError(f"{name!r} is absolute: give a path relative to the folder, as search_documents shows it")
        if any(part.startswith(".") for part in pure.parts):  # `..` among them
            raise FolderError(f"{name!r} leads out of the folder or is hidden: only its visible documents can be read")
        if self.within and (not pure.parts or pure.parts[0] not in self.within):
            raise FolderError(f"{name!r} is not part of the documents: these are {', '.join(self.within)}")
        try:
            path = (self.root / pure).resolve(strict=True)
        except (OSError, RuntimeError, ValueError):  # RuntimeError: a loop of links, before Python 3.13
            raise FolderError(f"{name!r} does not exist: search_documents shows the paths there are") from None
        if not path.is_relative_to(self.root):
            raise FolderError(f"{name!r} is a link that leads out of the folder: it is not read")
        if not {path.suffix.lower(), pure.suffix.lower()} <= SUFFIXES or not path.is_file():
            raise FolderError(f"{name!r} is no document: only files ending in {', '.join(sorted(SUFFIXES))} are read")
        return path

    def lines(self, name: str) -> tuple[str, ...]:
        """The lines of a document without their ends; line N is item N-1. Raises `FolderError`, as `safe_path` does."""
        path = self.safe_path(name)
        data = _read_inside(self.root, path.relative_to(self.root).parts, name)
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise FolderError(f"{name!r} is not UTF-8 text: it is not read") from None
        if "\0" in text:
            raise FolderError(f"{name!r} is binary: it is not read")
        # Not splitlines(): editors and citations count line feeds, not form feeds or U+2028.
        found = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return tuple(found[:-1] if found[-1] == "" else found)


def _read_inside(root: Path, parts: tuple[str, ...], name: str) -> bytes:
    """Open component by component without following links: the tree may have changed since it was resolved."""
    at = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in parts[:-1]:
            inner = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = inner
        # O_NONBLOCK: a pipe put in a file's place would else block for ever.
        opened = os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=at)
        with os.fdopen(opened, "rb") as file:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                raise FolderError(f"{name!r} is no regular file: it is not read")
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise FolderError(f"{name!r} cannot be read: {error.strerror}") from None
    finally:
        os.close(at)
    if len(data) > MAX_FILE_BYTES:
        raise FolderError(f"{name!r} is too big: a file is read up to {MAX_FILE_BYTES} bytes")
    return data


def open_folder(docs: str | None = None) -> DocumentFolder:
    """The folder `docs`; without one `OUTRIDER_DEMO_DOCS`; without that the project's own README.md and docs/.

    Raises `FolderError` where there is none. Names in it are relative to the folder, or to the project's root.
    """
    chosen = docs or os.environ.get(ENV)
    if chosen:
        root = Path(chosen).expanduser()
        if not root.is_dir():
            raise FolderError(f"documents {chosen!r} are no folder: give --docs an existing one (or set {ENV})")
        return DocumentFolder(root.resolve())
    project = Path(__file__).resolve().parents[2]
    if not (project / "pyproject.toml").is_file() or not (project / "README.md").is_file():
        raise FolderError(
            f"the project's own documents are in no installed package: give --docs (or set {ENV}) and --question"
        )
    return DocumentFolder(project, within=("README.md", "docs"))
