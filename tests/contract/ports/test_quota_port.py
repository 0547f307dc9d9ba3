"""The shared quota, of each implementation: what processes are leased, and what becomes of it when they go."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from contract.ports.quotas import MemoryQuotaUnderTest, QuotaUnderTest, RedisQuotaUnderTest
from topologies import Place, SharedServers

from ingest.domain.fetch.quota import LeaseRequest, QuotaLimits
from ingest.queue.consume.quota import quota_key
from ingest.upstream.quota.quota import QuotaLeases


@pytest.fixture
async def quota(
    implementation: Place | None, queue_name: str, shared_servers: SharedServers
) -> AsyncIterator[QuotaUnderTest]:
    if implementation is None:
        yield MemoryQuotaUnderTest()
        return
    url = shared_servers.url(implementation)
    async with AsyncExitStack() as stack, shared_servers.client_of(implementation, quota_key(queue_name)) as redis:
        yield RedisQuotaUnderTest(redis, url, queue_name, stack)


async def ask(leases: QuotaLeases, want: int, claim: int = 0) -> int:
    return (await leases.lease(LeaseRequest(concurrency=want, claim=claim))).limit


async def test_one_alone_is_leased_the_whole_rate_for_a_period(quota: QuotaUnderTest) -> None:
    one = await quota.join(QuotaLimits(rate=200.0))

    lease = await one.lease(LeaseRequest(tokens=1_000))

    assert (lease.tokens, lease.members) == (20, 1)
    assert lease.spacing == pytest.approx(0.005)
    assert (await one.lease(LeaseRequest(tokens=3))).tokens == 3


async def test_the_requests_of_all_follow_each_other_at_the_rate(quota: QuotaUnderTest) -> None:
    members = [await quota.join(QuotaLimits(rate=2.0)) for _ in range(3)]

    leases = [await member.lease(LeaseRequest(tokens=1)) for member in [*members, members[0]]]

    assert [lease.tokens for lease in leases] == [1] * 4
    # The fourth place of four, less the time that this takes.
    assert 0.5 < leases[-1].starts_in <= 1.5


async def test_those_who_want_more_get_equal_parts(quota: QuotaUnderTest) -> None:
    members = [await quota.join(QuotaLimits(rate=1_000.0)) for _ in range(4)]
    for member in members:
        await member.lease(LeaseRequest(tokens=1))

    tokens = [(await member.lease(LeaseRequest(tokens=1_000))).tokens for member in members[:3]]

    assert tokens == [25] * 3


async def test_a_time_without_requests_earns_no_more_than_the_burst(quota: QuotaUnderTest) -> None:
    one = await quota.join(QuotaLimits(rate=2.0, burst=4))
    await one.lease(LeaseRequest(tokens=1))
    await quota.passes(3_600)

    leases = [await one.lease(LeaseRequest(tokens=1)) for _ in range(6)]

    assert all(lease.starts_in <= 0.01 for lease in leases[:4])
    assert all(lease.starts_in > 0.1 for lease in leases[4:])


@pytest.mark.parametrize(("starts_full", "at_once"), [(True, 5), (False, 1)])
async def test_after_its_state_was_lost_only_a_quota_that_starts_full_has_its_burst(
    quota: QuotaUnderTest,
    starts_full: bool,  # noqa: FBT001
    at_once: int,
) -> None:
    one = await quota.join(QuotaLimits(rate=0.01, burst=5, starts_full=starts_full))
    await quota.lose()
    assert (await one.lease(LeaseRequest(tokens=1))).tokens == 0
    await quota.passes(4)

    leases = [await one.lease(LeaseRequest(tokens=1)) for _ in range(6)]

    assert sum(lease.tokens == 1 and lease.starts_in <= 0.01 for lease in leases) == at_once


async def test_the_rate_that_the_api_tells_slows_all_until_it_is_over(quota: QuotaUnderTest) -> None:
    one, two = [await quota.join(QuotaLimits(rate=200.0)) for _ in range(2)]

    await one.lease(LeaseRequest(tokens=1, slowest=10.0, slow_for=30.0))
    slow = (await two.lease(LeaseRequest(tokens=1))).spacing
    await quota.passes(60)

    assert slow == pytest.approx(0.1)
    assert (await two.lease(LeaseRequest(tokens=1))).spacing == pytest.approx(0.005)


async def test_a_request_with_another_rate_books_its_times_at_that_rate(quota: QuotaUnderTest) -> None:
    one, two = [await quota.join(QuotaLimits(rate=200.0)) for _ in range(2)]
    await one.lease(LeaseRequest(tokens=1))

    slow = await two.lease(LeaseRequest(tokens=1, rate=2.0))
    after = await one.lease(LeaseRequest(tokens=1))

    assert slow.spacing == pytest.approx(0.5)
    # Slots are not booked so far ahead.
    assert after.tokens == 0
    assert after.renew_in > 0.3


async def test_during_a_pause_nothing_is_leased(quota: QuotaUnderTest) -> None:
    one, two = [await quota.join(QuotaLimits(rate=200.0)) for _ in range(2)]
    await one.lease(LeaseRequest())
    await quota.pause(30.0)

    lease = await two.lease(LeaseRequest(tokens=10))

    assert lease.tokens == 0
    assert lease.paused == pytest.approx(30.0, abs=5.0)
    assert lease.renew_in <= 1.0


async def test_a_process_that_ends_gives_back_its_last_times_and_others_use_them(quota: QuotaUnderTest) -> None:
    one, two = [await quota.join(QuotaLimits(rate=1.0)) for _ in range(2)]
    await two.lease(LeaseRequest(tokens=1))
    await one.lease(LeaseRequest(tokens=1))

    await one.end(unused=1)

    lease = await two.lease(LeaseRequest(tokens=1))
    assert lease.members == 1
    assert lease.starts_in == pytest.approx(1.0, abs=0.5)


async def test_a_process_that_ends_gives_back_no_times_over_those_of_others(quota: QuotaUnderTest) -> None:
    one, two = [await quota.join(QuotaLimits(rate=2.0)) for _ in range(2)]
    await one.lease(LeaseRequest(tokens=1))
    last = await two.lease(LeaseRequest(tokens=1))

    await one.end(unused=1)

    lease = await two.lease(LeaseRequest(tokens=1))
    assert lease.time + lease.starts_in >= last.time + last.starts_in + 0.499


async def test_a_process_that_has_used_its_times_gives_back_none(quota: QuotaUnderTest) -> None:
    one, two = [await quota.join(QuotaLimits(rate=2.0)) for _ in range(2)]
    last = await one.lease(LeaseRequest(tokens=1))

    await one.end(unused=0)

    lease = await two.lease(LeaseRequest(tokens=1))
    assert lease.time + lease.starts_in >= last.time + last.starts_in + 0.499


async def test_no_time_comes_before_the_reply(quota: QuotaUnderTest) -> None:
    one, two = [await quota.join(QuotaLimits(rate=200.0)) for _ in range(2)]

    far = await one.lease(LeaseRequest(tokens=1, transit=0.1))
    near = await two.lease(LeaseRequest(tokens=1))

    assert far.starts_in == pytest.approx(0.1, abs=0.002)
    assert near.time + near.starts_in >= far.time + far.starts_in + 0.004


async def test_one_alone_gets_the_concurrency_that_it_wants_up_to_the_quota(quota: QuotaUnderTest) -> None:
    one = await quota.join(QuotaLimits(concurrency=100))

    assert [await ask(one, want) for want in (30, 500)] == [30, 100]


async def test_over_all_processes_no_more_than_the_quota_is_ever_held(quota: QuotaUnderTest) -> None:
    members = [await quota.join(QuotaLimits(concurrency=10)) for _ in range(4)]
    held = [0] * 4
    wants = [(0, 50), (1, 50), (2, 3), (3, 50), (0, 1), (1, 50), (3, 50), (2, 20), (0, 40), (1, 2), (3, 9), (2, 50)] * 4

    for index, want in wants:
        # Requests in flight stay until the next call.
        held[index] = max(await ask(members[index], want, held[index]), held[index])
        assert sum(held) <= 10
        held[index] = min(held[index], want)

    assert sum(held) > 0


async def test_a_new_process_gets_its_fair_share_when_the_others_have_ended_requests(quota: QuotaUnderTest) -> None:
    old, new = [await quota.join(QuotaLimits(concurrency=100)) for _ in range(2)]
    assert await ask(old, 500) == 100

    assert await ask(new, 500) == 0
    assert await ask(old, 500, claim=100) == 50
    assert await ask(new, 500) == 0, "those of the other are still in flight"
    assert await ask(old, 500, claim=50) == 50

    assert await ask(new, 500) == 50


async def test_with_fewer_places_than_processes_a_turn_lasts_until_it_is_used(quota: QuotaUnderTest) -> None:
    one, two = [await quota.join(QuotaLimits(rate=100.0, concurrency=1)) for _ in range(2)]
    await two.lease(LeaseRequest())

    first = await one.lease(LeaseRequest(tokens=1, concurrency=5))
    other = await two.lease(LeaseRequest(tokens=1, concurrency=5))
    waits = await one.lease(LeaseRequest(tokens=1, concurrency=5, is_unused=True))
    used = await one.lease(LeaseRequest(tokens=1, concurrency=5))
    later = await two.lease(LeaseRequest(tokens=1, concurrency=5))

    assert [lease.limit for lease in (first, other, waits, used, later)] == [1, 0, 1, 0, 1]
    # Without concurrency, times to send would only be lost to the others.
    assert [lease.tokens for lease in (first, other, waits, used, later)] == [1, 0, 1, 0, 1]


async def test_a_lease_that_shrinks_counts_at_its_old_size_until_its_holder_has_confirmed(
    quota: QuotaUnderTest,
) -> None:
    old, new = [await quota.join(QuotaLimits(concurrency=5)) for _ in range(2)]
    assert await ask(old, 5) == 5

    assert await ask(old, 2, claim=5) == 2
    assert await ask(new, 5) == 0, "the other may begin requests by its former lease until the reply"
    assert await ask(old, 2, claim=2) == 2

    assert await ask(new, 5) > 0


async def test_a_dead_process_is_forgotten_after_four_seconds(quota: QuotaUnderTest) -> None:
    dead, heir = [await quota.join(QuotaLimits(concurrency=100)) for _ in range(2)]
    assert await ask(dead, 100) == 100

    limits = []
    for _ in range(5):
        await quota.passes(1)
        limits.append(await ask(heir, 100))

    assert limits[:2] == [0, 0]
    assert limits[-1] == 100
    assert (await heir.lease(LeaseRequest())).members == 1


async def test_a_step_of_the_servers_clock_ends_no_lease(quota: QuotaUnderTest) -> None:
    one, two = [await quota.join(QuotaLimits(concurrency=10)) for _ in range(2)]
    assert await ask(one, 7) == 7

    for step in (5, 3_600):
        await quota.passes(step)

        assert await ask(two, 10) == 3
        assert await ask(one, 10, claim=7) <= 7


async def test_a_contribution_that_has_expired_takes_none_of_the_others_away(quota: QuotaUnderTest) -> None:
    busy, other, *frozen = [await quota.join(QuotaLimits(concurrency=100)) for _ in range(6)]
    for process in frozen:
        await ask(process, 1)
    for _ in range(3):
        await quota.passes(1)
        await ask(busy, 60, claim=60)

    for process in frozen:
        await quota.passes(1)
        await ask(busy, 60, claim=60)
        await ask(process, 1)
        assert await ask(other, 100) <= 40


async def test_one_that_ends_leaves_its_share_at_once(quota: QuotaUnderTest) -> None:
    one, two = [await quota.join(QuotaLimits(concurrency=100)) for _ in range(2)]
    await ask(one, 100)

    await one.end(unused=0)

    assert await ask(two, 100) == 100


async def test_one_that_could_not_reach_the_server_makes_it_learn_anew(quota: QuotaUnderTest) -> None:
    one, two = [await quota.join(QuotaLimits(rate=200.0)) for _ in range(2)]

    back = await one.lease(LeaseRequest(tokens=5, is_back=True))
    other = await two.lease(LeaseRequest(tokens=5))
    await quota.passes(3)
    later = await one.lease(LeaseRequest(tokens=5))

    assert [(lease.is_learning, lease.tokens) for lease in (back, other, later)] == [(True, 0), (True, 0), (False, 5)]


async def test_with_the_state_lost_what_processes_claim_is_held_until_they_ask_again(quota: QuotaUnderTest) -> None:
    one, two = [await quota.join(QuotaLimits(concurrency=100)) for _ in range(2)]
    await ask(one, 70)
    await ask(two, 30)
    await quota.lose()

    assert (await two.lease(LeaseRequest(concurrency=100, claim=30))).is_learning
    assert (await one.lease(LeaseRequest(concurrency=100, claim=70))).is_learning
    await quota.passes(3)

    assert await ask(two, 100, claim=5) <= 30
