"""The real `ingest worker` reports the code that blocks its event loop, and stops as usual."""

from pathlib import Path

import psutil
from acceptance.commands import closing_workers
from integration.scene import Scene, assert_right, document, ids
from support import Cli

ORDERS = ids(3, "slow")
# Blocking on purpose, because such a function is the mistake that the warning reports.
TRANSFORM = """
import time

def transform(order, document):
    time.sleep(0.4)
    return order
"""


async def test_a_worker_reports_what_blocks_its_loop_and_stops_as_usual(
    cli: Cli, redis_url: str, dsn: str, queue_name: str, tmp_path: Path
) -> None:
    (tmp_path / "blocking_code.py").write_text(TRANSFORM)
    env = {
        "INGEST_PROCESSES": "1",
        "INGEST_CONCURRENCY": "1",
        "INGEST_LOOP_BLOCK_WARNING": "0.1",
        "INGEST_TRANSFORM": "blocking_code:transform",
        "PYTHONPATH": str(tmp_path),
    }
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        for order_id in ORDERS:
            scene.api.put_order(order_id, document(order_id))
        with closing_workers(cli, {**env, "INGEST_UPSTREAM_URL": scene.api.url_template}) as workers:
            command = workers.start()
            await scene.enqueue(*ORDERS)
            await scene.finished(within=60)
            # It forks again when a worker dies, so that only workers may have threads.
            threads = psutil.Process(command.process.pid).num_threads()
            code = await command.stop()
        rows = await scene.rows()

    # The blocking is over and the log is read to its end, so there is no point in waiting for the warning.
    blocked = next(iter(command.events("event_loop_blocked")), None)
    assert blocked is not None
    assert "blocking_code.py" in blocked["stack"]
    assert_right(rows, ORDERS)
    assert threads == 1
    assert code == 0
