"""The events of a task's stream: an interface. Names and data may be added, never renamed."""

from __future__ import annotations

from typing import Final

STEP: Final = "step"
TOKENS: Final = "tokens"
TOOL_STARTED: Final = "tool.started"
TOOL_ENDED: Final = "tool.ended"
PROGRESS: Final = "progress"
CUSTOM: Final = "custom"
DROPPED: Final = "dropped"
GRADE_STARTED: Final = "grade.started"
GRADE_FINISHED: Final = "grade.finished"

#: Every type, and what its data holds.
EVENTS: Final[dict[str, str]] = {
    "task.submitted": "the task was written: `agent`, `title`",
    "task.registered": "an external parent was written: `agent`, `title`",
    "run.claimed": "a worker took the run: `worker`",
    "run.waits": "its agent has as many runs at work as it may, so it waits: `for` (`slot`)",
    "run.given_back": "its worker shuts down; it goes on from its last step",
    "run.lost": "its worker was not heard of; it goes on from its last step",
    "run.retried": "an error is worth another attempt, after so many seconds: `error_type`, `seconds`",
    "task.resting": "the run ended well while subagents are at work: no worker is held",
    "task.woken": "news came to a task at rest, and a run was queued for it",
    "inbox.arrived": "a notification of a subagent's end, or of its question to a person, came: `task_id`",
    "inbox.left": "the reader of an external parent's inbox has left it",
    "task.grading": "the run ended well, and its work waits for a grader",
    GRADE_STARTED: "a grader works: `grading_run_id`, `iteration`",
    GRADE_FINISHED: "the work was graded: as above, and `result`, `explanation`, `unverified`, `gaps`",
    "task.revising": "the work goes back to the agent, and a run was queued for it",
    "task.waiting": "the run asks a person: `status`, `interrupts` (ids of questions), `error_type` of a bad answer",
    "task.answered": "a person answered: `status`, `id` of the question, `open` questions that are left",
    "task.updated": "a message was given to the task, and a run was queued for it",
    "task.follow_up": "a message waits for the end of the active run",
    "run.ended": "the run has ended, and the next follow-up begins: `status`, `error_type`",
    "task.cancelled": "the task was cancelled: `status`",
    "task.settled": "the task has ended: `status`, `error_type`",
    STEP: "a node of the graph has ended: `node`",
    TOKENS: "a model wrote text: `text`, `node`, `message_id`",
    TOOL_STARTED: "a tool was called: `name`, `id` of the call, `args` as text, cut",
    TOOL_ENDED: "a tool has ended: `name`, `id`, `ok`",
    PROGRESS: "the agent said how far it is: `done`, `total`, `fraction`, `note`",
    CUSTOM: "the agent wrote to LangGraph's stream writer: `data`",
    DROPPED: "events that came faster than they could be written: `count`",
}
