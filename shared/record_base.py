"""The base of every record: frozen, with moments that are written one way."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer


def from_ms(milliseconds: int) -> datetime:
    """A moment on the Redis clock, given as Unix ms."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _from_ms(value: object) -> object:
    return from_ms(value) if isinstance(value, int) else value


def rfc3339(moment: datetime) -> str:
    """A moment in UTC with milliseconds, as in `2026-03-01T12:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


#: A moment on the Redis clock; built from Unix ms.
Moment = Annotated[datetime, BeforeValidator(_from_ms), PlainSerializer(rfc3339, when_used="json")]


class Record(BaseModel):
    """The base of every record."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def to_json(self) -> dict[str, Any]:
        """The public form: JSON values only."""
        return self.model_dump(mode="json")
