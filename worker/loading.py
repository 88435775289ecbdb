"""Import the object that `path/or/module:name` names."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType


def load(target: str, folder: Path) -> Any:
    """Import what `target` names; a path is relative to `folder`, which goes on `sys.path`.

    Whatever the import raises comes through; a name that is not there is an `AttributeError`.
    """
    where, _, name = target.rpartition(":")
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module = _by_path(where, folder) if where.endswith(".py") or "/" in where else importlib.import_module(where)
    try:
        return getattr(module, name)
    except AttributeError:
        raise AttributeError(f"{where} has no {name!r}") from None


def _by_path(where: str, folder: Path) -> ModuleType:
    """Import a file under the name that it has below `folder`.

    Checkpoints name the classes of a state by their module, so the name must be the same in every worker.
    """
    file = (folder / where).resolve()
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    root = folder.resolve()
    if file.is_relative_to(root):
        parts = file.relative_to(root).with_suffix("").parts
        if all(part.isidentifier() for part in parts):
            module = importlib.import_module(".".join(parts))
            if module.__file__ and Path(module.__file__).resolve() == file:
                return module
    # Outside the folder, not a name, or hidden by an installed package of the same name.
    return _alone(file, f"{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}")


def _alone(file: Path, name: str) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
