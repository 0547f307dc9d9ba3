"""Reports which code blocks the event loop, while it does.

The loop announces when it will check in next, and a watchdog thread verifies that it did. If the loop is overdue by the
threshold, the stack of its thread shows what blocks it: the watchdog logs one warning with that stack, and one line when
the loop runs again.

A process that was stopped, or got no CPU, does not have a blocked loop: the watchdog thread was delayed as well while the
process used little CPU, so it starts counting again. If only the loop's thread got too little CPU, `cpu_seconds` shows it.

Limits: a block counts from the first check-in that the loop missed, so one that is slightly longer than the threshold may
go unreported. A call that computes without releasing the GIL stops the watchdog as well: the warning follows afterwards,
with the stack at that moment, usually still the caller's. A call that waits while it holds the GIL looks like a stopped
process, and a C function that the loop itself calls has no Python stack: these two appear in the lag histogram only.
"""

import asyncio
import signal
import sys
import threading
import time
from itertools import takewhile
from traceback import StackSummary, walk_stack

import msgspec

from ingest.telemetry.logs import get_logger

_log = get_logger("loop")

# How many of the innermost frames are shown. The frames outside the runner are the same in every stack.
_FRAMES = 20
_RUNNER = asyncio.Runner.run.__code__
# How many reported locations are remembered.
_LOCATIONS = 100

_Location = tuple[tuple[str, str], ...]


class _CheckIn(msgspec.Struct, frozen=True):
    """The last check-in of the loop: when it was, when the next is due, and the CPU seconds of the process until then."""

    at: float
    due: float
    cpu: float


class _Reported(msgspec.Struct):
    at: float
    suppressed: int = 0


class BlockWatch:
    """Watches the event loop of the thread that constructs it.

    Args:
        threshold: seconds overdue after which the loop counts as blocked.
        again_after: seconds until the same stack is reported again; blocks in between are counted.
    """

    def __init__(self, threshold: float, again_after: float = 10.0) -> None:
        self._threshold = threshold
        self._again_after = again_after
        self._loop_thread = threading.get_ident()
        self._check_in = _CheckIn(time.monotonic(), time.monotonic() + threshold, time.process_time())
        self._unblocked_at = 0.0
        self._awake_since = 0.0
        self._reported: dict[_Location, _Reported] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop-blocks", daemon=True)

    def start(self) -> None:
        """Start the watchdog thread. Call it after the fork: no thread survives one."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for it unless it is blocked on writing its log."""
        self._stopped.set()
        self._thread.join(timeout=1.0)

    def expect(self, due: float) -> None:
        """Check in: the loop calls this, and will call it again at `due` (monotonic seconds)."""
        now = time.monotonic()
        if now > self._check_in.due + self._threshold:
            self._unblocked_at = now
        self._check_in = _CheckIn(now, due, time.process_time())

    def _watch(self) -> None:
        # The main thread blocks these before it exits, so that a late signal does not decide the exit code: the signal must not
        # be delivered to this thread instead.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        while not self._stopped.is_set():
            check_in = self._check_in
            since = max(check_in.due, self._awake_since)
            left = since + self._threshold - time.monotonic()
            if left > 0:
                # Two sleeps: a stop of the process may go unnoticed within one.
                half = self._threshold / 2
                self._sleep(left - half if left > half else left)
                continue
            stack = self._stack()
            if not stack:
                self._awake_since = time.monotonic()
            elif self._check_in is check_in:
                self._report(check_in, since, stack)

    def _sleep(self, seconds: float) -> None:
        began, used = time.monotonic(), time.process_time()
        self._stopped.wait(seconds)
        late, used = time.monotonic() - began - seconds, time.process_time() - used
        # Late because the process was stopped, or because a call kept the GIL? Such a call uses CPU while this thread is late.
        if late > self._threshold / 4 and used < seconds + late / 8:
            self._awake_since = time.monotonic()

    def _stack(self) -> StackSummary:
        innermost = sys._current_frames()[self._loop_thread]  # noqa: SLF001  its documented use, for debuggers
        frames = takewhile(lambda step: step[0].f_code is not _RUNNER, walk_stack(innermost))
        stack = StackSummary.extract(frames, limit=_FRAMES)
        stack.reverse()
        return stack

    def _report(self, check_in: _CheckIn, since: float, stack: StackSummary) -> None:
        """Warn, and wait until the loop runs again: one block, one warning."""
        suppressed = self._suppressed(tuple((frame.filename, frame.name) for frame in stack))
        if suppressed is not None:
            seconds = time.monotonic() - since
            _log.warning(
                "event_loop_blocked",
                seconds=round(seconds, 3),
                cpu_seconds=round(min(seconds, time.process_time() - check_in.cpu), 3),
                suppressed=suppressed,
                stack="".join(stack.format()).rstrip(),
            )
        while self._check_in is check_in and not self._stopped.is_set():
            self._sleep(self._threshold / 2)
        if suppressed is not None and self._check_in is not check_in:
            _log.info("event_loop_unblocked", seconds=round(self._unblocked_at - since, 3))

    def _suppressed(self, location: _Location) -> int | None:
        """Return how many blocks at this location were not reported; None if this one is not to be reported either."""
        now = time.monotonic()
        last = self._reported.pop(location, None)
        if last is not None and now < last.at + self._again_after:
            last.suppressed += 1
            self._reported[location] = last
            return None
        self._reported[location] = _Reported(now)
        if len(self._reported) > _LOCATIONS:
            del self._reported[next(iter(self._reported))]
        return last.suppressed if last is not None else 0
