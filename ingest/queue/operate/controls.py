"""Records the controls of a deployment in Redis, in one hash for all sources and one consumer group.

A change is one atomic step with a new version. A reader that already has this version reads nothing else. If Redis loses the hash, in
a restart without an append-only file or by FLUSHALL, the first worker process that notices it writes its last known controls again.
"""

import secrets
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from redis.asyncio import Redis

from ingest.domain.operating.controls import NO_CONTROLS, Controls, Drain, LevelChange, Pause, Tuning
from ingest.queue.layout.keys import DEFAULT_GROUP
from ingest.queue.redis.connection import translated, translating
from ingest.queue.redis.scripts import load
from ingest.telemetry.logs import get_logger

_log = get_logger("queue")
_PAUSE, _TUNING, _DRAIN, _LOG_LEVEL = "pause:", "tuning:", "drain:", "log-level:"
# Fields of one step. There are a few, unless nearly all sources are paused.
_PAGE = 1000

Control = Pause | Tuning | Drain | LevelChange
_Control = TypeVar("_Control", Pause, Tuning, Drain, LevelChange)


def controls_key(stream: str, group: str = DEFAULT_GROUP, what: str = "") -> str:
    """Return the key of the controls of a deployment, whose unnamed source has the queue `stream`, or of another hash next to them."""
    return f"ingest:{{{stream}}}:controls{what}" + ("" if group == DEFAULT_GROUP else f":{group}")


class ControlRecord:
    """The controls of one deployment and consumer group.

    Methods raise `QueueUnavailable` when Redis cannot be used right now. The same call may then be repeated.

    Args:
        stream: the name of the queue of the unnamed source.
        group: the consumer group.
    """

    def __init__(self, client: Redis, stream: str, group: str = DEFAULT_GROUP) -> None:
        self._client = client
        self._key = controls_key(stream, group)
        self._write = load(client, "write_controls")
        self._restore = load(client, "restore_controls")

    @translating
    async def read(self, known: Controls = NO_CONTROLS) -> Controls:
        """Return the controls. They are the `known` ones if their version is unchanged, which takes one command."""
        raw: Any = await self._client.hget(self._key, "version")
        version = (raw or b"").decode()
        if version == known.version:
            return known
        fields = {name: value async for name, value in self._client.hscan_iter(self._key, count=_PAGE)}
        # A change in the meantime has another version, so that the next call reads it again.
        return Controls(
            version=version,
            pauses=_decoded(fields, _PAUSE, Pause),
            tunings=_decoded(fields, _TUNING, Tuning),
            drains=_decoded(fields, _DRAIN, Drain),
            log_levels=_decoded(fields, _LOG_LEVEL, LevelChange),
        )

    @translating
    async def keep(self, known: Controls) -> Controls:
        """Return the controls as `read` does, for a process that keeps them. If Redis has lost them, the `known` ones are written again."""
        found = await self.read(known)
        if found.version or not known.version:
            return found
        fields: list[Any] = ["version", known.version]
        for kind, controls in _by_kind(known):
            for name, control in controls.items():
                fields += [kind + name, msgspec.json.encode(control)]
        with translated():
            if not await self._restore([self._key], fields):
                return await self.read()
        _log.warning(
            "controls_restored", pauses=sorted(known.pauses), tunings=sorted(known.tunings), drains=sorted(known.drains)
        )
        return known

    @translating
    async def now(self) -> datetime:
        """Return the time of Redis, by which pauses begin and end."""
        seconds, microseconds = await self._client.time()
        return datetime.fromtimestamp(seconds + microseconds / 1e6, UTC)

    async def set_pauses(self, pauses: Mapping[str, Pause | None]) -> None:
        """Pause sources by their names, and resume those with None."""
        await self._change(_PAUSE, pauses)

    async def set_tunings(self, tunings: Mapping[str, Tuning | None]) -> None:
        """Change the limits of sources by their names, and return to the configured ones with None."""
        await self._change(_TUNING, tunings)

    async def set_drains(self, drains: Mapping[str, Drain | None]) -> None:
        """Drain hosts or processes by their names, and let those with None begin orders again."""
        await self._change(_DRAIN, drains)

    async def set_log_levels(self, levels: Mapping[str, LevelChange | None]) -> None:
        """Change the log level of hosts by their names, and return to the configured one with None."""
        await self._change(_LOG_LEVEL, levels)

    @translating
    async def _change(self, kind: str, changes: Mapping[str, Control | None]) -> None:
        removed = [kind + name for name, control in changes.items() if control is None]
        arguments: list[Any] = [secrets.token_hex(8), len(removed), *removed]
        for name, control in changes.items():
            if control is not None:
                arguments += [kind + name, msgspec.json.encode(control)]
        with translated():
            await self._write([self._key], arguments)


def _by_kind(controls: Controls) -> Iterator[tuple[str, Mapping[str, Control]]]:
    yield _PAUSE, controls.pauses
    yield _TUNING, controls.tunings
    yield _DRAIN, controls.drains
    yield _LOG_LEVEL, controls.log_levels


def _decoded(fields: Mapping[bytes, bytes], kind: str, of: type[_Control]) -> dict[str, _Control]:
    """The controls of one kind by their names. One that this release cannot read counts as not set."""
    found = {}
    for field, value in sorted(fields.items()):
        name = field.decode(errors="replace")
        if name.startswith(kind):
            try:
                found[name.removeprefix(kind)] = msgspec.json.decode(value, type=of)
            except msgspec.DecodeError:
                continue
    return found
