"""Reads the forms of the console's pages, and rejects forms that another site has sent."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, urlsplit

from aiohttp import web

from ingest.api.http.problems import Problem
from ingest.api.http.requests import BodyLimits, read_body

TOKEN_FIELD = "token"  # noqa: S105  the name of a field
_URLENCODED = "application/x-www-form-urlencoded"
_MOST_FIELDS = 2_000
_LARGEST = 256 * 1024


@dataclass(frozen=True, slots=True)
class Form:
    """The fields of a form."""

    fields: Mapping[str, Sequence[str]]

    def text(self, name: str) -> str:
        """Return the value of a field without blanks at its ends, or an empty text."""
        values = self.fields.get(name, ())
        return values[0].strip() if values else ""

    def texts(self, name: str) -> Sequence[str]:
        """Return all values of a field, such as of checked boxes."""
        return self.fields.get(name, ())

    def has(self, name: str) -> bool:
        """Return whether the form has the field, such as a checked box or the button that was pressed."""
        return name in self.fields


async def read_form(request: web.Request, limits: BodyLimits) -> Form:
    """Read the form in the body of a request.

    Raises:
        Problem: 400, 408, 413, 415 or 503.
    """
    if request.content_type != _URLENCODED:
        raise Problem(415, "content_type", f"a form of the console is {_URLENCODED}")
    own = BodyLimits(min(limits.size, _LARGEST), limits.seconds)
    body = await read_body(request, own)
    try:
        fields = parse_qs(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        raise Problem(400, "bad_form", "this is not a form of the console") from None
    return Form(fields)


def check_origin(request: web.Request) -> None:
    """Check that one of our pages sent the request. Every current browser sends one of the two headers.

    Raises:
        Problem: 403 for a page of another site.
    """
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        is_ours = site == "same-origin"
    else:
        origin = request.headers.get("Origin")
        is_ours = origin is None or urlsplit(origin).netloc.lower() == request.host.lower()
    if not is_ours:
        raise Problem(403, "cross_site", "a page of another site sent this form")


def check_token(form: Form, expected: str) -> None:
    """Check that the form is from a page that this visitor has loaded.

    Raises:
        Problem: 403 for another token.
    """
    if not hmac.compare_digest(form.text(TOKEN_FIELD).encode(), expected.encode()):
        raise Problem(403, "form_expired", "the form is from an earlier session: open the page again")
