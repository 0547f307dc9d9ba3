"""Decodes the documents of a source: its mapping, its transform, and the parts of its orders."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.orders.order import Order, SkippedDocument, decode_order, document_id
from ingest.domain.orders.plain_order import decode_plain
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.flow.ports import Decode, Upstream
from ingest.flow.tracing.traced_ports import Decoding, TracedDecode
from ingest.mapping.transforms.functions import load_function
from ingest.mapping.transforms.process_pool import ProcessPool
from ingest.mapping.transforms.transform import InLoop, Transform
from ingest.telemetry.metrics import WorkerMetrics
from ingest.telemetry.tracing.port import Tracing
from ingest.upstream.client import UpstreamClient

if TYPE_CHECKING:
    from ingest.mapping.compiled.mapping import CompiledMapping
    from ingest.settings import Settings
    from ingest.sources.source import TransformOptions

# Bytes from which on a document is mapped in a thread: it takes several times as long as decoding our own.
_LARGE_TO_MAP = 256 * 1024


class CountedDecoder:
    """Implements the port `Decode` for documents with a mapping, and counts their peculiarities."""

    def __init__(self, mapping: "CompiledMapping", metrics: WorkerMetrics) -> None:
        self._decoder = OrderDecoder(mapping.read, _LARGE_TO_MAP)
        self._metrics = metrics

    async def decode(self, body: bytes, request: FetchRequest) -> tuple[Order, ...]:
        """Return the order in a document, as `OrderDecoder` does, or none if the mapping skips it."""
        try:
            (mapped,) = await self._decoder.decode(body, request)
        except SkippedDocument:
            return ()
        if mapped.total_difference is not None:
            self._metrics.total_differences.inc()
        if mapped.omitted:
            self._metrics.values_omitted.inc(len(mapped.omitted))
        return (mapped.order,)

    async def check(self, body: bytes, request: FetchRequest) -> None:
        """Decode the document without counting. One that the mapping skips is valid."""
        with suppress(SkippedDocument):
            await self._decoder.check(body, request)


@asynccontextmanager
async def open_decode(
    mapping: "CompiledMapping | None",
    transform: "TransformOptions | None",
    metrics: WorkerMetrics,
    tracing: Tracing | None = None,
) -> AsyncIterator[Decode]:
    """Open the decoding of documents, which `tracing` records.

    Raises:
        ConfigError: if the transform cannot be used.
    """
    if transform is None:
        plain: Decode = OrderDecoder(decode_plain) if mapping is None else CountedDecoder(mapping, metrics)
        yield plain if tracing is None else TracedDecode(plain, tracing)
        return
    decoder: Decoding[Order] = OrderDecoder(decode_order) if mapping is None else CountedDecoder(mapping, metrics)
    if tracing is not None:
        decoder = TracedDecode(decoder, tracing)
    if not transform.processes:
        function = InLoop(load_function(transform.function), transform.timeout)
        yield Transform(decoder, function, metrics.transform, tracing)
    else:
        opening = ProcessPool.open(transform.function, transform.processes, transform.timeout, transform.memory)
        async with opening as pool:
            yield Transform(decoder, pool, metrics.transform, tracing)


def identify_of(mapping: "CompiledMapping | None") -> Callable[[bytes], str | None]:
    """Return the function that finds the ID of a document's order, or None if the document contains none."""
    return document_id if mapping is None else mapping.identify


def skips_of(mapping: "CompiledMapping | None") -> Callable[[bytes], bool]:
    """Return the function that recognizes documents that the shop does not count as orders."""
    return (lambda _: False) if mapping is None else mapping.skips


def decoder_of(mapping: "CompiledMapping | None") -> OrderDecoder[Order]:
    """Return the decoder of documents, before any transform."""
    return OrderDecoder(decode_order) if mapping is None else OrderDecoder(mapping.decode, _LARGE_TO_MAP)


def with_parts(
    upstream: Upstream, client: UpstreamClient, mapping: "CompiledMapping | None", body_limit: int
) -> Upstream:
    """Return an upstream that puts orders together from their parts, if the mapping declares some.

    The client fetches the other parts. `body_limit` is the most bytes of an order with its parts.
    """
    if mapping is None or not mapping.parts:
        return upstream
    from ingest.mapping.parts import join  # noqa: PLC0415  only some need it
    from ingest.upstream.parts import PartsClient  # noqa: PLC0415  as above

    return PartsClient(upstream, client.fetch_page, mapping.parts, join, body_limit)


def mapping_of(settings: "Settings") -> "CompiledMapping | None":
    """The mapping that the settings name, or None for our own documents.

    Raises:
        ConfigError: if it cannot be used.
    """
    if settings.mapping is None:
        return None
    from ingest.mapping.load import load_mapping  # noqa: PLC0415  as above

    return load_mapping(settings.mapping)
