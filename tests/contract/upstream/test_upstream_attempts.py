"""Every HTTP request is reported as a separate attempt with its start and its end."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
from fakes.upstream import delivered
from raw_http import IMPATIENT, ORDER, QUICK

from ingest.domain.errors import Fault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.lab.upstream import SimulatedApi
from ingest.telemetry.metrics import WorkerMetrics
from ingest.telemetry.shared_metrics import SharedMetrics
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.client import UpstreamClient
from ingest.upstream.http.transport import Kind, UpstreamLimits

Attempt = Callable[..., Awaitable["Attempts"]]


class Attempts:
    """Keeps `ingest.upstream.session.Attempts`, and notes its calls."""

    def __init__(self) -> None:
        self.started = 0
        self.ends: list[str] = []
        self.seconds: list[float] = []

    def record_start(self) -> None:
        self.started += 1

    def record_document(self, started_at: float, ended_at: float) -> None:
        self.ends.append("document")
        self.seconds.append(ended_at - started_at)

    def record_overload(self, started_at: float) -> None:
        assert started_at > 0
        self.ends.append("overload")

    def record_end(self) -> None:
        self.ends.append("end")


@pytest.fixture
def attempt(api: SimulatedApi, kind: Kind, shared_metrics: SharedMetrics) -> Attempt:
    async def fetch(limits: UpstreamLimits = QUICK, within: float = 30.0) -> Attempts:
        attempts = Attempts()
        endpoint = Endpoint(api.url_template, kind=kind)
        seconds = WorkerMetrics.on(shared_metrics, 0).upstream_request
        async with UpstreamClient.open(endpoint, limits, seconds, attempts=attempts) as client:
            with suppress(Fault, TimeoutError):
                async with asyncio.timeout(within):
                    await delivered(client.fetch(FetchRequest(ORDER)))
        return attempts

    return fetch


async def test_a_document_is_one_attempt_with_its_duration(api: SimulatedApi, attempt: Attempt) -> None:
    api.behave(latency="0.1")

    attempts = await attempt()

    assert (attempts.started, attempts.ends) == (1, ["document"])
    assert 0.09 < attempts.seconds[0] < 5


async def test_each_try_of_a_sequence_counts_and_its_pauses_do_not(api: SimulatedApi, attempt: Attempt) -> None:
    api.behave(error_rate=1.0, error_status=503, fail_first=2)

    attempts = await attempt()

    assert (attempts.started, attempts.ends) == (3, ["overload", "overload", "document"])
    assert attempts.seconds[0] < 0.1


@pytest.mark.parametrize(
    ("status", "end"), [(503, "overload"), (504, "overload"), (500, "end"), (429, "end"), (404, "end"), (401, "end")]
)
async def test_only_refusals_for_want_of_capacity_are_an_overload(
    api: SimulatedApi, attempt: Attempt, status: int, end: str
) -> None:
    api.behave(error_rate=1.0, error_status=status)

    attempts = await attempt()

    assert attempts.started == len(attempts.ends)
    assert set(attempts.ends) == {end}


async def test_a_request_that_is_cancelled_or_reset_has_an_end(api: SimulatedApi, attempt: Attempt) -> None:
    api.behave(hang_rate=1.0)
    cancelled = await attempt(within=0.2)
    api.behave(hang_rate=0.0, reset_rate=1.0)

    reset = await attempt()

    assert (cancelled.started, cancelled.ends) == (1, ["end"])
    assert reset.started == len(reset.ends) > 0
    assert set(reset.ends) == {"end"}


async def test_a_request_that_is_not_answered_in_time_is_an_overload(api: SimulatedApi, attempt: Attempt) -> None:
    api.behave(hang_rate=1.0)

    attempts = await attempt(IMPATIENT)

    assert attempts.ends == ["overload"]
