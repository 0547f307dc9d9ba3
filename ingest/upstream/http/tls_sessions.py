"""Resumes TLS sessions: most connections to a host continue the session of an earlier one.

That takes about two thirds of the client's CPU time for a full handshake, and less of the server's. A resumed handshake agrees
on new keys as a full one does (TLS 1.3 only), and proves that the server is the one whose certificate was verified; the
certificate itself is verified again after `_LONGEST_USE` seconds at the latest.
"""

import asyncio
import ssl

_LONGEST_USE = 600
# Of many connections to a host at once, this many are opened without a session; the others wait for theirs, but not for long.
_WITHOUT_WAITING = 8
_LONGEST_WAIT = 0.25


class HostSession:
    """The session of one host name.

    Args:
        longest_use: seconds after which certificates are verified again.
        longest_wait: seconds for which connections wait for a session.

    Attributes:
        until: when that is, by the loop's clock.
        offered: what the next connection offers to continue, or None.
    """

    def __init__(self, longest_use: float, longest_wait: float) -> None:
        loop = asyncio.get_running_loop()
        self.until = loop.time() + longest_use
        self.offered: ssl.SSLSession | None = None
        self._begun = 0
        self._is_decided = asyncio.Event()
        self._was_offered = self._is_tolerated = self._is_given_up = False
        loop.call_later(longest_wait, self._is_decided.set)

    async def turn(self) -> None:
        """Return when a connection should be opened."""
        self._begun += 1
        if self._begun > _WITHOUT_WAITING:
            await self._is_decided.wait()

    def offer(self) -> ssl.SSLSession | None:
        """Return what a connection is to offer in the handshake that it begins."""
        self._was_offered |= self.offered is not None
        return self.offered

    @property
    def is_sought(self) -> bool:
        """Whether a session is to be taken as soon as there is one."""
        return self.offered is None and not self._is_given_up

    def look_at(self, tls: ssl.SSLObject, offered: ssl.SSLSession | None, *, is_last: bool) -> bool:
        """Take the session of a connection that has had a full handshake; returns whether to look again."""
        if self._is_given_up or self.offered is not offered or tls.session_reused:
            return False
        session = tls.session if tls.version() == "TLSv1.3" else None
        if session is not None and session.has_ticket:
            self.offered = session
            self._is_decided.set()
        elif is_last or session is None:
            self.give_up()
        else:
            return True
        return False

    def answered(self, tls: ssl.SSLObject, offered: ssl.SSLSession | None) -> None:
        """The first request on a connection that made this offer was answered: the server can handle offers."""
        self._is_tolerated |= offered is not None
        self.look_at(tls, offered, is_last=True)

    def connection_failed(self, offered: ssl.SSLSession | None) -> None:
        """Stop the offer, as it may be the reason, and offer nothing else unless the server has answered after an offer before.

        Args:
            offered: what there was to offer when the connection was begun.
        """
        self._is_decided.set()
        if offered is None or offered is not self.offered or not self._was_offered:
            return
        if self._is_tolerated:
            # An outage, or another server by now: the next session is offered as if it were the first.
            self.offered = None
            self._was_offered = self._is_tolerated = False
        else:
            self.give_up()

    def give_up(self) -> None:
        """Offer none until certificates are to be verified again."""
        self.offered = None
        self._is_given_up = True
        self._is_decided.set()


class TlsSessions:
    """The sessions of all hosts that one client has connections to.

    Args:
        longest_use: seconds after which certificates are verified again.
        longest_wait: seconds for which connections wait for a session.
    """

    def __init__(self, longest_use: float = _LONGEST_USE, longest_wait: float = _LONGEST_WAIT) -> None:
        self._longest_use = longest_use
        self._longest_wait = longest_wait
        self._hosts: dict[str, HostSession] = {}
        self._loop = asyncio.get_running_loop()

    def of(self, host: str) -> HostSession:
        """Return the session of a host, by the name that its certificate is verified for."""
        known = self._hosts.get(host)
        if known is None or self._loop.time() >= known.until:
            known = self._hosts[host] = HostSession(self._longest_use, self._longest_wait)
        return known
