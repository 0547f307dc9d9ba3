"""The URL of Sentinels, and the pace of lookups."""

import asyncio

import pytest

from ingest.domain.redis_urls.sentinel_url import is_sentinel_url, parse_sentinel_url, with_sentinel_password
from ingest.queue.redis.checked_connections import CheckedTcp, connection_options
from ingest.queue.redis.connection import translated
from ingest.queue.redis.topology import topology_of
from ingest.queue.redis.topology.sentinel import PrimaryAddress
from ingest.queue.redis.topology.standalone import StandaloneTopology


def test_a_url_names_sentinels_service_and_database() -> None:
    url = parse_sentinel_url("redis+sentinel://u:p%40@h1:26380,h2,h3/shop.orders-1/2?ssl_cert_reqs=none")

    assert url.sentinels == (("h1", 26380), ("h2", 26379), ("h3", 26379))
    assert url.service == "shop.orders-1"
    assert url.redis_url == "redis://u:p%40@h1:26380/2?ssl_cert_reqs=none"
    assert (url.username, url.password, url.reached_at) == (None, None, {})


def test_the_credentials_of_sentinels_and_addresses_behind_nat_are_options() -> None:
    url = parse_sentinel_url(
        "rediss+sentinel://h1/orders?sentinel_username=s&sentinel_password=p%26w"
        "&nat=10.0.0.1:6379,redis.example:7001&nat=10.0.0.2:6379,redis.example:7002"
    )

    assert (url.username, url.password) == ("s", "p&w")
    assert url.redis_url == "rediss://h1/0"
    assert url.reached_at == {
        ("10.0.0.1", 6379): ("redis.example", 7001),
        ("10.0.0.2", 6379): ("redis.example", 7002),
    }


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("redis+sentinel://h1,h2", "name of the service"),
        ("redis+sentinel://h1,h2/", "name of the service"),
        ("redis+sentinel://h1/a%20b/0", "other characters"),
        ("redis+sentinel://h1/orders/x", "number of the database"),
        ("redis+sentinel://h1/orders/0/1", "number of the database"),
        ("redis+sentinel://h1,/orders", "hosts of the Sentinels"),
        ("redis+sentinel://h1:x/orders", "hosts of the Sentinels"),
        ("redis+sentinel://h1:0/orders", "hosts of the Sentinels"),
        ("redis+sentinel:///orders", "hosts of the Sentinels"),
        ("redis+sentinel://h1/orders?nat=10.0.0.1:6379", "nat=REPORTED:PORT,REACHED:PORT"),
        ("redis+sentinel://h1/orders?nat=10.0.0.1,h:1", "nat=REPORTED:PORT,REACHED:PORT"),
    ],
)
def test_an_invalid_url_is_rejected_with_its_problem(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse_sentinel_url(url)


def test_a_separate_password_is_inserted_once() -> None:
    url = with_sentinel_password("redis+sentinel://h1/orders/0?nat=a:1,b:2", "p&w")

    assert parse_sentinel_url(url).password == "p&w"
    assert parse_sentinel_url(url).reached_at == {("a", 1): ("b", 2)}
    with pytest.raises(ValueError, match="contains a password"):
        with_sentinel_password(url, "other")
    with pytest.raises(ValueError, match="not the URL of Sentinels"):
        with_sentinel_password("redis://h1/0", "other")


def test_a_standalone_redis_is_connected_to_as_without_a_topology() -> None:
    url = "redis://:p@host:6380/1"

    owner = topology_of(url)
    assert isinstance(owner, StandaloneTopology)

    assert not is_sentinel_url(url)
    assert owner.connection_options(socket_timeout=3)["connection_class"] is CheckedTcp
    plain = connection_options(url, socket_timeout=3)
    assert {**owner.connection_options(socket_timeout=3), "retry": None} == {**plain, "retry": None}
    topology = topology_of(url)
    assert topology.owner_of("a") == topology.owner_of("b")


async def test_lookups_are_delayed_longer_while_no_primary_is_found() -> None:
    pauses: list[float] = []

    def recorded(shortest: float, longest: float) -> float:
        pauses.append(longest)
        assert shortest == longest / 2
        return 0.0

    address = PrimaryAddress(parse_sentinel_url("redis+sentinel://127.0.0.1:1/orders"), recorded)
    for _ in range(8):
        with pytest.raises(Exception, match=r"Sentinel 127\.0\.0\.1:1"), translated():
            await address.find()
    address.confirm(("127.0.0.1", 1))
    with pytest.raises(Exception, match="Sentinel"), translated():
        await address.find()

    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


async def test_connections_that_are_made_at_the_same_time_share_a_lookup() -> None:
    lookups: list[float] = []

    def recorded(_: float, longest: float) -> float:
        lookups.append(longest)
        return 0.0

    address = PrimaryAddress(parse_sentinel_url("redis+sentinel://127.0.0.1:1/orders"), recorded)

    failures = await asyncio.gather(*(address.find() for _ in range(4)), return_exceptions=True)
    await asyncio.gather(*(address.find() for _ in range(4)), return_exceptions=True)

    assert len(failures) == 4
    # The first lookup is made without a pause.
    assert len(lookups) == 1
