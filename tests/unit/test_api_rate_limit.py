"""The rate limit of an API key admits requests, reports its rest, and is shared by processes."""

import subprocess
import sys
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.api.admission.rate_limit import Bucket, SharedBuckets
from ingest.domain.api_key import FASTEST, SLOWEST, ApiKey, RateLimit, Scope, digest_of
from ingest.upstream.rate_limit_headers import remaining_of

# A host that has been up for three years: the clock's values have the fewest digits behind the point.
LATE = 1e8


def key(name: str, limit: RateLimit | None) -> ApiKey:
    return ApiKey(name, digest_of(name), frozenset({Scope.READ}), limit)


def bucket(rate: float, burst: int, buckets: SharedBuckets | None = None) -> Bucket:
    return (buckets or SharedBuckets()).of([key("shop", RateLimit(rate, burst))])[digest_of("shop")]


def admitted(bucket: Bucket, times: list[float]) -> list[float]:
    return [now for now in times if bucket.take(now).is_admitted]


def test_a_burst_is_admitted_and_then_the_rate() -> None:
    shop = bucket(rate=10, burst=5)

    times = admitted(shop, [LATE + number / 1_000 for number in range(1_000)])

    assert times[:5] == [LATE + number / 1_000 for number in range(5)]
    assert len(times) == 5 + 9
    assert all(later - earlier >= 0.0999 for earlier, later in pairwise(times[5:]))


def test_a_burst_comes_back_with_time_and_not_more_than_it() -> None:
    shop = bucket(rate=10, burst=5)
    admitted(shop, [LATE] * 5)

    assert len(admitted(shop, [LATE + 0.2] * 10)) == 2
    assert len(admitted(shop, [LATE + 3_600] * 10)) == 5


@given(st.floats(SLOWEST, 1e5), st.integers(1, 1_000), st.lists(st.floats(0, 100), min_size=1, max_size=200))
def test_in_no_time_more_than_the_burst_and_the_rate_are_admitted(rate: float, burst: int, gaps: list[float]) -> None:
    shop = bucket(rate, burst)
    now, times = LATE, []
    for gap in gaps:
        now += gap / rate
        if shop.take(now).is_admitted:
            times.append(now)

    for first in range(0, len(times), 7):
        for last in range(first, len(times), 11):
            assert last - first + 1 <= burst + rate * (times[last] - times[first]) + 0.01


@given(st.floats(SLOWEST, FASTEST), st.integers(1, 50))
def test_who_waits_as_told_is_admitted_at_once(rate: float, burst: int) -> None:
    shop = bucket(rate, burst)
    while (taken := shop.take(LATE)).is_admitted:
        assert taken.remaining >= 0

    assert shop.take(LATE + taken.seconds).is_admitted


@pytest.mark.parametrize(
    ("rate", "burst", "policy"),
    [
        (100, 200, '"default";q=200;w=2'),
        (100, 50, '"default";q=100;w=1'),
        (100, 150, '"default";q=200;w=2'),
        (0.5, 1, '"default";q=1;w=2'),
        (0.001, 1, '"default";q=1;w=1000'),
        (1e6, 1_000_000, '"default";q=1000000;w=1'),
    ],
)
def test_the_policy_tells_the_rate_over_the_time_that_a_burst_takes(rate: float, burst: int, policy: str) -> None:
    assert bucket(rate, burst).policy == policy


def test_the_headers_are_those_of_the_draft_and_our_own_client_can_read_them() -> None:
    shop = bucket(rate=2, burst=10)

    first = dict(shop.headers(shop.take(LATE)))
    for _ in range(8):
        shop.take(LATE)
    last = dict(shop.headers(shop.take(LATE)))
    refused = dict(shop.headers(shop.take(LATE)))

    assert first == {"RateLimit-Policy": '"default";q=10;w=5', "RateLimit": '"default";r=9;t=1'}
    assert last["RateLimit"] == '"default";r=0;t=1'
    assert refused["RateLimit"] == '"default";r=0;t=1'
    read = remaining_of(first, LATE)
    assert read is not None
    assert (read.requests, read.seconds) == (9, 1.0)


def test_another_limit_after_a_change_of_the_file_neither_blocks_nor_grants_more_than_its_burst() -> None:
    shared = SharedBuckets()
    slow = bucket(0.001, 100, shared)
    admitted(slow, [LATE] * 100)

    fast = bucket(10, 5, shared)

    assert not fast.take(LATE).is_admitted
    assert len(admitted(fast, [LATE + 0.5] * 10)) == 5


def test_keys_have_buckets_of_their_own_however_many_there_are() -> None:
    keys = [key(f"key-{number}", RateLimit(1, 1)) for number in range(2_000)]
    buckets = SharedBuckets().of(keys)

    assert all(buckets[one.digest].take(LATE).is_admitted for one in keys)
    assert not any(buckets[one.digest].take(LATE).is_admitted for one in keys)


# A separate process, because the test process has threads, which do not survive a fork.
FORKING = """
import os, signal, sys
from ingest.api.admission.rate_limit import SharedBuckets
from ingest.domain.api_key import ApiKey, RateLimit, digest_of

shared = SharedBuckets()

def bucket(name, rate, burst):
    key = ApiKey(name, digest_of(name), frozenset(), RateLimit(rate, burst))
    return shared.of([key])[key.digest]

def admitted(bucket, tries):
    return sum(bucket.take(1e8).is_admitted for _ in range(tries))

def tell(number):
    os.write(1, b"%d\\n" % number)  # at once: others write, too

def in_a_process(work):
    if (pid := os.fork()) == 0:
        tell(work())
        os._exit(0)
    return pid

def locked_and_killed():
    mine._shared.lock(mine._at)
    os.kill(os.getpid(), signal.SIGKILL)

os.waitpid(in_a_process(lambda: admitted(bucket("one", 0.001, 10), 7)), 0)
tell(admitted(bucket("one", 0.001, 10), 10))
mine = bucket("two", 1, 3)
os.waitpid(in_a_process(locked_and_killed), 0)
tell(admitted(mine, 5))
for pid in [in_a_process(lambda: admitted(bucket("three", 0.001, 2000), 2000)) for _ in range(3)]:
    os.waitpid(pid, 0)
"""


def test_processes_share_buckets_and_one_that_dies_keeps_nobody_out() -> None:
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, check=True, timeout=60)

    child, parent, after_the_kill, *at_the_same_time = map(int, done.stdout.split())
    assert (child, parent) == (7, 3)
    assert after_the_kill == 3
    assert len(at_the_same_time) == 3
    # A process that was interrupted while it had the lock may have cost one or another.
    assert 2_000 <= sum(at_the_same_time) <= 2_020


def test_a_process_that_was_interrupted_returns_no_tokens() -> None:
    shop = bucket(rate=100, burst=10)
    admitted(shop, [LATE] * 10)

    assert admitted(shop, [LATE - 0.9] * 5) == []
    assert len(admitted(shop, [LATE + 0.05] * 10)) == 5


def test_a_bucket_that_was_never_used_is_full_whatever_the_clock_says() -> None:
    for now in (0.0, 1e-3, LATE, 1e12):
        assert bucket(1, 3).take(now).remaining == 2
