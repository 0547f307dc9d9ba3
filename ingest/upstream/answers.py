"""What an answer of the external API means for the order: pure."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Literal

from ingest.domain.delivery import DeadReason
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, ThrottledFault, TransientFault

LONGEST_WAIT = 24 * 3600.0
_SECONDS = re.compile(r"(?P<whole>[0-9]+)(?P<fraction>(\.[0-9]+)?)")

Code = Literal["2xx", "4xx", "429", "5xx"]


def code_of(status: int) -> Code:
    """The `code` label of a status."""
    if status == 429:
        return "429"
    if status >= 500:
        return "5xx"
    return "2xx" if 200 <= status < 300 else "4xx"


def fault_of(status: int, headers: Mapping[str, str], now: datetime) -> Fault:
    """The fault that an answer without a document is.

    Args:
        status: of the answer.
        headers: its headers. Its Date goes before `now`: a Retry-After date is by the API's clock.
        now: our clock.
    """
    told = retry_after(headers.get("Retry-After"), _http_date(headers.get("Date")) or now)
    match status:
        case 404 | 410:
            return PermanentFault(DeadReason.NOT_FOUND, f"HTTP {status}")
        case 204 | 205:
            return PermanentFault(DeadReason.INVALID_ORDER, f"HTTP {status} without a document")
        case 401 | 403:
            return CredentialFault(f"HTTP {status}: the external API refuses our credential")
        case 407:
            return CredentialFault("HTTP 407: the proxy asks for a credential, or refuses ours")
        case 429:
            return ThrottledFault("HTTP 429", told)
        case 503 if told is not None:
            return ThrottledFault("HTTP 503 with Retry-After", told)
        case 408 | 421 | 425:
            return TransientFault(f"HTTP {status}")
        case _ if status >= 500:
            return TransientFault(f"HTTP {status}")
        case _:
            return PermanentFault(DeadReason.REJECTED, f"HTTP {status}")


def breaks_off(body: bytes) -> bool:
    """Whether the body of an answer is empty, or the beginning of a JSON object and not its end.

    An answer without an announced length ends where its connection does, wherever that was. A body that breaks off behind a
    brace passes here, and is noticed when it is decoded.
    """
    body = body.strip()
    return not body or (body.startswith(b"{") and not body.endswith(b"}"))


def retry_after(value: str | None, now: datetime) -> float | None:
    """Seconds to wait by a Retry-After header (RFC 9110, section 10.2.3): seconds or an HTTP date.

    Some APIs send a fraction of seconds, such as `2.0`, which the standard does not have.

    None if it is absent or says nothing sensible; never more than a day.
    """
    if value is None:
        return None
    value = value.strip()
    if number := _SECONDS.fullmatch(value):
        # A number with more digits than a day has seconds is a day, however long it is.
        digits = number["whole"].lstrip("0")
        return min(float(f"0{digits}{number['fraction'][:9]}"), LONGEST_WAIT) if len(digits) < 9 else LONGEST_WAIT
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
