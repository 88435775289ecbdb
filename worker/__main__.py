"""`python -m outrider.worker`: Celery's worker on our app, in this very process, so that its pid takes the signals."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Become `celery worker` with the same arguments."""
    command = [sys.executable, "-m", "celery", "-A", "outrider.worker.main", "worker", *sys.argv[1:]]
    os.execv(sys.executable, command)  # noqa: S606 no shell is wanted


if __name__ == "__main__":
    main()
