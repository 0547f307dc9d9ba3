"""The immediate tries of a request within one attempt."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from fakes.upstream import delivered
from fakes.workers import metrics

from ingest.domain.errors import TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.client import UpstreamClient
from ingest.upstream.http.transport import NoResponse
from ingest.upstream.session import ApiSession


class FailingTransport:
    """Fails each request, and counts them."""

    def __init__(self) -> None:
        self.requests = 0

    async def send(self, *_: object) -> bytes:
        self.requests += 1
        raise NoResponse("the connection was closed")


def client_of(
    transport: FailingTransport, tries: int, draw: Callable[[float, float], float] = lambda *_: 0.0
) -> UpstreamClient:
    endpoint = Endpoint("http://a/{order_id}")
    session = ApiSession(cast("Any", transport), endpoint, 1, metrics().upstream_request)
    return UpstreamClient(session, endpoint, tries, draw=draw)


async def test_there_may_be_thousands_of_them() -> None:
    transport = FailingTransport()

    with pytest.raises(TransientFault):
        await delivered(client_of(transport, tries=1_500).fetch(FetchRequest("1")))

    assert transport.requests == 1_500


async def test_the_pauses_between_them_have_full_jitter_and_grow() -> None:
    drawn: list[tuple[float, float]] = []

    def draw(least: float, most: float) -> float:
        drawn.append((least, most))
        return 0.0

    with pytest.raises(TransientFault):
        await delivered(client_of(FailingTransport(), 8, draw).fetch(FetchRequest("1")))

    assert [least for least, _ in drawn] == [0.0] * 7
    assert [most for _, most in drawn] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0])
