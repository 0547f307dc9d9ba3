"""Our own HTTP client fails: no order is blamed, none is lost, and the work goes on."""

import itertools
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Self

import pytest
from integration.scene import Scene, ids
from integration.watching import all_stored_at_the_first_attempt, is_open, nothing_is_blamed, throughout, until

from ingest.services.worker_parts import Classes
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.client import UpstreamClient, transport_opener
from ingest.upstream.http.transport import Options, Transport, TransportFailed

ORDERS = ids(300)


class _Failing:
    """A transport with a bug that is met when the next of `fails` is true."""

    def __init__(self, transport: Transport, fails: Iterator[bool]) -> None:
        self._send = transport.send
        self._fails = fails

    async def send(self, *request: Any) -> bytes:
        if next(self._fails):
            raise TransportFailed("curl object not on this multi-stack")
        return await self._send(*request)


def with_bugs(fails: Iterator[bool]) -> Classes:
    """The parts of a worker whose client of the external API has this bug."""

    class Buggy(UpstreamClient):
        @classmethod
        @asynccontextmanager
        async def open(cls, endpoint: Endpoint, limits: Any, *more: Any, **_: Any) -> AsyncIterator[Self]:
            @asynccontextmanager
            async def failing() -> AsyncIterator[Transport]:
                async with transport_opener("aiohttp")(Options(limits, False, None)) as transport:
                    yield _Failing(transport, fails)

            async with cls.with_opener(failing, endpoint.url, limits, *more) as client:
                yield client

    return Classes(upstream=Buggy)


@pytest.mark.parametrize("tries", [1, 3])
async def test_a_bug_that_some_requests_meet_uses_up_no_attempt_and_no_delivery(scene: Scene, tries: int) -> None:
    fails = (number % 30 == 7 for number in itertools.count())
    await scene.enqueue(*ORDERS)

    async with scene.worker(classes=with_bugs(fails), upstream_tries=tries, max_attempts=1, max_deliveries=2):
        await all_stored_at_the_first_attempt(scene, ORDERS)


async def test_a_bug_that_every_request_meets_is_an_outage(scene: Scene) -> None:
    broken = True

    def fails() -> Iterator[bool]:
        while True:
            yield broken

    await scene.enqueue(*ORDERS)

    async with scene.worker(classes=with_bugs(fails()), upstream_tries=3, max_attempts=1, max_deliveries=2) as worker:
        await until(lambda: is_open(worker))
        await throughout(3.0, lambda: nothing_is_blamed(scene))
        assert is_open(worker)
        assert scene.api.stats().requests == 0
        broken = False

        await all_stored_at_the_first_attempt(scene, ORDERS)
