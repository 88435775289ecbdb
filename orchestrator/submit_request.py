"""A request to submit: checked, and made into a `Submission` or refused, before anything is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..shared.errors import BadInput, UnknownAgent, no_fork
from ..shared.ids import NAME_RULE, is_name, new_id, shorten
from ..shared.limits import Limits
from ..shared.queues import PARENTS, SUBAGENTS
from ..shared.store_external import EXTERNAL
from ..shared.text import one_line
from ..shared.transitions import Submission
from .jsonable import cleaned, json_object, replaced
from .run_input import check_input, check_size, is_deaf
from .task_grading import grading_for

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..shared.catalogue import Published
    from ..shared.config import AgentEntry, Config
    from ..shared.records import Task
    from ..shared.rubric import Rubric

MAX_TITLE = 200  #: characters; a longer title is cut, and the answer says so
ISOLATED, FORK = "isolated", "fork"  #: what a child begins with: its text alone, or its parent's conversation too
LONGEST_WAIT = 100 * 365 * 86_400  #: seconds for an answer: Redis keeps moments exactly up to some thousand years
MAX_KEY = 200  #: characters of an idempotency key

#: What a run's `configurable` gets from the worker; a caller's value would lead its checkpoints astray.
RESERVED = frozenset({"thread_id", "checkpoint_id", "checkpoint_ns", "checkpoint_map", "run_id"})


@dataclass(frozen=True, slots=True)
class SubmitRequest:
    """The arguments of a submit as the caller gave them, not checked yet."""

    agent: Any
    text: Any
    limits: Limits | Mapping[str, Any] | None = None
    state: Mapping[str, Any] | None = None
    context: Mapping[str, Any] | None = None
    configurable: Mapping[str, Any] | None = None
    title: str | None = None
    metadata: Mapping[str, Any] | None = None
    queue: str | None = None
    idempotency_key: str | None = None
    notify_parent: bool = True
    mode: str = ISOLATED
    answer_within: float | None = None
    rubric: Rubric | Mapping[str, Any] | str | None = None
    webhook: str | None = None


def check_request(
    request: SubmitRequest,
    config: Config,
    published: Mapping[str, Published],
    max_bytes: int,
    parent: Task | None = None,
) -> tuple[Submission, list[str]]:
    """Return the submission, and notes for the caller; `BadInput`, `UnknownAgent` or `BrokenAgent` says what to mend.

    `published` is what workers know of the agents; an agent that no worker knows yet is accepted.
    """
    entry = config.agents.get(request.agent) if isinstance(request.agent, str) else None
    if entry is None:
        raise UnknownAgent(request.agent, sorted(config.agents))
    known = published.get(entry.name)
    changed: list[str] = []
    grading = grading_for(request.rubric, entry, config)
    given, notes = check_input(
        entry.name, request.text, request.state, known, added=grading.state, text_key=entry.input
    )
    context = None if request.context is None else json_object(request.context, "context", changed)
    configurable = _configurable(request.configurable, changed)
    metadata = json_object({} if request.metadata is None else request.metadata, "metadata", changed)
    check_size(max_bytes, **given, context=context, configurable=configurable, metadata=metadata)
    title, cut = title_of(request.title, entry.name)
    notes += cut + replaced(changed)
    queue = _queue(request.queue)
    if not isinstance(request.notify_parent, bool):
        raise BadInput(f"notify_parent {shorten(repr(request.notify_parent))} must be True or False")
    if parent is not None and request.notify_parent:
        _check_hears(parent, published)
    _check_mode(request.mode, entry, known)
    limits = Limits.check(request.limits).over(entry.limits)
    if request.mode == FORK and limits.max_children is None:
        limits = limits.model_copy(update={"max_children": 0})  # its conversation hands work out: it would do so again
    return (
        Submission(
            task_id=new_id(),
            run_id=new_id(),
            agent=entry.name,
            title=title,
            queue=queue or entry.queue or SUBAGENTS,
            input=given,
            mode=request.mode,
            limits=limits,
            metadata=metadata,
            context=context,
            configurable=configurable,
            own_queue=queue,
            wake_queue=queue or entry.queue or PARENTS,
            parent_id=parent.task_id if parent else None,
            ancestors=(*parent.ancestors, parent.task_id) if parent else (),
            notify_parent=request.notify_parent,
            rubric=grading.rubric,
            grade_queue=grading.queue,
            webhook=request.webhook,
            answer_within_ms=_answer_within(request.answer_within),
            max_attempts=entry.max_attempts,
            idempotency_key=_idempotency_key(request.idempotency_key),
        ),
        notes,
    )


def _check_hears(parent: Task, published: Mapping[str, Published]) -> None:
    if parent.home != EXTERNAL and is_deaf(published.get(parent.agent)):
        raise BadInput(
            f"parent {parent.task_id} cannot be woken: its agent {parent.agent!r} has no messages to take news in "
            "(submit with notify_parent=False, or give the agent a `messages` state key)"
        )


def _check_mode(mode: Any, entry: AgentEntry, known: Published | None) -> None:
    if mode not in (ISOLATED, FORK):  # a tuple, since the mode may be anything, even unhashable
        raise BadInput(f"mode {shorten(repr(mode))} must be {ISOLATED!r} or {FORK!r}")
    if mode == FORK and (entry.input or is_deaf(known)):
        raise no_fork(entry.name)


def _configurable(value: Mapping[str, Any] | None, changed: list[str]) -> dict[str, Any]:
    configurable = json_object({} if value is None else value, "configurable", changed)
    for key in configurable:
        if key in RESERVED or key.startswith("__"):
            raise BadInput(f"configurable.{key} is set by the worker: leave it out")
    return configurable


def title_of(title: Any, agent: str) -> tuple[str, list[str]]:
    """The title of a task, by default its agent's name; and a note where it was cut."""
    if title is None:
        return agent, []
    if not isinstance(title, str) or not title.strip():
        raise BadInput(f"title {shorten(repr(title))} must be text that is not empty")
    cut = one_line(title, MAX_TITLE)
    whole = len(one_line(title, len(title)))
    return cut, [f"title cut to {MAX_TITLE} of {whole:,} characters"] if whole > MAX_TITLE else []


def _queue(queue: Any) -> str | None:
    if queue is not None and not is_name(queue):
        raise BadInput(f"queue {shorten(repr(queue))} {NAME_RULE}")
    return None if queue is None else str(queue)


def _answer_within(seconds: Any) -> int | None:
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds < LONGEST_WAIT:
        raise BadInput(
            f"answer_within {shorten(repr(seconds))} must be a number of seconds above 0 and below {LONGEST_WAIT:,}"
        )
    return max(1, int(seconds * 1000))


def _idempotency_key(key: Any) -> str | None:
    if key is None:
        return None
    if not isinstance(key, str) or not 1 <= len(key) <= MAX_KEY:
        raise BadInput(f"idempotency key {shorten(repr(key))} must be text of 1 to {MAX_KEY} characters")
    return cleaned(key, "idempotency key", [])
