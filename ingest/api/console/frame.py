"""The frame of all pages, which identifies the visitor, checks forms, renders templates, and shows errors as pages.

A page is a function that receives a `Visit` and returns a response, usually by `Frame.render` with a view model. A form is sent to a
`POST` page, which changes something and returns `Frame.redirect`, so that a reload repeats nothing.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from ingest.api.console.forms import Form, check_origin, check_token, read_form
from ingest.api.console.sections import SECTIONS, Section
from ingest.api.console.sessions import Sessions
from ingest.api.console.static_files import StaticFiles
from ingest.api.console.templating import make_environment, url
from ingest.api.console.visitors import SESSION_COOKIE, LoginNeeded, Visitor, Visitors, set_cookie
from ingest.api.http.failures import as_problems
from ingest.api.http.problems import Problem
from ingest.api.http.requests import STATE, BodyLimits
from ingest.api.http.routing import Caller, Route
from ingest.domain.api_key import Scope
from ingest.operations.declared import DECLARED

ROOT = "/console"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    # With `no-referrer`, browsers would send forms with the origin `null`.
    "Referrer-Policy": "same-origin",
}
THEME_COOKIE = "ingest_theme"
THEMES = ("light", "dark")
_MESSAGE_COOKIE = "ingest_message"
_AGAIN = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0"><title>order-ingest</title>'
    '<link rel="icon" href="{icon}">'
    '<p><a href="">Continue to the console</a></p></html>'
)


@dataclass(frozen=True, slots=True)
class Message:
    """The result of an action, shown once on the next page.

    Attributes:
        text: One or two sentences.
        is_error: Whether the action failed.
    """

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of an identified visitor.

    Attributes:
        form: The form of a `POST` page, already checked.
    """

    request: web.Request
    visitor: Visitor
    form: Form = field(default_factory=lambda: Form({}))

    @property
    def caller(self) -> Caller:
        """The visitor's name, scopes and sources. Actions are audited with its name."""
        return self.visitor.caller

    def may(self, scope: str) -> bool:
        """Return whether the visitor has a scope, such as `operate`. Pages show only the actions that are permitted."""
        return Scope(scope) in self.caller.scopes

    @property
    def path(self) -> str:
        """The path below `/console`, with its query."""
        return self.request.path_qs.removeprefix(ROOT)

    def is_in(self, section: str) -> bool:
        """Return whether the page belongs to a section of the navigation."""
        path = self.request.path.removeprefix(ROOT)
        return path == section or (section != "/" and path.startswith(f"{section}/"))

    def permitted(self, sources: Sequence[str]) -> list[str]:
        """Return the sources that the visitor may see."""
        return [name for name in sources if self.caller.may_use(name)]


Respond = Callable[[Visit], Awaitable[web.StreamResponse]]
"""Responds to one visit, or raises `Problem` for an error, which is shown as a page."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page, or an action that a form requests.

    Attributes:
        method: `GET`, or `POST` for an action.
        path: Below `/console`, such as `/dead-letters`.
        respond: Returns the response.
        operation: See `Route`.
        is_large: See `Route`.
    """

    method: str
    path: str
    respond: Respond
    operation: str
    is_large: bool = False


