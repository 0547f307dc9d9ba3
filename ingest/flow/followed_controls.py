"""Follows the controls that operators set, in one worker process for all of its sources: pauses, drains, changed limits and log levels.

The process reads the controls once a second while it sends requests, or while it is paused, and every five seconds otherwise. In addition,
no request begins by controls that were read longer ago, so that none begins more than two seconds after a pause. Each reading is one command
for all sources. While Redis is unavailable, the last known controls apply.

If the process dies, its successor reads the controls before it reads an order.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from weakref import WeakSet

from ingest.domain.errors import NotSent, Unavailable
from ingest.domain.operating.controls import NO_CONTROLS, Controls, LogLevel, Tuning
from ingest.flow.availability import log_unavailable
from ingest.flow.ticks import sleep_to_tick
from ingest.telemetry.logs import get_logger

_log = get_logger("controls")

_EVERY = 1.0
_EVERY_IDLE = 5.0
# Seconds after a reading in which a request may begin without another one. Longer than the time between two readings.
_FRESH = 1.3
# A request does not wait longer for a reading.
_LONGEST_READING = 1.0
# How often a list that is held looks for the end of its pause.
_HELD_STEP = 0.25

ReadControls = Callable[[Controls], Awaitable[Controls]]
"""Reads the controls, given the known ones. Raises `Unavailable`. Implemented by `ingest.queue.operate.controls`."""


class SourceControls:
    """The controls of one source in one process. Orders may begin until `apply` is called.

    Attributes:
        reason: why no order may begin. Empty if orders may begin.
        is_drained: whether this process should receive no further work.
        holds_list: whether the source's list may not be read.
        paused: set while no order may begin.
        resumed: set while orders may begin.
        tuning: the changed limits in the beginning.
        tuned: set when the limits have changed since then.

    Args:
        check: waits until the controls are as recent as a new request requires.
    """

    def __init__(
        self, source: str = "", check: Callable[[], Awaitable[None]] | None = None, tuning: Tuning | None = None
    ) -> None:
        self._source = source
        self._check = check
        self.reason = ""
        self.is_drained = False
        self.holds_list = False
        self.paused = asyncio.Event()
        self.resumed = asyncio.Event()
        self.resumed.set()
        self.tuning = tuning
        self.tuned = asyncio.Event()

    @property
    def is_paused(self) -> bool:
        """Whether no order and no request may begin."""
        return bool(self.reason)

    async def admit(self) -> None:
        """Let a request to the external API begin.

        Raises:
            NotSent: the source is paused, or the process is drained.
        """
        if self._check is not None:
            await self._check()
        if self.reason:
            raise NotSent(self.reason)

    async def admit_page(self) -> None:
        """Wait until the next page of the source's list may be requested."""
        while True:
            if self._check is not None:
                await self._check()
            if not self.holds_list:
                return
            await asyncio.sleep(_HELD_STEP)

    def apply(self, controls: Controls, process: str, now: datetime) -> None:
        """Adopt the controls of the deployment for this process."""
        pause = controls.pause_of(self._source, now)
        self.is_drained = controls.drain_of(process) is not None
        self.reason = "the source is paused" if pause else "the process is drained" if self.is_drained else ""
        # Not by a drain, because a process that has the turn to read the list would keep it from the others.
        self.holds_list = pause is not None and pause.holds_polls
        (self.paused if self.reason else self.resumed).set()
        (self.resumed if self.reason else self.paused).clear()
        if _limits(controls.tunings.get(self._source)) != _limits(self.tuning):
            self.tuned.set()


class FollowedControls:
    """The controls of the deployment, in one process.

    Args:
        read: reads the controls.
        process: the name of the process.
        now: the time of the queue server.
        set_log_level: sets the level of the log, or the configured one with None.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        read: ReadControls,
        process: str,
        now: Callable[[], datetime],
        set_log_level: Callable[[LogLevel | None], None] = lambda _: None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._process = process
        self._now = now
        self._set_log_level = set_log_level
        self._clock = clock
        self._controls = NO_CONTROLS
        self._log_level: LogLevel | None = None
        self._sources: WeakSet[SourceControls] = WeakSet()
        self._read_at = float("-inf")
        self._is_used = self._is_unavailable = False
        self._turn = asyncio.Lock()

    def of(self, source: str) -> SourceControls:
        """Return the controls of a source, which this keeps up to date while they are in use."""
        controls = SourceControls(source, self.check, self._controls.tunings.get(source))
        controls.apply(self._controls, self._process, self._now())
        self._sources.add(controls)
        return controls

    async def run(self) -> None:
        """Keep the controls up to date until cancelled."""
        while True:
            await sleep_to_tick(_EVERY)
            age = self._clock() - self._read_at
            if self._is_used or age >= _EVERY_IDLE or any(each.is_paused for each in self._sources):
                self._is_used = False
                await self._refresh(_EVERY / 2)

    def close(self) -> None:
        """See `FleetPart`. There is nothing to end."""

    async def check(self) -> None:
        """Wait until the controls are as recent as a new request requires, if Redis is available."""
        self._is_used = True
        if self._clock() - self._read_at > _FRESH:
            await self._refresh(_FRESH)

    async def _refresh(self, older_than: float) -> None:
        async with self._turn:
            # Another call may have read them while this one waited.
            if self._clock() - self._read_at <= older_than:
                return
            began_at = self._clock()
            try:
                async with asyncio.timeout(_LONGEST_READING):
                    self._controls = await self._read(self._controls)
            except (Unavailable, TimeoutError) as error:
                if not self._is_unavailable:
                    log_unavailable(_log, "controls_unavailable", error)
                self._is_unavailable = True
                # Requests do not wait again for a server that does not respond.
                self._read_at = self._clock()
            else:
                self._is_unavailable = False
                # Not before the reply, because other requests begin by these controls from then on.
                self._read_at = began_at
            self._apply()

    def _apply(self) -> None:
        now = self._now()
        for each in list(self._sources):
            each.apply(self._controls, self._process, now)
        level = self._controls.log_level_of(self._process)
        if level != self._log_level:
            self._log_level = level
            # By the level before, because a higher one would hide it.
            _log.info("log_level_changed", log_level=level or "configured")
            self._set_log_level(level)


async def follow_while(
    controls: SourceControls, on_pause: Callable[[str], None], on_resume: Callable[[], None]
) -> None:
    """Call `on_pause` with the reason whenever a source is paused, and `on_resume` when it is resumed, until cancelled."""
    while True:
        await controls.paused.wait()
        on_pause(controls.reason)
        await controls.resumed.wait()
        on_resume()


def _limits(tuning: Tuning | None) -> tuple[int | None, float | None]:
    return (None, None) if tuning is None else (tuning.concurrency, tuning.rate)
