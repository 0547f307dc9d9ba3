"""The cost of each of our calls in Redis, on queues of different sizes.

`make scale` measures the full size, for which no call may take longer than 5 ms. It takes 15 minutes.
"""

import os

import pytest
from redis.asyncio import Redis
from rehearsals.scale.calls import Calls
from rehearsals.scale.meter import LONG, pace
from rehearsals.scale.state import Size

pytestmark = pytest.mark.long

SMALL = Size(queued=15_000, retries=1_000, dead=1_500, pending=1_500, consumers=20)
LARGE = Size(queued=100_000, retries=10_000, dead=10_000, pending=10_000, consumers=1_000)
FULL = Size(queued=5_000_000, retries=300_000, dead=300_000, pending=100_000, consumers=1_000)

# Rare calls of one process or an operator may cost more with more consumers.
MAY_GROW = {"status: consumers", "remove stale, none of all is", "remove stale, 1,000"}
# Ratio of the cost on a much larger queue. Costs below this share of a millisecond are rounded up to it.
MOST_GROWTH = 4.0
LEAST = 0.1


@pytest.mark.nightly
@pytest.mark.timeout(300)
async def test_what_a_call_costs_does_not_grow_with_the_queue(redis: Redis, redis_url: str) -> None:
    least = LEAST * await pace(redis)
    small = (await Calls(redis, redis_url, "small", SMALL).measure()).medians()
    large = (await Calls(redis, redis_url, "large", LARGE).measure()).medians()

    grown = {
        name: (small[name], cost)
        for name, cost in large.items()
        # Medians are whole microseconds, except for errors of binary fractions.
        if name not in MAY_GROW and name in small and round(cost - MOST_GROWTH * max(least, small[name]), 6) > 0
    }
    assert grown == {}


if os.environ.get("INGEST_TEST_SCALE") == "full":

    @pytest.mark.timeout(3600)
    async def test_no_call_takes_redis_longer_than_five_milliseconds(redis: Redis, redis_url: str) -> None:
        before = await pace(redis)
        costs = await Calls(redis, redis_url, "full", FULL).measure()
        slowness = max(before, await pace(redis))

        print(f"\n{costs.table()}\nthis machine takes {slowness:.2f} times as long as the reference")  # noqa: T201  what it is for
        over = {name: cost for name, cost in costs.medians().items() if cost > LONG * slowness}
        assert over == {}
