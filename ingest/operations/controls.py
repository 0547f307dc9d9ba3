"""Drains worker processes, changes the limits of running sources, and the log level of running workers.

Functions raise `QueueUnavailable` when Redis cannot be used right now. Calling again is safe.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ingest.domain.controls import (
    ALL_HOSTS,
    Controls,
    Drain,
    LevelChange,
    LogLevel,
    Tuning,
    checked_limits,
    checked_reason,
    names_of,
)
from ingest.domain.errors import UserError
from ingest.operations.audit import audited_control
from ingest.operations.control_access import ControlAccess
from ingest.queue.operate.partitioned.monitor import merged

DRAIN, UNDRAIN, TUNE, RESET_TUNING, LOG_LEVEL = "drain", "drain.undo", "tune", "tune.reset", "log_level"


class NoSuchProcess(UserError):
    """No worker process, host or drain has this name."""


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """A worker process with a heartbeat.

    Attributes:
        name: of its consumers.
        pending: entries that it holds, of all sources.
        drain: None if it begins orders.
    """

    name: str
    pending: int
    drain: Drain | None


async def processes(access: ControlAccess) -> Sequence[WorkerProcess]:
    """Return the worker processes with a heartbeat, by name."""
    controls = await access.read()
    consumers = await asyncio.gather(*(access.monitor(source).consumers() for source in access.sources))
    alive = (each for each in merged(consumers) if each.state == "alive")
    return [WorkerProcess(each.name, each.pending, controls.drain_of(each.name)) for each in alive]


async def matching(access: ControlAccess, target: str) -> Sequence[WorkerProcess]:
    """Return the worker processes that a drain of `target` concerns. Changes nothing.

    Args:
        access: to the controls.
        target: a host, an `ingest worker` or a process.
    """
    return [each for each in await processes(access) if target in names_of(each.name)]


async def drain(access: ControlAccess, target: str, actor: str, reason: str = "") -> Sequence[WorkerProcess]:
    """Let the processes of a host, of an `ingest worker`, or one process begin no orders. Return them.

    They release the orders that they have not begun to other processes, and do not end.

    Raises:
        NoSuchProcess: no process with a heartbeat has this name, or is on a host with this name.
    """
    found = await matching(access, target)
    if not found:
        raise NoSuchProcess(f"no worker process is named {target[:100]!r} or runs on a host of this name")
    new = Drain(since=await access.record.now(), by=actor, reason=checked_reason(reason))
    selection = {"target": target, "reason": new.reason}
    async with audited_control(access.audit_log(), actor, DRAIN, selection, len(found)):
        await access.record.set_drains({target: new})
    return found


async def undrain(access: ControlAccess, target: str, actor: str) -> Sequence[WorkerProcess]:
    """Let drained processes begin orders again. Return them. They may have ended in the meantime.

    Raises:
        NoSuchProcess: nothing with this name is drained.
    """
    found, controls = await asyncio.gather(matching(access, target), access.read())
    if target not in controls.drains:
        drained = ", ".join(sorted(controls.drains)) or "none"
        raise NoSuchProcess(f"{target[:100]!r} is not drained (drained: {drained})")
    async with audited_control(access.audit_log(), actor, UNDRAIN, {"target": target}, len(found)):
        await access.record.set_drains({target: None})
    return found


async def tune(
    access: ControlAccess, source: str, actor: str, *, concurrency: int | None = None, rate: float | None = None
) -> Tuning:
    """Change the limits of a running source. A limit that is None stays as it was changed before, or as configured.

    Raises:
        InvalidControl: a limit is out of range, or both are None.
    """
    checked_limits(concurrency, rate)
    before = (await access.read()).tunings.get(source)
    if before is not None:
        concurrency = before.concurrency if concurrency is None else concurrency
        rate = before.rate if rate is None else rate
    new = Tuning(since=await access.record.now(), by=actor, concurrency=concurrency, rate=rate)
    async with audited_control(access.audit_log(source), actor, TUNE, {"concurrency": concurrency, "rate": rate}, 1):
        await access.record.set_tunings({source: new})
    return new


async def reset_tuning(access: ControlAccess, source: str, actor: str) -> Tuning | None:
    """Return a source to its configured limits, and return the changed ones, or None if there were none."""
    before = (await access.read()).tunings.get(source)
    if before is not None:
        async with audited_control(access.audit_log(source), actor, RESET_TUNING, {}, 1):
            await access.record.set_tunings({source: None})
    return before


async def set_log_level(access: ControlAccess, level: LogLevel | None, actor: str, host: str = ALL_HOSTS) -> None:
    """Change the log level of the workers on a host, or on all hosts, or return to the configured one with None."""
    change = None if level is None else LevelChange(level=level, since=await access.record.now(), by=actor)
    async with audited_control(access.audit_log(), actor, LOG_LEVEL, {"level": level, "host": host}, 1):
        await access.record.set_log_levels({host: change})


def as_object(controls: Controls) -> dict[str, Any]:
    """Convert the controls except pauses for JSON."""
    return {
        "tunings": [
            {"source": source, "concurrency": each.concurrency, "rate": each.rate, **_made(each)}
            for source, each in controls.tunings.items()
        ],
        "drains": [
            {"target": target, "reason": each.reason, **_made(each)} for target, each in controls.drains.items()
        ],
        "log_levels": [
            {"host": host, "level": each.level, **_made(each)} for host, each in controls.log_levels.items()
        ],
    }


def _made(control: Tuning | Drain | LevelChange) -> dict[str, str]:
    return {"since": control.since.isoformat(), "by": control.by}