class Frame:
    """Makes routes of pages, and responses of templates.

    Args:
        visitors: Identifies who sends a request. It is an attribute.
        files: The style sheet and the script.
        limits: The limits of forms.
    """

    def __init__(self, visitors: Visitors, files: StaticFiles, limits: BodyLimits) -> None:
        self.visitors = visitors
        self._files = files
        self._limits = limits
        self._environment = make_environment()
        # Macros use them as well.
        self._environment.globals |= {"root": ROOT, "url": url, "files": files.paths}
        self._sections: Sequence[Section] = ()

    @property
    def sessions(self) -> Sessions:
        """Signs cookies."""
        return self.visitors.sessions

    def routes(self, pages: Sequence[Page]) -> list[Route]:
        """Return the routes of these pages. The navigation shows the sections that are among them."""
        paths = {page.path for page in pages}
        self._sections = [section for section in SECTIONS if section.path in paths]
        return [Route(page.method, ROOT + page.path, None, self._handler(page)) for page in pages]

    def render(self, visit: Visit, template: str, status: int = 200, **model: Any) -> web.Response:
        """Return a page.

        Args:
            visit: The request.
            template: A file in `templates`, which extends `base.html`.
            status: The status of the response.
            model: The names that the template uses in addition to the names of `fragment`.
        """
        message = self.sessions.verified("message", visit.request.cookies.get(_MESSAGE_COOKIE, ""), Message)
        text = self.fragment(visit, template, message=message, sections=self._sections, **model)
        response = web.Response(text=text, status=status, content_type="text/html", charset="utf-8", headers=HEADERS)
        if message is not None:
            response.del_cookie(_MESSAGE_COOKIE, path=f"{ROOT}/")
        return response

    def fragment(self, visit: Visit, template: str, **model: Any) -> str:
        """Return a part of a page. Templates use `visit`, `url`, `theme`, `files` and the names in `model`."""
        theme = visit.request.cookies.get(THEME_COOKIE, "")
        shown = theme if theme in THEMES else "auto"
        return self._environment.get_template(template).render(visit=visit, theme=shown, **model)

    def redirect(self, visit: Visit, path: str, message: str = "", *, is_error: bool = False) -> web.Response:
        """Return a redirect to a page of the console after an action.

        Args:
            visit: The request.
            path: Below `/console`, with its query.
            message: The result of the action, which the next page shows.
            is_error: Whether the action failed.
        """
        response = web.Response(status=303, headers={**HEADERS, "Location": ROOT + path})
        if message:
            signed = self.sessions.signed("message", Message(message, is_error))
            set_cookie(visit.request, response, _MESSAGE_COOKIE, signed)
        return response

    def keep_session(self, visit: Visit, response: web.StreamResponse) -> None:
        """Renew the session's cookie if that is due."""
        if visit.visitor.cookie is not None:
            set_cookie(visit.request, response, SESSION_COOKIE, visit.visitor.cookie)

    def _handler(self, page: Page) -> Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]:
        async def respond(request: web.Request, _: Caller) -> web.StreamResponse:
            visit: Visit | None = None
            try:
                if page.method != "GET":
                    check_origin(request)
                visitor = await self.visitors.identify(request, Scope.READ)
                visit = Visit(request, visitor)
                # An error that follows is shown with the navigation.
                visitor.caller.require(DECLARED[page.operation].scopes)
                request[STATE].identify(visitor.caller.name)
                if page.is_large:
                    await request[STATE].hold_large()
                if page.method != "GET":
                    form = await read_form(request, self._limits)
                    check_token(form, visitor.token)
                    visit = Visit(request, visitor, form)
                with as_problems():
                    response = await page.respond(visit)
            except LoginNeeded:
                return self._to_login(request)
            except Problem as problem:
                response = self.problem(request, problem, visit)
            if visit is not None and not response.prepared:
                self.keep_session(visit, response)
            return response

        return respond

    def problem(self, request: web.Request, problem: Problem, visit: Visit | None = None) -> web.Response:
        """Return an error as a page."""
        visit = visit or Visit(request, Visitor(Caller("", frozenset()), ""))
        response = self.render(visit, "problem.html", problem.status, problem=problem)
        response.headers.update(problem.headers)
        return response

    def _to_login(self, request: web.Request) -> web.Response:
        if request.method not in {"GET", "HEAD"} or request.headers.get("Accept") == "text/event-stream":
            return self.problem(request, Problem(401, "no_session", "the session has ended: log in again"))
        is_link = request.headers.get("Sec-Fetch-Site") == "cross-site" and SESSION_COOKIE not in request.cookies
        if is_link and request.headers.get("Sec-Fetch-Mode") == "navigate":
            # A browser keeps the cookie back when another site, such as a chat, links to a page. The page itself may ask again.
            text = _AGAIN.format(icon=self._files.paths["icon.svg"])
            return web.Response(text=text, content_type="text/html", charset="utf-8", headers=HEADERS)
        login = url(f"{ROOT}/login", next=request.path_qs.removeprefix(ROOT))
        return web.Response(status=303, headers={**HEADERS, "Location": login})
