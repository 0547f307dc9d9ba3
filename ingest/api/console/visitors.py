"""Identifies the visitor of the console, who is a user of a reverse proxy, a session, or a caller of an API without keys."""

from dataclasses import dataclass

from aiohttp import web
from multidict import CIMultiDict

from ingest.api.admission.access import KeyAccess
from ingest.api.console.forwarded_users import ForwardedUsers
from ingest.api.console.sessions import Sessions
from ingest.api.http.admitting import Admission
from ingest.api.http.problems import Problem
from ingest.api.http.routing import Caller
from ingest.domain.api_key import Scope
from ingest.telemetry.logs import get_logger

_log = get_logger("api")

SESSION_COOKIE = "ingest_session"
PATH = "/console/"


class LoginNeeded(Exception):
    """The request belongs to no session, and a login would help."""


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who sends a request.

    Attributes:
        caller: The caller, with the permitted scopes and sources.
        token: The token of forms.
        cookie: New text of the session's cookie, or None to keep it.
        can_log_out: Whether there is a session to end.
    """

    caller: Caller
    token: str
    cookie: str | None = None
    can_log_out: bool = False


class Visitors:
    """Identifies visitors, and logs them in.

    Attributes:
        sessions: Signs the cookies.

    Args:
        access: The access of the API.
        sessions: Signs the cookies.
        forwarded: The users of a reverse proxy, if one is configured.
    """

    def __init__(self, access: Admission, sessions: Sessions, forwarded: ForwardedUsers | None = None) -> None:
        self.sessions = sessions
        self._access = access
        self._forwarded = forwarded

    def identify(self, request: web.Request, scope: Scope) -> Visitor:
        """Return the sender of a request, who must hold the scope.

        Raises:
            LoginNeeded: There is no session.
            Problem: 401, 403 or 429.
        """
        if self._forwarded is not None and (user := self._forwarded.caller_of(request)) is not None:
            if scope not in user.scopes:
                detail = f"users of the reverse proxy lack the scope {scope.value}"
                raise Problem(403, "missing_scope", detail, scope=scope.value)
            return Visitor(user, self.sessions.form_token(user.name))
        if not isinstance(self._access, KeyAccess):
            # Without API keys, everyone who may use the API may use the console.
            return Visitor(self._access.admit(request.headers, scope, None), self.sessions.form_token(""))
        session = self.sessions.read(request.cookies.get(SESSION_COOKIE, ""))
        caller = None if session is None else self._access.admit_key_id(session.key_id, scope)
        if session is None or caller is None:
            raise LoginNeeded
        renewed = self.sessions.renewed(session)
        cookie = None if renewed is None else self.sessions.cookie_of(renewed)
        return Visitor(caller, self.sessions.form_token(session.id), cookie, can_log_out=True)

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
