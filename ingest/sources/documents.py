"""Decodes the documents of a source: its mapping, its transform, and the parts of its orders."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ingest.domain.orders.order import Order, decode_order, document_id
from ingest.domain.orders.plain_order import decode_plain
from ingest.flow.deliver.decoding import OrderDecoder
from ingest.flow.ports import Decode, Upstream
from ingest.mapping.transforms.functions import load_function
from ingest.mapping.transforms.process_pool import ProcessPool
from ingest.mapping.transforms.transform import InLoop, Transform
from ingest.telemetry.shared_metrics import Histogram
from ingest.upstream.client import UpstreamClient

if TYPE_CHECKING:
    from ingest.mapping.compiled.mapping import CompiledMapping
    from ingest.settings import Settings
    from ingest.sources.source import TransformOptions

# Bytes from which on a document is mapped in a thread: it takes several times as long as decoding our own.
_LARGE_TO_MAP = 256 * 1024


@asynccontextmanager
async def open_decode(
    mapping: "CompiledMapping | None", transform: "TransformOptions | None", seconds: Histogram
) -> AsyncIterator[Decode]:
    """Open the decoding of documents. `seconds` observes the calls of the transform.

    Raises:
        ConfigError: if the transform cannot be used.
    """
    decode = decoder_of(mapping)
    if transform is None:
        yield OrderDecoder(decode_plain) if mapping is None else decode
    elif not transform.processes:
        yield Transform(decode, InLoop(load_function(transform.function), transform.timeout), seconds)
    else:
        opening = ProcessPool.open(transform.function, transform.processes, transform.timeout, transform.memory)
        async with opening as pool:
            yield Transform(decode, pool, seconds)


def identify_of(mapping: "CompiledMapping | None") -> Callable[[bytes], str | None]:
    """Return the function that finds the ID of a document's order, or None if the document contains none."""
    return document_id if mapping is None else mapping.identify


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

    return PartsClient(upstream, client.fetch_at, mapping.parts, join, body_limit)


def mapping_of(settings: "Settings") -> "CompiledMapping | None":
    """The mapping that the settings name, or None for our own documents.

    Raises:
        ConfigError: if it cannot be used.
    """
    if settings.mapping is None:
        return None
    from ingest.mapping.load import load_mapping  # noqa: PLC0415  as above

    return load_mapping(settings.mapping)
