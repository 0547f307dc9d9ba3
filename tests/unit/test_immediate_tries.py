"""The immediate tries of a request within one attempt."""

from typing import Any, cast

import pytest

from ingest.domain.errors import TransientFault
from ingest.domain.fetching import FetchRequest
from ingest.upstream.client import UpstreamClient
from ingest.upstream.endpoint import Endpoint


class FailingSession:
    """Fails each request, and counts them."""

    def __init__(self) -> None:
        self.requests = 0

    async def send(self, *_: object) -> Any:
        self.requests += 1
        raise TransientFault("HTTP 503")


async def test_there_may_be_thousands_of_them() -> None:
    session = FailingSession()
    client = UpstreamClient(cast("Any", session), Endpoint("http://a/{order_id}"), tries=1_500, draw=lambda *_: 0.0)

    with pytest.raises(TransientFault):
        await client.fetch(FetchRequest("1"))

    assert session.requests == 1_500
