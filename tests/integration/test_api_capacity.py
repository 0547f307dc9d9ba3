"""The capacity of the simulated API, including waiting and rejected requests, and its changes."""

import asyncio
import time
from random import Random

import aiohttp
import pytest

from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.lab.upstream.limits.capacity import Capacity


def test_within_the_capacity_a_request_takes_its_own_time() -> None:
    served = Capacity(3, queue=10)

    assert [served.take(100.0, seconds) for seconds in (0.2, 0.1, 0.3)] == pytest.approx([0.2, 0.1, 0.3])


def test_above_it_a_request_waits_for_the_first_that_ends() -> None:
    served = Capacity(2, queue=10)
    served.take(100.0, 0.5)
    served.take(100.0, 0.2)

    assert served.take(100.1, 0.1) == pytest.approx(0.2), "the second ends at 100.2"
    assert served.take(100.1, 1.0) == pytest.approx(1.2), "after the third"
    assert served.take(101.9, 0.1) == pytest.approx(0.1), "nobody is there any more"


def test_what_can_neither_be_processed_nor_wait_is_refused() -> None:
    served = Capacity(2, queue=1)

    taken = [served.take(100.0, 1.0) for _ in range(4)]

    assert taken == [1.0, 1.0, 2.0, None]


def test_after_a_change_those_accepted_keep_their_times_and_later_ones_wait_for_them() -> None:
    served = Capacity(4, queue=10)
    for _ in range(4):
        served.take(100.0, 1.0)

    served.capacity = 1
    waits = [served.take(100.0, 1.0) for _ in range(2)]
    served.capacity = 8

    assert waits == [2.0, 3.0]
    assert served.take(100.0, 1.0) == 1.0


def test_it_processes_as_much_as_its_capacity_whatever_is_asked_of_it() -> None:
    served, random, now, done = Capacity(20, queue=1_000), Random(1), 0.0, 0

    while now < 100:
        now += random.expovariate(1_000)
        wait = served.take(now, random.uniform(0.1, 0.3))
        done += wait is not None and now + wait < 100

    assert done == pytest.approx(20 / 0.2 * 100, rel=0.02)


async def test_over_http_requests_wait_and_too_many_get_503_without_retry_after() -> None:
    behaviour = Behaviour(latency="0.2", capacity=2, capacity_queue=2, any_id=True)
    async with SimulatedApi(behaviour, seed=1) as api, aiohttp.ClientSession() as http:

        async def fetch(number: int) -> tuple[int, bool, float]:
            began = time.monotonic()
            async with http.get(api.url_template.format(order_id=str(number))) as response:
                return response.status, "Retry-After" in response.headers, time.monotonic() - began

        answers = await asyncio.gather(*map(fetch, range(6)))
        stats = api.stats()

    assert sorted(status for status, _, _ in answers) == [200, 200, 200, 200, 503, 503]
    assert not any(told for _, told, _ in answers)
    assert max(seconds for status, _, seconds in answers if status == 200) > 0.39
    assert stats.by_status == {"200": 4, "503": 2}
