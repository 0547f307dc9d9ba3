"""Each request to the external API takes one turn of the quota, and each turn ends, in virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
from fakes.leases import MemoryQuota
from fakes.virtual_time import now, virtual_time
from fakes.workers import metrics

from ingest.domain.errors import NotSent
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.quota import QuotaLimits
from ingest.domain.fetch.result import Failed, Fetched
from ingest.upstream.access.endpoint import Endpoint, FixedCredential
from ingest.upstream.conditions import Admit, Conditions
from ingest.upstream.http.transport import NoDocument
from ingest.upstream.quota.quota import FleetQuota
from ingest.upstream.session import ApiSession, utc_now

REQUESTS = (FetchRequest("1"),)
URL = "http://shop.example/orders/1"


class Api:
    """Sends these responses one after the other, and notes when a request begins."""

    def __init__(self, *responses: bytes | NoDocument) -> None:
        self._responses = list(responses)
        self.begun: list[float] = []

    async def send(self, *_: object) -> bytes:
        self.begun.append(now())
        response = self._responses.pop(0)
        if isinstance(response, NoDocument):
            raise response
        return response


@asynccontextmanager
async def quota_of(limits: QuotaLimits) -> AsyncIterator[FleetQuota]:
    own = metrics()
    leases = MemoryQuota(limits, now).member("a")
    quota = FleetQuota(leases, limits, 5.0, own.rate_limit_wait, own.upstream_quota, utc_now, lambda _: None, clock=now)
    running = asyncio.create_task(quota.run())
    yield quota
    running.cancel()
    await asyncio.wait([running])


def session_of(api: Api, quota: FleetQuota, admit: Admit | None = None, tokens: Iterable[str] = "a") -> ApiSession:
    """A session whose credential has another of these tokens whenever it is read."""
    left = list(tokens)
    current: Callable[[], Mapping[str, str]] = lambda: {"Authorization": left.pop(0)}  # noqa: E731  one expression
    credential = FixedCredential(current)

    class Renewed(FixedCredential):
        async def renew(self, refused: Mapping[str, str]) -> bool:
            credential.update()
            self.headers = credential.headers
            return self.headers is not refused

    endpoint = Endpoint("http://shop.example/orders/{order_id}")
    return ApiSession(
        cast("Any", api),
        endpoint,
        1_000,
        metrics().upstream_request,
        credential=Renewed(lambda: credential.headers),
        conditions=Conditions(quota, admit),
    )


@virtual_time
async def test_a_request_that_is_refused_after_its_turn_gives_its_place_back() -> None:
    api, admitted = Api(b"{}"), [True, False, True, True]

    async def admit() -> None:
        if not admitted.pop(0):
            raise NotSent("the source is paused")

    async with quota_of(QuotaLimits(concurrency=1)) as quota, asyncio.timeout(5.0):
        session = session_of(api, quota, admit)
        refused = await session.send(REQUESTS, URL)
        later = await session.send(REQUESTS, URL)

    assert isinstance(refused, Failed)
    assert isinstance(later, Fetched)
    assert len(api.begun) == 1


@virtual_time
@pytest.mark.parametrize(
    "first",
    [NoDocument(307, {"Location": "/orders/one"}), NoDocument(401, {})],
    ids=["redirect", "renewed credential"],
)
async def test_a_request_that_is_repeated_takes_another_turn(first: NoDocument) -> None:
    api = Api(first, b"{}")

    async with quota_of(QuotaLimits(rate=1.0)) as quota, asyncio.timeout(10.0):
        result = await session_of(api, quota, tokens="ab").send(REQUESTS, URL)

    assert isinstance(result, Fetched)
    assert api.begun[1] - api.begun[0] == pytest.approx(1.0, abs=0.02)


@virtual_time
async def test_each_repetition_ends_its_turn_before_the_next_one() -> None:
    redirects = [NoDocument(307, {"Location": f"/orders/{number}"}) for number in range(3)]

    async with quota_of(QuotaLimits(concurrency=1)) as quota, asyncio.timeout(5.0):
        result = await session_of(Api(*redirects, b"{}"), quota).send(REQUESTS, URL)

    assert isinstance(result, Fetched)
