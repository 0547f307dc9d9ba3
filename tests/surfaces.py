"""The routes of the HTTP API and the pages of the console, described and not called."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from ingest.api.console.console import Console
from ingest.api.console.frame import ROOT, Frame, Page
from ingest.api.console.live import LiveData
from ingest.api.console.pages.login import LoginPages
from ingest.api.console.parts import ConsoleParts
from ingest.api.console.static_files import StaticFiles
from ingest.api.http.routing import Route
from ingest.services.http.api_connections import RouteConnections
from ingest.services.http.api_routes import RouteCounters, routes_of
from ingest.services.http.served_sources import ServedSources
from ingest.settings import load_settings

NO: Any = None


def routes(*names: str) -> list[Route]:
    settings = load_settings()
    sources = {name: settings.of_source(name, {}) if name else settings for name in names}
    served = ServedSources(sources, cast("Any", {"": [SimpleNamespace(name="any")]} if "" in names else {}))
    return routes_of(settings, served, RouteConnections.none(sources), RouteCounters.none(sources))


def pages() -> Sequence[Page]:
    """All pages, actions and live parts of the console."""
    settings, frame = load_settings(), Frame(NO, StaticFiles(ROOT), NO)
    live = LiveData(frame, lambda: True)
    access = cast("Any", SimpleNamespace(pool=None, sources={}))
    console = Console(NO, ConsoleParts(settings, {"": settings}, {}, NO, NO, access, NO, NO, {}, NO))
    return [*console.pages(frame, live), *LoginPages(frame, NO, NO).pages(), *live.pages()]
