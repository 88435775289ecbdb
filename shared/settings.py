"""Settings: read from the environment, checked once and together."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any, Final, Literal, Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from .devfile import DevFolder
from .errors import ConfigError
from .ids import NAME_RULE, is_name
from .limits import MAX_PENDING
from .webhooks import LEAST_KEY, key_of

TLS_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")  #: files that a URL may name
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Days = Annotated[float, Field(gt=0, le=36_500)]


def _redis_of_dev() -> str:
    """Where the `outrider dev` of this folder has its Redis, else where a Redis is by default."""
    dev = DevFolder().live()
    return dev.redis_url if dev else "redis://localhost:6379/0"


def _namespace_at(settings: dict[str, Any]) -> str:
    """The namespace of the `outrider dev` whose Redis this is; it may have been started with another one."""
    dev = DevFolder().live()
    return dev.namespace if dev and dev.redis_url == settings.get("redis_url") else "outrider"


class Settings(BaseSettings):
    """All settings; each is the variable `OUTRIDER_<NAME>`. Use `Settings.load()`, which gives one-line errors."""

    model_config = SettingsConfigDict(env_prefix="OUTRIDER_", frozen=True, extra="ignore", populate_by_name=True)

    redis_url: str = Field(
        default_factory=_redis_of_dev, validation_alias=AliasChoices("OUTRIDER_REDIS_URL", "REDIS_URL")
    )
    broker_url: str = Field(default="", validation_alias=AliasChoices("OUTRIDER_BROKER_URL", "CELERY_BROKER_URL"))
    namespace: str = Field(default_factory=_namespace_at)  #: prefix of every key and of the broker's queues
    config: str = "langgraph.json"
    lease_seconds: Seconds = 30
    heartbeat_seconds: Seconds = 5
    sweep_seconds: Seconds = 5
    ring_again_seconds: Seconds = 60  #: then a bell that nobody answered is rung again; the pause doubles each time
    grace_seconds: Seconds = 30  #: how long a worker that is told to stop may take
    max_attempts: int = Field(default=3, ge=1)
    retention_days: Days = 7  #: how long a tree of tasks is kept after all of it has ended
    max_pending: int = Field(default=MAX_PENDING, ge=1)
    max_input_bytes: int = Field(default=8 * 2**20, ge=1)
    max_result_bytes: int = Field(default=16 * 2**20, ge=1024)
    webhook_secret: SecretStr | None = None  #: with which deliveries are signed
    webhook_allow_private: bool = False  #: whether webhooks may be at addresses that are not public
    log_format: Literal["console", "json"] | None = None  #: `None`: console on a terminal, else json
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @classmethod
    def load(cls, **overrides: object) -> Self:
        """Read the environment; `ConfigError` names the variable, its value and what is wanted."""
        try:
            return cls(**overrides)  # type: ignore[arg-type]
        except ValidationError as error:
            fault = error.errors()[0]
            text = fault["msg"].removeprefix("Value error, ")
            if not fault["loc"]:
                raise ConfigError(text) from None
            name = str(fault["loc"][0])
            variable = name if name.isupper() else f"OUTRIDER_{name.upper()}"
            shown = mask_url(str(fault["input"])) if name.upper().endswith("URL") else repr(fault["input"])
            shown = "***" if variable.endswith("SECRET") else shown
            raise ConfigError(f"{variable} = {shown}: {text}") from None

    @field_validator("namespace")
    @classmethod
    def _namespace(cls, value: str) -> str:
        if not is_name(value):
            raise ValueError(NAME_RULE)
        return value

    @field_validator("webhook_secret")
    @classmethod
    def _webhook_secret(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None:
            try:
                key = key_of(value.get_secret_value())
            except ValueError:
                raise ValueError("what follows whsec_ must be base64") from None
            if len(key) < LEAST_KEY:
                raise ValueError(f"must stand for at least {LEAST_KEY} bytes, such as whsec_ and 32 in base64")
        return value

    @field_validator("redis_url")
    @classmethod
    def _redis_url(cls, value: str) -> str:
        if urlsplit(value).scheme not in {"redis", "rediss", "unix"}:
            raise ValueError("must be a redis://, rediss:// or unix:// URL")
        return value

    @field_validator("redis_url", "broker_url")
    @classmethod
    def _usable_url(cls, value: str) -> str:
        parts = urlsplit(value)
        _ = parts.port  # `ValueError` says what is wrong with it
        query = dict(parse_qsl(parts.query))
        for name in TLS_FILES:
            if name in query and not os.access(query[name], os.R_OK):
                raise ValueError(f"{name}={query[name]} is not a file that can be read")
        if query.get("ssl_cert_reqs", "required") not in {"required", "optional", "none"}:
            raise ValueError("ssl_cert_reqs must be required, optional or none")
        return value

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.lease_seconds < 3 * self.heartbeat_seconds:
            raise ValueError(
                f"OUTRIDER_LEASE_SECONDS = {self.lease_seconds:g} must be at least three times "
                f"OUTRIDER_HEARTBEAT_SECONDS = {self.heartbeat_seconds:g}: else one late heartbeat loses a run"
            )
        return self

    @property
    def broker(self) -> str:
        """URL of the broker: its own, or Redis."""
        return self.broker_url or self.redis_url

    @property
    def lease_ms(self) -> int:
        """Length of a lease in milliseconds."""
        return round(self.lease_seconds * 1000)

    @property
    def for_store(self) -> dict[str, int]:
        """The settings of the store."""
        return {"ring_again_ms": self.ring_again_ms, "max_pending": self.max_pending}

    @property
    def retention_ms(self) -> int:
        """How long a tree of tasks that ended is kept, in milliseconds."""
        return round(self.retention_days * 86_400_000)

    @property
    def ring_again_ms(self) -> int:
        """When a bell that nobody answered is rung again, in milliseconds."""
        return round(self.ring_again_seconds * 1000)


def redis_is_named() -> bool:
    """Whether the environment names a Redis, so that a command must not start one of its own."""
    return bool(os.environ.get("OUTRIDER_REDIS_URL") or os.environ.get("REDIS_URL"))


def mask_url(url: str) -> str:
    """The URL with its passwords, in front of the host or in the query, replaced by `***`."""
    parts = urlsplit(url)
    query = re.sub(r"(?<![^&])([^&=]*password=)[^&]*", r"\1***", parts.query)
    netloc = parts.netloc
    if parts.password is not None:
        netloc = f"{parts.username or ''}:***@{netloc.rpartition('@')[2]}"
    return urlunsplit(parts._replace(netloc=netloc, query=query))
