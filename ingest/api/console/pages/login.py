"""The login with an API key, the logout, and the choice of the theme."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from aiohttp import web

from ingest.api.console.forms import check_origin, read_form
from ingest.api.console.frame import HEADERS, ROOT, THEME_COOKIE, THEMES, Frame, Page, Visit
from ingest.api.console.visitors import SESSION_COOKIE, LoginNeeded, Visitor, Visitors, set_cookie
from ingest.api.http.failures import busy
from ingest.api.http.log_limit import LogLimit
from ingest.api.http.problems import Problem
from ingest.api.http.requests import BodyLimits
from ingest.api.http.routing import Caller, Route
from ingest.domain.api_key import Scope
from ingest.domain.errors import QueueUnavailable
from ingest.telemetry.logs import get_logger

_PATH = f"{ROOT}/login"
_log = get_logger("api")
# Seconds between two log lines for rejections of the same key for the same reason.
_REJECTIONS_EVERY = 60.0
_ONE_YEAR = 365 * 86_400


class LoginPages:
    """`/console/login`, `/console/logout` and `/console/theme`."""

    def __init__(self, frame: Frame, visitors: Visitors, limits: BodyLimits) -> None:
        self._frame = frame
        self._visitors = visitors
        self._limits = limits
        self._limit = LogLimit(_REJECTIONS_EVERY)

    def routes(self) -> Sequence[Route]:
        """The routes that need no session."""
        return [
            Route("GET", _PATH, None, self._show),
            Route("POST", _PATH, None, self._log_in),
        ]

    def pages(self) -> Sequence[Page]:
        """The pages of a session."""
        return [Page("POST", "/logout", self._log_out, "console"), Page("POST", "/theme", self._set_theme, "console")]

    async def _show(self, request: web.Request, _: Caller) -> web.StreamResponse:
        target = _inner_path(request.query.get("next", ""))
        try:
            await self._visitors.identify(request, Scope.READ)
        except (LoginNeeded, Problem):
            return self._login(request, target)
        return web.Response(status=303, headers={**HEADERS, "Location": ROOT + target})

    async def _log_in(self, request: web.Request, _: Caller) -> web.StreamResponse:
        try:
            check_origin(request)
            form = await read_form(request, self._limits)
        except Problem as problem:
            return self._frame.problem(request, problem)
        target = _inner_path(form.text("next"))
        try:
            cookie = self._visitors.log_in(form.text("key"))
        except Problem as problem:
            if self._limit.is_due(problem.key, problem.code):
                _log.warning("console_login_rejected", key=problem.key, reason=problem.code)
            return self._login(request, target, problem)
        response = web.Response(status=303, headers={**HEADERS, "Location": ROOT + target})
        set_cookie(request, response, SESSION_COOKIE, cookie)
        return response

    def _login(self, request: web.Request, target: str, problem: Problem | None = None) -> web.Response:
        visit = Visit(request, Visitor(Caller("", frozenset()), ""))
        status = 200 if problem is None else problem.status
        response = self._frame.render(visit, "login.html", status, target=target, problem=problem)
        if problem is not None and "Retry-After" in problem.headers:
            response.headers["Retry-After"] = problem.headers["Retry-After"]
        return response

    async def _log_out(self, visit: Visit) -> web.StreamResponse:
        if visit.visitor.session is not None:
            try:
                await self._visitors.log_out(visit.visitor.session)
            except QueueUnavailable as error:
                detail = (
                    "the session has not ended, because Redis is unavailable: log out again later, or revoke the key"
                )
                raise busy(503, "queue_unavailable", detail, error.retry_after) from error
        response = self._frame.redirect(visit, "/login")
        response.del_cookie(SESSION_COOKIE, path=f"{ROOT}/")
        return response

    async def _set_theme(self, visit: Visit) -> web.StreamResponse:
        theme = visit.form.text("theme")
        response = self._frame.redirect(visit, _inner_path(visit.form.text("next")))
        if theme in THEMES:
            set_cookie(visit.request, response, THEME_COOKIE, theme, max_age=_ONE_YEAR)
        else:
            response.del_cookie(THEME_COOKIE, path=f"{ROOT}/")
        return response


def _inner_path(text: str) -> str:
    """A path below `/console`, with its query, or the overview for anything else."""
    try:
        parts = urlsplit(text)
    except ValueError:
        return "/"
    is_inner = text.startswith("/") and not text.startswith("//") and not parts.netloc and text.isprintable()
    return text if is_inner and text.isascii() and not text.startswith("/login") else "/"
