"""The client: hand work to agents, look at it, wait for it, end it. Async; `sync.py` gives the same to sync code."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, Self

from ..shared import catalogue
from ..shared.bells import Bell, bell_for
from ..shared.config import Config
from ..shared.connections import reachable
from ..shared.context import running
from ..shared.errors import BadInput, OutriderError, ParentClosed, UnknownTask
from ..shared.ids import check_id, is_name, new_id, shorten
from ..shared.outside import EXTERNAL
from ..shared.settings import Settings
from ..shared.statuses import Status
from . import links
from .answering import Answered, check_answer
from .files import files_of
from .inbox import notes
from .jsonable import json_object
from .listing import page, tree_of
from .rubrics import regrades
from .submit import FORK, Asked, Submitted, check, title_of
from .updating import Updated, check_strategy, check_update
from .waiting import Watch, check_event_id, check_timeout
from .webhook import check_webhook

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping
    from types import TracebackType

    from ..shared.context import Running
    from ..shared.filestore import RedisStore
    from ..shared.limits import Limits
    from ..shared.listings import Page, Tree
    from ..shared.notes import Notification
    from ..shared.records import Event, Task
    from ..shared.rubric import Rubric
    from ..shared.snapshots import Snapshot
    from ..shared.statuses import Strategy
    from ..shared.store import Store
    from ..shared.transitions import CancelReply, Submission
    from .files import Files


class Outrider:
    """Background agents on Celery and Redis.

    `async with Outrider() as o:` opens it on the running loop and closes it. Settings come from the environment
    (`OUTRIDER_…`); `redis_url`, `namespace` and `config` (path of `langgraph.json`) go before it. Every method raises
    `RedisUnreachable` where Redis does not answer, and checks ids before anything is read.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        redis_url: str | None = None,
        namespace: str | None = None,
        config: str | None = None,
    ) -> None:
        given = {"redis_url": redis_url, "namespace": namespace, "config": config}
        overrides = {name: value for name, value in given.items() if value is not None}
        if settings is not None and overrides:
            raise BadInput(f"give settings, or {', '.join(overrides)}, not both")
        self.settings = settings or Settings.load(**overrides)
        self._config: Config | None = None
        self._heard = catalogue.Heard()
        self._links: links.Links | None = None

    async def __aenter__(self) -> Self:
        self._links = links.open_links(self.settings)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        opened, self._links = self._links, None
        if opened is not None:
            await opened.store.redis.aclose()

    @classmethod
    def inside(cls, run: Running) -> Self:
        """A client with what the worker has that executes this run, its connections too; it is never closed."""
        client = cls(run.settings)
        client._config = run.config
        client._links = links.links_of(run)
        return client

    async def submit(
        self,
        agent: str,
        text: str,
        *,
        limits: Limits | Mapping[str, Any] | None = None,
        state: Mapping[str, Any] | None = None,
        context: Mapping[str, Any] | None = None,
        configurable: Mapping[str, Any] | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        queue: str | None = None,
        idempotency_key: str | None = None,
        parent: str | Literal[False] | None = None,
        notify_parent: bool = True,
        mode: Literal["isolated", "fork"] = "isolated",
        answer_within: float | None = None,
        rubric: Rubric | Mapping[str, Any] | str | None = None,
        webhook: str | None = None,
    ) -> Submitted:
        """Hand a task to an agent of `langgraph.json`, and return at once.

        `parent` is the task that will be told how this one ends; inside a run that is the running task, unless another
        one is named, or none by `False`. A parent that is cancelled or unknown takes no children (`ParentClosed`). With
        `notify_parent=False` the parent is not told, and does not stay open for it. A parent whose agent has no
        messages cannot be told: to name it raises `BadInput`, and inside its run a note says so.

        An `isolated` child gets the text and the state that are given here, and nothing of its parent's. A `fork`
        begins with its parent's conversation as the parent's model saw it when it was saved last, and with the files of
        the parent's state; it may start no tasks itself unless `limits.max_children` says so.

        By a `rubric` (else the agent's own) a grader judges the work before the task ends, and sends it back to the
        agent as often as the rubric allows. A child does not inherit its parent's.

        `webhook` is a URL that is told of the task's ends, also of a cancel: a signed POST with what a parent is told,
        again and again until it was taken, with one id and the same bytes (docs/parents.md). It needs
        `OUTRIDER_WEBHOOK_SECRET`, and a public address.

        `state` is more input state beside the text, `context` and `configurable` go to every run of the task, `title`
        is what people see of it (never the text). A question that the task asks a person waits `answer_within` seconds
        for its answers, then the task ends as `timeout`; without that it waits for ever. Raises `BadInput`,
        `UnknownAgent` or `BrokenAgent` before anything is written. With an `idempotency_key` a second call with the
        same arguments gives the task of the first; with others it raises `IdempotencyConflict`.
        """
        asked = Asked(
            agent,
            text,
            limits,
            state,
            context,
            configurable,
            title,
            metadata,
            queue,
            idempotency_key,
            notify_parent,
            mode,
            answer_within,
            rubric,
            webhook,
        )
        return await self.submit_asked(asked, parent)

    async def submit_asked(
        self, asked: Asked, parent: str | Literal[False] | None = None, snapshot: Snapshot | None = None
    ) -> Submitted:
        """Do what `submit` does. `snapshot` is what a fork begins with, where the caller has its parent's state."""
        config = await self._configured()
        inside = running.get()
        parent_id = inside.claim.task_id if parent is None and inside else (None if parent is False else parent)
        with reachable(self.settings):
            known = await self._heard.read(self._store.redis, self._store.keys)
            above = await self._parent(parent_id) if parent_id is not None else None
        if asked.webhook is not None:
            await asyncio.to_thread(check_webhook, asked.webhook, self.settings)
        checked = check(asked, config, known.agents, self.settings.max_input_bytes, above)
        submission = checked.submission
        claim = inside.claim if inside and inside.claim.task_id == parent_id else None
        with reachable(self.settings):
            if submission.mode == FORK and snapshot is None:
                snapshot = await self._snapshot(submission.parent_id)
            written = await self._store.submit(submission, claim, snapshot)
            # A command repeated after a lost reply finds what it wrote itself.
            created = written.run_id == submission.run_id
            status = Status.PENDING if created else (await self._store.peek(written.task_id)).status
        if created:
            checked.notes += await self._ring(_first_bell(submission))
            queues = dict.fromkeys(queue for queue in (submission.queue, submission.grade_queue) if queue)
            checked.notes += [note for queue in queues for note in _unserved(queue, known)]
        return Submitted(
            task_id=written.task_id,
            run_id=written.run_id,
            status=status,
            created=created,
            notes=tuple(checked.notes),
        )

    async def register(
        self,
        agent: str | None = None,
        home: Literal["external"] = "external",
        task_id: str | None = None,
        *,
        title: str | None = None,
    ) -> Task:
        """Make a parent of code that runs elsewhere: a task without runs, with children and an `inbox`.

        `agent` is what people see of that code; no agent of `langgraph.json` need have this name. With the `task_id`
        of a parent that is there, that one is returned. A parent that is `idle`, and neither read nor told of anything
        for `OUTRIDER_RETENTION_DAYS`, is removed as every tree is.
        """
        if home != EXTERNAL:
            raise BadInput(f"home {shorten(repr(home))} must be {EXTERNAL!r}: a task for a worker is submitted")
        name = EXTERNAL if agent is None else agent
        if not is_name(name):
            raise BadInput(f"agent {shorten(repr(agent))} must match [A-Za-z0-9][A-Za-z0-9_.-]{{0,63}}")
        parent_id, (shown, _) = new_id() if task_id is None else check_id(task_id), title_of(title, name)
        with reachable(self.settings):
            await self._store.register(parent_id, name, shown)
            return await self._store.get(parent_id)

    def inbox(self, parent_id: str) -> AsyncGenerator[Notification, None]:
        """What a registered parent is told of its children, as it comes: `async for note in o.inbox(parent_id)`.

        A notification is acknowledged when the loop asks for the next one, or by `acknowledge`; until then it comes
        again, with the same id, wherever the inbox is read next. One reader at a time has an inbox, by a lease; another
        one waits until that one has ended or died. It ends when the parent was cancelled and all is read. Redis may
        restart meanwhile. Raises `UnknownTask`, `BadInput` where the task is at home in a worker, and `InboxLost` where
        another reader took over.
        """
        return notes(check_id(parent_id, "parent"), self._store, self._watch, self.settings)

    async def acknowledge(self, parent_id: str, note: Notification) -> None:
        """Note that a registered parent has dealt with this notification, and all before it."""
        await self.unread(check_id(parent_id, "parent"), saved=note.seq, after=note.seq)

    async def unread(self, parent_id: str, *, saved: int, after: int) -> tuple[Notification, ...]:
        """What came for a registered parent after a number, a page of it; all up to `saved` is dealt with."""
        with reachable(self.settings):
            return await self._store.unread(parent_id, saved=saved, after=after)

    async def get(self, task_id: str) -> Task:
        """The task with its runs and its result; `UnknownTask` where there is none."""
        check_id(task_id)
        with reachable(self.settings):
            return await self._store.get(task_id)

    async def list(
        self,
        *,
        status: Status | str | Collection[Status | str] = (),
        agent: str | None = None,
        parent: str | None = None,
        limit: int = 50,
        before: str | None = None,
    ) -> Page:
        """A page of tasks, newest first, without results and runs.

        `status` is one or several, `limit` 0 to 1000, `before` the `next` of the page before. `more` tells exactly
        whether older ones match.
        """
        with reachable(self.settings):
            return await page(self._store, status=status, agent=agent, parent=parent, limit=limit, before=before)

    async def tree(self, task_id: str) -> Tree:
        """The task and all its descendants, children oldest first, without results and runs."""
        check_id(task_id)
        with reachable(self.settings):
            return await tree_of(self._store, await self._store.peek(task_id))

    async def wait(self, task_id: str, timeout: float | None = None) -> Task:  # noqa: ASYNC109 raises its own error
        """Wait until the task has ended with no run queued, or waits for a person; returns it as `get` does.

        After `timeout` seconds it raises `WaitTimeout`, and the task goes on. Redis may restart meanwhile.
        """
        check_id(task_id)
        bound = check_timeout(timeout)
        store = self._store
        with reachable(self.settings):
            after = await store.last_event_id(task_id)
            task = await store.peek(task_id)
        async with self._watch() as watch:
            await watch.rest(task, after, bound)
        return await self.get(task_id)

    async def follow(self, task_id: str, after: str = "0") -> AsyncIterator[Event]:
        """Every event of the task after the event id `after`, as it comes; ends when the task has settled."""
        check_id(task_id)
        check_event_id(after)
        with reachable(self.settings):
            task = await self._store.peek(task_id)
        async with self._watch() as watch:
            async for event in watch.events(task, after):
                yield event

    async def answer(self, task_id: str, value: Any, *, interrupt: str | None = None) -> Answered:
        """Answer what a waiting task asks: `value` is a JSON value, `interrupt` the id of the question.

        Without an id the task must have one open question (else `SeveralQuestions`, which names them). Several answers
        are gathered, and the last one starts the run that goes on with them. Raises `NotWaiting` where nothing is
        asked, `AnswerConflict` where this is not asked, or was answered before; then nothing was changed.
        """
        check_id(task_id)
        given, notes = check_answer(value, self.settings.max_input_bytes)
        named, store = None if interrupt is None else check_id(interrupt, "interrupt"), self._store
        with reachable(self.settings):
            facts = await store.facts(task_id)
            if facts is None:
                raise UnknownTask(task_id)
            event_id = await store.last_event_id(task_id)
            answered = await store.answer(facts, given, interrupt=named)
        for bell in answered.bells:
            notes += await self._ring(bell)
        return Answered(
            task_id=task_id,
            interrupt=answered.interrupt,
            open=answered.open,
            run_id=answered.run_id,
            status=Status.WAITING if answered.open else Status.PENDING,
            event_id=event_id,
            notes=tuple(notes),
        )

    async def update(
        self,
        task_id: str,
        text: str,
        *,
        strategy: Strategy | Literal["interrupt", "enqueue"] | None = None,
        state: Mapping[str, Any] | None = None,
        rubric: Rubric | Mapping[str, Any] | str | None = None,
    ) -> Updated:
        """Give a task one more message, on the conversation that it has; `state` is more input state beside it.

        Without an active run it starts one at once, also where the task had ended: limits count anew, a question that
        it asked is dropped (the answer tells which), and its parent hears of its next end. With one it is refused with
        `TaskActive`, unless `strategy` says what to do: `interrupt` stops that run, keeps what it has saved, and starts
        the message's run in the same step; `enqueue` lets the message wait, in order, until the task would end or rest,
        or until its question is answered. A cancel drops what waits. A second call is a second message.

        A `rubric` replaces the task's from now on, also for the work that it is at; it needs `langgraph.json`.
        """
        return await self.update_once(task_id, text, strategy, state, rubric=rubric)

    async def update_once(
        self,
        task_id: str,
        text: str,
        strategy: Strategy | str | None,
        state: Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        rubric: Rubric | Mapping[str, Any] | str | None = None,
    ) -> Updated:
        """Give a message as `update` does; a second call with the same `key` is answered alike and changes nothing."""
        check_id(task_id)
        how, store, inside = check_strategy(strategy), self._store, running.get()
        with reachable(self.settings):
            task = await store.peek(task_id)
            known = (await self._heard.read(store.redis, store.keys)).agents.get(task.agent)
            graded = None if rubric is None else regrades(rubric, task.agent, await self._configured())
            if graded and graded.state:
                state = {**json_object({} if state is None else state, "state", []), **graded.state}
            given, notes = check_update(task, text, state, known, self.settings.max_input_bytes)
            event_id = await store.last_event_id(task_id)
            claim = inside.claim if inside and inside.claim.task_id in task.ancestors else None
            updated = await store.update(
                task_id,
                given,
                how,
                key=key,
                claim=claim,
                rubric=graded.rubric if graded else None,
                grade_queue=graded.queue if graded else None,
            )
            status = (await store.peek(task_id)).status
        for bell in updated.bells:
            notes += await self._ring(bell)
        return Updated(
            task_id=task_id,
            run_id=updated.run_id,
            status=status,
            overtaken=updated.overtaken,
            dropped=updated.dropped,
            event_id=event_id,
            notes=tuple(notes),
        )

    async def cancel(self, task_id: str, *, keep_children: bool = False) -> CancelReply:
        """End a task now, and its descendants unless they are kept.

        A task that had ended keeps its status, and the answer says which. Its parent is told, unless it is the one who
        cancels, from inside its run.
        """
        inside = running.get()
        return await self.cancel_by(inside.claim.task_id if inside else None, task_id, keep_children=keep_children)

    async def cancel_by(self, who: str | None, task_id: str, *, keep_children: bool = False) -> CancelReply:
        """Do what `cancel` does; `who` is the task that cancels."""
        check_id(task_id)
        with reachable(self.settings):
            answer = await self._store.cancel(task_id, keep_children=keep_children, by=who)
        for bell in answer.bells:
            await self._ring(bell)
        return answer

    async def result(self, task_id: str) -> Any:
        """The task's result: text, a JSON value, or `None` as long as there is none."""
        return (await self.get(task_id)).result

    async def state(self, task_id: str) -> dict[str, Any]:
        """The agent's state as it was last saved, read without the agent; empty before the first step.

        Messages come as LangChain's objects.
        """
        from ..shared.thread_state import read_state  # noqa: PLC0415 LangGraph takes its time to import

        check_id(task_id)
        store = self._store
        with reachable(self.settings):
            await store.peek(task_id)
            return await read_state(store.redis, store.keys, task_id)

    async def files(self, task_id: str) -> Files:
        """The files that the task shares with its tree; the first 1,000, and whether there are more."""
        check_id(task_id)
        with reachable(self.settings):
            return await files_of(self.store, await self._store.peek(task_id))

    @property
    def store(self) -> RedisStore:
        """LangGraph's `BaseStore` that every agent's graph gets, where files, memories and skills lie.

        For this client's loop, while it is open.
        """
        from ..shared.filestore import RedisStore  # noqa: PLC0415 LangGraph takes its time to import

        return RedisStore(self._store.redis, self._store.keys)

    async def _configured(self) -> Config:
        if self._config is None:
            self._config = await asyncio.to_thread(Config.load, self.settings.config)
        return self._config

    @property
    def _open(self) -> links.Links:
        if self._links is None:
            raise OutriderError("the client is not open: use `async with Outrider() as o:`")
        return self._links

    @property
    def _store(self) -> Store:
        return self._open.store

    def _watch(self) -> Watch:
        return Watch(self._store, self._open.reader, self.settings)

    async def _parent(self, parent_id: str) -> Task:
        try:
            return await self._store.peek(check_id(parent_id, "parent"))
        except UnknownTask:
            raise ParentClosed(parent_id, "there is no such task") from None

    async def _snapshot(self, parent_id: str | None) -> Snapshot:
        if parent_id is None:
            raise BadInput("a fork needs a parent whose conversation it begins with: name one (parent=…, --parent ID)")
        from ..shared.snapshots import Snapshot  # noqa: PLC0415 LangGraph takes its time to import
        from ..shared.thread_state import read_state  # noqa: PLC0415

        state = await read_state(self._store.redis, self._store.keys, parent_id)
        if not state.get("messages"):
            raise BadInput(f"parent {parent_id} has no conversation yet: wait for its first step, or submit isolated")
        return Snapshot.of(state)

    async def _ring(self, bell: Bell) -> tuple[str, ...]:
        """Ring; a note where the broker does not take the bell."""
        try:
            await self._open.ring(bell)
        except OutriderError as error:
            return (f"{error}; the task stands, and a worker's sweeper will ring for it",)
        return ()


def _unserved(queue: str, known: catalogue.Catalogue) -> tuple[str, ...]:
    """A note where workers have told which queues they serve, and this is none of them."""
    if not known.queues or queue in known.queues:
        return ()
    return (f"no worker serves the queue {queue} now: the task waits for one (outrider worker -Q {queue})",)


def _first_bell(submission: Submission) -> Bell:
    return bell_for(
        submission.task_id,
        submission.run_id,
        queue=submission.queue,
        agent=submission.agent,
        title=submission.title,
    )
