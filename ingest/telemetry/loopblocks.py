"""Reports the code that blocks the event loop, while it is blocked.

At each check-in the loop sets the time of the next one, and a watchdog thread verifies it. If the loop is overdue by the
threshold, the watchdog logs one warning with the stack of the loop's thread, and one line when the loop runs again.

If the whole process was stopped or got no CPU, the watchdog thread was delayed as well. It then starts counting again
instead of reporting a block. If only the loop's thread got too little CPU, `cpu_seconds` shows it.

Limits: a block counts from the first missed check-in, so a block slightly longer than the threshold may go unreported.
A call that computes without releasing the GIL also stops the watchdog. The warning follows afterwards with the stack at
that moment, usually still the caller's. A call that waits while it holds the GIL looks like a stopped process, and a C
function called by the loop itself leaves no Python stack. Both appear only in the lag histogram.
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

# The number of innermost frames shown. The frames outside the runner are the same in every stack.
_FRAMES = 20
_RUNNER = asyncio.Runner.run.__code__
# The number of reported locations that are kept.
_LOCATIONS = 100

_Location = tuple[tuple[str, str], ...]


class _CheckIn(msgspec.Struct, frozen=True):
    """The time of the loop's last check-in, the time the next is due, and the CPU seconds used by the process so far."""

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
        again_after: seconds until the same stack is reported again. Blocks in between are counted.
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
        """Start the watchdog thread. Call it after the fork, because threads do not survive a fork."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for it unless it is blocked on writing its log."""
        self._stopped.set()
        self._thread.join(timeout=1.0)

    def expect(self, due: float) -> None:
        """Check in. The loop calls this, and calls it again at `due` (monotonic seconds)."""
        now = time.monotonic()
        if now > self._check_in.due + self._threshold:
            self._unblocked_at = now
        self._check_in = _CheckIn(now, due, time.process_time())

    def _watch(self) -> None:
        # The main thread blocks these before it exits, so that a late signal cannot change the exit code. This thread must not
        # receive the signal instead.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
        while not self._stopped.is_set():
            check_in = self._check_in
            since = max(check_in.due, self._awake_since)
            left = since + self._threshold - time.monotonic()
            if left > 0:
                # Two sleeps, because a stop of the process may go unnoticed within one.
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
        # A call that holds the GIL uses CPU while this thread is late, unlike a stopped process.
        if late > self._threshold / 4 and used < seconds + late / 8:
            self._awake_since = time.monotonic()

    def _stack(self) -> StackSummary:
        innermost = sys._current_frames()[self._loop_thread]  # noqa: SLF001  its documented use, for debuggers
        frames = takewhile(lambda step: step[0].f_code is not _RUNNER, walk_stack(innermost))
        stack = StackSummary.extract(frames, limit=_FRAMES)
        stack.reverse()
        return stack

    def _report(self, check_in: _CheckIn, since: float, stack: StackSummary) -> None:
        """Warn once, and wait until the loop runs again."""
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
        """Return the number of unreported blocks at this location, or None if this one is not to be reported either."""
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
