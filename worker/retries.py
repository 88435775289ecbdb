"""Whether an agent's error is worth another attempt, and how long that must wait at least."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING

from langgraph.errors import GraphRecursionError

from ..shared.errors import OutriderError
from .transient import is_overflow, is_transient, retry_after

if TYPE_CHECKING:
    from collections.abc import Iterable

LONGEST_RETRY_AFTER = 600.0  #: seconds that a provider's `retry-after` is honoured for; a longer one is cut to this
SPREAD = 0.1  #: a random part of the pause, at most this, is added: a provider names one moment to all callers


def is_retryable(error: BaseException, named: Iterable[str] = ()) -> bool:
    """Whether another attempt may end otherwise: what passes by itself, and what the agent names.

    A name is a type's, bare or with the module in which it can be found; what is below the type counts.
    """
    # These end the same way however often they are tried.
    if isinstance(error, GraphRecursionError | OutriderError) or is_overflow(error):
        return False
    return is_transient(error) or any(_is_a(error, name) for name in named)


def least_pause(error: BaseException) -> float:
    """Seconds before the next attempt that the provider asks for; 0 where it asks for none."""
    asked = min(retry_after(error) or 0.0, LONGEST_RETRY_AFTER)
    return asked * random.uniform(1, 1 + SPREAD)  # noqa: S311 no secret


def _is_a(error: BaseException, name: str) -> bool:
    module, _, bare = name.rpartition(".")
    if not module:
        return any(kind.__name__ == bare for kind in type(error).__mro__)
    # Not imported: an error cannot be of a type whose module was never loaded.
    kind = getattr(sys.modules.get(module), bare, None)
    return isinstance(kind, type) and isinstance(error, kind)
