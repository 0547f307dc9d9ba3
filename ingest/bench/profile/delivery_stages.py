"""Assigns parts of the code to the stages of a delivery."""

from collections.abc import Sequence

READ = "read"
CLIENT = "fetch: our client"
HTTP = "fetch: HTTP"
DECODE = "decode"
ROW = "row"
BATCH = "batch"
UPSERT = "upsert"
ACK = "ack"
BOOKKEEPING = "bookkeeping"
REST = "event loop and the rest"

STAGES = (READ, CLIENT, HTTP, DECODE, ROW, BATCH, UPSERT, ACK, BOOKKEEPING, REST)
"""The stages in the order of a delivery."""

# Prefixes of `module:qualname`, of which the first match counts. A function without a match counts for its caller. For
# example, the connection to Redis counts for the read, the ack or the heartbeat that uses it.
_PREFIXES: dict[str, str | None] = {
    "ingest.flow.read.": READ,
    "ingest.flow.deliver.scheduler:Scheduler.wait": READ,
    "ingest.flow.deliver.scheduler:Scheduler._until_free": READ,
    "ingest.flow.worker:Worker._take": READ,
    "ingest.queue.consume.reading:": READ,
    "ingest.upstream.http.": HTTP,
    "aiohttp.": HTTP,
    "yarl": HTTP,
    "ingest.upstream.": CLIENT,
    "ingest.flow.deliver.decoding:": DECODE,
    "ingest.mapping.": DECODE,
    "ingest.domain.orders.order:Order.": ROW,
    "ingest.domain.orders.order:_exact_total": ROW,
    "ingest.domain.orders.order:": DECODE,
    "ingest.domain.orders.plain_order:PlainOrder.": ROW,
    "ingest.domain.orders.plain_order:": DECODE,
    "ingest.domain.orders.order_row:": ROW,
    "ingest.store.": UPSERT,
    "asyncpg.": UPSERT,
    "ingest.flow.settle.acks:": ACK,
    "ingest.queue.consume.settling:": ACK,
    "ingest.flow.settle.": BATCH,
    "ingest.flow.buffer_limit:": BATCH,
    "ingest.flow.clock:": None,
    "ingest.flow.waiting:": None,
    "ingest.flow.": BOOKKEEPING,
    "ingest.telemetry.": BOOKKEEPING,
    "ingest.queue.consume.liveness:": BOOKKEEPING,
    "ingest.queue.consume.maintenance:": BOOKKEEPING,
}


def stage_of(names: Sequence[str]) -> str:
    """The stage of a stack, which is the stage of the innermost function that belongs to one.

    Args:
        names: `module:qualname` of each function, from the innermost outwards.
    """
    return next((stage for name in names if (stage := _stage_of_function(name))), REST)


def _stage_of_function(name: str) -> str | None:
    return next((stage for prefix, stage in _PREFIXES.items() if name.startswith(prefix)), None)
