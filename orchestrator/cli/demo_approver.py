"""Approves the searches that the demo's leads plan: asks on the terminal, or approves at once."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from ...shared.errors import AnswerConflict, NotWaiting
from ..approvals import APPROVE, REJECT, decide
from .console import as_text, complain, visible

if TYPE_CHECKING:
    from ...shared.records import Interrupt
    from ..client import Outrider
    from .demo_board import Board, Row

ANSWERS = {"": True, "y": True, "yes": True, "n": False, "no": False}


class Approver:
    """Answers the questions of tasks, one after the other; `at_once` without asking anybody."""

    def __init__(self, outrider: Outrider, board: Board, *, at_once: bool) -> None:
        self._outrider, self._board = outrider, board
        self._one = asyncio.Lock()
        self._at_once = at_once
        if not at_once and not sys.stdin.isatty():
            complain("stdin is no terminal: the leads' plans of searches are approved (as by --yes)")
            self._at_once = True

    async def answer(self, row: Row, task_id: str) -> None:
        """Answer what the task asks, unless somebody else does first."""
        async with self._one:
            for question in (await self._outrider.get(task_id)).interrupts:
                decision = APPROVE if self._at_once or await self._approves(row, question) else REJECT
                with suppress(NotWaiting, AnswerConflict):
                    await self._outrider.answer(task_id, decide(question, decision), interrupt=question.id)

    async def _approves(self, row: Row, question: Interrupt) -> bool:
        with self._board.aside():
            print(visible(f"\n{row.number}  {row.title}\nThe lead wants to search for:"), file=sys.stderr)
            for action in question.value["action_requests"]:
                print(visible(f"  {as_text(action['args'].get('query'))}"), file=sys.stderr)
            while True:
                print("Approve? [Y/n] ", end="", file=sys.stderr, flush=True)
                typed = await _line()
                if typed is None:
                    return False
                if (approved := ANSWERS.get(typed.strip().lower())) is not None:
                    return approved


async def _line() -> str | None:
    """A line of the terminal, or `None` at its end. No thread reads it: one could not be ended by Ctrl-C."""
    loop, came = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), came.set)
    try:
        await came.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline() or None
