"""The immediate tries of a request within one attempt."""

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


async def test_there_may_be_thousands_of_them() -> None:
    transport = FailingTransport()
    endpoint = Endpoint("http://a/{order_id}")
    session = ApiSession(cast("Any", transport), endpoint, 1, metrics().upstream_request)
    client = UpstreamClient(session, endpoint, tries=1_500, draw=lambda *_: 0.0)

    with pytest.raises(TransientFault):
        await delivered(client.fetch(FetchRequest("1")))

    assert transport.requests == 1_500
