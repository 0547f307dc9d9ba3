"""What the client needs of a transport: one GET, whose answer is a document or an exception named for what came instead.

There are two, with the same promises (`tests/contract/test_upstream_*.py` holds both to them): `aiohttp_transport`, and
`curl_transport`, which needs a fraction of the processor time and a library more.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from ingest.domain.masking import mask_urls

Kind = Literal["aiohttp", "curl"]

KEEP_ALIVE = 30
DNS_CACHE = 30


@dataclass(frozen=True, slots=True)
class UpstreamLimits:
    """How long and how much; times in seconds, the body in bytes.

    Attributes:
        total: one request, from its start to the last byte of the answer.
        tries: quick tries within one attempt.
    """

    connect: float
    read: float
    total: float
    body: int
    tries: int


@dataclass(frozen=True, slots=True)
class Options:
    """What all requests of a transport have in common.

    Attributes:
        headers: sent with each.
        is_tls: whether they go out under TLS.
        proxy: URL of the proxy for all of them, None for none.
    """

    headers: Mapping[str, str]
    limits: UpstreamLimits
    is_tls: bool
    proxy: str | None


class Declined(Exception):
    """An answer came, and it has no document: its status is not of the 200s, or says that there is none.

    Attributes:
        headers: those of the answer; `Retry-After`, `Date` and `Location` are found under these names.
    """

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status
        self.headers = headers


class TooLarge(Exception):
    """The document is, or promises to be, larger than the limit; the rest was not read."""


class NoAnswer(Exception):
    """No whole answer came.

    Attributes:
        in_time: False if a time limit has ended it.
        reached: whether the external API may have seen the request.
    """

    def __init__(self, error: str, *, in_time: bool = True, reached: bool = True) -> None:
        # Libraries quote what a server sent, at any length, and URLs with the credentials in them.
        super().__init__(mask_urls(error)[:300])
        self.in_time = in_time
        self.reached = reached


class TransportBroken(Exception):
    """The transport itself has failed: neither the external API nor an order is to blame. It is not used again."""


class Transport(Protocol):
    """GET, over connections that are kept. Cancelling a request ends it and keeps nothing of it."""

    async def get(self, url: str) -> bytes:
        """The body of an answer of the 200s, unpacked; no redirect is followed.

        Raises:
            Declined: another status, or 204 and 205, which have no body.
            TooLarge: the body is over the limit.
            NoAnswer: there is no such answer.
            TransportBroken: the transport has failed; whatever else it raises says the same.
        """


def has_document(status: int) -> bool:
    """Whether the body of an answer with this status is a document."""
    return 200 <= status < 300 and status not in (204, 205)
