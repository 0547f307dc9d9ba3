"""What an answer of the external API means for the order: pure."""

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from ingest.domain.delivery import DeadReason
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, ThrottledFault, TransientFault

LONGEST_WAIT = 24 * 3600.0

Code = Literal["2xx", "4xx", "429", "5xx"]


def code_of(status: int) -> Code:
    """The `code` label of a status."""
    if status == 429:
        return "429"
    if status >= 500:
        return "5xx"
    return "2xx" if 200 <= status < 300 else "4xx"


def fault_of(status: int, headers: Mapping[str, str], now: datetime) -> Fault:
    """The fault that a status which is not of the 200s is.

    Args:
        status: of the answer.
        headers: its headers. Its Date goes before `now`: a Retry-After date is by the API's clock.
        now: our clock.
    """
    told = retry_after(headers.get("Retry-After"), _http_date(headers.get("Date")) or now)
    match status:
        case 404 | 410:
            return PermanentFault(DeadReason.NOT_FOUND, f"HTTP {status}")
        case 401 | 403:
            return CredentialFault(f"HTTP {status}: the external API refuses our credential")
        case 429:
            return ThrottledFault("HTTP 429", told)
        case 503 if told is not None:
            return ThrottledFault("HTTP 503 with Retry-After", told)
        case 408 | 425:
            return TransientFault(f"HTTP {status}")
        case _ if status >= 500:
            return TransientFault(f"HTTP {status}")
        case _:
            return PermanentFault(DeadReason.REJECTED, f"HTTP {status}")


def retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds to wait by a Retry-After header (RFC 9110, section 10.2.3): seconds or an HTTP date.

    None if it is absent or says nothing sensible; never more than a day.
    """
    if value is None:
        return None
    value = value.strip()
    if value.isascii() and value.isdigit():
        # A number with more digits than a day has seconds is a day, however long it is.
        digits = value.lstrip("0") or "0"
        return min(float(digits), LONGEST_WAIT) if len(digits) < 9 else LONGEST_WAIT
    until = _http_date(value)
    return min(max(0.0, (until - now).total_seconds()), LONGEST_WAIT) if until is not None else None


def _http_date(value: str | None) -> datetime | None:
    if value is None:
        return None
    try:
        date = parsedate_to_datetime(value)
    except (ValueError, OverflowError):
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
