"""Notices in responses of the external API that need an operator, although no order fails yet.

Shopify serves the oldest supported version in place of a version that has ended, and names it in a header. Another header announces calls
that will end. https://shopify.dev/docs/api/usage/versioning
"""

import re
import time
from collections.abc import Callable, Mapping
from enum import StrEnum

from ingest.domain.printable import printable
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter
from ingest.upstream.http.transport import OnHead

_log = get_logger("upstream")
_VERSION_IN_URL = re.compile(r"/api/([0-9]{4}-[0-9]{2}|unstable)/")
_LONGEST = 300
_LOG_EVERY = 3600.0
_MOST_TEXTS = 100


class Notice(StrEnum):
    """The kind of a notice."""

    DENIED = "denied"
    VERSION = "version"
    DEPRECATED = "deprecated"


OnNotice = Callable[[Notice, str], None]
"""Takes a notice and its text."""


def ignored_notice(notice: Notice, text: str) -> None:
    """Ignore a notice."""
    del notice, text


def noticing(on_notice: OnNotice, url: str) -> OnHead | None:
    """Return a function that calls `on_notice` with the notices in the headers of a response. None for a URL without a version."""
    # Other APIs send no notices, and to name the headers of each response takes about 2 µs, 3 % of an order at a fast API.
    if (asked := _VERSION_IN_URL.search(url)) is None:
        return None

    def notice(_: int, headers: Mapping[str, str]) -> None:
        if (reason := headers.get("X-Shopify-API-Deprecated-Reason")) is not None:
            on_notice(Notice.DEPRECATED, f"the external API will end a call: {printable(reason, _LONGEST)}")
        served = headers.get("X-Shopify-API-Version")
        if served is not None and served != asked[1]:
            on_notice(Notice.VERSION, f"the external API serves version {printable(served, 20)} instead of {asked[1]}")

    return notice


def denied_notice(errors: str) -> str:
    """Return the text about a document whose errors a rule accepts."""
    return f"the document of an order has errors: {errors}"


class NoticeLog:
    """Counts notices, and logs each text once an hour.

    Args:
        counters: by kind.
    """

    def __init__(self, counters: Mapping[str, Counter]) -> None:
        self._counters = counters
        self._logged_at: dict[str, float] = {}

    def record(self, notice: Notice, text: str) -> None:
        """Record a notice. See `OnNotice`."""
        self._counters[notice].inc()
        now = time.monotonic()
        if now < self._logged_at.get(text, -_LOG_EVERY) + _LOG_EVERY:
            return
        if len(self._logged_at) >= _MOST_TEXTS:
            self._logged_at.clear()
        self._logged_at[text] = now
        _log.warning("api_notice", notice=notice.value, problem=text)
