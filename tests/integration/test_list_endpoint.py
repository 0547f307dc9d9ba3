"""The list endpoint of the simulated external API: several orders with one request, and the same faults as for one."""

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from ingest.lab.upstream import SimulatedApi
from ingest.lab.upstream.samples import sample_orders

DOCUMENTS = sample_orders()
ONE, TWO, THREE = list(DOCUMENTS)[:3]


@pytest.fixture
async def api() -> AsyncIterator[SimulatedApi]:
    async with SimulatedApi(seed=1) as api:
        yield api


async def ask(api: SimulatedApi, ids: str, *, follow: bool = False) -> tuple[int, bytes]:
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session,
        session.get(api.list_template.format(order_ids=ids), allow_redirects=follow) as response,
    ):
        return response.status, await response.read()


async def test_the_orders_are_listed_byte_for_byte_and_counted_apart_from_requests(api: SimulatedApi) -> None:
    listed = await ask(api, f"{ONE},{TWO}%2C{THREE}")

    expected = b'{"orders":[%s]}' % b",".join(DOCUMENTS[order_id] for order_id in (ONE, TWO, THREE))
    assert listed == (200, expected)
    stats = api.stats()
    assert (stats.requests, stats.orders) == (1, 3)
    assert stats.by_id == {ONE: 1, TWO: 1, THREE: 1}
    assert stats.by_status == {"200": 1}


async def test_the_answer_may_be_the_list_alone(api: SimulatedApi) -> None:
    api.behave(list_shape="array")

    assert await ask(api, ONE) == (200, b"[%s]" % DOCUMENTS[ONE])


async def test_an_order_that_does_not_exist_is_missing(api: SimulatedApi) -> None:
    api.delete_order(TWO)

    _, body = await ask(api, f"{ONE},{TWO},nobody,{THREE}")

    assert [order["id"] for order in json.loads(body)["orders"]] == [ONE, THREE]


@pytest.mark.parametrize(("ids", "status"), [("", 400), (f"{ONE},{TWO},{THREE}", 422), (f"{ONE},{TWO}", 200)])
async def test_no_orders_and_too_many_are_refused(api: SimulatedApi, ids: str, status: int) -> None:
    api.behave(list_limit=2)

    assert (await ask(api, ids))[0] == status


async def test_a_request_that_names_a_breaking_order_fails_with_all_of_its_orders(api: SimulatedApi) -> None:
    api.behave(breaking_id=TWO, error_status=500)

    assert (await ask(api, f"{ONE},{TWO}"))[0] == 500
    assert (await ask(api, TWO))[0] == 500
    assert (await ask(api, f"{ONE},{THREE}"))[0] == 200


async def test_a_list_has_the_faults_of_other_requests(api: SimulatedApi) -> None:
    api.behave(rate_limit=0.001, rate_burst=1)
    assert [(await ask(api, f"{ONE},{TWO}"))[0] for _ in range(2)] == [200, 429]

    api.behave(rate_limit=0, redirect_rate=1, fail_first=1)
    assert await ask(api, f"{ONE},{TWO}", follow=True) == (
        200,
        b'{"orders":[%s,%s]}' % (DOCUMENTS[ONE], DOCUMENTS[TWO]),
    )

    api.behave(redirect_rate=0, fail_first=0, token="t")
    assert (await ask(api, ONE))[0] == 401
