"""Traces of orders, from the request that enqueues them to the ack, sent by a real exporter to an OTLP receiver."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import webhook_requests as made
from aiohttp import web
from http_api import Api, running_api
from integration.scene import Scene, document, ids
from integration.site import serving_routes
from opentelemetry.sdk.trace import TracerProvider
from otlp import Received, receiving
from support import eventually
from webhook_requests import STANDARD_SECRET

from ingest import Announcement, Client, Producer, SyncProducer
from ingest.queue.produce.producer import producer_client
from ingest.services.tracing import tracing_of

WEBHOOK = """
[sources.shop]
profile = "standard"
secret_files = ["standard"]
order_id = "data.id"
events = ["order.*"]
"""
SAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
INTERNAL, CLIENT = 1, 3
NOT_SAMPLED = SAMPLED[:-2] + "00"


@pytest.fixture
async def received() -> AsyncIterator[Received]:
    async with receiving() as received:
        yield received


@asynccontextmanager
async def traced_api(scene: Scene, received: Received, *, share: float = 1.0, **settings: Any) -> AsyncIterator[Api]:
    """The API, traced as a separate service."""
    traced = scene.settings(otlp_endpoint=received.url, otlp_sampling=share)
    async with tracing_of(traced, "api"), running_api(scene.redis_url, scene.dsn, scene.queue, **settings) as api:
        yield api


@asynccontextmanager
async def traced_worker(scene: Scene, received: Received, *, share: float = 1.0, **changed: Any) -> AsyncIterator[None]:
    """A worker, traced as a separate service, which has exported all its traces at the end."""
    traced = scene.settings(otlp_endpoint=received.url, otlp_sampling=share)
    async with tracing_of(traced, "worker"), scene.worker(**changed) as worker:
        yield
        await worker.stop()


async def test_a_trace_leads_from_a_webhook_to_the_ack(scene: Scene, received: Received, tmp_path: Path) -> None:
    (tmp_path / "standard").write_text(STANDARD_SECRET)
    (tmp_path / "webhooks.toml").write_text(WEBHOOK)
    body = json.dumps({"type": "order.created", "data": {"id": "536365"}}).encode()

    async with traced_api(scene, received, webhooks=str(tmp_path / "webhooks.toml")) as api:
        headers = made.standard(body, at=time.time()) | {"traceparent": SAMPLED}
        assert await api.post("/v1/webhooks/shop", data=body, headers=headers) == (200, {"result": "accepted"})
    async with traced_worker(scene, received):
        await scene.finished()

    [request] = await received.has("POST /v1/webhooks/{webhook}")
    spans = received.trace(request.trace_id)
    assert set(spans) == {request.name, "enqueue", "deliver", "queue wait", "fetch", "map", "store", "ack"}
    parents = {"enqueue": request.name, "deliver": "enqueue"}
    for name, span in spans.items():
        if span is not request:
            assert span.parent_id == spans[parents.get(name, "deliver")].span_id, name
        assert request.started_at <= span.started_at <= span.ended_at, name
    # A stranger does not decide about our traces.
    assert request.parent_id == ""
    assert request.trace_id not in SAMPLED
    assert (request.service, spans["deliver"].service) == ("ingest-api", "ingest-worker")
    assert spans["deliver"].attributes["ingest.order_id"] == "536365"
    assert spans["deliver"].attributes["ingest.outcome"] == "stored"
    assert spans["fetch"].attributes["http.response.status_code"] == 200


async def test_the_external_api_gets_the_context_of_each_request(scene: Scene, received: Received) -> None:
    contexts: list[str] = []

    async def respond(request: web.Request) -> web.Response:
        contexts.append(request.headers["traceparent"])
        return web.Response(body=document("1"), content_type="application/json")

    async with serving_routes({"/orders/1": respond}) as url:
        await scene.enqueue("1")
        async with traced_worker(scene, received, upstream_url=f"{url}/orders/{{order_id}}"):
            await scene.finished()

    [request] = await received.has("fetch")
    assert [context.split("-")[1:3] for context in contexts] == [[request.trace_id, request.span_id]]


async def test_a_batch_is_linked_with_the_traces_of_its_orders(scene: Scene, received: Received) -> None:
    await scene.enqueue(*ids(3))

    async with traced_worker(scene, received):
        await scene.finished()

    delivers = await received.has("deliver", 3)
    batches = await received.has("store batch")
    assert {span_id for batch in batches for _, span_id in batch.links} == {span.span_id for span in delivers}
    stores = received.named("store")
    assert {link for store in stores for link in store.links} == {(batch.trace_id, batch.span_id) for batch in batches}


async def test_a_request_for_several_orders_is_linked_with_their_traces(scene: Scene, received: Received) -> None:
    bulk = scene.api.url_template.replace("/{order_id}", "?ids={order_ids}")
    await scene.enqueue(*ids(3))

    async with traced_worker(scene, received, upstream_bulk_url=bulk, upstream_bulk_size=3):
        await scene.finished()

    fetches = [span for span in received.named("fetch") if span.kind == INTERNAL]
    delivers = {span.span_id: span.trace_id for span in received.named("deliver")}
    assert {(span.trace_id, span.parent_id) for span in fetches} == {(trace, span) for span, trace in delivers.items()}
    [batch] = received.named("fetch batch")
    [request] = [span for span in received.named("fetch") if span.kind == CLIENT]
    assert set(batch.links) == {(span.trace_id, span.span_id) for span in fetches}
    assert (request.trace_id, request.parent_id) == (batch.trace_id, batch.span_id)


async def test_a_retry_and_a_dead_letter_continue_the_trace(scene: Scene, received: Received) -> None:
    async def respond(request: web.Request) -> web.Response:
        order_id = request.match_info["order_id"]
        if order_id == "bad":
            return web.Response(status=500)
        return web.Response(body=document(order_id), content_type="application/json")

    await scene.enqueue(*ids(20), "bad")
    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logs:
        async with serving_routes({"/orders/{order_id}": respond}) as url:
            changed = {"upstream_url": f"{url}/orders/{{order_id}}", "max_attempts": 2}
            async with traced_worker(scene, received, **changed):
                await eventually(scene.dead)

    delivers = [span for span in received.named("deliver") if span.attributes["ingest.order_id"] == "bad"]
    first, second = sorted(delivers, key=lambda span: span.started_at)
    assert (second.trace_id, second.parent_id) == (first.trace_id, first.span_id)
    assert [span.attributes["ingest.outcome"] for span in (first, second)] == ["retried", "dead"]
    assert first.error.startswith("HTTP 5")
    [letter] = await scene.dead()
    assert letter["traceparent"].split("-")[1:3] == [second.trace_id, second.span_id]
    [retried] = [event for event in logs if event["event"] == "retry_scheduled"]
    assert received.trace(first.trace_id)["schedule retry"]
    assert (retried["trace_id"], retried["span_id"]) == (first.trace_id, first.span_id)


async def test_only_a_share_of_the_orders_is_traced_and_every_process_takes_the_same(
    scene: Scene, received: Received
) -> None:
    async with traced_api(scene, received, share=0.1) as api:
        status, _ = await api.post("/v1/orders", json={"order_ids": ids(200)})
        assert status == 202
    await scene.enqueue(*ids(200))  # by a program without traces
    enqueued = {span.attributes["ingest.order_id"] for span in await received.has("enqueue")}
    traced = [b"traceparent" in fields for _, fields in await scene.redis.xrange(scene.keys.stream)]

    async with traced_worker(scene, received, share=0.1, concurrency=100):
        await scene.finished()

    delivered = [span.attributes["ingest.order_id"] for span in received.named("deliver")]
    assert 5 < len(enqueued) < 50
    assert sum(traced) == len(enqueued)
    assert sorted(delivered) == sorted([*enqueued, *enqueued])


@pytest.mark.parametrize(("given", "is_traced"), [(SAMPLED, True), (NOT_SAMPLED, False)])
async def test_a_client_of_the_api_decides_whether_its_request_is_traced(
    scene: Scene, received: Received, *, given: str, is_traced: bool
) -> None:
    share = 0.0 if is_traced else 1.0
    async with traced_api(scene, received, share=share) as api:
        await api.post("/v1/orders", json={"order_ids": ["1", "2"]}, headers={"traceparent": given})
    async with traced_worker(scene, received, share=share):
        await scene.finished()

    assert {span.trace_id for span in received.named("deliver")} == ({SAMPLED[3:35]} if is_traced else set())
    assert len(received.named("POST /v1/orders")) == is_traced


@pytest.mark.parametrize("way", ["producer", "thread", "client"])
async def test_a_python_program_continues_its_own_trace(scene: Scene, serve_traced: Any, way: str) -> None:
    tracer = TracerProvider().get_tracer("program")

    with tracer.start_as_current_span("checkout") as span:
        trace_id = f"{span.get_span_context().trace_id:032x}"
        if way == "producer":
            async with producer_client(scene.redis_url) as client:
                await Producer(client, scene.queue).enqueue("1")
        elif way == "thread":
            with SyncProducer(scene.redis_url, scene.queue) as producer:
                await asyncio.to_thread(producer.enqueue, Announcement("1"))
        else:
            async with serve_traced() as api, Client.connect(api.url) as client:
                await client.announce("1")

    [(_, fields)] = await scene.redis.xrange(scene.keys.stream)
    assert fields[b"traceparent"].decode()[3:35] == trace_id


@pytest.fixture
def serve_traced(scene: Scene, received: Received) -> Any:
    return lambda: traced_api(scene, received, share=0.0)


async def test_a_receiver_that_does_not_respond_stops_no_order_and_delays_no_stop(scene: Scene) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, structlog.testing.capture_logs() as logs:
        await scene.enqueue(*ids(20))
        async with asyncio.timeout(20), traced_worker(scene, Received(f"http://127.0.0.1:{silent.getsockname()[1]}")):
            await scene.finished()

    assert [event for event in logs if event["event"] == "traces_not_exported"]


async def test_nothing_is_traced_by_default(scene: Scene) -> None:
    await scene.enqueue("1")

    [(_, fields)] = await scene.redis.xrange(scene.keys.stream)
    assert b"traceparent" not in fields
