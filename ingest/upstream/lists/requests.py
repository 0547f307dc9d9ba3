"""Writes the requests for the pages of a list.

A query parameter, or a text of the body, that consists of a placeholder without a value is left out or null: the first page has no
cursor, and a period may have no end.
"""

import json
import re
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

from ingest.domain.masking import LIST_PLACEHOLDERS
from ingest.upstream.http.transport import Method
from ingest.upstream.lists.declaration import LINK, ListDeclaration, ListProblem

Values = dict[str, str | None]
_PLACEHOLDER = re.compile("|".join(map(re.escape, LIST_PLACEHOLDERS)))
_ANY = re.compile(r"\{[A-Za-z_]+\}")
# As in redirects, with `%`, so that nothing is quoted twice.
_ALLOWED = "-._~:/?#[]@!$&'()*+,;=%"
_EXAMPLE = "https://shop.example/orders?changed_since={since}"
SINCE, UNTIL, CURSOR, SIZE = LIST_PLACEHOLDERS


class ListRequests:
    """The requests for one list.

    Attributes:
        url: the URL without values, to which targets of pages are relative.
        method: of the requests.
        has_cursor: whether the requests contain a cursor.
        has_size: whether they contain the number of elements of a page.

    Raises:
        ListProblem: the templates cannot be used.
    """

    def __init__(self, declared: ListDeclaration) -> None:
        self._body = _body(declared)
        self.method: Method = declared.method or ("GET" if declared.body is None else "POST")
        _check(declared, self.method, self._body)
        parts = urlsplit(declared.url)
        self.url = urlunsplit(parts._replace(path=_PLACEHOLDER.sub("", parts.path), query="", fragment=""))
        self._beginning = urlunsplit(parts._replace(query="", fragment=""))
        self._parameters = parts.query.split("&") if parts.query else []
        self._numbers = {SIZE, SINCE, UNTIL} if declared.time in ("unix", "unix_ms") else {SIZE}
        if declared.is_numbered:
            self._numbers.add(CURSOR)
        self.has_cursor, self.has_size = (
            name in declared.url or name in json.dumps(self._body) for name in (CURSOR, SIZE)
        )
        if self.has_size and not declared.size:
            raise ListProblem(f"is needed for {SIZE}", "size")

    def url_of(self, values: Values) -> str:
        """Return the URL of a page, percent-encoded."""
        path = _filled_url(self._beginning, values)
        kept = [each for each in self._parameters if not _is_unset(each.partition("=")[2], values)]
        return path + ("?" + "&".join(_filled_url(each, values) for each in kept) if kept else "")

    def body_of(self, values: Values) -> bytes | None:
        """Return the body of the request for a page."""
        return None if self._body is None else json.dumps(self._filled(self._body, values)).encode()

    def _filled(self, value: Any, values: Values) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(inner, values) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._filled(inner, values) for inner in value]
        if not isinstance(value, str):
            return value
        if value in values:
            given = values[value]
            return int(given) if given is not None and value in self._numbers else given
        # In a query of GraphQL, `{size}` selects a field.
        return _PLACEHOLDER.sub(lambda found: SIZE if found[0] == SIZE else values[found[0]] or "", value)


def _body(declared: ListDeclaration) -> Any:
    if not isinstance(declared.body, str):
        return declared.body
    try:
        return json.loads(declared.body)
    except (ValueError, RecursionError):
        raise ListProblem("must be JSON: write a table, or the text of a JSON document", "body") from None


def _check(declared: ListDeclaration, method: Method, body: Any) -> None:
    if body is not None and method != "POST":
        raise ListProblem('has no effect with GET: set method = "POST", or remove it', "body")
    if not _is_url(declared.url):
        raise ListProblem(f"must be an http or https URL with a host, such as {_EXAMPLE}", "url")
    if "#" in declared.url or re.search(r"[\s\x00-\x1f]", declared.url):
        raise ListProblem("must contain neither a fragment nor blanks", "url")
    unknown = sorted(set(_ANY.findall(declared.url)) - set(LIST_PLACEHOLDERS))
    if unknown:
        raise ListProblem(f"unknown placeholder {unknown[0]}: write {', '.join(LIST_PLACEHOLDERS)}", "url")
    texts = declared.url + json.dumps(body)
    if SINCE not in texts:
        raise ListProblem(f"must contain {SINCE}, unless the body does, such as {_EXAMPLE}", "url")
    if declared.next in ("", LINK) and CURSOR in texts:
        raise ListProblem(f"must not contain {CURSOR}, which `next` does not provide", "url")
    if declared.is_numbered and CURSOR not in texts:
        raise ListProblem(f"must contain {CURSOR} for the number of the page or the offset", "url")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and "{" not in parts.netloc


def _is_unset(value: str, values: Values) -> bool:
    return value in values and values[value] is None


def _filled_url(template: str, values: Values) -> str:
    texts = [quote(text, safe=_ALLOWED) for text in _PLACEHOLDER.split(template)]
    filled = [quote(values[name] or "", safe="") for name in _PLACEHOLDER.findall(template)]
    return texts[0] + "".join(value + text for value, text in zip(filled, texts[1:], strict=True))
