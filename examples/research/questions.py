"""What `outrider demo` asks about the project's own documents."""

from __future__ import annotations

QUESTIONS: tuple[str, ...] = (
    "What does a bell carry?",
    "Who rings a lost bell again?",
    "What happens when a lease runs out?",
    "What does a cancel raise first?",
    "What does the saver store of list channels?",
)
