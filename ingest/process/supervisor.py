"""The parent of the worker processes: forks, watches, restarts and stops them.

It has one thread and no event loop, so a fork is always safe, and it has already imported everything that the children
need: a child starts in milliseconds and shares the parent's memory. As process 1 of a container it also reaps orphaned
processes.

If a fork fails because processes or memory have run out, the supervisor tries again. Running children are not
affected. If its log is not read, it discards the lines, and continues.

When the supervisor is killed by SIGKILL, its end of a pipe (the lifeline) closes. The children detect that, and shut down
as after a stop request.
"""

import gc
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Sequence

from ingest.domain.exponential_pause import exponential_pause
from ingest.process.child import NEVER, Child, Reload, Report
from ingest.process.interrupt import stop_signals
from ingest.process.standard_streams import LOG_WAIT, wait_for_errors
from ingest.telemetry.logs import get_logger

_log = get_logger("supervisor")

_FIRST_BACKOFF = 0.5
# Short: a poison message is only detected after it has killed its worker several times, and a start costs milliseconds.
_LONGEST_BACKOFF = 5.0
# A process that has run this long counts as healthy. Its next death is again treated as the first.
_HEALTHY_AFTER = 60.0
# Added to the grace period within which a child stops by itself. If Redis hangs, a child waits for its last read (6 s), its
# last batch and the release of its entries (2 s each).
KILL_MARGIN = 12.0
# `timeout`, systemd and terminals signal the whole process group, some of them twice, which counts as one request.
_SAME_REQUEST = 1.5


