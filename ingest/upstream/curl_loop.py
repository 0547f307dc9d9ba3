"""Runs libcurl on the event loop, by its multi-socket interface.

libcurl says which sockets to watch and when to wake it, and is told what happened to them. The sockets are watched by an
epoll of ours, which the event loop watches as one file: registering thousands of short waits a second with the loop itself
would cost more than the requests do.

libcurl must not be called from within its own callbacks, so those only write down what it wants.
"""

import asyncio
import select

import pycurl

from ingest.upstream.curl_call import Call, Problem

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
        self._watched: dict[int, int] = {}
        self._wake: asyncio.Handle | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._due: float | None = None
        self._failure: OSError | None = None
        self.calls: dict[pycurl.Curl, Call] = {}
        self._multi = multi = pycurl.CurlMulti()
        multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        multi.setopt(pycurl.M_TIMERFUNCTION, self._set_alarm)
        multi.setopt(pycurl.M_MAXCONNECTS, _CONNECTIONS)
        multi.setopt(pycurl.M_PIPELINING, pycurl.PIPE_MULTIPLEX)
        self._act = multi.socket_action
        self._add = multi.add_handle
        self._remove = multi.remove_handle
        self._loop.add_reader(self._epoll.fileno(), self._on_sockets)

    def start(self, call: Call) -> None:
        """Run a request; `call.ended` tells when it has."""
        self.calls[call.curl] = call
        self._add(call.curl)

    def drop(self, call: Call) -> None:
        """End a request now, if it still runs; `call.ended` is left as it is."""
        if self.calls.pop(call.curl, None) is not None:
            self._remove(call.curl)

    def fail(self, call: Call, number: int, text: str) -> None:
        """End a request now, with an error."""
        self.drop(call)
        if not call.ended.done():
            call.ended.set_result((number, text))

    def close(self) -> None:
        """End all requests, and close their connections."""
        for call in list(self.calls.values()):
            self.fail(call, pycurl.E_ABORTED_BY_CALLBACK, "the client was closed")
        for handle in (self._wake, self._alarm):
            if handle is not None:
                handle.cancel()
        self._loop.remove_reader(self._epoll.fileno())
        self._multi.close()
        self._epoll.close()

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
        except OSError as error:
            # Raised, it would be printed and forgotten, and the request would wait for its timeout.
            self._failure = error

    def _set_alarm(self, milliseconds: int) -> None:
        if milliseconds == 0:
            if self._wake is None:
                self._wake = self._loop.call_soon(self._on_wake)
        elif milliseconds < 0:
            self._due = None
        else:
            self._due = self._loop.time() + milliseconds / 1000
            # The next end of a time limit mostly moves away, as requests are answered: an alarm is left to ring too early.
            if self._alarm is None or self._alarm.when() > self._due:
                self._ring_at(self._due)

    # -- what happens: called by the event loop ---------------------------------------------------------------

    def _on_sockets(self) -> None:
        act, running = self._act, len(self.calls)
        for fd, events in self._epoll.poll(0, _AT_ONCE):
            what = pycurl.CSELECT_IN if events & select.EPOLLIN else 0
            if events & select.EPOLLOUT:
                what |= pycurl.CSELECT_OUT
            if events & _BROKEN:
                what |= pycurl.CSELECT_ERR
            _, running = act(fd, what)
        self._settle(running)

    def _on_wake(self) -> None:
        self._wake = None
        _, running = self._act(pycurl.SOCKET_TIMEOUT, 0)
        self._settle(running)

    def _on_alarm(self) -> None:
        self._alarm = None
        if self._due is None:
            return
        if self._due > self._loop.time():
            self._ring_at(self._due)
            return
        self._due = None
        _, running = self._act(pycurl.SOCKET_TIMEOUT, 0)
        self._settle(running)
        # It sets the alarm by itself only if something has changed, and nothing has if this was a little early by its clock.
        if (left := self._multi.timeout()) >= 0:
            self._set_alarm(max(1, left))

    def _ring_at(self, when: float) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(when, self._on_alarm)

    def _settle(self, running: int) -> None:
        if running < len(self.calls):
            _, complete, failed = self._multi.info_read(len(self.calls))
            for curl in complete:
                self._end(curl, None)
            for curl, number, text in failed:
                self._end(curl, (number, text))
        if self._failure is not None:
            failure, self._failure = self._failure, None
            for call in list(self.calls.values()):
                self.fail(call, pycurl.E_FAILED_INIT, f"the connection cannot be watched: {failure.strerror}")

    def _end(self, curl: pycurl.Curl, problem: Problem | None) -> None:
        self._remove(curl)
        ended = self.calls.pop(curl).ended
        if not ended.done():
            ended.set_result(problem)
