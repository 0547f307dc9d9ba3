"""Says which code holds the event loop, while it does.

The loop says when it will be back; a thread looks whether it was. If it is overdue by the threshold, what its thread is
running is what holds it: one warning with that stack, and a line when the loop is free again.

That a process was stopped, or got no CPU, is not its loop's fault: the thread was late then, too, while the process used
little CPU, and it begins to count anew. Where only the loop's thread got too little, `cpu_seconds` tells.

What it cannot see: a block counts from the first time that the loop should have been back, so that one which is little
longer than the threshold may pass. A call that computes without letting go of the GIL stops the thread as well: the warning
comes after it, with the stack of that moment, most often still the caller's. One that waits with the GIL held looks like a
stopped process, and a C function that the loop calls itself has no Python stack: these two are in the lag's histogram only.
"""

import asyncio
import signal
import sys
import threading
import time
from dataclasses import dataclass
from itertools import takewhile
from traceback import StackSummary, walk_stack

from ingest.telemetry.logs import get_logger

_log = get_logger("loop")

# The innermost frames of a stack that are shown. Outwards of the loop's runner is what is the same for all.
_FRAMES = 20
_RUNNER = asyncio.Runner.run.__code__
# So many places are remembered as shown.
_PLACES = 100

_Location = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class _Beat:
    """What the loop said last: when, when it will be back, and the CPU seconds of the process until then."""

    at: float
    due: float
    cpu: float


@dataclass(slots=True)
class _Shown:
    at: float
    hidden: int = 0


class BlockWatch:
    """Watches the event loop of the thread that makes it.

    Args:
        threshold: seconds overdue from which the loop counts as blocked.
        again_after: seconds until the same stack is shown again; what comes meanwhile is counted.
    """

    def __init__(self, threshold: float, again_after: float = 10.0) -> None:
        self._threshold = threshold
        self._again_after = again_after
        self._loop_thread = threading.get_ident()
        self._beat = _Beat(time.monotonic(), time.monotonic() + threshold, time.process_time())
        self._freed_at = 0.0
        self._awake_since = 0.0
        self._shown: dict[_Location, _Shown] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop-blocks", daemon=True)

    def start(self) -> None:
        """Begin to look; after the fork, which no thread survives."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; it is waited for, unless it cannot write its log."""
        self._stopped.set()
        self._thread.join(timeout=1.0)

    def expect(self, due: float) -> None:
        """Called by the loop: it will call again at `due`, monotonic seconds."""
        now = time.monotonic()
        if now > self._beat.due + self._threshold:
            self._freed_at = now
        self._beat = _Beat(now, due, time.process_time())

    def _watch(self) -> None:
        # The loop's thread blocks it at its end, so that it decides no exit code: it must not come here instead.
        signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM,))
        while not self._stopped.is_set():
            beat = self._beat
            since = max(beat.due, self._awake_since)
            left = since + self._threshold - time.monotonic()
            if left > 0:
                # In two sleeps: a stop of the process may go unnoticed within one.
                half = self._threshold / 2
                self._sleep(left - half if left > half else left)
                continue
            stack = self._stack()
            if not stack:
                self._awake_since = time.monotonic()
            elif self._beat is beat:
                self._report(beat, since, stack)

    def _sleep(self, seconds: float) -> None:
        began, used = time.monotonic(), time.process_time()
        self._stopped.wait(seconds)
        late, used = time.monotonic() - began - seconds, time.process_time() - used
        # Late because all was stopped, or because of a call that kept the GIL? That one computes while we are late.
        if late > self._threshold / 4 and used < seconds + late / 8:
            self._awake_since = time.monotonic()

    def _stack(self) -> StackSummary:
        innermost = sys._current_frames()[self._loop_thread]  # noqa: SLF001  its documented way, for debuggers
        frames = takewhile(lambda step: step[0].f_code is not _RUNNER, walk_stack(innermost))
        stack = StackSummary.extract(frames, limit=_FRAMES)
        stack.reverse()
        return stack

    def _report(self, beat: _Beat, since: float, stack: StackSummary) -> None:
        """Warn, and stay until the loop is free: one block, one warning."""
        hidden = self._hidden(tuple((frame.filename, frame.name) for frame in stack))
        if hidden is not None:
            seconds = time.monotonic() - since
            _log.warning(
                "event_loop_blocked",
                seconds=round(seconds, 3),
                cpu_seconds=round(min(seconds, time.process_time() - beat.cpu), 3),
                not_shown=hidden,
                stack="".join(stack.format()).rstrip(),
            )
        while self._beat is beat and not self._stopped.is_set():
            self._sleep(self._threshold / 2)
        if hidden is not None and self._beat is not beat:
            _log.info("event_loop_free_again", seconds=round(self._freed_at - since, 3))

    def _hidden(self, place: _Location) -> int | None:
        """How many blocks of this place were not shown; None if this is one more."""
        now = time.monotonic()
        last = self._shown.pop(place, None)
        if last is not None and now < last.at + self._again_after:
            last.hidden += 1
            self._shown[place] = last
            return None
        self._shown[place] = _Shown(now)
        if len(self._shown) > _PLACES:
            del self._shown[next(iter(self._shown))]
        return last.hidden if last is not None else 0
