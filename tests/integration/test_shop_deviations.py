"""Orders that a shop counts, shows or denies in another way than others, each against a simulated shop."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from fakes.workers import metrics
from integration.test_shop_kinds import KEYS, settings_of

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import PermanentFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.lab.shops.simulated_shop import SimulatedShop
from ingest.operations.doctor.finding import Level
from ingest.operations.doctor.upstream import findings
from ingest.sources.doctor_subject import upstream_subject
from ingest.sources.documents import CountedDecoder
from ingest.sources.from_settings import source_of
from ingest.sources.opening import fetching_by
from ingest.sources.source import Source
from ingest.telemetry.shared_metrics import Counter
from ingest.upstream.client import UpstreamClient
from ingest.upstream.conditions import Conditions
from ingest.upstream.notices import NoticeLog

SOON = 5.0


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@asynccontextmanager
async def shop_and_source(kind: str, **modes: object) -> AsyncIterator[tuple[SimulatedShop, Source]]:
    async with SimulatedShop(KEYS[kind][0], orders=10, seed=3, changes=modes) as shop:
        yield shop, source_of(settings_of(kind, shop), {})


async def fetched(source: Source, order_id: str, conditions: Conditions | None = None) -> Fetched | Failed:
    seconds = metrics().upstream_request
    async with (
        UpstreamClient.open(source.endpoint, source.limits, seconds, conditions=conditions or Conditions()) as client,
        fetching_by(client, source) as fetching,
    ):
        return await fetching.upstream.fetch(FetchRequest(order_id))


@pytest.mark.parametrize("kind", ["woocommerce", "bigcommerce"])
async def test_a_checkout_that_was_not_completed_is_fetched_and_makes_no_row(kind: str) -> None:
    async with shop_and_source(kind, drafts=2) as (shop, source):
        assert source.mapping is not None
        decoder = CountedDecoder(source.mapping, metrics())
        for number, rows in ((2, 0), (3, 1)):
            order_id = shop.kind.order_id(number)

            found = await fetched(source, order_id)

            assert isinstance(found, Fetched), found.fault
            assert len(await decoder.decode(found.body, FetchRequest(order_id))) == rows
        shop.site.behave(drafts=0)
        placed = await fetched(source, shop.kind.order_id(2))
        assert isinstance(placed, Fetched)
        assert len(await decoder.decode(placed.body, FetchRequest(shop.kind.order_id(2)))) == 1


async def test_an_order_that_the_key_may_not_read_is_not_taken_for_a_missing_one() -> None:
    async with shop_and_source("woocommerce", unreadable=2) as (shop, source):
        denied, missing = await fetched(source, shop.kind.order_id(2)), await fetched(source, "999999")

    assert isinstance(denied, Failed)
    assert isinstance(denied.fault, PermanentFault)
    assert denied.fault.reason is DeadReason.REJECTED
    assert "may not be read" in str(denied.fault)
    assert "HTTP 403" in str(denied.fault)
    assert isinstance(missing, Failed)
    assert isinstance(missing.fault, PermanentFault)
    assert missing.fault.reason is DeadReason.NOT_FOUND


async def test_an_order_is_stored_without_the_field_to_which_access_is_denied() -> None:
    own = metrics()
    async with shop_and_source("shopify", denied="shippingAddress") as (shop, source):
        order_id = shop.kind.order_id(1)

        found = await fetched(source, order_id, Conditions(on_notice=NoticeLog(own.api_notices).record))

        assert isinstance(found, Fetched), found.fault
        assert source.mapping is not None
        assert source.mapping.decode(found.body, order_id).id == order_id
    assert counts(own.api_notices) == {"denied": 1, "version": 0, "deprecated": 0}


@pytest.mark.parametrize("kind", ["shopify", "shopify-rest"])
async def test_another_version_and_a_deprecated_call_are_counted_logged_once_and_shown_by_doctor(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = metrics()
    record = NoticeLog(own.api_notices).record
    async with shop_and_source(kind, served_version="2026-10", deprecated="https://shopify.dev/x") as (shop, source):
        for number in (1, 2):
            assert isinstance(await fetched(source, shop.kind.order_id(number), Conditions(on_notice=record)), Fetched)

        subject = upstream_subject(settings_of(kind, shop), shop.kind.order_id(1), {})
        found = await findings(subject, never, SOON)

    assert counts(own.api_notices) == {"denied": 0, "version": 2, "deprecated": 2}
    logged = capsys.readouterr()
    assert (logged.out + logged.err).count("api_notice") == 2
    warnings = [each.what for each in found if each.level is Level.WARNING]
    assert "the external API serves version 2026-10 instead of 2026-07" in warnings
    assert "the external API will end a call: https://shopify.dev/x" in warnings


async def test_a_shop_that_serves_the_requested_version_gives_no_notice() -> None:
    own = metrics()
    async with shop_and_source("shopify") as (shop, source):
        await fetched(source, shop.kind.order_id(1), Conditions(on_notice=NoticeLog(own.api_notices).record))

    assert counts(own.api_notices) == {"denied": 0, "version": 0, "deprecated": 0}


async def test_an_empty_currency_is_no_currency() -> None:
    async with shop_and_source("woocommerce") as (shop, source):
        order_id = shop.kind.order_id(1)
        found = await fetched(source, order_id)
        assert isinstance(found, Fetched)
        assert source.mapping is not None
        document = json.loads(found.body) | {"currency": ""}

        with pytest.raises(ValueError, match="no value for `currency`"):
            source.mapping.decode(json.dumps(document).encode(), order_id)


async def never() -> str | None:
    return None


def counts(counters: dict[str, Counter]) -> dict[str, float]:
    return {name: counter._cells[counter._at] for name, counter in counters.items()}
