"""Reads the remaining quota of an API from response headers, in each form that is in use. Pure functions.

| form | example |
|---|---|
| draft-ietf-httpapi-ratelimit-headers-08 to -11 | `RateLimit: "default";r=50;t=30`, `RateLimit-Policy: "default";q=100;w=60` |
| draft-07 | `RateLimit: limit=100, remaining=50, reset=30` |
| drafts up to -06 | `RateLimit-Remaining: 50`, `RateLimit-Reset: 30` |
| custom | `X-RateLimit-Remaining: 50`, `X-RateLimit-Reset: 30`, or a Unix time in seconds or milliseconds |
| BigCommerce | `X-Rate-Limit-Requests-Left: 50`, `X-Rate-Limit-Time-Reset-Ms: 30000` |

Invalid values are ignored, because a header is a hint and never an error.
"""

import re
from collections.abc import Iterator, Mapping

import msgspec

# A quota for a longer time does not limit the next minutes.
LONGEST = 31 * 86_400.0
_NUMBER = re.compile(r"[0-9]{1,15}")
_RATE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
# A space belongs to one part only. If it could belong to several, a text that does not match would be tried in each way there is.
_ITEM = re.compile(
    r'\s*(?P<name>"[^"\\]*"|[A-Za-z*][\w.:/*-]*)\s*(?P<parameters>(;\s*[a-z*][a-z0-9_.*-]*(=[^;,]*|\s*))*)'
)
_PARAMETER = re.compile(r"\s*([a-z*][a-z0-9_.*-]*)=([^;,]*)")
# Larger values of a reset are a time, not a duration.
_SINCE_1970 = 1e9
_MILLISECONDS = 1e12
# Longer headers are not read, because their server may want to keep us busy.
_LONGEST_TEXT = 300


class Remaining(msgspec.Struct, frozen=True):
    """The rest of a quota.

    Attributes:
        requests: that may still be sent.
        seconds: until the quota is full again.
    """

    requests: int
    seconds: float

    @property
    def rate(self) -> float:
        """Requests per second with which it lasts."""
        return self.requests / self.seconds


def remaining_of(headers: Mapping[str, str], now: float) -> Remaining | None:
    """Return the rest of the quota at `now` in Unix seconds, or None without such headers.

    Of several quotas, the one with the lowest rate counts.
    """
    found = [
        *_standard(headers),
        *_fields(headers, "RateLimit-", now),
        *_fields(headers, "X-RateLimit-", now),
        *_milliseconds(headers),
    ]
    usable = [remaining for remaining in found if 0 < remaining.seconds <= LONGEST]
    return min(usable, key=lambda remaining: (remaining.rate, -remaining.seconds), default=None)


def permitted_rate(headers: Mapping[str, str], name: str) -> float | None:
    """Return the requests per second in a header, such as `x-amzn-RateLimit-Limit: 0.5`, or None without a positive number."""
    text = headers.get(name, "").strip()
    rate = float(text) if _RATE.fullmatch(text) else 0.0
    return rate or None


def _standard(headers: Mapping[str, str]) -> Iterator[Remaining]:
    text = headers.get("RateLimit", "")
    if not text or len(text) > _LONGEST_TEXT:
        return
    members = dict(part.strip().partition("=")[::2] for part in text.split(","))
    if "remaining" in members:
        yield from _remaining(members["remaining"], members.get("reset"))
        return
    windows = {name: parameters.get("w") for name, parameters in _items(headers.get("RateLimit-Policy", ""))}
    for name, parameters in _items(text):
        yield from _remaining(parameters.get("r"), parameters.get("t", windows.get(name)))


def _items(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the items of a list (RFC 9651) with their parameters, or none if any is malformed."""
    if len(text) > _LONGEST_TEXT:
        return
    matches = [_ITEM.fullmatch(part) for part in re.split(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', text)]
    if all(matches):
        for match in filter(None, matches):
            yield match["name"], {name: value.strip() for name, value in _PARAMETER.findall(match["parameters"])}


def _fields(headers: Mapping[str, str], prefix: str, now: float) -> Iterator[Remaining]:
    for remaining in _remaining(headers.get(f"{prefix}Remaining"), headers.get(f"{prefix}Reset")):
        seconds = remaining.seconds
        if seconds >= _MILLISECONDS:
            seconds /= 1000
        yield Remaining(remaining.requests, seconds - now if seconds >= _SINCE_1970 else seconds)


def _milliseconds(headers: Mapping[str, str]) -> Iterator[Remaining]:
    left, reset = headers.get("X-Rate-Limit-Requests-Left"), headers.get("X-Rate-Limit-Time-Reset-Ms")
    for remaining in _remaining(left, reset):
        yield Remaining(remaining.requests, remaining.seconds / 1000)


def _remaining(requests: str | None, seconds: str | None) -> Iterator[Remaining]:
    if requests is None or seconds is None:
        return
    requests, seconds = requests.strip(), seconds.strip()
    if _NUMBER.fullmatch(requests) and _NUMBER.fullmatch(seconds):
        yield Remaining(int(requests), float(seconds))
