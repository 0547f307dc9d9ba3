"""The real `ingest worker` reports the code that blocks its event loop, and stops as usual."""

import msgspec
import psutil
from acceptance.commands import closing_workers
from integration.scene import Scene, assert_right, document, ids
from support import Cli

ORDERS = ids(3, "heavy")
LINES = 300_000


def heavy(order_id: str) -> bytes:
    """An order with enough lines to take any machine a while to check."""
    order = msgspec.json.decode(document(order_id))
    order["lines"] = [{"sku": "S", "quantity": 1, "unit_price": "1"}] * LINES
    return msgspec.json.encode(order)


async def test_a_worker_reports_what_blocks_its_loop_and_stops_as_usual(
    cli: Cli, redis_url: str, dsn: str, queue_name: str
) -> None:
    env = {
        "INGEST_PROCESSES": "1",
        "INGEST_CONCURRENCY": "1",
        "INGEST_UPSTREAM_BODY_LIMIT": "100000000",
        "INGEST_LOOP_BLOCK_WARNING": "0.03",
    }
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        for order_id in ORDERS:
            scene.api.put_order(order_id, heavy(order_id))
        with closing_workers(cli, {**env, "INGEST_UPSTREAM_URL": scene.api.url_template}) as workers:
            command = workers.start()
            await scene.enqueue(*ORDERS)
            await scene.finished(within=60)
            # It forks again when a worker dies: the threads are the workers' own.
            threads = psutil.Process(command.process.pid).num_threads()
            code = await command.stop()
        rows = await scene.rows()

    # The blocking is over and the log is read to its end, so there is no point in waiting for the warning.
    blocked = next(iter(command.events("event_loop_blocked")), None)
    assert blocked is not None
    assert "/ingest/flow/" in blocked["stack"]  # the handler as it reads a document, or the settlement as it writes one
    assert_right(rows, ORDERS)
    assert threads == 1
    assert code == 0
