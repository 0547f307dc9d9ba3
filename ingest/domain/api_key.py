"""API keys: their text, and what the service keeps of each.

The text is `ingest_`, 22 characters for 128 random bits, and 6 for the CRC-32 of all before them, both in base 62. So scanners
find a key that was published by mistake, and a key that was mistyped is told from one that is wrong.
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
# Those who have no key, as audit and metrics name them.
_TAKEN = frozenset({"anonymous", "nobody"})
# Of a key's rate and burst, so that counting stays exact.
SLOWEST, FASTEST = 0.001, 1e6
LARGEST_BURST = 1_000_000

_DIGITS = string.digits + string.ascii_uppercase + string.ascii_lowercase
_RANDOM_DIGITS = 22
_CHECKSUM_DIGITS = 6
_ID_DIGITS = 12


class Scope(StrEnum):
    """What an API key may do."""

    ENQUEUE = "enqueue"
    PUSH = "push"
    READ = "read"
    OPERATE = "operate"
    ERASE = "erase"


class Denial(StrEnum):
    """Why a request was not admitted; counted in metrics."""

    NO_KEY = "no_key"
    MALFORMED = "malformed"
    UNKNOWN = "unknown_key"
    SCOPE = "scope"
    RATE = "rate"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """How often a key may be used.

    Attributes:
        rate: requests per second.
        burst: requests at once, after a time with fewer.
    """

    rate: float
    burst: int


@dataclass(frozen=True, slots=True)
class ApiKey:
    """What is kept of a key: not its text.

    Attributes:
        name: unique; for people, audit and metrics.
        digest: SHA-256 of the key's text.
        scopes: what it may do.
        limit: None for as often as its holder likes.
        created: when; None if nobody has written it down.
    """

    name: str
    digest: bytes
    scopes: frozenset[Scope]
    limit: RateLimit | None = None
    created: datetime | None = None

    @property
    def key_id(self) -> str:
        """Tells keys apart without showing them: the beginning of the digest, in hexadecimal digits."""
        return self.digest.hex()[:_ID_DIGITS]


def make_key(random: bytes) -> str:
    """The text of a key.

    Args:
        random: `RANDOM_BYTES` from the system's secure source.
    """
    if len(random) != RANDOM_BYTES:
        raise ValueError(f"a key has {RANDOM_BYTES} random bytes")
    body = PREFIX + _base62(int.from_bytes(random), _RANDOM_DIGITS)
    return body + _checksum(body)


def has_valid_checksum(text: str) -> bool:
    """Whether a text is a key as `make_key` writes it, whether or not the key exists."""
    if re.fullmatch(PATTERN, text, re.ASCII) is None:
        return False
    return _checksum(text[:-_CHECKSUM_DIGITS]) == text[-_CHECKSUM_DIGITS:]


def digest_of(text: str) -> bytes:
    """What is kept of a key's text. It is long and random, so a plain hash cannot be reversed."""
    return hashlib.sha256(text.encode()).digest()


def is_key_name(text: str) -> bool:
    """Whether a text may be the name of a key."""
    return re.fullmatch(NAME_PATTERN, text, re.ASCII) is not None and text not in _TAKEN


def _checksum(body: str) -> str:
    return _base62(zlib.crc32(body.encode()), _CHECKSUM_DIGITS)


def _base62(number: int, length: int) -> str:
    digits = ""
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
