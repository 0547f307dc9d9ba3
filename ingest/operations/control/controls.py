"""Drains worker processes, changes the limits of running sources, and the log level of running workers.

Functions raise `QueueUnavailable` when Redis cannot be used right now. Calling again is safe.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ingest.domain.errors import UserError
from ingest.domain.operating.controls import (
    ALL_HOSTS,
    Drain,
    LevelChange,
    LogLevel,
    Tuning,
    checked_limits,
    checked_reason,
    names_of,
)
from ingest.operations.audit import audited_control
from ingest.operations.backends import Backends
from ingest.operations.control.control_access import ControlAccess
from ingest.operations.declared import DRAIN, LOG_LEVEL, RESET_TUNING, TUNE, UNDRAIN
from ingest.operations.json_types import Count, Time
from ingest.operations.visibility import Visibility
from ingest.queue.operate.monitor import merged


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


class ShownLimits(msgspec.Struct, frozen=True):
    """The changed limits of a source."""

    concurrency: int | None
    rate: float | None
    since: Time
    by: str


class ShownTuning(ShownLimits, frozen=True):
    """The changed limits of one of the sources."""

    source: str


class ShownDrain(msgspec.Struct, frozen=True):
    """The drain of a host, an `ingest worker` or a process."""

    target: str
    reason: str
    since: Time
    by: str


class ShownLogLevel(msgspec.Struct, frozen=True):
    """The changed log level of a host, or of all hosts."""

    host: str
    level: LogLevel
    since: Time
    by: str


class ShownProcess(msgspec.Struct, frozen=True):
    """A worker process with a heartbeat."""

    name: str
    pending: Count
    drained: bool


class Overview(msgspec.Struct, frozen=True):
    """The worker processes, and the controls of the deployment."""

    workers: list[ShownProcess]
    tunings: list[ShownTuning]
    drains: list[ShownDrain]
    log_levels: list[ShownLogLevel]


async def processes(access: ControlAccess, sources: Collection[str] | None = None) -> Sequence[WorkerProcess]:
    """Return the worker processes with a heartbeat, by name, with their entries of these sources or of all."""
    controls = await access.read()
    consumers = await asyncio.gather(
        *(access.monitor(source).consumers() for source in (access.sources if sources is None else sources))
    )
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

    Sources that share the quota get the same rate.

    Raises:
        InvalidControl: a limit is out of range, or both are None.
    """
    checked_limits(concurrency, rate)
    before, now = (await access.read()).tunings, await access.record.now()
    tunings = {
        each: _tuned(before.get(each), Tuning(since=now, by=actor, rate=rate))
        for each in (sharing_quota(access.sources, source) if rate is not None else ())
    }
    tunings[source] = _tuned(before.get(source), Tuning(since=now, by=actor, concurrency=concurrency, rate=rate))
    selection = {"concurrency": concurrency, "rate": rate, "sources": sorted(tunings)}
    async with audited_control(access.audit_log(source), actor, TUNE, selection, len(tunings)):
        # In one step, because all sources with a quota send its rate.
        await access.record.set_tunings(tunings)
    return tunings[source]


async def reset_tuning(access: ControlAccess, source: str, actor: str) -> Tuning | None:
    """Return a source to its configured limits, and return the changed ones, or None if there were none."""
    before = (await access.read()).tunings
    if source not in before:
        return None
    # Sources that share its quota return to the configured rate as well, and keep their concurrency.
    tunings: dict[str, Tuning | None] = {
        each: msgspec.structs.replace(tuning, rate=None) if tuning.concurrency is not None else None
        for each, tuning in before.items()
        if each in sharing_quota(access.sources, source)
    }
    tunings[source] = None
    async with audited_control(access.audit_log(source), actor, RESET_TUNING, {}, len(tunings)):
        await access.record.set_tunings(tunings)
    return before[source]


def sharing_quota(sources: Mapping[str, Backends], source: str) -> Sequence[str]:
    """Return the sources that share the quota of a source, including itself."""
    quota = sources[source].quota
    return [name for name, each in sources.items() if name == source or (quota and each.quota == quota)]


async def set_log_level(access: ControlAccess, level: LogLevel | None, actor: str, host: str = ALL_HOSTS) -> None:
    """Change the log level of the workers on a host, or on all hosts, or return to the configured one with None."""
    change = None if level is None else LevelChange(level=level, since=await access.record.now(), by=actor)
    async with audited_control(access.audit_log(), actor, LOG_LEVEL, {"level": level, "host": host}, 1):
        await access.record.set_log_levels({host: change})


async def overview(access: ControlAccess, sees: Visibility) -> Overview:
    """Return the worker processes, and the controls of the deployment except pauses."""
    sources = [name for name in access.sources if sees.sources is None or name in sees.sources]
    controls, found = await asyncio.gather(access.read(), processes(access, sources))
    tunings = {source: each for source, each in controls.tunings.items() if source in sources}
    return Overview(
        [ShownProcess(each.name, each.pending, each.drain is not None) for each in found],
        [ShownTuning(each.concurrency, each.rate, *_made(each), source) for source, each in tunings.items()],
        [ShownDrain(target, each.reason, *_made(each)) for target, each in controls.drains.items()],
        [ShownLogLevel(host, each.level, *_made(each)) for host, each in controls.log_levels.items()],
    )


def shown_limits(tuning: Tuning | None) -> ShownLimits | None:
    """Return the form of the changed limits of a source in responses."""
    return None if tuning is None else ShownLimits(tuning.concurrency, tuning.rate, *_made(tuning))


def _tuned(before: Tuning | None, changed: Tuning) -> Tuning:
    """The changed limits. One that is None stays as it was changed before."""
    if before is None:
        return changed
    concurrency = before.concurrency if changed.concurrency is None else changed.concurrency
    rate = before.rate if changed.rate is None else changed.rate
    return msgspec.structs.replace(changed, concurrency=concurrency, rate=rate)


def _made(control: Tuning | Drain | LevelChange) -> tuple[str, str]:
    return control.since.isoformat(), control.by
