"""A client of the external API to test, and servers that answer with any bytes at all."""

import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from listener import listening
from prometheus_client import CollectorRegistry

from ingest.domain.fetch.request_headers import check_secret
from ingest.lab.upstream.samples import sample_orders
from ingest.telemetry.collectors import SharedMetricsCollector
from ingest.telemetry.metrics import WorkerMetrics
from ingest.telemetry.shared_metrics import SharedMetrics
from ingest.upstream.access.endpoint import Access, Endpoint, Secret
from ingest.upstream.client import UpstreamClient
from ingest.upstream.http.transport import Kind, UpstreamLimits

TOKEN = "s3cr3t-t0ken"
LIMITS = UpstreamLimits(connect=5, read=10, total=20, body=4 * 1024 * 1024, tries=1)
QUICK = replace(LIMITS, tries=3)
IMPATIENT = replace(LIMITS, total=0.3, read=0.3)
(ORDER, DOCUMENT), (OTHER, _) = list(sample_orders().items())[:2]

Connect = Callable[..., AbstractAsyncContextManager[UpstreamClient]]


def connecting(shared_metrics: SharedMetrics, kind: Kind) -> Connect:
    """Opens clients with this transport that count on `shared_metrics`."""

    def open_client(
        template: str,
        limits: UpstreamLimits = LIMITS,
        token: str | None = None,
        proxy: str | None = None,
        is_paused: Callable[[], bool] = lambda: False,
        **more: Any,
    ) -> AbstractAsyncContextManager[UpstreamClient]:
        seconds = WorkerMetrics.on(shared_metrics, 0).upstream_request
        if token is not None:
            more["access"] = Access("bearer", {"token": secret("token", token)})
        return UpstreamClient.open(
            Endpoint(template, kind=kind, proxy=proxy, **more), limits, seconds, is_paused=is_paused
        )

    return open_client


def secret(role: str, value: str, file: Path | None = None) -> Secret:
    return Secret(f"INGEST_UPSTREAM_{role.upper()}_FILE", value, file, check_secret)


def counted(shared_metrics: SharedMetrics) -> dict[str, float]:
    """Requests by code."""
    registry = CollectorRegistry()
    registry.register(SharedMetricsCollector(shared_metrics))
    samples = (sample for family in registry.collect() for sample in family.samples)
    return {
        sample.labels["code"]: sample.value
        for sample in samples
        if sample.name == "ingest_upstream_request_seconds_count" and sample.value
    }


def http(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *headers, "", ""]).encode() + body


@asynccontextmanager
async def serving(
    answer: Callable[[bytes, StreamReader, StreamWriter], Awaitable[None]], tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Yield the port of a server. `answer` gets the head of each request and the connection."""

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        while not writer.is_closing():
            await answer(await reader.readuntil(b"\r\n\r\n"), reader, writer)

    async with listening(serve, tls) as port:
        yield port


@asynccontextmanager
async def answering(
    answer: bytes, *, to_other: bytes = b"", then_close: bool = True
) -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that sends exactly these bytes, or other ones for `OTHER`, and records requests."""
    asked: list[bytes] = []

    async def write(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        asked.append(head)
        writer.write(to_other if to_other and OTHER.encode() in head else answer)
        await writer.drain()
        if then_close:
            writer.close()

    async with serving(write) as port:
        yield f"http://127.0.0.1:{port}/orders/{{order_id}}", asked
