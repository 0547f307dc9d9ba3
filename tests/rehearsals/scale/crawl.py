"""Finds every page of the console and every list of the HTTP API, and measures their responses."""

import json
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import aiohttp

# Different pages of one kind: IDs, cursors, names of sources and filters.
_PLACE = re.compile(r"(?<=/)(?:[0-9A-Za-z%._~@-]*\d[0-9A-Za-z%._~@-]*|shop-de|shop-uk|warehouse)(?=/|$)")
_IS_DOWNLOAD = re.compile(r"/export\b|[?&]download=")
_SKIPPED = ("/console/static/", "/console/logout", "/console/events/")


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


@dataclass(slots=True)
class Times:
    """Seconds of each response, by the kind of page or list."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    failed: dict[str, int] = field(default_factory=dict)

    def most(self) -> Mapping[str, float]:
        """The longest response of each kind, the longest first."""
        return dict(sorted(((kind, max(each)) for kind, each in self.seconds.items()), key=lambda item: -item[1]))


class Crawler:
    """Follows links of the console as a visitor.

    Args:
        http: a client, which is signed in if that is necessary.
        url: of the HTTP API.
        most: pages of one kind that are opened.
    """

    def __init__(self, http: aiohttp.ClientSession, url: str, most: int = 3) -> None:
        self.times = Times()
        self.paths: list[str] = []
        self._http = http
        self._url = url
        self._most = most

    async def console(self, *further: str) -> None:
        """Open all pages that can be reached from the overview, and these further paths."""
        waiting, seen = ["/console/", *further], set()
        opened: dict[str, int] = defaultdict(int)
        while waiting:
            path = waiting.pop(0)
            kind = kind_of(path)
            if path in seen or opened[kind] >= self._most or path.startswith(_SKIPPED) or _IS_DOWNLOAD.search(path):
                continue
            seen.add(path)
            opened[kind] += 1
            text = await self.open(path)
            links = _Links()
            links.feed(text)
            for link in links.found:
                parts = urlsplit(urljoin(self._url + path, link))
                if f"{parts.scheme}://{parts.netloc}" == self._url and parts.path.startswith("/console/"):
                    waiting.append(parts.path + (f"?{parts.query}" if parts.query else ""))

    async def lists(self, sources: tuple[str, ...], order_ids: tuple[str, ...]) -> None:
        """Request every `GET` route of the HTTP API whose parameters are sources and orders."""
        described: Any = json.loads(await self.open("/openapi.json"))
        for path, methods in described["paths"].items():
            # An export is as long as the list.
            if "get" in methods and not path.endswith("/export"):
                for filled in _filled(path, sources, order_ids):
                    await self.open(filled)

    async def open(self, path: str) -> str:
        """Open one page, and return its text."""
        started = time.perf_counter()
        async with self._http.get(self._url + path) as response:
            text = await response.text()
        self.times.seconds[kind_of(path)].append(time.perf_counter() - started)
        if response.status >= 400 and response.status != 404:
            self.times.failed[path] = response.status
        if path.startswith("/console/") and response.status == 200:
            self.paths.append(path)
        return text


def kind_of(path: str) -> str:
    """The path with `*` for IDs and names, and with the names of its parameters."""
    parts = urlsplit(path)
    names = sorted({pair.partition("=")[0] for pair in parts.query.split("&") if pair.partition("=")[2]})
    return _PLACE.sub("*", parts.path) + (f"?{'&'.join(names)}" if names else "")


def _filled(path: str, sources: tuple[str, ...], order_ids: tuple[str, ...]) -> Iterator[str]:
    for source in sources if "{source}" in path else sources[:1]:
        for order_id in order_ids if "{order_id}" in path else order_ids[:1]:
            filled = path.replace("{source}", source).replace("{order_id}", quote(order_id, safe=""))
            if "{" not in filled and (f"/{source}/" in filled or "/sources" not in path or path == "/v1/sources"):
                yield filled
