"""The client, async: submit tasks, look at them, wait for them, end them. `sync.py` has the same for sync code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from ..shared.errors import BadInput
from ..shared.ids import check_id
from ..shared.settings import Settings
from . import answering, cancelling, inbox, listing, registering, submitting, updating, waiting
from .files import Files, file_store, files_of
from .reading import read_saved, read_task
from .session import Session
from .submit_request import SubmitRequest

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping

    from ..shared.filestore import RedisStore
    from ..shared.limits import Limits
    from ..shared.listings import Page, Tree
    from ..shared.notification import Notification
    from ..shared.records import Event, Task
    from ..shared.rubric import Rubric
    from ..shared.statuses import Status, Strategy
    from ..shared.transitions import CancelReply
    from .answering import Answered
    from .submitting import Submitted
    from .updating import Updated


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
        self._session = Session(self.settings)

    async def __aenter__(self) -> Self:
        await self._session.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

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
        request = SubmitRequest(
            agent,
            text,
            limits=limits,
            state=state,
            context=context,
            configurable=configurable,
            title=title,
            metadata=metadata,
            queue=queue,
            idempotency_key=idempotency_key,
            notify_parent=notify_parent,
            mode=mode,
            answer_within=answer_within,
            rubric=rubric,
            webhook=webhook,
        )
        return await submitting.submit(self._session, request, parent)

    async def register(
        self,
        agent: str | None = None,
        home: Literal["external"] = "external",
        task_id: str | None = None,
        *,
        title: str | None = None,
    ) -> Task:
        """Make a parent of code that runs elsewhere: a task without runs, with children and an `inbox`.

        `agent` is the name under which people see that code; `langgraph.json` need not have it. With the `task_id`
        of a parent that is there, that one is returned. A parent that is `idle`, and neither read nor told of anything
        for `OUTRIDER_RETENTION_DAYS`, is removed as every tree is.
        """
        return await registering.register(self._session, agent, home=home, task_id=task_id, title=title)

    def inbox(self, parent_id: str) -> AsyncGenerator[Notification, None]:
        """The notifications of a registered parent, as they come: `async for note in o.inbox(parent_id)`.

        A notification is acknowledged when the loop asks for the next one, or by `acknowledge`; until then it comes
        again, with the same id, wherever the inbox is read next. One reader at a time has an inbox, by a lease; another
        one waits until that one has ended or died. It ends when the parent was cancelled and all is read. Redis may
        restart meanwhile. Raises `UnknownTask`, `BadInput` where the task runs in workers, and `InboxLost` where
        another reader took over.
        """
        return inbox.notes(self._session, check_id(parent_id, "parent"))

    async def acknowledge(self, parent_id: str, note: Notification) -> None:
        """Mark this notification of a registered parent, and all before it, as dealt with."""
        await inbox.unread(self._session, parent_id, saved=note.seq, after=note.seq)

    async def get(self, task_id: str) -> Task:
        """The task with its runs and its result; `UnknownTask` where there is none."""
        return await read_task(self._session, task_id)

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
        return await listing.page(self._session, status=status, agent=agent, parent=parent, limit=limit, before=before)

    async def tree(self, task_id: str) -> Tree:
        """The task and all its descendants, children oldest first, without results and runs."""
        return await listing.tree(self._session, task_id)

    async def wait(self, task_id: str, timeout: float | None = None) -> Task:  # noqa: ASYNC109 raises its own error
        """Wait until the task has ended with no run queued, or waits for a person; returns it as `get` does.

        After `timeout` seconds it raises `WaitTimeout`, and the task goes on. Redis may restart meanwhile.
        """
        return await waiting.wait(self._session, task_id, timeout)

    def follow(self, task_id: str, after: str = "0") -> AsyncGenerator[Event, None]:
        """Every event of the task after the event id `after`, as it comes; ends when the task has settled."""
        return waiting.follow(self._session, task_id, after)

    async def answer(self, task_id: str, value: Any, *, interrupt: str | None = None) -> Answered:
        """Answer what a waiting task asks: `value` is a JSON value, `interrupt` the id of the question.

        Without an id the task must have one open question (else `SeveralQuestions`, which names them). Several answers
        are gathered, and the last one starts the run that goes on with them. Raises `NotWaiting` where nothing is
        asked, `AnswerConflict` where this is not asked, or was answered before, `BadInput` where the question lists
        tool calls to review and the answer does not decide each of them; then nothing was changed.
        """
        return await answering.answer(self._session, task_id, value, interrupt)

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
        return await updating.update(self._session, task_id, text, strategy, state=state, rubric=rubric)

    async def cancel(self, task_id: str, *, keep_children: bool = False) -> CancelReply:
        """End a task now, and its descendants unless they are kept.

        A task that had ended keeps its status, and the answer says which. Its parent is told, unless it is the one who
        cancels, from inside its run.
        """
        return await cancelling.cancel(self._session, task_id, keep_children=keep_children)

    async def result(self, task_id: str) -> Any:
        """The task's result: text, a JSON value, or `None` as long as there is none."""
        return (await self.get(task_id)).result

    async def state(self, task_id: str) -> dict[str, Any]:
        """The agent's state as it was last saved, read without the agent; empty before the first step.

        Messages come as LangChain's objects.
        """
        return await read_saved(self._session, task_id)

    async def files(self, task_id: str) -> Files:
        """The files that the task shares with its tree; the first 1,000, and whether there are more."""
        return await files_of(self._session, task_id)

    @property
    def store(self) -> RedisStore:
        """LangGraph's `BaseStore` that every agent's graph gets: it holds files, memories and skills.

        For this client's loop, while it is open.
        """
        return file_store(self._session)
