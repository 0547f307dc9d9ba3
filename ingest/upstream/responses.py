"""Classifies responses of the external API. Pure functions."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal, assert_never

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import (
    CredentialFault,
    Fault,
    NoContent,
    PermanentFault,
    PostponedFault,
    ThrottledFault,
    TransientFault,
)
from ingest.domain.fetch.status_overrides import StatusAction, StatusOverride
from ingest.upstream.rate_limit_headers import remaining_of

LONGEST_WAIT = 24 * 3600.0
NO_OVERRIDES: Mapping[int, StatusOverride] = {}
# How JSON texts that start so end.
_ENDS = {b"{": b"}", b"[": b"]"}
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")

Code = Literal["2xx", "3xx", "4xx", "429", "5xx"]


def code_of(status: int) -> Code:
    """Return the value of the metric label `code` for a status."""
    if status == 429:
        return "429"
    if status >= 500:
        return "5xx"
    if 300 <= status < 400:
        return "3xx"
    return "2xx" if 200 <= status < 300 else "4xx"


def fault_of(
    status: int,
    headers: Mapping[str, str],
    now: datetime,
    overrides: Mapping[int, StatusOverride] = NO_OVERRIDES,
    *,
    with_certificate: bool = False,
) -> Fault:
    """Return the fault for a response without a document.

    Args:
        status: status of the response.
        headers: its headers. Its Date takes precedence over `now`: a Retry-After date refers to the API's clock. A 429 without
            Retry-After may give the time to wait in its rate limit headers.
        now: the local time.
        overrides: what statuses mean for this API, where that differs from the usual.
        with_certificate: whether a client certificate identifies us.
    """
    now = api_time(headers, now)
    wait = retry_after(headers.get("Retry-After"), now)
    if wait is None and status == 429:
        wait = until_quota(headers, now)
    override = overrides.get(status)
    if override is not None:
        return _overridden(status, override, wait)
    if with_certificate and _is_refusal_by_nginx(status, headers):
        return CredentialFault("HTTP 400: the external API rejects our client certificate, as nginx does")
    return _usual(status, wait)


def _usual(status: int, wait: float | None) -> Fault:
    match status:
        case 404 | 410:
            return PermanentFault(DeadReason.NOT_FOUND, f"HTTP {status}")
        case 204 | 205:
            return NoContent(status)
        case 401 | 403:
            return CredentialFault(f"HTTP {status}: the external API rejects our credential")
        case 407:
            return CredentialFault("HTTP 407: the proxy requires a credential, or rejects ours")
        case 429:
            return ThrottledFault("HTTP 429", wait)
        case 503 if wait is not None:
            return ThrottledFault("HTTP 503 with Retry-After", wait)
        case 408 | 421 | 425:
            return TransientFault(f"HTTP {status}")
        case _ if not 400 <= status < 500:
            # Including a redirect without a target, which a gateway sends for any order.
            return TransientFault(f"HTTP {status}")
        case _:
            return PermanentFault(DeadReason.REJECTED, f"HTTP {status}")


def _is_refusal_by_nginx(status: int, headers: Mapping[str, str]) -> bool:
    """Return whether nginx may have rejected a client certificate, by an HTML page and a closed connection."""
    is_page = headers.get("Content-Type", "").lower().startswith("text/html")
    return status == 400 and is_page and headers.get("Connection", "").lower() == "close"


def _overridden(status: int, override: StatusOverride, wait: float | None) -> Fault:
    match override.action:
        case StatusAction.RETRY if override.after is not None:
            return PostponedFault(f"HTTP {status}", override.after)
        case StatusAction.RETRY:
            return TransientFault(f"HTTP {status}")
        case StatusAction.NOT_FOUND:
            return PermanentFault(DeadReason.NOT_FOUND, f"HTTP {status}", is_configured=True)
        case StatusAction.REJECTED:
            return PermanentFault(DeadReason.REJECTED, f"HTTP {status}", is_configured=True)
        case StatusAction.THROTTLED:
            return ThrottledFault(f"HTTP {status}", override.after if wait is None else wait)
        case StatusAction.CREDENTIAL:
            return CredentialFault(f"HTTP {status}: the external API rejects our credential")
        case _:
            assert_never(override.action)


def is_truncated(body: bytes) -> bool:
    """Return whether a body is empty, or starts like a JSON object or array without ending like one.

    A response without Content-Length ends when its connection closes, complete or not. A body that is truncated after a
    closing brace or bracket is not detected here, but when it is decoded.
    """
    body = body.strip()
    return not body or (body[:1] in _ENDS and not body.endswith(_ENDS[body[:1]]))


def retry_after(value: str | None, now: datetime) -> float | None:
    """Return the seconds to wait by a Retry-After header (RFC 9110, section 10.2.3): seconds or an HTTP date.

    Fractions of seconds, such as `2.0`, are accepted, as some APIs send them although the standard does not allow them.

    None if the header is missing or invalid. At most one day.
    """
    if value is None:
        return None
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return min(float(value), LONGEST_WAIT)
    until = http_date(value)
    return min(max(0.0, (until - now).total_seconds()), LONGEST_WAIT) if until is not None else None


def until_quota(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the seconds until an exhausted quota is full again, by rate limit headers. None without such headers. At most one day."""
    left = remaining_of(headers, now.timestamp())
    return min(left.seconds, LONGEST_WAIT) if left is not None and not left.requests else None


def api_time(headers: Mapping[str, str], now: datetime) -> datetime:
    """Return the time by the API's clock, from the response's Date header, or else `now`."""
    return http_date(headers.get("Date")) or now


def http_date(value: str | None) -> datetime | None:
    """Return the time of a header such as Date, or None if it is missing or invalid."""
    if value is None:
        return None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
