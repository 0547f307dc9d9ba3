"""Pauses and resumes sources. Workers follow within two seconds.

While a source is paused, no request to its external API begins. Requests in flight finish, and their orders are stored. Orders that have
been read and not begun are released, and no attempt counts. The queue continues to accept orders, unless the pause rejects them.

Functions raise `QueueUnavailable` when Redis cannot be used right now. Calling again is safe.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any

import msgspec

from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.operating.controls import Pause, checked_duration, checked_reason
from ingest.operations.audit import audited_control
from ingest.operations.control.control_access import ControlAccess
from ingest.operations.declared import PAUSE, RESUME
from ingest.operations.json_types import Time


@dataclass(frozen=True, slots=True)
class PauseRequest:
    """A pause that an operator requests. Parts are valid when it is constructed.

    Attributes:
        seconds: after which it ends by itself. None until the source is resumed.
        reason: for other operators.
        rejects_orders: whether producers are rejected.
        holds_polls: whether the polls of the list wait.

    Raises:
        InvalidControl: the duration or the reason is invalid.
    """

    seconds: float | None = None
    reason: str = ""
    rejects_orders: bool = False
    holds_polls: bool = False

    def __post_init__(self) -> None:
        """Check the parts."""
        checked_duration(self.seconds)
        object.__setattr__(self, "reason", checked_reason(self.reason))


@dataclass(frozen=True, slots=True)
class SourcePause:
    """Whether a source is paused, and its orders that a change concerns.

    Attributes:
        source: the name of the source.
        pause: None if it is not paused.
        queue: the state of its queue.
    """

    source: str
    pause: Pause | None
    queue: QueueState


async def preview(access: ControlAccess, sources: Collection[str]) -> Sequence[SourcePause]:
    """Return the current pauses of sources, and the orders that a pause would let wait. Changes nothing."""
    controls, now = await asyncio.gather(access.read(), access.record.now())
    states = await asyncio.gather(*(access.monitor(source).state() for source in sources))
    return [
        SourcePause(source, controls.pause_of(source, now), state)
        for source, state in zip(sources, states, strict=True)
    ]


async def pause(
    access: ControlAccess, sources: Collection[str], request: PauseRequest, actor: str
) -> Mapping[str, Pause]:
    """Pause sources, and return the pause of each. A pause replaces the earlier one of its source."""
    now = await access.record.now()
    until = None if request.seconds is None else now + timedelta(seconds=request.seconds)
    new = Pause(
        since=now,
        until=until,
        by=actor,
        reason=request.reason,
        rejects_orders=request.rejects_orders,
        holds_polls=request.holds_polls,
    )
    before = await access.read()
    pauses = {}
    for source in sources:
        earlier = before.pause_of(source, now)
        # The source has been paused since then.
        pauses[source] = new if earlier is None else msgspec.structs.replace(new, since=earlier.since)
        async with audited_control(access.audit_log(source), actor, PAUSE, recorded(pauses[source]), 1):
            await access.record.set_pauses({source: pauses[source]})
    return pauses


async def resume(access: ControlAccess, sources: Collection[str], actor: str) -> Sequence[str]:
    """Resume the paused sources among these, and return their names."""
    controls, now = await asyncio.gather(access.read(), access.record.now())
    paused = [source for source in sources if controls.pause_of(source, now) is not None]
    for source in paused:
        async with audited_control(access.audit_log(source), actor, RESUME, {}, 1):
            await access.record.set_pauses({source: None})
    return paused


class ShownPause(msgspec.Struct, frozen=True):
    """A pause of a source."""

    until: Time | None
    reason: str
    rejects_orders: bool
    holds_polls: bool
    since: Time
    by: str
    lasted: Annotated[float, msgspec.Meta(description="Seconds since its begin.")]
    left: Annotated[float | None, msgspec.Meta(description="Seconds until its end, or null if it has to be resumed.")]


def shown(pause: Pause | None, now: datetime) -> ShownPause | None:
    """Return the form of a pause in responses."""
    if pause is None:
        return None
    left = None if pause.until is None else round(max(0.0, (pause.until - now).total_seconds()), 1)
    lasted = round(max(0.0, (now - pause.since).total_seconds()), 1)
    return ShownPause(**recorded(pause), since=pause.since.isoformat(), by=pause.by, lasted=lasted, left=left)


def recorded(pause: Pause) -> dict[str, Any]:
    """Return the parts of a pause that the operator has chosen, as the audit log records them."""
    return {
        "until": None if pause.until is None else pause.until.isoformat(),
        "reason": pause.reason,
        "rejects_orders": pause.rejects_orders,
        "holds_polls": pause.holds_polls,
    }
