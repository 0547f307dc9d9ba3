"""The handler decides: each way in which a fetch may end has its outcome."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import pytest
from fakes.upstream import response
from fakes.workers import buffer_limit, gauge
from msgspec.structs import replace
from unit.evidence import circuit as new_circuit
from unit.evidence import some_turns

from ingest.domain.deliveries.delivery import DeadReason, Delivery, EntryRef, RetryReason
from ingest.domain.deliveries.outcome import DeadLetter, Outcome, Release, Retry, Store
from ingest.domain.errors import (
    CredentialFault,
    Fault,
    NotSent,
    PermanentFault,
    PostponedFault,
    ThrottledFault,
    TokenFault,
    TokenRefused,
    TransientFault,
    TransportFault,
)
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.clean_json import ignored
from ingest.domain.orders.order import Order, decode_order
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.circuit.breaker import CircuitBreaker, FaultOf
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.flow.deliver.document_reader import DocumentReader, GrowingDocumentReader
from ingest.flow.deliver.handler import AttemptLimits, Handler
from ingest.flow.pace.pace import Pace
from ingest.flow.pace.pauses import Pauses

ASKED_AT = datetime(2026, 1, 30, tzinfo=UTC)
DOCUMENT = b'{"id":"a1","status":"placed","currency":"GBP","placed_at":"2010-12-01T08:26:00Z","lines":[]}'
DELIVERY = Delivery(
    EntryRef("stream", "1-1"), "a1", 1_700_000_000.0, attempt=1, count=1, document=None, fields={b"order_id": b"a1"}
)


@dataclass
class Answering:
    """An external API that sends one response, and records the requests."""

    answer: bytes | BaseException
    asked: list[str] = field(default_factory=list)
    asked_once: list[str] = field(default_factory=list)

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        self.asked.append(request.order_id)
        return response(request, self.answer, ASKED_AT, time.monotonic())

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        self.asked_once.append(request.order_id)
        return await self.fetch(request)


def a_circuit(hold: float = 0.0) -> CircuitBreaker:
    """The circuit of an API that has delivered no order yet."""
    return new_circuit(window=hold)


def with_evidence(*faults: Fault | None) -> CircuitBreaker:
    """The circuit of an API that sends a known order for each canary request, or fails with these faults first."""
    left = list(faults)

    async def canary(request: FetchRequest) -> Fault | None:
        assert request.order_id == "known"
        return left.pop(0) if left else None

    async def stored(count: int) -> list[str]:
        return ["known"][:count]

    return new_circuit(canary, window=0.0, stored=stored)


def a_limit() -> Pace:
    return Pace(100, gauge(), Pauses())


def handler(
    upstream: Answering,
    *,
    circuit: CircuitBreaker | None = None,
    limit: Pace | None = None,
    buffer: BufferLimit | None = None,
    on_outdated: Callable[[], None] = ignored,
) -> Handler:
    return Handler(
        upstream,
        DocumentReader(OrderDecoder(decode_order), buffer or buffer_limit(10, 10_000)),
        AttemptLimits(attempts=3, deliveries=5),
        circuit or a_circuit(),
        limit or a_limit(),
        draw=lambda low, high: (low + high) / 2,
        on_outdated=on_outdated,
    )


async def open_it(circuit: CircuitBreaker) -> None:
    """Let an outage be noticed."""
    exchange = Exchange((FetchRequest("other"),), time.monotonic())
    assert await circuit.classify(exchange, TransientFault("refused", reached=False)) is FaultOf.API
    assert circuit.is_open


async def test_a_sound_order_is_to_be_stored_with_the_time_at_which_it_was_asked_for() -> None:
    upstream = Answering(DOCUMENT)

    outcome = await handler(upstream).handle(DELIVERY)

    assert isinstance(outcome, Store)
    assert (outcome.orders[0].id, outcome.fetched_at) == ("a1", ASKED_AT)
    assert upstream.asked == ["a1"]


async def test_a_pushed_order_is_not_fetched() -> None:
    upstream = Answering(TransientFault("must not be asked"))

    outcome = await handler(upstream).handle(replace(DELIVERY, document=DOCUMENT))

    assert isinstance(outcome, Store)
    assert upstream.asked == []


@pytest.mark.parametrize(
    ("entry_id", "carried", "at"),
    [
        ("1700000000123-0", 1_700_000_000.123, "2023-11-14T22:13:20.123000+00:00"),
        ("1700000000123-7", 1_700_000_000.123, "2023-11-14T22:13:20.123007+00:00"),
        ("1700000000123-1000", 1_700_000_000.123, "2023-11-14T22:13:20.123999+00:00"),
        ("1700000000123-7", 1_600_000_000.5, "2020-09-13T12:26:40.500000+00:00"),
        ("1700000000123-7", 1_700_000_001.0, "2023-11-14T22:13:20.123007+00:00"),
        ("18446744073709551615-0", 18_446_744_073_709_551.615, "9998-12-31T23:59:59.999000+00:00"),
    ],
    ids=["its entry's", "with its place", "at most 999", "what it carries", "a clock ahead", "beyond all dates"],
)
async def test_a_pushed_order_has_the_time_of_its_announcement(entry_id: str, carried: float, at: str) -> None:
    pushed = replace(DELIVERY, entry=EntryRef("stream", entry_id), enqueued_at=carried, document=DOCUMENT)

    outcome = await handler(Answering(b"")).handle(pushed)

    assert isinstance(outcome, Store)
    assert outcome.fetched_at.isoformat(timespec="microseconds") == at


async def test_a_message_without_an_order_id_is_dead_lettered_unasked() -> None:
    upstream = Answering(DOCUMENT)

    outcome = await handler(upstream).handle(replace(DELIVERY, order_id=None))

    assert isinstance(outcome, DeadLetter)
    assert outcome.reason is DeadReason.INVALID_MESSAGE
    assert upstream.asked == []


@pytest.mark.parametrize(("count", "is_poison"), [(5, False), (6, True)])
async def test_a_message_delivered_too_often_is_poison_and_not_tried_again(count: int, is_poison: bool) -> None:  # noqa: FBT001  a parameter of the table
    upstream = Answering(DOCUMENT)

    outcome = await handler(upstream).handle(replace(DELIVERY, count=count))

    assert isinstance(outcome, DeadLetter if is_poison else Store)
    assert upstream.asked == ([] if is_poison else ["a1"])


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", DOCUMENT.replace(b"a1", b"a2"), DOCUMENT + b"x"])
async def test_a_body_that_is_no_order_is_dead_lettered_with_what_is_wrong(body: bytes) -> None:
    outcome = await handler(Answering(body), circuit=with_evidence()).handle(DELIVERY)

    assert isinstance(outcome, DeadLetter)
    assert outcome.reason is DeadReason.INVALID_ORDER
    assert outcome.error


@pytest.mark.parametrize("body", [b"", DOCUMENT[:-1], DOCUMENT[:30]])
async def test_a_body_that_breaks_off_is_a_failed_attempt_like_any_other(body: bytes) -> None:
    outcome = await handler(Answering(body)).handle(DELIVERY)
    last = await handler(Answering(body)).handle(replace(DELIVERY, attempt=3))

    assert isinstance(outcome, Retry)
    assert outcome.attempt == 2
    assert isinstance(last, DeadLetter)
    assert last.reason is DeadReason.ATTEMPTS_EXHAUSTED
    assert "is truncated" in last.error or last.error == "the document is empty"


async def test_a_pushed_document_that_breaks_off_is_dead_lettered() -> None:
    outcome = await handler(Answering(DOCUMENT)).handle(replace(DELIVERY, document=DOCUMENT[:-1]))

    assert isinstance(outcome, DeadLetter)
    assert outcome.reason is DeadReason.INVALID_ORDER


@pytest.mark.parametrize(
    ("fault", "after", "attempt", "reason"),
    [
        (TransientFault("HTTP 500"), 1.0, 3, RetryReason.HTTP_STATUS),
        (CredentialFault("HTTP 401: rejects our credential"), 1.0, 3, RetryReason.CREDENTIAL),
        (TransportFault("our HTTP client failed"), 7.5, 2, RetryReason.CLIENT),
        (TokenFault("no token"), 7.5, 2, RetryReason.CREDENTIAL),
        (TokenRefused("no token"), 7.5, 2, RetryReason.CREDENTIAL),
    ],
)
async def test_a_failure_while_others_succeed_is_an_attempt_if_the_request_was_sent(
    fault: Fault, after: float, attempt: int, reason: RetryReason
) -> None:
    circuit = a_circuit(hold=3600.0)
    bad = replace(DELIVERY, order_id="bad", attempt=2)
    failing = asyncio.create_task(handler(Answering(fault), circuit=circuit).handle(bad))
    await some_turns()
    assert not failing.done(), "it is not classified without evidence"

    await handler(Answering(DOCUMENT), circuit=circuit).handle(DELIVERY)

    async with asyncio.timeout(5):
        assert await failing == Retry(after, attempt, reason, str(fault))


async def test_an_order_that_is_not_ready_waits_as_configured_and_uses_up_an_attempt() -> None:
    circuit = a_circuit(hold=3600.0)
    postponing = handler(Answering(PostponedFault("HTTP 404", 3600.0)), circuit=circuit)

    async with asyncio.timeout(5):  # it needs no evidence: the API has answered
        assert await postponing.handle(DELIVERY) == Retry(3600.0, 2, RetryReason.HTTP_STATUS, "HTTP 404")
        last = await postponing.handle(replace(DELIVERY, attempt=3))

    assert last == DeadLetter(DeadReason.ATTEMPTS_EXHAUSTED, "HTTP 404")
    assert not circuit.is_open


@pytest.mark.parametrize("reason", [DeadReason.NOT_FOUND, DeadReason.REJECTED, DeadReason.INVALID_ORDER])
async def test_a_permanent_fault_is_dead_lettered_for_its_reason(reason: DeadReason) -> None:
    upstream = Answering(PermanentFault(reason, "HTTP 404"))

    outcome = await handler(upstream, circuit=with_evidence()).handle(DELIVERY)

    assert outcome == DeadLetter(reason, "HTTP 404")
    assert upstream.asked == ["a1", "a1"], "it is requested again, since the API may have failed for a moment"


@pytest.mark.parametrize("answer", [PermanentFault(DeadReason.NOT_FOUND, "HTTP 404"), b"<html>", b"{}", b"[]"])
@pytest.mark.parametrize("canary", [PermanentFault(DeadReason.NOT_FOUND, "HTTP 404"), TransientFault("HTTP 500")])
async def test_a_response_that_a_known_order_gets_as_well_is_an_outage(answer: bytes | Fault, canary: Fault) -> None:
    circuit = with_evidence(canary)

    assert isinstance(await handler(Answering(answer), circuit=circuit).handle(DELIVERY), Release)

    assert circuit.is_open
    assert not circuit.is_unproven


async def test_a_request_that_was_not_sent_needs_no_evidence() -> None:
    circuit = a_circuit(hold=3600.0)

    async with asyncio.timeout(10.0):
        outcome = await handler(Answering(NotSent("the source is paused")), circuit=circuit).handle(DELIVERY)

    assert outcome == Release("the source is paused")


async def test_an_api_that_fails_between_the_two_requests_is_an_outage() -> None:
    circuit = with_evidence(None, PermanentFault(DeadReason.NOT_FOUND, "HTTP 404"))
    upstream = Answering(PermanentFault(DeadReason.NOT_FOUND, "HTTP 404"))

    assert isinstance(await handler(upstream, circuit=circuit).handle(DELIVERY), Release)

    assert upstream.asked == ["a1", "a1"]
    assert circuit.is_open


async def test_a_response_before_any_order_is_known_waits_for_an_operator() -> None:
    circuit = a_circuit()
    upstream = Answering(PermanentFault(DeadReason.NOT_FOUND, "HTTP 404"))

    assert isinstance(await handler(upstream, circuit=circuit).handle(DELIVERY), Release)

    assert circuit.is_unproven


async def test_a_response_that_is_configured_to_be_about_its_order_needs_no_evidence() -> None:
    circuit = a_circuit(hold=3600.0)
    upstream = Answering(PermanentFault(DeadReason.NOT_FOUND, "HTTP 404", is_configured=True))

    async with asyncio.timeout(5):
        outcome = await handler(upstream, circuit=circuit).handle(DELIVERY)

    assert outcome == DeadLetter(DeadReason.NOT_FOUND, "HTTP 404")
    assert upstream.asked == ["a1"]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<!doctype html><p>Log in", "the response is an HTML or XML page"),
        (b"{}", "the response is an empty JSON object"),
        (b'{"errors":[{"message":"secret"}]}', "the response is a JSON object with only errors"),
        (b'[{"a":1}]', "the response is a JSON array"),
        (b'{"jane@example.com":1}', None),
    ],
)
async def test_an_outage_says_what_the_responses_look_like(body: bytes, says: str | None) -> None:
    circuit = with_evidence(PermanentFault(DeadReason.NOT_FOUND, "HTTP 404"))

    await handler(Answering(body), circuit=circuit).handle(DELIVERY)

    error = circuit.error
    assert circuit.is_open
    assert error.endswith(f"; {says}") if says else "response" not in error
    assert not any(text in error for text in ("secret", "jane"))


@pytest.mark.parametrize(("attempt", "after"), [(1, 0.5), (2, 1.0)])
async def test_a_failed_attempt_is_counted_and_tried_later(attempt: int, after: float) -> None:
    outcome = await handler(Answering(TransientFault("HTTP 500"))).handle(replace(DELIVERY, attempt=attempt))

    assert outcome == Retry(after, attempt + 1, RetryReason.HTTP_STATUS, "HTTP 500")


@pytest.mark.parametrize("attempt", [3, 4])
async def test_the_last_attempt_that_fails_is_dead_lettered(attempt: int) -> None:
    outcome = await handler(Answering(TransientFault("HTTP 500"))).handle(replace(DELIVERY, attempt=attempt))

    assert outcome == DeadLetter(DeadReason.ATTEMPTS_EXHAUSTED, "HTTP 500")


@pytest.mark.parametrize("attempt", [1, 3, 100])
async def test_being_throttled_uses_up_no_attempt(attempt: int) -> None:
    outcome = await handler(Answering(ThrottledFault("HTTP 429", 7.0))).handle(replace(DELIVERY, attempt=attempt))

    assert outcome == Retry(7.0, attempt, RetryReason.THROTTLED, "HTTP 429")


async def test_being_throttled_without_a_time_waits_for_a_second_or_two() -> None:
    outcome = await handler(Answering(ThrottledFault("HTTP 429"))).handle(DELIVERY)

    assert isinstance(outcome, Retry)
    assert 1.0 <= outcome.after <= 2.0
    assert outcome.attempt == 1


async def test_a_bug_is_no_outcome() -> None:
    with pytest.raises(ZeroDivisionError):
        await handler(Answering(ZeroDivisionError("bug"))).handle(DELIVERY)


async def test_a_document_waits_as_it_came_until_there_is_room_for_it() -> None:
    buffer = buffer_limit(1, 10_000)
    await buffer.acquire(1)
    waiting = asyncio.create_task(handler(Answering(b"no order"), buffer=buffer).handle(DELIVERY))
    await some_turns()
    assert not waiting.done()
    assert buffer.is_wanted

    buffer.release(1)

    async with asyncio.timeout(5):
        assert isinstance(await waiting, Release)


@pytest.mark.parametrize("size", [1, 2_000_000])
async def test_what_is_no_order_leaves_its_room_to_others(size: int) -> None:
    buffer = buffer_limit(1, 10_000_000)

    for _ in range(3):
        async with asyncio.timeout(30):
            bad = handler(Answering(b"x" * size), buffer=buffer, circuit=with_evidence())
            assert isinstance(await bad.handle(DELIVERY), DeadLetter)


async def test_an_order_cancelled_while_it_is_decoded_leaves_its_room_to_others() -> None:
    buffer = buffer_limit(1, 10_000_000)
    line = b'{"sku":"S","quantity":1,"unit_price":"1"}'
    large = DOCUMENT.replace(b'"lines":[]', b'"lines":[%s]' % b",".join([line] * 50_000))
    reading = asyncio.create_task(handler(Answering(large), buffer=buffer).handle(DELIVERY))
    await asyncio.sleep(0)
    assert not reading.done()

    reading.cancel()
    await asyncio.wait([reading])

    assert reading.cancelled()
    async with asyncio.timeout(30):
        assert isinstance(await handler(Answering(large), buffer=buffer).handle(DELIVERY), Store)


# -- the fault of the API -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        TransientFault("refused", reached=False),
        CredentialFault("HTTP 401: rejects our credential"),
        TransportFault("our HTTP client failed"),
        TokenFault("no token"),
        TokenRefused("no token"),
    ],
)
async def test_what_only_the_api_can_be_to_blame_for_is_no_outcome(fault: Fault) -> None:
    circuit = a_circuit()

    assert isinstance(await handler(Answering(fault), circuit=circuit).handle(replace(DELIVERY, attempt=3)), Release)

    assert circuit.is_open


async def test_a_probe_asks_once_and_a_valid_order_shows_that_the_api_is_back() -> None:
    circuit, upstream = a_circuit(), Answering(DOCUMENT)
    await open_it(circuit)

    assert isinstance(await handler(upstream, circuit=circuit).probe(DELIVERY), Store)

    assert upstream.asked_once == ["a1"]
    assert not circuit.is_open


@pytest.mark.parametrize(
    "answer",
    [
        b"<html>",
        PermanentFault(DeadReason.NOT_FOUND, "HTTP 404"),
        PermanentFault(DeadReason.REJECTED, "HTTP 422"),
        TransientFault("HTTP 500"),
        ThrottledFault("HTTP 503 with Retry-After", 9.0),
        CredentialFault("HTTP 401"),
    ],
)
async def test_a_probe_that_fails_is_nobodys_attempt(answer: bytes | Fault) -> None:
    circuit, upstream = a_circuit(), Answering(answer)
    await open_it(circuit)

    assert isinstance(await handler(upstream, circuit=circuit).probe(replace(DELIVERY, attempt=3)), Release)

    assert upstream.asked_once == ["a1"]
    assert circuit.is_open


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [({"document": DOCUMENT}, Store), ({"order_id": None}, DeadLetter), ({"count": 99}, DeadLetter)],
)
async def test_an_order_that_is_not_requested_says_nothing_of_the_api(
    changed: dict[str, object], outcome: type[Outcome]
) -> None:
    circuit = a_circuit()
    await open_it(circuit)

    assert isinstance(await handler(Answering(b""), circuit=circuit).probe(replace(DELIVERY, **changed)), outcome)

    assert circuit.is_open


async def test_being_throttled_lowers_the_limit_and_nothing_else_does() -> None:
    limit = a_limit()
    for answer in (DOCUMENT, TransientFault("HTTP 500"), PermanentFault(DeadReason.NOT_FOUND, "HTTP 404")):
        await handler(Answering(answer), limit=limit).handle(DELIVERY)
    assert limit.requests == 100

    await handler(Answering(ThrottledFault("HTTP 429")), limit=limit).handle(DELIVERY)

    assert limit.requests == 4


class Growing:
    """A decoder that makes orders of 1 KB of each document, as user code may."""

    def __init__(self) -> None:
        self.calls = 0

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Order, ...]:
        self.calls += 1
        await asyncio.sleep(0)
        return (replace(decode_order(body, request.order_id), attributes={"note": "x" * 1_000}),)


def growing(decoder: Growing, buffer: BufferLimit, turns: int) -> Handler:
    documents = GrowingDocumentReader(decoder, buffer, turns=turns)
    return Handler(Answering(DOCUMENT), documents, AttemptLimits(attempts=3, deliveries=5), a_circuit(), a_limit())


async def test_what_user_code_makes_of_documents_waits_for_room() -> None:
    decoder, buffer = Growing(), buffer_limit(100, 2_500)
    handler = growing(decoder, buffer, turns=3)
    tasks = [asyncio.create_task(handler.handle(DELIVERY)) for _ in range(20)]

    for done in range(2, 21):
        for _ in range(100):
            await asyncio.sleep(0)
        ended = [outcome for task in tasks if task.done() if isinstance(outcome := task.result(), Store)]
        assert len(ended) == done
        assert decoder.calls <= done + 3
        assert ended[0].size > 1_000
        buffer.release(ended[0].size)


async def test_what_user_code_makes_that_is_larger_than_all_the_room_has_it_alone() -> None:
    decoder, buffer = Growing(), buffer_limit(100, 500)
    handler = growing(decoder, buffer, turns=2)
    tasks = [asyncio.create_task(handler.handle(DELIVERY)) for _ in range(5)]

    for _ in range(5):
        async with asyncio.timeout(5):
            done, _waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        [task] = done
        tasks.remove(task)
        outcome = task.result()
        assert isinstance(outcome, Store)
        buffer.release(outcome.size)


@pytest.mark.parametrize("turns", [0, 1])
async def test_what_user_code_makes_leaves_its_room_to_others_when_it_is_cancelled(turns: int) -> None:
    buffer = buffer_limit(1, 10_000)
    await buffer.acquire(1)
    handler = growing(Growing(), buffer, turns)
    waiting = asyncio.create_task(handler.handle(DELIVERY))
    for _ in range(10):
        await asyncio.sleep(0)

    waiting.cancel()
    await asyncio.wait([waiting])
    buffer.release(1)

    async with asyncio.timeout(5):
        assert isinstance(await handler.handle(DELIVERY), Store)


# -- orders that the external API has already shown -------------------------------------------------------------------

NOT_FOUND = PermanentFault(DeadReason.NOT_FOUND, "HTTP 404")
CONFIGURED = PermanentFault(DeadReason.NOT_FOUND, "by the rule responses[5]", is_configured=True)
VERSIONED = DOCUMENT.replace(b'"lines"', b'"updated_at":"2026-01-29T10:00:00Z","lines"')


def expected(after: float = 0.0, version: datetime = datetime(1970, 1, 1, tzinfo=UTC)) -> Delivery:
    """The delivery of an order that a webhook or a list has shown, `after` seconds after it was enqueued."""
    entry = EntryRef("stream", f"{round((DELIVERY.enqueued_at + after) * 1000)}-0")
    microseconds = b"%d" % round(version.timestamp() * 1_000_000)
    return replace(DELIVERY, entry=entry, fields={b"order_id": b"a1", b"expected_version": microseconds})


@pytest.mark.parametrize("fault", [NOT_FOUND, CONFIGURED], ids=["status", "rule"])
async def test_an_order_that_was_shown_and_is_not_found_is_fetched_again_for_a_minute(fault: PermanentFault) -> None:
    pauses = []
    for after in (0.0, 1.0, 5.0, 59.9):
        outcome = await handler(Answering(fault), circuit=with_evidence()).handle(expected(after))

        assert isinstance(outcome, Retry)
        assert (outcome.attempt, outcome.reason) == (1, RetryReason.NOT_FOUND)
        pauses.append(outcome.after)
    assert pauses == [0.75, 0.75, 3.75, pytest.approx(44.9, abs=0.1)]

    outcome = await handler(Answering(fault), circuit=with_evidence()).handle(expected(60.0))

    assert isinstance(outcome, DeadLetter)
    assert outcome.reason is DeadReason.NOT_FOUND


@pytest.mark.parametrize("fault", [NOT_FOUND, CONFIGURED], ids=["status", "rule"])
async def test_an_order_without_evidence_is_dead_lettered_at_once(fault: PermanentFault) -> None:
    outcome = await handler(Answering(fault), circuit=with_evidence()).handle(DELIVERY)

    assert isinstance(outcome, DeadLetter)


async def test_an_older_document_than_shown_is_fetched_again_and_then_stored_and_counted() -> None:
    shown, counted, buffer = datetime(2026, 1, 29, 11, tzinfo=UTC), [], buffer_limit(10, 10_000)

    def handled(after: float, version: datetime = shown) -> Awaitable[Outcome]:
        return handler(Answering(VERSIONED), buffer=buffer, on_outdated=lambda: counted.append(after)).handle(
            expected(after, version)
        )

    outcome = await handled(0.0)
    assert isinstance(outcome, Retry)
    assert (outcome.attempt, outcome.reason) == (1, RetryReason.OUTDATED)
    assert buffer.try_acquire(10_000)  # all of it
    buffer.release(10_000)
    assert isinstance(await handled(60.0), Store)
    assert counted == [60.0]
    # A list may write parts of a second that the document lacks.
    assert isinstance(await handled(0.0, datetime(2026, 1, 29, 10, 0, 0, 900_000, tzinfo=UTC)), Store)
    assert isinstance(await handled(0.0, datetime(2026, 1, 29, 9, tzinfo=UTC)), Store)
    assert counted == [60.0]


@pytest.mark.parametrize(
    ("document", "shown", "outcome"),
    [("10:00:00.250", 500_000, Retry), ("10:00:00.250", 250_900, Store), ("10:00:00.250100", 250_900, Retry)],
)
async def test_an_older_document_of_the_same_second_is_fetched_again(
    document: str, shown: int, outcome: type[Outcome]
) -> None:
    body = VERSIONED.replace(b"10:00:00", document.encode())
    version = datetime(2026, 1, 29, 10, 0, 0, shown, tzinfo=UTC)

    assert isinstance(await handler(Answering(body)).handle(expected(0.0, version)), outcome)


async def test_a_list_that_always_shows_other_times_than_the_documents_costs_no_further_requests() -> None:
    of_source, shown = handler(Answering(VERSIONED)), datetime(2026, 1, 29, 11, tzinfo=UTC)

    for _ in range(5):
        assert isinstance(await of_source.handle(expected(60.0, shown)), Store)
    assert isinstance(await of_source.handle(expected(0.0, shown)), Store)

    # A list that shows the time of one document is believed again.
    assert isinstance(await of_source.handle(expected(0.0, datetime(2026, 1, 29, 10, tzinfo=UTC))), Store)
    assert isinstance(await of_source.handle(expected(0.0, shown)), Retry)
