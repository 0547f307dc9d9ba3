"""Bulk requests combine orders, and each order receives its own result."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from fakes.upstream import delivered, response
from fakes.virtual_time import now, some_turns, until, virtual_time
from structlog.testing import capture_logs

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import Fault, NotSent, PermanentFault, ThrottledFault, TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.order_id import SEPARATOR, quoted_ids
from ingest.upstream.bulk.bulk import BulkOptions, BulkUpstream

ASKED_AT = datetime(2026, 1, 30, tzinfo=UTC)


def document(order_id: str) -> bytes:
    """With spaces and numbers that would change if it were written again."""
    return f'{{ "id" : "{order_id}",  "total": 1.50, "name": "\\u00e9" }}'.encode()


class ListApi:
    """A client of a list endpoint that has every order, but for those `gone`.

    Attributes:
        asked: the IDs of each request, in order.
        latency: seconds of a request.
        page: most documents in an answer.
        answer: another response for these IDs. An exception is raised.
        tries: requests that may be tried again, and single ones.
    """

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.asked_once: list[list[str]] = []
        self.latency: Callable[[list[str]], float] = lambda _: 1.0
        self.gone: set[str] = set()
        self.page = 1_000
        self.answer: Callable[[list[str]], bytes | Exception | None] = lambda _: None
        self.cancelled = 0

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        order_ids = request.order_id.split(SEPARATOR)
        self.asked.append(order_ids)
        try:
            await asyncio.sleep(self.latency(order_ids))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        given = self.answer(order_ids)
        found = [document(order_id) for order_id in order_ids if order_id not in self.gone][: self.page]
        return response(request, given or b'{"orders": [%s]}' % b" , ".join(found), ASKED_AT, 17.0)

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        self.asked_once.append(request.order_id.split(SEPARATOR))
        return await self.fetch(request)


class Pace:
    """The pace of an API that requests a pause."""

    def __init__(self) -> None:
        self.pause = 0.0
        self.requests = 100

    def request_delay(self) -> float:
        return self.pause

    def record_request(self) -> None:
        pass


@asynccontextmanager
async def opened(
    api: ListApi, size: int = 50, requests: int = 2, body: int = 1_000, pace: Any = None
) -> AsyncIterator[BulkUpstream]:
    options = BulkOptions(size=size, requests=requests, url_length=30, body=body)
    async with BulkUpstream(api, options, pace, clock=now) as bulk:
        yield bulk


def fetching(bulk: BulkUpstream, *order_ids: str, together: int = 0) -> list["asyncio.Task[Fetched]"]:
    async def fetch(order_id: str) -> Fetched:
        return await delivered(bulk.fetch(FetchRequest(order_id, together=together)))

    return [asyncio.create_task(fetch(order_id)) for order_id in order_ids]


def ids(count: int, prefix: str = "o") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


async def fault_of(task: "asyncio.Task[Fetched]") -> Fault:
    with pytest.raises(Fault) as raised:
        await task
    return raised.value


async def failures(bulk: BulkUpstream, *order_ids: str) -> list[Failed]:
    """What calls at the same time end with, each of which fails."""
    results = await asyncio.gather(*(bulk.fetch(FetchRequest(order_id)) for order_id in order_ids))
    return [result for result in results if isinstance(result, Failed)]


# -- which orders travel together ---------------------------------------------------------------------------------


@virtual_time
async def test_orders_that_wait_in_the_same_turn_travel_together_byte_for_byte() -> None:
    api = ListApi()
    async with opened(api) as bulk:
        fetched = await asyncio.gather(*fetching(bulk, *ids(20)))

    assert api.asked == [ids(20)]
    assert [each.body for each in fetched] == [document(order_id) for order_id in ids(20)]
    assert {each.requested_at for each in fetched} == {ASKED_AT}
    (exchange,) = {each.exchange for each in fetched}
    assert exchange is not None
    assert [request.order_id for request in exchange.requests] == ids(20)


@virtual_time
async def test_a_single_order_waits_for_nobody() -> None:
    api = ListApi()
    async with opened(api) as bulk:
        before = now()
        (fetched,) = await asyncio.gather(*fetching(bulk, "a"))

    assert fetched.body == document("a")
    assert now() - before == 1.0


@virtual_time
async def test_requests_have_at_most_as_many_orders_as_set_and_go_at_once_as_far_as_useful() -> None:
    api = ListApi()
    async with opened(api, size=4, requests=2) as bulk:
        before = now()
        await asyncio.gather(*fetching(bulk, *ids(10)))

    assert [len(asked) for asked in api.asked] == [4, 4, 2]
    assert now() - before == 2.0, "the rest waits for one of the others"


@virtual_time
async def test_while_enough_requests_are_in_flight_orders_gather_for_the_next() -> None:
    api = ListApi()
    async with opened(api, requests=2) as bulk:
        tasks = []
        for order_id in ids(20):
            tasks += fetching(bulk, order_id)
            await asyncio.sleep(0.01)
        await asyncio.gather(*tasks)

    assert api.asked == [["o0"], ["o1"], ids(20)[2:]]


@virtual_time
async def test_while_a_request_is_in_flight_orders_wait_a_moment_for_others() -> None:
    api = ListApi()
    async with opened(api, size=4, requests=3) as bulk:
        tasks = fetching(bulk, "first")
        await some_turns()
        for order_id in ids(6):
            tasks += fetching(bulk, order_id)
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.02)
        began = list(api.asked)
        await asyncio.gather(*tasks)

    assert began == [["first"], ids(6)[:4], ids(6)[4:]]


@virtual_time
async def test_a_stop_ends_the_wait_for_a_pause_and_what_is_in_flight_goes_on() -> None:
    api, pace = ListApi(), Pace()
    async with opened(api, size=2, requests=2, pace=pace) as bulk:
        (in_flight,) = fetching(bulk, "first")
        await some_turns()
        pace.pause = 30.0
        waiting = fetching(bulk, *ids(3))
        await asyncio.sleep(0.1)
        before = now()

        bulk.close()

        assert [type(await fault_of(task)) for task in waiting] == [NotSent] * 3
        assert now() == before
        assert (await in_flight).body == document("first")
        assert isinstance(await fault_of(fetching(bulk, "late")[0]), NotSent)


@virtual_time
async def test_orders_that_wait_for_a_pause_are_sent_when_it_is_lifted() -> None:
    api, pace = ListApi(), Pace()
    async with opened(api, pace=pace) as bulk:
        pace.pause = 60.0
        waiting = fetching(bulk, "a", "b")
        await some_turns()
        before = now()

        pace.pause = 0.0
        await asyncio.gather(*waiting)

        assert now() - before < 2.0
        assert api.asked == [["a", "b"]]


@virtual_time
async def test_a_request_that_hangs_does_not_hold_up_others() -> None:
    api = ListApi()
    api.latency = lambda order_ids: 3_600.0 if "hangs" in order_ids else 0.1
    async with opened(api, requests=1) as bulk:
        await asyncio.gather(*fetching(bulk, "first"))
        hanging = fetching(bulk, "hangs")
        await asyncio.sleep(0.01)
        before = now()

        await asyncio.gather(*fetching(bulk, *ids(5)))

        assert now() - before < 1.2
        assert not hanging[0].done()
        hanging[0].cancel()


@virtual_time
async def test_calls_for_one_order_share_its_document_and_its_place() -> None:
    api = ListApi()
    async with opened(api, size=2) as bulk:
        fetched = await asyncio.gather(*fetching(bulk, "a", "a", "b", "a"))

    assert api.asked == [["a", "b"]]
    assert [each.body for each in fetched] == [document("a"), document("a"), document("b"), document("a")]


@pytest.mark.parametrize("signs", [":" * 60, "é" * 30, "注" * 20])
@virtual_time
async def test_the_length_of_a_url_is_bounded(signs: str) -> None:
    api = ListApi()
    order_ids = [f"{number:0>4}{signs}" for number in range(100)]
    async with opened(api, size=1_000) as bulk:
        await asyncio.gather(*fetching(bulk, *order_ids))

    assert all(len(quoted_ids(SEPARATOR.join(asked))) <= 8_000 for asked in api.asked)
    assert [order_id for asked in api.asked for order_id in asked] == order_ids
    assert len(api.asked) == 3


@virtual_time
async def test_orders_that_are_isolated_do_not_mix_with_others() -> None:
    api = ListApi()
    async with opened(api, size=50, requests=9) as bulk:
        await asyncio.gather(*fetching(bulk, *ids(4, "s"), together=2), *fetching(bulk, *ids(6)))

    assert sorted(api.asked) == [ids(6), ["s0", "s1"], ["s2", "s3"]]


@virtual_time
async def test_isolated_orders_have_their_turn_beside_a_backlog() -> None:
    api = ListApi()
    async with opened(api, size=5, requests=1) as bulk:
        tasks = fetching(bulk, "first")
        await some_turns()
        tasks += fetching(bulk, *ids(4))
        isolated = fetching(bulk, "s", together=2)
        before = now()
        for number in range(10):
            await asyncio.sleep(0.9)
            tasks += fetching(bulk, *ids(4, f"o{number}-"))
        assert isolated[0].done()
        await asyncio.gather(*tasks)

    assert ["s"] in api.asked[:4]
    assert now() - before < 15


@virtual_time
async def test_a_probe_is_one_request_for_one_order() -> None:
    api = ListApi()
    api.gone = {"b"}
    async with opened(api) as bulk:
        waiting = fetching(bulk, "x")
        fetched = await delivered(bulk.fetch_once(FetchRequest("a")))
        gone = await fault_of(asyncio.create_task(delivered(bulk.fetch_once(FetchRequest("b")))))
        await asyncio.gather(*waiting)

    assert fetched.body == document("a")
    assert isinstance(gone, PermanentFault)
    assert gone.reason is DeadReason.NOT_FOUND
    assert api.asked_once == [["a"], ["b"]]


class Paced:
    """A pace of one request every `interval` seconds."""

    def __init__(self, most: int, interval: float) -> None:
        self.requests = most
        self.interval = interval
        self.next_at = 0.0

    def request_delay(self) -> float:
        return self.next_at - now()

    def record_request(self) -> None:
        self.next_at = now() + self.interval


@virtual_time
async def test_while_the_api_throttles_orders_gather_for_the_next_request_that_may_begin() -> None:
    api = ListApi()
    api.latency = lambda _: 0.1
    async with opened(api, size=10, requests=4, pace=Paced(most=4, interval=5.0)) as bulk:
        before = now()
        tasks = []
        for number in range(10):
            tasks += fetching(bulk, *ids(2, f"{number}-"))
            await asyncio.sleep(0.1)
        await asyncio.gather(*tasks)

    assert [len(asked) for asked in api.asked] == [2, 10, 8]
    assert now() - before == pytest.approx(10.1)


@virtual_time
async def test_no_more_requests_are_in_flight_than_the_limit_allows_now() -> None:
    api = ListApi()
    async with opened(api, size=1, requests=4, pace=Paced(most=2, interval=0.0)) as bulk:
        before = now()
        await asyncio.gather(*fetching(bulk, *ids(6)))

    assert now() - before == 3.0


# -- results of each order ---------------------------------------------------------------------------------------


@virtual_time
async def test_an_order_that_is_missing_is_requested_once_more_with_others_that_are() -> None:
    api = ListApi()
    api.gone = {"o3", "o7"}
    async with opened(api) as bulk:
        tasks = fetching(bulk, *ids(10))
        await asyncio.wait(tasks)

    assert api.asked == [ids(10), ["o3", "o7"]]
    for order_id, task in zip(ids(10), tasks, strict=True):
        if order_id in api.gone:
            fault = await fault_of(task)
            assert isinstance(fault, PermanentFault)
            assert fault.reason is DeadReason.NOT_FOUND
        else:
            assert task.result().body == document(order_id)


@virtual_time
async def test_an_answer_that_is_cut_to_a_page_loses_no_order_and_is_warned_of_once() -> None:
    api = ListApi()
    api.page = 10
    with capture_logs() as logs:
        async with opened(api) as bulk:
            fetched = await asyncio.gather(*fetching(bulk, *ids(50)))

    assert [each.body for each in fetched] == [document(order_id) for order_id in ids(50)]
    assert [len(asked) for asked in api.asked] == [50, 40, 30, 20, 10]
    assert [entry["event"] for entry in logs] == ["bulk_response_incomplete"]


@virtual_time
async def test_duplicates_and_orders_that_nobody_asked_for_are_ignored() -> None:
    api = ListApi()
    other = document("b").replace(b"1.50", b"9.99")
    api.answer = lambda _: b"[%s]" % b",".join([document("x"), document("b"), other, document("a"), document("y")])
    async with opened(api) as bulk:
        fetched = await asyncio.gather(*fetching(bulk, "a", "b"))

    assert [each.body for each in fetched] == [document("a"), document("b")]


@virtual_time
@pytest.mark.parametrize("others", [1, 20, 1_000])
@pytest.mark.parametrize("requested", [["a"], ["a", "b"]])
async def test_an_answer_with_other_orders_only_says_nothing_of_those_requested(
    requested: list[str], others: int
) -> None:
    api = ListApi()
    api.answer = lambda _: b"[%s]" % b",".join([document(order_id) for order_id in ids(others, "x")])
    async with opened(api) as bulk:
        failed = await failures(bulk, *requested)
        with pytest.raises(TransientFault, match="other orders"):
            await delivered(bulk.fetch_once(FetchRequest("a")))

    assert [type(each.fault) for each in failed] == [TransientFault] * len(requested)
    assert all("INGEST_UPSTREAM_BULK_URL" in str(each.fault) for each in failed)
    assert {each.is_shared for each in failed} == {len(requested) > 1}


@virtual_time
@pytest.mark.parametrize(
    ("requested", "answer"),
    [
        (["a"], b'[{"id":"x"},{"status":7}]'),
        (["a"], b'[{"number":"x"},{"number":"y"}]'),
        (["a", "b"], b'[{"id":"x"},{"status":7}]'),
        (["a", "b"], b'[{"number":"x"},{"number":"y"}]'),
    ],
)
async def test_documents_without_a_readable_id_are_other_orders_as_well(requested: list[str], answer: bytes) -> None:
    api = ListApi()
    api.answer = lambda _: answer
    async with opened(api) as bulk:
        failed = await failures(bulk, *requested)

    assert [type(each.fault) for each in failed] == [TransientFault] * len(requested)
    assert all("INGEST_UPSTREAM_BULK_ID" in str(each.fault) for each in failed)
    assert {each.is_shared for each in failed} == {len(requested) > 1}


@virtual_time
async def test_a_document_over_the_limit_is_the_fault_of_its_order() -> None:
    api = ListApi()
    large = b'{"id":"a","x":"%s"}' % (b"x" * 1_000)
    api.answer = lambda _: b"[%s,%s]" % (large, document("b"))
    async with opened(api, body=1_000) as bulk:
        failed, fetched = await asyncio.gather(*(bulk.fetch(FetchRequest(order_id)) for order_id in "ab"))

    assert isinstance(fetched, Fetched)
    assert fetched.body == document("b")
    assert isinstance(failed, Failed)
    assert isinstance(failed.fault, PermanentFault)
    assert failed.fault.reason is DeadReason.INVALID_ORDER
    assert not failed.is_shared


@pytest.mark.parametrize(
    "error",
    [
        TransientFault("HTTP 500"),
        ThrottledFault("HTTP 429", 7.0),
        PermanentFault(DeadReason.REJECTED, "HTTP 422"),
        TransientFault("refused", reached=False),
    ],
)
def test_if_the_request_fails_it_fails_for_all_of_its_orders_as_one(error: Fault) -> None:
    @virtual_time
    async def run() -> None:
        api = ListApi()
        api.answer = lambda _: error
        async with opened(api) as bulk:
            failed = await failures(bulk, "a", "b", "c")

        assert len(api.asked) == 1
        assert [each.fault for each in failed] == [error] * 3
        assert all(each.is_shared for each in failed)
        (exchange,) = {each.exchange for each in failed}
        assert [request.order_id for request in exchange.requests] == ["a", "b", "c"]
        assert exchange.started_at == 17.0

    run()


@virtual_time
async def test_a_request_for_one_order_that_fails_is_its_own() -> None:
    api = ListApi()
    api.answer = lambda _: PermanentFault(DeadReason.REJECTED, "HTTP 422")
    async with opened(api) as bulk:
        failed = await failures(bulk, "a", "a")

    assert [each.is_shared for each in failed] == [False, False]


@virtual_time
async def test_a_document_without_a_readable_id_is_searched_for_and_is_its_orders() -> None:
    api = ListApi()
    bad = b'{"status":7}'
    api.answer = lambda order_ids: (
        b"[%s]" % b",".join(bad if order_id == "b" else document(order_id) for order_id in order_ids)
    )
    async with opened(api) as bulk:
        fetched, shared = await asyncio.gather(*(bulk.fetch(FetchRequest(order_id)) for order_id in "ab"))
        (alone,) = await asyncio.gather(*fetching(bulk, "b", together=1))

    assert isinstance(fetched, Fetched)
    assert fetched.body == document("a")
    assert isinstance(shared, Failed)
    assert shared.is_shared
    assert alone.body == bad, "what is wrong with it is for the decoder to say"


@virtual_time
async def test_a_bug_reaches_every_caller_and_the_next_request_is_sent() -> None:
    api = ListApi()
    api.answer = lambda order_ids: ZeroDivisionError() if "a" in order_ids else None
    async with opened(api, requests=1) as bulk:
        results = await asyncio.gather(*fetching(bulk, "a", "b"), return_exceptions=True)
        (fetched,) = await asyncio.gather(*fetching(bulk, "c"))

    assert [type(result) for result in results] == [ZeroDivisionError] * 2
    assert fetched.body == document("c")


# -- cancelling ---------------------------------------------------------------------------------------------------


@virtual_time
async def test_cancelling_one_order_does_not_cancel_the_others() -> None:
    api = ListApi()
    async with opened(api) as bulk:
        tasks = fetching(bulk, *ids(3))
        await some_turns()
        tasks[1].cancel()
        await asyncio.wait(tasks)

    assert [task.cancelled() for task in tasks] == [False, True, False]
    assert api.cancelled == 0


@virtual_time
async def test_when_all_callers_have_left_the_request_is_cancelled_and_the_next_may_go() -> None:
    api = ListApi()
    api.latency = lambda order_ids: 3_600.0 if "o0" in order_ids else 0.1
    async with opened(api, requests=1) as bulk:
        tasks = fetching(bulk, *ids(3))
        await some_turns()
        for task in tasks:
            task.cancel()
        before = now()
        await asyncio.gather(*fetching(bulk, "next"))

    assert api.cancelled == 1
    assert now() - before < 0.2


@virtual_time
async def test_an_order_that_is_cancelled_before_it_is_sent_is_not_requested() -> None:
    api = ListApi()
    async with opened(api, requests=1) as bulk:
        first = fetching(bulk, "a")
        await some_turns()
        waiting = fetching(bulk, "b", "c")
        await some_turns()
        waiting[0].cancel()
        await asyncio.gather(*first, waiting[1])

    assert api.asked == [["a"], ["c"]]


@virtual_time
async def test_cancelling_at_any_moment_leaves_a_request_free_for_others() -> None:
    api = ListApi()
    api.latency = lambda _: 0.0
    async with opened(api, requests=1) as bulk:
        for turns in range(8):
            tasks = fetching(bulk, "a", "b")
            await some_turns(turns)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            async with asyncio.timeout(1):
                await asyncio.gather(*fetching(bulk, "c"))


@virtual_time
async def test_when_it_is_closed_requests_in_flight_are_dropped_and_nobody_waits_for_them() -> None:
    api = ListApi()
    async with opened(api) as bulk:
        tasks = fetching(bulk, "a", "b")
        await until(lambda: api.asked)
    await asyncio.wait(tasks, timeout=10)

    assert api.cancelled == 1
    assert all(task.cancelled() for task in tasks)
