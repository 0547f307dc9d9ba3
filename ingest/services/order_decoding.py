"""Opens the mapping and the transform of a source, to decode stored documents outside of a worker."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from ingest.operations.rebuilding.remap import Decoder, Identify
from ingest.sources.documents import identify_of, mapping_of, open_decode
from ingest.sources.from_settings import transform_of
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics

if TYPE_CHECKING:
    from ingest.settings import Settings


@asynccontextmanager
async def open_order_decoder(settings: "Settings") -> AsyncIterator[tuple[Decoder, Identify]]:
    """Open the mapping and the transform, and close them at the end.

    Raises:
        ConfigError: one of them cannot be loaded.
    """
    mapping = mapping_of(settings)
    metrics = WorkerMetrics.on(worker_shared_metrics(1), 0)
    async with open_decode(mapping, transform_of(settings), metrics) as decode:
        yield decode, identify_of(mapping)
