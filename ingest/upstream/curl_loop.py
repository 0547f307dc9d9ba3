"""Runs libcurl on the event loop, with its multi-socket interface.

libcurl tells which sockets to watch and when to wake it, and is notified of their events. The sockets are registered with a
private epoll instance, which the event loop watches as one file: registering thousands of short waits a second with the
loop itself would cost more than the requests do.

libcurl must not be called from within its own callbacks, so those only record its requests.

A failure in libcurl or in its use here may leave libcurl in any state: all requests end with `TransportFailed`, and the
instance is not used again.
"""

import asyncio
import select
from contextlib import suppress

import pycurl

from ingest.upstream.curl_call import Call, CurlError
from ingest.upstream.transport import TransportFailed

# Maximum size of the connection pool: as many as there may be orders in flight.
_CONNECTIONS = 10_000
# Maps libcurl flags to epoll flags.
_TO_EPOLL = {
    pycurl.POLL_NONE: 0,
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_BROKEN = select.EPOLLERR | select.EPOLLHUP
# Events processed before other tasks of the event loop run.
_EVENTS_PER_TURN = 64


class CurlLoop:
    """The running requests.

    Attributes:
        calls: the running requests, by handle.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._epoll_fd = self._epoll.fileno()
        self._watched: dict[int, int] = {}
        self._wake: asyncio.Handle | None = None
        # uvloop returns a handle without a time for timers within half a millisecond, so the time is stored here.
        self._timer: asyncio.Handle | None = None
        self._timer_at = 0.0
        self._due: float | None = None
        self._failure: Exception | None = None
        self._has_failed = False
        self.calls: dict[pycurl.Curl, Call] = {}
        self._multi = multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        multi.setopt(pycurl.M_MAXCONNECTS, _CONNECTIONS)
        multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
        self._socket_action = multi.socket_action
        self._add = multi.add_handle
        self._remove = multi.remove_handle
        self._loop.add_reader(self._epoll_fd, self._on_sockets)

    def start(self, call: Call) -> None:
        """Start a request; `call.ended` resolves when it has ended.

        Raises:
            TransportFailed: libcurl has failed before.
        """
        if self._has_failed:
            raise TransportFailed("libcurl has failed before")
        self.calls[call.curl] = call
        try:
            self._add(call.curl)
        except pycurl.error as error:
            self._failure = error
        if self._failure is not None:
            self._fail_all()

    def cancel(self, call: Call) -> None:
        """Cancel a request if it still runs; `call.ended` is not changed."""
        if self.calls.pop(call.curl, None) is None:
            return
        try:
            self._remove(call.curl)
        except pycurl.error as error:
            self._failure = error
            self._fail_all()

    def fail(self, call: Call, number: int, text: str) -> None:
        """End a request with an error."""
        self.cancel(call)
        if not call.ended.done():
            call.ended.set_result((number, text))

    def close(self) -> None:
        """End all requests and close their connections."""
        for call in list(self.calls.values()):
            self.fail(call, pycurl.E_GOT_NOTHING, "the client was closed")
        self._detach()
        self._multi.close()
        self._epoll.close()

    def _detach(self) -> None:
        for handle in (self._wake, self._timer):
            if handle is not None:
                handle.cancel()
        self._wake = self._timer = None
        self._loop.remove_reader(self._epoll_fd)

    def _fail_all(self) -> None:
        """End all requests with `TransportFailed`."""
        failure, self._failure = self._failure, None
        self._has_failed = True
        calls = list(self.calls.values())
        self.calls.clear()
        with suppress(OSError):
            self._detach()
        for call in calls:
            with suppress(pycurl.error):
                self._remove(call.curl)
            if not call.ended.done():
                failed = TransportFailed("libcurl or its use has failed")
                failed.__cause__ = failure
                call.ended.set_exception(failed)

    # -- callbacks of libcurl, which must not call it ----------------------------------------------------------

    def _watch(self, what: int, fd: int, multi: pycurl.CurlMulti, data: object) -> None:
        del multi, data
        try:
            if what == pycurl.POLL_REMOVE:
                # Called before the socket is closed, so its number may be reused afterwards.
                if self._watched.pop(fd, None) is not None:
                    self._epoll.unregister(fd)
            elif fd in self._watched:
                if self._watched[fd] != what:
                    self._epoll.modify(fd, _TO_EPOLL[what])
                    self._watched[fd] = what
            else:
                self._epoll.register(fd, _TO_EPOLL[what])
                self._watched[fd] = what
        except Exception as error:  # noqa: BLE001  if raised, it would be printed, and libcurl would fail all requests its own way
            self._failure = error

    def _set_timer(self, milliseconds: int) -> None:
        try:
            if milliseconds == 0:
                if self._wake is None and not self._has_failed:
                    self._wake = self._loop.call_soon(self._on_wake)
            elif milliseconds < 0:
                self._due = None
            else:
                self._due = self._loop.time() + milliseconds / 1000
                # The next deadline usually moves later as requests are answered: a timer that fires early is left in place.
                if not self._has_failed and (self._timer is None or self._timer_at > self._due):
                    self._set_timer_at(self._due)
        except Exception as error:  # noqa: BLE001  as above
            self._failure = error

    # -- callbacks of the event loop ---------------------------------------------------------------------------

    def _on_sockets(self) -> None:
        act, running = self._socket_action, len(self.calls)
        try:
            for fd, events in self._epoll.poll(0, _EVENTS_PER_TURN):
                what = pycurl.CSELECT_IN if events & select.EPOLLIN else 0
                if events & select.EPOLLOUT:
                    what |= pycurl.CSELECT_OUT
                if events & _BROKEN:
                    what |= pycurl.CSELECT_ERR
                _, running = act(fd, what)
            self._settle(running)
        except Exception as error:  # noqa: BLE001  it would go to the event loop, and requests would wait until they time out
            self._failure = error
        if self._failure is not None:
            self._fail_all()

    def _on_wake(self) -> None:
        self._wake = None
        self._run_due()

    def _on_timer(self) -> None:
        self._timer = None
        if self._due is None:
            return
        if self._due > self._loop.time():
            self._set_timer_at(self._due)
            return
        self._due = None
        self._run_due()
        if self._has_failed:
            return
        # libcurl sets the timer only when something has changed, which is not the case if this call was early by its clock.
        if (left := self._multi.timeout()) >= 0:
            self._set_timer(max(1, left))

    def _run_due(self) -> None:
        """Let libcurl process its timeouts."""
        try:
            _, running = self._socket_action(pycurl.SOCKET_TIMEOUT, 0)
            self._settle(running)
        except Exception as error:  # noqa: BLE001  as above
            self._failure = error
        if self._failure is not None:
            self._fail_all()

    def _set_timer_at(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._on_timer)

    def _settle(self, running: int) -> None:
        if running < len(self.calls):
            _, complete, failed = self._multi.info_read(len(self.calls))
            for curl in complete:
                self._end(curl, None)
            for curl, number, text in failed:
                self._end(curl, (number, text))

    def _end(self, curl: pycurl.Curl, error: CurlError | None) -> None:
        ended = self.calls.pop(curl).ended
        self._remove(curl)
        if not ended.done():
            ended.set_result(error)
