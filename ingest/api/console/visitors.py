"""Identifies the visitor of the console, who is a user of a reverse proxy, a session, or a caller of an API without keys.

An ended session is looked up in Redis at each request. While Redis is unavailable, no session can end, and a session is accepted if its
cookie is recent. The cookie is not renewed then, so that an older one needs a new login.
"""

import asyncio
from dataclasses import dataclass

from aiohttp import web
from multidict import CIMultiDict

from ingest.api.admission.access import KeyAccess
from ingest.api.console.forwarded_users import ForwardedUsers
from ingest.api.console.sessions import Session, Sessions
from ingest.api.http.admitting import Admission
from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller
from ingest.domain.api_key import Scope
from ingest.domain.errors import QueueUnavailable
from ingest.queue.operate.ended_sessions import EndedSessions
from ingest.telemetry.logs import get_logger

_log = get_logger("api")

SESSION_COOKIE = "ingest_session"
PATH = "/console/"
# A request does not wait longer for Redis.
_LONGEST_WAIT = 0.5


class LoginNeeded(Exception):
    """The request belongs to no session, and a login would help."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who sends a request.

    Attributes:
        caller: The caller, with the permitted scopes and sources.
        token: The token of forms.
        cookie: New text of the session's cookie, or None to keep it.
        session: The session, if there is one to end.
    """

    caller: Caller
    token: str
    cookie: str | None = None
    session: Session | None = None


class Visitors:
    """Identifies visitors, and logs them in and out.

    Attributes:
        sessions: Signs the cookies.

    Args:
        access: The access of the API.
        sessions: Signs the cookies.
        ended: The sessions that have ended.
        forwarded: The users of a reverse proxy, if one is configured.
    """

    def __init__(
        self, access: Admission, sessions: Sessions, ended: EndedSessions, forwarded: ForwardedUsers | None = None
    ) -> None:
        self.sessions = sessions
        self._access = access
        self._ended = ended
        self._forwarded = forwarded

    async def identify(self, request: web.Request, scope: Scope) -> Visitor:
        """Return the sender of a request, who must hold the scope.

        Raises:
            LoginNeeded: There is no session.
            Problem: 401, 403 or 429.
        """
        if self._forwarded is not None and (user := self._forwarded.caller_of(request)) is not None:
            user.check(scope)
            return Visitor(user, self.sessions.form_token(user.name))
        if not isinstance(self._access, KeyAccess):
            # Without API keys, everyone who may use the API may use the console.
            return Visitor(self._access.admit(request.headers, scope, None), self.sessions.form_token(""))
        session = self.sessions.read(request.cookies.get(SESSION_COOKIE, ""))
        caller = None if session is None else self._access.admit_key_id(session.key_id, scope)
        if session is None or caller is None:
            raise LoginNeeded
        renewed = self.sessions.renewed(session) if await self._is_confirmed(session) else None
        cookie = None if renewed is None else self.sessions.cookie_of(renewed)
        return Visitor(caller, self.sessions.form_token(session.id), cookie, session)

    async def check(self, visitor: Visitor, scope: Scope) -> None:
        """Check a visitor again, for a request that takes long.

        Raises:
            LoginNeeded: The session has ended.
            Problem: 401 or 403.
        """
        visitor.caller.check(scope)
        if visitor.session is not None:
            await self._is_confirmed(visitor.session)

    async def log_out(self, session: Session) -> None:
        """End a session in all processes.

        Raises:
            QueueUnavailable: Redis is unavailable, and the session may not have ended.
        """
        await self._ended.add(session.id)

    async def _is_confirmed(self, session: Session) -> bool:
        """Return whether Redis confirms that the session has not ended, rather than that its cookie is recent.

        Raises:
            LoginNeeded: Neither is the case.
        """
        try:
            async with asyncio.timeout(_LONGEST_WAIT):
                has_ended = await self._ended.contains(session.id)
        except (QueueUnavailable, TimeoutError):
            if not self.sessions.is_recent(session):
                raise LoginNeeded from None
            return False
        if has_ended:
            raise LoginNeeded
        return True

    def log_in(self, key: str) -> str:
        """Return the cookie of a new session.

        Raises:
            Problem: 401 for an invalid key, 403 for a key without the scope `read`, 429 over its rate limit.
        """
        if not isinstance(self._access, KeyAccess):
            raise Problem(404, "no_login", "this API uses no API keys, so that a login is not needed")
        headers = CIMultiDict({"X-API-Key": key})
        caller = self._access.admit(headers, Scope.READ, None)
        _log.info("console_login", key=caller.name)
        return self.sessions.cookie_of(self.sessions.begin(caller.key_id))


def set_cookie(
    request: web.Request, response: web.StreamResponse, name: str, value: str, max_age: int | None = None
) -> None:
    """Set a cookie that only the console receives, and no script can read."""
    is_encrypted = request.secure or request.headers.get("X-Forwarded-Proto", "").lower() == "https"
    response.set_cookie(name, value, path=PATH, httponly=True, samesite="Strict", secure=is_encrypted, max_age=max_age)
