"""Who may import what. Read from the sources, so that an import inside a function counts too."""

import ast
import re
import sys
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("shared", "worker", "orchestrator", "examples")

# A library is imported where it is used to do its work, so that the rest can be read and tested without it.
HOMES = {
    "celery": {
        "shared/broker.py",
        "worker/main.py",
        "worker/tasks.py",
        "worker/remote_commands.py",  # its control commands
        "worker/stop_consuming.py",  # its steps at the end
    },
    "kombu": {"shared/broker.py"},
    "redis": {
        "shared/store.py",
        "shared/checkpoint*.py",
        "shared/filestore.py",
        "shared/connections.py",
        "shared/batching.py",
        "shared/broker_url.py",  # URLs as redis-py reads them
        "orchestrator/inbox.py",
        "orchestrator/embedded.py",
        "worker/process.py",  # how long a worker bears with a Redis that is away
    },
    "langgraph": {
        "worker/*",
        "shared/checkpoint*.py",
        "shared/filestore.py",
        "shared/backend.py",
        "shared/messages.py",
        "shared/snapshots.py",
        "shared/thread_state.py",
        "orchestrator/middleware.py",
        "orchestrator/caller.py",
        "orchestrator/tools.py",
    },
    "deepagents": {"shared/backend.py"},  # an extra: only who uses it imports this file
}
# What a library raises may be caught anywhere.
ANYWHERE = ("redis.exceptions", "kombu.exceptions")


@dataclass(frozen=True)
class Import:
    """One import: the module in full, where it stands, and whether only type checkers see it."""

    module: str
    names: tuple[str, ...]
    file: str
    line: int
    typing_only: bool

    @property
    def room(self):
        return self.file.split("/")[0]

    def is_of(self, *modules):
        return any(self.module == module or self.module.startswith(module + ".") for module in modules)

    def __str__(self):
        return f"{self.file}:{self.line} imports {self.module}"


def imports_of(source, file):
    """List the imports of one source, relative ones resolved as inside `outrider`."""
    found = []

    def visit(node, *, typing_only):
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, (), file, node.lineno, typing_only) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ""
            if node.level:
                package = ["outrider", *Path(file).parts[:-1]]
                base = ".".join(package[: len(package) - node.level + 1])
            module = ".".join(part for part in (base, node.module) if part)
            names = tuple(alias.name for alias in node.names)
            found.append(Import(module, names, file, node.lineno, typing_only))
            # `from .. import worker` names a module, not a thing in one.
            found.extend(Import(f"{module}.{name}", (), file, node.lineno, typing_only) for name in names)
        for child in ast.iter_child_nodes(node):
            guarded = isinstance(node, ast.If) and child in node.body and "TYPE_CHECKING" in ast.unparse(node.test)
            visit(child, typing_only=typing_only or guarded)

    visit(ast.parse(source), typing_only=False)
    return found


@pytest.fixture(scope="module")
def imports():
    sources = [path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py"))]
    return [
        found
        for path in sources
        for found in imports_of(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
    ]


def offences(imports, room, *modules):
    return [str(found) for found in imports if found.room == room and found.is_of(*modules)]


def test_the_worker_does_not_know_the_orchestrator(imports):
    assert not offences(imports, "worker", "outrider.orchestrator", "outrider.examples")


def test_the_orchestrator_does_not_know_the_worker(imports):
    assert not offences(imports, "orchestrator", "outrider.worker")


def test_shared_knows_neither(imports):
    assert not offences(imports, "shared", "outrider.worker", "outrider.orchestrator", "outrider.examples")


def test_the_rooms_do_not_import_the_public_names(imports):
    """Else importing one part would import all of them, in a circle."""
    own = [found for found in imports if found.room != "examples"]
    assert not [str(found) for found in own if found.module == "outrider" and found.names]


def test_examples_use_only_the_public_names(imports):
    rooms = tuple(f"outrider.{room}" for room in ROOMS if room != "examples")
    assert not offences(imports, "examples", *rooms)


@pytest.mark.parametrize("library", HOMES)
def test_a_library_is_imported_only_at_home(imports, library):
    homes = HOMES[library]
    assert not [
        str(found)
        for found in imports
        if found.is_of(library)
        and not found.is_of(*ANYWHERE)
        and not found.typing_only
        and found.room != "examples"
        and not any(fnmatch(found.file, home) for home in homes)
    ]


def test_a_bare_room_is_never_imported(imports):
    """`import shared` works only in the checkout, and would hide a user's own module."""
    assert not [str(found) for found in imports if found.is_of(*ROOMS)]


def test_every_library_that_is_imported_is_asked_for(imports):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    texts = [*project["dependencies"], *project["optional-dependencies"]["deepagents"]]
    asked = {re.split(r"[^A-Za-z0-9_.-]", text)[0] for text in texts}
    given_by = packages_distributions()
    known = sys.stdlib_module_names | {"outrider"}
    foreign = [found for found in imports if found.module.split(".")[0] not in known and not found.typing_only]
    assert not [str(found) for found in foreign if asked.isdisjoint(given_by.get(found.module.split(".")[0], ()))]


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("import celery.app", "celery.app"),
        ("from ..worker.runner import run", "outrider.worker.runner"),
        ("from .. import worker", "outrider.worker"),
        ("from .store import Store", "outrider.shared.store"),
        ("def f():\n    from outrider.worker import main", "outrider.worker.main"),
        ("if TYPE_CHECKING:\n    import redis", "redis"),
    ],
)
def test_every_form_of_import_is_seen(source, module):
    found = imports_of(source, "shared/somewhere.py")
    assert module in [one.module for one in found]
    assert all(one.typing_only == ("TYPE_CHECKING" in source) for one in found)


def test_the_list_of_rooms_names_every_file_and_no_other():
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for room in ("shared", "worker", "orchestrator"):
        table = re.search(rf"^\| `{room}/` \| \|\n(.*?)\n\n", document, re.MULTILINE | re.DOTALL)[1]
        named = re.findall(r"`([\w*]+\.py)`", table)
        files = {path.name for path in (ROOT / room).glob("*.py")} - {"__init__.py", "__main__.py"}
        assert {file for file in files if not any(fnmatch(file, name) for name in named)} == set(), room
        assert {name for name in named if not any(fnmatch(file, name) for file in files)} == set(), room