class Supervisor:
    """Keeps its children running until SIGTERM, SIGINT, or SIGHUP unless that is ignored.

    Args:
        children: the processes to run.
        grace: seconds that a child may take to stop.
        margin: seconds after the grace period until a child is killed.
        reload: is called regularly, and at SIGHUP, which then only stops a command on a terminal: that has been closed.
        report: is called regularly.
    """

    def __init__(
        self,
        children: Sequence[Child],
        grace: float,
        margin: float = KILL_MARGIN,
        *,
        reload: Reload | None = None,
        report: Report | None = None,
    ) -> None:
        self._children = children
        self._reload = reload
        self._report = report
        self._grace = grace
        self._margin = margin
        self._stopping = False
        self._stopped_at = 0.0
        self._kill_at = 0.0
        self._failed = False

    def run(self) -> int:
        """Run until stopped. The exit code is 0 if every child that is kept running stopped by itself after the request."""
        self._lifeline, self._lifeline_held = os.pipe()
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._watched = (*stop_signals(), signal.SIGCHLD)
        for number in self._watched:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        wait_for_errors(LOG_WAIT)
        # Keep the garbage collector from writing to existing objects, which the children share.
        gc.freeze()
        while not self._stopping or any(child.pid for child in self._children):
            self._start_due()
            for caught in self._signals(self._pause()):
                if caught == signal.SIGHUP and self._reload is not None and not _has_terminal():
                    self._reload.request()
                elif caught != signal.SIGCHLD:
                    self._stop(signal.Signals(caught).name)
            self._reap()
            self._kill_overdue()
        # Python removes its handlers before it exits. A signal that arrives then would decide the exit code.
        signal.pthread_sigmask(signal.SIG_BLOCK, self._watched)
        signal.set_wakeup_fd(-1)
        _log.info("stopped", failed=self._failed)
        return 1 if self._failed else 0

    def replace(self, children: Sequence[Child]) -> None:
        """Start these children, and stop those that run, which finish their work without being started again."""
        for child in self._children:
            child.is_kept, child.start_at = False, NEVER
            if child.pid:
                os.kill(child.pid, signal.SIGTERM)
        self._children = [*(child for child in self._children if child.pid), *children]

    def _pause(self) -> float | None:
        """Return the seconds until something is due, or None to wait for signals only."""
        due = [child.start_at for child in self._children if not child.pid and not self._stopping]
        if self._stopping:
            due.append(self._kill_at)
        else:
            due += [time.monotonic() + part.check() for part in (self._reload, self._report) if part is not None]
        first = min(due, default=NEVER)
        return max(0.0, first - time.monotonic()) if first < NEVER else None

    def _signals(self, timeout: float | None) -> bytes:
        """Return the signals that arrived within `timeout`, one byte each."""
        readable, _, _ = select.select([self._wake], [], [], timeout)
        return self._wake.recv(4096) if readable else b""

    def _start_due(self) -> None:
        for child in self._children:
            if not child.pid and not self._stopping and child.start_at <= time.monotonic():
                self._start(child)

    def _start(self, child: Child) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        # Blocked across the fork, so that a SIGTERM before the child has installed its handler stays pending.
        signal.pthread_sigmask(signal.SIG_BLOCK, self._watched)
        try:
            pid = os.fork()
        except OSError as error:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, self._watched)
            self._postpone(child, error)
            return
        if pid == 0:
            self._become(child)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self._watched)
        child.pid, child.started = pid, time.monotonic()
        child.refused_forks = 0
        _log.info("process_started", process=child.name, pid=pid)

    def _postpone(self, child: Child, error: OSError) -> None:
        """Try again later, because the system has no process or no memory available."""
        pause = exponential_pause(_FIRST_BACKOFF, _LONGEST_BACKOFF, child.refused_forks)
        child.refused_forks += 1
        child.start_at = time.monotonic() + pause
        _log.error("process_not_started", process=child.name, error=error.strerror, retry_in=pause)

    def _become(self, child: Child) -> None:
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            wait_for_errors(None)
            self._wake.close()
            self._waker.close()
            os.close(self._lifeline_held)
            self._close_listeners(kept=child.listener)
            # A terminal signals the whole process group. The parent forwards it as SIGTERM.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGHUP, signal.SIGCHLD))
            code = child.main(self._lifeline)
        except BaseException:  # noqa: BLE001  the outermost frame of the process: report why it ends
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _stop(self, cause: str) -> None:
        """Stop all children. A second request is forwarded as well, and ends the grace period."""
        if self._stopping and time.monotonic() - self._stopped_at < _SAME_REQUEST:
            return
        grace = 0.0 if self._stopping else self._grace
        _log.info("stop_requested", cause=cause, grace=grace)
        kill_at = time.monotonic() + grace + self._margin
        # A second request brings the deadline forward, and never postpones it.
        self._kill_at = min(self._kill_at, kill_at) if self._stopping else kill_at
        self._stopping = True
        self._stopped_at = time.monotonic()
        self._close_listeners()
        for child in self._children:
            if child.pid:
                os.kill(child.pid, signal.SIGTERM)

    def _close_listeners(self, kept: socket.socket | None = None) -> None:
        for child in self._children:
            if child.listener is not None and child.listener is not kept:
                child.listener.close()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            for child in self._children:
                if child.pid == pid:
                    self._ended(child, os.waitstatus_to_exitcode(status))

    def _ended(self, child: Child, code: int) -> None:
        pid, child.pid = child.pid, 0
        if self._stopping:
            self._failed |= child.is_kept and code != 0
            _log.info("process_stopped", process=child.name, pid=pid, code=code)
            return
        if not child.is_kept:
            child.start_at = NEVER
            child.on_end(code)
            return
        child.deaths = 1 if time.monotonic() - child.started > _HEALTHY_AFTER else child.deaths + 1
        # Restart immediately after a first death, so that its messages are processed, and then with growing delays.
        pause = 0.0 if child.deaths == 1 else exponential_pause(_FIRST_BACKOFF, _LONGEST_BACKOFF, child.deaths - 2)
        child.start_at = time.monotonic() + pause
        child.on_death()
        _log.error("process_died", process=child.name, pid=pid, code=code, restart_in=pause)

    def _kill_overdue(self) -> None:
        if not self._stopping or time.monotonic() < self._kill_at:
            return
        for child in self._children:
            if child.pid:
                _log.error("process_killed", process=child.name, pid=child.pid, cause="did not stop in time")
                os.kill(child.pid, signal.SIGKILL)
        self._kill_at = time.monotonic() + self._margin


def _has_terminal() -> bool:
    """Whether a terminal controls this process, which sends SIGHUP when it is closed."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
