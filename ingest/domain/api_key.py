"""The text of API keys, and the record that the service keeps of each.

The text is `ingest_`, 22 characters for 128 random bits, and 6 for the CRC-32 of the preceding text, both in base 62. Scanners can
therefore find a key that was published by mistake, and a mistyped key is distinguished from an unknown key.
"""

import hashlib
import re
import string
import zlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

RANDOM_BYTES = 16
PREFIX = "ingest_"
PATTERN = PREFIX + r"[0-9A-Za-z]{28}"
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
# Names of clients without a key in the audit log and the metrics.
_RESERVED = frozenset({"anonymous", "nobody"})
# Limits of a key's rate and burst, so that counting stays exact.
SLOWEST, FASTEST = 0.001, 1e6
LARGEST_BURST = 1_000_000

_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM_DIGITS = 22
_CHECKSUM_DIGITS = 6
_ID_DIGITS = 12


class Scope(StrEnum):
    """A permission of an API key. `PERSONAL` adds personal values to what the other scopes show."""

    ENQUEUE = "enqueue"
    PUSH = "push"
    READ = "read"
    PERSONAL = "personal"
    OPERATE = "operate"
    ERASE = "erase"


class Denial(StrEnum):
    """The reason why a request was not admitted, counted in metrics."""

    NO_KEY = "no_key"
    MALFORMED = "malformed"
    UNKNOWN = "unknown_key"
    SCOPE = "scope"
    SOURCE = "source"
    RATE = "rate"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The rate limit of a key.

    Attributes:
        rate: requests per second.
        burst: requests that may be sent together after a pause.
    """

    rate: float
    burst: int


@dataclass(frozen=True, slots=True)
class ApiKey:
    """The record of a key, without its text.

    Attributes:
        name: unique, for the audit log and metrics.
        digest: SHA-256 of the key's text.
        created: the time of creation, or None if it was not recorded.
        sources: the sources that it may be used for, or None for all.
    """

    name: str
    digest: bytes
    scopes: frozenset[Scope]
    limit: RateLimit | None = None
    created: datetime | None = None
    sources: frozenset[str] | None = None

    def permits(self, source: str) -> bool:
        """Return whether the key may be used for a source."""
        return self.sources is None or source in self.sources

    @property
    def key_id(self) -> str:
        """The beginning of the digest in hexadecimal digits, which identifies a key without revealing it."""
        return self.digest.hex()[:_ID_DIGITS]


def make_key(random: bytes) -> str:
    """Return the text of a new key.

    Args:
        random: `RANDOM_BYTES` from the system's secure source.
    """
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"a key has {RANDOM_BYTES} random bytes")
    body = PREFIX + _base62(int.from_bytes(random), _RANDOM_DIGITS)
    return body + _checksum(body)


def has_valid_checksum(text: str) -> bool:
    """Return whether a text has the form of a key, whether or not the key exists."""
    if re.fullmatch(PATTERN, text, re.ASCII) is None:
        return False
    return _checksum(text[:-_CHECKSUM_DIGITS]) == text[-_CHECKSUM_DIGITS:]


def digest_of(text: str) -> bytes:
    """Return the digest of a key's text. The text is long and random, so a plain hash cannot be reversed."""
    return hashlib.sha256(text.encode()).digest()


def is_key_name(text: str) -> bool:
    """Return whether a text may be the name of a key."""
    return re.fullmatch(NAME_PATTERN, text, re.ASCII) is not None and text not in _RESERVED


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECKSUM_DIGITS)


def _base62(number: int, length: int) -> str:
    digits = ""
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
