"""A manual change as the audit log records it."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID


class OperationState(StrEnum):
    """The result of a manual change.

    An unfinished one is still running, or its process died, or PostgreSQL became unavailable. It may have changed something.
    """

    DONE = "done"
    FAILED = "failed"
    UNFINISHED = "unfinished"


@dataclass(frozen=True, slots=True)
class AuditedOperation:
    """A manual change.

    Attributes:
        number: grows with each operation.
        operation: the same in the log events of the operation.
        at: when it began.
        actor: the name of an API key, `cli:` and a Unix user, or `proxy:` and the user of a reverse proxy.
        role: the role of PostgreSQL that has recorded it, which vouches for the actor. None if an earlier release has recorded it.
        action: for example `dead_letters.replay`.
        source: the source that it concerns. Empty for the unnamed source, and for changes of the whole deployment.
        selection: the selected entries or orders, or the new values.
        state: the result.
        ended_at: None if it is unfinished.
        count: changed entries or orders, as far as they are known.
    """

    number: int
    operation: UUID
    at: datetime
    actor: str
    role: str | None
    action: str
    source: str
    selection: Mapping[str, Any]
    state: OperationState
    ended_at: datetime | None
    count: int | None


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Operations that match all given conditions.

    Attributes:
        sources: one of these. None for all.
        actor: this actor.
        action: this action, or with a dot at its end all actions that begin so, such as `dead_letters.`.
        since: begun at this time or later.
        until: begun before this time.
    """

    sources: Collection[str] | None = None
    actor: str | None = None
    action: str | None = None
    since: datetime | None = None
    until: datetime | None = None
