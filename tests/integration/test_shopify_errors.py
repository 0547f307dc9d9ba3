"""Errors of Shopify's GraphQL API, which are in responses with the status 200. Each is recognized, and no partial order is stored."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from fakes.workers import metrics

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, PostponedFault, ThrottledFault, TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.lab.shops.simulated_shop import SimulatedShop
from ingest.settings import load_settings
from ingest.settings.source_file import source_settings
from ingest.sources.from_settings import source_of
from ingest.sources.opening import fetching_by
from ingest.upstream.client import UpstreamClient

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def folder(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


async def fetched(base_url: str, *order_ids: str) -> list[Fetched | Failed]:
    with open("sources.toml", "w", encoding="utf-8") as file:  # noqa: ASYNC230, PTH123  a few bytes
        file.write(f"[sources.shop]\nkind = 'shopify'\nbase_url = '{base_url}'\ntoken = 'shpat_simulated'\n")
    [settings] = source_settings(load_settings(sources="sources.toml")).values()
    source = source_of(settings, {})
    async with (
        UpstreamClient.open(source.endpoint, source.limits, metrics().upstream_request) as client,
        fetching_by(client, source) as fetching,
    ):
        return [await fetching.upstream.fetch_once(FetchRequest(order_id)) for order_id in order_ids]


@asynccontextmanager
async def shop_that_sends(document: Any, status: int = 200) -> AsyncIterator[str]:
    async def respond(_: web.Request) -> web.Response:
        return web.json_response(document, status=status)

    application = web.Application()
    application.router.add_post("/admin/api/2026-07/graphql.json", respond)
    async with TestServer(application) as server:
        yield str(server.make_url("")).rstrip("/")


def error(code: str, message: str = "a sentence") -> dict[str, Any]:
    return {"message": message, "extensions": {"code": code}}


PARTIAL = {"order": {"legacyResourceId": "7", "customer": None}}


@pytest.mark.parametrize(
    ("document", "fault"),
    [
        ({"data": PARTIAL, "errors": [error("ACCESS_DENIED")]}, CredentialFault),
        ({"data": None, "errors": [error("INTERNAL_SERVER_ERROR")]}, PostponedFault),
        ({"data": PARTIAL, "errors": [error("SOMETHING_NEW")]}, TransientFault),
        ({"errors": [error("undefinedField")]}, TransientFault),
        ({"errors": [error("THROTTLED")]}, ThrottledFault),
    ],
)
async def test_an_error_beside_a_part_of_the_data_is_never_an_order(document: Any, fault: type[Fault]) -> None:
    async with shop_that_sends(document) as base_url:
        [result] = await fetched(base_url, "7")

    assert isinstance(result, Failed)
    assert type(result.fault) is fault
    # The shop's own sentence says what is wrong.
    assert "a sentence" in str(result.fault)


def denied(*path: str, code: str = "ACCESS_DENIED") -> dict[str, Any]:
    return error(code, f"Access denied for {path[-1]} field.") | {"path": list(path)}


ADDRESSLESS = {"order": {"legacyResourceId": "7", "shippingAddress": None}}


async def test_denied_access_to_an_optional_field_is_no_reason_to_reject_the_order() -> None:
    errors = [denied("order", "shippingAddress"), denied("order", "customer", "email")]

    async with shop_that_sends({"data": ADDRESSLESS, "errors": errors}) as base_url:
        [result] = await fetched(base_url, "7")

    assert isinstance(result, Fetched)


@pytest.mark.parametrize(
    ("document", "fault", "message"),
    [
        (
            {"data": {"order": None}, "errors": [denied("order")]},
            CredentialFault,
            "Access denied for order field. (at order)",
        ),
        ({"data": None, "errors": [denied("order", "lineItems")]}, CredentialFault, "(at order.lineItems)"),
        (
            {"data": ADDRESSLESS, "errors": [denied("order", "shippingAddress"), denied("order", "x", code="NEW")]},
            CredentialFault,
            "; Access denied for x field. (at order.x)",
        ),
        ({"errors": "a text"}, TransientFault, "a text"),
    ],
    ids=["the order", "a required field", "and another error", "text"],
)
async def test_other_errors_decide_and_are_shown_with_their_place(
    document: Any, fault: type[Fault], message: str
) -> None:
    async with shop_that_sends(document) as base_url:
        [result] = await fetched(base_url, "7")

    assert isinstance(result, Failed)
    assert type(result.fault) is fault
    assert message in str(result.fault)


@pytest.mark.parametrize("status", [402, 423, 430])
async def test_a_frozen_or_locked_shop_is_an_outage(status: int) -> None:
    async with shop_that_sends({"errors": "Unavailable Shop"}, status) as base_url:
        [result] = await fetched(base_url, "7")

    assert isinstance(result, Failed)
    assert isinstance(result.fault, TransientFault)
    assert not result.fault.reached


async def test_a_wrong_token_is_a_credential() -> None:
    async with shop_that_sends({"errors": "[API] Invalid API key or access token"}, 401) as base_url:
        [result] = await fetched(base_url, "7")

    assert isinstance(result, Failed)
    assert isinstance(result.fault, CredentialFault)


async def test_an_id_that_is_no_number_is_rejected_and_does_not_stop_others() -> None:
    invalid = {"errors": [error("argumentLiteralsIncompatible", "Invalid global id 'gid://shopify/Order/#1001'")]}
    async with shop_that_sends(invalid) as base_url:
        [result] = await fetched(base_url, "#1001")

    assert isinstance(result, Failed)
    assert isinstance(result.fault, PermanentFault)
    assert (result.fault.reason, result.fault.is_configured) == (DeadReason.REJECTED, True)


async def test_a_throttled_request_waits_until_its_points_are_restored() -> None:
    async with SimulatedShop("shopify", orders=3, seed=1, changes={"rate_limit": 10, "rate_burst": 160}) as shop:
        first, second = await fetched(shop.base_url, shop.kind.order_id(1), shop.kind.order_id(2))

    assert isinstance(first, Fetched)
    assert isinstance(second, Failed)
    assert isinstance(second.fault, ThrottledFault)
    assert second.fault.after is not None
    assert 1.0 < second.fault.after < 16.0


async def test_an_order_with_many_lines_costs_one_more_request_and_any_other_only_one() -> None:
    async with SimulatedShop("shopify", orders=150, seed=5) as shop:
        many = next(order for order in shop.state.listed(None) if len(order.lines) > 30)
        few = next(order for order in shop.state.listed(None) if len(order.lines) < 5)
        before = shop.state.counts["requests"]
        results = await fetched(shop.base_url, shop.kind.order_id(few.number))
        after_few = shop.state.counts["requests"]
        results += await fetched(shop.base_url, shop.kind.order_id(many.number))
        after_many = shop.state.counts["requests"]

    assert all(isinstance(result, Fetched) for result in results)
    assert (after_few - before, after_many - after_few) == (1, 1 + -(-(len(many.lines) - 30) // 100))
