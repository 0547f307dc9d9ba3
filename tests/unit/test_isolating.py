"""A request for several orders that fails: one failure, and the order that breaks it is found."""

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from fakes.upstream import document, response
from fakes.workers import buffer_limit, gauge
from unit.evidence import answering, circuit

from ingest.domain.deliveries.delivery import DeadReason, Delivery, EntryRef
from ingest.domain.deliveries.outcome import DeadLetter, Outcome, Release, Retry, Store
from ingest.domain.errors import (
    CredentialFault,
    Fault,
    PermanentFault,
    PostponedFault,
    ThrottledFault,
    TransientFault,
    TransportFault,
)
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.order import decode_order
from ingest.domain.orders.order_id import SEPARATOR
from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.flow.deliver.document_reader import DocumentReader
from ingest.flow.deliver.handler import AttemptLimits, Handler
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses
from ingest.upstream.bulk.bulk import BulkOptions, BulkUpstream

AT = datetime(2026, 1, 30, tzinfo=UTC)
ORDERS = [f"o{number}" for number in range(50)]


@dataclass
class ListApi:
    """A client of a list endpoint that fails if an order in `breaks` is requested."""

    fault: type[Fault] | Fault
    breaks: set[str]
    asked: list[list[str]] = field(default_factory=list)

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        order_ids = request.order_id.split(SEPARATOR)
        self.asked.append(order_ids)
        await asyncio.sleep(0)
        if self.breaks & set(order_ids):
            return response(request, self.fault, AT, time.monotonic())
        return response(request, b"[%s]" % b",".join(map(document, order_ids)), AT, time.monotonic())

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        return await self.fetch(request)


def delivery(order_id: str) -> Delivery:
    return Delivery(EntryRef("s", f"1-{order_id[1:]}"), order_id, 1.0, attempt=1, count=1, document=None, fields={})


async def outcomes(api: ListApi, breaker: CircuitBreaker, limit: Pace | None = None) -> dict[str, Outcome]:
    """What becomes of all orders that wait together."""
    options = BulkOptions(size=50, requests=2, url_length=30, body=1_000)
    async with asyncio.timeout(20), BulkUpstream(api, options) as bulk:
        handler = Handler(
            bulk,
            DocumentReader(OrderDecoder(decode_order), buffer_limit(100, 100_000)),
            AttemptLimits(3, 5),
            breaker,
            limit or Pace(100, gauge(), Pauses()),
        )
        decided = await asyncio.gather(*(handler.handle(delivery(order_id)) for order_id in ORDERS))
    return dict(zip(ORDERS, decided, strict=True))


def proven(fault: Fault | None = None) -> CircuitBreaker:
    """A circuit whose API has sent an order before, and gets a request for it again when another order fails."""
    breaker = circuit(answering(fault), window=0.01)
    breaker.record_success(FetchRequest("canary"), time.monotonic())
    return breaker


@pytest.mark.parametrize(
    ("fault", "ends"),
    [
        (PermanentFault(DeadReason.REJECTED, "HTTP 422"), DeadLetter),
        (PermanentFault(DeadReason.NOT_FOUND, "HTTP 404"), DeadLetter),
        (PermanentFault(DeadReason.INVALID_ORDER, "too large"), DeadLetter),
        (TransientFault("HTTP 500"), Retry),
        (CredentialFault("HTTP 403"), Retry),
        (PostponedFault("HTTP 409", 60.0), Retry),
    ],
)
async def test_the_order_that_breaks_the_answer_is_found_in_logarithmic_steps(
    fault: Fault, ends: type[Outcome]
) -> None:
    api = ListApi(fault, {"o31"})

    decided = await outcomes(api, proven())

    assert isinstance(decided.pop("o31"), ends)
    assert {type(outcome) for outcome in decided.values()} == {Store}
    # What would dead-letter it is requested once more.
    again = [1] if ends is DeadLetter else []
    assert len(api.asked) <= 2 * 6 + 1 + len(again)
    assert [len(asked) for asked in api.asked if "o31" in asked] == [50, 25, 12, 6, 3, 1, *again]


async def test_several_that_break_it_are_all_found_and_no_other_is_blamed() -> None:
    api = ListApi(PermanentFault(DeadReason.REJECTED, "HTTP 400"), {"o0", "o1", "o30", "o49"})

    decided = await outcomes(api, proven())

    assert {name for name, outcome in decided.items() if isinstance(outcome, DeadLetter)} == api.breaks
    assert sum(isinstance(outcome, Store) for outcome in decided.values()) == 46


async def test_an_outage_is_noticed_by_the_first_failure_and_no_request_is_divided() -> None:
    api = ListApi(TransientFault("HTTP 503"), set(ORDERS))
    decided = await outcomes(api, proven(TransientFault("HTTP 503")))

    assert {type(outcome) for outcome in decided.values()} == {Release}
    assert [len(asked) for asked in api.asked] == [50]


async def test_at_the_start_one_failed_request_is_one_failure_and_several_are_an_outage() -> None:
    one = circuit(answering(), window=0.01)
    decided = await outcomes(ListApi(TransientFault("HTTP 500"), {"o7"}), one)
    assert not one.is_open
    assert sum(isinstance(outcome, Store) for outcome in decided.values()) == 49

    everything = ListApi(TransientFault("HTTP 500"), set(ORDERS))
    decided = await outcomes(everything, circuit(answering(), window=0.01))
    assert {type(outcome) for outcome in decided.values()} == {Release}
    assert len(everything.asked) <= 3


@pytest.mark.parametrize("fault", [TransientFault("refused", reached=False), TransportFault("our client failed")])
async def test_no_request_is_divided_that_did_not_reach_the_api(fault: Fault) -> None:
    api = ListApi(fault, set(ORDERS))

    await outcomes(api, proven())

    assert [len(asked) for asked in api.asked] == [50]


async def test_one_throttled_request_cuts_the_limit_once_and_all_of_its_orders_wait() -> None:
    limit = Pace(100, gauge(), Pauses())
    api = ListApi(ThrottledFault("HTTP 429", 7.0), set(ORDERS))

    decided = await outcomes(api, proven(), limit)

    assert {type(outcome) for outcome in decided.values()} == {Retry}
    assert {outcome.attempt for outcome in decided.values() if isinstance(outcome, Retry)} == {1}
    assert limit.requests == 4
    assert [len(asked) for asked in api.asked] == [50]


async def test_one_answer_for_many_orders_is_one_success() -> None:
    limit = Pace(100, gauge(), Pauses())
    limit.restart()

    await outcomes(ListApi(TransientFault("never"), set()), circuit(), limit)

    assert limit.requests == 5
