"""Runs libcurl on the event loop, by its multi-socket interface.

libcurl says which sockets to watch and when to wake it, and is told what happened to them. The sockets are watched by an
epoll of ours, which the event loop watches as one file: registering thousands of short waits a second with the loop itself
would cost more than the requests do.

libcurl must not be called from within its own callbacks, so those only write down what it wants.

What fails here, in libcurl or in our use of it, may have left libcurl in any state: all requests end with `TransportBroken`, and
nothing runs on it any more.
"""

import asyncio
import select
from contextlib import suppress

import pycurl

from ingest.upstream.curl_call import Call, Problem
from ingest.upstream.transport import TransportBroken

# Each pool entry is a connection to the one API; as many as there may be orders in flight.
_CONNECTIONS = 10_000
# The bits of libcurl and those of epoll.
_TO_EPOLL = {
    pycurl.POLL_NONE: 0,
    pycurl.POLL_IN: select.EPOLLIN,
    pycurl.POLL_OUT: select.EPOLLOUT,
    pycurl.POLL_INOUT: select.EPOLLIN | select.EPOLLOUT,
}
_BROKEN = select.EPOLLERR | select.EPOLLHUP
# What is done before others have their turn.
_AT_ONCE = 64


class CurlLoop:
    """The running requests.

    Attributes:
        calls: which they are, by handle.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._epoll = select.epoll()
        self._epoll_fd = self._epoll.fileno()
        self._watched: dict[int, int] = {}
        self._wake: asyncio.Handle | None = None
        # uvloop gives a handle without its time for what is due within half a millisecond, so the time is kept here.
        self._alarm: asyncio.Handle | None = None
        self._alarm_at = 0.0
        self._due: float | None = None
        self._failure: Exception | None = None
        self._is_broken = False
        self.calls: dict[pycurl.Curl, Call] = {}
        self._multi = multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._set_alarm)
        multi.setopt(pycurl.M_MAXCONNECTS, _CONNECTIONS)
        multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
        self._act = multi.socket_action
        self._add = multi.add_handle
        self._remove = multi.remove_handle
        self._loop.add_reader(self._epoll_fd, self._on_sockets)

    def start(self, call: Call) -> None:
        """Run a request; `call.ended` tells when it has.

        Raises:
            TransportBroken: nothing runs here any more.
        """
        if self._is_broken:
            raise TransportBroken("libcurl has failed before")
        self.calls[call.curl] = call
        try:
            self._add(call.curl)
        except pycurl.error as error:
            self._failure = error
        if self._failure is not None:
            self._break()

    def drop(self, call: Call) -> None:
        """End a request now, if it still runs; `call.ended` is left as it is."""
        if self.calls.pop(call.curl, None) is None:
            return
        try:
            self._remove(call.curl)
        except pycurl.error as error:
            self._failure = error
            self._break()

    def fail(self, call: Call, number: int, text: str) -> None:
        """End a request now, with an error."""
        self.drop(call)
        if not call.ended.done():
            call.ended.set_result((number, text))

    def close(self) -> None:
        """End all requests, and close their connections."""
        for call in list(self.calls.values()):
            self.fail(call, pycurl.E_GOT_NOTHING, "the client was closed")
        self._let_go()
        self._multi.close()
        self._epoll.close()

    def _let_go(self) -> None:
        for handle in (self._wake, self._alarm):
            if handle is not None:
                handle.cancel()
        self._wake = self._alarm = None
        self._loop.remove_reader(self._epoll_fd)

    def _break(self) -> None:
        """End all requests: what has failed is not theirs."""
        failure, self._failure = self._failure, None
        self._is_broken = True
        calls = list(self.calls.values())
        self.calls.clear()
        with suppress(OSError):
            self._let_go()
        for call in calls:
            with suppress(pycurl.error):
                self._remove(call.curl)
            if not call.ended.done():
                broken = TransportBroken("libcurl, or our use of it, has failed")
                broken.__cause__ = failure
                call.ended.set_exception(broken)

    # -- what libcurl wants: called by it, so never calling it ------------------------------------------------

    def _watch(self, what: int, fd: int, multi: pycurl.CurlMulti, data: object) -> None:
        del multi, data
        try:
            if what == pycurl.POLL_REMOVE:
                # Comes before the socket is closed, so that its number is free for the next.
                if self._watched.pop(fd, None) is not None:
                    self._epoll.unregister(fd)
            elif fd in self._watched:
                if self._watched[fd] != what:
                    self._epoll.modify(fd, _TO_EPOLL[what])
                    self._watched[fd] = what
            else:
                self._epoll.register(fd, _TO_EPOLL[what])
                self._watched[fd] = what
        except Exception as error:  # noqa: BLE001  raised, it would be printed, and libcurl would fail all requests in its way
            self._failure = error

    def _set_alarm(self, milliseconds: int) -> None:
        try:
            if milliseconds == 0:
                if self._wake is None and not self._is_broken:
                    self._wake = self._loop.call_soon(self._on_wake)
            elif milliseconds < 0:
                self._due = None
            else:
                self._due = self._loop.time() + milliseconds / 1000
                # The next end of a time limit mostly moves away, as requests are answered: an alarm is left to ring too early.
                if not self._is_broken and (self._alarm is None or self._alarm_at > self._due):
                    self._ring_at(self._due)
        except Exception as error:  # noqa: BLE001  as above
            self._failure = error

    # -- what happens: called by the event loop ---------------------------------------------------------------

    def _on_sockets(self) -> None:
        act, running = self._act, len(self.calls)
        try:
            for fd, events in self._epoll.poll(0, _AT_ONCE):
                what = pycurl.CSELECT_IN if events & select.EPOLLIN else 0
                if events & select.EPOLLOUT:
                    what |= pycurl.CSELECT_OUT
                if events & _BROKEN:
                    what |= pycurl.CSELECT_ERR
                _, running = act(fd, what)
            self._settle(running)
        except Exception as error:  # noqa: BLE001  it would go to the event loop, and the requests would wait for their timeouts
            self._failure = error
        if self._failure is not None:
            self._break()

    def _on_wake(self) -> None:
        self._wake = None
        self._let_time_pass()

    def _on_alarm(self) -> None:
        self._alarm = None
        if self._due is None:
            return
        if self._due > self._loop.time():
            self._ring_at(self._due)
            return
        self._due = None
        self._let_time_pass()
        if self._is_broken:
            return
        # It sets the alarm by itself only if something has changed, and nothing has if this was a little early by its clock.
        if (left := self._multi.timeout()) >= 0:
            self._set_alarm(max(1, left))

    def _let_time_pass(self) -> None:
        """Let libcurl do what is due."""
        try:
            _, running = self._act(pycurl.SOCKET_TIMEOUT, 0)
            self._settle(running)
        except Exception as error:  # noqa: BLE001  as above
            self._failure = error
        if self._failure is not None:
            self._break()

    def _ring_at(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm_at = when
        self._alarm = self._loop.call_at(when, self._on_alarm)

    def _settle(self, running: int) -> None:
        if running < len(self.calls):
            _, complete, failed = self._multi.info_read(len(self.calls))
            for curl in complete:
                self._end(curl, None)
            for curl, number, text in failed:
                self._end(curl, (number, text))

    def _end(self, curl: pycurl.Curl, problem: Problem | None) -> None:
        ended = self.calls.pop(curl).ended
        self._remove(curl)
        if not ended.done():
            ended.set_result(problem)
